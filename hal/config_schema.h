// hal/config_schema.h: the tables of the configuration that the HAL and the runtime read.
#pragma once

#include "core/config/schema.h"

namespace belay::hal {

// The core's schema with [runtime] device and so on, [models], [memory], [engine] and [diagnostics]. No name
// of a plugin is a default here: those stand in the configurations.
core::Schema runtime_schema();

}  // namespace belay::hal
