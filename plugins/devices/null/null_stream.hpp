// A stream of the null driver: runs what it is given at once, unless something before it has to be waited
// for.
#pragma once

#include <belay/abi/driver.h>
#include <belay/plugin.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace null {

struct Buffer {
  char* data = nullptr;
  uint64_t bytes = 0;
  bool borrowed = false;  // host memory of the caller
};

// A counter that only grows, and what has failed on it. Guarded by the mutex of its device.
struct Timeline {
  struct Failed {
    uint64_t first, end;  // values [first, end)
    belay::Status status;
  };
  struct Waiter {
    uint64_t value;
    std::function<void(const belay::Status&)> reached;
  };
  uint64_t queued = 0, reached = 0;
  std::vector<Failed> failed;
  std::vector<Waiter> waiters;

  belay::Status status_of(uint64_t value) const;
};

class Stream;

// What the streams of a device share. One mutex guards all of it, which is enough for a device that does no
// work.
struct Shared {
  explicit Shared(const belay_host& host_) : host(host_) {}
  const belay_host& host;
  const belay_executor_vt* executor = nullptr;
  uint64_t queue_depth = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, std::shared_ptr<Timeline>> timelines;

  // Moves a timeline on and calls its waiters; the lock is given up while they run.
  void advance(std::unique_lock<std::mutex>& lock, Timeline& timeline, uint64_t value);
};

class Stream {
 public:
  Stream(std::shared_ptr<Shared> shared, uint64_t timeline, bool continues);
  ~Stream();
  static const belay_stream_vt kTable;

 private:
  using Body = std::function<belay::Status()>;
  struct Operation {
    uint64_t value;
    const char* name;
    bool on_worker;  // foreign code, which may call the host
    Body body;
    std::shared_ptr<Timeline> wait = nullptr;  // instead of a body
    uint64_t wait_value = 0;
    bool resumes = false;  // somebody will call resume() for it
  };

  belay::Status queue(Operation operation, uint64_t* out_value);
  void run_ready(std::unique_lock<std::mutex>& lock, bool on_worker);
  void run(std::unique_lock<std::mutex>& lock, Operation operation);
  void finish(std::unique_lock<std::mutex>& lock, const Operation& operation, belay::Status status);
  void resume(bool on_worker);
  belay::Status synchronize(uint64_t value, uint64_t timeout_ns);
  belay::Status recover();

  const std::shared_ptr<Shared> shared_;
  const uint64_t id_;
  const bool continues_;
  const std::shared_ptr<Timeline> timeline_;
  std::deque<Operation> waiting_;
  bool running_ = false;  // somebody is inside run_ready
  uint64_t calls_ = 0;    // of resume(), promised and not ended
};

}  // namespace null
