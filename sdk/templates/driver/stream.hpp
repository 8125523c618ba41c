// Streams of the device and what they share.
#pragma once

#include <belay/abi/driver.h>
#include <belay/plugin.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct Buffer {
  char* data = nullptr;
  uint64_t bytes = 0;
  bool owned = false;  // or memory of the caller, or a part of another buffer
};

class Stream;

// A counter that only grows, and what has failed on it.
struct Timeline {
  struct Failure {
    uint64_t first, end;  // values [first, end)
    belay::Status status;
  };
  struct Waiter {
    uint64_t value;
    belay_completion completion;
  };
  uint64_t queued = 0, reached = 0;
  std::vector<Failure> failures;
  std::vector<Waiter> waiters;
  std::vector<Stream*> blocked;  // streams whose next operation waits for this timeline

  belay::Status status_of(uint64_t value) const;
};

// What the streams of a device share; one mutex guards all of it.
struct Shared {
  const belay_host& host;
  const belay_executor_vt& executor;
  const uint64_t queue_depth;
  std::mutex mutex;
  std::condition_variable changed;                          // a timeline moved, or a stream came to rest
  std::map<uint64_t, std::shared_ptr<Timeline>> timelines;  // by id

  // Moves a timeline on; completions run without the lock.
  void advance(std::unique_lock<std::mutex>& lock, Timeline& timeline, uint64_t value);
};

// Operations run in their order, one at a time: by a thread that synchronizes, or by a worker of the host.
// What is foreign code (host_call, kernels that may block) is for workers alone.
class Stream {
 public:
  Stream(std::shared_ptr<Shared> shared, uint64_t timeline, bool continues);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();  // finishes what is queued
  static const belay_stream_vt& table();

  belay::Status copy(const belay_copy_req& req, uint64_t* out_value);
  belay::Status fill(const belay_fill_req& req, uint64_t* out_value);
  belay::Status launch(const belay_launch_req& req, uint64_t* out_value);
  belay::Status wait(belay_event event, uint64_t* out_value);
  belay::Status host_call(void (*fn)(void*), void* user, uint64_t* out_value);
  belay::Status query(uint64_t value);
  belay::Status synchronize(uint64_t value, uint64_t timeout_ns);
  belay::Status on_reached(uint64_t value, belay_completion completion);
  uint64_t last_value();
  belay::Status recover();
  const belay_host& host() const { return shared_->host; }
  void wake(
      std::unique_lock<std::mutex>& lock);  // a worker, unless one is on its way or there is nothing to run

 private:
  struct Operation {
    uint64_t value = 0;
    const char* name;
    bool on_worker = false;
    std::function<belay::Status()> body;
    std::shared_ptr<Timeline> before = nullptr;  // instead of a body: the operation is to wait
    uint64_t before_value = 0;
  };

  belay::Status queue(Operation operation, uint64_t* out_value);
  void run_ready(std::unique_lock<std::mutex>& lock, bool on_worker);
  void work();  // of a worker
  belay::Status was_queued(uint64_t value) const;

  const std::shared_ptr<Shared> shared_;
  const uint64_t id_;
  const bool continues_;  // after a failure
  const std::shared_ptr<Timeline> timeline_;
  std::deque<Operation> waiting_;
  bool running_ = false;  // a thread is in run_ready
  bool worker_ = false;   // one was asked for and has not ended
};
