#include "core/guard/crash_mark.h"

#include "core/base/slot_call.h"

#include <unistd.h>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace belay::core {
namespace {

struct Deadly {
  int number;
  const char* name;
};
constexpr std::array<Deadly, 5> kDeadly{
    {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}, {SIGABRT, "SIGABRT"}}};

// The crash-handler slot of the process: constant-initialised, read in signal handlers.
struct Marks {
  std::mutex mutex;  // of all but what the handler reads
  int alive = 0;
  bool at_exit = false;
  std::array<struct sigaction, kDeadly.size()> before = {};
  std::array<std::atomic<int>, 16> files = {};  // descriptor + 1; 0: none
};
constinit Marks marks;

// Of the thread that calls it; async-signal-safe.
void mark(const char* what) {
  const SlotCall* const call = SlotCall::current;
  if (!call) return;
  char text[256];
  size_t length = 0;
  const auto put = [&](const char* part) {
    for (; *part && length < sizeof text; ++part) text[length++] = *part;
  };
  put("crash = \""), put(what), put(" in "), put(call->slot), put("\"\nof = \""), put(call->plugin),
      put("\"\n");
  for (const std::atomic<int>& file : marks.files)
    if (const int fd = file.load() - 1; fd >= 0)
      if (::write(fd, text, length) < 0) continue;  // nothing more can be done here
}

void on_deadly(int number, siginfo_t* info, void* context) {
  for (size_t i = 0; i < kDeadly.size(); ++i) {
    if (kDeadly[i].number != number) continue;
    mark(kDeadly[i].name);
    const struct sigaction& before = marks.before[i];
    if (before.sa_flags & SA_SIGINFO) {
      before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
      before.sa_handler(number);
    } else {  // comes again when this returns, and ends the process
      struct sigaction plain {};
      plain.sa_handler = SIG_DFL;
      sigaction(number, &plain, nullptr);
      if (info->si_code <= 0) raise(number);  // sent, not caused by an instruction that is tried again
    }
  }
}

}  // namespace

CrashMark::CrashMark(int fd) {
  const std::lock_guard lock(marks.mutex);
  if (!marks.at_exit) marks.at_exit = std::atexit([] { mark("exit()"); }) == 0;
  for (size_t i = 0; i < marks.files.size() && place_ < 0; ++i)
    if (marks.files[i].load() == 0) {
      marks.files[i] = fd + 1;
      place_ = int(i);
    }
  if (marks.alive++ > 0) return;
  for (size_t i = 0; i < kDeadly.size(); ++i) {
    struct sigaction action {};
    action.sa_sigaction = on_deadly;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(kDeadly[i].number, &action, &marks.before[i]);
  }
}

CrashMark::~CrashMark() {
  const std::lock_guard lock(marks.mutex);
  if (place_ >= 0) marks.files[size_t(place_)] = 0;
  if (--marks.alive > 0) return;
  for (size_t i = 0; i < kDeadly.size(); ++i) {
    struct sigaction now;
    // Who took the signal over meanwhile, and knows this handler, keeps it.
    if (sigaction(kDeadly[i].number, nullptr, &now) == 0 && now.sa_flags & SA_SIGINFO &&
        now.sa_sigaction == on_deadly)
      sigaction(kDeadly[i].number, &marks.before[i], nullptr);
  }
}

}  // namespace belay::core
