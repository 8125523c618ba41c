// What pools over all spatial dims give to those whose window happens to be as large.
#pragma once

#include "../context.hpp"

namespace belay::cpu {

// The kernel that writes the mean of each of `planes` planes of `pixels` elements of input 0, which is of kFloats.
void average_planes(OpContext& context, int64_t planes, int64_t pixels);

}  // namespace belay::cpu
