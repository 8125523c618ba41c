// core/base/executor.h: the threads of a host.
#pragma once

#include <belay/status.hpp>
#include "core/base/fork_guard.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace belay::core {

// Counts what one user of the executor has queued or running, so that a plugin is not closed under its tasks.
struct TaskCount {
  std::atomic<uint64_t> tasks{0};
  std::atomic<bool> closed{false};  // posts are refused from now on
};

// One event loop (Boost.Asio) with threads made at first use: two for short tasks and timers, up to eight
// more for long ones. All signals are blocked in them. Thread-safe. In a forked child every call fails and
// the destructor does nothing.
class Executor {
 public:
  using Task = std::function<void()>;

  Executor();
  ~Executor();  // cancels timers, lets running tasks end, drops queued ones

  // Runs `task` once on a thread of the loop; it should return within 5 ms and throw nothing. `owner`
  // outlives the task. FAILED_PRECONDITION: the owner is closed, the executor stops, or this is a forked
  // child. RESOURCE_EXHAUSTED.
  Status post(TaskCount& owner, Task task);
  // The same on a thread kept for long work.
  Status post_blocking(TaskCount& owner, Task task);
  // Runs `task` after `delay`, then every `period` unless that is 0 (runs never overlap; late ones are
  // skipped). A waiting timer counts as a task of its owner. Gives the id for cancel.
  Result<uint64_t> timer(TaskCount& owner, std::chrono::nanoseconds delay, std::chrono::nanoseconds period,
                         Task task);
  // Tasks that are posted with the id run one after the other, in their order, as those of post(). It lives
  // until cancel(id), which drops what has not begun.
  Result<uint64_t> strand(TaskCount& owner);
  // NOT_FOUND: no strand of this owner.
  Status post(TaskCount& owner, uint64_t strand, Task task);
  // Runs `ready` each time the descriptor can be read (`write`: written), never twice at once, until
  // cancel(id) or the owner's end. The descriptor stays the owner's: open until then, and watched once.
  // INVALID_ARGUMENT: it cannot be watched.
  Result<uint64_t> watch(TaskCount& owner, int fd, bool write, Task ready);
  // Ends a timer, a strand or a watch. Once it returns no task of it runs or will (a running one has ended,
  // unless this is called from inside it). Unknown ids are ignored.
  void cancel(uint64_t id);
  // Refuses new tasks of the owner, cancels its timers and watches and waits for what is queued or running.
  // False: some are left at the deadline.
  bool drain(TaskCount& owner, std::chrono::nanoseconds deadline);
  // Lets go of threads and tasks without waiting for them, because one does not end; every later call fails.
  void abandon();
  // Threads made so far.
  uint64_t threads() const;

 private:
  struct State;
  const ForkGuard process_;
  bool abandoned_ = false;
  std::unique_ptr<State> state_;
};

}  // namespace belay::core
