#include "core/guard/probe.h"

#include "core/base/files.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

extern char** environ;

namespace belay::core {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostOutput = 1000;

struct Actions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  Actions() { posix_spawn_file_actions_init(&files), posix_spawnattr_init(&attributes); }
  ~Actions() { posix_spawn_file_actions_destroy(&files), posix_spawnattr_destroy(&attributes); }
};

std::string signal_name(int number) {
  const char* const name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

// Until its end of the pipe is closed by all who have it, or the deadline.
bool read_all(int pipe, Clock::time_point until, std::string& output) {
  char piece[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd one{pipe, POLLIN, 0};
    if (poll(&one, 1, int(std::min<int64_t>(left, 1000))) <= 0) continue;
    const ssize_t count = read(pipe, piece, sizeof piece);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return true;
    output.append(piece, size_t(count));
    if (output.size() > 2 * kMostOutput) output.erase(0, output.size() - kMostOutput);
  }
}

}  // namespace

Result<ProbeResult> probe(const ProbeRequest& request) {
  const auto failed = [&](int error) {
    return Status(Code::kUnavailable,
                  request.command[0] + " cannot be started to probe a plugin: " + std::strerror(error));
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed(errno);
  const Fd from(ends[0]);
  Fd to(ends[1]);
  Actions actions;
  posix_spawn_file_actions_addopen(&actions.files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions.files, to.get(), 1);
  posix_spawn_file_actions_adddup2(&actions.files, to.get(), 2);
  posix_spawn_file_actions_addclosefrom_np(&actions.files, 3);
  sigset_t all, none;
  sigfillset(&all), sigemptyset(&none);
  posix_spawnattr_setsigdefault(&actions.attributes, &all);
  posix_spawnattr_setsigmask(&actions.attributes, &none);
  posix_spawnattr_setpgroup(&actions.attributes, 0);  // what it starts ends with it
  posix_spawnattr_setflags(&actions.attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> words;
  for (const std::string& word : request.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = 0;
  if (const int error =
          posix_spawn(&child, words[0], &actions.files, &actions.attributes, words.data(), environ))
    return failed(error);
  to = Fd();
  ProbeResult result;
  const auto until =
      Clock::now() + std::min<std::chrono::nanoseconds>(request.deadline, std::chrono::hours(24));
  const bool closed = read_all(from.get(), until, result.output);
  // It may have closed its output and still be busy.
  siginfo_t now{};
  const auto gone = [&] {
    return waitid(P_PID, id_t(child), &now, WEXITED | WNOHANG | WNOWAIT) == 0 && now.si_pid == child;
  };
  bool ended = gone();
  for (; closed && !ended && Clock::now() < until; ended = gone())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(-child, SIGKILL);  // what is left of it and of what it has started
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (result.output.size() > kMostOutput) result.output.erase(0, result.output.size() - kMostOutput);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(request.deadline).count();
  if (!ended)
    result.what = "not done after " + std::to_string(milliseconds) + " ms";
  else if (WIFSIGNALED(status))
    result.what = "killed by " + signal_name(WTERMSIG(status));
  else
    result.survived = true;
  return result;
}

}  // namespace belay::core
