// The component belay.driver/1:cpu.
#pragma once

#include <belay/abi/plugin.h>
#include <belay/plugin.hpp>

namespace belay::cpu {

// The plugin's state from open to close; the kernel provider needs none of it.
struct Plugin {
  const belay_host* host = nullptr;
  static Result<std::unique_ptr<Plugin>> open(const belay_host& host, Value config);
};

// Its `create` takes the table that plugin.toml declares; its belay_ctx is a Plugin.
const belay_component* driver_component();

}  // namespace belay::cpu
