#include "engine.hpp"

#include <belay/plugin.hpp>

namespace {

struct GraphPlugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<GraphPlugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<GraphPlugin>(GraphPlugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value*, belay_created* out) noexcept {
  const belay_host& host = belay::state<GraphPlugin>(ctx).host;
  return belay::guard(host, [&]() -> belay::Status {
    belay::give(out, std::make_unique<belay::engine::Engine>(host), belay::engine::Engine::table());
    return {};
  });
}

constexpr belay_component kGraph{
    {sizeof(belay_component), 0, nullptr}, belay::literal(BELAY_ENGINE_KIND), belay::literal("graph"), nullptr, create};
constexpr const belay_component* kComponents[] = {&kGraph};

}  // namespace

BELAY_DEFINE_PLUGIN(GraphPlugin, "graph", "0.1.0", kComponents)
