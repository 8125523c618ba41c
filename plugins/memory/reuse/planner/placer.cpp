#include "planner/placer.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace belay::reuse {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kSorted = 20'000;  // buffers

}  // namespace

Placer::Placer(const Arena& arena) : arena_(arena), placed_(arena.buffers.size()) {
  leaves_ = std::bit_ceil(std::max(1u, arena.moments));
  levels_.resize(size_t(std::bit_width(leaves_)));
  for (size_t k = 0; k < levels_.size(); ++k) levels_[k].resize((arena.moments >> k) + 1);
  tops_.resize(size_t{2} * leaves_);
}

Placement Placer::run(const std::vector<uint32_t>& order, const std::vector<uint32_t>& light, Fit fit,
                      uint64_t limit, uint64_t work, const std::function<bool()>& stop) {
  Placement out;
  out.offsets.assign(arena_.buffers.size(), 0);
  std::fill(placed_.begin(), placed_.end(), 0);
  std::fill(tops_.begin(), tops_.end(), Top{});
  nodes_.clear();
  sorted_ = order.size() <= kSorted;
  if (!sorted_)
    for (auto& level : levels_) std::fill(level.begin(), level.end(), kNone);
  looks_ = 0;
  uint64_t count = 0;
  for (uint32_t i = 0; i < arena_.buffers.size(); ++i)
    if (arena_.buffers[i].fixed != BELAY_OFFSET_FREE) put(i, arena_.buffers[i].fixed, out);
  for (const bool top_first : {false, true})
    for (const uint32_t i : top_first ? light : order) {
      const Buffer& buffer = arena_.buffers[i];
      if (placed_[i]) continue;
      uint64_t offset = UINT64_MAX;
      if (top_first || looks_ > work) {
        offset = on_top(i, out);
        if (looks_ <= work && offset + buffer.bytes > out.peak) offset = UINT64_MAX;
      }
      if (offset == UINT64_MAX) offset = in_gap(i, fit, out);
      put(i, offset, out);
      const bool stopped = limit != UINT64_MAX && ++count % 256 == 0 && stop();
      if (out.peak >= limit || stopped) {
        out.peak = UINT64_MAX;
        return out;
      }
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
  Node node{offset, offset + buffer.bytes, buffer.first, buffer.last, i, kNone};
  if (sorted_) {
    const auto by_offset = [](const Node& a, const Node& b) { return a.from < b.from; };
    nodes_.insert(std::upper_bound(nodes_.begin(), nodes_.end(), node, by_offset), node);
  } else {
    const auto level = size_t(std::bit_width(buffer.last - buffer.first)) - 1;
    uint32_t& head = levels_[level][buffer.first >> level];
    node.next = std::exchange(head, uint32_t(nodes_.size()));
    nodes_.push_back(node);
  }
  cover(buffer.first, buffer.last, offset + buffer.bytes);
}

template <class See>
void Placer::each_near(const Buffer& buffer, See&& see) {
  if (buffer.first == buffer.last) return;
  if (sorted_) {
    looks_ += nodes_.size() / 8;  // one after another, so each is cheap
    for (const Node& node : nodes_) see(node);
    return;
  }
  for (size_t k = 0; k < levels_.size(); ++k) {
    const std::vector<uint32_t>& level = levels_[k];
    // One that began before is at most 2^(k+1) - 1 moments long.
    const uint32_t reach = (uint32_t{2} << k) - 1, begin = buffer.first > reach ? buffer.first - reach : 0;
    for (uint32_t cell = begin >> k; cell <= (buffer.last - 1) >> k; ++cell)
      for (uint32_t at = level[cell]; at != kNone; at = nodes_[at].next) {
        ++looks_;
        see(nodes_[at]);
      }
  }
}

// What is placed and must not overlap the buffer, but for one.
void Placer::gather(uint32_t i, uint32_t but, const Placement& out) {
  const Buffer& buffer = arena_.buffers[i];
  taken_.clear();
  each_near(buffer, [&](const Node& node) {
    if (node.first < buffer.last && buffer.first < node.last && node.buffer != but &&
        arena_.meet(i, node.buffer))
      taken_.push_back({node.from, node.to});
  });
  const bool in_order = sorted_ && arena_.conflicts(i).empty();
  for (const uint32_t other : arena_.conflicts(i))
    if (placed_[other] && arena_.buffers[other].bytes)
      taken_.push_back({out.offsets[other], out.offsets[other] + arena_.buffers[other].bytes});
  if (!in_order) std::sort(taken_.begin(), taken_.end());
}

uint64_t Placer::in_gap(uint32_t i, Fit fit, const Placement& out) {
  const Buffer& buffer = arena_.buffers[i];
  // Over its input, or under its output, nothing more is needed.
  for (const uint32_t partner : arena_.partners(i)) {
    const uint64_t offset = out.offsets[partner];
    if (!placed_[partner] || !arena_.buffers[partner].bytes || offset % buffer.align) continue;
    gather(i, partner, out);
    const auto over = [&](const Range& range) {
      return range.from < offset + buffer.bytes && offset < range.to;
    };
    if (std::none_of(taken_.begin(), taken_.end(), over)) return offset;
  }
  gather(i, kNone, out);
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

uint64_t Placer::on_top(uint32_t i, const Placement& out) const {
  const Buffer& buffer = arena_.buffers[i];
  uint64_t end = buffer.first < buffer.last ? highest(buffer.first, buffer.last) : 0;
  for (const uint32_t other : arena_.conflicts(i))
    if (placed_[other]) end = std::max(end, out.offsets[other] + arena_.buffers[other].bytes);
  return align_up(end, buffer.align);
}

uint64_t Placer::highest(uint32_t first, uint32_t last) const {
  uint64_t most = 0;
  uint32_t left = first + leaves_, right = last + leaves_ - 1;
  // What covers a parent holds for all beneath it.
  for (uint32_t at : {left, right})
    for (; at; at >>= 1) most = std::max(most, tops_[at].end);
  for (++right; left < right; left >>= 1, right >>= 1) {
    if (left & 1) most = std::max(most, tops_[left++].highest);
    if (right & 1) most = std::max(most, tops_[--right].highest);
  }
  return most;
}

void Placer::cover(uint32_t first, uint32_t last, uint64_t end) {
  const auto raise = [&](uint32_t at) {
    tops_[at].end = std::max(tops_[at].end, end);
    tops_[at].highest = std::max(tops_[at].highest, end);
  };
  uint32_t left = first + leaves_, right = last + leaves_;
  for (; left < right; left >>= 1, right >>= 1) {
    if (left & 1) raise(left++);
    if (right & 1) raise(--right);
  }
  for (uint32_t at : {first + leaves_, last + leaves_ - 1})
    for (at >>= 1; at; at >>= 1)
      tops_[at].highest = std::max({tops_[at].highest, tops_[2 * at].highest, tops_[2 * at + 1].highest});
}

}  // namespace belay::reuse
