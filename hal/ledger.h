// hal/ledger.h: who has what memory, and what lies at an address.
#pragma once

#include <belay/status.hpp>
#include "hal/address_map.h"
#include "hal/buffer.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace belay::hal {

// The buffers of all devices by address and by owner. Thread-safe; a lookup by address takes no lock.
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
  // A reserved buffer got memory, or lost it (a negative change).
  void change(Buffer* buffer, int64_t bytes);

  // The buffer that holds the byte at `address`: of those that overlap there, one that owns its memory.
  AddressMap::Found find(const void* address) const noexcept { return addresses_.find(address); }
  // The part of a reserved buffer that `bytes` at a host address are; nothing: they lie in none.
  std::optional<ReservedPart> reserved(const void* address, uint64_t bytes) const;
  // Whether there are such buffers, for what is asked often.
  const std::atomic<bool>& any_reserved() const { return any_reserved_; }
  // OUT_OF_RANGE: the host memory lies in a reserved buffer and is not mapped. `what` begins the sentence.
  Status check_mapped(std::string_view what, const void* address, uint64_t bytes) const;
  std::string owner(const Buffer& buffer) const;
  // One entry for each owner on each device, of `device` only unless it is UINT32_MAX.
  std::vector<Usage> usage(uint32_t device = UINT32_MAX) const;
  // "12.0 MiB in 3 buffers (engine 8.0 MiB, application 4.0 MiB)".
  std::string describe(uint32_t device) const;

 private:
  AddressMap addresses_, reserved_;
  std::atomic<bool> any_reserved_{false};  // stays true: who has used some may do so again
  mutable std::mutex mutex_;
  std::vector<Usage> usage_;
};

std::string print_bytes(uint64_t bytes);  // "12.0 MiB"

}  // namespace belay::hal
