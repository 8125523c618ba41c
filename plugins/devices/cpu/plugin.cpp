// The plugin `cpu`: the processor of this machine as a device, and the kernels for it.
#include "driver/driver.h"
#include "kernels/provider.hpp"
#include "kernels/simd/isa.hpp"

#include <belay/plugin.hpp>

namespace {

struct Plugin : belay::cpu::DriverState {
  using DriverState::DriverState;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value config) {
    BELAY_TRY(belay::cpu::fix_isa(config["isa"].as_string("auto")));
    return std::make_unique<Plugin>(host);
  }
};

const belay_component* const kComponents[] = {
    belay::cpu::driver_component(),
    belay_cpu_kernel_provider_component(),
};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "cpu", "0.1.0", kComponents)
