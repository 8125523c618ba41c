#include "planner/skyline.hpp"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace belay::reuse {
namespace {

constexpr size_t kMostBadStates = size_t{1} << 16;
constexpr size_t kSelected = 4;  // that are found one by one before the rest is sorted

template <class T>
T one_of(std::mt19937_64& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

double fraction(std::mt19937_64& random) { return double(random() >> 11) * 0x1p-53; }

}  // namespace

Skyline::Skyline(const std::vector<SpanBuffer>& buffers, int32_t sections, uint64_t seed)
    : sections_(sections), random_(seed) {
  const size_t count = buffers.size(), width = size_t(sections);
  at_first_.assign(width + 1, 0);
  for (const SpanBuffer& b : buffers) {
    size_.push_back(b.size);
    first_.push_back(b.spans.front().first);
    last_.push_back(b.spans.back().second);
    places_first_.push_back(uint32_t(sections_of_.size()));
    for (const auto& [first, last] : b.spans)
      for (int32_t t = first; t < last; ++t) {
        sections_of_.push_back(t);
        ++at_first_[size_t(t) + 1];
      }
    gaps_ = gaps_ || sections_of_.size() - places_first_.back() != size_t(last_.back() - first_.back());
  }
  places_first_.push_back(uint32_t(sections_of_.size()));
  std::partial_sum(at_first_.begin(), at_first_.end(), at_first_.begin());
  at_.resize(sections_of_.size());
  std::vector<uint32_t> fill(at_first_.begin(), at_first_.end() - 1);
  for (size_t i = 0; i < count; ++i)
    for (const int32_t t : sections_of(int32_t(i))) {
      place_in_at_.push_back(fill[size_t(t)]);
      at_[fill[size_t(t)]++] = int32_t(i);
    }
  by_start_.resize(count);
  std::iota(by_start_.begin(), by_start_.end(), 0);
  std::stable_sort(by_start_.begin(), by_start_.end(),
                   [&](int32_t a, int32_t b) { return first_[size_t(a)] < first_[size_t(b)]; });
  for (auto* list : {&floor_, &top_, &slack_, &candidates_, &open_, &plateau_end_, &flat_, &supported_})
    list->resize(width);
  for (auto* list : {&lowest_, &support_, &placed_, &offset_}) list->resize(count);
  touched_mark_.assign(width, 0);
  counted_later_.assign(width, 0);
  score_.resize(count);
  buffer_weight_.assign(count, 1);
  section_weight_.assign(width, 1);
  for (size_t i = 0; i < count; ++i) buffer_key_.push_back(random_());
  for (size_t i = 0; i < width; ++i) section_key_.push_back(random_() | 1);
  bad_.assign(std::min(kMostBadStates, std::bit_ceil(64 * count)), 0);
}

// No rule is best for all: large or long ones first, tight or low sections first. Many short searches with
// different ones find what a long one with any of them does not; one that led to a placement is often good
// again.
void Skyline::draw() {
  if (!good_ || random_() % 2) {
    way_.size = one_of(random_, {0.0, 1.0, 1.0, 2.0});
    way_.length = one_of(random_, {0.0, 1.0, 1.0, 2.0, 3.0});
    if (way_.size + way_.length == 0) way_.size = 1;
    way_.slack = one_of(random_, {0.0, 1.0, 10.0, 100.0});
    way_.height = one_of(random_, {0.01, 1.0, 10.0, 100.0});
    way_.noise = one_of(random_, {0.0, 0.3, 1.0});
    way_.weigh_sections = one_of(random_, {true, false, false});
  } else {
    way_ = *good_;
  }
  for (size_t i = 0; i < size_.size(); ++i)
    score_[i] = way_.size * std::log(double(size_[i])) +
                way_.length * std::log(double(places_first_[i + 1] - places_first_[i])) +
                0.3 * std::log(buffer_weight_[i]) + way_.noise * fraction(random_);
  const double most = *std::max_element(section_weight_.begin(), section_weight_.end());
  for (double& weight : section_weight_) weight = 1e-3 + weight / most;
  weight_step_ /= most;
}

void Skyline::restart(int32_t capacity) {
  capacity_ = capacity;
  for (size_t t = 0; t < size_t(sections_); ++t) {
    int32_t bytes = 0;
    for (uint32_t k = at_first_[t]; k < at_first_[t + 1]; ++k) bytes += size_[size_t(at_[k])];
    floor_[t] = top_[t] = 0;
    slack_[t] = capacity - bytes;
    candidates_[t] = open_[t] = int32_t(at_first_[t + 1] - at_first_[t]);
  }
  for (auto* list : {&lowest_, &support_, &placed_}) std::fill(list->begin(), list->end(), 0);
  trail_.clear();
  members_ = by_start_;
  parts_.clear();
  choices_.clear();
  frames_.clear();
  forget_touched();
}

void Skyline::undo(size_t mark) {
  while (trail_.size() > mark) {
    *trail_.back().where = trail_.back().old;
    trail_.pop_back();
  }
  forget_touched();
}

void Skyline::forget_touched() {
  for (const int32_t t : touched_) touched_mark_[size_t(t)] = 0;
  touched_.clear();
  dry_.clear();
}

void Skyline::blame(int32_t section) {
  const auto t = size_t(section);
  section_weight_[t] += weight_step_;
  weight_step_ *= 1.0005;
  for (const int32_t b : still_open(section)) buffer_weight_[size_t(b)] += 1.0 / open_[t];
}

uint32_t& Skyline::place_of(int32_t buffer, int32_t section) {
  const std::span<const int32_t> all = sections_of(buffer);
  auto at = size_t(section - all.front());
  if (gaps_) at = size_t(std::lower_bound(all.begin(), all.end(), section) - all.begin());
  return place_in_at_[places_first_[size_t(buffer)] + at];
}

// Undoing makes the list of the open ones longer again; their order is free.
void Skyline::take_out(int32_t buffer, int32_t section) {
  const auto t = size_t(section);
  const uint32_t last = at_first_[t] + uint32_t(open_[t]) - 1;
  uint32_t &mine = place_of(buffer, section), &others = place_of(at_[last], section);
  std::swap(at_[mine], at_[last]);
  std::swap(mine, others);
  set(open_[t], open_[t] - 1);
}

// That much stays empty above `top`.
bool Skyline::waste(int32_t section, int32_t amount) {
  int32_t& slack = slack_[size_t(section)];
  if (slack < amount) {
    blame(section);
    return false;
  }
  set(slack, slack - amount);
  return true;
}

// A buffer cannot begin below `to`.
void Skyline::lift(int32_t buffer, int32_t to) {
  const int32_t old = lowest_[size_t(buffer)];
  set(lowest_[size_t(buffer)], to);
  for (const int32_t s : sections_of(buffer)) {
    touch(s);
    if (counted_later_[size_t(s)]) continue;
    int32_t& count = candidates_[size_t(s)];
    if (floor_[size_t(s)] == old) {
      set(count, count - 1);
      if (count == 0) dry_.push_back(s);
    } else if (floor_[size_t(s)] == to) {
      set(count, count + 1);
    }
  }
}

void Skyline::count_candidates(int32_t section) {
  const auto t = size_t(section);
  int32_t count = 0;
  for (const int32_t b : still_open(section)) count += lowest_[size_t(b)] == floor_[t];
  set(candidates_[t], count);
}

// What is to come in a section, as jobs of one machine: they must end by the capacity; those that would not
// if they came after a set of others come before it. The sets to look at are all that begin at or above some
// height: with what is beneath that height, and what may stay empty, there is room beneath it for so much
// more than must be there. The room only matters while it is smaller than the largest, so while little is
// beneath: mostly nothing needs to be sorted.
bool Skyline::check_section(int32_t section) {
  const auto t = size_t(section);
  if (!open_[t]) return true;
  work_ += size_t(open_[t]);
  const int32_t floor = floor_[t];
  int32_t largest = 0, highest = floor, beneath = 0;
  for (const int32_t open : still_open(section)) {
    const auto b = size_t(open);
    largest = std::max(largest, size_[b]);
    highest = std::max(highest, lowest_[b]);
    beneath += lowest_[b] <= floor ? size_[b] : 0;
  }
  const int32_t enough = highest - floor + largest - slack_[t];
  if (highest == floor || beneath >= enough) return true;
  late_.clear();
  early_.clear();
  for (const int32_t open : still_open(section)) {
    const auto b = size_t(open);
    if (lowest_[b] <= floor)
      early_.push_back(size_[b]);
    else
      late_.push_back(uint64_t(lowest_[b]) << 32 | uint32_t(b));
  }
  const auto low = [&](size_t i) { return int32_t(late_[i] >> 32); };
  const auto size = [&](size_t i) { return size_[uint32_t(late_[i])]; };
  size_t sorted = 0;
  const auto sort_up_to = [&](size_t i) {
    if (i < sorted) return;
    if (i < kSelected) {
      std::swap(late_[i], *std::min_element(late_.begin() + ptrdiff_t(i), late_.end()));
      sorted = i + 1;
    } else {
      std::sort(late_.begin() + ptrdiff_t(i), late_.end());
      sorted = late_.size();
    }
  };
  lifted_.clear();
  int32_t most = 0;
  for (size_t i = 0; i < late_.size() && beneath < enough; ++i) {
    sort_up_to(i);
    lifted_.push_back(0);
    if (!i || low(i - 1) != low(i)) {
      const int32_t room = slack_[t] + beneath - (low(i) - floor);
      if (room < 0) {
        blame(section);
        return false;
      }
      if (room < largest) {
        int32_t before = floor;
        for (const int32_t s : early_) before += s > room ? s : 0;
        for (size_t k = 0; k < i; ++k) before += size(k) > room ? size(k) : 0;
        if (before > low(i)) lifted_[i] = most = std::max(most, before);
      }
    }
    beneath += size(i);
  }
  if (!most) return true;
  int32_t to = 0;
  for (size_t i = 0; i < late_.size(); ++i) {
    if (i < lifted_.size()) to = std::max(to, lifted_[i]);
    const auto b = int32_t(uint32_t(late_[i]));
    if (to > lowest_[size_t(b)]) lift(b, to);
  }
  return true;
}

// Follows what changed until nothing more follows from it.
bool Skyline::settle() {
  bool possible = true;
  for (size_t next = 0; possible;) {
    if (!dry_.empty()) {
      const int32_t section = dry_.back();
      const auto t = size_t(section);
      dry_.pop_back();
      if (!open_[t] || candidates_[t] > 0) continue;
      int32_t least = INT32_MAX;
      for (const int32_t b : still_open(section)) least = std::min(least, lowest_[size_t(b)]);
      if (!(possible = waste(section, least - floor_[t]))) break;
      set(floor_[t], least);
      count_candidates(section);
      touch(section);
    } else if (next < touched_.size()) {
      const int32_t section = touched_[next++];
      touched_mark_[size_t(section)] = 0;
      possible = check_section(section);
    } else {
      break;
    }
  }
  forget_touched();
  return possible;
}

bool Skyline::place(int32_t buffer) {
  const std::span<const int32_t> mine = sections_of(buffer);
  const int32_t first = first_[size_t(buffer)], end = lowest_[size_t(buffer)] + size_[size_t(buffer)];
  offset_[size_t(buffer)] = lowest_[size_t(buffer)];
  set(placed_[size_t(buffer)], 1);
  for (const int32_t section : mine) {
    const auto t = size_t(section);
    take_out(buffer, section);
    set(top_[t], end);
    set(floor_[t], end);
    touch(section);
    counted_later_[t] = 1;
  }
  for (const int32_t section : mine)
    for (const int32_t other : still_open(section)) {
      // Each that meets it, once: in the first section that they share.
      if (!gaps_ && std::max(first, first_[size_t(other)]) != section) continue;
      if (support_[size_t(other)] < end) set(support_[size_t(other)], end);
      if (lowest_[size_t(other)] < end) lift(other, end);
    }
  for (const int32_t section : mine) {
    counted_later_[size_t(section)] = 0;
    count_candidates(section);
    if (!candidates_[size_t(section)]) dry_.push_back(section);
  }
  return settle();
}

// Nothing in the section begins below `to`.
bool Skyline::raise(int32_t section, int32_t to) {
  const auto t = size_t(section);
  if (!waste(section, to - floor_[t])) return false;
  set(floor_[t], to);
  touch(section);
  counted_later_[t] = 1;
  for (const int32_t b : still_open(section))
    if (lowest_[size_t(b)] < to) lift(b, to);
  counted_later_[t] = 0;
  count_candidates(section);
  if (!candidates_[t]) dry_.push_back(section);
  return settle();
}

// The lowest of all that are to come lies on what is placed, so nothing begins below the lowest that can.
bool Skyline::raise_to_support(const Frame& frame) {
  for (bool raised = true; raised;) {
    raised = false;
    int32_t least = INT32_MAX;
    for (uint32_t k = frame.first; k < frame.first + frame.count; ++k) {
      const auto b = size_t(members_[k]);
      if (support_[b] == lowest_[b]) least = std::min(least, lowest_[b]);
    }
    if (least == INT32_MAX) return false;
    for (uint32_t k = frame.first; k < frame.first + frame.count; ++k) {
      if (lowest_[size_t(members_[k])] >= least) continue;
      for (const int32_t section : sections_of(members_[k])) {
        if (floor_[size_t(section)] >= least) continue;
        raised = true;
        if (!raise(section, least)) return false;
      }
    }
  }
  return true;
}

uint64_t Skyline::key_of(const Frame& frame) const {
  uint64_t key = uint64_t(capacity_);
  int32_t reached = 0;
  for (uint32_t k = frame.first; k < frame.first + frame.count; ++k) {
    const auto b = size_t(members_[k]);
    key ^= buffer_key_[b];
    for (auto t = size_t(std::max(reached, first_[b])); t < size_t(last_[b]); ++t)
      key += section_key_[t] * (uint64_t(uint32_t(floor_[t])) << 31 ^ uint32_t(top_[t]));
    reached = std::max(reached, last_[b]);
  }
  return key | 1;
}

// Whether it would lie on the floor of all its sections.
bool Skyline::lies_flat(int32_t buffer) const {
  const auto b = size_t(buffer), first = size_t(first_[b]);
  if (lowest_[b] != floor_[first]) return false;
  if (!gaps_) return last_[b] <= plateau_end_[first];
  const auto level = [&](int32_t section) { return floor_[size_t(section)] == lowest_[b]; };
  const std::span<const int32_t> all = sections_of(buffer);
  return std::all_of(all.begin(), all.end(), level);
}

// Of the sections whose every candidate lies flat on the skyline, the one with the fewest ways to go on.
int32_t Skyline::choose_section(const Frame& frame) {
  const int32_t begin = first_[size_t(members_[frame.first])];
  int32_t end = begin;
  for (uint32_t k = frame.first; k < frame.first + frame.count; ++k)
    end = std::max(end, last_[size_t(members_[k])]);
  for (int32_t section = end; section-- > begin;) {
    const auto t = size_t(section);
    flat_[t] = supported_[t] = 0;
    const bool level = section + 1 < end && open_[t] && open_[t + 1] && floor_[t] == floor_[t + 1];
    plateau_end_[t] = level ? plateau_end_[t + 1] : section + 1;
  }
  for (uint32_t k = frame.first; k < frame.first + frame.count; ++k) {
    const auto b = size_t(members_[k]);
    if (!lies_flat(members_[k])) continue;
    const int32_t on = support_[b] == lowest_[b];
    for (const int32_t section : sections_of(members_[k])) {
      ++flat_[size_t(section)];
      supported_[size_t(section)] += on;
    }
  }
  int32_t best = -1;
  double least = HUGE_VAL;
  for (int32_t section = begin; section < end; ++section) {
    const auto t = size_t(section);
    if (!supported_[t] || flat_[t] != candidates_[t]) continue;
    double ways = supported_[t] - 1;
    if (slack_[t] > 0) ways += 0.5 + std::min(2.0, 50.0 * slack_[t] / capacity_);
    if (ways > 0) {
      ways += (way_.slack * slack_[t] + way_.height * floor_[t]) / capacity_;
      if (way_.weigh_sections) ways /= section_weight_[t];
    }
    if (ways >= least) continue;
    least = ways;
    best = section;
  }
  return best;
}

// The supported buffers that can begin at the section's floor, best first; of equal ones only the first.
void Skyline::collect_choices(const Frame& frame) {
  const auto begin = std::ptrdiff_t(choices_.size());
  for (const int32_t open : still_open(frame.section)) {
    const auto b = size_t(open);
    if (lowest_[b] != frame.height || support_[b] != frame.height) continue;
    const auto equal = [&](int32_t other) {
      const auto o = size_t(other);
      if (first_[b] != first_[o] || last_[b] != last_[o] || size_[b] != size_[o]) return false;
      const std::span<const int32_t> mine = sections_of(open), others = sections_of(other);
      return !gaps_ || std::equal(mine.begin(), mine.end(), others.begin(), others.end());
    };
    if (std::none_of(choices_.begin() + begin, choices_.end(), equal)) choices_.push_back(open);
  }
  std::stable_sort(choices_.begin() + begin, choices_.end(),
                   [&](int32_t a, int32_t b) { return score_[size_t(a)] > score_[size_t(b)]; });
}

// Makes a frame for a part, whose buffers hang together; false where they cannot be placed.
bool Skyline::open(const Part& part) {
  Frame frame{};
  frame.first = part.first;
  frame.count = part.count;
  frame.rest = part.next;
  frame.parent = part.frame;
  if (!raise_to_support(frame)) return false;
  frame.key = key_of(frame);
  if (bad_[frame.key % bad_.size()] == frame.key) return false;
  frame.section = choose_section(frame);
  frame.height = floor_[size_t(frame.section)];
  frame.trail = trail_.size();
  frame.members = members_.size();
  frame.parts = parts_.size();
  frame.choices = choices_.size();
  collect_choices(frame);
  frame.choices_end = choices_.size();
  frame.next = frame.choices;
  frames_.push_back(frame);
  return true;
}

// Cuts those of members_[first .. first + count) that are to come where no buffer joins the two sides. The
// list of the parts to do, smallest first, then `rest`.
int32_t Skyline::split(uint32_t first, uint32_t count, int32_t frame, int32_t rest) {
  const size_t begin = parts_.size();
  int32_t reach = -1;
  for (uint32_t k = first; k < first + count; ++k) {
    const int32_t b = members_[k];
    if (placed_[size_t(b)]) continue;
    if (first_[size_t(b)] >= reach) parts_.push_back({uint32_t(members_.size()), 0, frame, -1});
    reach = std::max(reach, last_[size_t(b)]);
    members_.push_back(b);
    ++parts_.back().count;
  }
  std::stable_sort(parts_.begin() + std::ptrdiff_t(begin), parts_.end(),
                   [](const Part& a, const Part& b) { return a.count < b.count; });
  for (size_t i = parts_.size(); i-- > begin;) {
    parts_[i].next = rest;
    rest = int32_t(i);
  }
  return rest;
}

// The next choice of a frame that leads on, or of the one that led to it; the list of the parts to do then.
// No frame is left where there is none.
int32_t Skyline::choose(int32_t at) {
  while (at >= 0) {
    frames_.resize(size_t(at) + 1);
    Frame& frame = frames_.back();
    undo(frame.trail);
    members_.resize(frame.members);
    parts_.resize(frame.parts);
    choices_.resize(frame.choices_end);
    const size_t choice = frame.next++;
    bool possible = false;
    if (choice < frame.choices_end) {
      possible = place(choices_[choice]);
    } else if (choice == frame.choices_end) {
      possible = raise(frame.section, frame.height + 1);
    } else {
      bad_[frame.key % bad_.size()] = frame.key;
      at = frame.parent;
      continue;
    }
    if (possible) return split(frame.first, frame.count, at, frame.rest);
  }
  frames_.clear();
  return -1;
}

Skyline::Outcome Skyline::attempt(int32_t capacity, uint64_t nodes, const std::function<bool()>& stop) {
  if (!found_) draw();
  found_ = false;
  restart(capacity);
  if (std::any_of(slack_.begin(), slack_.end(), [](int32_t slack) { return slack < 0; }))
    return Outcome::kNone;
  int32_t to_do = split(0, uint32_t(members_.size()), -1, -1);
  for (const uint64_t last = nodes_ + nodes; to_do >= 0;) {
    if (nodes_ >= last || (nodes_ % 64 == 0 && stop())) return Outcome::kStopped;
    ++nodes_;
    const Part part = parts_[size_t(to_do)];
    to_do = choose(open(part) ? int32_t(frames_.size()) - 1 : part.frame);
    if (frames_.empty()) return Outcome::kNone;
  }
  found_ = true;
  good_ = way_;
  return Outcome::kFound;
}

}  // namespace belay::reuse
