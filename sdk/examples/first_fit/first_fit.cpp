// The plugin `first_fit`: a small memory policy of all three classes. It plans buffers in the order of their
// births, each at the lowest offset that is free while it lives; it places blocks for dynamic use
// (place.hpp); it lets devices use host memory where that lies aligned. It shows what a policy of one's own
// needs; it knows nothing of devices or tensors.
#include "place.hpp"

#include <belay/fill.hpp>
#include <belay/plugin.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace {

using belay::Code;
using belay::Status;

struct Policy {
  Policy(const belay_host& host, uint64_t gap) : host(host), gap(gap) {}
  const belay_host& host;
  const uint64_t gap;
  Places places{gap};
};

struct Request {
  const belay_plan_req& raw;
  uint64_t align(uint32_t i) const { return raw.align ? raw.align[i] : 64; }
  uint32_t arena(uint32_t i) const { return raw.arena ? raw.arena[i] : 0; }
  const belay_interval* begin(uint32_t i) const { return raw.intervals + raw.interval_first[i]; }
  const belay_interval* end(uint32_t i) const { return raw.intervals + raw.interval_first[i + 1]; }
  bool fixed(uint32_t i) const { return raw.fixed_offset && raw.fixed_offset[i] != BELAY_OFFSET_FREE; }

  bool meet(uint32_t a, uint32_t b) const {
    for (const belay_interval* x = begin(a); x != end(a); ++x)
      for (const belay_interval* y = begin(b); y != end(b); ++y)
        if (x->begin < y->end && y->begin < x->end) return true;
    return false;
  }
};

// The maximum of bytes alive at one step of an arena: no plan can need less.
uint64_t lower_bound(const Request& req, uint32_t arena) {
  std::vector<std::pair<uint64_t, int64_t>> changes;  // at a step; ends come before begins
  for (uint32_t i = 0; i < req.raw.count; ++i) {
    if (req.arena(i) != arena) continue;
    for (const belay_interval* at = req.begin(i); at != req.end(i); ++at) {
      changes.push_back({at->begin, int64_t(req.raw.bytes[i])});
      changes.push_back({at->end, -int64_t(req.raw.bytes[i])});
    }
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, most = 0;
  for (const auto& [step, change] : changes) most = std::max(most, live += change);
  return uint64_t(most);
}

uint64_t serves(belay_obj*) noexcept { return BELAY_POLICY_PLAN | BELAY_POLICY_PLACE | BELAY_POLICY_BIND; }

belay_status plan(belay_obj* object, const belay_plan_req* raw, belay_plan_result* result) noexcept {
  const Policy& policy = belay::self<Policy>(object);
  return belay::guard(policy.host, [&]() -> Status {
    const Request req{*raw};
    std::set<std::pair<uint32_t, uint32_t>> conflicts;
    for (uint64_t i = 0; i < raw->conflict_count; ++i)
      conflicts.insert(std::minmax(raw->conflicts[i].first, raw->conflicts[i].second));

    std::vector<uint32_t> order(raw->count);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      if (req.fixed(a) != req.fixed(b)) return req.fixed(a);  // what cannot move comes first
      const uint64_t x = req.begin(a) == req.end(a) ? 0 : req.begin(a)->begin;
      const uint64_t y = req.begin(b) == req.end(b) ? 0 : req.begin(b)->begin;
      return x < y;
    });

    std::fill_n(result->peak, raw->arena_count, 0);
    std::vector<uint32_t> placed;
    for (const uint32_t i : order) {
      std::vector<std::pair<uint64_t, uint64_t>> taken;  // [from, to) of those that it must not touch
      for (const uint32_t other : placed)
        if (req.arena(other) == req.arena(i) && raw->bytes[other] &&
            (req.meet(i, other) || conflicts.contains(std::minmax(i, other))))
          taken.push_back({result->offset[other], result->offset[other] + raw->bytes[other] + policy.gap});
      std::sort(taken.begin(), taken.end());
      uint64_t at = req.fixed(i) ? raw->fixed_offset[i] : 0;
      for (const auto& [from, to] : taken)
        if (!req.fixed(i) && at + raw->bytes[i] + policy.gap > from && at < to)
          at = (to + req.align(i) - 1) / req.align(i) * req.align(i);
      if (at > UINT64_MAX - raw->bytes[i] - policy.gap)
        return {Code::kInvalidArgument, "Buffer " + std::to_string(i) + " of " +
                                            std::to_string(raw->bytes[i]) + " bytes ends past 2^64 bytes."};
      result->offset[i] = at;
      uint64_t& peak = result->peak[req.arena(i)];
      peak = std::max(peak, at + raw->bytes[i]);
      placed.push_back(i);
    }
    result->optimal = 1;
    for (uint32_t arena = 0; arena < raw->arena_count; ++arena) {
      result->lower_bound[arena] = lower_bound(req, arena);
      if (result->peak[arena] != result->lower_bound[arena]) result->optimal = 0;
    }
    return {};
  });
}

// Calls body(policy), which may throw and gives a Status, and turns what comes out into a word of the C ABI.
template <class Body>
belay_status with(belay_obj* object, Body&& body) noexcept {
  Policy& policy = belay::self<Policy>(object);
  return belay::guard(policy.host, [&]() -> Status { return body(policy); });
}

belay_status place(belay_obj* object, const belay_place_req* req, belay_placed* out) noexcept {
  return with(object, [&](Policy& policy) { return policy.places.place(*req, *out); });
}

belay_status release(belay_obj* object, uint64_t cookie, const belay_event* uses, uint64_t count) noexcept {
  return with(object, [&](Policy& policy) { return policy.places.release(cookie, uses, count); });
}

belay_status segment_add(belay_obj* object, uint64_t id, uint64_t bytes, uint64_t heap) noexcept {
  return with(object, [&](Policy& policy) { return policy.places.add(id, bytes, heap), Status(); });
}

belay_status segment_remove(belay_obj* object, uint64_t id) noexcept {
  return with(object, [&](Policy& policy) { return policy.places.remove(id); });
}

belay_status trim(belay_obj* object, uint64_t bytes, void (*each)(void*, uint64_t), void* user) noexcept {
  return with(object, [&](Policy& policy) {
    for (const uint64_t id : policy.places.empty(bytes)) each(user, id);
    return Status();
  });
}

belay_status bind(belay_obj* object, const belay_bind_req* req, belay_bound* out) noexcept {
  return with(object, [&](Policy&) {
    const bool aligned = req->address % std::max<uint64_t>(req->alignment, 1) == 0;
    out->mode = aligned ? BELAY_BIND_SHARE : BELAY_BIND_COPY;
    if (!aligned)
      belay::write(out->reason, "its address is no multiple of " + std::to_string(req->alignment));
    return Status();
  });
}

belay_status stats(belay_obj* object, belay_policy_stats* inout) noexcept {
  return with(object, [&](Policy& policy) {
    belay_policy_stats all{};
    policy.places.fill(all);
    belay::fill(inout, all);
    return Status();
  });
}
void destroy(belay_obj* object) noexcept { delete &belay::self<Policy>(object); }

constexpr belay_memory_policy_vt kTable{.hdr = {sizeof(belay_memory_policy_vt), 0, nullptr},
                                        .serves = serves,
                                        .plan = plan,
                                        .place = place,
                                        .release = release,
                                        .segment_add = segment_add,
                                        .segment_remove = segment_remove,
                                        .trim = trim,
                                        .bind = bind,
                                        .stats = stats,
                                        .destroy = destroy,
                                        .snapshot = nullptr};

struct Plugin {
  const belay_host* host = nullptr;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<Plugin>(Plugin{&host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  const belay_host& host = *belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    belay::give(out, std::make_unique<Policy>(host, uint64_t(belay::Value(config)["gap"].as_int())), kTable);
    return {};
  });
}

constexpr belay_component kComponent{{sizeof(belay_component), 0, nullptr},
                                     belay::literal(BELAY_MEMORY_POLICY_KIND),
                                     belay::literal("first_fit"),
                                     nullptr,
                                     create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "first_fit", "0.1.0", kComponents)
