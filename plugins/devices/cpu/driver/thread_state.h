// What the device keeps for each thread that runs operations, and what it sets up around them: the thread may be the
// user's, in the middle of synchronize().
#pragma once

#include <cstddef>
#include <cstdint>

namespace belay::cpu {

class Device;
class Scratch;

// Plain data without a destructor: a destructor of a thread_local would pin the plugin's library.
struct ThreadState {
  uintptr_t stack_low = 0, stack_high = 0;  // 0: not looked up yet
  Scratch* scratch = nullptr;               // lent by the device while operations run
  const Device* lane = nullptr;             // of which this thread has a lane (lanes.h)
  uint32_t depth = 0;                       // OperationScopes that are open
  bool worker = false;                      // a thread of a device
  bool in_tile = false;                     // inside the body of a parallel_for: a nested one runs serially
};

// The address also stands for the thread in a stream's token.
ThreadState& this_thread();

// Stack that a thread must have left to run operations; with less they go to a worker.
inline constexpr size_t kMinStack = 256 * 1024;

// False on a stack that is not the thread's own (a coroutine's) or has less than kMinStack left.
bool has_stack(ThreadState& thread);

// Around a run of operations on any thread: rounding to nearest, no flush to zero, no floating-point traps; thread
// cancellation off; one OpenMP thread for libraries (a region of theirs must never make a team). All of it is put back.
class OperationScope {
 public:
  explicit OperationScope(ThreadState& thread) : thread_(thread) {
    if (thread_.depth++ == 0) enter();
  }
  ~OperationScope() {
    if (--thread_.depth == 0) leave();
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  void enter();
  void leave();

  ThreadState& thread_;
  uint32_t control_ = 0;
  int cancel_ = 0;
  int omp_threads_ = 0;
};

}  // namespace belay::cpu
