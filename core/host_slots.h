// core/host_slots.h: the C tables behind which a Host stands.
#pragma once

#include <belay/abi/host.h>

#include <map>
#include <string>

namespace belay::core {

// The slots of a belay_host; each finds its Host in the HostTable around it.
belay_host host_slots();
// The services of the core: executor, registry.
std::map<std::string, const void*, std::less<>> host_services();

}  // namespace belay::core
