#include "lanes.h"

#include <algorithm>

namespace belay::cpu {
namespace {

// One level of priority is gained for each such time in line.
constexpr uint64_t kAgeingStep = 10'000'000;  // ns
// After so long in line a lane is granted: nobody who happens to be awake goes before.
constexpr uint64_t kStarving = 2'000'000;  // ns

int64_t aged(const LaneWaiter& w, uint64_t now) {
  return w.priority + int64_t(now > w.since ? (now - w.since) / kAgeingStep : 0);
}

}  // namespace

LaneWaiter* Lanes::first_in_line(uint64_t now) {
  LaneWaiter* best = nullptr;
  for (LaneWaiter* w = first_; w; w = w->next)
    if (!best || aged(*w, now) > aged(*best, now) || (aged(*w, now) == aged(*best, now) && w->since < best->since))
      best = w;
  return best;
}

void Lanes::unlink(LaneWaiter& waiter) {
  (waiter.previous ? waiter.previous->next : first_) = waiter.next;
  if (waiter.next) waiter.next->previous = waiter.previous;
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
  int64_t top = kLowest;
  for (const LaneWaiter* w = first_; w; w = w->next) top = std::max(top, w->priority);
  top_priority_.store(top, std::memory_order_relaxed);
}

void Lanes::wake_locked() {
  const uint64_t now = host_.now_ns(&host_);
  LaneWaiter* const waiter = first_in_line(now);
  if (!waiter) return;
  int64_t free = free_.load(std::memory_order_seq_cst);
  if (free <= 0) return;
  const bool starving = now > waiter->since && now - waiter->since > kStarving;
  if (starving) {
    while (free > 0 && !free_.compare_exchange_weak(free, free - 1, std::memory_order_seq_cst)) {
    }
    if (free <= 0) return;
  } else if (waking_ > 0) {
    return;  // it will see to the next one when it arrives
  } else {
    ++waking_;
  }
  unlink(*waiter);
  waiter->urgency = aged(*waiter, now);
  waiter->state = starving ? LaneWaiter::State::kGranted : LaneWaiter::State::kFired;
  waiter->fire(*waiter);
}

void Lanes::wake_one() {
  std::lock_guard lock(mutex_);
  wake_locked();
}

void Lanes::hand_over() {
  std::lock_guard lock(mutex_);
  const uint64_t now = host_.now_ns(&host_);
  if (LaneWaiter* const waiter = first_in_line(now)) {
    unlink(*waiter);
    waiter->urgency = aged(*waiter, now);
    waiter->state = LaneWaiter::State::kGranted;
    waiter->fire(*waiter);
  } else {
    free_.fetch_add(1, std::memory_order_seq_cst);
  }
}

bool Lanes::wait(LaneWaiter& waiter) {
  std::lock_guard lock(mutex_);
  if (waiter.since == 0) waiter.since = host_.now_ns(&host_);
  waiter.previous = nullptr;
  waiter.next = first_;
  if (first_) first_->previous = &waiter;
  first_ = &waiter;
  waiter.state = LaneWaiter::State::kWaiting;
  // Pairs with release(): it sees us waiting, or we see its lane.
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  const int64_t others = top_priority_.load(std::memory_order_relaxed);
  if (free_.load(std::memory_order_seq_cst) > 0 && others <= waiter.priority) {
    unlink(waiter);
    waiter.state = LaneWaiter::State::kAway;
    return false;
  }
  top_priority_.store(std::max(others, waiter.priority), std::memory_order_relaxed);
  wake_locked();  // a free lane is for somebody of a higher priority: see that it knows
  return true;
}

Lanes::Arrival Lanes::arrive(LaneWaiter& waiter, bool done) {
  std::lock_guard lock(mutex_);
  const LaneWaiter::State state = waiter.state;
  const bool fired = state == LaneWaiter::State::kFired || state == LaneWaiter::State::kGranted;
  const Arrival arrival{state, fired ? std::max(waiter.urgency, waiter.priority) : waiter.priority};
  waiter.state = LaneWaiter::State::kAway;
  if (done || state == LaneWaiter::State::kGranted) waiter.since = 0;
  if (state == LaneWaiter::State::kWaiting) unlink(waiter);
  if (state == LaneWaiter::State::kFired) {
    --waking_;
    // The caller takes one lane, unless it has no use for it; more may have become free meanwhile.
    if (done || free_.load(std::memory_order_seq_cst) > 1) wake_locked();
  }
  return arrival;
}

}  // namespace belay::cpu
