// device.h: belay.driver/1:reference: one device in host memory; a thread for each stream does the work in
// order.
#pragma once

#include <belay/abi/plugin.h>

namespace reference {
const belay_component* driver_component();
}
