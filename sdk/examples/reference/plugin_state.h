// plugin_state.h: what lives from open to close of the plugin.
#pragma once

#include <belay/plugin.hpp>

namespace reference {

struct PluginState {
  const belay_host* host = nullptr;
  static belay::Result<std::unique_ptr<PluginState>> open(const belay_host& host, belay::Value) {
    return std::make_unique<PluginState>(PluginState{&host});
  }
};

}  // namespace reference
