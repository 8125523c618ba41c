// Cast where one of the two types is small.
#pragma once

#include "context.hpp"

namespace belay::cpu {

Status prepare_cast_small(OpContext& op, uint32_t to);

}  // namespace belay::cpu
