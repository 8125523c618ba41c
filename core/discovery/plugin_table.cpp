#include "core/discovery/plugin_table.h"

#include "core/base/text.h"

#include <algorithm>
#include <vector>

namespace belay::core {
namespace {

constexpr uint64_t kMostComponents = 1024;

}  // namespace

Status check_plugin_table(const belay_plugin* api, const Manifest& manifest, const std::string& who) {
  const auto bad = [&](const std::string& why) {
    return Status(Code::kInternal, who + " is built wrongly: " + why + ".");
  };
  constexpr uint64_t kWanted = offsetof(belay_plugin, get_extension) + sizeof(void*);
  if (api->hdr.struct_size < kWanted || api->hdr.struct_size > 65536)
    return bad("struct_size of its table is " + std::to_string(api->hdr.struct_size) + ", want " +
               std::to_string(kWanted) + " to 65536");
  if (to_view(api->id) != manifest.id)
    return bad("its table has the id " + quote(to_view(api->id).substr(0, 64)) + ", its manifest " +
               quote(manifest.id));
  if (!api->open || !api->close)
    return bad(std::string("required slot ") + (api->open ? "close" : "open") + " is null");
  if (api->component_count == 0 || api->component_count > kMostComponents || !api->components)
    return bad("it has " + std::to_string(api->component_count) + " components, want 1 to " +
               std::to_string(kMostComponents));
  std::vector<std::string> keys, declared;
  for (uint64_t i = 0; i < api->component_count; ++i) {
    const belay_component* component = api->components[i];
    if (!component || component->hdr.struct_size < sizeof(belay_component) ||
        component->hdr.struct_size > 65536)
      return bad("component " + std::to_string(i) + " is null or has a wrong struct_size");
    const size_t slash = to_view(component->kind).find('/');
    if (slash == std::string_view::npos || !valid_id(to_view(component->kind).substr(0, slash)) ||
        !valid_id(to_view(component->name)))
      return bad("component " + std::to_string(i) + " has no proper kind and name");
    keys.push_back(to_string(component->kind) + ":" + to_string(component->name));
    if (!component->create) return bad("required slot create of component " + keys.back() + " is null");
  }
  if (manifest.components.empty()) return {};  // no manifest: nothing was promised
  for (const ManifestComponent& component : manifest.components) declared.push_back(component.key());
  std::sort(keys.begin(), keys.end());
  std::sort(declared.begin(), declared.end());
  return keys == declared
             ? Status()
             : bad("it has the components " + joined(keys) + ", its manifest says " + joined(declared));
}

}  // namespace belay::core
