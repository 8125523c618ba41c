#include "planner/placer.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace belay::reuse {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kSorted = 20'000, kSortedUnits = 2'000;  // buffers, and where there is a unit
constexpr uint64_t kMostUnits = uint64_t{1} << 22;        // that the lower bound may have
constexpr double kMostWaste = 1.0005;                     // by rounding up to units

}  // namespace

Placer::Placer(const Arena& arena)
    : arena_(arena), placed_(arena.buffers.size()), field_(arena.moments), tops_(arena.moments) {
  find_unit();
}

void Placer::find_unit() {
  uint64_t align = 1, unit = 0;
  double bytes = 0, rounded = 0;
  for (const Buffer& buffer : arena_.buffers) align = std::max(align, buffer.align);
  for (const Buffer& buffer : arena_.buffers) {
    const uint64_t up = align_up(buffer.bytes, align);
    unit = std::gcd(unit, up);
    if (buffer.fixed != BELAY_OFFSET_FREE) unit = std::gcd(unit, buffer.fixed);
    bytes += double(buffer.bytes) * double(buffer.life);
    rounded += double(up) * double(buffer.life);
  }
  const bool aligned = unit && unit % align == 0;
  if (aligned && arena_.lower_bound / unit <= kMostUnits && rounded <= kMostWaste * bytes) unit_ = unit;
}

Placement Placer::run(const std::vector<uint32_t>& order, Fit fit, uint64_t limit, uint64_t work,
                      const std::function<bool()>& stop) {
  Placement out;
  out.offsets.assign(arena_.buffers.size(), 0);
  std::fill(placed_.begin(), placed_.end(), 0);
  tops_.clear();
  nodes_.clear();
  sorted_ = order.size() <= (unit_ ? kSortedUnits : kSorted);
  scale_ = sorted_ || !unit_ ? 1 : unit_;
  field_.clear();
  looks_ = 0;
  uint64_t count = 0;
  for (uint32_t i = 0; i < arena_.buffers.size(); ++i)
    if (arena_.buffers[i].fixed != BELAY_OFFSET_FREE) put(i, arena_.buffers[i].fixed, out);
  for (const uint32_t i : order) {
    if (placed_[i]) continue;
    put(i, looks_ > work ? on_top(i, out) : in_gap(i, fit, out), out);
    const bool stopped = ++count % 256 == 0 && stop();
    if (out.peak >= limit || (stopped && limit != UINT64_MAX)) {
      out.peak = UINT64_MAX;
      return out;
    }
    if (stopped) looks_ = std::max(looks_, work + 1);
  }
  return out;
}

void Placer::put(uint32_t i, uint64_t offset, Placement& out) {
  const Buffer& buffer = arena_.buffers[i];
  out.offsets[i] = offset;
  placed_[i] = 1;
  if (!buffer.bytes) return;
  out.peak = std::max(out.peak, offset + buffer.bytes);
  if (buffer.first == buffer.last) return;
  const Node node{down(offset), up(offset + buffer.bytes), buffer.first, buffer.last, i, 0};
  if (sorted_) {
    const auto by_offset = [](const Node& a, const Node& b) { return a.from < b.from; };
    nodes_.insert(std::upper_bound(nodes_.begin(), nodes_.end(), node, by_offset), node);
  } else {
    field_.put(node);
  }
  tops_.cover(buffer.first, buffer.last, offset + buffer.bytes);
}

template <class See>
void Placer::each_near(const Buffer& buffer, See&& see) {
  if (buffer.first == buffer.last) return;
  if (sorted_) {
    looks_ += nodes_.size() / 8;  // one after another, so each is cheap
    for (const Node& node : nodes_) see(node);
    return;
  }
  looks_ += field_.each_near(buffer.first, buffer.last, see);
}

// What is placed and must not overlap the buffer, but for one; scaled.
template <class Take>
void Placer::each_taken(uint32_t i, uint32_t but, const Placement& out, Take&& take) {
  const Buffer& buffer = arena_.buffers[i];
  each_near(buffer, [&](const Node& node) {
    if (node.first < buffer.last && buffer.first < node.last && node.buffer != but &&
        arena_.meet(i, node.buffer))
      take(node.from, node.to);
  });
  for (const uint32_t other : arena_.conflicts(i))
    if (placed_[other] && arena_.buffers[other].bytes)
      take(down(out.offsets[other]), up(out.offsets[other] + arena_.buffers[other].bytes));
}

bool Placer::is_free(uint32_t i, uint64_t offset, uint32_t but, const Placement& out) {
  bool free = true;
  each_taken(i, but, out, [&](uint64_t from, uint64_t to) {
    if (from < up(offset + arena_.buffers[i].bytes) && down(offset) < to) free = false;
  });
  return free;
}

uint64_t Placer::in_gap(uint32_t i, Fit fit, const Placement& out) {
  const Buffer& buffer = arena_.buffers[i];
  // Over its input, or under its output, nothing more is needed.
  for (const uint32_t partner : arena_.partners(i)) {
    const uint64_t offset = out.offsets[partner];
    if (placed_[partner] && arena_.buffers[partner].bytes && offset % buffer.align == 0 &&
        is_free(i, offset, partner, out))
      return offset;
  }
  return scale_ > 1 ? in_units(i, fit, out) : in_sorted(i, fit, out);
}

uint64_t Placer::in_sorted(uint32_t i, Fit fit, const Placement& out) {
  const Buffer& buffer = arena_.buffers[i];
  taken_.clear();
  each_taken(i, kNone, out, [&](uint64_t from, uint64_t to) { taken_.push_back({from, to}); });
  if (!sorted_ || !arena_.conflicts(i).empty()) std::sort(taken_.begin(), taken_.end());
  uint64_t best = UINT64_MAX, best_gap = UINT64_MAX, end = 0;
  for (const auto& [from, to] : taken_) {
    const uint64_t offset = align_up(end, buffer.align);
    if (from >= offset && from - offset >= buffer.bytes && from - end < best_gap) {
      best = offset;
      best_gap = from - end;
      if (fit == Fit::kLowest) break;
    }
    end = std::max(end, to);
  }
  return best != UINT64_MAX ? best : align_up(end, buffer.align);
}

uint64_t Placer::in_units(uint32_t i, Fit fit, const Placement& out) {
  const uint64_t need = up(arena_.buffers[i].bytes);
  uint64_t end = 0;  // of all that is taken
  const auto set = [](std::vector<uint64_t>& bits, uint64_t from, uint64_t to) {
    uint64_t *word = &bits[from / 64], *last = &bits[(to - 1) / 64];
    const uint64_t low = ~uint64_t{0} << from % 64, high = ~uint64_t{0} >> (63 - (to - 1) % 64);
    *word |= word == last ? low & high : low;
    if (word == last) return;
    while (++word < last) *word = ~uint64_t{0};
    *last |= high;
  };
  each_taken(i, kNone, out, [&](uint64_t from, uint64_t to) {
    if (to / 64 >= bits_.size()) {  // one bit after all is free
      bits_.resize(std::bit_ceil(to / 64 + 1));
      full_.resize(bits_.size() / 64 + 1);
    }
    end = std::max(end, to);
    const uint64_t first_whole = (from + 63) / 64, last_whole = to / 64;
    if (first_whole >= last_whole) {
      set(bits_, from, to);
      return;
    }
    set(full_, first_whole, last_whole);
    if (from % 64) bits_[from / 64] |= ~uint64_t{0} << from % 64;
    if (to % 64) bits_[last_whole] |= ~(~uint64_t{0} << to % 64);
  });
  const auto taken = [&](uint64_t word) {
    return full_[word / 64] >> word % 64 & 1 ? ~uint64_t{0} : bits_[word];
  };
  const auto next_free = [&](uint64_t at) {
    uint64_t word = at / 64, free = ~taken(word) >> at % 64 << at % 64;
    while (!free) {
      for (uint64_t rest = ~full_[++word / 64] >> word % 64 << word % 64;; rest = ~full_[word / 64]) {
        if (rest) {
          word = word / 64 * 64 + uint64_t(std::countr_zero(rest));
          break;
        }
        word = (word / 64 + 1) * 64;
      }
      free = ~bits_[word];
    }
    return 64 * word + uint64_t(std::countr_zero(free));
  };
  const auto next_taken = [&](uint64_t at) {
    uint64_t word = at / 64, found = taken(word) >> at % 64 << at % 64;
    while (!found) found = taken(++word);
    return 64 * word + uint64_t(std::countr_zero(found));
  };
  uint64_t best = end, best_gap = UINT64_MAX;
  for (uint64_t at = 0; at < end;) {
    const uint64_t from = next_free(at);
    if (from >= end) break;
    at = next_taken(from);
    if (at - from < need || at - from >= best_gap) continue;
    best = from;
    best_gap = at - from;
    if (fit == Fit::kLowest || best_gap == need) break;
  }
  std::fill_n(bits_.begin(), (end + 63) / 64, 0);
  std::fill_n(full_.begin(), (end + 4095) / 4096, 0);
  return best * scale_;
}

uint64_t Placer::on_top(uint32_t i, const Placement& out) const {
  const Buffer& buffer = arena_.buffers[i];
  uint64_t end = buffer.first < buffer.last ? tops_.highest(buffer.first, buffer.last) : 0;
  for (const uint32_t other : arena_.conflicts(i))
    if (placed_[other]) end = std::max(end, out.offsets[other] + arena_.buffers[other].bytes);
  return align_up(end, buffer.align);
}

}  // namespace belay::reuse
