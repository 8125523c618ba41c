// The policy: heaps with their segments, limits, growth. Thread-safe. Knows no configuration and no plugin.
#pragma once

#include "arena.hpp"
#include "gate.hpp"

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

  // Whether what rests has the very size, as it often has. Else place() is to be asked.
  bool place_at_once(const belay_place_req& req, belay_placed& out) noexcept {
    Heap* const heap = find(req.heap);
    Arena::Request wanted;
    if (!heap || !ask(req, out, wanted)) return false;
    const Gate::Pass pass(heap->gate);
    const uint32_t n = heap->arena.take_resting(wanted);
    if (n == kNone) return false;
    answer(*heap, {n, 0}, out);
    return true;
  }
  // OK, or kNeedSegment (no text), kDeclined, kResourceExhausted. Throws bad_alloc, and then nothing is
  // placed.
  Status place(const belay_place_req& req, belay_placed& out);
  // Whether it was released without more ado, as it nearly always is. Else release() is to be asked.
  bool release_at_once(uint64_t cookie, const belay_event* uses, uint64_t count) noexcept {
    Heap* const heap = heaps_[cookie & (kMostHeaps - 1)].load(std::memory_order_acquire);
    if (!heap) return false;
    const Gate::Pass pass(heap->gate);
    return heap->arena.release_at_once(node_of(cookie), generation_of(cookie), uses, count);
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
  // A cookie: heap, node, generation, from the low end.
  static uint32_t node_of(uint64_t cookie) noexcept {
    return uint32_t(cookie >> kHeapBits) & (kMostNodes - 1);
  }
  static uint32_t generation_of(uint64_t cookie) noexcept { return uint32_t(cookie >> 36); }
  static constexpr uint32_t kHeapBits = 12, kMostHeaps = 1u << kHeapBits, kMostNodes = 1u << 24;
  struct Heap {
    Heap(uint64_t heap, uint32_t place, uint32_t granule_shift, uint32_t rest_shift)
        : id(heap), index(place), arena(granule_shift, rest_shift) {}
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
  // False: it is of no size that can be.
  bool ask(const belay_place_req& req, const belay_placed& out, Arena::Request& wanted) const noexcept {
    if (req.bytes > most_bytes_) return false;
    wanted.size = uint32_t((req.bytes + granule_ - 1) >> shift_);
    if (wanted.size == 0) wanted.size = 1;
    const uint64_t align = req.align > alignment_ ? req.align : alignment_;
    if (align > BELAY_SEGMENT_ALIGNMENT) return false;
    wanted.align = align > granule_ ? uint32_t(align >> shift_) : 1;
    wanted.bytes = req.bytes;
    wanted.timeline = req.timeline;
    wanted.owner = req.owner;
    wanted.progress = req.progress;
    wanted.waits = {out.waits, out.waits ? out.wait_count : 0};
    return true;
  }
  void answer(Heap& heap, Arena::Found found, belay_placed& out) const noexcept {
    out.segment = heap.arena.segment_id(found.node);
    out.offset = heap.arena.offset(found.node);
    out.cookie =
        uint64_t{heap.arena.generation(found.node)} << 36 | uint64_t{found.node} << kHeapBits | heap.index;
    out.wait_count = found.wait_count;
    heap.waits += found.wait_count;
  }
  Result<Heap*> make_heap(uint64_t id);
  Status grow(Heap& heap, uint64_t bytes, belay_placed& out);

  const Options options_;
  const uint32_t shift_, rest_shift_;
  const uint64_t granule_, alignment_, most_bytes_;
  std::atomic<uint32_t> heap_count_{0};
  std::mutex making_;
  std::unique_ptr<std::atomic<Heap*>[]> heaps_;
  std::vector<std::unique_ptr<Heap>> owned_;  // with making_
  std::atomic<uint64_t> reserved_{0}, peak_reserved_{0}, need_segments_{0}, exhausted_{0}, trimmed_{0};
};

}  // namespace belay::pool
