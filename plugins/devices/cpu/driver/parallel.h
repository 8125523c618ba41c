// Loops whose iterations (tiles) are shared out between the thread that runs an operation and the device's idle
// workers: each takes the next index by fetch-and-add, so the calling thread can always finish alone.
#pragma once

#include "sync.h"
#include "thread_state.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace belay::cpu {

class Device;

class ParallelLoops {
 public:
  using Body = void (*)(void* arg, uint64_t index);

  // `threads`: that may take part in one loop, the calling one included; also how many loops are shared out at once.
  ParallelLoops(Device& device, uint64_t threads);

  // Runs body(arg, i) for each i in [0, count); returns when all are done. A loop inside a tile runs serially.
  // Sleeping workers are woken for it only where `cost_ns`, the estimate for all of it, makes up for that.
  void run(ThreadState& me, uint64_t count, Body body, void* arg, uint32_t cost_ns);

  // A worker takes part in a loop, if there is one. True: it did.
  bool help(ThreadState& me);
  bool any() const { return open_.load(std::memory_order_seq_cst) > 0; }

 private:
  struct Loop {
    Body body;
    void* arg;
    uint64_t count;
    alignas(64) std::atomic<uint64_t> next{0};
  };
  // `users` counts the workers inside; kPosterSleeps is added while the poster waits for them in the kernel.
  struct alignas(64) Slot {
    std::atomic<Loop*> loop{nullptr};
    std::atomic<uint32_t> users{0};
  };
  static constexpr uint32_t kPosterSleeps = 1u << 31;

  void take_tiles(ThreadState& me, Loop& loop);

  Device& device_;
  const uint64_t threads_;
  const std::unique_ptr<Slot[]> slots_;  // [threads_]
  alignas(64) std::atomic<uint32_t> open_{0};
};

}  // namespace belay::cpu
