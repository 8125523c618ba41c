// The plugin `pool`: a memory policy that places blocks for dynamic use out of segments.
#include "placer/pool.hpp"

#include <belay/fill.hpp>
#include <belay/plugin.hpp>


namespace {

using belay::Status;

struct Policy {
  Policy(const belay_host& its_host, const belay::pool::Options& options) : host(its_host), pool(options) {}
  const belay_host& host;
  belay::pool::Pool pool;
};

uint64_t serves(belay_obj*) noexcept { return BELAY_POLICY_PLACE; }

// What most calls come to stays free of what the others need.
[[gnu::noinline]] belay_status place_slowly(Policy& policy, const belay_place_req& req, belay_placed& out) noexcept {
  return belay::guard(policy.host, [&] { return policy.pool.place(req, out); });
}
belay_status place(belay_obj* object, const belay_place_req* req, belay_placed* out) noexcept {
  Policy& policy = belay::self<Policy>(object);
  return policy.pool.place_at_once(*req, *out) ? BELAY_OK : place_slowly(policy, *req, *out);
}

[[gnu::noinline]] belay_status release_slowly(Policy& policy, uint64_t cookie, const belay_event* uses,
                                              uint64_t count) noexcept {
  return belay::guard(policy.host, [&] { return policy.pool.release(cookie, uses, count); });
}
belay_status release(belay_obj* object, uint64_t cookie, const belay_event* uses, uint64_t count) noexcept {
  Policy& policy = belay::self<Policy>(object);
  return policy.pool.release_at_once(cookie, uses, count) ? BELAY_OK : release_slowly(policy, cookie, uses, count);
}

belay_status segment_add(belay_obj* object, uint64_t segment, uint64_t bytes, uint64_t heap) noexcept {
  Policy& policy = belay::self<Policy>(object);
  return belay::guard(policy.host, [&] { return policy.pool.add_segment(segment, bytes, heap); });
}

belay_status segment_remove(belay_obj* object, uint64_t segment) noexcept {
  Policy& policy = belay::self<Policy>(object);
  return belay::guard(policy.host, [&] { return policy.pool.remove_segment(segment); });
}

belay_status trim(belay_obj* object, uint64_t bytes, void (*each)(void*, uint64_t), void* user) noexcept {
  Policy& policy = belay::self<Policy>(object);
  return belay::guard(policy.host, [&]() -> Status {
    policy.pool.trim(bytes, each, user);
    return {};
  });
}

belay_status stats(belay_obj* object, belay_policy_stats* inout) noexcept {
  belay::fill(inout, belay::self<Policy>(object).pool.stats());
  return BELAY_OK;
}

belay_status snapshot(belay_obj* object, belay_sink json) noexcept {
  const Policy& policy = belay::self<Policy>(object);
  return belay::guard(policy.host, [&]() -> Status {
    policy.pool.snapshot(json);
    return {};
  });
}

void destroy(belay_obj* object) noexcept { delete &belay::self<Policy>(object); }

constexpr belay_memory_policy_vt kTable{.hdr = {sizeof(belay_memory_policy_vt), 0, nullptr},
                                        .serves = serves,
                                        .plan = nullptr,
                                        .place = place,
                                        .release = release,
                                        .segment_add = segment_add,
                                        .segment_remove = segment_remove,
                                        .trim = trim,
                                        .bind = nullptr,
                                        .stats = stats,
                                        .destroy = destroy,
                                        .snapshot = snapshot};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<Plugin>(Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value* raw, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    const belay::Value config(raw);
    belay::pool::Options options;
    const auto size = [&](const char* key, uint64_t& value) { value = uint64_t(config[key].as_int(int64_t(value))); };
    size("block_size", options.block_size);
    size("alignment", options.alignment);
    size("pool_size", options.pool_size);
    size("growth", options.growth);
    size("growth_percent", options.growth_percent);
    size("soft_limit", options.soft_limit);
    size("hard_limit", options.hard_limit);
    options.wait_first = config["cross_stream"].as_string("wait") == "wait";
    options.cache_percent = config["cache_percent"].as_float(options.cache_percent);
    BELAY_TRY(options.check());
    belay::give(out, std::make_unique<Policy>(host, options), kTable);
    return {};
  });
}

constexpr belay_component kComponent{{sizeof(belay_component), 0, nullptr},
                                     belay::literal(BELAY_MEMORY_POLICY_KIND),
                                     belay::literal("pool"),
                                     nullptr,
                                     create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "pool", "0.1.0", kComponents)
