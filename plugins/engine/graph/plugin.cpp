#include "engine.hpp"

#include <belay/plugin.hpp>

namespace {

struct GraphPlugin {
  explicit GraphPlugin(const belay_host& from) : host(from), providers(from) {}
  static belay::Result<std::unique_ptr<GraphPlugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<GraphPlugin>(host);
  }
  const belay_host& host;
  belay::engine::Providers providers;
};

belay_status create(belay_ctx* ctx, const belay_value*, belay_created* out) noexcept {
  GraphPlugin& plugin = belay::state<GraphPlugin>(ctx);
  return belay::guard(plugin.host, [&]() -> belay::Status {
    belay::give(out, std::make_unique<belay::engine::Engine>(plugin.host, plugin.providers),
                belay::engine::Engine::table());
    return {};
  });
}

constexpr belay_component kGraph{{sizeof(belay_component), 0, nullptr},
                                 belay::literal(BELAY_ENGINE_KIND),
                                 belay::literal("graph"),
                                 nullptr,
                                 create};
constexpr const belay_component* kComponents[] = {&kGraph};

}  // namespace

BELAY_DEFINE_PLUGIN(GraphPlugin, "graph", "0.1.0", kComponents)
