// hal/spin_lock.h: a lock for a few nanoseconds of work.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace belay::hal {

// Spins a little, then yields: what it guards never blocks, so its holder is running or about to run.
class SpinLock {
 public:
  void lock() {
    if (!taken_.exchange(1, std::memory_order_acquire)) [[likely]]
      return;
    lock_slowly();
  }
  void unlock() { taken_.store(0, std::memory_order_release); }

 private:
  [[gnu::noinline]] void lock_slowly() {
    do {
      for (int i = 0; taken_.load(std::memory_order_relaxed); ++i) {
        if (i < 64)
          __builtin_ia32_pause();
        else
          sched_yield();
      }
    } while (taken_.exchange(1, std::memory_order_acquire));
  }
  std::atomic<uint32_t> taken_{0};
};

}  // namespace belay::hal
