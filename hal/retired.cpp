#include "hal/retired.h"

#include "hal/hal.h"

#include <algorithm>
#include <thread>

namespace belay::hal {

void Retired::add(List entry) noexcept {
  std::lock_guard lock(mutex_);
  count_.fetch_add(entry.size(), std::memory_order_relaxed);
  entries_.splice(entries_.end(), entry);
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
    }
    device_.bury(entry.front().buffer);
    count_.fetch_sub(1, std::memory_order_relaxed);
    ended = true;
  }
  return ended;
}

bool Retired::wait(uint64_t timeout_ns) {
  std::vector<belay_event> uses;
  {
    std::lock_guard lock(mutex_);
    if (entries_.empty()) {
      if (count_.load(std::memory_order_relaxed) == 0) return false;
      std::this_thread::yield();  // other threads are giving back what is left
      return true;
    }
    uses = entries_.front().uses;
  }
  Hal& hal = *device_.hal;
  bool over = true;
  for (const belay_event& use : uses) {
    if (const Timelines::Pin stream(hal.timelines(), use.timeline); stream)
      hal.release(stream->synchronize(use.value, timeout_ns));
    over &= hal.reached(use);
  }
  return sweep(SIZE_MAX) || over;  // another thread may have ended it first
}

void Retired::close() {
  std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) device_.bury(entry.buffer);
  entries_.clear();
  count_.store(0, std::memory_order_relaxed);
}

}  // namespace belay::hal
