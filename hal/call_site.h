// hal/call_site.h: where a call came from.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace belay::hal {

// Return addresses of the callers, innermost first. Taken by following frame pointers inside the thread's
// stack, which takes some nanoseconds where an unwinder takes a thousand; it ends at the first function built
// without them, so what called this library is always there.
class CallSite {
 public:
  [[gnu::noinline]] static CallSite here() noexcept;

  bool operator==(const CallSite&) const = default;
  auto operator<=>(const CallSite&) const = default;
  // "main+0x1c (app), start+0x8 (libapp.so)", without the frames of this library; empty: nothing is known.
  std::string text() const;

 private:
  std::array<void*, 12> frames_{};
};

}  // namespace belay::hal
