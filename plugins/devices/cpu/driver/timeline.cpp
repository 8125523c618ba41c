#include "timeline.h"

#include <algorithm>

namespace belay::cpu {

namespace {
constexpr uint32_t kWatcher = 2;  // in attention_, above kTickOff
}

void Timeline::link(TimelineWaiter& waiter) {
  waiter.linked = true;
  waiter.previous = nullptr;
  waiter.next = first_;
  if (first_) first_->previous = &waiter;
  first_ = &waiter;
  if (waiter.watches_submit || waiter.wants_flush) attention_.fetch_add(kWatcher);
  if (waiter.value < wake_at_.load(std::memory_order_relaxed))
    wake_at_.store(waiter.value, std::memory_order_relaxed);
}

void Timeline::unlink(TimelineWaiter& waiter) {
  waiter.linked = false;
  (waiter.previous ? waiter.previous->next : first_) = waiter.next;
  if (waiter.next) waiter.next->previous = waiter.previous;
  if (waiter.watches_submit || waiter.wants_flush) attention_.fetch_sub(kWatcher);
}

void Timeline::update_wake_at() {
  uint64_t least = kNever;
  for (const TimelineWaiter* w = first_; w; w = w->next) least = std::min(least, w->value);
  wake_at_.store(least, std::memory_order_relaxed);
}

bool Timeline::remove(TimelineWaiter& waiter) {
  std::lock_guard lock(mutex_);
  if (!waiter.linked) return false;
  unlink(waiter);
  update_wake_at();
  return true;
}

template <class Due>
void Timeline::fire_those(Due&& due) {
  std::lock_guard lock(mutex_);
  for (TimelineWaiter* w = first_; w;) {
    TimelineWaiter* const next = w->next;
    if (due(*w)) {
      unlink(*w);
      w->fire(*w);  // the last touch: it may be gone afterwards
    }
    w = next;
  }
  update_wake_at();
}

void Timeline::fire_reached(uint64_t value) {
  fire_those([value](const TimelineWaiter& w) { return w.value <= value; });
}
void Timeline::fire_released() {
  fire_those([now = reached()](const TimelineWaiter& w) { return w.on_release || w.value <= now; });
}
bool Timeline::fire_submitted(uint64_t value) {
  bool flush = false;
  fire_those([&](const TimelineWaiter& w) {
    flush = flush || w.wants_flush;
    return w.watches_submit && w.value <= value;
  });
  return flush;
}

void Timeline::signal(uint64_t value, FailurePtr failure) {
  {
    std::lock_guard lock(mutex_);
    const uint64_t before = reached_.load(std::memory_order_relaxed);
    if (failure && (failures_.empty() || failures_.back().last != kNever)) {
      failures_.push_back({before + 1, kNever, std::move(failure)});
      failed_.store(true, std::memory_order_release);
    }
    if (value > before) reached_.store(value, std::memory_order_release);
  }
  fire_reached(reached());
}

void Timeline::begin_failure(uint64_t first, FailurePtr failure) {
  std::lock_guard lock(mutex_);
  if (!failures_.empty() && failures_.back().last == kNever) return;
  if (failures_.size() == kKeptFailures) failures_.erase(failures_.begin());
  failures_.push_back({first, kNever, std::move(failure)});
  failed_.store(true, std::memory_order_release);
}

void Timeline::end_failure(uint64_t last) {
  std::lock_guard lock(mutex_);
  if (!failures_.empty() && failures_.back().last == kNever) failures_.back().last = last;
}

void Timeline::close(FailurePtr failure) {
  {
    std::lock_guard lock(mutex_);
    if (!failures_.empty() && failures_.back().last == kNever)
      failures_.back().last = reached_.load(std::memory_order_relaxed);
    failures_.push_back({reached_.load(std::memory_order_relaxed) + 1, kNever, std::move(failure)});
    failed_.store(true, std::memory_order_release);
    reached_.store(kNever - 1, std::memory_order_release);
    closed_.store(true, std::memory_order_release);
  }
  fire_reached(kNever - 1);
}

FailurePtr Timeline::find_failure(uint64_t value) const {
  std::lock_guard lock(mutex_);
  for (auto it = failures_.rbegin(); it != failures_.rend(); ++it)
    if (it->first <= value && value <= it->last) return it->failure;
  return nullptr;
}

}  // namespace belay::cpu
