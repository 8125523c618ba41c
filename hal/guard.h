// hal/guard.h: what [memory] checked adds to a buffer.
#pragma once

#include <belay/abi/base.h>
#include "hal/call_site.h"

#include <cstdint>
#include <optional>
#include <string>

namespace belay::hal {

// Zones before and behind a buffer with a pattern that nothing should change, and where the buffer was made.
struct Guard {
  static constexpr uint64_t kZone = 128;  // bytes, at least
  static constexpr unsigned char kUnset =
      0xff;  // bytes of a buffer that nobody has written: NaN as floating point

  CallSite made;
  uint64_t front = 0, back = 0;    // bytes; 0: the device cannot have zones
  std::optional<belay_obj> whole;  // buffer and zones, where no policy placed them

  // `bytes`: of the buffer that begins at `body`.
  void fill(char* body, uint64_t bytes) const;
  // Empty: the zones are as they were; else what was written, "12 bytes behind its end, the nearest
  // 4 bytes behind it".
  std::string damage(const char* body, uint64_t bytes) const;
};

}  // namespace belay::hal
