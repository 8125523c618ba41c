#include "plan/memory.hpp"

#include <algorithm>
#include <unordered_map>

namespace belay::plan {

bool ArenaLayout::holds(const std::vector<ArenaBuffer>& others,
                        const std::vector<belay_pair>& others_in_place) const {
  const auto fits = [](const ArenaBuffer& mine, const ArenaBuffer& other) {
    return mine.owner == other.owner && mine.begin == other.begin && mine.end == other.end &&
           other.bytes <= mine.bytes;
  };
  const auto same = [](const belay_pair& a, const belay_pair& b) {
    return a.first == b.first && a.second == b.second;
  };
  return std::equal(buffers.begin(), buffers.end(), others.begin(), others.end(), fits) &&
         std::equal(in_place.begin(), in_place.end(), others_in_place.begin(), others_in_place.end(), same);
}

void add_room(std::vector<ArenaBuffer>& buffers, const std::vector<ArenaBuffer>& before, uint64_t percent) {
  std::unordered_map<uint64_t, uint64_t> sizes;
  for (const ArenaBuffer& buffer : before) sizes[buffer.owner] = buffer.bytes;
  for (ArenaBuffer& buffer : buffers) {
    const auto at = sizes.find(buffer.owner);
    uint64_t room = 0, bytes = 0;
    if (at == sizes.end() || at->second == buffer.bytes ||
        __builtin_mul_overflow(buffer.bytes, percent, &room) ||
        __builtin_add_overflow(buffer.bytes, room / 100, &bytes))
      continue;
    buffer.bytes = bytes;
  }
}

Status place_buffers(const Hal& hal, ArenaLayout& layout) {
  if (layout.buffers.empty()) return {};
  std::vector<uint64_t> bytes, first{0};
  std::vector<belay_interval> intervals;
  for (const ArenaBuffer& buffer : layout.buffers) {
    bytes.push_back(buffer.bytes);
    intervals.push_back({buffer.begin, buffer.end});
    first.push_back(intervals.size());
  }
  belay_plan_req req{};
  req.hdr.struct_size = sizeof req;
  req.count = layout.buffers.size();
  req.bytes = bytes.data();
  req.arena_count = 1;
  req.interval_first = first.data();
  req.intervals = intervals.data();
  req.in_place = layout.in_place.data();
  req.in_place_count = layout.in_place.size();
  // No time, but the policy's quick answer: what a clock ends differs from load to load, and with the kernels that
  // write over an input the last digits of outputs.
  req.budget_ns = 0;
  req.seed = 1;
  layout.offsets.resize(layout.buffers.size());
  belay_plan_result result{};
  result.hdr.struct_size = sizeof result;
  result.offset = layout.offsets.data();
  result.peak = &layout.bytes;
  result.lower_bound = &layout.live_bytes;
  return hal.check(hal.vt->plan(hal.host, &req, &result)).while_doing("placing intermediate tensors");
}

}  // namespace belay::plan
