#include "parallel.h"

#include "device.h"
#include "packet.h"
#include "scratch.h"

#include <algorithm>

namespace belay::cpu {
namespace {

// Waking a sleeping thread takes 7 to 9 us until it runs and about as long of the waker's time.
constexpr uint32_t kWorthWaking = 25'000;  // ns

}  // namespace

ParallelLoops::ParallelLoops(Device& device, uint64_t threads)
    : device_(device), threads_(threads), slots_(std::make_unique<Slot[]>(threads)) {}

void ParallelLoops::take_tiles(ThreadState& me, Loop& loop) {
  const bool before = me.in_tile;
  me.in_tile = true;
  for (uint64_t i; (i = loop.next.fetch_add(1, std::memory_order_relaxed)) < loop.count;) {
    const ScratchMark mark(me);  // what a tile takes is free again after it
    loop.body(loop.arg, i);
  }
  me.in_tile = before;
}

void ParallelLoops::run(ThreadState& me, uint64_t count, Body body, void* arg, uint32_t cost_ns) {
  Loop loop{body, arg, count};
  Slot* slot = nullptr;
  if (count > 1 && threads_ > 1 && !me.in_tile) {
    for (uint64_t i = 0; i < threads_ && !slot; ++i) {
      Loop* none = nullptr;
      if (slots_[i].loop.load(std::memory_order_relaxed) == nullptr &&
          slots_[i].loop.compare_exchange_strong(none, &loop, std::memory_order_seq_cst))
        slot = &slots_[i];
    }
  }
  if (!slot) return take_tiles(me, loop);

  open_.fetch_add(1, std::memory_order_seq_cst);
  device_.workers().offer_tiles(std::min(threads_, count) - 1, cost_ns >= kWorthWaking);
  take_tiles(me, loop);
  open_.fetch_sub(1, std::memory_order_seq_cst);
  // A worker counts itself in `users` before it reads `loop`: it reads null, or we see it here.
  slot->loop.store(nullptr, std::memory_order_seq_cst);
  if (slot->users.load(std::memory_order_seq_cst) == 0) return;
  // The others are in their last tiles.
  for (const uint64_t until = clock_ns() + device_.options().spin_ns; clock_ns() < until;) {
    for (int i = 0; i < 16; ++i) {
      if (slot->users.load(std::memory_order_acquire) == 0) return;
      relax();
    }
  }
  uint32_t inside = slot->users.fetch_add(kPosterSleeps, std::memory_order_acq_rel) + kPosterSleeps;
  while ((inside & ~kPosterSleeps) != 0) {
    futex_wait(slot->users, inside, kForever);
    inside = slot->users.load(std::memory_order_acquire);
  }
  slot->users.fetch_sub(kPosterSleeps, std::memory_order_acq_rel);
}

bool ParallelLoops::help(ThreadState& me) {
  if (!any()) return false;
  bool helped = false;
  for (uint64_t i = 0; i < threads_; ++i) {
    Slot& slot = slots_[i];
    if (!slot.loop.load(std::memory_order_relaxed)) continue;
    slot.users.fetch_add(1, std::memory_order_seq_cst);
    if (Loop* const loop = slot.loop.load(std::memory_order_seq_cst);
        loop && loop->next.load(std::memory_order_relaxed) < loop->count) {
      take_tiles(me, *loop);
      helped = true;
    }
    // The last one out tells a poster that sleeps; with another poster in this slot by then the wake does no harm.
    if (slot.users.fetch_sub(1, std::memory_order_acq_rel) == (kPosterSleeps | 1)) futex_wake(&slot.users, 1);
  }
  return helped;
}

}  // namespace belay::cpu
