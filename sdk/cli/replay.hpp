// A trace of allocations, done by a policy: what it takes and how long, and whether each answer is right.
#pragma once

#include "alloc_trace.hpp"

#include <belay/abi/memory_policy.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace belay::cli {

inline constexpr uint64_t kNeverReached = UINT64_MAX;

struct Policy {
  const belay_memory_policy_vt* table;
  belay_obj* object;
};

// The memory that a policy cuts up: numbers alone. Thread-safe.
class Reservation {
 public:
  Reservation(Policy policy, std::optional<uint64_t> capacity) : policy_(policy), capacity_(capacity) {}
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  // A segment of so many bytes. False: the capacity does not leave them.
  bool add(uint64_t bytes);
  uint64_t reserved() const {
    const std::lock_guard lock(mutex_);
    return reserved_;
  }
  uint64_t segments() const { return bytes_.size(); }
  // 0: there is no such segment.
  uint64_t bytes_of(uint64_t segment) const;

 private:
  const Policy policy_;
  const std::optional<uint64_t> capacity_;
  mutable std::mutex mutex_;
  std::vector<uint64_t> bytes_;  // of each segment
  uint64_t reserved_ = 0;
};

struct ReplayOptions {
  uint64_t lag = 0;        // rows after which an event is reached; kNeverReached: when it is waited for
  uint32_t first_timeline = 1;
  bool checked = false;
  uint64_t rounding = 1;  // where checked: sizes are rounded up to multiples of it, so that uses of what is added end
                          // with those of a block
  std::function<void()> at_fullest = {};
};

struct ReplayResult {
  bool finished = false;
  uint64_t row = 0;    // where it is exhausted
  uint64_t need_bytes = 0;  // there: of the segment that the policy asks for; 0: it has a limit of its own
  uint64_t waits = 0;  // that the policy asked for
  double nanoseconds = 0;  // of processor time of this thread, for all rows
  std::string wrong;       // what is, of the policy's answers; only where they are checked
};

// On the calling thread. Throws what a policy says that is neither a place nor that there is none.
ReplayResult replay(Policy policy, const AllocTrace& trace, Reservation& reservation, const ReplayOptions& options);

}  // namespace belay::cli
