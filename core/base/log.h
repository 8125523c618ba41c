// core/base/log.h: the log of a host.
#pragma once

#include <belay/abi/host.h>
#include <belay/status.hpp>
#include "core/base/fork_guard.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace belay::core {

enum class Level : uint32_t {
  kTrace = BELAY_LOG_TRACE,
  kDebug = BELAY_LOG_DEBUG,
  kInfo = BELAY_LOG_INFO,
  kWarning = BELAY_LOG_WARNING,
  kError = BELAY_LOG_ERROR,
  kCritical = BELAY_LOG_CRITICAL,
  kOff = 6,
};

// "trace", "debug", ..., "off": by the number of the level.
const std::vector<std::string>& level_names();
// INVALID_ARGUMENT names the nearest.
Result<Level> parse_level(std::string_view name);

struct LogOptions {
  Level level = Level::kWarning;  // the least that is written
  std::string file = {};          // where lines are appended; empty: stderr
  // Of loggers; the longest name that matches up to a '.' wins.
  std::vector<std::pair<std::string, Level>> levels = {};
};

// Writes lines to stderr or a file through spdlog, each with time, level and the name of its logger: "core",
// "hal", "plugin.cpu". A line is cut at 16 KiB, control characters are escaped, bad UTF-8 is replaced; a line
// that repeats is written five times in ten seconds, then counted. Thread-safe. The sinks are never
// destroyed, so a line written late, from a plugin's thread or at exit, harms nobody. In a forked child
// nothing is written.
class Log {
 public:
  using Listener = std::function<void(Level, std::string_view logger, std::string_view line)>;

  Log();
  ~Log();
  // PERMISSION_DENIED (the file cannot be opened), RESOURCE_EXHAUSTED (too many log files).
  Status configure(LogOptions options);
  // Gets every enabled line besides the sink; called on the thread that logs, one at a time; must not log.
  // Replaces the one before; empty: none.
  void listen(Listener listener);

  bool enabled(std::string_view logger, Level level) const;
  // `fields` follow the message as they are, and do not make it another line for counting repeats.
  void write(std::string_view logger, Level level, std::string_view message,
             std::string_view fields = {}) noexcept;
  void debug(std::string_view logger, std::string_view message) noexcept {
    write(logger, Level::kDebug, message);
  }
  void info(std::string_view logger, std::string_view message) noexcept {
    write(logger, Level::kInfo, message);
  }
  void warning(std::string_view logger, std::string_view message) noexcept {
    write(logger, Level::kWarning, message);
  }
  void error(std::string_view logger, std::string_view message) noexcept {
    write(logger, Level::kError, message);
  }
  void flush() noexcept;

 private:
  struct State;
  const ForkGuard process_;
  std::unique_ptr<State> state_;
};

// What Log makes of a message: valid UTF-8 on one line, control characters as \n, \t, \x1b. `replaced`: there
// was bad UTF-8.
std::string printable(std::string_view text, bool* replaced = nullptr);

}  // namespace belay::core
