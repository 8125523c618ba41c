#include "arena.hpp"

#include <algorithm>
#include <new>

namespace belay::pool {
namespace {

constexpr int kLooks = 16;  // at candidates of one class
constexpr int kEvents = 4;  // that are asked for in each place
// Blocks smaller than this share of all are cut from the high end of what is free, others from the low one:
// what is small is often there for long, and not to lie between large ones.
constexpr int kSmallShift = 8;

}  // namespace

// ---- nodes
// -------------------------------------------------------------------------------------------------------------

void Arena::reserve_nodes(uint32_t count) {
  if (spares_ >= count) return;
  const size_t more = std::max<size_t>(64, nodes_.size() / 2);
  if (nodes_.size() + more > kMostNodes) throw std::bad_alloc();
  if (nodes_.capacity() < nodes_.size() + more) {
    nodes_.reserve(nodes_.size() + more);
    cold_.reserve(nodes_.size() + more);
  }
  const auto first = uint32_t(nodes_.size());
  nodes_.resize(first + more);
  cold_.resize(first + more);
  for (auto n = uint32_t(nodes_.size()); n-- > first;) {  // the lowest is the first to be taken
    nodes_[n] = {};
    drop_node(n);
  }
}

uint32_t Arena::new_node() noexcept {
  --spares_;
  return std::exchange(spare_, nodes_[spare_].right);
}

void Arena::drop_node(uint32_t n) noexcept {
  nodes_[n].state = State::kSpare;
  nodes_[n].right = std::exchange(spare_, n);
  ++spares_;
}

void Arena::link(uint32_t n) noexcept {
  Node& x = nodes_[n];
  Lists& all = *lanes_[x.colour].lists;
  const uint32_t c = class_of(x.size), head = all.head[c];
  x.state = State::kListed;
  x.left = kNone;
  x.right = head;
  all.head[c] = n;
  if (x.colour != kClean) put_last(n);
  if (head != kNone) {
    nodes_[head].left = n;
  } else {
    all.bits[c / 64] |= uint64_t{1} << c % 64;
    all.words |= 1u << c / 64;
  }
}

void Arena::unlink(uint32_t n) noexcept {
  const Node& x = nodes_[n];
  if (x.colour != kClean) take_out(n);
  if (x.right != kNone) nodes_[x.right].left = x.left;
  if (x.left != kNone) {
    nodes_[x.left].right = x.right;
    return;
  }
  Lists& all = *lanes_[x.colour].lists;
  const uint32_t c = class_of(x.size);
  all.head[c] = x.right;
  if (x.right == kNone && !(all.bits[c / 64] &= ~(uint64_t{1} << c % 64))) all.words &= ~(1u << c / 64);
}

void Arena::put_last(uint32_t n) noexcept {
  cold_[n].sooner = latest_;
  cold_[n].later = kNone;
  (latest_ == kNone ? soonest_ : cold_[latest_].later) = n;
  latest_ = n;
}

void Arena::take_out(uint32_t n) noexcept {
  const Cold& x = cold_[n];
  (x.sooner == kNone ? soonest_ : cold_[x.sooner].later) = x.later;
  (x.later == kNone ? latest_ : cold_[x.later].sooner) = x.sooner;
}

// ---- colours
// -----------------------------------------------------------------------------------------------------------

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
  last_timeline_ = 0;
  last_lane_ = kClean;
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
  lane_timelines_[lane] = last_timeline_ = timeline;
  return last_lane_ = lane;
}

uint8_t Arena::colour_by(uint32_t n, const belay_event* uses, uint64_t count) {
  if (count == 1) {
    if (uses->timeline == 0) return kClean;  // the host's own work is done when it releases
    if (const uint8_t lane = make_lane(uses->timeline); lane != kMixed) {
      cold_[n].value = uses->value;
      return lane;
    }
  }
  if (!lanes_[kMixed].lists) lanes_[kMixed].lists = std::make_unique<Lists>();
  reserve_uses(count);
  cold_[n].first_use = kNone;
  for (uint64_t i = 0; i < count; ++i)
    if (uses[i].timeline != 0) cold_[n].first_use = new_use(uses[i], cold_[n].first_use);
  return cold_[n].first_use == kNone ? kClean : kMixed;
}

void Arena::reserve_uses(uint64_t count) {
  if (spare_uses_ >= count) return;
  const uint64_t more = std::max<uint64_t>(count - spare_uses_, uses_.size() / 2);
  if (uses_.size() + more >= kNone) throw std::bad_alloc();
  auto use = uint32_t(uses_.size());
  uses_.resize(uses_.size() + more);
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
  for (uint32_t use = cold_[n].first_use; use != kNone;) {
    const uint32_t next = uses_[use].next;
    uses_[use].next = std::exchange(spare_use_, use);
    ++spare_uses_;
    use = next;
  }
  cold_[n].first_use = kNone;
}

bool Arena::reached(uint8_t lane, uint64_t value, const belay_progress* progress) noexcept {
  if (value <= lanes_[lane].reached) return true;
  if (!progress || !progress->reached(progress->user, {lane_timelines_[lane], value})) return false;
  lanes_[lane].reached = value;
  return true;
}

// A mixed one that waits for one timeline alone gets that colour; then it is to be linked again as well.
bool Arena::is_clean_now(uint32_t n, const belay_progress* progress) noexcept {
  Node& x = nodes_[n];
  if (x.colour == kClean) return true;
  if (x.colour != kMixed) return reached(x.colour, cold_[n].value, progress);
  if (!progress) return false;
  for (uint32_t* link = &cold_[n].first_use; *link != kNone;) {
    const uint32_t use = *link;
    if (progress->reached(progress->user, uses_[use].event)) {
      *link = uses_[use].next;
      uses_[use].next = std::exchange(spare_use_, use);
      ++spare_uses_;
    } else {
      link = &uses_[use].next;
    }
  }
  return cold_[n].first_use == kNone;
}

template <class Each>
void Arena::each_wait(uint32_t n, uint64_t timeline, const belay_progress* progress, Each&& each) noexcept {
  const Node& x = nodes_[n];
  if (x.colour == kClean) return;
  if (x.colour != kMixed) {
    const belay_event event{lane_timelines_[x.colour], cold_[n].value};
    if (event.timeline != timeline && !reached(x.colour, event.value, progress)) each(event);
    return;
  }
  for (uint32_t use = cold_[n].first_use; use != kNone; use = uses_[use].next) {
    const belay_event event = uses_[use].event;
    if (event.timeline != timeline && !(progress && progress->reached(progress->user, event))) each(event);
  }
}

// ---- what rests
// --------------------------------------------------------------------------------------------------------

bool Arena::release(uint32_t n, uint32_t generation, const belay_event* uses, uint64_t count) {
  if (n >= nodes_.size() || nodes_[n].generation != generation || nodes_[n].state != State::kUsed)
    return false;
  nodes_[n].colour = count ? colour_by(n, uses, count) : kClean;
  Ring& ring = ring_of(nodes_[n].size);
  // Room for more than one: most of what is that old rests no more.
  for (int i = 0; i < 64 && ring.tail - ring.head > Ring::kRoom - 64; ++i) settle_next(ring, nullptr);
  rest(n, ring);
  return true;
}

void Arena::settle(uint32_t n, const belay_progress* progress) noexcept {
  wake(n);
  if (is_clean_now(n, progress)) nodes_[n].colour = kClean;
  merge(n);
}

void Arena::settle_next(Ring& ring, const belay_progress* progress) noexcept {
  const uint64_t entry = ring.pop();
  const auto n = uint32_t(entry);
  if (nodes_[n].state == State::kResting && nodes_[n].generation == entry >> 32) settle(n, progress);
}

void Arena::settle_all(const belay_progress* progress) noexcept {
  while (!large_.empty()) settle_next(large_, progress);
  while (!small_.empty()) settle_next(small_, progress);
}

// Neighbours of one colour are one block. A clean one joins a larger one that is not, and is then late; where
// there is one timeline alone that costs nothing.
bool Arena::joins(const Node& a, const Node& b) const noexcept {
  if (a.colour == b.colour) return a.colour != kMixed;
  if (a.colour == kMixed || b.colour == kMixed) return false;
  if (a.colour == kClean) return a.size <= b.size;
  return b.colour == kClean && b.size <= a.size;
}

// Lists a node that is in no list, with its neighbours.
void Arena::merge(uint32_t n) noexcept {
  // More than one only where a sweep made several clean.
  for (uint32_t high; listed(high = nodes_[n].after) && joins(nodes_[n], nodes_[high]);) {
    unlink(high);
    Node &x = nodes_[n], &y = nodes_[high];
    if (y.colour != kClean) {
      cold_[n].value = x.colour == kClean ? cold_[high].value : std::max(cold_[n].value, cold_[high].value);
      x.colour = y.colour;
    }
    x.size += y.size;
    x.after = y.after;
    if (x.after != kNone) nodes_[x.after].before = n;
    drop_node(high);
  }
  const uint32_t low = nodes_[n].before;
  if (!listed(low) || !joins(nodes_[low], nodes_[n])) return link(n);
  Node &x = nodes_[low], &y = nodes_[n];
  const uint8_t colour = x.colour == kClean ? y.colour : x.colour;
  const bool stays = colour == x.colour && class_of(x.size + y.size) == class_of(x.size);
  if (!stays) unlink(low);
  if (y.colour != kClean)
    cold_[low].value = x.colour == kClean ? cold_[n].value : std::max(cold_[low].value, cold_[n].value);
  x.colour = colour;
  x.size += y.size;
  x.after = y.after;
  if (x.after != kNone) nodes_[x.after].before = low;
  drop_node(n);
  if (!stays) link(low);
}

void Arena::sweep(const belay_progress* progress) noexcept {
  if (!progress) return;
  // First all of them, so that none joins a neighbour that is about to be clean as well.
  uint32_t cleaned = kNone;  // by `first_use`, which clean ones have not
  for (uint32_t n = soonest_; n != kNone;) {
    const uint32_t next = cold_[n].later;
    if (is_clean_now(n, progress)) {
      unlink(n);
      nodes_[n].colour = kClean;
      link(n);
      cold_[n].first_use = std::exchange(cleaned, n);
    }
    n = next;
  }
  for (uint32_t n = cleaned, next; n != kNone; n = next) {
    next = std::exchange(cold_[n].first_use, kNone);
    if (nodes_[n].state != State::kListed || nodes_[n].colour != kClean) continue;  // it has joined another
    unlink(n);
    merge(n);
  }
}

// Asks for some of the events, the oldest first, so that what is reached is soon everyone's.
void Arena::look_around(const belay_progress* progress) noexcept {
  for (int looks = 0; progress && soonest_ != kNone && looks < kEvents; ++looks) {
    const uint32_t n = soonest_;
    if (is_clean_now(n, progress)) {
      unlink(n);
      nodes_[n].colour = kClean;
      merge(n);
    } else {
      take_out(n);
      put_last(n);
    }
  }
}

// ---- places
// ------------------------------------------------------------------------------------------------------------

uint32_t Arena::best(const Lists& all, uint32_t size) const noexcept {
  const uint32_t own = class_of(size);
  uint32_t found = kNone;
  const auto better = [&](uint32_t n) {
    return nodes_[n].size >= size &&
           (found == kNone || nodes_[n].size < nodes_[found].size ||
            (nodes_[n].size == nodes_[found].size && nodes_[n].begin < nodes_[found].begin));
  };
  const auto look = [&](uint32_t c) {
    int looks = 0;
    for (uint32_t n = all.head[c]; n != kNone && looks < kLooks; n = nodes_[n].right, ++looks)
      if (better(n)) found = n;
  };
  look(own);
  if (found != kNone) return found;
  // The next class that has one: all of it is large enough.
  const uint32_t c = own + 1;
  uint32_t word = c / 64;
  if (word < kWords) {
    uint64_t bits = all.bits[word] & (~uint64_t{0} << c % 64);
    if (!bits) {
      const uint32_t words = word == 31 ? 0 : all.words & (~0u << (word + 1));
      if (words) bits = all.bits[word = uint32_t(std::countr_zero(words))];
    }
    if (bits) {
      look(word * 64 + uint32_t(std::countr_zero(bits)));
      return found;
    }
  }
  for (uint32_t n = all.head[own]; n != kNone; n = nodes_[n].right)  // beyond the first looks
    if (nodes_[n].size >= size) return n;
  return kNone;
}

uint32_t Arena::fit(uint8_t colour, const Request& req) const noexcept {
  const Lists* const all = lanes_[colour].lists.get();
  if (!all || !all->words) return kNone;
  if (req.align == 1) return best(*all, req.size);
  if (req.size <= UINT32_MAX - (req.align - 1))
    if (const uint32_t n = best(*all, req.size + req.align - 1); n != kNone) return n;
  for (uint32_t c = class_of(req.size); c < kClasses; ++c)  // those that fit as they lie
    for (uint32_t n = all->head[c]; n != kNone; n = nodes_[n].right)
      if (nodes_[n].size >= req.size && nodes_[n].size - req.size >= pad_of(n, req.align)) return n;
  return kNone;
}

uint32_t Arena::fit_of(uint8_t lane, const Request& req) const noexcept {
  const uint32_t n = fit(kClean, req);
  if (lane == kClean) return n;
  const uint32_t own = fit(lane, req);
  if (n == kNone) return own;
  return own != kNone && nodes_[own].size <= nodes_[n].size ? own : n;
}

// The low `size` of a listed node become a node of their own, in no list; the rest stays where it is.
uint32_t Arena::split(uint32_t n, uint32_t size) noexcept {
  const uint32_t low = new_node();
  Node &x = nodes_[n], &y = nodes_[low];
  const bool stays = class_of(x.size) == class_of(x.size - size);
  if (!stays) unlink(n);
  y.begin = x.begin;
  y.size = size;
  y.before = x.before;
  y.after = n;
  y.segment = x.segment;
  y.colour = x.colour;
  cold_[low].value = cold_[n].value;
  if (y.colour == kMixed) {
    cold_[low].first_use = kNone;
    for (uint32_t use = cold_[n].first_use; use != kNone; use = uses_[use].next)
      cold_[low].first_use = new_use(uses_[use].event, cold_[low].first_use);
  }
  if (y.before != kNone)
    nodes_[y.before].after = low;
  else
    segments_[y.segment].first = low;
  x.before = low;
  x.begin += size;
  x.size -= size;
  if (!stays) link(n);
  return low;
}

// The high `size` likewise.
uint32_t Arena::split_high(uint32_t n, uint32_t size) noexcept {
  const uint32_t high = new_node();
  Node &x = nodes_[n], &y = nodes_[high];
  const bool stays = class_of(x.size) == class_of(x.size - size);
  if (!stays) unlink(n);
  x.size -= size;
  y.begin = x.begin + x.size;
  y.size = size;
  y.before = n;
  y.after = x.after;
  y.segment = x.segment;
  y.colour = x.colour;
  cold_[high].value = cold_[n].value;
  if (y.after != kNone) nodes_[y.after].before = high;
  x.after = high;
  if (!stays) link(n);
  return high;
}

uint32_t Arena::cut(uint32_t n, const Request& req) noexcept {
  if (const uint32_t pad = pad_of(n, req.align)) link(split(n, pad));
  if (nodes_[n].size == req.size) {
    unlink(n);
    return use(n, req.bytes, req.owner);
  }
  const bool small = req.size < reserved_ >> kSmallShift && req.align == 1;
  return use(small ? split_high(n, req.size) : split(n, req.size), req.bytes, req.owner);
}

Arena::Found Arena::take(const Request& req) {
  reserve_nodes(2);
  while (!large_.empty()) settle_next(large_, req.progress);
  for (int i = 0; i < 8 && resting_granules_ > rest_most_; ++i) settle_next(small_, req.progress);
  look_around(req.progress);
  const uint8_t lane = lane_of(req.timeline);
  Found out;
  uint32_t n = fit_of(lane, req);
  if (n == kNone && resting_granules_) {
    settle_all(req.progress);
    n = fit_of(lane, req);
  }
  if (n == kNone && req.progress && soonest_ != kNone) {
    sweep(req.progress);
    n = fit_of(lane, req);
  }
  if (n == kNone) return {};
  out.node = cut(n, req);
  return out;
}

Arena::Found Arena::take_run(const Request& req) {
  reserve_nodes(3);
  const uint64_t wanted = uint64_t{req.size} + (req.align - 1);
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
  const uint64_t room = std::min<uint64_t>(req.waits.size(), waits.size());
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
      while (size - nodes_[from].size >= wanted) {
        size -= nodes_[from].size;
        from = nodes_[from].after;
      }
      if (size < wanted) continue;
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
    for (uint32_t use = nodes_[n].colour == kMixed ? cold_[n].first_use : kNone; use != kNone;
         use = uses_[use].next)
      copies += 2;
    if (n == best_to) break;
  }
  reserve_uses(copies);
  const uint32_t count = waits_of(best_from, best_to);
  std::copy_n(waits.begin(), count, req.waits.begin());
  // What is left of the ends keeps its colour; what is between becomes one node.
  uint32_t n = best_from;
  if (const uint32_t pad = pad_of(n, req.align)) {
    if (pad < nodes_[n].size) {
      link(split(n, pad));
    } else {  // the pad is longer than the first: the run begins later
      uint32_t left = pad;
      while (left >= nodes_[n].size) {
        left -= nodes_[n].size;
        n = nodes_[n].after;
      }
      if (left) link(split(n, left));
    }
  }
  uint64_t size = 0;
  uint32_t whole = kNone;
  while (size < req.size) {
    const uint64_t need = req.size - size;
    uint32_t part = n;
    n = nodes_[n].after;
    if (nodes_[part].size > need)
      part = split(part, uint32_t(need));
    else
      unlink(part);
    if (nodes_[part].colour == kMixed) drop_uses(part);
    size += nodes_[part].size;
    if (whole == kNone) {
      whole = part;
      continue;
    }
    Node &x = nodes_[whole], &y = nodes_[part];
    x.size += y.size;
    x.after = y.after;
    if (x.after != kNone) nodes_[x.after].before = whole;
    drop_node(part);
  }
  return {use(whole, req.bytes, req.owner), count};
}

// ---- segments
// ----------------------------------------------------------------------------------------------------------

void Arena::resize(int64_t granules) noexcept {
  reserved_ += uint64_t(granules);
  rest_most_ = reserved_ >> rest_shift_;
  if (rest_shift_ < 63)
    rest_most_ = std::max<uint64_t>(rest_most_, std::min<uint64_t>(kRestLeast >> shift_, reserved_ >> 7));
}

bool Arena::add_segment(uint64_t id, uint32_t granules) {
  if (!lanes_[kClean].lists) lanes_[kClean].lists = std::make_unique<Lists>();
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
      totals_.lost -= x.left;
      ++totals_.releases;
      x.generation = (x.generation + 1) & kGenerations;
    } else {
      if (x.state == State::kResting)
        wake(n);
      else
        unlink(n);
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

std::string Arena::check() const {
  std::vector<bool> seen(nodes_.size());
  uint64_t in_use = 0, lost = 0, resting = 0, listed_count = 0, reserved = 0;
  const auto node = [](uint32_t n) { return "node " + std::to_string(n); };
  for (const Segment& segment : segments_) {
    if (!segment.live) continue;
    uint64_t at = 0;
    uint32_t before = kNone;
    for (uint32_t n = segment.first; n != kNone; before = n, n = nodes_[n].after) {
      const Node& x = nodes_[n];
      if (seen[n]) return node(n) + " is twice in the order of addresses";
      seen[n] = true;
      if (x.begin != at || x.before != before || !x.size || x.segment != &segment - segments_.data())
        return node(n) + " is not where its neighbour ends";
      if (x.state == State::kSpare) return node(n) + " is spare and in a segment";
      at += x.size;
      if (x.state == State::kUsed) in_use += x.size, lost += x.left;
      if (x.state == State::kResting) resting += x.size;
      if (x.state == State::kListed) ++listed_count;
      if (x.state == State::kListed && listed(before) && x.colour == nodes_[before].colour &&
          x.colour == kClean)
        return node(n) + " and the one before it are clean and apart";
    }
    if (at != segment.granules) return "segment " + std::to_string(segment.id) + " is not covered";
    reserved += segment.granules;
  }
  if (in_use != totals_.in_use || lost != totals_.lost || resting != resting_granules_ ||
      reserved != reserved_)
    return "the totals are not those of the nodes";
  for (uint32_t colour = 0; colour < 256; ++colour) {
    const Lists* const all = lanes_[colour].lists.get();
    for (uint32_t c = 0; all && c < kClasses; ++c) {
      if ((all->head[c] != kNone) != (all->bits[c / 64] >> c % 64 & 1) ||
          (all->bits[c / 64] != 0) != (all->words >> c / 64 & 1))
        return "the bits of class " + std::to_string(c) + " are wrong";
      for (uint32_t n = all->head[c], left = kNone; n != kNone; left = n, n = nodes_[n].right, --listed_count)
        if (!seen[n] || nodes_[n].state != State::kListed || nodes_[n].colour != colour ||
            class_of(nodes_[n].size) != c || nodes_[n].left != left)
          return node(n) + " is in a wrong list";
    }
  }
  if (listed_count) return "free nodes are in no list";
  for (uint32_t bucket = 0; bucket < kBuckets; ++bucket)
    for (uint32_t n = resting_[bucket], left = kNone; n != kNone; left = n, n = nodes_[n].right) {
      if (!seen[n] || nodes_[n].state != State::kResting || nodes_[n].left != left ||
          bucket_of(nodes_[n].size, nodes_[n].colour) != bucket)
        return node(n) + " does not rest where it should";
      resting -= nodes_[n].size;
    }
  return resting ? "nodes rest nowhere" : "";
}

}  // namespace belay::pool
