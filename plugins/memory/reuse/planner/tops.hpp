// planner/tops.hpp: where what is placed highest at each moment ends.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace belay::reuse {

// A segment tree that only rises.
class Tops {
 public:
  explicit Tops(uint32_t moments)
      : leaves_(std::bit_ceil(std::max(1u, moments))), nodes_(size_t{2} * leaves_) {}

  void clear() { std::fill(nodes_.begin(), nodes_.end(), Node{}); }
  // Of moments [first, last), at least one.
  uint64_t highest(uint32_t first, uint32_t last) const {
    uint64_t most = 0;
    uint32_t left = first + leaves_, right = last + leaves_ - 1;
    // What covers a parent holds for all beneath it.
    for (uint32_t at : {left, right})
      for (; at; at >>= 1) most = std::max(most, nodes_[at].end);
    for (++right; left < right; left >>= 1, right >>= 1) {
      if (left & 1) most = std::max(most, nodes_[left++].highest);
      if (right & 1) most = std::max(most, nodes_[--right].highest);
    }
    return most;
  }
  void cover(uint32_t first, uint32_t last, uint64_t end) {
    const auto raise = [&](uint32_t at) {
      nodes_[at].end = std::max(nodes_[at].end, end);
      nodes_[at].highest = std::max(nodes_[at].highest, end);
    };
    uint32_t left = first + leaves_, right = last + leaves_;
    for (; left < right; left >>= 1, right >>= 1) {
      if (left & 1) raise(left++);
      if (right & 1) raise(--right);
    }
    for (uint32_t at : {first + leaves_, last + leaves_ - 1})
      for (at >>= 1; at; at >>= 1)
        nodes_[at].highest =
            std::max({nodes_[at].highest, nodes_[2 * at].highest, nodes_[2 * at + 1].highest});
  }

 private:
  struct Node {
    uint64_t end, highest;  // `end` holds for the whole range
  };
  uint32_t leaves_;
  std::vector<Node> nodes_;
};

}  // namespace belay::reuse
