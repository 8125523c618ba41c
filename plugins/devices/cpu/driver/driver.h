// The component belay.driver/1:cpu.
#pragma once

#include <belay/abi/plugin.h>

namespace belay::cpu {

// Its `create` takes the table that plugin.toml declares; its belay_ctx begins with PluginState (kernels/provider.hpp).
const belay_component* driver_component();

}  // namespace belay::cpu
