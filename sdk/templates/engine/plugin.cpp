// The plugin @ID@: an engine for graphs of one operator, Relu of float32. It runs them on the host, on the
// thread that calls `run`; to run kernels on devices it would ask belay.host.hal/1 for streams and launch
// what providers prepare.
#include "model.hpp"

#include <belay/plugin.hpp>

namespace {

using belay::Code;
using belay::Status;

struct Engine {
  const belay_host& host;
};

belay_status load(belay_obj* object, const belay_load_req* req, belay_created* out) noexcept {
  const belay_host& host = belay::self<Engine>(object).host;
  return belay::guard(host, [&]() -> Status {
    auto model = std::make_unique<Model>(host, *req);
    BELAY_TRY(model->read(req->image));
    belay::give(out, std::move(model), Model::table());
    return {};
  });
}

void destroy(belay_obj* object) noexcept { delete &belay::self<Engine>(object); }

constexpr belay_engine_vt kTable{
    .hdr = {sizeof(belay_engine_vt), 0, nullptr}, .load = load, .destroy = destroy};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::unique_ptr<Plugin>(new Plugin{host});
  }
};

belay_status create(belay_ctx* ctx, const belay_value*, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    belay::give(out, std::unique_ptr<Engine>(new Engine{host}), kTable);
    return {};
  });
}

constexpr belay_component kComponent{.hdr = {sizeof(belay_component), 0, nullptr},
                                     .kind = belay::literal(BELAY_ENGINE_KIND),
                                     .name = belay::literal("@ID@"),
                                     .score = nullptr,
                                     .create = create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "@ID@", "0.1.0", kComponents)
