// core/services/plugin_files.h: the two places for files of a plugin.
#pragma once

#include <belay/abi/services.h>
#include <belay/status.hpp>
#include "core/base/files.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

class Host;

// Data beside the library, read-only, and a scratch folder that is made at the first use and removed when the
// plugin is closed. Names never lead out of a place, not through links either. Thread-safe.
class PluginFiles {
 public:
  explicit PluginFiles(Host& host) : host_(host) {}
  ~PluginFiles();
  PluginFiles(const PluginFiles&) = delete;

  Result<std::string> path(const std::string& plugin, uint32_t place);
  Result<Fd> open(const std::string& plugin, uint32_t place, std::string_view name, bool write);
  Status read(const std::string& plugin, uint32_t place, std::string_view name, belay_sink sink);
  Status write(const std::string& plugin, std::string_view name, belay_span bytes);
  Status remove(const std::string& plugin, std::string_view name);
  // Removes its scratch folder. Files in it are no leak; what cannot be removed is told.
  std::vector<std::string> take_back(const std::string& plugin);

 private:
  struct Place {
    std::string path;
    Fd folder;
  };
  Result<const Place*> find(const std::string& plugin, uint32_t place);
  Result<Place> data_of(const std::string& plugin) const;
  Result<Place> make_scratch(const std::string& plugin) const;

  Host& host_;
  std::mutex mutex_;
  std::map<std::pair<std::string, uint32_t>, Place> places_;  // by plugin and place; open until take_back
  uint64_t temporary_ = 0;
};

}  // namespace belay::core
