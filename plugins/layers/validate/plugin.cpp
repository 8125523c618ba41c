// The plugin `validate`: a layer that finds what callers and plugins do against the rules of the ABI.
#include "validate.hpp"

namespace {

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::make_unique<Plugin>(Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value* raw, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> belay::Status {
    using belay::validate::Validate;
    const belay::Value config(raw);
    belay::give(out,
                std::make_unique<Validate>(host, config["strict"].as_bool(), config["races"].as_bool(true)),
                Validate::table());
    return {};
  });
}

constexpr belay_component kComponent{{sizeof(belay_component), 0, nullptr},
                                     belay::literal(BELAY_LAYER_KIND),
                                     belay::literal("validate"),
                                     nullptr,
                                     create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "validate", "0.1.0", kComponents)
