// Convolutions: forward, by products over gathered pixels or by taps where each channel has a kernel of its
// own.
#pragma once

#include "../context.hpp"
#include "post.hpp"
#include "product.hpp"
#include "window.hpp"

namespace belay::cpu {

// Sizes of a convolution whose weights are (outputs, inputs / groups, spatial ...).
struct ConvShape {
  Window window;
  int64_t batch = 0, inputs = 0, outputs = 0, groups = 1;
  int64_t group_inputs() const { return inputs / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t depth() const { return group_inputs() * window.volume(); }  // terms of one output
  bool depthwise() const { return groups == inputs && groups > 1; }
  Dims out_dims() const;
};

// Reads and checks shapes and attributes of a node with input `x` and weights `w` (positions of the
// operands).
Status read_conv(const OpContext& context, const Attributes& attributes, size_t x, size_t w,
                 ConvShape& shape);

// The pixels that a group's kernel sees, as B of a product: row (channel, kernel position), column output
// pixel.
template <class In>
struct Patches {
  const In* x = nullptr;  // first channel of the group
  const Window* window = nullptr;
  In zero{};  // zero point: taken off; outside the input there is zero after that
};
// What a fused Conv adds to the node's own operands.
struct ConvFusion {
  int bias =
      -1;  // operand added to each channel, of type float32; replaces nothing: `scale` is in the weights
  int residual = -1;  // operand of the output's shape, added before the activation
  Post post;
  int slopes = -1;  // operand with a slope for each channel, or one

  // The activation of a run; `one_slope`: the operand has one.
  Post post_of(const Run& run, bool one_slope) const {
    Post out = post;
    if (slopes >= 0) {
      const float* values = run.in<float>(size_t(slopes));
      if (one_slope)
        out.a = *values;
      else
        out.slopes = values;
    }
    return out;
  }
};

// Constant float32 weights (operand 1) of all groups as rows of products; group g begins at g *
// packed_rows_size(outputs / groups, depth).
std::shared_ptr<const Packed> pack_conv_rows(OpContext& context, const ConvShape& shape);

// Prepares a float32 convolution; the operands' positions are those of the node: 0 input, 1 weights, 2 bias.
Status prepare_conv(OpContext& context, const Attributes& attributes, const ConvFusion& fusion);

}  // namespace belay::cpu
