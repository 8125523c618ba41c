// planner/arena.hpp: one arena's share of a plan request, with its steps numbered without gaps.
#pragma once

#include <belay/abi/memory_policy.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace belay::reuse {

inline uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) & ~(align - 1); }

struct Buffer {
  uint32_t id = 0;  // in the request
  // Alive from moment `first` to just before `last`, with gaps where it has several intervals. Moments number
  // the steps at which something begins or ends. Equal where it takes no memory.
  uint32_t first = 0, last = 0;
  uint64_t bytes = 0, align = 1, fixed = BELAY_OFFSET_FREE;
  uint64_t life = 0;  // steps
  bool gaps = false;
};

struct Arena {
  Arena(const belay_plan_req& request, uint32_t index);

  // Whether two buffers, whose first and last moments overlap, live at one moment.
  bool meet(uint32_t a, uint32_t b) const {
    return !gaps || !(buffers[a].gaps || buffers[b].gaps) || meet_in_steps(a, b);
  }
  // Buffers that must not share memory with this one although they do not meet.
  std::span<const uint32_t> conflicts(uint32_t buffer) const { return conflicts_.of(buffer); }
  // Buffers that this one meets in one step, where one is made from the other: they may overlap where both
  // have the same offset.
  std::span<const uint32_t> partners(uint32_t buffer) const { return partners_.of(buffer); }
  // Gives each(first, last) the moments of the intervals in which a buffer lives, in order.
  template <class Each>
  void each_life(uint32_t buffer, Each&& each) const {
    const Buffer& b = buffers[buffer];
    if (!b.gaps) return each(b.first, b.last);
    for (uint64_t k = req.interval_first[b.id]; k < req.interval_first[b.id + 1]; ++k)
      if (req.intervals[k].begin < req.intervals[k].end)
        each(moment_of(req.intervals[k].begin), moment_of(req.intervals[k].end));
  }
  bool lifetimes_only() const { return lifetimes_only_; }  // nothing fixed, no conflicts
  bool plain() const { return lifetimes_only_ && partners_.pairs.empty(); }

  const belay_plan_req& req;
  std::vector<Buffer> buffers;
  uint32_t moments = 0;
  bool gaps = false;         // some buffer has them
  uint64_t lower_bound = 0;  // the maximum of live bytes; partners that may share count once where they meet

 private:
  // Lists of buffers, by buffer; most have none.
  struct Lists {
    std::vector<std::pair<uint32_t, uint32_t>> pairs;  // sorted
    std::vector<uint32_t> first, others;
    void finish(size_t count);
    std::span<const uint32_t> of(uint32_t buffer) const {
      if (first.empty()) return {};
      return {others.data() + first[buffer], first[buffer + 1] - first[buffer]};
    }
  };
  uint32_t moment_of(uint64_t step) const {
    return uint32_t(std::lower_bound(steps_.begin(), steps_.end(), step) - steps_.begin());
  }
  bool meet_in_steps(uint32_t a, uint32_t b) const;
  void number_moments();
  void find_bound();

  std::vector<uint64_t> steps_;  // of each moment; kept where there are gaps
  Lists conflicts_, partners_;
  bool lifetimes_only_ = true;
};

}  // namespace belay::reuse
