#include "pool.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>

namespace belay::pool {
namespace {

// To at least this do segments round what is larger than it, as drivers give whole pages.
constexpr uint64_t kPage = 65536;

uint32_t rest_shift_of(double percent) {
  if (percent <= 0) return 63;
  return uint32_t(std::clamp(std::lround(std::log2(100 / percent)), 1l, 63l));
}

}  // namespace

Status Options::check() const {
  const auto power = [](const char* key, uint64_t value) -> Status {
    if (std::has_single_bit(value)) return {};
    return {Code::kInvalidArgument,
            std::string(key) + " is " + std::to_string(value) + ", want a power of two, such as 256."};
  };
  BELAY_TRY(power("block_size", block_size));
  BELAY_TRY(power("alignment", alignment));
  if (hard_limit && soft_limit > hard_limit)
    return {Code::kInvalidArgument, "soft_limit is " + std::to_string(soft_limit) +
                                        ", want no more than hard_limit, which is " +
                                        std::to_string(hard_limit) + "."};
  if (hard_limit && hard_limit < block_size)
    return {Code::kInvalidArgument, "hard_limit is " + std::to_string(hard_limit) +
                                        ", want at least one block of block_size " +
                                        std::to_string(block_size) + ", or 0 for none."};
  return {};
}

Pool::Pool(const Options& options)
    : options_(options),
      shift_(uint32_t(std::countr_zero(options.block_size))),
      rest_shift_(rest_shift_of(options.cache_percent)),
      granule_(options.block_size),
      alignment_(options.alignment),
      plain_align_(options.alignment <= options.block_size ? options.block_size : 0),
      most_bytes_(uint64_t{UINT32_MAX} << shift_),
      heaps_(new std::atomic<Heap*>[kMostHeaps] {}) {}

Result<Pool::Heap*> Pool::make_heap(uint64_t id) {
  std::lock_guard lock(making_);
  if (Heap* const heap = find(id)) return heap;
  const uint32_t index = heap_count_.load(std::memory_order_relaxed);
  if (index == kMostHeaps)
    return Status(Code::kResourceExhausted, "Heap " + std::to_string(id) + " is one more than the " +
                                                std::to_string(kMostHeaps) + " that a pool has room for.");
  owned_.push_back(std::make_unique<Heap>(id, index, shift_, rest_shift_));
  heaps_[index].store(owned_.back().get(), std::memory_order_release);
  heap_count_.store(index + 1, std::memory_order_release);
  return owned_.back().get();
}

bool Pool::place_inside(Heap& heap, std::atomic<uint32_t>* inside, const belay_place_req& req,
                        belay_placed& out) const noexcept {
  if (!can_be(req)) return false;
  if (!inside) inside = heap.gate.enter();
  const Arena::Extent wanted = extent(req);
  const uint8_t lane = heap.arena.lane_of(req.timeline);
  const uint32_t n = heap.arena.take_resting(wanted, lane, req);
  if (n == kNone) return place_listed(heap, inside, wanted, lane, req, out);
  heap.arena.answer(n, out);
  heap.gate.leave(inside);
  return true;
}

bool Pool::place_listed(Heap& heap, std::atomic<uint32_t>* inside, Arena::Extent wanted, uint8_t lane,
                        const belay_place_req& req, belay_placed& out) noexcept {
  Arena& arena = heap.arena;
  uint32_t n = lane != Arena::kClean ? arena.take_resting(wanted, Arena::kClean, req) : kNone;
  if (n == kNone && arena.can_take()) n = arena.take(wanted, lane, req);
  if (n != kNone) arena.answer(n, out);
  heap.gate.leave(inside);
  return n != kNone;
}

bool Pool::release_inside(Heap& heap, uint64_t cookie, const belay_event* uses, uint64_t count) noexcept {
  const Gate::Pass pass(heap.gate);
  return heap.arena.release_at_once(cookie, uses, count);
}

Status Pool::place(const belay_place_req& req, belay_placed& out) {
  Heap* heap = find(req.heap);
  if (!heap) {
    BELAY_ASSIGN(heap, make_heap(req.heap));
  }
  if (!can_be(req))
    return {Code::kDeclined, "The pool places up to " + std::to_string(most_bytes_) + " bytes (block_size " +
                                 std::to_string(granule_) + ") aligned to at most " +
                                 std::to_string(BELAY_SEGMENT_ALIGNMENT) + "; this is " +
                                 std::to_string(req.bytes) + " bytes aligned to " +
                                 std::to_string(req.align) + "."};
  const Gate::Pass pass(heap->gate);
  heap->arena.reserve();
  const Arena::Extent wanted = extent(req);
  Arena::Found found{heap->arena.take(wanted, heap->arena.lane_of(req.timeline), req)};
  if (found.node == kNone) {
    const uint64_t reserved = reserved_.load(std::memory_order_relaxed) + (uint64_t{wanted.size} << shift_);
    const auto past = [&](uint64_t limit) { return limit && reserved > limit; };
    std::span<belay_event> waits(out.waits, out.waits ? out.wait_count : 0);
    // Whoever waits on the host would stand still: only where there is nothing else.
    const bool may_wait =
        (options_.wait_first && req.timeline) || req.hdr.flags & BELAY_PLACE_SHORT || heap->starved;
    if (!may_wait && !past(options_.soft_limit) && !past(options_.hard_limit)) waits = {};
    found = heap->arena.take_run(wanted, req, waits);
  }
  if (found.node == kNone) return grow(*heap, uint64_t{wanted.size} << shift_, out);
  heap->arena.answer(found.node, out);
  out.wait_count = found.wait_count;
  heap->waits += found.wait_count;
  return {};
}

Status Pool::grow(Heap& heap, uint64_t bytes, belay_placed& out) {
  const uint64_t reserved = reserved_.load(std::memory_order_relaxed);
  const uint64_t own = heap.arena.reserved() << shift_;
  uint64_t want = own == 0 ? options_.pool_size : options_.growth;
  // Where there is as much free, but in pieces, more of it would be more than is needed.
  const uint64_t share = own / 100 * options_.growth_percent;
  if (own - (heap.arena.totals().in_use << shift_) < share) want = std::max(want, share);
  if (heap.starved || (options_.soft_limit && reserved + want > options_.soft_limit)) want = 0;
  want = std::max(want, bytes);
  want = std::min(std::max(bytes, most_bytes_), (want + kPage - 1) / kPage * kPage);
  if (options_.hard_limit) {
    const uint64_t left = options_.hard_limit > reserved ? options_.hard_limit - reserved : 0;
    if (bytes > left) {
      exhausted_.fetch_add(1, std::memory_order_relaxed);
      const uint64_t in_use = heap.arena.totals().in_use << shift_;
      return {Code::kResourceExhausted,
              "The pool has no place for " + std::to_string(bytes) + " bytes: of heap " +
                  std::to_string(heap.id) + " " + std::to_string(in_use) + " of " + std::to_string(own) +
                  " bytes are in use, and hard_limit, " + std::to_string(options_.hard_limit) + ", leaves " +
                  std::to_string(left) + " to grow by; raise it or use less."};
    }
    want = std::min(want, std::max(bytes, left / granule_ * granule_));
  }
  out.need_bytes = want;
  need_segments_.fetch_add(1, std::memory_order_relaxed);
  return {Code::kNeedSegment, {}};
}

Status Pool::release(uint64_t cookie, const belay_event* uses, uint64_t count) {
  if (Heap* const heap = heaps_[cookie & (kMostHeaps - 1)].load(std::memory_order_acquire)) {
    const Gate::Pass pass(heap->gate);
    if (heap->arena.release(cookie, uses, count)) return {};
  }
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIx64, cookie);
  return {Code::kNotFound, "No block of the pool has the cookie " + std::string(text) +
                               "; it is not one, or was released already."};
}

Status Pool::add_segment(uint64_t segment, uint64_t bytes, uint64_t id) {
  const uint64_t granules = bytes >> shift_;
  const std::string what = "Segment " + std::to_string(segment) + " of " + std::to_string(bytes) + " bytes";
  if (granules == 0)
    return {Code::kInvalidArgument,
            what + " is smaller than a block; want at least block_size, " + std::to_string(granule_) + "."};
  if (granules > UINT32_MAX)
    return {Code::kOutOfRange,
            what + " is larger than block_size counts: want at most " + std::to_string(most_bytes_) + "."};
  for (uint32_t i = 0; i < heap_count_.load(std::memory_order_acquire); ++i) {
    Heap& other = *heaps_[i].load(std::memory_order_relaxed);
    const Gate::Pass pass(other.gate);
    if (other.arena.has_segment(segment)) return {Code::kAlreadyExists, what + " is there already."};
  }
  BELAY_ASSIGN(Heap* const heap, make_heap(id));
  const Gate::Pass pass(heap->gate);
  if (!heap->arena.add_segment(segment, uint32_t(granules)))
    return {Code::kResourceExhausted,
            what + " is one more than a heap has room for; larger ones (growth, growth_percent) make fewer."};
  heap->starved = false;
  const uint64_t now = reserved_.fetch_add(granules << shift_) + (granules << shift_);
  for (uint64_t peak = peak_reserved_; peak < now && !peak_reserved_.compare_exchange_weak(peak, now);) {
  }
  return {};
}

Status Pool::remove_segment(uint64_t segment) {
  for (uint32_t i = 0; i < heap_count_.load(std::memory_order_acquire); ++i) {
    Heap& heap = *heaps_[i].load(std::memory_order_relaxed);
    const Gate::Pass pass(heap.gate);
    const uint64_t before = heap.arena.reserved();
    if (!heap.arena.remove_segment(segment)) continue;
    reserved_.fetch_sub((before - heap.arena.reserved()) << shift_);
    return {};
  }
  return {Code::kNotFound, "The pool has no segment " + std::to_string(segment) + "."};
}

void Pool::trim(uint64_t bytes, void (*each)(void* user, uint64_t segment), void* user) {
  uint64_t named = 0;
  for (uint32_t i = 0; i < heap_count_.load(std::memory_order_acquire) && named < bytes; ++i) {
    Heap& heap = *heaps_[i].load(std::memory_order_relaxed);
    std::vector<std::pair<uint64_t, uint64_t>> empty;
    {
      const Gate::Pass pass(heap.gate);
      heap.starved = true;
      empty = heap.arena.empty_segments();
    }
    for (const auto& [segment, granules] : empty) {
      if (named >= bytes) break;
      each(user, segment);
      named += granules << shift_;
      trimmed_.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

belay_policy_stats Pool::stats() const {
  belay_policy_stats out{};
  for (uint32_t i = 0; i < heap_count_.load(std::memory_order_acquire); ++i) {
    const Heap& heap = *heaps_[i].load(std::memory_order_relaxed);
    const Gate::Pass pass(heap.gate);
    const Totals& totals = heap.arena.totals();
    const uint64_t in_use = totals.in_use << shift_;
    out.reserved += heap.arena.reserved() << shift_;
    out.in_use += in_use;
    out.peak_in_use += totals.peak_in_use << shift_;
    out.segments += heap.arena.segment_count();
    out.waits += heap.waits;
    out.places += totals.releases;
    out.releases += totals.releases;
    uint64_t run = 0, segment = 0;
    heap.arena.each_block([&](const Arena::Block& block) {
      if (block.state == Arena::State::kUsed || block.segment != segment) run = 0;
      segment = block.segment;
      if (block.state == Arena::State::kUsed) {
        ++out.blocks;
        out.requested += block.requested;
        return;
      }
      if (run == 0) ++out.free_blocks;
      run += block.bytes;
      out.largest_free = std::max(out.largest_free, run);
      if (block.pending) out.pending += block.bytes;
    });
  }
  out.places += out.blocks;
  out.peak_reserved = peak_reserved_;
  out.need_segments = need_segments_;
  out.exhausted = exhausted_;
  out.trimmed = trimmed_;
  return out;
}

void Pool::snapshot(belay_sink json) const {
  struct Count {
    uint64_t used = 0, free = 0;
  };
  std::map<uint64_t, Count> classes;  // by the power of two that their sizes do not pass
  std::string text = "{\"schema\": \"belay.memory-snapshot/1\", \"policy\": \"pool\", \"segments\": [";
  bool first_segment = true;
  for (uint32_t i = 0; i < heap_count_.load(std::memory_order_acquire); ++i) {
    const Heap& heap = *heaps_[i].load(std::memory_order_relaxed);
    std::vector<Arena::Block> blocks;
    std::vector<std::pair<uint64_t, uint64_t>> segments;
    {
      const Gate::Pass pass(heap.gate);
      heap.arena.each_block([&](const Arena::Block& block) { blocks.push_back(block); });
      segments = heap.arena.segments();
    }
    auto block = blocks.begin();
    for (const auto& [id, bytes] : segments) {
      text += std::exchange(first_segment, false) ? "" : ", ";
      text += "{\"segment\": " + std::to_string(id) + ", \"heap\": " + std::to_string(heap.id) +
              ", \"bytes\": " + std::to_string(bytes) + ", \"blocks\": [";
      for (bool first = true; block != blocks.end() && block->segment == id; ++block) {
        const bool used = block->state == Arena::State::kUsed;
        Count& count = classes[std::bit_ceil(block->bytes)];
        ++(used ? count.used : count.free);
        text += std::exchange(first, false) ? "" : ", ";
        text += "{\"offset\": " + std::to_string(block->offset) +
                ", \"bytes\": " + std::to_string(block->bytes) + ", \"state\": \"" +
                (used             ? "used"
                 : block->pending ? "pending"
                                  : "free") +
                "\"";
        if (used)
          text += ", \"requested\": " + std::to_string(block->requested) +
                  ", \"owner\": " + std::to_string(block->owner);
        text += "}";
        if (text.size() > 65536) {
          write(json, text);
          text.clear();
        }
      }
      text += "]}";
    }
  }
  text += "], \"classes\": [";
  for (bool first = true; const auto& [bytes, count] : classes) {
    text += std::exchange(first, false) ? "" : ", ";
    text += "{\"bytes\": " + std::to_string(bytes) + ", \"used\": " + std::to_string(count.used) +
            ", \"free\": " + std::to_string(count.free) + "}";
  }
  write(json, text + "]}");
}

std::string Pool::check() const {
  for (uint32_t i = 0; i < heap_count_.load(std::memory_order_acquire); ++i) {
    const Heap& heap = *heaps_[i].load(std::memory_order_relaxed);
    const Gate::Pass pass(heap.gate);
    if (std::string wrong = heap.arena.check(); !wrong.empty())
      return "heap " + std::to_string(heap.id) + ": " + wrong;
  }
  return "";
}

}  // namespace belay::pool
