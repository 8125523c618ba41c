#include "planner/sweep.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

namespace belay::reuse {
namespace {

// The gaps between the buffers that live, by offset and by size; above the highest everything is free.
class Gaps {
 public:
  explicit Gaps(uint64_t floor) : end_(floor) {}

  uint64_t take(uint64_t bytes, uint64_t align) {
    for (auto at = by_size_.lower_bound({bytes, 0}); at != by_size_.end(); ++at) {
      const auto [size, from] = *at;
      const uint64_t offset = align_up(from, align);
      if (offset - from > size || size - (offset - from) < bytes) continue;
      erase(from, size);
      add(from, offset - from);
      add(offset + bytes, from + size - offset - bytes);
      return offset;
    }
    const uint64_t offset = align_up(end_, align);
    add(end_, offset - end_);
    end_ = offset + bytes;
    return offset;
  }

  void give(uint64_t offset, uint64_t bytes) {
    auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.end() && after->first == offset + bytes) {
      bytes += after->second;
      after = erase(after->first, after->second);
    }
    if (after != by_offset_.begin()) {
      const auto [from, size] = *std::prev(after);
      if (from + size == offset) {
        erase(from, size);
        offset = from;
        bytes += size;
      }
    }
    if (offset + bytes == end_)
      end_ = offset;
    else
      add(offset, bytes);
  }

 private:
  void add(uint64_t from, uint64_t size) {
    if (!size) return;
    by_offset_[from] = size;
    by_size_.emplace(size, from);
  }
  std::map<uint64_t, uint64_t>::iterator erase(uint64_t from, uint64_t size) {
    by_size_.erase({size, from});
    return by_offset_.erase(by_offset_.find(from));
  }

  uint64_t end_;
  std::map<uint64_t, uint64_t> by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
};

}  // namespace

std::vector<uint64_t> sweep(std::vector<SweepBuffer> buffers,
                            const std::vector<std::pair<uint32_t, uint32_t>>& conflicts) {
  std::vector<uint64_t> offsets(buffers.size(), 0);
  // The earlier of a conflict lives until the later one begins; so both are alive at once and cannot share.
  const std::vector<SweepBuffer> given = conflicts.empty() ? std::vector<SweepBuffer>() : buffers;
  for (const auto& [a, b] : conflicts) {
    for (const uint32_t i : {a, b}) buffers[i].end = std::max(buffers[i].end, buffers[i].begin + 1);
    const bool a_first = given[a].begin <= given[b].begin;
    SweepBuffer& earlier = buffers[a_first ? a : b];
    earlier.end = std::max(earlier.end, given[a_first ? b : a].begin + 1);
  }
  uint64_t floor = 0;
  std::vector<uint32_t> starts, ends;
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].fixed != UINT64_MAX) {
      offsets[i] = buffers[i].fixed;
      floor = std::max(floor, buffers[i].fixed + buffers[i].bytes);
    } else if (buffers[i].bytes && buffers[i].begin < buffers[i].end) {
      starts.push_back(i);
    }
  }
  ends = starts;
  const auto order = [](std::vector<uint32_t>& which, auto key) {
    std::sort(which.begin(), which.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  };
  order(starts, [&](uint32_t i) { return std::tuple(buffers[i].begin, ~buffers[i].bytes, i); });
  order(ends, [&](uint32_t i) { return std::tuple(buffers[i].end, i); });
  Gaps gaps(floor);
  auto ended = ends.begin();
  for (const uint32_t i : starts) {
    for (; ended != ends.end() && buffers[*ended].end <= buffers[i].begin; ++ended)
      gaps.give(offsets[*ended], buffers[*ended].bytes);
    offsets[i] = gaps.take(buffers[i].bytes, buffers[i].align);
  }
  return offsets;
}

}  // namespace belay::reuse
