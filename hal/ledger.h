// hal/ledger.h: who has what memory, and what lies at an address.
#pragma once

#include <belay/status.hpp>
#include "hal/buffer.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

namespace belay::hal {

// The buffers of all devices by address and by owner. Thread-safe; lookups share a lock.
class Ledger {
 public:
  struct Usage {
    std::string owner;  // a plugin's id; "application"
    uint32_t device;
    uint64_t bytes, peak_bytes, buffers, allocations;
  };

  // Counts the buffer; sets its owner. Throws bad_alloc and then has counted nothing.
  void add(Buffer* buffer, uint32_t device, std::string_view owner);
  void remove(Buffer* buffer, uint32_t device);

  // The buffer that holds the byte at `address`: of those that overlap there, one that owns its memory.
  Buffer* find(const void* address) const;
  // One entry for each owner on each device, of `device` only unless it is UINT32_MAX.
  std::vector<Usage> usage(uint32_t device = UINT32_MAX) const;
  // "12.0 MiB in 3 buffers (engine 8.0 MiB, application 4.0 MiB)".
  std::string describe(uint32_t device) const;

 private:
  mutable std::shared_mutex mutex_;
  std::multimap<uintptr_t, Buffer*> owned_, borrowed_;  // by first byte; empty buffers are in neither
  uint64_t longest_borrowed_ = 0;                       // how far back an overlap may begin
  std::vector<Usage> usage_;
};

std::string print_bytes(uint64_t bytes);  // "12.0 MiB"

}  // namespace belay::hal
