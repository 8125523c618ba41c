#include "core/services/metrics.h"

#include "core/base/text.h"
#include "core/host_call.h"
#include "core/services/services.h"

#include <bit>

namespace belay::core {

Metrics::~Metrics() {
  for (uint64_t i = 0; i < defined_; ++i) delete (*metrics_)[i].load();
}

Result<uint64_t> Metrics::define(std::string_view plugin, const belay_metric_req& req) {
  const std::string_view name = to_view(req.name);
  if (!valid_id(name) || req.kind < BELAY_METRIC_COUNTER || req.kind > BELAY_METRIC_HISTOGRAM)
    return Status(Code::kInvalidArgument, "Metric " + quote(name.substr(0, 64)) + " of kind " +
                                              std::to_string(req.kind) +
                                              ": want an id such as queue.depth and a known kind.");
  std::lock_guard lock(mutex_);
  for (uint64_t i = 0; i < defined_; ++i) {
    const Metric& metric = *(*metrics_)[i].load(std::memory_order_relaxed);
    if (metric.name != name || metric.plugin != plugin) continue;
    if (metric.kind == req.kind) return i + 1;
    return Status(Code::kAlreadyExists, "Metric " + quote(name) + " of plugin " + quote(plugin) +
                                            " is of kind " + std::to_string(metric.kind) + " already, not " +
                                            std::to_string(req.kind) + ".");
  }
  if (defined_ == kMost)
    return Status(Code::kResourceExhausted, "This host has " + std::to_string(kMost) + " metrics already; " +
                                                quote(name) + " is one too many.");
  auto metric = std::make_unique<Metric>();
  metric->plugin = plugin, metric->name = name, metric->kind = req.kind;
  metric->unit = printable(to_view(req.unit).substr(0, 64)),
  metric->doc = printable(to_view(req.doc).substr(0, 1024));
  if (req.kind == BELAY_METRIC_HISTOGRAM)
    metric->buckets = std::make_unique<std::array<std::atomic<uint64_t>, BELAY_METRIC_BUCKETS>>();
  (*metrics_)[defined_].store(metric.release(), std::memory_order_release);
  return ++defined_;
}

Metrics::Metric* Metrics::find(uint64_t metric, uint64_t kinds) const {
  if (metric == 0 || metric > kMost) return nullptr;
  Metric* const found = (*metrics_)[metric - 1].load(std::memory_order_acquire);
  return found && kinds >> found->kind & 1 ? found : nullptr;
}

void Metrics::add(uint64_t metric, int64_t by) {
  Metric* const found = find(metric, 1u << BELAY_METRIC_COUNTER | 1u << BELAY_METRIC_GAUGE);
  if (found && (by >= 0 || found->kind == BELAY_METRIC_GAUGE))
    found->value.fetch_add(by, std::memory_order_relaxed);
}

void Metrics::set(uint64_t metric, int64_t value) {
  if (Metric* const found = find(metric, 1u << BELAY_METRIC_GAUGE))
    found->value.store(value, std::memory_order_relaxed);
}

void Metrics::observe(uint64_t metric, uint64_t value) {
  Metric* const found = find(metric, 1u << BELAY_METRIC_HISTOGRAM);
  if (!found) return;
  (*found->buckets)[size_t(std::bit_width(value))].fetch_add(1, std::memory_order_relaxed);
  found->count.fetch_add(1, std::memory_order_relaxed);
  found->sum.fetch_add(value, std::memory_order_relaxed);
}

void Metrics::each(const std::function<void(const belay_metric_info&)>& body) const {
  for (const std::atomic<Metric*>& place : *metrics_) {
    const Metric* const metric = place.load(std::memory_order_acquire);
    if (!metric) return;
    std::array<uint64_t, BELAY_METRIC_BUCKETS> buckets{};
    if (metric->buckets)
      for (size_t i = 0; i < buckets.size(); ++i)
        buckets[i] = (*metric->buckets)[i].load(std::memory_order_relaxed);
    body({.hdr = {sizeof(belay_metric_info), 0, nullptr},
          .plugin = to_str(metric->plugin),
          .name = to_str(metric->name),
          .unit = to_str(metric->unit),
          .doc = to_str(metric->doc),
          .kind = metric->kind,
          .value = metric->value.load(std::memory_order_relaxed),
          .count = metric->count.load(std::memory_order_relaxed),
          .sum = metric->sum.load(std::memory_order_relaxed),
          .buckets = metric->buckets ? buckets.data() : nullptr});
  }
}

namespace {

// Hot: no lock, and no question to the system whether this is a forked child, where it harms nobody.
template <class Body>
void change(const belay_host* host, Body&& body) {
  const HostTable& table = table_of(host);
  if (table.live.load(std::memory_order_relaxed)) body(services_of(table).metrics);
}

}  // namespace

const belay_metrics_vt kMetricsTable = {
    {sizeof(belay_metrics_vt), 0, nullptr},
    [](const belay_host* host, const belay_metric_req* req, uint64_t* out) {
      return host_call<belay_status>(host, [&](HostTable& table) -> Status {
        if (!req || !out || req->hdr.struct_size < sizeof *req)
          return {Code::kInvalidArgument, "define of a metric was given no request, or no place for the id."};
        BELAY_ASSIGN(*out, services_of(table).metrics.define(table.plugin, *req));
        return {};
      });
    },
    [](const belay_host* host, uint64_t metric, int64_t by) {
      change(host, [&](Metrics& metrics) { metrics.add(metric, by); });
    },
    [](const belay_host* host, uint64_t metric, int64_t value) {
      change(host, [&](Metrics& metrics) { metrics.set(metric, value); });
    },
    [](const belay_host* host, uint64_t metric, uint64_t value) {
      change(host, [&](Metrics& metrics) { metrics.observe(metric, value); });
    },
    [](const belay_host* host, void (*each)(void*, const belay_metric_info*), void* user) {
      return host_call<belay_status>(host, [&](HostTable& table) -> Status {
        services_of(table).metrics.each([&](const belay_metric_info& info) { each(user, &info); });
        return {};
      });
    }};

}  // namespace belay::core
