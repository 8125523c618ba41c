// The smallest plugin: one component that makes nothing, named as the plugin, ECHO_ID.
#include <belay/plugin.hpp>

namespace {

struct Echo {
  static belay::Result<std::unique_ptr<Echo>> open(const belay_host& host, belay::Value) {
    host.log(&host, BELAY_LOG_INFO, belay::literal("the echo is open"));
    return std::make_unique<Echo>();
  }
};

belay_status create(belay_ctx*, const belay_value*, belay_created*) noexcept { return BELAY_UNIMPLEMENTED; }

constexpr belay_component kEcho{.hdr = {sizeof(belay_component), 0, nullptr},
                                .kind = belay::literal("test.echo/1"),
                                .name = belay::literal(ECHO_ID),
                                .score = nullptr,
                                .create = create};
constexpr const belay_component* kComponents[] = {&kEcho};

}  // namespace

BELAY_DEFINE_PLUGIN(Echo, ECHO_ID, "0.1.0", kComponents)
