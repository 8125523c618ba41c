// core/discovery/plugin_catalog.h: the plugins there are, found and checked without loading anything.
#pragma once

#include <belay/status.hpp>
#include "core/discovery/manifest.h"
#include "core/guard/quarantine.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

struct FoundPlugin {
  Manifest manifest;
  std::string file;                // canonical path of the library
  Status refused;                  // why it cannot be used; ok otherwise
  bool quarantined = false;        // that is why
  bool installed = false;          // with this library, so it is as good as that
  uint64_t device = 0, inode = 0;  // of the file that was checked
};

struct CatalogOptions {
  std::vector<std::string> first_dirs = {};   // absolute; searched before all others
  std::vector<std::string> config_dirs = {};  // [runtime] plugin_dirs
  std::vector<std::string> files = {};  // absolute paths of libraries outside of these (plugin.<id>.path)
  bool allow_insecure = false;          // files that others could replace are accepted, for development
  std::string state_dir = "none";       // as Quarantine::directory() takes it
  bool standard_dirs = true;            // <prefix>/lib/belay/plugins and BELAY_PLUGIN_PATH
};

// Searches the directories in order (first_dirs, config_dirs, <prefix>/lib/belay/plugins as seen from this
// library or program, BELAY_PLUGIN_PATH unless the program is set-uid; never the working directory). An id
// found before shadows a later one. Never calls dlopen.
class Catalog {
 public:
  Catalog() = default;
  static Catalog search(const CatalogOptions& options);

  const std::vector<FoundPlugin>& plugins() const { return plugins_; }  // by id; refused ones too
  const Quarantine& quarantine() const { return *quarantine_; }
  const std::vector<std::string>& directories() const { return directories_; }
  const std::vector<std::string>& warnings() const {
    return warnings_;
  }  // of directories that cannot be read
  const FoundPlugin* find(std::string_view id) const;
  // Loads a plugin in a child process, once for each state of its file. FAILED_PRECONDITION: it ended the child, or
  // hung, and is in quarantine now. Where no program `belay` is installed beside this library nothing is done.
  Status probe(const FoundPlugin& plugin, bool allow_insecure, std::chrono::nanoseconds deadline) const;
  // Plugins whose manifest offers the key "kind:name".
  std::vector<const FoundPlugin*> offering(std::string_view key) const;
  // NOT_FOUND with the nearest id or key and the directories that were searched.
  Status not_found(std::string_view key_or_id) const;

 private:
  // `stem`: the path of the library without ".so", of its manifest without ".plugin.toml".
  void add(const std::string& stem, bool allow_insecure, bool installed);
  std::vector<FoundPlugin> plugins_;
  std::vector<std::string> directories_, warnings_;
  std::shared_ptr<const Quarantine> quarantine_ = std::make_shared<Quarantine>("");
};

}  // namespace belay::core
