// One thread at a time, and the thread that is nearly always the one comes and goes without an atomic operation.
//
// That thread owns the gate: it says that it is inside, and looks whether it still is the owner. Another one takes the
// mutex, takes the ownership away, makes every thread of the process pass a barrier (membarrier), and waits until
// the owner is out. From then on the mutex is for all, until one thread has come often enough in a row.
#pragma once

#include <belay/abi/plugin.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace belay::pool {

#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#define BELAY_POOL_THREAD_POINTER 1
#endif
#endif

// A number that no two threads have at a time; never 0.
inline uintptr_t this_thread() noexcept {
#ifdef BELAY_POOL_THREAD_POINTER
  return reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
#else
  return uintptr_t(pthread_self());
#endif
}

// ThreadSanitizer knows no membarrier: there the owner pays for the order.
inline constexpr bool kOrderedOwner = BELAY_SANITIZER == BELAY_SANITIZER_THREAD;

class Gate {
 public:
  Gate() noexcept
      : barrier_(kOrderedOwner ||
                 syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  class Pass {
   public:
    explicit Pass(Gate& gate) noexcept : gate_(gate), owner_(gate.enter()) {}
    ~Pass() { gate_.leave(owner_); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Gate& gate_;
    const bool owner_;
  };

 private:
  bool enter() noexcept {
    const uintptr_t self = this_thread();
    if (owner_.load(std::memory_order_relaxed) == self) {
      if constexpr (kOrderedOwner) {
        inside_.exchange(1, std::memory_order_seq_cst);
      } else {
        inside_.store(1, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      if (owner_.load(kOrderedOwner ? std::memory_order_seq_cst : std::memory_order_relaxed) == self) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return true;
      }
      inside_.store(0, std::memory_order_release);
    }
    enter_by_mutex(self);
    return false;
  }

  void leave(bool owner) noexcept {
    if (owner)
      inside_.store(0, std::memory_order_release);
    else
      mutex_.unlock();
  }

  [[gnu::noinline]] void enter_by_mutex(uintptr_t self) noexcept {
    for (int tries = 0; tries < 100 && !mutex_.try_lock(); ++tries)
      if (tries == 99) mutex_.lock();
    if (owner_.load(std::memory_order_relaxed) != 0) {  // of another thread, or of this one that has just lost it
      owner_.store(0, std::memory_order_seq_cst);
      if constexpr (!kOrderedOwner) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
      while (inside_.load(std::memory_order_seq_cst)) sched_yield();
      last_ = 0;
      wanted_ = wanted_ < 4096 ? wanted_ * 2 + 64 : wanted_;
    }
    if (last_ != self) {
      last_ = self;
      streak_ = 0;
    }
    if (barrier_ && ++streak_ > wanted_) owner_.store(self, std::memory_order_relaxed);
  }

  alignas(64) std::atomic<uintptr_t> owner_{0};
  std::atomic<uint32_t> inside_{0};
  const bool barrier_;
  alignas(64) std::mutex mutex_;
  uintptr_t last_ = 0;  // with the mutex
  uint32_t streak_ = 0, wanted_ = 0;  // how often it came in a row, and how often it must to be the owner
};

}  // namespace belay::pool
