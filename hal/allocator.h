// hal/allocator.h: dynamic memory of a device through the configured policies.
#pragma once

#include <belay/abi/memory_policy.h>
#include <belay/status.hpp>
#include "hal/buffer.h"
#include "hal/device_manager.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

namespace belay::hal {

class Device;
class Hal;
class Stream;

// The policies of a runtime that serve PLACE and BIND, in their order. Borrowed; set once.
class Policies {
 public:
  void attach(Hal& hal, const std::vector<NamedObject>& all);
  const std::vector<NamedObject>& placing() const { return placing_; }
  const std::vector<NamedObject>& binding() const { return binding_; }
  // An id of a segment, unique over the devices that share the policies.
  uint64_t next_segment() { return last_segment_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  std::vector<NamedObject> placing_, binding_;
  std::atomic<uint64_t> last_segment_{0};
};

// Cuts buffers out of segments, which are memory of the driver, where the policies say; a policy's answer is
// checked against what is placed already. For devices whose buffers can be parts of others; on others nothing
// is placed. Thread-safe.
class Allocator {
 public:
  explicit Allocator(Device& device) : device_(device) {}

  // Why the policies want host memory copied, not lent; nothing: they do not. The device's flags are filled
  // in here.
  Result<std::optional<std::string>> copy_reason(const belay_bind_req& req);
  // A place to be used on a stream, which then waits for what may still use the memory; without a stream the
  // call waits. Nothing: every policy declined, or there is none. RESOURCE_EXHAUSTED, INTERNAL (a wrong
  // answer: names the policy), what a policy says or the stream does.
  Result<std::optional<Place>> place(const belay_alloc_req& req, Stream* first);
  // The policy may place others there when `uses`, one of each timeline, are reached; with an error of its
  // own nothing has changed.
  Status release(const Place& place, std::span<const belay_event> uses);
  // There is no buffer of the driver's in it any more. It is released where that was not done before; what
  // the policy says against that goes to the log.
  void end(const Place& place, std::span<const belay_event> uses = {});
  // Gives segments that hold nothing back to the driver until `bytes` are free; the bytes that were.
  uint64_t trim(uint64_t bytes);
  // Before the device ends.
  void close();

 private:
  struct Block {
    uint64_t end, cookie;
  };
  struct Segment {
    size_t policy;
    uint64_t bytes, heap;
    belay_obj object;                // of the driver
    std::map<uint64_t, Block> live;  // what is placed, by its begin
    uint64_t inside;  // buffers of the driver's in it: those, and released ones still in use
  };
  Result<std::optional<Place>> ask(size_t policy, const belay_alloc_req& req, Stream* first);
  Status check(size_t policy, const belay_alloc_req& req, const belay_placed& placed, Place& out);
  // Gives a place back that is wrong or cannot be taken; a cookie that a live buffer has stays that buffer's.
  void refuse(size_t policy, uint64_t cookie, std::span<const belay_event> uses);
  bool lives(size_t policy, uint64_t cookie);
  Status wait(std::span<const belay_event> waits, Stream* first);
  Status add_segment(size_t policy, uint64_t bytes, uint64_t heap);
  void free_segment(Segment& segment);
  uint64_t heap_id(uint64_t heap) const;

  Device& device_;
  // Held shared from a policy's answer until it is entered, so that no segment goes between.
  std::shared_mutex trimming_;
  std::mutex growing_;  // one segment at a time, so that nobody misses one that is on its way
  std::mutex mutex_;    // of what follows
  std::map<uint64_t, Segment> segments_;
};

}  // namespace belay::hal
