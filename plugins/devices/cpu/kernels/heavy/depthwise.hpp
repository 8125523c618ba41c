// Convolutions with one input channel for each group, float32.
#pragma once

#include "conv.hpp"

namespace belay::cpu {

struct DepthwiseArgs {
  const float* x = nullptr;
  const float* weights = nullptr;   // (outputs, 1, spatial ...)
  const float* bias = nullptr;      // by output channel, or null
  const float* residual = nullptr;  // as y, or null
  float* y = nullptr;
  Post post;
};

// Floats of workspace for each lane: a band of a channel of the input with its padding.
int64_t depthwise_scratch(const ConvShape& shape);
void run_depthwise(const Run& run, const ConvShape& shape, uint32_t lanes, const DepthwiseArgs& args,
                   float* workspace);

}  // namespace belay::cpu
