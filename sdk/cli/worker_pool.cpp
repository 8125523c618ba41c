#include "worker_pool.hpp"
#include "failure.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>

extern char** environ;

namespace belay::cli {
namespace {

using Clock = std::chrono::steady_clock;

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

[[noreturn]] void fail_system(const char* what) {
  const bool files = errno == EMFILE || errno == ENFILE, room = errno == ENOSPC;
  const bool exhausted = files || room || errno == ENOMEM || errno == EAGAIN;
  throw Failure{
      exhausted ? Exit::kResource : Exit::kInternal, exhausted ? "RESOURCE_EXHAUSTED" : "INTERNAL",
      std::string("A child process cannot be started (") + what + "): " + std::strerror(errno) + ".",
      files ? "Raise the limit of open files (ulimit -n) or try fewer --jobs." : "Try fewer --jobs."};
}

struct Pipe {
  Fd read, write;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail_system("pipe");
    read = Fd(ends[0]), write = Fd(ends[1]);
  }
};

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

class Child {
 public:
  Child(const PoolOptions& options) {
    Pipe in, out;
    // A file, not a pipe: nobody has to read it while the child works.
    err_ = Fd(memfd_create("stderr", MFD_CLOEXEC));
    if (err_.get() < 0) fail_system("memfd_create");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_.get(), STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_.get(),
                                     STDOUT_FILENO);  // nothing of a child belongs to the results
    posix_spawn_file_actions_adddup2(&actions, out.write.get(), kResultFd);
    std::vector<char*> argv;
    for (const std::string& argument : options.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      errno = error;
      fail_system("posix_spawn");
    }
    to_ = std::move(in.write), from_ = std::move(out.read);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void give(size_t index, const std::string& text, double timeout) {
    index_ = index, busy_ = true, line_.clear();
    deadline_ =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout));
    // A child that is dead already shows as end of file on the other pipe.
    const std::string line = text + "\n";
    for (size_t at = 0; at < line.size();) {
      const ssize_t n = ::write(to_.get(), line.data() + at, line.size() - at);
      if (n < 0 && errno != EINTR) break;
      if (n > 0) at += size_t(n);
    }
  }

  // Reads what is there; true when the case is over.
  bool read_answer(CaseOutcome& outcome) {
    char buffer[4096];
    const ssize_t n = ::read(from_.get(), buffer, sizeof buffer);
    if (n < 0) return false;
    if (n == 0) {
      outcome.kind = CaseOutcome::Kind::kDied;
      outcome.how = reap();
      outcome.last_words = last_words();
      return true;
    }
    line_.append(buffer, size_t(n));
    if (line_.back() != '\n') return false;
    line_.pop_back();
    outcome.answer = line_;
    busy_ = false;
    return true;
  }

  CaseOutcome time_out() {
    kill(pid_, SIGKILL);
    reap();
    return {CaseOutcome::Kind::kTimedOut, "", "", last_words()};
  }

  bool busy() const { return busy_; }
  bool alive() const { return pid_ > 0; }
  size_t index() const { return index_; }
  int fd() const { return from_.get(); }
  Clock::time_point deadline() const { return deadline_; }

 private:
  void end() {
    if (pid_ <= 0) return;
    to_ = Fd();  // an idle child ends at the end of its input
    if (busy_) kill(pid_, SIGKILL);
    reap();
  }

  std::string reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) return "was killed by " + signal_text(WTERMSIG(status));
    return "ended with code " + std::to_string(WEXITSTATUS(status));
  }

  // The last line that says something; of a sanitizer's report its summary.
  std::string last_words() const {
    constexpr off_t kRead = 16384;
    const off_t size = lseek(err_.get(), 0, SEEK_END);
    std::string text(size_t(std::min(size, kRead)), '\0');
    const ssize_t n = pread(err_.get(), text.data(), text.size(), std::max<off_t>(0, size - kRead));
    text.resize(n < 0 ? 0 : size_t(n));
    std::string last;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string line = text.substr(at, end - at);
      if (line.starts_with("SUMMARY:")) return line;
      if (line.find_first_not_of(" \t\r=") != std::string::npos) last = line;
      at = end + 1;
    }
    return last;
  }

  pid_t pid_ = -1;
  Fd to_, from_, err_;
  size_t index_ = 0;
  bool busy_ = false;
  std::string line_;
  Clock::time_point deadline_{};
};

}  // namespace

void work_through(const PoolOptions& options, const std::vector<std::string>& cases,
                  const std::function<void(size_t, CaseOutcome)>& done, const std::function<bool()>& stop) {
  std::vector<std::unique_ptr<Child>> children(
      std::min<size_t>(std::max<uint64_t>(options.jobs, 1), cases.size()));
  size_t next = 0, finished = 0;
  while (finished < cases.size() && !stop()) {
    std::vector<pollfd> polls;
    std::vector<size_t> owners;
    for (size_t i = 0; i < children.size(); ++i) {
      if (next < cases.size() && (!children[i] || !children[i]->busy())) {
        if (!children[i]) children[i] = std::make_unique<Child>(options);
        children[i]->give(next, cases[next], options.timeout);
        ++next;
      }
      if (children[i] && children[i]->busy()) {
        polls.push_back({children[i]->fd(), POLLIN, 0});
        owners.push_back(i);
      }
    }
    poll(polls.data(), polls.size(), 100);
    for (size_t p = 0; p < polls.size(); ++p) {
      std::unique_ptr<Child>& child = children[owners[p]];
      const size_t index = child->index();
      CaseOutcome outcome;
      if (polls[p].revents != 0) {
        if (!child->read_answer(outcome)) continue;
      } else if (Clock::now() >= child->deadline()) {
        outcome = child->time_out();
      } else {
        continue;
      }
      if (!child->alive()) child.reset();
      ++finished;
      done(index, std::move(outcome));
    }
  }
}

}  // namespace belay::cli
