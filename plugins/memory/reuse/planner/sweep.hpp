// planner/sweep.hpp: places buffers in the order in which their lives begin, in memory linear in their
// number: for requests of which so many buffers live at once that a list of those that meet would not fit.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace belay::reuse {

inline uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) & ~(align - 1); }

struct SweepBuffer {
  uint64_t bytes = 0, align = 1;
  uint64_t begin = 0, end = 0;  // first step, one past the last; gaps count as life
  uint64_t fixed = UINT64_MAX;  // offset, or UINT64_MAX
};

// The offset of each buffer: best fit among the gaps of what lives at its first step, above all fixed
// buffers. Two buffers of a conflict are kept apart although their lives do not meet.
std::vector<uint64_t> sweep(std::vector<SweepBuffer> buffers,
                            const std::vector<std::pair<uint32_t, uint32_t>>& conflicts);

}  // namespace belay::reuse
