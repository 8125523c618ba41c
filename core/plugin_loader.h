// core/plugin_loader.h: from files to running plugins, and back.
#pragma once

#include <belay/abi/plugin.h>
#include <belay/status.hpp>
#include "core/config/config.h"
#include "core/discovery/plugin_catalog.h"

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

class Host;

// found -> loaded -> open -> active -> draining -> closed -> resident | unmapped; also failed, quarantined (it
// ended a process that loaded it, and its file is as it was), zombie (its drain ended at the deadline: it stays mapped, its keys are gone).
enum class PluginState : uint8_t {
  kFound,
  kLoaded,
  kOpen,
  kActive,
  kDraining,
  kClosed,
  kResident,
  kUnmapped,
  kFailed,
  kQuarantined,
  kZombie
};
const char* name_of(PluginState state);

struct PluginInfo {
  std::string id, version, abi, file, manifest;  // manifest: its text
  std::string keys;                              // "belay.driver/1:cpu belay.kernel-provider/1:cpu"
  PluginState state = PluginState::kFound;
  std::string reason;  // of a failure or refusal, or who holds a zombie; else empty
};

// Loads the plugins that a configuration needs, in the order of what they require, and ends them in the
// reverse order. A plugin that fails, or does not come back from open, start or close by its deadline, leaves
// the others alone: those slots run on a thread of their own, and one that blocks is named in the log. Calls
// of load() and unload() are serialised; no lock is held while a plugin runs but its own. Thread-safe.
class PluginLoader {
 public:
  PluginLoader(Host& host, Catalog catalog);
  ~PluginLoader();

  // Marks as needed what offers a key ("belay.driver/1:cpu") or a kind, or has that id, and all that it
  // requires. NOT_FOUND names the nearest and where was looked; `why` begins the message. Before load().
  Status need(std::string_view requirement, const std::string& why);
  std::set<std::string> needed() const;  // ids
  // What load() would say of the needed plugins before it runs any of their code, all of it at once.
  Status check() const;
  // Loads, opens and starts what is needed and not running yet, with what that requires. Everything that can
  // be loaded is; the status is that of the first failure.
  Status load();
  // Ends a plugin logically: keys removed, leases revoked, quiesce, wait for objects, tasks and leases,
  // close; it stays mapped unless its manifest allows more. DEADLINE_EXCEEDED: it is a zombie, the message
  // says who holds it.
  // `keep_mapped`: until unload_all() has ended all, as their threads may still be on the way out of what it gave them.
  Status unload(const std::string& id, std::chrono::nanoseconds deadline, bool keep_mapped = false);
  // Ends a plugin on a thread of its own, because of a rule that it broke; `why` stays as its reason. False:
  // there is no such plugin, or all end anyway.
  bool end_later(std::string_view id, const std::string& why);
  // All of them, users before what they use; zombies that are no longer held too.
  Status unload_all(std::chrono::nanoseconds deadline);

  std::vector<PluginInfo> list() const;  // what was found, by id
  // Whether the plugin is a zombie, whose threads may still call the host.
  bool zombie(std::string_view id) const;
  const Catalog& catalog() const;
  // Why `key` is not there: "plugin 'x' failed: ..."; empty when no plugin is known that offers it.
  std::string why_not(std::string_view key) const;

 private:
  struct Plugin;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belay::core
