#include "planner/mender.hpp"

#include "planner/tops.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>

namespace belay::reuse {
namespace {

constexpr uint32_t kShortBlock = 8, kMediumBlock = 11;  // log2 of moments
constexpr float kHarder = 1.2F;                         // each time that a buffer is displaced
constexpr float kHardest = 0x1p40F;                     // of its first weight
constexpr int64_t kFixed = int64_t{1} << 40;            // counts as so many: more than there are
constexpr uint64_t kFirstTry = 64, kLastTry = 4096;     // looks of one try, for each buffer
constexpr uint64_t kFirstPart = 16, kLastPart = 64;     // of the way to the goal, that a try goes

bool by_offset(const Field::Node& a, const Field::Node& b) { return a.from < b.from; }

}  // namespace

Mender::Mender(const Arena& arena, Placement start, const std::vector<uint32_t>& placed)
    : arena_(arena), placed_(arena.buffers.size()), weights_(arena.buffers.size()), field_(arena.moments) {
  out_ = std::move(start);
  for (const uint32_t i : placed) {
    if (!arena_.buffers[i].bytes) continue;
    all_.push_back(i);
    put(i, out_.offsets[i]);
    least_ = std::max(least_, weights_[i] == HUGE_VALF ? end_of(i) : arena_.buffers[i].bytes);
  }
}

void Mender::put(uint32_t i, uint64_t offset) {
  const Buffer& b = arena_.buffers[i];
  out_.offsets[i] = offset;
  placed_[i] = 1;
  if (weights_[i] == 0) weights_[i] = first_weight(i);
  if (b.first < b.last) field_.put({offset, offset + b.bytes, b.first, b.last, i, weights_[i]});
}

void Mender::take(uint32_t i) {
  const Buffer& b = arena_.buffers[i];
  placed_[i] = 0;
  if (b.first < b.last) field_.take(i, b.first, b.last);
}

float Mender::first_weight(uint32_t i) const {
  const Buffer& b = arena_.buffers[i];
  if (b.fixed != BELAY_OFFSET_FREE) return HUGE_VALF;
  return float(double(b.bytes) / double(std::max<uint64_t>(1, arena_.lower_bound)) *
               double(std::max<uint64_t>(1, b.life))) +
         FLT_MIN;
}

void Mender::displace(uint32_t i) {
  moves_.push_back({i, out_.offsets[i]});
  take(i);
  weights_[i] = std::min(weights_[i] * kHarder, first_weight(i) * kHardest);
  queue_.push({arena_.buffers[i].bytes, arena_.buffers[i].life, i});
}

// What must not overlap the buffer.
void Mender::find_near(uint32_t i) {
  const Buffer& b = arena_.buffers[i];
  near_.clear();
  if (b.first < b.last)
    looks_ += field_.each_near(b.first, b.last, [&](const Field::Node& node) {
      if (arena_.meet(i, node.buffer)) near_.push_back(node);
    });
  looks_ += 1 + arena_.conflicts(i).size();
  for (const uint32_t other : arena_.conflicts(i))
    if (placed_[other]) near_.push_back({out_.offsets[other], end_of(other), 0, 0, other, weights_[other]});
}

// Over its input, or under its output, nothing more is needed.
std::optional<uint64_t> Mender::over_partner(uint32_t i, uint64_t height) const {
  const Buffer& b = arena_.buffers[i];
  for (const uint32_t partner : arena_.partners(i)) {
    const uint64_t from = out_.offsets[partner], to = from + b.bytes;
    if (!placed_[partner] || from % b.align != 0 || to > height) continue;
    if (std::none_of(near_.begin(), near_.end(), [&](const Field::Node& node) {
          return node.buffer != partner && node.from < to && from < node.to;
        }))
      return from;
  }
  return std::nullopt;
}

// The offset, of those from which it ends by `height`, at which it displaces least of what is near; the
// lowest of equal ones. Where near buffers begin and cease to be in the way is first counted in about as many
// buckets; only those in which the best may be are looked into.
std::optional<uint64_t> Mender::best_place(uint32_t i, uint64_t height) {
  find_near(i);
  if (const auto offset = over_partner(i, height)) return offset;
  const Buffer& b = arena_.buffers[i];
  if (b.bytes > height) return std::nullopt;
  // In steps of the alignment.
  const int log_align = std::countr_zero(b.align);
  const uint64_t top = (height - b.bytes) >> log_align;
  const int shift = std::max(0, int(std::bit_width(top)) - int(std::bit_width(near_.size())));
  const auto each_event = [&](auto&& visit) {
    for (const Field::Node& node : near_) {
      const uint64_t from = node.from < b.bytes ? 0 : ((node.from - b.bytes) >> log_align) + 1;
      const uint64_t to = (node.to + b.align - 1) >> log_align;
      if (from > top) continue;
      const Load load = std::isinf(node.weight) ? Load{0, kFixed} : Load{double(node.weight), 1};
      visit(from, load);
      if (to <= top) visit(to, -load);
    }
  };
  buckets_.assign((top >> shift) + 1, {});
  each_event([&](uint64_t at, const Load& load) {
    Bucket& bucket = buckets_[at >> shift];
    (load.count > 0 ? bucket.more : bucket.less) += float(load.weight);
    (load.count > 0 ? bucket.begin : bucket.end) += load.count;
  });
  // The load where a bucket ends is one that is possible.
  double bound = HUGE_VAL;
  Load load{};
  for (const Bucket& bucket : buckets_) {
    load += bucket.change();
    if (load.count < kFixed) bound = std::min(bound, load.weight);
  }
  starts_.clear();
  load = {};
  for (Bucket& bucket : buckets_) {
    const int64_t count = load.count + bucket.end;
    bucket.wanted = count == 0 || (count < kFixed && load.weight + double(bucket.less) <= bound);
    if (bucket.wanted) starts_.push_back({uint64_t(&bucket - buckets_.data()) << shift, load});
    load += bucket.change();
  }
  events_.clear();
  each_event([&](uint64_t at, const Load& change) {
    if (buckets_[at >> shift].wanted) events_.push_back({at, change});
  });
  std::sort(events_.begin(), events_.end(), [](const Event& x, const Event& y) { return x.at < y.at; });

  std::optional<uint64_t> best;
  double least = HUGE_VAL;
  auto event = events_.begin();
  for (auto& [first, start] : starts_) {
    const uint64_t end = std::min(top + 1, first + (uint64_t{1} << shift));
    for (uint64_t at = first; at < end;) {
      for (; event != events_.end() && event->at == at; ++event) start += event->change;
      if (start.count == 0) return at << log_align;
      if (start.count < kFixed && start.weight < least) {
        least = start.weight;
        best = at << log_align;
      }
      at = event != events_.end() ? std::min(end, event->at) : end;
    }
  }
  return best;
}

uint64_t Mender::lowest_free(uint32_t i) {
  find_near(i);
  if (const auto offset = over_partner(i, UINT64_MAX)) return *offset;
  const Buffer& b = arena_.buffers[i];
  std::sort(near_.begin(), near_.end(), by_offset);
  uint64_t offset = 0;
  for (const Field::Node& node : near_) {
    if (node.from >= offset + b.bytes) break;
    offset = std::max(offset, align_up(node.to, b.align));
  }
  return offset;
}

// Places what is in the queue, and what that displaces.
bool Mender::place_queued(uint64_t height, uint64_t most, const Stop& stop) {
  for (uint64_t count = 0; !queue_.empty(); ++count) {
    if (looks_ >= most || (count % 16 == 0 && stop())) return false;
    const uint32_t i = std::get<2>(queue_.top());
    const std::optional<uint64_t> offset = best_place(i, height);
    if (!offset) return false;
    queue_.pop();
    const uint64_t end = *offset + arena_.buffers[i].bytes;
    const auto partners = arena_.partners(i);
    for (const Field::Node& node : near_) {
      if (node.from >= end || *offset >= node.to || !placed_[node.buffer]) continue;
      const bool may_share = std::find(partners.begin(), partners.end(), node.buffer) != partners.end();
      if (!may_share || node.from != *offset) displace(node.buffer);
    }
    put(i, *offset);
  }
  return true;
}

bool Mender::lower_to(uint64_t height, uint64_t most, const Stop& stop) {
  moves_.clear();
  for (const uint32_t i : all_)
    if (end_of(i) > height) displace(i);
  if (!place_queued(height, most, stop)) {
    queue_ = {};
    for (; !moves_.empty(); moves_.pop_back()) {
      const auto [i, offset] = moves_.back();
      if (placed_[i]) take(i);
      put(i, offset);
    }
    return false;
  }
  find_peak();
  return true;
}

void Mender::find_peak() {
  out_.peak = 0;
  for (const uint32_t i : all_) out_.peak = std::max(out_.peak, end_of(i));
}

void Mender::lower(uint64_t goal, uint64_t looks, const Stop& stop) {
  goal = std::max(goal, least_);
  const uint64_t most = looks_ + std::min(looks, UINT64_MAX - looks_);
  uint64_t tries = kFirstTry, part = kFirstPart;
  while (out_.peak > goal && looks_ < most && tries <= kLastTry && !stop()) {
    const uint64_t height = out_.peak - std::max<uint64_t>(1, (out_.peak - goal) / part);
    if (lower_to(height, std::min(most, looks_ + tries * all_.size()), stop)) {
      part = std::max(kFirstPart, part / 2);
    } else if (part < kLastPart) {
      part *= 2;
    } else {
      part = kFirstPart;
      tries *= 2;
    }
  }
}

void Mender::add(const std::vector<uint32_t>& more, uint64_t looks, const Stop& stop) {
  const uint64_t most = looks_ + std::min(looks, UINT64_MAX - looks_);
  // Those that live longest are the hardest to place, so they come first.
  std::vector<uint32_t> first, medium, shortest;
  const auto in_block = [](const Buffer& b, uint32_t bits) {
    return b.first >> bits == (b.last - 1) >> bits;
  };
  for (const uint32_t i : more) {
    const Buffer& b = arena_.buffers[i];
    if (!b.bytes) continue;
    all_.push_back(i);
    const bool free = b.first < b.last && arena_.conflicts(i).empty();
    (free && in_block(b, kShortBlock)    ? shortest
     : free && in_block(b, kMediumBlock) ? medium
                                         : first)
        .push_back(i);
  }
  add_each(first, most, stop);
  std::vector<uint32_t> left = add_in_blocks(medium, kMediumBlock, most);
  for (const uint32_t i : add_in_blocks(shortest, kShortBlock, most)) left.push_back(i);
  add_each(left, most, stop);
}

// Simply on top of all that lives with it where the peak allows; else, while there is time, in a gap.
void Mender::add_each(const std::vector<uint32_t>& more, uint64_t most, const Stop& stop) {
  if (more.empty()) return;
  Tops tops(arena_.moments);
  const auto cover = [&](uint32_t i) {
    const Buffer& b = arena_.buffers[i];
    if (b.first < b.last) tops.cover(b.first, b.last, end_of(i));
  };
  for (const uint32_t i : all_)
    if (placed_[i]) cover(i);
  bool over = false;
  for (size_t k = 0; k < more.size(); ++k) {
    const uint32_t i = more[k];
    const Buffer& b = arena_.buffers[i];
    uint64_t end = b.first < b.last ? tops.highest(b.first, b.last) : 0;
    for (const uint32_t other : arena_.conflicts(i))
      if (placed_[other]) end = std::max(end, end_of(other));
    uint64_t offset = align_up(end, b.align);
    over = over || looks_ >= most || (k % 64 == 0 && stop());
    if (offset + b.bytes > out_.peak && !over) offset = lowest_free(i);
    put(i, offset);
    cover(i);
    out_.peak = std::max(out_.peak, end_of(i));
  }
}

// Buffers that live within one block of moments each go where nothing else lives in the whole block. What is
// left.
std::vector<uint32_t> Mender::add_in_blocks(const std::vector<uint32_t>& more, uint32_t bits, uint64_t most) {
  std::vector<std::pair<uint32_t, uint32_t>> by_block;  // block, position in `more`
  for (uint32_t k = 0; k < more.size(); ++k) by_block.emplace_back(arena_.buffers[more[k]].first >> bits, k);
  std::vector<uint32_t> left;
  std::sort(by_block.begin(), by_block.end());
  for (size_t k = 0; k < by_block.size();) {
    const uint32_t block = by_block[k].first;
    taken_.clear();
    if (looks_ < most)
      looks_ += field_.each_near(block << bits,
                                 uint32_t(std::min<uint64_t>(arena_.moments, uint64_t(block + 1) << bits)),
                                 [&](const Field::Node& node) {
                                   taken_.push_back({node.from, node.to});
                                 });
    else
      taken_.push_back({0, out_.peak});
    std::sort(taken_.begin(), taken_.end(), [](const Range& a, const Range& b) { return a.from < b.from; });
    gaps_.clear();
    uint64_t end = 0;
    for (const auto& [from, to] : taken_) {
      if (from > end) gaps_.push_back({end, from});
      end = std::max(end, to);
    }
    if (end < out_.peak) gaps_.push_back({end, out_.peak});
    added_.clear();
    for (; k < by_block.size() && by_block[k].first == block; ++k)
      if (const uint32_t i = more[by_block[k].second]; !add_in_gap(i)) left.push_back(i);
  }
  return left;
}

// Puts a buffer into the lowest of `gaps_` in which there is room beside those of `added_`.
bool Mender::add_in_gap(uint32_t i) {
  const Buffer& b = arena_.buffers[i];
  auto other = added_.begin();
  for (const auto& [from, to] : gaps_) {
    uint64_t at = align_up(from, b.align);
    for (; other != added_.end() && other->from < to; ++other) {
      if (other->first >= b.last || b.first >= other->last) continue;
      if (other->from >= at + b.bytes) break;
      at = std::max(at, align_up(other->to, b.align));
    }
    if (at + b.bytes > to) continue;
    put(i, at);
    const Field::Node node{at, at + b.bytes, b.first, b.last, i, 0};
    added_.insert(std::upper_bound(added_.begin(), added_.end(), node, by_offset), node);
    return true;
  }
  return false;
}

}  // namespace belay::reuse
