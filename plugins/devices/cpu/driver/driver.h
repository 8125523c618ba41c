// The component belay.driver/1:cpu.
#pragma once

#include "driver/ticks.h"
#include "kernels/provider.hpp"

#include <belay/abi/plugin.h>

namespace belay::cpu {

// The plugin's state from open to close, as far as the driver needs it; begins with what the kernel provider needs.
struct DriverState : PluginState {
  explicit DriverState(const belay_host& its_host) : PluginState{&its_host}, ticks(its_host) {}
  Ticks ticks;
};

// Its `create` takes the table that plugin.toml declares; its belay_ctx is a DriverState.
const belay_component* driver_component();

}  // namespace belay::cpu
