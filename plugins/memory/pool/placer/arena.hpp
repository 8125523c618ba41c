// The blocks of one heap: where they are, who may have them next. Numbers alone; the caller sees to it that
// one thread at a time is inside.
//
// A segment is cut into blocks, each a node in an array, linked by address. A block that is released carries
// a colour: clean (all of its uses are reached), a lane (uses of one timeline, up to a value), or mixed (of
// several). A timeline may have its own lane's blocks and the clean ones at once.
//
//   used -> resting -> listed -> used
//
// A resting block is found again by its exact size and lane and is not merged yet. They are in buckets by
// both; where there are more bytes of them than the pool can spare, one bucket after the other goes on, and
// what is large goes on at the first place that finds nothing at rest. A listed block is merged with its
// neighbours of one colour and is in a two-level list of its colour by size class: 64 classes for each power
// of two.
#pragma once

#include <belay/abi/memory_policy.h>
#include <belay/status.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace belay::pool {

// No node: the one with this number is in no segment, so that what has no neighbour needs no care.
inline constexpr uint32_t kNone = 0;

// A cookie: heap, node, how often it was used, from the low end.
inline constexpr uint32_t kHeapBits = 12, kMostHeaps = 1u << kHeapBits, kNodeBits = 24,
                          kMostNodes = 1u << kNodeBits;
inline constexpr uint64_t kOneUse = uint64_t{1} << (kHeapBits + kNodeBits);

struct Totals {
  uint64_t in_use = 0, peak_in_use = 0;  // granules
  uint64_t releases = 0;
};

class Arena {
 public:
  static constexpr uint8_t kClean = 0;
  enum class State : uint8_t { kSpare, kUsed, kResting, kListed };
  struct Block {
    uint64_t segment, offset, bytes, requested, owner;
    State state;
    bool pending;  // not used, but uses of it were not reached when last looked at
  };
  struct Extent {
    uint32_t size, align;  // granules
  };
  struct Found {
    uint32_t node = kNone;  // kNone: nothing fits
    uint32_t wait_count = 0;
  };

  // `rest_shift`: no more than reserved >> rest_shift rests for long, but in small heaps up to kRestLeast;
  // 63: nothing.
  Arena(uint32_t granule_shift, uint32_t rest_shift, uint32_t heap)
      : shift_(granule_shift), rest_shift_(rest_shift), heap_(heap), nodes_(1) {
    lanes_[kClean] = {UINT64_MAX, std::make_unique<Lists>()};
  }

  // The colour that what a timeline releases has: kClean where it has no lane.
  uint8_t lane_of(uint64_t timeline) const noexcept {
    return knows(timeline) ? known_lane(timeline) : look_for_lane(timeline);
  }
  // The same without a search, for those that came lately.
  bool knows(uint64_t timeline) const noexcept { return known_[timeline % kKnown].timeline == timeline; }
  uint8_t known_lane(uint64_t timeline) const noexcept { return known_[timeline % kKnown].lane; }
  // What rests and has this very size and colour, else kNone.
  uint32_t take_resting(Extent wanted, uint8_t colour, const belay_place_req& req) noexcept;
  // What fits best of what a lane may have, else kNone. Where can_take() alone.
  uint32_t take(Extent wanted, uint8_t lane, const belay_place_req& req) noexcept;
  bool can_take() const noexcept { return spares_ >= 2; }
  // Makes it so. Throws bad_alloc before anything changed.
  void reserve() { reserve_nodes(2); }
  // Out of neighbours that are free, whatever their colours; where events are not reached, as few waits as
  // there are, no more than there is room for. Throws as reserve() does.
  Found take_run(Extent wanted, const belay_place_req& req, std::span<belay_event> waits);
  // Whether it is one that is used and nothing more is to be done than in most cases. Else release() is to be
  // asked.
  bool release_at_once(uint64_t cookie, const belay_event* uses, uint64_t count) noexcept;
  // False: no such block is used. Throws bad_alloc: it stays used.
  bool release(uint64_t cookie, const belay_event* uses, uint64_t count);

  // False: there are too many.
  bool add_segment(uint64_t id, uint32_t granules);
  bool remove_segment(uint64_t id) noexcept;
  bool has_segment(uint64_t id) const noexcept;
  // Ids and granules of segments that hold nothing.
  std::vector<std::pair<uint64_t, uint64_t>> empty_segments();

  void answer(uint32_t n, belay_placed& out) const noexcept;
  const Totals& totals() const noexcept { return totals_; }
  uint64_t reserved() const noexcept { return reserved_; }  // granules
  uint64_t segment_count() const noexcept { return segment_count_; }
  // By segment, then by address.
  template <class Each>
  void each_block(Each&& each) const;
  std::vector<std::pair<uint64_t, uint64_t>> segments() const;  // id, bytes
  // "" or what is wrong between nodes, lists and totals. For tests.
  std::string check() const;

 private:
  static constexpr uint32_t kSubBits = 6, kClasses = 32u << kSubBits, kWords = kClasses / 64;
  static constexpr uint32_t kMostSegments = 65535;
  static constexpr uint8_t kMixed = 255;
  static constexpr uint32_t kBucketBits = 9, kBuckets = 1u << kBucketBits;
  static constexpr uint32_t kLargeShift = 4, kRestLeast = 1 << 18, kMostLarge = 256;
  static constexpr uint32_t kKnown = 16;

  struct Order {
    uint32_t sooner, later;
  };
  // All that is to be known of a block, in one cache line.
  struct alignas(64) Node {
    uint32_t begin, size;    // granules
    uint32_t before, after;  // by address
    uint32_t left, right;    // in a list; of what rests right alone
    union {
      uint64_t bytes;  // used: as asked for
      Order order;     // listed and not clean: in which to ask for their events
    };
    uint64_t cookie;  // of its last use
    uint64_t segment_id;
    uint64_t tag;   // used: the owner; of a lane: the value that makes it clean; of kMixed: the first use
    uint32_t list;  // listed: its class
    uint16_t segment;
    uint8_t colour;
    State state;
  };
  static_assert(sizeof(Node) == 64);
  struct Use {
    belay_event event;
    uint32_t next;
  };
  struct Lists {
    std::array<uint32_t, kClasses> head{};
    std::array<uint64_t, kWords> bits{};
    uint32_t words = 0;  // which of `bits` are not 0
  };
  struct Lane {
    uint64_t reached = 0;  // up to which value it is known to be
    std::unique_ptr<Lists> lists;
  };
  struct Known {
    uint64_t timeline = 0;  // the host's, which has no lane
    uint8_t lane = kClean;
  };
  struct Segment {
    uint64_t id = 0;
    uint32_t granules = 0, first = kNone;
    bool live = false;
  };
  static_assert(kWords <= 32);

  // The exponent and the first bits below the highest, as a double has them: there is no branch, and finding
  // the highest bit itself is slow on many machines. 0 has none.
  static uint32_t class_of(uint32_t size) noexcept {
    return uint32_t(std::bit_cast<uint64_t>(double(size)) >> (52 - kSubBits)) - (1023u << kSubBits);
  }
  static uint32_t bucket_of(uint32_t size, uint8_t colour) noexcept {
    return (size * 0x9e3779b1u + (uint32_t{colour} << (32 - kBucketBits))) >> (32 - kBucketBits);
  }
  Lists& lists(uint8_t colour) noexcept { return *lanes_[colour].lists; }

  static uint32_t node_of(uint64_t cookie) noexcept {
    return uint32_t(cookie >> kHeapBits) & (kMostNodes - 1);
  }
  void resize(int64_t granules) noexcept;
  bool listed(uint32_t n) const noexcept { return nodes_[n].state == State::kListed; }
  uint32_t pad_of(uint32_t n, uint32_t align) const noexcept { return (0u - nodes_[n].begin) & (align - 1); }
  void reserve_nodes(uint32_t count);
  uint32_t new_node() noexcept;
  void drop_node(uint32_t n) noexcept;
  void hook(Lists& lists, uint32_t n) noexcept;
  void unhook(Lists& lists, uint32_t n) noexcept;
  void link(uint32_t n) noexcept;
  void unlink(uint32_t n) noexcept;
  void list_again(uint32_t n) noexcept;
  void absorb(uint32_t low, uint32_t high) noexcept;
  uint64_t resting_granules() const noexcept { return reserved_ - totals_.in_use - listed_granules_; }
  void rest(uint32_t n) noexcept;  // that is used
  void wake(uint32_t n) noexcept;  // out of what rests; not listed yet
  void settle(uint32_t n, const belay_progress* progress) noexcept;
  void clean(uint32_t n) noexcept;
  void settle_large(const belay_progress* progress) noexcept;
  void settle_bucket(const belay_progress* progress) noexcept;
  void settle_all(const belay_progress* progress) noexcept;
  bool joins(const Node& a, const Node& b) const noexcept;
  void merge(uint32_t n) noexcept;
  void put_last(uint32_t n) noexcept;
  void take_out(uint32_t n) noexcept;
  void sweep(const belay_progress* progress) noexcept;
  void look_at_soonest(const belay_progress* progress) noexcept;
  void look_around(const belay_progress* progress) noexcept;
  bool reached(uint8_t lane, uint64_t value, const belay_progress* progress) noexcept;
  bool is_clean_now(uint32_t n, const belay_progress* progress) noexcept;
  uint8_t look_for_lane(uint64_t timeline) const noexcept;
  void find_spare_lanes() noexcept;
  uint8_t make_lane(uint64_t timeline);
  uint8_t colour_by(uint32_t n, const belay_event* uses, uint64_t count);
  void drop_uses(uint32_t n) noexcept;
  uint32_t new_use(belay_event event, uint32_t next) noexcept;
  void reserve_uses(uint64_t count);
  static uint32_t next_class(const Lists& lists, uint32_t c) noexcept;
  uint32_t least(uint32_t n, uint32_t size) const noexcept;
  uint32_t best(const Lists& lists, uint32_t size) const noexcept;
  uint32_t fit_aligned(const Lists& lists, Extent wanted) const noexcept;
  uint32_t fit(const Lists& lists, Extent wanted) const noexcept;
  uint32_t fit_of(uint8_t lane, Extent wanted) const noexcept;
  uint32_t cut(uint32_t n, Extent wanted, const belay_place_req& req) noexcept;
  template <bool low>
  uint32_t split(uint32_t n, uint32_t size) noexcept;
  uint32_t use(uint32_t n, const belay_place_req& req) noexcept;
  // Calls each(event) for what is not reached of the uses of a free node that are not of `timeline`.
  template <class Each>
  void each_wait(uint32_t n, uint64_t timeline, const belay_progress* progress, Each&& each) noexcept;

  const uint32_t shift_, rest_shift_, heap_;
  mutable std::array<Known, kKnown> known_{};  // by the low bits of the timeline
  std::array<uint8_t, 256> spare_lanes_{};     // of no timeline
  uint32_t spare_lane_count_ = 0;
  uint64_t next_scan_ = 0;   // after so many releases they may be looked for again
  uint32_t lane_count_ = 0;  // 1 ... are in use or have been
  std::vector<Node> nodes_;
  uint32_t spare_ = kNone;  // nodes that are nothing, by `right`
  uint32_t spares_ = 0;
  uint32_t soonest_ = kNone, latest_ = kNone;  // of what is listed and not clean
  uint64_t listed_granules_ = 0;
  uint64_t rest_most_ = 0, rest_each_ = 0;  // granules: of all, and of one that is not large
  Totals totals_;
  uint64_t reserved_ = 0, segment_count_ = 0;
  std::vector<Segment> segments_;
  std::array<uint64_t, 256> lane_timelines_{};
  std::array<Lane, 256> lanes_{};
  std::array<uint32_t, kBuckets> resting_{};
  uint32_t hand_ = 0;                       // the bucket that goes on next
  std::array<uint32_t, kMostLarge> large_;  // what came to rest and is large; some rest no more
  uint32_t large_count_ = 0;
  std::vector<Use> uses_;
  uint32_t spare_use_ = kNone;
  uint64_t spare_uses_ = 0;
};

inline uint32_t Arena::use(uint32_t n, const belay_place_req& req) noexcept {
  Node& x = nodes_[n];
  x.state = State::kUsed;
  x.cookie += kOneUse;
  x.tag = req.owner;
  // Two that lie side by side are not to be stored as one: the caller soon asks for the cookie alone.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  x.bytes = req.bytes;
  const uint64_t in_use = totals_.in_use + x.size;
  totals_.in_use = in_use;
  if (in_use > totals_.peak_in_use) totals_.peak_in_use = in_use;
  return n;
}

inline void Arena::answer(uint32_t n, belay_placed& out) const noexcept {
  const Node& x = nodes_[n];
  out.cookie = x.cookie;
  out.segment = x.segment_id;
  out.wait_count = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // as in use()
  out.offset = uint64_t{x.begin} << shift_;
}

inline uint32_t Arena::take_resting(Extent wanted, uint8_t colour, const belay_place_req& req) noexcept {
  uint32_t& head = resting_[bucket_of(wanted.size, colour)];
  const uint32_t n = head;
  const Node& x = nodes_[n];
  if (x.size != wanted.size || x.colour != colour || (x.begin & (wanted.align - 1))) return kNone;
  head = x.right;
  return use(n, req);
}

inline bool Arena::release_at_once(uint64_t cookie, const belay_event* uses, uint64_t count) noexcept {
  const uint32_t n = node_of(cookie);
  if (n >= nodes_.size()) return false;
  Node& x = nodes_[n];
  if (x.cookie != cookie || x.state != State::kUsed) return false;
  uint8_t colour = kClean;
  if (count != 0) {
    if (count != 1 || !knows(uses->timeline)) return false;
    colour = known_lane(uses->timeline);
  }
  if (x.size > rest_each_) {
    if (large_count_ == kMostLarge) return false;
    large_[large_count_++] = n;
    __builtin_prefetch(&nodes_[x.before]);  // with which it is soon merged
    __builtin_prefetch(&nodes_[x.after]);
  }
  if (count != 0) x.tag = uses->value;
  x.colour = colour;
  rest(n);
  return true;
}

inline void Arena::rest(uint32_t n) noexcept {
  Node& x = nodes_[n];
  uint32_t& head = resting_[bucket_of(x.size, x.colour)];
  x.state = State::kResting;
  x.right = head;
  head = n;
  totals_.in_use -= x.size;
  ++totals_.releases;
}

template <class Each>
void Arena::each_block(Each&& each) const {
  for (const Segment& segment : segments_)
    for (uint32_t n = segment.live ? segment.first : kNone; n != kNone; n = nodes_[n].after) {
      const Node& x = nodes_[n];
      const uint64_t bytes = uint64_t{x.size} << shift_;
      const bool used = x.state == State::kUsed;
      const bool late =
          !used && x.colour != kClean && (x.colour == kMixed || x.tag > lanes_[x.colour].reached);
      each(Block{segment.id, uint64_t{x.begin} << shift_, bytes, used ? x.bytes : 0, used ? x.tag : 0,
                 x.state, late});
    }
}

}  // namespace belay::pool
