// hal/address_map.h: which buffer lies at an address.
#pragma once

#include "hal/buffer.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace belay::hal {

// Ranges of addresses, found without a lock: there are two copies, readers look into one while a writer
// changes the other, then they change places (the "left-right" technique). A lookup never waits, whatever a
// writer does and wherever it stops; a writer waits for the lookups that are under way. Thread-safe.
class AddressMap {
 public:
  struct Found {
    Buffer* buffer = nullptr;  // null: nothing is there
    uint64_t offset = 0;
  };

  // The buffer's host address, bytes and `borrowed` stay as they are until remove(); without bytes that the
  // host sees it is not found. Throws bad_alloc and has then added nothing.
  void add(Buffer* buffer);
  void remove(Buffer* buffer) noexcept;
  // Of buffers that overlap at `address`, one that owns its memory, else the one that begins last.
  Found find(const void* address) const noexcept;

 private:
  struct Range {
    uint64_t bytes;
    Buffer* buffer;
  };
  using Ranges = std::multimap<uintptr_t, Range>;  // by first byte
  struct Copy {
    Ranges owned, borrowed;
    uint64_t longest_borrowed = 0;  // how far back an overlap may begin
  };
  // Readers count themselves in one of several places, so that threads on different ones do not meet.
  static constexpr uint32_t kStripes = 16;
  struct alignas(64) Stripe {
    std::array<std::atomic<uint32_t>, 2> readers{};
  };

  static Found find(const Copy& copy, uintptr_t address) noexcept;
  template <class Change>
  void change(Change&& change) noexcept;  // changes one copy after the other; under mutex_
  void wait_for_readers(uint32_t turn) const noexcept;

  std::mutex mutex_;  // of writers
  std::array<Copy, 2> copies_;
  std::atomic<uint32_t> front_{0};  // the copy that is read
  std::atomic<uint32_t> turn_{0};   // where readers that come now count themselves
  mutable std::array<Stripe, kStripes> stripes_;
};

}  // namespace belay::hal
