#include "core/base/log.h"

#include "core/base/text.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <vector>

namespace belay::core {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLongest = 16384, kRemembered = 256, kFiles = 256;
constexpr auto kWindow = std::chrono::seconds(10);
constexpr uint64_t kRepeats = 5;

// The sinks of the process by file name, "" for stderr. Never destroyed: plugins' threads may log at exit.
class SinkRegistry {
 public:
  Result<spdlog::sink_ptr> get(const std::string& file) try {
    std::lock_guard lock(mutex_);
    if (!sinks_) sinks_ = new std::map<std::string, spdlog::sink_ptr>;
    spdlog::sink_ptr& sink = (*sinks_)[file];
    if (sink) return sink;
    if (sinks_->size() > kFiles) {
      sinks_->erase(file);
      return Status(Code::kResourceExhausted, "More than " + std::to_string(kFiles) + " log files are open.");
    }
    try {
      if (file.empty())
        sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
      else
        sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    } catch (...) {
      sinks_->erase(file);
      throw;
    }
    sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n: %v");
    return sink;
  } catch (const spdlog::spdlog_ex& error) {
    return Status(Code::kPermissionDenied, "log.file " + quote(file) + " cannot be opened: " + error.what());
  }

 private:
  std::mutex mutex_;
  std::map<std::string, spdlog::sink_ptr>* sinks_ = nullptr;
};
constinit SinkRegistry sink_registry;

// Bytes of the UTF-8 character at the start of the text; 0: there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f))
    return 0;  // too long for its value, a surrogate, beyond the last character
  return length;
}

}  // namespace

const std::vector<std::string>& level_names() {
  static const auto* const names =
      new std::vector<std::string>{"trace", "debug", "info", "warning", "error", "critical", "off"};
  return *names;
}

Result<Level> parse_level(std::string_view name) {
  const std::vector<std::string>& names = level_names();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at != names.end()) return Level(at - names.begin());
  return Status(Code::kInvalidArgument,
                quote(name) + " is no level, want one of " + joined(names) + did_you_mean(name, names));
}

std::string printable(std::string_view text, bool* replaced) {
  std::string out;
  out.reserve(text.size());
  if (replaced) *replaced = false;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const unsigned char c = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      out += "\xef\xbf\xbd";
      if (replaced) *replaced = true;
    } else if (c == '\n' || c == '\t' || c == '\r') {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else if (c < 0x20 || c == 0x7f || (c == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0)) {
      char code[8];  // control characters of ASCII and of Latin 1, which terminals obey too
      std::snprintf(code, sizeof code, "\\x%02x", length == 2 ? static_cast<unsigned char>(text[1]) : c);
      out += code;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return out;
}

struct Log::State {
  struct Repeat {
    Clock::time_point since;
    uint64_t count = 0;
  };
  mutable std::mutex mutex;
  spdlog::sink_ptr sink;
  LogOptions options;
  std::unordered_map<std::string, Repeat> repeats;
  Listener listener;

  Level level_of(std::string_view logger) const {
    size_t longest = 0;
    Level found = options.level;
    for (const auto& [name, at] : options.levels)
      if (name.size() >= longest && logger.starts_with(name) &&
          (logger.size() == name.size() || logger[name.size()] == '.'))
        longest = name.size(), found = at;
    return found;
  }
  void emit(std::string_view logger, Level at, const std::string& line) {
    const spdlog::level::level_enum level = spdlog::level::level_enum(at);
    const std::string name(logger);
    sink->log(spdlog::details::log_msg(name, level, line));
    if (at >= Level::kWarning) sink->flush();
    if (listener) listener(at, logger, line);
  }
  // Whether a line is to be written that may have come often already.
  bool fresh(std::string_view logger, Level at, const std::string& line) {
    const Clock::time_point now = Clock::now();
    if (repeats.size() >= kRemembered)
      std::erase_if(repeats, [&](const auto& e) { return now - e.second.since > kWindow; });
    if (repeats.size() >= kRemembered) repeats.clear();
    Repeat& repeat = repeats[std::string(logger) + '\n' + line];
    if (now - repeat.since > kWindow) {
      if (repeat.count > kRepeats)
        emit(logger, at,
             "(" + std::to_string(repeat.count - kRepeats) + " more lines like the next were left out)");
      repeat = {now, 0};
    }
    return ++repeat.count <= kRepeats;
  }
};

Log::Log() : state_(std::make_unique<State>()) {
  if (auto sink = sink_registry.get(""); sink.ok()) state_->sink = *sink;
}
Log::~Log() {
  if (process_.forked())
    static_cast<void>(state_.release());  // its lock may be held by a thread that is not here
}

Status Log::configure(LogOptions options) {
  BELAY_ASSIGN(spdlog::sink_ptr sink, sink_registry.get(options.file));
  std::lock_guard lock(state_->mutex);
  state_->options = std::move(options), state_->sink = std::move(sink);
  return {};
}

void Log::listen(Listener listener) {
  std::lock_guard lock(state_->mutex);
  state_->listener = std::move(listener);
}

bool Log::enabled(std::string_view logger, Level level) const {
  if (process_.forked()) return false;
  std::lock_guard lock(state_->mutex);
  return level >= state_->level_of(logger) && level < Level::kOff;
}

void Log::write(std::string_view logger, Level level, std::string_view message,
                std::string_view fields) noexcept try {
  if (!enabled(logger, level)) return;
  const std::string line = printable(message.substr(0, kLongest)) + (message.size() > kLongest ? "..." : "");
  std::lock_guard lock(state_->mutex);
  if (state_->sink && state_->fresh(logger, level, line))
    state_->emit(logger, level, line + std::string(fields));
} catch (...) {  // a line that cannot be written must not end its writer
}

void Log::flush() noexcept try {
  if (process_.forked()) return;
  std::lock_guard lock(state_->mutex);
  if (state_->sink) state_->sink->flush();
} catch (...) {
}

}  // namespace belay::core
