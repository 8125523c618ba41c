// The threads of a device: they run streams that nobody waits for, foreign code (host callbacks, user kernels),
// completions, and tiles of parallel loops. Made when first needed; they poll for `spin_ns` at most, then sleep.
#pragma once

#include "packet.h"
#include "sync.h"

#include <belay/status.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace belay::cpu {

class Device;
class Stream;

// A completion that is due; made by on_reached, freed by the worker that called it.
struct DueCompletion {
  belay_completion completion{};
  Stream* stream = nullptr;  // referenced
  uint64_t value = 0;
  DueCompletion* next = nullptr;
};

class Workers {
 public:
  // `threads` workers run streams and tiles; up to `blocking` more may be inside foreign code at the same time.
  Workers(Device& device, uint64_t threads, uint64_t blocking);
  // stop() was called.
  ~Workers() = default;

  // Room in the list of ready streams, so that ready() needs no memory: before a stream is made, and after its end.
  // Throws bad_alloc.
  void stream_begins();
  void stream_ended() noexcept;
  // Lets a worker run the stream up to what is flushed. Any thread; may be called with a timeline's lock held.
  void ready(Stream& stream);
  // Calls the completion on a worker, then frees it.
  void complete(DueCompletion* due);
  // Something is shared (parallel.h) of which up to `helpers` threads may take a part. Sleeping ones are woken only
  // where `wake`; polling ones see it anyhow.
  void offer(uint64_t helpers, bool wake) { announce(helpers, wake); }

  // Makes sure that there is a worker at all. RESOURCE_EXHAUSTED: the system gives no thread.
  Status ensure_one();

  // Of the streams that are ready; a worker gives way to a higher one.
  int64_t top_priority() const { return top_priority_.load(std::memory_order_relaxed); }

  // A worker enters and leaves foreign code, which may block: another one takes over the rest.
  void enter_foreign();
  void leave_foreign();

  // Waits until nothing is ready, due or running, then ends the threads.
  void stop();

 private:
  void main(uint64_t index);
  bool run_something(Exec& exec);
  // `urgency`: the stream's priority with its age.
  void run_stream(Exec& exec, Stream& stream, int64_t urgency);
  // The same, where it has waited for a lane as well.
  int64_t leave_line(Exec& exec, Stream& stream, bool done);
  Stream* take_ready(int64_t* urgency);  // with the lock held
  void announce(uint64_t count, bool wake);
  bool spawn();                  // with the lock held
  void idle(uint32_t seen);

  Device& device_;
  const uint64_t threads_, most_;

  mutable std::mutex mutex_;
  std::vector<std::thread> workers_;
  std::vector<Stream*> ready_;  // each referenced
  size_t streams_ = 0;          // that ready_ has room for
  DueCompletion* due_first_ = nullptr;
  DueCompletion* due_last_ = nullptr;
  bool stopping_ = false;

  // Workers watch `epoch_`, which moves after something new was published. A worker reads it, looks for work, and then
  // polls and sleeps only as long as it has not moved. Who announces moves it and then looks for sleepers; a worker
  // counts itself as one before the kernel compares the epoch: sequentially consistent, so no wake-up is lost.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> sleepers_{0}, spinners_{0}, foreign_{0};
  std::atomic<uint64_t> count_{0};                  // of workers_
  std::atomic<int64_t> top_priority_{INT64_MIN};    // of ready_
};

}  // namespace belay::cpu
