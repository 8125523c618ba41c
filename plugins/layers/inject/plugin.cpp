// The plugin `inject`: a layer that makes calls fail by rules, to see what becomes of it.
#include "inject.hpp"

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
    using namespace belay::inject;
    const belay::Value config(raw), list = config["rules"];
    std::vector<Rule> rules;
    for (uint64_t i = 0; i < list.count(); ++i) {
      BELAY_ASSIGN(Rule rule, parse_rule(list.at(i).as_string()));
      rules.push_back(std::move(rule));
    }
    belay::give(out, std::make_unique<Inject>(host, std::move(rules), uint64_t(config["seed"].as_int(1))),
                Inject::table());
    return {};
  });
}

constexpr belay_component kComponent{{sizeof(belay_component), 0, nullptr},
                                     belay::literal(BELAY_LAYER_KIND),
                                     belay::literal("inject"),
                                     nullptr,
                                     create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "inject", "0.1.0", kComponents)
