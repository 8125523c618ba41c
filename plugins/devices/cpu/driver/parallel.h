// Work that idle workers may take a part of while some thread runs an operation: loops over tiles, and programs whose
// nodes may run at once. The thread that shares it can always finish alone.
#pragma once

#include "packet.h"
#include "sync.h"
#include "thread_state.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace belay::cpu {

class Device;

// Waking a sleeping thread takes 7 to 9 us until it runs, and about as long of the waker's time: it is done only for
// work estimated at this much or more.
inline constexpr uint32_t kWorthWaking = 25'000;  // ns

// What can be shared: `take` does a part of it on a worker; false when there was nothing left to take.
struct Source {
  bool (*take)(Source&, Exec&);
};

class Sharing {
 public:
  // As many sources can be shared at once as threads may run; more run on their own threads alone.
  Sharing(Device& device, uint64_t threads);

  struct Slot;
  // From now on workers take parts of it; null: no slot was free, and nobody does. Tell them with Workers::offer.
  Slot* share(Source& source);
  // No worker takes a part any more, and those that did have ended it. Polls, then sleeps.
  void unshare(Slot* slot);
  // A worker takes a part of what is shared. True: it did something.
  bool help(Exec& exec);

  // `users` counts the workers inside (kHelpers of it), and from kOwnerSleeps on the owners that wait for them in the
  // kernel: one that waits leaves the slot to the next, which may come to wait as well.
  struct alignas(64) Slot {
    std::atomic<Source*> source{nullptr};
    std::atomic<uint32_t> users{0};
  };

 private:
  static constexpr uint32_t kOwnerSleeps = 1u << 16, kHelpers = kOwnerSleeps - 1;

  Device& device_;
  const uint64_t count_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(64) std::atomic<uint32_t> shared_{0};  // slots in use
};

// Runs body(arg, i) for each i in [0, count) on the calling thread and on idle workers, each taking the next index by
// fetch-and-add; returns when all are done. A loop inside the body of another runs serially. Sleeping workers are woken
// only if `cost_ns`, the estimate for all of it, is worth it or unknown.
void parallel_for(Device& device, ThreadState& me, uint64_t count, void (*body)(void* arg, uint64_t index), void* arg,
                  uint32_t cost_ns);

}  // namespace belay::cpu
