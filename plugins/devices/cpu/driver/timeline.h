// A timeline: a 64-bit counter that only grows, the failures of its values, and who waits for them.
#pragma once

#include "sync.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace belay::cpu {

// Why values of a timeline failed. Immutable; shared by all timelines it has spread to, so that the sentence of the
// operation it came from is the same everywhere.
struct Failure {
  uint32_t code = 0;    // BELAY_...
  std::string message;  // names the operation, its stream and its device
};
using FailurePtr = std::shared_ptr<const Failure>;

// A node of a timeline's list of those who wait; owned by whoever waits, and never moved while it is linked.
// `fire` is called once, under the timeline's lock and after unlinking, when the value is reached or (with
// on_release) when the stream's token was given back; it must be short and must not touch the timeline.
struct TimelineWaiter {
  uint64_t value = 0;
  void (*fire)(TimelineWaiter&) noexcept = nullptr;
  bool on_release = false;
  bool watches_submit = false;  // the value is not queued yet: also fired when it is
  bool wants_flush = false;     // whoever queues the value shall let a worker run it
  bool linked = false;          // guarded by the timeline's lock
  TimelineWaiter* next = nullptr;
  TimelineWaiter* previous = nullptr;
};

class Stream;

// Counted by references: the driver's table of timelines holds one, and so does everyone who keeps a pointer beyond a
// call, so a pointer in a queued wait stays good when its stream is destroyed first.
class Timeline {
 public:
  Timeline(uint64_t id, Stream* stream) : id_(id), stream_(stream) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  uint64_t id() const { return id_; }
  Stream* stream() const { return stream_; }  // whose operations advance it; null: the host does (signal)

  void ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // What was written before the value was reached is visible to the caller when it is.
  uint64_t reached() const { return reached_.load(std::memory_order_acquire); }

  // Moves on to `value`. Only the owner of the stream's token calls it.
  void advance(uint64_t value) {
    reached_.store(value, std::memory_order_release);
    // Pairs with the heavy fence in add(): either we see the waiter's wake_at, or it sees our value.
    AsymmetricFence::light();
    if (value >= wake_at_.load(std::memory_order_relaxed)) [[unlikely]]
      fire_reached(value);
  }

  // Advances a timeline without a stream; a smaller value than the present one changes nothing. With a failure, the
  // values not reached so far fail.
  void signal(uint64_t value, FailurePtr failure);

  // The failure of a reached value, or null.
  FailurePtr failure_of(uint64_t value) const {
    if (!failed_.load(std::memory_order_acquire)) [[likely]]
      return nullptr;
    return find_failure(value);
  }
  // From `first` on all values fail, until end_failure. The first of two failures counts. Before the value is reached.
  void begin_failure(uint64_t first, FailurePtr failure);
  // Values after `last` are good again.
  void end_failure(uint64_t last);

  // Its stream or owner is gone: values that were not reached never will be, and fail so.
  void close(FailurePtr failure);
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  // Links a waiter unless its value is reached (or, with on_release, `released` says so after the waiter was linked):
  // then false, and the waiter is not linked. Afterwards either it is fired or remove() unlinks it.
  template <class Released>
  bool add(TimelineWaiter& waiter, Released&& released);
  bool add(TimelineWaiter& waiter) {
    return add(waiter, [] { return false; });
  }
  // False: it was fired already.
  bool remove(TimelineWaiter& waiter);
  // Fires all that wait for the release of the token.
  void fire_released();
  // Fires all that wait for `value` or an earlier one to be queued. True: a worker shall run it.
  bool fire_submitted(uint64_t value);

  // Whether who queues shall look up from its work (Stream::commit); written rarely, so reading it costs nothing.
  uint32_t attention() const { return attention_.load(std::memory_order_relaxed); }
  // The progress tick rests: who queues next must start it.
  void set_tick_off(bool off) {
    if (off)
      attention_.fetch_or(kTickOff);
    else
      attention_.fetch_and(~kTickOff);
  }
  static constexpr uint32_t kTickOff = 1;  // of attention(); the rest counts those who watch

 protected:
  virtual ~Timeline() = default;

 private:
  static constexpr uint64_t kNever = ~uint64_t{0};
  struct Interval {  // failed values: first to last, both included
    uint64_t first, last;
    FailurePtr failure;
  };
  // Older failures are forgotten: memory stays bounded on a stream that fails and recovers for ever.
  static constexpr size_t kKeptFailures = 256;

  void fire_reached(uint64_t value);
  template <class Due>
  void fire_those(Due&& due);
  void link(TimelineWaiter& waiter);
  void unlink(TimelineWaiter& waiter);
  void update_wake_at();
  FailurePtr find_failure(uint64_t value) const;

  // One cache line that who runs the stream writes for each operation.
  alignas(64) std::atomic<uint64_t> reached_{0};
  std::atomic<uint64_t> wake_at_{kNever};  // the least value that somebody waits for; written under the lock
  std::atomic<bool> failed_{false};        // there are failures to look up
  std::atomic<uint32_t> references_{1};
  const uint64_t id_;
  Stream* const stream_;
  std::atomic<bool> closed_{false};

  alignas(64) std::atomic<uint32_t> attention_{0};
  mutable std::mutex mutex_;
  TimelineWaiter* first_ = nullptr;
  std::vector<Interval> failures_;
};

template <class Released>
bool Timeline::add(TimelineWaiter& waiter, Released&& released) {
  std::lock_guard lock(mutex_);
  link(waiter);
  AsymmetricFence::heavy();
  if (reached_.load(std::memory_order_acquire) < waiter.value && !released()) return true;
  unlink(waiter);
  update_wake_at();
  return false;
}

}  // namespace belay::cpu
