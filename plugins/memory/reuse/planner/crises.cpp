#include "planner/crises.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace belay::reuse {
namespace {

// Live bytes of each moment: sums over ranges, and the largest.
class Load {
 public:
  explicit Load(uint32_t moments)
      : leaves_(std::bit_ceil(std::max(1u, moments))), nodes_(size_t{2} * leaves_) {}

  void add(uint32_t first, uint32_t last, int64_t bytes) {
    uint32_t left = first + leaves_, right = last + leaves_;
    for (; left < right; left >>= 1, right >>= 1) {
      if (left & 1) change(left++, bytes);
      if (right & 1) change(--right, bytes);
    }
    for (uint32_t at : {first + leaves_, last + leaves_ - 1})
      for (at >>= 1; at; at >>= 1)
        nodes_[at].most = nodes_[at].all + std::max(nodes_[2 * at].most, nodes_[2 * at + 1].most);
  }
  uint32_t highest() const {
    uint32_t at = 1;
    while (at < leaves_) at = nodes_[2 * at].most >= nodes_[2 * at + 1].most ? 2 * at : 2 * at + 1;
    return at - leaves_;
  }

 private:
  struct Node {
    int64_t most, all;  // of its range; what was added to all of it
  };
  void change(uint32_t at, int64_t bytes) {
    nodes_[at].most += bytes;
    nodes_[at].all += bytes;
  }
  uint32_t leaves_;
  std::vector<Node> nodes_;
};

// Buffers by the moments that they hold: each in one node of a tree, whose middle it holds; there sorted by
// its two ends.
class Stabbing {
 public:
  Stabbing(const Arena& arena, const std::vector<uint32_t>& which)
      : arena_(arena), width_(std::bit_ceil(std::max(1u, arena.moments))), taken_(arena.buffers.size()) {
    nodes_.resize(width_);
    for (const uint32_t i : which) nodes_[node_of(arena.buffers[i])].by_first.push_back(i);
    for (Node& node : nodes_) {
      node.by_last = node.by_first;
      std::sort(node.by_first.begin(), node.by_first.end(), [&](uint32_t a, uint32_t b) {
        return arena_.buffers[a].first > arena_.buffers[b].first;  // taken from the end
      });
      std::sort(node.by_last.begin(), node.by_last.end(),
                [&](uint32_t a, uint32_t b) { return arena_.buffers[a].last < arena_.buffers[b].last; });
    }
  }

  // Gives `take` each buffer that holds the moment and was not given before.
  template <class Take>
  void take_at(uint32_t moment, Take&& take) {
    const auto give = [&](std::vector<uint32_t>& list) {
      const uint32_t i = list.back();
      list.pop_back();
      if (!std::exchange(taken_[i], uint8_t{1})) take(i);
    };
    for (uint32_t low = 0, size = width_; size > 0; size /= 2) {
      const uint32_t middle = low + size / 2;
      Node& node = nodes_[middle];
      if (moment < middle)
        while (!node.by_first.empty() && arena_.buffers[node.by_first.back()].first <= moment)
          give(node.by_first);
      else
        while (!node.by_last.empty() && arena_.buffers[node.by_last.back()].last > moment) give(node.by_last);
      if (moment >= middle) low = middle;
    }
  }

 private:
  struct Node {
    std::vector<uint32_t> by_first, by_last;
  };
  uint32_t node_of(const Buffer& b) const {
    for (uint32_t low = 0, size = width_; size > 1; size /= 2) {
      const uint32_t middle = low + size / 2;
      if (b.first <= middle && middle < b.last) return middle;
      if (b.first > middle) low = middle;
    }
    return b.first;  // one moment alone
  }

  const Arena& arena_;
  const uint32_t width_;
  std::vector<uint8_t> taken_;
  std::vector<Node> nodes_;
};

}  // namespace

std::vector<uint32_t> crises_of(const Arena& arena, const std::vector<uint32_t>& which) {
  std::vector<uint32_t> crises(arena.buffers.size());
  Load load(arena.moments);
  for (const uint32_t i : which) {
    const Buffer& b = arena.buffers[i];
    load.add(b.first, b.last, int64_t(b.bytes));
  }
  Stabbing buffers(arena, which);
  size_t left = which.size();
  for (uint32_t number = 0; left; ++number)
    buffers.take_at(load.highest(), [&](uint32_t i) {
      const Buffer& b = arena.buffers[i];
      crises[i] = number;
      load.add(b.first, b.last, -int64_t(b.bytes));
      --left;
    });
  return crises;
}

}  // namespace belay::reuse
