// plan_checker.hpp: checks a static plan step by step, in the simplest way there is; shares no code with what
// it checks.
#pragma once

#include <belay/abi/memory_policy.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace belay::testing {

// A request that owns its arrays.
struct PlanProblem {
  struct Buffer {
    uint64_t bytes = 0, begin = 0, end = 0, align = 64, fixed = BELAY_OFFSET_FREE;
    uint32_t arena = 0;
    std::vector<belay_interval> more = {};  // further intervals, after the first
  };
  std::vector<Buffer> buffers = {};
  std::vector<belay_pair> conflicts = {}, in_place = {};
  uint64_t arenas = 1, budget_ns = 0, seed = 1;
};

struct PlanAnswer {
  std::vector<uint64_t> offset, peak, lower_bound;
  uint64_t optimal = 0;

  // Makes room for the answer to a problem; what it gives writes there.
  belay_plan_result room_for(const PlanProblem& problem) {
    offset.resize(problem.buffers.size());
    peak.resize(problem.arenas);
    lower_bound.resize(problem.arenas);
    belay_plan_result result{};
    result.hdr.struct_size = sizeof result;
    result.offset = offset.data();
    result.peak = peak.data();
    result.lower_bound = lower_bound.data();
    return result;
  }
};

// Keeps the arrays of a request alive.
class PlanRequest {
 public:
  explicit PlanRequest(const PlanProblem& problem) : problem_(problem) {
    first_.push_back(0);
    for (const auto& b : problem_.buffers) {
      bytes_.push_back(b.bytes);
      align_.push_back(b.align);
      arena_.push_back(b.arena);
      fixed_.push_back(b.fixed);
      intervals_.push_back({b.begin, b.end});
      intervals_.insert(intervals_.end(), b.more.begin(), b.more.end());
      first_.push_back(intervals_.size());
    }
  }
  belay_plan_req req() const {
    belay_plan_req req{};
    req.hdr.struct_size = sizeof req;
    req.count = bytes_.size();
    req.bytes = bytes_.data();
    req.align = align_.data();
    req.arena = arena_.data();
    req.arena_count = problem_.arenas;
    req.interval_first = first_.data();
    req.intervals = intervals_.data();
    req.conflicts = problem_.conflicts.data();
    req.conflict_count = problem_.conflicts.size();
    req.in_place = problem_.in_place.data();
    req.in_place_count = problem_.in_place.size();
    req.fixed_offset = fixed_.data();
    req.budget_ns = problem_.budget_ns;
    req.seed = problem_.seed;
    return req;
  }

 private:
  const PlanProblem& problem_;
  std::vector<uint64_t> bytes_, align_, fixed_, first_;
  std::vector<uint32_t> arena_;
  std::vector<belay_interval> intervals_;
};

inline bool lives_at(const PlanProblem::Buffer& b, uint64_t step) {
  if (step >= b.begin && step < b.end) return true;
  for (const belay_interval& at : b.more)
    if (step >= at.begin && step < at.end) return true;
  return false;
}

// Empty, or what is wrong.
inline std::string check(const PlanProblem& problem, const PlanAnswer& answer) {
  const auto& all = problem.buffers;
  const auto overlap = [&](size_t a, size_t b) {
    return all[a].arena == all[b].arena && answer.offset[a] < answer.offset[b] + all[b].bytes &&
           answer.offset[b] < answer.offset[a] + all[a].bytes && all[a].bytes && all[b].bytes;
  };
  std::set<std::pair<uint32_t, uint32_t>> in_place, conflicts;
  for (const belay_pair& pair : problem.in_place) in_place.insert({pair.first, pair.second});
  for (const belay_pair& pair : problem.conflicts) conflicts.insert(std::minmax(pair.first, pair.second));
  for (uint32_t i = 0; i < all.size(); ++i) {
    const std::string who = "buffer " + std::to_string(i);
    if (answer.offset[i] % all[i].align) return who + " is not aligned";
    if (all[i].fixed != BELAY_OFFSET_FREE && answer.offset[i] != all[i].fixed)
      return who + " moved from where it is fixed";
    if (all[i].bytes && answer.offset[i] + all[i].bytes > answer.peak[all[i].arena])
      return who + " lies above the peak";
    for (uint32_t k = i + 1; k < all.size(); ++k) {
      if (!overlap(i, k)) continue;
      if (conflicts.contains({i, k})) return who + " overlaps a buffer that it conflicts with";
      uint64_t last = 0;
      for (const auto* b : {&all[i], &all[k]}) {
        last = std::max(last, b->end);
        for (const belay_interval& at : b->more) last = std::max(last, at.end);
      }
      for (uint64_t step = 0; step < last; ++step) {
        if (!lives_at(all[i], step) || !lives_at(all[k], step)) continue;
        const bool pair = (in_place.contains({i, k}) && all[i].end == step + 1 && all[k].begin == step) ||
                          (in_place.contains({k, i}) && all[k].end == step + 1 && all[i].begin == step);
        if (!pair || answer.offset[i] != answer.offset[k])
          return who + " overlaps buffer " + std::to_string(k) + " at step " + std::to_string(step);
      }
    }
  }
  return "";
}

}  // namespace belay::testing
