// One thread at a time, and the thread that is nearly always the one comes and goes without an atomic operation.
//
// That thread owns the gate: it says that it is inside, and looks whether it still is the owner. Another one takes the
// mutex, takes the ownership away, makes every thread of the process pass a barrier (membarrier), and waits until
// the owner is out. From then on the mutex is for all, until one thread has come often enough in a row.
//
// A thread may stop between its look at the owner and saying that it is inside, for as long as it takes another to become
// the owner. What it says then, and takes back, must not be taken for the other's: each thread that ever was the owner
// says it in a place of its own for good. There are few; who finds none takes the mutex each time.
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
    explicit Pass(Gate& gate) noexcept : gate_(gate), inside_(gate.enter()) {}
    ~Pass() { gate_.leave(inside_); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Gate& gate_;
    std::atomic<uint32_t>* const inside_;  // of the owner; null: by the mutex
  };

  // Where the owner says that it is inside; null: it is by the mutex.
  std::atomic<uint32_t>* enter() noexcept {
    std::atomic<uint32_t>* const inside = enter_as_owner();
    if (!inside) enter_by_mutex();
    return inside;
  }
  void leave(std::atomic<uint32_t>* inside) noexcept {
    if (inside)
      leave_as_owner(inside);
    else
      mutex_.unlock();
  }
  // Null: it is not the owner, and not inside.
  std::atomic<uint32_t>* enter_as_owner() noexcept {
    const uintptr_t self = this_thread();
    const uintptr_t owner = owner_.load(std::memory_order_relaxed);
    if ((owner & ~(kOwners - 1)) == self) {
      std::atomic<uint32_t>& inside = inside_[owner & (kOwners - 1)];
      if constexpr (kOrderedOwner) {
        inside.exchange(1, std::memory_order_seq_cst);
      } else {
        inside.store(1, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      if (owner_.load(kOrderedOwner ? std::memory_order_seq_cst : std::memory_order_relaxed) == owner) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return &inside;
      }
      inside.store(0, std::memory_order_release);
    }
    return nullptr;
  }
  static void leave_as_owner(std::atomic<uint32_t>* inside) noexcept { inside->store(0, std::memory_order_release); }

 private:
  [[gnu::noinline]] void enter_by_mutex() noexcept {
    const uintptr_t self = this_thread();
    for (int tries = 0; tries < 100 && !mutex_.try_lock(); ++tries)
      if (tries == 99) mutex_.lock();
    if (const uintptr_t owner = owner_.load(std::memory_order_relaxed)) {  // another, or this one that has just lost it
      owner_.store(0, std::memory_order_seq_cst);
      if constexpr (!kOrderedOwner) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
      while (inside_[owner & (kOwners - 1)].load(std::memory_order_seq_cst)) sched_yield();
      last_ = 0;
      wanted_ = wanted_ < 4096 ? wanted_ * 2 + 64 : wanted_;
    }
    if (last_ != self) {
      last_ = self;
      streak_ = 0;
    }
    if (!barrier_ || ++streak_ <= wanted_) return;
    for (uintptr_t i = 0; i < kOwners; ++i) {
      if (owners_[i] == 0) owners_[i] = self;
      if (owners_[i] != self) continue;
      owner_.store(self | i, std::memory_order_relaxed);
      break;
    }
  }

  static constexpr uintptr_t kOwners = 8;       // the alignment of what this_thread() points to has room for
  alignas(64) std::atomic<uintptr_t> owner_{0};  // with the number of its place
  std::atomic<uint32_t> inside_[kOwners]{};
  const bool barrier_;
  alignas(64) std::mutex mutex_;
  uintptr_t last_ = 0;  // with the mutex, as what follows
  uintptr_t owners_[kOwners]{};  // whose the places are
  uint32_t streak_ = 0, wanted_ = 0;  // how often it came in a row, and how often it must to be the owner
};

}  // namespace belay::pool
