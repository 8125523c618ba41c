#include "plan/memory.hpp"

namespace belay::plan {

Result<ArenaPlan> place_buffers(const Hal& hal, const std::vector<ArenaBuffer>& buffers,
                                const std::vector<belay_pair>& in_place) {
  ArenaPlan out;
  if (buffers.empty()) return out;
  std::vector<uint64_t> bytes, first{0};
  std::vector<belay_interval> intervals;
  for (const ArenaBuffer& buffer : buffers) {
    bytes.push_back(buffer.bytes);
    intervals.push_back({buffer.begin, buffer.end});
    first.push_back(intervals.size());
  }
  belay_plan_req req{};
  req.hdr.struct_size = sizeof req;
  req.count = buffers.size();
  req.bytes = bytes.data();
  req.arena_count = 1;
  req.interval_first = first.data();
  req.intervals = intervals.data();
  req.in_place = in_place.data();
  req.in_place_count = in_place.size();
  // A microsecond for each buffer: planning must stay small beside preparing kernels.
  req.budget_ns = 200'000 + 1'000 * buffers.size();
  req.seed = 1;
  out.offsets.resize(buffers.size());
  uint64_t peak = 0, bound = 0;
  belay_plan_result result{};
  result.hdr.struct_size = sizeof result;
  result.offset = out.offsets.data();
  result.peak = &peak;
  result.lower_bound = &bound;
  BELAY_TRY(hal.check(hal.vt->plan(hal.host, &req, &result)).while_doing("placing intermediate tensors"));
  out.bytes = peak;
  out.live_bytes = bound;
  return out;
}

}  // namespace belay::plan
