// The policy: heaps with their segments, limits, growth. Thread-safe. Knows no configuration and no plugin.
#pragma once

#include "arena.hpp"
#include "gate.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

namespace belay::pool {

struct Options {
  uint64_t block_size = 256, alignment = 64;
  uint64_t pool_size = 64 << 20, growth = 64 << 20, growth_percent = 6;
  uint64_t soft_limit = 0, hard_limit = 0;  // 0: none
  bool wait_first = true;                   // rather than grow
  double cache_percent = 0.025;
  Status check() const;  // names the key and the value
};

class Pool {
 public:
  explicit Pool(const Options& options);

  // Whether it is placed without more ado, as it nearly always is. Else place() is to be asked.
  [[gnu::always_inline]] bool place_at_once(const belay_place_req& req, belay_placed& out) noexcept {
    Heap* const heap = find(req.heap);
    if (!heap) return false;
    Arena& arena = heap->arena;
    if (req.bytes - 1 >= most_bytes_ || req.align > plain_align_)
      return place_inside(*heap, nullptr, req, out);
    std::atomic<uint32_t>* const inside = heap->gate.enter_as_owner();
    if (!inside || !arena.knows(req.timeline)) return place_inside(*heap, inside, req, out);
    const Arena::Extent wanted{uint32_t((req.bytes - 1) >> shift_) + 1, 1};
    const uint8_t lane = arena.known_lane(req.timeline);
    const uint32_t n = arena.take_resting(wanted, lane, req);
    if (n == kNone) return place_listed(*heap, inside, wanted, lane, req, out);
    arena.answer(n, out);
    Gate::leave_as_owner(inside);
    return true;
  }
  // OK, or kNeedSegment (no text), kDeclined, kResourceExhausted. Throws bad_alloc, and then nothing is
  // placed.
  Status place(const belay_place_req& req, belay_placed& out);
  // Whether it was released without more ado, as it nearly always is. Else release() is to be asked.
  [[gnu::always_inline]] bool release_at_once(uint64_t cookie, const belay_event* uses,
                                              uint64_t count) noexcept {
    Heap* const heap = heaps_[cookie & (kMostHeaps - 1)].load(std::memory_order_acquire);
    if (!heap) return false;
    std::atomic<uint32_t>* const inside = heap->gate.enter_as_owner();
    if (!inside) return release_inside(*heap, cookie, uses, count);
    const bool done = heap->arena.release_at_once(cookie, uses, count);
    Gate::leave_as_owner(inside);
    return done;
  }
  // kNotFound. Throws bad_alloc: it stays in use.
  Status release(uint64_t cookie, const belay_event* uses, uint64_t count);
  Status add_segment(uint64_t segment, uint64_t bytes, uint64_t heap);
  Status remove_segment(uint64_t segment);
  void trim(uint64_t bytes, void (*each)(void* user, uint64_t segment), void* user);
  belay_policy_stats stats() const;  // hdr is 0
  void snapshot(belay_sink json) const;
  // "" or what is wrong inside. For tests.
  std::string check() const;

 private:
  struct Heap;
  // What place_at_once() does where more is to be looked at. Inside as the owner, or null: not yet. Leaves
  // the gate.
  [[gnu::noinline]] bool place_inside(Heap& heap, std::atomic<uint32_t>* inside, const belay_place_req& req,
                                      belay_placed& out) const noexcept;
  // And where nothing of the lane rests. Inside in any case.
  [[gnu::noinline]] static bool place_listed(Heap& heap, std::atomic<uint32_t>* inside, Arena::Extent wanted,
                                             uint8_t lane, const belay_place_req& req,
                                             belay_placed& out) noexcept;
  [[gnu::noinline]] static bool release_inside(Heap& heap, uint64_t cookie, const belay_event* uses,
                                               uint64_t count) noexcept;
  struct Heap {
    Heap(uint64_t heap, uint32_t place, uint32_t granule_shift, uint32_t rest_shift)
        : id(heap), index(place), arena(granule_shift, rest_shift, place) {}
    const uint64_t id;
    const uint32_t index;
    mutable Gate gate;
    Arena arena;
    uint64_t waits = 0;
    // The host could not give what was asked for: what is there must do.
    std::atomic<bool> starved{false};
  };

  Heap* find(uint64_t id) const noexcept {
    Heap* const first = heaps_[0].load(std::memory_order_acquire);  // most programs have no other
    if (first && first->id == id) return first;
    const uint32_t count = heap_count_.load(std::memory_order_acquire);
    for (uint32_t i = 1; i < count; ++i)
      if (Heap* const heap = heaps_[i].load(std::memory_order_relaxed); heap->id == id) return heap;
    return nullptr;
  }
  bool can_be(const belay_place_req& req) const noexcept {
    return req.bytes <= most_bytes_ && std::max(req.align, alignment_) <= BELAY_SEGMENT_ALIGNMENT;
  }
  Arena::Extent extent(const belay_place_req& req) const noexcept {
    const uint64_t align = std::max(req.align, alignment_);
    return {req.bytes ? uint32_t((req.bytes - 1) >> shift_) + 1 : 1,
            align > granule_ ? uint32_t(align >> shift_) : 1};
  }
  Result<Heap*> make_heap(uint64_t id);
  Status grow(Heap& heap, uint64_t bytes, belay_placed& out);

  const Options options_;
  const uint32_t shift_, rest_shift_;
  const uint64_t granule_, alignment_;
  const uint64_t plain_align_;  // up to which every block is aligned
  const uint64_t most_bytes_;
  std::atomic<uint32_t> heap_count_{0};
  std::mutex making_;
  std::unique_ptr<std::atomic<Heap*>[]> heaps_;
  std::vector<std::unique_ptr<Heap>> owned_;  // with making_
  std::atomic<uint64_t> reserved_{0}, peak_reserved_{0}, need_segments_{0}, exhausted_{0}, trimmed_{0};
};

}  // namespace belay::pool
