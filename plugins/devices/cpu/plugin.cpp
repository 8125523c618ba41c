// The plugin `cpu`: the processor of this machine as a device, and the kernels for it.
#include "driver/driver.h"

#include <belay/plugin.hpp>

#ifdef BELAY_CPU_KERNELS
const belay_component* belay_cpu_kernel_provider_component();
#endif

namespace {

// Called once for each component: the entry point is pure, and both tables are in read-only data.
const belay_component* const kComponents[] = {
    belay::cpu::driver_component(),
#ifdef BELAY_CPU_KERNELS
    belay_cpu_kernel_provider_component(),
#endif
};

}  // namespace

BELAY_DEFINE_PLUGIN(belay::cpu::Plugin, "cpu", "0.1.0", kComponents)
