// A diagnostics plugin whose checks each use a service of the host, as a plugin of a runtime finds it.
#include <belay/abi/diagnostics.h>
#include <belay/plugin.hpp>
#include <belay/services.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace {

using belay::from_c;
using belay::to_str;

struct Probe {
  const belay_host& host;
  std::atomic<uint64_t> records{0};

  // What a check found; a failure of it is that of the check.
  belay::Result<std::string> trace() {
    BELAY_ASSIGN(const belay_trace_vt* trace, belay::service<belay_trace_vt>(host));
    uint32_t name = 0;
    BELAY_TRY(from_c(host, trace->name(&host, to_str("probe"), &name)));
    const uint64_t before = records;
    for (uint64_t i = 0; i < 3; ++i) const belay::Span span(host, trace->ring(&host), name, i);
    for (int i = 0; i < 1000 && records < before + 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return std::to_string(records - before) + " records";
  }
  belay::Result<std::string> files() {
    BELAY_ASSIGN(const belay_fs_vt* fs, belay::service<belay_fs_vt>(host));
    BELAY_TRY(from_c(host, fs->write(&host, to_str("note"), {"written", 7})));
    belay::StringSink text;
    BELAY_TRY(from_c(host, fs->read(&host, BELAY_FS_SCRATCH, to_str("note"), text.sink())));
    return std::move(text).str();
  }
  belay::Result<std::string> memory() {
    BELAY_ASSIGN(const belay_memory_vt* memory, belay::service<belay_memory_vt>(host));
    belay_memory_req req{};
    req.hdr.struct_size = sizeof req, req.bytes = 8192;
    void* block = nullptr;
    BELAY_TRY(from_c(host, memory->alloc(&host, &req, &block)));
    std::memset(block, 1, req.bytes);
    belay_memory_usage usage{};
    usage.hdr.struct_size = sizeof usage;
    BELAY_TRY(from_c(host, memory->usage(&host, &usage)));
    memory->free(&host, block);
    return std::to_string(usage.bytes) + " bytes";
  }
  belay::Result<std::string> metrics() {
    BELAY_ASSIGN(const belay_metrics_vt* metrics, belay::service<belay_metrics_vt>(host));
    belay_metric_req req{};
    req.hdr.struct_size = sizeof req, req.kind = BELAY_METRIC_COUNTER, req.name = to_str("checks");
    uint64_t id = 0;
    BELAY_TRY(from_c(host, metrics->define(&host, &req, &id)));
    metrics->add(&host, id, 1);
    std::string seen;
    BELAY_TRY(from_c(host, metrics->each(
                               &host,
                               [](void* to, const belay_metric_info* info) BELAY_NOEXCEPT {
                                 *static_cast<std::string*>(to) += belay::to_string(info->plugin) + "." +
                                                                   belay::to_string(info->name) + "=" +
                                                                   std::to_string(info->value);
                               },
                               &seen)));
    return seen;
  }
  belay::Result<std::string> fault() {
    BELAY_ASSIGN(const belay_fault_vt* fault, belay::service<belay_fault_vt>(host));
    BELAY_TRY(from_c(host, fault->at(&host, to_str("order"))));
    return std::string("nothing ordered");
  }
};

struct Check {
  const char* name;
  belay::Result<std::string> (Probe::*run)();
};
constexpr Check kChecks[] = {{"probe.trace", &Probe::trace},
                             {"probe.files", &Probe::files},
                             {"probe.memory", &Probe::memory},
                             {"probe.metrics", &Probe::metrics},
                             {"probe.fault", &Probe::fault}};

constexpr belay_diagnostics_vt kTable = {
    .hdr = {sizeof(belay_diagnostics_vt), 0, nullptr},
    .on_records = [](belay_obj* o, const belay_trace_record*,
                     uint64_t n) { belay::self<Probe>(o).records += n; },
    .check_count = [](belay_obj*) { return uint64_t(std::size(kChecks)); },
    .check_info = [](belay_obj*, uint64_t index, belay_check_info* inout) -> belay_status {
      inout->name = to_str(kChecks[index].name), inout->doc = {};
      return BELAY_OK;
    },
    .run_check = [](belay_obj* o, uint64_t index, uint64_t* outcome, belay_sink text) -> belay_status {
      const auto found = (belay::self<Probe>(o).*kChecks[index].run)();
      *outcome = found.ok() ? BELAY_CHECK_PASSED : BELAY_CHECK_FAILED;
      belay::write(text, found.ok() ? *found : found.status().message());
      return BELAY_OK;
    },
    .dump = nullptr,
    .flush = nullptr,
    .destroy = [](belay_obj* o) { delete static_cast<Probe*>(o->impl); }};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::unique_ptr<Plugin>(new Plugin{host});
  }
};

constexpr belay_component kComponent = {
    .hdr = {sizeof(belay_component), 0, nullptr},
    .kind = belay::literal(BELAY_DIAGNOSTICS_KIND),
    .name = belay::literal("probe"),
    .score = nullptr,
    .create = [](belay_ctx* ctx, const belay_value*, belay_created* out) -> belay_status {
      belay::give(out, std::unique_ptr<Probe>(new Probe{belay::state<Plugin>(ctx).host}), kTable);
      return BELAY_OK;
    }};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "probe", "1.0.0", kComponents)
