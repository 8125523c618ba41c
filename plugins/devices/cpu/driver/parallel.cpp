#include "parallel.h"

#include "device.h"
#include "scratch.h"

#include <algorithm>
#include <limits>

namespace belay::cpu {

Sharing::Sharing(Device& device, uint64_t threads)
    : device_(device), count_(threads), slots_(std::make_unique<Slot[]>(threads)) {}

Sharing::Slot* Sharing::share(Source& source) {
  for (uint64_t i = 0; i < count_; ++i) {
    Source* none = nullptr;
    if (slots_[i].source.load(std::memory_order_relaxed) == nullptr &&
        slots_[i].source.compare_exchange_strong(none, &source, std::memory_order_seq_cst)) {
      shared_.fetch_add(1, std::memory_order_relaxed);
      return &slots_[i];
    }
  }
  return nullptr;
}

void Sharing::unshare(Slot* slot) {
  shared_.fetch_sub(1, std::memory_order_relaxed);
  // A worker counts itself in `users` before it reads `source`: it reads null, or we see it here.
  slot->source.store(nullptr, std::memory_order_seq_cst);
  if (slot->users.load(std::memory_order_seq_cst) == 0) return;
  for (const uint64_t until = clock_ns() + device_.options().spin_ns; clock_ns() < until;) {
    for (int i = 0; i < 16; ++i) {
      if (slot->users.load(std::memory_order_acquire) == 0) return;
      relax();
    }
  }
  uint32_t inside = slot->users.fetch_add(kOwnerSleeps, std::memory_order_acq_rel) + kOwnerSleeps;
  while ((inside & kHelpers) != 0) {
    futex_wait(slot->users, inside, kForever);
    inside = slot->users.load(std::memory_order_acquire);
  }
  slot->users.fetch_sub(kOwnerSleeps, std::memory_order_acq_rel);
}

bool Sharing::help(Exec& exec) {
  if (shared_.load(std::memory_order_relaxed) == 0) return false;  // the epoch of the workers orders this
  // Helping takes a lane as well, unless the thread has one: then it waits for others inside an operation.
  const bool had_lane = exec.thread->lane == &device_;
  if (!had_lane) {
    if (!device_.lanes().try_acquire(Lanes::kLowest)) return false;
    exec.thread->lane = &device_;
  }
  bool helped = false;
  for (uint64_t i = 0; i < count_; ++i) {
    Slot& slot = slots_[i];
    if (!slot.source.load(std::memory_order_relaxed)) continue;
    slot.users.fetch_add(1, std::memory_order_seq_cst);
    if (Source* const source = slot.source.load(std::memory_order_seq_cst))
      helped = source->take(*source, exec) || helped;
    // The last one out tells the owners that sleep: a slot without a source may have another owner already.
    const uint32_t before = slot.users.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kHelpers) == 1 && before >= kOwnerSleeps)
      futex_wake(&slot.users, std::numeric_limits<int>::max());
  }
  if (!had_lane) device_.give_lane_back(*exec.thread);
  return helped;
}

namespace {

struct Loop : Source {
  void (*body)(void*, uint64_t);
  void* arg;
  uint64_t count;
  alignas(64) std::atomic<uint64_t> next{0};

  // `lanes`: of a helper, which leaves between tiles when somebody wants its lane.
  bool take_tiles(ThreadState& me, const Lanes* lanes) {
    const bool before = me.in_tile;
    me.in_tile = true;
    bool any = false;
    while (!lanes || !lanes->wanted()) {
      const uint64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) break;
      any = true;
      const ScratchMark mark(me);  // what a tile takes is free again after it
      body(arg, i);
    }
    me.in_tile = before;
    return any;
  }
};

}  // namespace

void parallel_for(Device& device, ThreadState& me, uint64_t count, void (*body)(void* arg, uint64_t index),
                  void* arg, uint32_t cost_ns) {
  const uint64_t threads = device.options().threads;
  Sharing::Slot* slot = nullptr;
  if (count > 1 && threads > 1 && !me.in_tile) {
    Loop loop;
    loop.take = [](Source& source, Exec& exec) {
      return static_cast<Loop&>(source).take_tiles(*exec.thread, &exec.device->lanes());
    };
    loop.body = body;
    loop.arg = arg;
    loop.count = count;
    slot = device.sharing().share(loop);
    if (slot) {
      device.workers().offer(std::min(threads, count) - 1, cost_ns >= kWorthWaking);
      loop.take_tiles(me, nullptr);
      device.sharing().unshare(slot);
      return;
    }
  }
  const bool before = me.in_tile;
  me.in_tile = true;
  for (uint64_t i = 0; i < count; ++i) {
    const ScratchMark mark(me);
    body(arg, i);
  }
  me.in_tile = before;
}

}  // namespace belay::cpu
