// The component belay.kernel-provider/1:cpu: kernels of the CPU device. Linked into the plugin of the cpu
// driver.
#pragma once

#include <belay/abi/plugin.h>

namespace belay::cpu {

// What the provider's create slot expects of the plugin: its state (belay_ctx) begins with this. Derive the
// state from it, first of all bases.
struct PluginState {
  const belay_host* host = nullptr;
};

}  // namespace belay::cpu

const belay_component* belay_cpu_kernel_provider_component();
