// hal/bridge.h: waits that cross drivers.
#pragma once

#include <belay/abi/driver.h>
#include <belay/status.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace belay::hal {

class Device;
class Stream;

// Timelines of other devices as one device sees them: a mirror is a timeline of the device that the host
// advances when the stream it follows gets there. Mirrors are used again for the next stream, so their number
// is bounded by the streams that live at once, and by the failures that crossed. Thread-safe.
class Mirrors {
 public:
  Mirrors();
  ~Mirrors();

  // What a stream of `device` waits for instead of `event`, which is one of `source`: an event of a mirror,
  // or nothing where it is reached or the calling thread has waited for it (a driver without timelines of the
  // host). A failure of the source is the failure of what waits for the mirror, or the status here where
  // there is none.
  Result<std::optional<belay_event>> join(Device& device, Stream& source, belay_event event);
  // The stream with this timeline has ended at `last`.
  void source_ended(uint64_t timeline, uint64_t last);
  // Before the device ends.
  void close(Device& device);

 private:
  struct Mirror;
  Mirror* mirror_of(Device& device, uint64_t timeline);
  static void reached(void* user, belay_status status);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Mirror>> mirrors_;
};

}  // namespace belay::hal
