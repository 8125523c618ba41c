// core/config/config.h: the configuration: layers of TOML, checked against schemas, read through views.
#pragma once

#include <belay/abi/value.h>
#include <belay/plugin.hpp>
#include <belay/status.hpp>
#include "core/config/schema.h"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

// Layers, each winning over those before it: tables are merged key by key, everything else is replaced. The
// order of a runtime: files (or default_config()), environment, text, sets. Movable; not thread-safe while
// layers are added or checked, afterwards any thread may read.
//
// Environment (nothing of it is read in a set-uid program):
//   BELAY_CONFIG   files separated by ':', used where the caller names none (environment_files())
//   BELAY_SET      assignments as of add_set, separated by ';'
class Config {
 public:
  Config();
  ~Config();
  Config(Config&&) noexcept;
  Config& operator=(Config&&) noexcept;

  // INVALID_ARGUMENT: a file that is not there, cannot be read or is over 1 MiB is a wrong configuration, as
  // is one (with file:line:column) that is no TOML, nests deeper than 16 or has more than 10,000 values.
  // RESOURCE_EXHAUSTED: no file descriptor, no memory. `named_by`: "BELAY_CONFIG", for messages.
  Status add_file(const std::string& path, std::string_view named_by = {});
  // `name` stands for the file in messages.
  Status add_text(const std::string& name, std::string_view text);
  // "memory.policies=[\"pool\"]"; what is no TOML value is a string: "log.level=debug",
  // "plugin.pool.config.size=64MiB".
  Status add_set(std::string_view assignment, const std::string& origin = "--set");
  Status add_environment();
  static std::vector<std::string> environment_files();

  // Checks all tables but [plugin.<id>.config] and fills in defaults. Once, after the last layer.
  Status check(const Schema& schema);
  // Checks [plugin.<id>.config] against the fields of the plugin's manifest; makes the table where it is not
  // there.
  Status check_plugin(const std::string& id, const std::vector<Field>& fields, const std::string& what);

  // The value at a dotted path ("engine.threads"; a part may be quoted), or the empty view. Valid as long as
  // this object is neither changed nor destroyed (moving it is fine).
  Value get(std::string_view path) const;
  // [plugin.<id>.config]; an empty table where there is none.
  const belay_value* plugin_config(const std::string& id) const;
  // Ids that have a table [plugin.<id>].
  std::vector<std::string> plugin_ids() const;
  // "belay.toml:14:3" of the value at the path; "default" where a default filled it in; empty when not set.
  std::string where(std::string_view path) const;
  // Values that name components (Field::names_kind), as keys "belay.driver/1:cpu" with where they stand;
  // after check().
  struct NamedComponent {
    std::string key, where;
  };
  const std::vector<NamedComponent>& named_components() const { return named_; }
  // Sentences about keys that are deprecated; for the log.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // The whole as TOML, the origin of each value as a comment; secrets are "***".
  std::string print() const;

 private:
  Status add_layer(std::unique_ptr<Node> layer);
  void finish(Node& table, const std::vector<Field>& fields);

  std::unique_ptr<Node> root_, empty_;
  std::map<std::string, std::string> folders_;  // of the files, by the name that origins carry
  std::vector<NamedComponent> named_;
  std::vector<std::string> warnings_;
};

// configs/cpu.toml as it was when this was built: what a runtime uses that is given no file.
std::string_view default_config();

}  // namespace belay::core
