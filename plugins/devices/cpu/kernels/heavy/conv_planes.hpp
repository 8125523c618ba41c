// Convolutions of few terms: products whose pixels are read from padded copies of the input, one for each channel,
// and not gathered for each position of the kernel.
#pragma once

#include "conv.hpp"

namespace belay::cpu {

// Whether reading planes is faster than gathering pixels. Depends on the shape alone.
bool planes_fit(const ConvShape& shape);
Status prepare_planes(OpContext& context, const ConvShape& shape, const ConvFusion& fusion);

}  // namespace belay::cpu
