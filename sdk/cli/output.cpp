#include "output.hpp"
#include "text.hpp"

#include <nlohmann/json.hpp>

#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace belay::cli {
namespace {

volatile std::sig_atomic_t interrupts = 0;

// What the handler of the deadline writes, made beforehand: a signal handler may only write.
char deadline_text[512], deadline_json[768];

void write_all(int fd, const char* text) {
  const ssize_t written = ::write(fd, text, std::strlen(text));
  (void)written;  // the process ends next; there is nobody to tell
}

void on_interrupt(int) {
  if (interrupts != 0) _exit(int(Exit::kInterrupted));
  interrupts = 1;
  write_all(STDERR_FILENO, "\nbelay: stopping after what runs now; Ctrl-C again stops at once\n");
}

void on_deadline(int) {
  write_all(STDERR_FILENO, deadline_text);
  write_all(STDOUT_FILENO, deadline_json);
  _exit(int(Exit::kTimeout));
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

nlohmann::ordered_json error_json(const Failure& failure) {
  return {{"schema", "belay.error/1"},
          {"error",
           {{"code", failure.code},
            {"exit", int(failure.exit)},
            {"message", failure.message},
            {"hint", failure.hint}}}};
}

}  // namespace

void Output::print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(size_t(written));
    } else if (errno == EPIPE) {
      throw ReaderGone{};
    } else if (errno != EINTR) {
      throw Failure{Exit::kInput, "DATA_LOSS",
                    std::string("The results cannot be written to stdout: ") + std::strerror(errno) + ".",
                    "Make room or send them elsewhere; what was written is incomplete."};
    }
  }
}

void Output::document(std::string_view schema, const nlohmann::ordered_json& members) {
  nlohmann::ordered_json whole{{"schema", schema}};
  whole.update(members);
  print(dump(whole));
}

void Output::note(std::string_view text) const {
  if (!quiet) std::fprintf(stderr, "belay: %.*s\n", int(text.size()), text.data());
}

void Output::failure(const Failure& failure) {
  std::fprintf(stderr, "belay: %s\n", printable(failure.message).c_str());
  if (!failure.hint.empty()) std::fprintf(stderr, "  %s\n", printable(failure.hint).c_str());
  if (json) print(dump(error_json(failure)));
}

Progress::Progress(const Output& output, std::string title, uint64_t total)
    : title_(std::move(title)), total_(total), shown_(!output.quiet && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::at(uint64_t done, std::string_view text) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || (done < total_ && now - last_ < std::chrono::milliseconds(50))) return;
  last_ = now;
  constexpr int kWidth = 30;
  const int filled = total_ == 0 ? kWidth : int(double(std::min(done, total_)) / double(total_) * kWidth);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "=" : " ";
  struct winsize window {};
  const size_t columns =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 20 ? window.ws_col - 1 : 79;
  std::string line = title_ + " [" + bar + "] " + std::string(text);
  if (line.size() > columns) line.resize(columns);
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
}

Interruptible::Interruptible() { set_handler(SIGINT, on_interrupt); }
Interruptible::~Interruptible() { set_handler(SIGINT, SIG_DFL); }
bool Interruptible::interrupted() { return interrupts != 0; }

void set_deadline(double seconds, bool json, std::string_view doing) {
  if (seconds <= 0) return;
  const Failure failure{
      Exit::kTimeout, "DEADLINE_EXCEEDED",
      "Not done after " + fixed(seconds, seconds < 10 ? 1 : 0) + " s, while " + std::string(doing) + ".",
      "Give it more with --timeout, or look at what it does with -vv."};
  std::snprintf(deadline_text, sizeof deadline_text, "belay: %s\n  %s\n", failure.message.c_str(),
                failure.hint.c_str());
  if (json) std::snprintf(deadline_json, sizeof deadline_json, "%s", dump(error_json(failure)).c_str());
  set_handler(SIGALRM, on_deadline);
  const auto whole = time_t(seconds);
  const itimerval timer{{0, 0}, {whole, suseconds_t((seconds - double(whole)) * 1e6)}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

}  // namespace belay::cli
