// How many threads run operations of a device at once, whoever they are: workers, and callers that wait. `threads` of
// the configuration are the lanes; a thread takes one before heavy work and gives it back before it sleeps, returns or
// enters foreign code. Light operations (a small copy) need none, so they are never behind a long one.
#pragma once

#include <belay/abi/host.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

namespace belay::cpu {

// Operations with a smaller estimate need no lane.
inline constexpr uint32_t kHeavy = 10'000;  // ns

// Who waits for a lane: a sleeping thread, or a stream that a worker will run. Guarded by the lanes' lock.
struct LaneWaiter {
  int64_t priority = 0;
  // Called once under the lanes' lock, after unlinking: come and try again. Short; touches the waiter last.
  void (*fire)(LaneWaiter&) noexcept = nullptr;

  uint64_t since = 0;    // when it began to wait; kept over several attempts
  int64_t urgency = 0;   // its priority with its age, when it was fired
  enum class State : uint8_t { kAway, kWaiting, kFired, kGranted } state = State::kAway;
  LaneWaiter* next = nullptr;
  LaneWaiter* previous = nullptr;
};

class Lanes {
 public:
  static constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

  // The host's clock tells how long somebody waits.
  Lanes(const belay_host& host, uint64_t count) : host_(host), free_(int64_t(count)) {}

  // Not while someone of a higher priority waits; otherwise a running thread goes before one that must first wake up.
  bool try_acquire(int64_t priority) {
    if (top_priority_.load(std::memory_order_relaxed) > priority) return false;
    int64_t free = free_.load(std::memory_order_relaxed);
    while (free > 0)
      if (free_.compare_exchange_weak(free, free - 1, std::memory_order_seq_cst)) return true;
    return false;
  }
  void release() {
    free_.fetch_add(1, std::memory_order_seq_cst);
    if (waiting_.load(std::memory_order_seq_cst) > 0) [[unlikely]]
      wake_one();
  }
  // Gives the caller's lane to the waiter that is first in line, if there is one.
  void hand_over();

  // Of those who wait; kLowest when nobody does.
  int64_t top_priority() const { return top_priority_.load(std::memory_order_relaxed); }
  bool wanted() const { return waiting_.load(std::memory_order_relaxed) > 0; }

  // Puts the waiter in line. False: a lane is free, try again. Afterwards arrive().
  bool wait(LaneWaiter& waiter);
  struct Arrival {
    LaneWaiter::State was;  // kGranted: a lane is the caller's now; kWaiting: it had not been fired
    int64_t urgency;        // at least its priority; more where it was fired with age
  };
  // The waiter does not wait any more, fired or not. `done`: it needs no lane for the time being, so its age starts anew
  // next time.
  Arrival arrive(LaneWaiter& waiter, bool done);

 private:
  void wake_one();
  LaneWaiter* first_in_line(uint64_t now);  // with the lock held
  void unlink(LaneWaiter& waiter);
  void wake_locked();

  const belay_host& host_;
  alignas(64) std::atomic<int64_t> free_;
  std::atomic<uint32_t> waiting_{0};
  std::atomic<int64_t> top_priority_{kLowest};

  std::mutex mutex_;
  LaneWaiter* first_ = nullptr;
  uint32_t waking_ = 0;  // fired, and not arrived yet: no other is woken for the same lane meanwhile
};

}  // namespace belay::cpu
