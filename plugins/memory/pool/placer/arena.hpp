// The blocks of one heap: where they are, who may have them next. Numbers alone; the caller sees to it that
// one thread at a time is inside.
//
// A segment is cut into blocks, each a node in an array, linked by address. A block that is released carries
// a colour: clean (all of its uses are reached), a lane (uses of one timeline, up to a value), or mixed (of
// several). A timeline may have its own lane's blocks and the clean ones at once.
//
//   used -> resting -> listed -> used
//
// A resting block is found again by its exact size and lane and is not merged yet; the oldest go on when
// there are more bytes of them than the pool can spare. A listed block is merged with its neighbours of one
// colour and is in a two-level list of its colour by size class: 64 classes for each power of two.
#pragma once

#include <belay/abi/memory_policy.h>
#include <belay/status.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace belay::pool {

inline constexpr uint32_t kNone = UINT32_MAX;

struct Totals {
  uint64_t in_use = 0, peak_in_use = 0;  // granules
  uint64_t lost = 0;                     // bytes that rounding adds to what is in use
  uint64_t places = 0, releases = 0;
};

class Arena {
 public:
  enum class State : uint8_t { kSpare, kUsed, kResting, kListed };
  struct Block {
    uint64_t segment, offset, bytes, requested, owner;
    State state;
    bool pending;  // not used, but uses of it were not reached when last looked at
  };
  struct Request {
    uint32_t size, align;  // granules
    uint64_t bytes, timeline, owner;
    const belay_progress* progress;
    std::span<belay_event> waits;  // room
  };
  struct Found {
    uint32_t node = kNone;  // kNone: nothing fits
    uint32_t wait_count = 0;
  };

  // `rest_shift`: no more than reserved >> rest_shift rests for long, but in small heaps up to kRestLeast;
  // 63: nothing.
  Arena(uint32_t granule_shift, uint32_t rest_shift) : shift_(granule_shift), rest_shift_(rest_shift) {
    resting_.fill(kNone);
  }

  // What rests of the timeline and has this very size, else kNone.
  uint32_t take_resting(const Request& req) noexcept;
  // What fits best of what the timeline may have. Throws bad_alloc before anything changed but the order of
  // what is free.
  Found take(const Request& req);
  // Out of neighbours that are free, whatever their colours; where events are not reached, as few waits as
  // there are, no more than there is room for. Throws as take() does.
  Found take_run(const Request& req);
  // Whether it is one that is used and nothing more is to be done than in most cases. Else release() is to be
  // asked.
  bool release_at_once(uint32_t node, uint32_t generation, const belay_event* uses, uint64_t count) noexcept;
  // False: no such block is used. Throws bad_alloc: it stays used.
  bool release(uint32_t node, uint32_t generation, const belay_event* uses, uint64_t count);

  // False: there are too many.
  bool add_segment(uint64_t id, uint32_t granules);
  bool remove_segment(uint64_t id) noexcept;
  bool has_segment(uint64_t id) const noexcept;
  // Ids and granules of segments that hold nothing.
  std::vector<std::pair<uint64_t, uint64_t>> empty_segments();

  uint64_t segment_id(uint32_t node) const noexcept { return segments_[nodes_[node].segment].id; }
  uint64_t offset(uint32_t node) const noexcept { return uint64_t{nodes_[node].begin} << shift_; }
  uint32_t generation(uint32_t node) const noexcept { return nodes_[node].generation; }
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
  static constexpr uint32_t kSubBits = 6, kSub = 1u << kSubBits, kClasses = (32 - kSubBits + 1) * kSub,
                            kWords = kClasses / 64;
  static constexpr uint32_t kMostNodes = 1u << 24, kGenerations = (1u << 28) - 1, kMostSegments = 65535;
  static constexpr uint8_t kClean = 0, kMixed = 255;
  static constexpr uint32_t kBuckets = 1024, kLargeShift = 5, kRestLeast = 1 << 20;

  struct Node {
    uint32_t begin, size;    // granules
    uint32_t before, after;  // by address
    uint32_t left, right;    // in a list, or of what rests with the same key; used: left is the bytes lost
    uint32_t generation;
    uint16_t segment;
    uint8_t colour;
    State state;
  };
  static_assert(sizeof(Node) == 32);
  struct Cold {
    uint64_t owner;
    uint64_t value;          // of a lane: reached then it is clean
    uint32_t first_use;      // of kMixed
    uint32_t sooner, later;  // listed and not clean: in the order in which to ask for their events
  };
  struct Use {
    belay_event event;
    uint32_t next;
  };
  struct Lists {
    std::array<uint32_t, kClasses> head;
    std::array<uint64_t, kWords> bits{};
    uint32_t words = 0;  // which of `bits` are not 0
    Lists() { head.fill(kNone); }
  };
  struct Lane {
    uint64_t reached = 0;  // up to which value it is known to be
    std::unique_ptr<Lists> lists;
  };
  struct Segment {
    uint64_t id = 0;
    uint32_t granules = 0, first = kNone;
    bool live = false;
  };
  // Nodes, oldest first; those that rest no more are passed over. An entry is one word, as it is often read
  // at once: node in the low half, generation in the high one.
  struct Ring {
    static constexpr uint32_t kRoom = 2048;
    std::array<uint64_t, kRoom> entries;
    uint32_t head = 0, tail = 0;
    bool full() const noexcept { return tail - head == kRoom; }
    bool empty() const noexcept { return tail == head; }
    void push(uint32_t node, uint32_t generation) noexcept {
      entries[tail++ % kRoom] = uint64_t{generation} << 32 | node;
    }
    // Where it was the last to come, as it is when the same size goes to and fro.
    void take_back(uint32_t node, uint32_t generation) noexcept {
      if (tail != head && entries[(tail - 1) % kRoom] == (uint64_t{generation} << 32 | node)) --tail;
    }
    uint64_t pop() noexcept { return entries[head++ % kRoom]; }
  };
  static_assert(kWords <= 32);

  static uint32_t class_of(uint32_t size) noexcept {
    if (size < kSub) return size;
    const auto top = uint32_t(31 - std::countl_zero(size));
    return ((top - kSubBits + 1) << kSubBits) + ((size >> (top - kSubBits)) & (kSub - 1));
  }
  static uint32_t bucket_of(uint32_t size, uint8_t colour) noexcept {
    return (size * 0x9e3779b1u + colour * 0x85ebca6bu) >> 22;
  }
  Lists& lists(uint8_t colour) noexcept { return *lanes_[colour].lists; }

  Node& at(uint32_t n) noexcept { return nodes_[n]; }
  void resize(int64_t granules) noexcept;
  bool listed(uint32_t n) const noexcept { return n != kNone && nodes_[n].state == State::kListed; }
  uint32_t pad_of(uint32_t n, uint32_t align) const noexcept { return (0u - nodes_[n].begin) & (align - 1); }
  void reserve_nodes(uint32_t count);
  uint32_t new_node() noexcept;
  void drop_node(uint32_t n) noexcept;
  void link(uint32_t n) noexcept;
  void unlink(uint32_t n) noexcept;
  void rest(uint32_t n, Ring& ring) noexcept;  // that is used
  void wake(uint32_t n) noexcept;              // out of what rests; not listed yet
  void settle(uint32_t n, const belay_progress* progress) noexcept;
  void settle_next(Ring& ring, const belay_progress* progress) noexcept;
  void settle_all(const belay_progress* progress) noexcept;
  bool joins(const Node& a, const Node& b) const noexcept;
  void merge(uint32_t n) noexcept;
  void put_last(uint32_t n) noexcept;
  void take_out(uint32_t n) noexcept;
  void sweep(const belay_progress* progress) noexcept;
  void look_around(const belay_progress* progress) noexcept;
  bool reached(uint8_t lane, uint64_t value, const belay_progress* progress) noexcept;
  bool is_clean_now(uint32_t n, const belay_progress* progress) noexcept;
  uint8_t lane_of(uint64_t timeline) const noexcept;
  void find_spare_lanes() noexcept;
  uint8_t make_lane(uint64_t timeline);
  uint8_t colour_by(uint32_t n, const belay_event* uses, uint64_t count);
  void drop_uses(uint32_t n) noexcept;
  uint32_t new_use(belay_event event, uint32_t next) noexcept;
  void reserve_uses(uint64_t count);
  uint32_t best(const Lists& lists, uint32_t size) const noexcept;
  uint32_t fit(uint8_t colour, const Request& req) const noexcept;
  uint32_t fit_of(uint8_t lane, const Request& req) const noexcept;
  uint32_t cut(uint32_t n, const Request& req) noexcept;
  uint32_t split(uint32_t n, uint32_t size) noexcept;
  uint32_t split_high(uint32_t n, uint32_t size) noexcept;
  uint32_t use(uint32_t n, uint64_t bytes, uint64_t owner) noexcept;
  Ring& ring_of(uint32_t size) noexcept { return size > rest_most_ >> kLargeShift ? large_ : small_; }
  // Calls each(event) for what is not reached of the uses of a free node that are not of `timeline`.
  template <class Each>
  void each_wait(uint32_t n, uint64_t timeline, const belay_progress* progress, Each&& each) noexcept;

  const uint32_t shift_, rest_shift_;
  uint64_t last_timeline_ = 0;  // of last_lane_
  uint8_t last_lane_ = kClean;
  std::array<uint8_t, 256> spare_lanes_{};  // of no timeline
  uint32_t spare_lane_count_ = 0;
  uint64_t next_scan_ = 0;   // after so many releases they may be looked for again
  uint32_t lane_count_ = 0;  // 1 ... are in use or have been
  std::vector<Node> nodes_;
  std::vector<Cold> cold_;
  uint32_t spare_ = kNone;  // nodes that are nothing, by `right`
  uint32_t spares_ = 0;
  uint32_t soonest_ = kNone, latest_ = kNone;  // of what is listed and not clean
  uint64_t resting_granules_ = 0;
  uint64_t rest_most_ = 0;  // granules
  Totals totals_;
  uint64_t reserved_ = 0, segment_count_ = 0;
  std::vector<Segment> segments_;
  std::array<uint64_t, 256> lane_timelines_{};
  std::array<Lane, 256> lanes_{};
  std::array<uint32_t, kBuckets> resting_;
  Ring small_, large_;  // what rests in the order of its coming; large: more than a share of rest_most_
  std::vector<Use> uses_;
  uint32_t spare_use_ = kNone;
  uint64_t spare_uses_ = 0;
};

inline uint8_t Arena::lane_of(uint64_t timeline) const noexcept {
  if (timeline == 0) return kClean;
  if (timeline == last_timeline_) return last_lane_;
  for (uint32_t i = 1; i <= lane_count_; ++i)
    if (lane_timelines_[i] == timeline) return uint8_t(i);
  return kClean;
}

inline uint32_t Arena::use(uint32_t n, uint64_t bytes, uint64_t owner) noexcept {
  Node& x = nodes_[n];
  x.state = State::kUsed;
  x.generation = (x.generation + 1) & kGenerations;
  x.left = uint32_t((uint64_t{x.size} << shift_) - bytes);
  cold_[n].owner = owner;
  totals_.lost += x.left;
  totals_.in_use += x.size;
  if (totals_.in_use > totals_.peak_in_use) totals_.peak_in_use = totals_.in_use;
  ++totals_.places;
  return n;
}

inline void Arena::wake(uint32_t n) noexcept {
  Node& x = nodes_[n];
  if (x.right != kNone) nodes_[x.right].left = x.left;
  if (x.left != kNone)
    nodes_[x.left].right = x.right;
  else
    resting_[bucket_of(x.size, x.colour)] = x.right;
  resting_granules_ -= x.size;
}

inline uint32_t Arena::take_resting(const Request& req) noexcept {
  for (uint8_t colour = lane_of(req.timeline);; colour = kClean) {
    uint32_t& head = resting_[bucket_of(req.size, colour)];
    const uint32_t n = head;
    if (n != kNone) {
      const Node& x = nodes_[n];
      if (x.size == req.size && x.colour == colour && !(x.begin & (req.align - 1))) {
        head = x.right;
        if (head != kNone) nodes_[head].left = kNone;
        resting_granules_ -= x.size;
        ring_of(x.size).take_back(n, x.generation);
        return use(n, req.bytes, req.owner);
      }
    }
    if (colour == kClean) return kNone;
  }
}

inline void Arena::rest(uint32_t n, Ring& ring) noexcept {
  Node& x = nodes_[n];
  uint32_t& head = resting_[bucket_of(x.size, x.colour)];
  totals_.lost -= x.left;
  x.state = State::kResting;
  x.left = kNone;
  x.right = head;
  if (head != kNone) nodes_[head].left = n;
  head = n;
  resting_granules_ += x.size;
  totals_.in_use -= x.size;
  ++totals_.releases;
  ring.push(n, x.generation);
}

inline bool Arena::release_at_once(uint32_t n, uint32_t generation, const belay_event* uses,
                                   uint64_t count) noexcept {
  if (n >= nodes_.size()) return false;
  Node& x = nodes_[n];
  if (x.generation != generation || x.state != State::kUsed) return false;
  Ring& ring = ring_of(x.size);
  if (ring.full()) return false;
  if (count == 0) {
    x.colour = kClean;
  } else {
    if (count != 1 || uses->timeline != last_timeline_) return false;
    x.colour = last_lane_;
    cold_[n].value = uses->value;
  }
  rest(n, ring);
  return true;
}

template <class Each>
void Arena::each_block(Each&& each) const {
  for (const Segment& segment : segments_)
    for (uint32_t n = segment.live ? segment.first : kNone; n != kNone; n = nodes_[n].after) {
      const Node& x = nodes_[n];
      const uint64_t bytes = uint64_t{x.size} << shift_;
      const bool used = x.state == State::kUsed;
      const bool late =
          !used && x.colour != kClean && (x.colour == kMixed || cold_[n].value > lanes_[x.colour].reached);
      each(Block{segment.id, offset(n), bytes, used ? bytes - x.left : 0, used ? cold_[n].owner : 0, x.state,
                 late});
    }
}

}  // namespace belay::pool
