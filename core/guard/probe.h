// core/guard/probe.h: a plugin is loaded by a child process first, so that what it does to a process is seen
// there.
#pragma once

#include <belay/status.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace belay::core {

struct ProbeRequest {
  std::vector<std::string>
      command;  // what loads the plugin: the absolute path of a program, then its arguments
  std::chrono::nanoseconds deadline;
};
struct ProbeResult {
  bool survived = false;
  std::string what;    // where it did not: "killed by SIGILL", "not done after 30000 ms"
  std::string output;  // its last lines, at most 1,000 bytes
};

// Runs the command without input, its output taken, with no descriptors of this process and without core
// files, and waits for its end; a status that it ends with is not looked at. UNAVAILABLE: it cannot be
// started. Nothing of it is left running. Thread-safe.
Result<ProbeResult> probe(const ProbeRequest& request);

}  // namespace belay::core
