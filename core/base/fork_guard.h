// core/base/fork_guard.h: tells a forked child that an object belongs to its parent.
#pragma once

#include <belay/status.hpp>

#include <unistd.h>
#include <string>

namespace belay::core {

// Threads, locks and devices do not survive fork(), so an object made before it answers every call in the
// child with FAILED_PRECONDITION, and its destruction does nothing. Thread-safe.
class ForkGuard {
 public:
  bool forked() const { return getpid() != creator_; }
  // `what`: "This host".
  Status check(const char* what) const {
    if (!forked()) return {};
    return {Code::kFailedPrecondition,
            std::string(what) + " was made by process " + std::to_string(creator_) + " and this is process " +
                std::to_string(getpid()) +
                ", forked from it; make a new one here, or fork before the first."};
  }

 private:
  const pid_t creator_ = getpid();
};

}  // namespace belay::core
