// What threads of a device coordinate with: futex words, the pause instruction, a clock, an asymmetric fence.
#pragma once

#include <atomic>
#include <cstdint>

namespace belay::cpu {

inline constexpr uint64_t kForever = ~uint64_t{0};

// Tells the core that this is a spin loop (about 25 ns on the reference machine).
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Monotonic nanoseconds of the operating system; bounds spinning. Deadlines use the host's clock instead.
uint64_t clock_ns();

// Sleeps while `word` holds `expected`, for `timeout_ns` at most; may return early. No cancellation point.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_ns);
// Wakes up to `count` sleepers of `word`. Only the address is used: the word may be gone already.
void futex_wake(const std::atomic<uint32_t>* word, int count);

// Orders "store X, then load Y" on a frequent side against "store Y, then load X" on a rare side, so that at least one
// of them sees the other's store. The frequent side pays nothing (light() only holds the compiler back): heavy() lets
// the kernel run a full barrier on every running thread of the process (0.4 us). Where the kernel has no
// membarrier(2), light() is a full fence as well.
class AsymmetricFence {
 public:
  // Asks the kernel for it; once for each process before the first use, again does no harm.
  static void prepare();

  static void light() {
    if (expedited_.load(std::memory_order_relaxed)) [[likely]]
      std::atomic_signal_fence(std::memory_order_seq_cst);
    else
      __sync_synchronize();
  }
  static void heavy();

 private:
  static inline constinit std::atomic<bool> expedited_{false};
};

}  // namespace belay::cpu
