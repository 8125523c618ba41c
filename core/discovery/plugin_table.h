// core/discovery/plugin_table.h: what a plugin's entry function gave, checked before anything in it is called.
#pragma once

#include <belay/abi/plugin.h>
#include <belay/status.hpp>
#include "core/discovery/manifest.h"

#include <string>

namespace belay::core {

// INTERNAL unless sizes, id, required slots and components are as the ABI and the manifest say. `who` begins the
// message: "plugin 'x'".
Status check_plugin_table(const belay_plugin* api, const Manifest& manifest, const std::string& who);

}  // namespace belay::core
