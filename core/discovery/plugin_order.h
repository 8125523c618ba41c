// core/discovery/plugin_order.h: in which order plugins are opened.
#pragma once

#include "core/discovery/manifest.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

struct PluginOrder {
  std::vector<std::string> order;  // ids, each after what it requires and, where there, what it is `after`
  std::map<std::string, std::string> cycles;  // ids that cannot be opened -> "a -> b -> a"
};

// Of a plugin and its components: what they require.
std::vector<std::string> all_requirements(const Manifest& manifest);
// Whether the plugin is, or has, what is required: its id, a key or a kind.
bool offers(const Manifest& manifest, std::string_view requirement);
// Plugins that nothing orders keep the order given. A circle of `after` alone is broken, one of `requires`
// refused.
PluginOrder order_plugins(const std::vector<const Manifest*>& plugins);

}  // namespace belay::core
