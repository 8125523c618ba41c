#include "core/plugin_opening.h"

#include "core/base/process_state.h"
#include "core/base/slot_call.h"
#include "core/base/text.h"
#include "core/discovery/plugin_file.h"

#include <algorithm>

namespace belay::core {
namespace {

constexpr uint64_t kMostComponents = 1024;

// All that the host reads of the table, before it calls anything in it.
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

}  // namespace

void PluginOpening::run(const std::vector<std::string>* use) {
  const ProcessState before;
  loaded = load();
  if (loaded.ok()) open(use);
  changes = before.restore();
}

Status PluginOpening::load() {
  const std::string who = "plugin " + quote(table.plugin);
  BELAY_TRY(check_same_file(found.file, found.device, found.inode));
  if (!found.manifest.library_sha256.empty())
    BELAY_TRY(check_digest(found.file, found.manifest.library_sha256));
  BELAY_TRY(library->open(found.file));
  BELAY_TRY(check_same_file(found.file, found.device, found.inode));
  BELAY_ASSIGN(void* const address, library->symbol(BELAY_ENTRY_NAME));
  belay_handshake hands{{sizeof hands, 0, nullptr}, BELAY_ABI_MINOR, 0, 0, 0, 0};
  BELAY_TRY(call_slot(id(), BELAY_ENTRY_NAME, BELAY_THREAD_ENTRY,
                      [&] { api = reinterpret_cast<belay_entry_fn>(address)(&table.abi, &hands); }));
  const std::string abi = std::to_string(BELAY_ABI_MAJOR) + "." + std::to_string(hands.plugin_minor);
  if (hands.needs != 0)  // this host has no feature bits yet, so it cannot know their names
    return {Code::kUnimplemented, who + " refused: needs feature bits " + std::to_string(hands.needs) +
                                      " of ABI " + abi + ", this host has minor " +
                                      std::to_string(BELAY_ABI_MINOR) + " - install a newer host"};
  if (!api)
    return {Code::kUnimplemented,
            who + " refused: it says that it cannot work with this host (ABI " + host_abi() + ")"};
  if (hands.layout != BELAY_ABI_LAYOUT)
    return {Code::kUnimplemented, who + " refused: built for layout " + std::to_string(hands.layout) +
                                      " of ABI " + abi + ", this host has layout " +
                                      std::to_string(BELAY_ABI_LAYOUT) +
                                      " - build it again with the headers of this host"};
  return check_plugin_table(api, found.manifest, who);
}

void PluginOpening::open(const std::vector<std::string>* use) {
  table.live = true;
  thrown = call_slot(id(), "open", BELAY_THREAD_INIT, [&] { raw = api->open(&table.abi, config, &ctx); });
  if (!thrown.ok() || BELAY_STATUS_CODE(raw) != BELAY_OK) return;
  for (uint64_t i = 0; i < api->component_count; ++i) {
    const belay_component& component = *api->components[i];
    Scored& scored = scores.emplace_back();
    scored.key = to_string(component.kind) + ":" + to_string(component.name);
    scored.asked = !use || std::find(use->begin(), use->end(), scored.key) != use->end();
    if (!scored.asked || !component.score) continue;
    StringSink reason;
    belay_score score{{sizeof score, 0, nullptr}, 0, reason.sink()};
    scored.thrown =
        call_slot(id(), "score", BELAY_THREAD_SERIAL, [&] { scored.raw = component.score(ctx, &score); });
    scored.score = score.score, scored.reason = reason.text();
  }
}

}  // namespace belay::core
