// core/base/memory_account.h: how much memory somebody has, and how much he may have.
#pragma once

#include <atomic>
#include <cstdint>

namespace belay::core {

// Thread-safe.
struct MemoryAccount {
  std::atomic<uint64_t> blocks{0}, bytes{0}, peak{0};
  std::atomic<uint64_t> limit{UINT64_MAX};

  // Takes room for a block; false: it would be more than the limit, and nothing is taken.
  bool charge(uint64_t size) {
    uint64_t now = bytes.load(std::memory_order_relaxed);
    do {
      if (size > limit.load(std::memory_order_relaxed) || now > limit.load(std::memory_order_relaxed) - size)
        return false;
    } while (!bytes.compare_exchange_weak(now, now + size, std::memory_order_relaxed));
    blocks.fetch_add(1, std::memory_order_relaxed);
    uint64_t most = peak.load(std::memory_order_relaxed);
    while (most < now + size && !peak.compare_exchange_weak(most, now + size, std::memory_order_relaxed)) {
    }
    return true;
  }
  void discharge(uint64_t size) {
    bytes.fetch_sub(size, std::memory_order_relaxed);
    blocks.fetch_sub(1, std::memory_order_relaxed);
  }
};

}  // namespace belay::core
