// core/discovery/plugin_file.h: what a library says of itself, read and checked without loading it.
#pragma once

#include <belay/abi/plugin.h>
#include <belay/status.hpp>

#include <string>
#include <vector>

namespace belay::core {

struct PluginFile {
  std::string path;  // canonical
  uint64_t device = 0, inode = 0;
  belay_note note = {};
  std::vector<std::string> exports;
  std::string id() const;
  std::string version() const;
};

// Opens the file without following a link and checks: regular file, of at most 1 GiB, nobody else can replace
// it (unless `allow_insecure`), ELF64 of this machine, a shared library and no program, segments inside the
// file, no text relocations, no executable stack or code that can be written, exports exactly entry symbols,
// the note and what it says of ABI, layout and sanitizer. `path`: absolute. Errors name the file, the rule,
// what was found and what to do.
Result<PluginFile> check_plugin_file(const std::string& path, bool allow_insecure);

// "0.1", what this host offers.
std::string host_abi();
// INVALID_ARGUMENT unless the file has this SHA-256, in hexadecimal digits; `said_by`: "its manifest".
Status check_digest(const std::string& path, const std::string& sha256, const std::string& said_by);
// INTERNAL unless the file at the path still is the one that was checked.
Status check_same_file(const std::string& path, uint64_t device, uint64_t inode);

}  // namespace belay::core
