// core/discovery/plugin_order.h: in which order plugins are opened.
#pragma once

#include "core/discovery/manifest.h"

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

struct PluginOrder {
  std::vector<std::string> order;  // ids, each after what it requires and, where there, what it is `after`
  std::map<std::string, Status> cycles;  // ids that cannot be opened, and why: "... a -> b -> a"
};

// Of a plugin and its components: what they require.
std::vector<std::string> all_requirements(const Manifest& manifest);
// Whether the plugin is, or has, what is required: its id, a key or a kind.
bool offers(const Manifest& manifest, std::string_view requirement);
// Layers come first, as they stand before what all others make; else plugins that nothing orders keep the order given. A circle of `after` alone is broken, one of `requires`
// refused.
PluginOrder order_plugins(const std::vector<const Manifest*>& plugins);

// Whether what a plugin requires is there. `plugins`: all that are wanted; `host_has(service)`;
// `failure(id)`: why one of those cannot be built on, empty where it can. UNIMPLEMENTED, FAILED_PRECONDITION.
Status check_requirements(const Manifest& manifest, const std::vector<const Manifest*>& plugins,
                          const std::function<bool(std::string_view)>& host_has,
                          const std::function<std::string(const std::string&)>& failure);

}  // namespace belay::core
