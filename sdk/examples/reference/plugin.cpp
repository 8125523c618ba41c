// The plugin `reference`: a device of plain loops to compare faster ones with.
#include "device.h"
#include "plugin_state.h"
#include "provider.h"

namespace {
const belay_component* const kComponents[] = {reference::driver_component(), reference::provider_component()};
}

BELAY_DEFINE_PLUGIN(reference::PluginState, "reference", "0.1.0", kComponents)
