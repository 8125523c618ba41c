#include "core/discovery/plugin_order.h"

#include "core/base/text.h"

#include <belay/abi/layer.h>

#include <algorithm>

namespace belay::core {
namespace {

bool is_layer(const Manifest* manifest) { return offers(*manifest, BELAY_LAYER_KIND); }

}  // namespace

std::vector<std::string> all_requirements(const Manifest& manifest) {
  std::vector<std::string> all = manifest.requires_;
  for (const ManifestComponent& component : manifest.components)
    all.insert(all.end(), component.requires_.begin(), component.requires_.end());
  return all;
}

bool offers(const Manifest& manifest, std::string_view requirement) {
  return manifest.id == requirement ||
         std::any_of(manifest.components.begin(), manifest.components.end(),
                     [&](const auto& c) { return c.key() == requirement || c.kind == requirement; });
}

PluginOrder order_plugins(const std::vector<const Manifest*>& plugins) {
  PluginOrder result;
  std::vector<const Manifest*> left = plugins;
  std::stable_partition(left.begin(), left.end(), is_layer);
  // The one among those left that must come before `manifest`, or nullptr.
  const auto blocker = [&](const Manifest& manifest,
                           const std::vector<std::string>& wanted) -> const Manifest* {
    for (const std::string& requirement : wanted)
      for (const Manifest* other : left)
        if (other != &manifest && !offers(manifest, requirement) && offers(*other, requirement)) return other;
    return nullptr;
  };
  const auto wishes = [](const Manifest& manifest) {
    std::vector<std::string> all = all_requirements(manifest);
    all.insert(all.end(), manifest.after.begin(), manifest.after.end());
    for (const ManifestComponent& component : manifest.components)
      all.insert(all.end(), component.after.begin(), component.after.end());
    return all;
  };
  while (!left.empty()) {
    auto next = std::find_if(left.begin(), left.end(), [&](auto* m) { return !blocker(*m, wishes(*m)); });
    if (next == left.end())  // a circle with `after` in it: only what is required counts
      next =
          std::find_if(left.begin(), left.end(), [&](auto* m) { return !blocker(*m, all_requirements(*m)); });
    if (next == left.end()) break;
    result.order.push_back((*next)->id);
    left.erase(next);
  }
  for (const Manifest* manifest : left) {  // in a circle, or waiting for one
    std::vector<std::string> path;
    for (const Manifest* at = manifest; at; at = blocker(*at, all_requirements(*at))) {
      path.push_back(at->id);
      if (std::find(path.begin(), path.end() - 1, at->id) != path.end() - 1) break;
    }
    result.cycles.emplace(
        manifest->id,
        Status(Code::kInvalidArgument, "plugin " + quote(manifest->id) +
                                           " refused: requirements go in a circle: " + joined(path, " -> ")));
  }
  return result;
}

Status check_requirements(const Manifest& manifest, const std::vector<const Manifest*>& plugins,
                          const std::function<bool(std::string_view)>& host_has,
                          const std::function<std::string(const std::string&)>& failure) {
  const std::string who = "plugin " + quote(manifest.id) + " refused: ";
  for (const std::string& requirement : all_requirements(manifest)) {
    if (requirement.starts_with("belay.host.") && !host_has(requirement))
      return {Code::kUnimplemented,
              who + "this host has no service " + quote(requirement) + " - install a newer host"};
    if (is_layer(&manifest) && !requirement.starts_with("belay.host."))
      return {Code::kInvalidArgument, who + "a layer ends after all other plugins, so it cannot require " +
                                          quote(requirement)};
    std::string failed;
    bool there = offers(manifest, requirement);
    for (const Manifest* other : plugins) {
      if (!offers(*other, requirement)) continue;
      const std::string why = failure(other->id);
      why.empty() ? void(there = true) : void(failed = quote(other->id) + " failed: " + why);
    }
    if (!failed.empty() && !there)
      return {Code::kFailedPrecondition,
              who + "it requires " + quote(requirement) + ", and plugin " + failed};
  }
  return {};
}

}  // namespace belay::core
