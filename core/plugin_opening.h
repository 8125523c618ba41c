// core/plugin_opening.h: a plugin from its file until it is open.
#pragma once

#include "core/base/shared_library.h"
#include "core/discovery/plugin_catalog.h"
#include "core/host.h"

#include <memory>
#include <string>
#include <vector>

namespace belay::core {

// What the code of a plugin does until it is open. It runs on a thread that may be left behind, so all of it
// lies here, nothing of it in the host, and the loader looks at it when that thread has ended.
struct PluginOpening {
  PluginOpening(const FoundPlugin& found_, HostTable& table_, const belay_value* config_)
      : found(found_), table(table_), config(config_) {}
  struct Scored {
    std::string key;
    bool asked = false;
    Status thrown;
    belay_status raw = BELAY_OK;
    uint64_t score = 500;
    std::string reason;
  };

  const FoundPlugin found;  // a copy
  HostTable& table;
  const belay_value* const config;
  std::string pinned;           // SHA-256 that the configuration wants of the library; empty: any
  bool require_digest = false;  // that, or that of the manifest, must be there
  const std::shared_ptr<SharedLibrary> library = std::make_shared<SharedLibrary>();
  Status loaded, thrown;  // before and of `open`
  belay_status raw = BELAY_OK;
  const belay_plugin* api = nullptr;
  belay_ctx* ctx = nullptr;
  std::vector<Scored> scores;  // of the components that are wanted, by the place in the table
  std::vector<std::string> changes;

  void run(const std::vector<std::string>* use);  // nullptr: all components

 private:
  const char* id() const { return table.plugin.c_str(); }
  Status load();
  void open(const std::vector<std::string>* use);
};

}  // namespace belay::core
