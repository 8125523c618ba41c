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
  const float* divisors = nullptr;  // by output pixel, or null: the results are divided by them
  int64_t divisor_step = 0;         // 0: one for all pixels
};

// Floats of workspace for each lane: a band of a channel of the input with its padding.
int64_t depthwise_scratch(const ConvShape& shape);
void run_depthwise(const Run& run, const ConvShape& shape, uint32_t lanes, const DepthwiseArgs& args,
                   float* workspace);

}  // namespace belay::cpu
