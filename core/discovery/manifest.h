// core/discovery/manifest.h: what a plugin says about itself in libbelay_<id>.plugin.toml.
#pragma once

#include <belay/status.hpp>
#include "core/config/schema.h"

#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

struct ManifestComponent {
  std::string kind, name;
  int64_t priority = 0;
  std::vector<std::string>
      requires_;  // keys, kinds, plugin ids or host services; a plugin without them does not load
  std::vector<std::string> after;  // the same, but only for the order
  std::string key() const { return kind + ":" + name; }
};

struct Manifest {
  std::string id, version, library;
  std::string doc, license;
  uint32_t abi_major = 0, abi_minor = 0;
  std::vector<std::string> arch;
  bool own_threads = false;
  bool unload_supported = false;
  std::vector<std::string> requires_, after;  // of the whole plugin
  std::vector<ManifestComponent> components;
  std::string library_sha256;  // [integrity]: hexadecimal; empty: not said
  std::vector<Field> fields;   // of [plugin.<id>.config]: those of all components
  std::string text;            // as it was read
  std::string keys() const;    // separated by spaces
  // "belay.driver/1:cpu", or the id where there are several components.
  std::string what() const;
};

// INVALID_ARGUMENT with name:line:column: unknown key (and the nearest), missing key, wrong type, bad id, a
// default that does not fit its field, over 256 KiB.
Result<Manifest> parse_manifest(const std::string& name, std::string_view text);

}  // namespace belay::core
