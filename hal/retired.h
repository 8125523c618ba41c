// hal/retired.h: buffers without a handle whose memory queued work may still use.
#pragma once

#include <belay/abi/driver.h>
#include "hal/buffer.h"

#include <atomic>
#include <list>
#include <mutex>
#include <vector>

namespace belay::hal {

class Device;

// Gives the driver its objects back once the work that uses them has ended. Nobody waits and no thread runs
// for that: each call about memory looks at some of the oldest. Thread-safe.
class Retired {
 public:
  explicit Retired(Device& device) : device_(device) {}

  struct Entry {
    Buffer* buffer;
    std::vector<belay_event> uses;
  };
  using List = std::list<Entry>;

  // In two steps, so that nothing can fail once the handle has ended. Throws bad_alloc.
  static List entry(Buffer* buffer, std::vector<belay_event> uses) { return {{buffer, std::move(uses)}}; }
  // Takes over a buffer to which no handle leads any more.
  void add(List entry) noexcept;
  // Ends buffers whose uses are reached, of the oldest `most` that are here; whether it ended one.
  bool sweep(size_t most = 4);
  // Waits for what uses the oldest; whether memory came back, here or on another thread.
  bool wait(uint64_t timeout_ns);
  size_t count() const { return count_.load(std::memory_order_relaxed); }
  // All work of the device has ended.
  void close();

 private:
  bool over(const Entry& entry) const;

  Device& device_;
  // With those that are being ended; so that nothing is locked where there is nothing.
  std::atomic<size_t> count_{0};
  std::mutex mutex_;              // of the list
  List entries_;
};

}  // namespace belay::hal
