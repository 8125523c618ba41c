// planner.hpp: places buffers with known lifetimes in arenas, near the least memory possible. Arithmetic
// only: pure, and the same answer for equal requests with equal seeds where the budget does not end the
// search.
#pragma once

#include <belay/abi/memory_policy.h>
#include <belay/status.hpp>

namespace belay::reuse {

// Fills offsets, peaks and lower bounds. Errors: INVALID_ARGUMENT (names the buffer).
Status plan(const belay_plan_req& req, belay_plan_result& result);

}  // namespace belay::reuse
