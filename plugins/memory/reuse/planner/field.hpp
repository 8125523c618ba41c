// planner/field.hpp: what is placed, to be found by the moments in which it lives.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace belay::reuse {

// In cells of 2^k moments each; a buffer is by its first moment in the level of its length, so what meets a
// range is in the cells that the range covers and in those just before it.
class Field {
 public:
  struct Node {
    uint64_t from, to;     // offsets, in any unit
    uint32_t first, last;  // moments
    uint32_t buffer;
    float weight;  // how hard it is to find another place for it
  };

  explicit Field(uint32_t moments) {
    const size_t levels = std::max(kFirstLevel + 1, size_t(std::bit_width(std::max(1u, moments))) + 1);
    for (size_t k = kFirstLevel; k < levels; ++k) levels_.emplace_back((moments >> k) + 1);
  }
  void clear() {
    for (auto& level : levels_)
      for (auto& cell : level) cell.clear();
  }
  void put(const Node& node) { cell_of(node.first, node.last).push_back(node); }
  void take(uint32_t buffer, uint32_t first, uint32_t last) {
    auto& cell = cell_of(first, last);
    const auto at =
        std::find_if(cell.begin(), cell.end(), [&](const Node& node) { return node.buffer == buffer; });
    *at = cell.back();
    cell.pop_back();
  }
  // Gives `see` all that live in moments [first, last), at least one. Returns how many were looked at.
  template <class See>
  uint64_t each_near(uint32_t first, uint32_t last, See&& see) const {
    uint64_t looks = 0;
    for (size_t k = kFirstLevel; k < kFirstLevel + levels_.size(); ++k) {
      const auto& level = levels_[k - kFirstLevel];
      // One that began before is at most 2^(k+1) - 1 moments long.
      const uint64_t reach = (uint64_t{2} << k) - 1, begin = first > reach ? first - reach : 0;
      for (uint64_t cell = begin >> k; cell <= (last - 1) >> k; ++cell) {
        looks += level[cell].size();
        for (const Node& node : level[cell])
          if (node.first < last && first < node.last) see(node);
      }
    }
    return looks;
  }

 private:
  static constexpr size_t kFirstLevel = 6;  // shorter lives than 2^6 moments are there too

  std::vector<Node>& cell_of(uint32_t first, uint32_t last) {
    const size_t level = std::max(kFirstLevel, size_t(std::bit_width(last - first)) - 1);
    return levels_[level - kFirstLevel][first >> level];
  }

  std::vector<std::vector<std::vector<Node>>> levels_;  // from kFirstLevel on
};

}  // namespace belay::reuse
