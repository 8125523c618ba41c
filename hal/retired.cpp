#include "hal/retired.h"

#include "hal/hal.h"

#include <algorithm>

namespace belay::hal {

void Retired::add(List entry) noexcept {
  std::lock_guard lock(mutex_);
  entries_.splice(entries_.end(), entry);
  count_.store(entries_.size(), std::memory_order_relaxed);
}

bool Retired::over(const Entry& entry) const {
  return std::all_of(entry.uses.begin(), entry.uses.end(),
                     [&](const belay_event& use) { return device_.hal->reached(use); });
}

bool Retired::sweep(size_t most) {
  if (count_.load(std::memory_order_relaxed) == 0) [[likely]]
    return false;
  bool ended = false;
  for (size_t looked = 0, among = SIZE_MAX; looked < std::min(most, among); ++looked) {
    List entry;
    {
      std::lock_guard lock(mutex_);
      if (looked == 0) among = entries_.size();
      if (entries_.empty()) break;
      if (!over(entries_.front())) {
        // Behind the others, so that a stream that stands still holds up nobody else's memory.
        entries_.splice(entries_.end(), entries_, entries_.begin());
        continue;
      }
      entry.splice(entry.end(), entries_, entries_.begin());
      count_.store(entries_.size(), std::memory_order_relaxed);
    }
    device_.bury(entry.front().buffer);
    ended = true;
  }
  return ended;
}

bool Retired::wait(uint64_t timeout_ns) {
  std::vector<belay_event> uses;
  {
    std::lock_guard lock(mutex_);
    if (entries_.empty()) return false;
    uses = entries_.front().uses;
  }
  Hal& hal = *device_.hal;
  for (const belay_event& use : uses)
    if (const Timelines::Pin stream(hal.timelines(), use.timeline); stream)
      hal.release(stream->synchronize(use.value, timeout_ns));
  return sweep(SIZE_MAX);
}

void Retired::close() {
  std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) device_.bury(entry.buffer);
  entries_.clear();
  count_.store(0, std::memory_order_relaxed);
}

}  // namespace belay::hal
