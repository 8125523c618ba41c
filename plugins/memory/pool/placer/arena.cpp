#include "arena.hpp"

#include <algorithm>
#include <new>

namespace belay::pool {
namespace {

constexpr int kLooks = 16;  // at candidates of one class
constexpr int kEvents = 4;  // that are asked for in each place
constexpr int kMoves = 8;   // of what rests in one place: buckets, and blocks of each
// Blocks smaller than this share of all are cut from the high end of what is free, others from the low one:
// what is small is often there for long, and not to lie between large ones.
constexpr int kSmallShift = 8;

}  // namespace

// ---- nodes -----------------------------------------------------------------------------------------------

void Arena::reserve_nodes(uint32_t count) {
  if (spares_ >= count) return;
  const size_t more = std::min(std::max<size_t>(128, nodes_.size()), kMostNodes - nodes_.size());
  if (spares_ + more < count) throw std::bad_alloc();
  const auto first = uint32_t(nodes_.size());
  nodes_.resize(first + more);
  for (auto n = uint32_t(nodes_.size()); n-- > first;) {  // the lowest is the first to be taken
    nodes_[n].cookie = uint64_t{n} << kHeapBits | heap_;
    drop_node(n);
  }
}

[[gnu::always_inline]] inline uint32_t Arena::new_node() noexcept {
  --spares_;
  return std::exchange(spare_, nodes_[spare_].right);
}

[[gnu::always_inline]] inline void Arena::drop_node(uint32_t n) noexcept {
  nodes_[n].state = State::kSpare;
  nodes_[n].right = std::exchange(spare_, n);
  ++spares_;
}

[[gnu::always_inline]] inline void Arena::hook(Lists& all, uint32_t n) noexcept {
  Node& x = nodes_[n];
  const uint32_t c = class_of(x.size), head = all.head[c];
  x.list = c;
  x.left = kNone;
  x.right = head;
  nodes_[head].left = n;
  all.head[c] = n;
  all.bits[c / 64] |= uint64_t{1} << c % 64;
  all.words |= 1u << c / 64;
}

[[gnu::always_inline]] inline void Arena::unhook(Lists& all, uint32_t n) noexcept {
  const Node& x = nodes_[n];
  const uint32_t c = x.list, left = x.left, right = x.right;
  // Without branches, as which way they would go cannot be foreseen.
  uint32_t* const at[2] = {&nodes_[left].right, &all.head[c]};
  *at[left == kNone] = right;
  nodes_[right].left = left;
  const uint64_t bits = all.bits[c / 64] &= ~(uint64_t{(left | right) == kNone} << c % 64);
  all.words &= ~(uint32_t{bits == 0} << c / 64);
}

[[gnu::always_inline]] inline void Arena::link(uint32_t n) noexcept {
  nodes_[n].state = State::kListed;
  hook(lists(nodes_[n].colour), n);
  if (nodes_[n].colour != kClean) put_last(n);
}

[[gnu::always_inline]] inline void Arena::unlink(uint32_t n) noexcept {
  if (nodes_[n].colour != kClean) take_out(n);
  unhook(lists(nodes_[n].colour), n);
}

// What is listed and has another size now.
[[gnu::always_inline]] inline void Arena::list_again(uint32_t n) noexcept {
  if (class_of(nodes_[n].size) == nodes_[n].list) return;
  Lists& all = lists(nodes_[n].colour);
  unhook(all, n);
  hook(all, n);
}

void Arena::put_last(uint32_t n) noexcept {
  nodes_[n].order.sooner = latest_;
  nodes_[n].order.later = kNone;
  (latest_ == kNone ? soonest_ : nodes_[latest_].order.later) = n;
  latest_ = n;
}

void Arena::take_out(uint32_t n) noexcept {
  const Order x = nodes_[n].order;
  (x.sooner == kNone ? soonest_ : nodes_[x.sooner].order.later) = x.later;
  (x.later == kNone ? latest_ : nodes_[x.later].order.sooner) = x.sooner;
}

// ---- colours ---------------------------------------------------------------------------------------------

// Lanes whose blocks are all used or clean. It looks at every block, so it is not done again soon.
void Arena::find_spare_lanes() noexcept {
  std::array<bool, 256> taken{};
  for (const Node& x : nodes_)
    if (x.state == State::kResting || x.state == State::kListed) taken[x.colour] = true;
  for (uint32_t i = 1; i < kMixed; ++i) {
    if (taken[i]) continue;
    spare_lanes_[spare_lane_count_++] = uint8_t(i);
    lane_timelines_[i] = 0;
    lanes_[i].reached = 0;
  }
  known_ = {};
  next_scan_ = totals_.releases + nodes_.size() / 8 + 64;
}

uint8_t Arena::make_lane(uint64_t timeline) {
  uint8_t lane = lane_of(timeline);
  if (lane == kClean && lane_count_ + 1 < kMixed) {
    if (!lanes_[lane_count_ + 1].lists) lanes_[lane_count_ + 1].lists = std::make_unique<Lists>();
    lane = uint8_t(++lane_count_);
  } else if (lane == kClean) {  // as many streams as there are colours
    if (spare_lane_count_ == 0 && totals_.releases >= next_scan_) find_spare_lanes();
    if (spare_lane_count_ == 0) return kMixed;
    lane = spare_lanes_[--spare_lane_count_];
  }
  lane_timelines_[lane] = timeline;
  known_[timeline % kKnown] = {timeline, lane};
  return lane;
}

uint8_t Arena::look_for_lane(uint64_t timeline) const noexcept {
  uint8_t lane = kClean;
  for (uint32_t i = 1; timeline && i <= lane_count_; ++i)
    if (lane_timelines_[i] == timeline) lane = uint8_t(i);
  if (lane || !timeline) known_[timeline % kKnown] = {timeline, lane};
  return lane;
}

uint8_t Arena::colour_by(uint32_t n, const belay_event* uses, uint64_t count) {
  if (count == 1) {
    if (uses->timeline == 0) return kClean;  // the host's own work is done when it releases
    if (const uint8_t lane = make_lane(uses->timeline); lane != kMixed) {
      nodes_[n].tag = uses->value;
      return lane;
    }
  }
  if (!lanes_[kMixed].lists) lanes_[kMixed].lists = std::make_unique<Lists>();
  reserve_uses(count);
  nodes_[n].tag = kNone;
  for (uint64_t i = 0; i < count; ++i)
    if (uses[i].timeline != 0) nodes_[n].tag = new_use(uses[i], uint32_t(nodes_[n].tag));
  return nodes_[n].tag == kNone ? kClean : kMixed;
}

void Arena::reserve_uses(uint64_t count) {
  if (spare_uses_ >= count) return;
  const uint64_t more = std::max<uint64_t>(count - spare_uses_, uses_.size() / 2);
  if (uses_.size() + more >= UINT32_MAX) throw std::bad_alloc();
  auto use = uint32_t(std::max<size_t>(1, uses_.size()));
  uses_.resize(use + more);
  for (; use < uses_.size(); ++use) uses_[use].next = std::exchange(spare_use_, use);
  spare_uses_ += more;
}

uint32_t Arena::new_use(belay_event event, uint32_t next) noexcept {
  const uint32_t use = std::exchange(spare_use_, uses_[spare_use_].next);
  --spare_uses_;
  uses_[use] = {event, next};
  return use;
}

void Arena::drop_uses(uint32_t n) noexcept {
  for (auto use = uint32_t(nodes_[n].tag); use != kNone;) {
    const uint32_t next = uses_[use].next;
    uses_[use].next = std::exchange(spare_use_, use);
    ++spare_uses_;
    use = next;
  }
  nodes_[n].tag = kNone;
}

[[gnu::noinline]] bool Arena::reached(uint8_t lane, uint64_t value, const belay_progress* progress) noexcept {
  if (value <= lanes_[lane].reached) return true;
  if (!progress || !progress->reached(progress->user, {lane_timelines_[lane], value})) return false;
  lanes_[lane].reached = value;
  return true;
}

bool Arena::is_clean_now(uint32_t n, const belay_progress* progress) noexcept {
  Node& x = nodes_[n];
  if (x.colour == kClean) return true;
  if (x.colour != kMixed) return reached(x.colour, nodes_[n].tag, progress);
  if (!progress) return x.tag == kNone;
  auto first = uint32_t(x.tag);
  for (uint32_t* link = &first; *link != kNone;) {
    const uint32_t use = *link;
    if (progress->reached(progress->user, uses_[use].event)) {
      *link = uses_[use].next;
      uses_[use].next = std::exchange(spare_use_, use);
      ++spare_uses_;
    } else {
      link = &uses_[use].next;
    }
  }
  x.tag = first;
  return first == kNone;
}

template <class Each>
void Arena::each_wait(uint32_t n, uint64_t timeline, const belay_progress* progress, Each&& each) noexcept {
  const Node& x = nodes_[n];
  if (x.colour == kClean) return;
  if (x.colour != kMixed) {
    const belay_event event{lane_timelines_[x.colour], nodes_[n].tag};
    if (event.timeline != timeline && !reached(x.colour, event.value, progress)) each(event);
    return;
  }
  for (auto use = uint32_t(nodes_[n].tag); use != kNone; use = uses_[use].next) {
    const belay_event event = uses_[use].event;
    if (event.timeline != timeline && !(progress && progress->reached(progress->user, event))) each(event);
  }
}

// ---- what rests ------------------------------------------------------------------------------------------

bool Arena::release(uint64_t cookie, const belay_event* uses, uint64_t count) {
  const uint32_t n = node_of(cookie);
  if (n >= nodes_.size() || nodes_[n].cookie != cookie || nodes_[n].state != State::kUsed) return false;
  nodes_[n].colour = count ? colour_by(n, uses, count) : kClean;
  if (nodes_[n].size > rest_each_) {
    if (large_count_ == kMostLarge) settle_large(nullptr);
    large_[large_count_++] = n;
  }
  rest(n);
  return true;
}

[[gnu::always_inline]] inline void Arena::settle(uint32_t n, const belay_progress* progress) noexcept {
  wake(n);
  Node& x = nodes_[n];
  // Most often the lane is known to be as far, or what was released last tells for all.
  if (x.colour != kMixed ? x.tag <= lanes_[x.colour].reached || reached(x.colour, x.tag, progress)
                         : is_clean_now(n, progress))
    x.colour = kClean;
  merge(n);
}

// What is listed and has another colour has no uses any more.
void Arena::clean(uint32_t n) noexcept {
  unlink(n);
  nodes_[n].colour = kClean;
  merge(n);
}

[[gnu::always_inline]] inline void Arena::wake(uint32_t n) noexcept {
  Node& x = nodes_[n];
  uint32_t* at = &resting_[bucket_of(x.size, x.colour)];
  while (*at != n) at = &nodes_[*at].right;
  *at = x.right;
  listed_granules_ += x.size;
}

void Arena::settle_large(const belay_progress* progress) noexcept {
  while (large_count_) {
    const uint32_t n = large_[--large_count_];
    if (nodes_[n].state == State::kResting) settle(n, progress);
  }
}

// Some of the next bucket that has any.
void Arena::settle_bucket(const belay_progress* progress) noexcept {
  while (resting_[hand_] == kNone) hand_ = (hand_ + 1) % kBuckets;
  for (int i = 0; i < kMoves && resting_[hand_] != kNone; ++i) settle(resting_[hand_], progress);
  hand_ = (hand_ + 1) % kBuckets;
}

void Arena::settle_all(const belay_progress* progress) noexcept {
  settle_large(progress);
  while (resting_granules()) settle_bucket(progress);
}

// Neighbours of one colour are one block. A clean one joins a larger one that is not, and is then late; where
// there is one timeline alone that costs nothing.
inline bool Arena::joins(const Node& a, const Node& b) const noexcept {
  if (a.colour == b.colour) return a.colour != kMixed;
  if (a.colour == kMixed || b.colour == kMixed) return false;
  if (a.colour == kClean) return a.size <= b.size;
  return b.colour == kClean && b.size <= a.size;
}

// The node after it, which is in no list, becomes a part of it.
[[gnu::always_inline]] inline void Arena::absorb(uint32_t low, uint32_t high) noexcept {
  Node &x = nodes_[low], &y = nodes_[high];
  if (y.colour != kClean) {
    x.tag = x.colour == kClean ? y.tag : std::max(x.tag, y.tag);
    x.colour = y.colour;
  }
  x.size += y.size;
  x.after = y.after;
  nodes_[x.after].before = low;
  drop_node(high);
}

// Lists a node that is in no list, with its neighbours.
[[gnu::always_inline]] inline void Arena::merge(uint32_t n) noexcept {
  // More than one only where a sweep made several clean.
  for (uint32_t high; listed(high = nodes_[n].after) && joins(nodes_[n], nodes_[high]);) {
    unlink(high);
    absorb(n, high);
  }
  const uint32_t low = nodes_[n].before;
  if (!listed(low) || !joins(nodes_[low], nodes_[n])) return link(n);
  if (nodes_[low].colour == nodes_[n].colour || nodes_[n].colour == kClean) {
    absorb(low, n);
    return list_again(low);
  }
  unlink(low);
  absorb(low, n);
  link(low);
}

// The one that was asked for the longest ago; where it is not clean yet, it is the last from now on.
void Arena::look_at_soonest(const belay_progress* progress) noexcept {
  const uint32_t n = soonest_;
  if (is_clean_now(n, progress)) return clean(n);
  take_out(n);
  put_last(n);
}

void Arena::sweep(const belay_progress* progress) noexcept {
  // First all are asked for, so that what joins a neighbour that is clean as well stays so.
  uint32_t count = 0;
  for (uint32_t n = soonest_; n != kNone; n = nodes_[n].order.later, ++count) is_clean_now(n, progress);
  for (; count && soonest_ != kNone; --count) look_at_soonest(nullptr);
}

// Asks for some of the events, the oldest first, so that what is reached is soon everyone's.
void Arena::look_around(const belay_progress* progress) noexcept {
  for (int looks = 0; progress && soonest_ != kNone && looks < kEvents; ++looks) look_at_soonest(progress);
}

// ---- places ----------------------------------------------------------------------------------------------

// The first class from this one on that has any, or kClasses.
inline uint32_t Arena::next_class(const Lists& all, uint32_t c) noexcept {
  const uint32_t word = c / 64;
  if (const uint64_t bits = all.bits[word] >> c % 64) return c + uint32_t(std::countr_zero(bits));
  const uint32_t words = all.words >> word >> 1;
  if (!words) return kClasses;
  const uint32_t next = word + 1 + uint32_t(std::countr_zero(words));
  return next * 64 + uint32_t(std::countr_zero(all.bits[next]));
}

// The smallest from this node of a list on that has the size, the lowest of equals, of the first few.
inline uint32_t Arena::least(uint32_t n, uint32_t size) const noexcept {
  uint64_t least = UINT64_MAX;
  uint32_t found = kNone;
  for (int looks = 0; n != kNone && looks < kLooks; ++looks) {
    const Node& x = nodes_[n];
    const uint64_t key = uint64_t{x.size} << 32 | x.begin;
    const bool better = x.size >= size && key < least;
    least = better ? key : least;
    found = better ? n : found;
    n = x.right;
  }
  return found;
}

[[gnu::always_inline]] inline uint32_t Arena::best(const Lists& all, uint32_t size) const noexcept {
  const uint32_t own = class_of(size);
  uint32_t c = next_class(all, own);
  if (c == kClasses) return kNone;
  if (const uint32_t n = least(all.head[c], size); n != kNone) return n;
  // All of the next class that has any is large enough.
  if (own + 1 < kClasses)
    if (c = next_class(all, own + 1); c != kClasses) return least(all.head[c], size);
  for (uint32_t n = all.head[own]; n != kNone; n = nodes_[n].right)  // beyond the first looks
    if (nodes_[n].size >= size) return n;
  return kNone;
}

uint32_t Arena::fit_aligned(const Lists& all, Extent wanted) const noexcept {
  if (wanted.size <= UINT32_MAX - (wanted.align - 1))
    if (const uint32_t n = best(all, wanted.size + wanted.align - 1); n != kNone) return n;
  for (uint32_t c = class_of(wanted.size); c < kClasses; ++c)  // those that fit as they lie
    for (uint32_t n = all.head[c]; n != kNone; n = nodes_[n].right)
      if (nodes_[n].size >= wanted.size && nodes_[n].size - wanted.size >= pad_of(n, wanted.align)) return n;
  return kNone;
}

[[gnu::always_inline]] inline uint32_t Arena::fit(const Lists& all, Extent wanted) const noexcept {
  return wanted.align == 1 ? best(all, wanted.size) : fit_aligned(all, wanted);
}

[[gnu::always_inline]] inline uint32_t Arena::fit_of(uint8_t lane, Extent wanted) const noexcept {
  const uint32_t n = fit(*lanes_[kClean].lists, wanted);
  if (lane == kClean || !lanes_[lane].lists->words) return n;
  const uint32_t own = fit(*lanes_[lane].lists, wanted);
  if (n == kNone) return own;
  return own != kNone && nodes_[own].size <= nodes_[n].size ? own : n;
}

// A part of a listed node, of `size` from its begin or its end, becomes a node of its own, in no list.
template <bool low>
[[gnu::always_inline]] inline uint32_t Arena::split(uint32_t n, uint32_t size) noexcept {
  const uint32_t part = new_node();
  Node &x = nodes_[n], &y = nodes_[part];
  y.size = size;
  y.segment_id = x.segment_id;
  y.tag = x.tag;
  y.segment = x.segment;
  y.colour = x.colour;
  x.size -= size;
  if constexpr (low) {
    y.begin = x.begin;
    y.before = x.before;
    y.after = n;
    x.begin += size;
    x.before = part;
    if (y.before != kNone)
      nodes_[y.before].after = part;
    else
      segments_[y.segment].first = part;
  } else {
    y.begin = x.begin + x.size;
    y.before = n;
    y.after = x.after;
    x.after = part;
    nodes_[y.after].before = part;
  }
  if (y.colour == kMixed) [[unlikely]] {
    y.tag = kNone;
    for (auto use = uint32_t(x.tag); use != kNone; use = uses_[use].next)
      y.tag = new_use(uses_[use].event, uint32_t(y.tag));
  }
  list_again(n);
  return part;
}

[[gnu::always_inline]] inline uint32_t Arena::cut(uint32_t n, Extent wanted,
                                                  const belay_place_req& req) noexcept {
  if (const uint32_t pad = pad_of(n, wanted.align)) link(split<true>(n, pad));
  listed_granules_ -= wanted.size;
  if (nodes_[n].size == wanted.size) {
    unlink(n);
  } else if (wanted.size < reserved_ >> kSmallShift && wanted.align == 1) {
    n = split<false>(n, wanted.size);
  } else {
    n = split<true>(n, wanted.size);
  }
  return use(n, req);
}

uint32_t Arena::take(Extent wanted, uint8_t lane, const belay_place_req& req) noexcept {
  if (large_count_) settle_large(req.progress);
  for (int i = 0; i < kMoves && resting_granules() > rest_most_; ++i) settle_bucket(req.progress);
  if (soonest_ != kNone) look_around(req.progress);
  for (bool settled = false, swept = false;;) {
    if (const uint32_t n = fit_of(lane, wanted); n != kNone) return cut(n, wanted, req);
    if (!settled && resting_granules()) {
      settled = true;
      settle_all(req.progress);
    } else if (!swept && req.progress && soonest_ != kNone) {
      settled = swept = true;
      sweep(req.progress);
    } else {
      return kNone;
    }
  }
}

Arena::Found Arena::take_run(Extent wanted, const belay_place_req& req, std::span<belay_event> room_for) {
  reserve_nodes(3);
  const uint64_t least = uint64_t{wanted.size} + (wanted.align - 1);
  uint32_t best_from = kNone, best_to = kNone;
  uint64_t best_waits = UINT64_MAX, best_size = UINT64_MAX;
  std::array<belay_event, 64> waits;
  // The waits of a run, the latest of each timeline; more than there is room for: that many.
  const auto waits_of = [&](uint32_t from, uint32_t to) {
    uint32_t count = 0;
    for (uint32_t n = from;; n = nodes_[n].after) {
      each_wait(n, req.timeline, req.progress, [&](belay_event event) {
        for (uint32_t i = 0; i < std::min<uint32_t>(count, waits.size()); ++i)
          if (waits[i].timeline == event.timeline) {
            waits[i].value = std::max(waits[i].value, event.value);
            return;
          }
        if (count < waits.size()) waits[count] = event;
        ++count;
      });
      if (n == to) return count;
    }
  };
  const uint64_t room = std::min<uint64_t>(room_for.size(), waits.size());
  for (const Segment& segment : segments_) {
    if (!segment.live) continue;
    // Windows of neighbours: the shortest that ends at each node.
    uint64_t size = 0;
    uint32_t from = kNone;
    for (uint32_t n = segment.first; n != kNone; n = nodes_[n].after) {
      if (!listed(n)) {
        from = kNone;
        size = 0;
        continue;
      }
      if (from == kNone) from = n;
      size += nodes_[n].size;
      while (size - nodes_[from].size >= least) {
        size -= nodes_[from].size;
        from = nodes_[from].after;
      }
      if (size < least) continue;
      const uint32_t count = waits_of(from, n);
      if (count <= room && (count < best_waits || (count == best_waits && size < best_size))) {
        best_from = from;
        best_to = n;
        best_waits = count;
        best_size = size;
      }
    }
  }
  if (best_from == kNone) return {};
  uint64_t copies = 0;  // of uses, where one that is mixed is split
  for (uint32_t n = best_from;; n = nodes_[n].after) {
    for (auto use = uint32_t(nodes_[n].colour == kMixed ? nodes_[n].tag : kNone); use != kNone;
         use = uses_[use].next)
      copies += 2;
    if (n == best_to) break;
  }
  reserve_uses(copies);
  const uint32_t count = waits_of(best_from, best_to);
  std::copy_n(waits.begin(), count, room_for.begin());
  // What is left of the ends keeps its colour; what is between becomes one node.
  uint32_t n = best_from;
  if (const uint32_t pad = pad_of(n, wanted.align)) {
    if (pad < nodes_[n].size) {
      link(split<true>(n, pad));
    } else {  // the pad is longer than the first: the run begins later
      uint32_t left = pad;
      while (left >= nodes_[n].size) {
        left -= nodes_[n].size;
        n = nodes_[n].after;
      }
      if (left) link(split<true>(n, left));
    }
  }
  uint64_t size = 0;
  uint32_t whole = kNone;
  while (size < wanted.size) {
    const uint64_t need = wanted.size - size;
    uint32_t part = n;
    n = nodes_[n].after;
    if (nodes_[part].size > need)
      part = split<true>(part, uint32_t(need));
    else
      unlink(part);
    if (nodes_[part].colour == kMixed) drop_uses(part);
    size += nodes_[part].size;
    if (whole == kNone) {
      whole = part;
      continue;
    }
    absorb(whole, part);
  }
  listed_granules_ -= wanted.size;
  return {use(whole, req), count};
}

// ---- segments --------------------------------------------------------------------------------------------

void Arena::resize(int64_t granules) noexcept {
  reserved_ += uint64_t(granules);
  rest_most_ = reserved_ >> rest_shift_;
  if (rest_shift_ < 63)
    rest_most_ = std::max<uint64_t>(rest_most_, std::min<uint64_t>(kRestLeast >> shift_, reserved_ >> 7));
  rest_each_ = rest_most_ >> kLargeShift;
}

bool Arena::add_segment(uint64_t id, uint32_t granules) {
  reserve_nodes(1);
  size_t i = 0;
  while (i < segments_.size() && segments_[i].live) ++i;
  if (i == kMostSegments) return false;
  if (i == segments_.size()) segments_.emplace_back();
  segments_[i] = {id, granules, kNone, true};
  ++segment_count_;
  resize(granules);
  if (!granules) return true;
  const uint32_t n = new_node();
  Node& x = nodes_[n];
  x.begin = 0;
  x.size = granules;
  x.before = x.after = kNone;
  x.segment = uint16_t(i);
  x.segment_id = id;
  listed_granules_ += granules;
  x.colour = kClean;
  segments_[i].first = n;
  link(n);
  return true;
}

bool Arena::has_segment(uint64_t id) const noexcept {
  return std::any_of(segments_.begin(), segments_.end(),
                     [&](const Segment& segment) { return segment.live && segment.id == id; });
}

bool Arena::remove_segment(uint64_t id) noexcept {
  const auto found = std::find_if(segments_.begin(), segments_.end(),
                                  [&](const Segment& segment) { return segment.live && segment.id == id; });
  if (found == segments_.end()) return false;
  for (uint32_t n = found->first; n != kNone;) {
    Node& x = nodes_[n];
    const uint32_t next = x.after;
    if (x.state == State::kUsed) {
      totals_.in_use -= x.size;
      ++totals_.releases;
      x.cookie += kOneUse;
    } else {
      if (x.state == State::kResting)
        wake(n);
      else
        unlink(n);
      listed_granules_ -= x.size;
      if (x.colour == kMixed) drop_uses(n);
    }
    drop_node(n);
    n = next;
  }
  found->live = false;
  resize(-int64_t{found->granules});
  --segment_count_;
  return true;
}

std::vector<std::pair<uint64_t, uint64_t>> Arena::empty_segments() {
  settle_all(nullptr);
  std::vector<std::pair<uint64_t, uint64_t>> out;
  for (const Segment& segment : segments_) {
    if (!segment.live) continue;
    bool empty = true;  // clean all over: a pending one is still written to
    for (uint32_t n = segment.first; n != kNone && empty; n = nodes_[n].after)
      empty = nodes_[n].state != State::kUsed && is_clean_now(n, nullptr);
    if (empty) out.emplace_back(segment.id, segment.granules);
  }
  return out;
}

std::vector<std::pair<uint64_t, uint64_t>> Arena::segments() const {
  std::vector<std::pair<uint64_t, uint64_t>> out;
  for (const Segment& segment : segments_)
    if (segment.live) out.emplace_back(segment.id, uint64_t{segment.granules} << shift_);
  return out;
}

}  // namespace belay::pool
