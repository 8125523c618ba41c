// planner/crises.hpp: the moments at which most must live at once, in the order of need.
#pragma once

#include "planner/arena.hpp"

namespace belay::reuse {

// For each of `which`, the number of the moment that takes it: the first is the one with most live bytes, the
// next the one with most of those that the first did not take, and so on. Gaps count as life. n log n.
std::vector<uint32_t> crises_of(const Arena& arena, const std::vector<uint32_t>& which);

}  // namespace belay::reuse
