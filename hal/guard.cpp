#include "hal/guard.h"

#include <algorithm>
#include <cstring>

namespace belay::hal {
namespace {

constexpr unsigned char kPattern = 0xb7;

struct Damage {
  uint64_t count = 0, first = 0, last = 0;  // bytes, of the zone
};

Damage look(const char* zone, uint64_t bytes) {
  Damage found;
  for (uint64_t i = 0; i < bytes; ++i)
    if (static_cast<unsigned char>(zone[i]) != kPattern) {
      if (found.count++ == 0) found.first = i;
      found.last = i;
    }
  return found;
}

std::string bytes_text(uint64_t count) { return std::to_string(count) + (count == 1 ? " byte" : " bytes"); }

}  // namespace

void Guard::fill(char* body, uint64_t bytes) const {
  std::memset(body - front, kPattern, front);
  std::memset(body, kUnset, bytes);
  std::memset(body + bytes, kPattern, back);
}

std::string Guard::damage(const char* body, uint64_t bytes) const {
  const Damage before = look(body - front, front), behind = look(body + bytes, back);
  std::string text;
  if (before.count)
    text = bytes_text(before.count) + " before its begin, the nearest " + bytes_text(front - before.last) +
           " before it";
  if (behind.count)
    text += (text.empty() ? "" : ", and ") + bytes_text(behind.count) + " behind its end, the nearest " +
            bytes_text(behind.first) + " behind it";
  return text;
}

}  // namespace belay::hal
