// The plugin `reuse`: a memory policy that places all tensors of a graph in one arena from their lifetimes.
#include "planner/planner.hpp"

#include <belay/fill.hpp>
#include <belay/plugin.hpp>

#include <algorithm>

namespace {

struct Policy {
  const belay_host& host;
  uint64_t budget_ns;  // a plan's, where the caller allows less
};

uint64_t serves(belay_obj*) noexcept { return BELAY_POLICY_PLAN; }

belay_status plan(belay_obj* object, const belay_plan_req* req, belay_plan_result* result) noexcept {
  const Policy& policy = belay::self<Policy>(object);
  return belay::guard(policy.host, [&] {
    belay_plan_req mine = *req;
    mine.budget_ns = std::max(req->budget_ns, policy.budget_ns);
    return belay::reuse::plan(mine, *result);
  });
}

// It holds no memory at all.
belay_status stats(belay_obj*, belay_policy_stats* inout) noexcept {
  belay::fill(inout, belay_policy_stats{});
  return BELAY_OK;
}

void destroy(belay_obj* object) noexcept { delete &belay::self<Policy>(object); }

constexpr belay_memory_policy_vt kTable{.hdr = {sizeof(belay_memory_policy_vt), 0, nullptr},
                                        .serves = serves,
                                        .plan = plan,
                                        .place = nullptr,
                                        .release = nullptr,
                                        .segment_add = nullptr,
                                        .segment_remove = nullptr,
                                        .trim = nullptr,
                                        .bind = nullptr,
                                        .stats = stats,
                                        .destroy = destroy,
                                        .snapshot = nullptr};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<Plugin>(Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> belay::Status {
    const auto budget_us = uint64_t(belay::Value(config)["budget_us"].as_int(0));
    belay::give(out, std::make_unique<Policy>(Policy{host, budget_us * 1000}), kTable);
    return {};
  });
}

constexpr belay_component kComponent{{sizeof(belay_component), 0, nullptr},
                                     belay::literal(BELAY_MEMORY_POLICY_KIND),
                                     belay::literal("reuse"),
                                     nullptr,
                                     create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "reuse", "0.1.0", kComponents)
