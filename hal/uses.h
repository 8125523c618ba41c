// hal/uses.h: with [memory] checked: who uses a buffer, so that its end at a wrong time is told and harmless.
#pragma once

#include <belay/abi/driver.h>
#include <belay/abi/tensor.h>
#include <belay/status.hpp>
#include "hal/buffer.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace belay::hal {

class Hal;

// An input or output of a context that lies in buffers; shared by the context and the buffers.
struct Lent {
  std::string who;                // "input 'image' of a context of 'model.onnx'"
  std::atomic<bool> gone{false};  // one of the buffers has ended
};

// Which queued work and which contexts use which buffers. Thread-safe; one of a Hal, asked only where it is
// checked.
class Uses {
 public:
  explicit Uses(Hal& hal) : hal_(hal) {}

  // Work was queued. `addresses` may lie in no buffer; `call` is a word for messages and lives for ever.
  void queued(const char* call, belay_event event, const std::vector<belay_obj*>& buffers,
              const std::vector<const void*>& addresses);
  // What a context was lent, until the last reference to it goes. Nothing: it lies in no buffer.
  std::shared_ptr<Lent> lend(const belay_datum& datum, std::string who);
  // A stream waits, as operation `at`, for an event of another; a stream has ended.
  void waited(belay_event at, belay_event source);
  void ended(uint64_t timeline);
  // Before a buffer is destroyed: waits for the queued work that uses it and lets contexts know.
  // FAILED_PRECONDITION names the buffer, who uses it and what to do. `left`: what cannot be waited for, as
  // from a step of that work itself.
  Status end(const Buffer& buffer, std::vector<belay_event>& left);
  // Before a buffer is destroyed after `events`: FAILED_PRECONDITION names queued work that uses it and that
  // that may go on when they are reached; else contexts know that it is gone.
  Status end_after(const Buffer& buffer, const std::vector<belay_event>& events);
  // A buffer has ended as it should.
  void forget(const Buffer& buffer);

 private:
  struct Use {
    belay_event event;
    const char* call;
  };
  struct Entry {
    std::vector<Use> queued;  // the last of each timeline
    std::vector<std::weak_ptr<Lent>> lent;
  };
  struct Wait {
    uint64_t value;  // from this one on operations come after `source`
    belay_event source;
  };
  struct Waits {
    std::vector<Wait> all;
    size_t enough = 64;  // then those that are over go
  };
  // Whether `event` is reached once all of `events` are: by the order in streams and their waits for one another.
  bool implied(const std::vector<belay_event>& events, belay_event event) const;
  std::string going_on(const Use& use) const;
  const Buffer* buffer_of(belay_obj* handle, const void* address) const;
  void add(const belay_tensor& tensor, const std::shared_ptr<Lent>& lent, bool& found);

  Hal& hal_;
  std::mutex mutex_;
  std::map<const Buffer*, Entry> entries_;
  std::map<uint64_t, Waits> waits_;  // by the timeline that waits
};

}  // namespace belay::hal
