// core/base/process_state.h: what of the process a plugin has no business to change.
#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

namespace belay::core {

// Signal handlers, locale, working directory, umask, floating-point mode. Taken before a plugin is loaded and
// opened; restore() undoes what has changed meanwhile and tells what that was: "locale (de_DE.UTF-8)". For
// one thread.
class ProcessState {
 public:
  ProcessState();
  std::vector<std::string> restore() const;

 private:
  std::array<struct sigaction, 65> signals_;
  std::string locale_, directory_;
  int umask_;
  uint32_t float_mode_;
};

}  // namespace belay::core
