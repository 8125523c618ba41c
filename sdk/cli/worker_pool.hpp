// Child processes that work through cases one at a time, so that a crash or a hang of one case costs that
// case only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace belay::cli {

struct CaseOutcome {
  enum class Kind { kAnswered, kDied, kTimedOut } kind = Kind::kAnswered;
  std::string answer;      // kAnswered: the line that the child wrote
  std::string how;         // kDied: "was killed by SIGSEGV"
  std::string last_words;  // kDied, kTimedOut: the end of the child's stderr, one line
};

struct PoolOptions {
  std::vector<std::string> arguments;  // of this program, for the child; kResultFd is open in it
  uint64_t jobs = 1;
  double timeout = 60;  // seconds a case
};

inline constexpr int kResultFd = 3;

// Gives every case to a child as a line on its stdin and waits for one line on its kResultFd. Calls `done` in
// the order in which cases end; ends early when `stop` gives true. Throws Failure when children cannot be
// started.
void work_through(const PoolOptions& options, const std::vector<std::string>& cases,
                  const std::function<void(size_t index, CaseOutcome)>& done,
                  const std::function<bool()>& stop);

}  // namespace belay::cli
