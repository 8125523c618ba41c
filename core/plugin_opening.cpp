#include "core/plugin_opening.h"

#include "core/base/process_state.h"
#include "core/base/slot_call.h"
#include "core/base/text.h"
#include "core/discovery/plugin_file.h"
#include "core/discovery/plugin_table.h"

#include <algorithm>

namespace belay::core {
void PluginOpening::run(const std::vector<std::string>* use) {
  const ProcessState before;
  loaded = load();
  if (loaded.ok()) open(use);
  changes = before.restore();
}

Status PluginOpening::load() {
  const std::string who = "plugin " + quote(table.plugin);
  BELAY_TRY(check_same_file(found.file, found.device, found.inode));
  const std::string& told = found.manifest.library_sha256;
  if (require_digest && told.empty() && pinned.empty())
    return {Code::kPermissionDenied, who + " refused: [runtime] require_digest is set, and neither its manifest nor "
                                           "plugin." + table.plugin + ".sha256 says which SHA-256 its library has"};
  if (!told.empty()) BELAY_TRY(check_digest(found.file, told, "its manifest"));
  if (!pinned.empty()) BELAY_TRY(check_digest(found.file, pinned, "plugin." + table.plugin + ".sha256"));
  {
    const SlotCall constructors(id(), "its constructors", BELAY_THREAD_ENTRY);
    BELAY_TRY(library->open(found.file));
  }
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
