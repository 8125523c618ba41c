// core/services/host_memory.h: large and pinned memory, known by plugin.
#pragma once

#include <belay/abi/services.h>
#include <belay/status.hpp>
#include "core/host.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace belay::core {

// Whole pages from the system, charged to the account of a plugin. Pinned memory is not there in a forked
// child: a copy would move it under the device. Thread-safe.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  ~HostMemory();
  Result<void*> alloc(HostTable& plugin, const belay_memory_req& req);
  // False: it is no block of this plugin.
  bool free(HostTable& plugin, void* address);
  uint64_t pinned_bytes(const HostTable& plugin) const;
  // Frees what the plugin has left, and says what it was.
  std::vector<std::string> take_back(HostTable& plugin);

 private:
  struct Block {
    HostTable* owner;
    uint64_t bytes;
    bool pinned;
    std::string usage;
  };
  mutable std::mutex mutex_;
  std::map<void*, Block> blocks_;
};

}  // namespace belay::core
