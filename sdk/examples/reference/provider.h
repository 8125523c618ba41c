// provider.h: belay.kernel-provider/1:reference, the plain loops as kernels.
#pragma once

#include <belay/abi/plugin.h>

namespace reference {
const belay_component* provider_component();
}
