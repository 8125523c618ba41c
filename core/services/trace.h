// core/services/trace.h: records on their way from the threads that write them to those who listen.
#pragma once

#include <belay/abi/services.h>
#include <belay/status.hpp>
#include "core/base/executor.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay::core {

// One ring for each thread that writes while somebody listens, read on a thread of the executor every 50 ms
// and at flush(). A full ring drops and counts. Thread-safe; writing takes no lock.
class Trace {
 public:
  // A batch is of one thread, in the order of the ends. Called by one thread at a time.
  using Listener = std::function<void(std::span<const belay_trace_record>)>;
  static constexpr uint64_t kRecords = 4096, kMostRings = 256, kMostNames = 65536;

  explicit Trace(Executor& executor);
  ~Trace();  // listeners get what was written

  // RESOURCE_EXHAUSTED (no thread). Once unlisten() returns the listener is not called any more.
  Result<uint64_t> listen(Listener listener);
  void unlisten(uint64_t id);
  void flush();

  const uint32_t* enabled() const { return &enabled_; }
  Result<uint32_t> name(std::string_view text);
  std::string name_text(uint32_t name) const;
  // Of the calling thread; nullptr: nobody listens, there is no memory, or too many threads write.
  belay_trace_ring* ring();
  uint64_t dropped() const;

 private:
  struct Ring;
  struct ThreadRings;
  void drain();

  Executor& executor_;
  TaskCount tasks_;
  const uint64_t id_;         // no other trace of the process has it
  uint32_t enabled_ = 0;      // atomic
  mutable std::mutex mutex_;  // of the next
  std::map<uint64_t, std::shared_ptr<Listener>> listeners_;
  std::vector<std::shared_ptr<Ring>> rings_;
  std::map<std::string, uint32_t, std::less<>> names_;
  std::vector<const std::string*> texts_;  // of names 1, 2, ...
  uint64_t last_ = 0, threads_ = 0, dropped_ = 0, timer_ = 0;
  std::mutex draining_;  // held while listeners run
};

}  // namespace belay::core
