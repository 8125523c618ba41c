// Convolutions: forward, by products over gathered pixels or by taps where each channel has a kernel of its
// own.
#pragma once

#include "../context.hpp"
#include "post.hpp"
#include "product.hpp"
#include "window.hpp"

#include <algorithm>

namespace belay::cpu {

// Sizes of a convolution whose weights are (outputs, inputs / groups, spatial ...).
struct ConvShape {
  Window window;
  int64_t batch = 0, inputs = 0, outputs = 0, groups = 1;
  // Of the weights as they are given, whose taps from `first_tap` on are those of the window.
  int64_t given_kernel[3] = {1, 1, 1}, first_tap[3] = {0, 0, 0};
  int64_t group_inputs() const { return inputs / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t depth() const { return group_inputs() * window.volume(); }  // terms of one output
  bool depthwise() const { return groups == inputs && groups > 1; }
  bool all_taps() const { return std::ranges::equal(given_kernel, window.kernel); }
  // Leaves taps out that see nothing but padding, wherever the window is; only of weights that are packed.
  void drop_dead_taps();
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
};

// What a run of a fused Conv reads beside input and weights.
class ConvOperands {
 public:
  ConvOperands() = default;
  ConvOperands(const OpContext& context, const ConvFusion& fusion)
      : residual_(fusion.residual), slopes_(fusion.slopes), post_(fusion.post) {
    const int bias = fusion.bias >= 0 ? fusion.bias : 2;
    if (context.has(size_t(bias))) bias_ = bias;
    one_slope_ = slopes_ >= 0 && context.count(size_t(slopes_)) == 1;
  }

  // Null: there is none.
  template <class T = float>
  const T* bias(const Run& run) const {
    return bias_ >= 0 ? run.in<T>(size_t(bias_)) : nullptr;
  }
  const float* residual(const Run& run) const {
    return residual_ >= 0 ? run.in<float>(size_t(residual_)) : nullptr;
  }
  Post post(const Run& run) const {
    Post out = post_;
    if (slopes_ >= 0) {
      const float* values = run.in<float>(size_t(slopes_));
      if (one_slope_)
        out.a = *values;
      else
        out.slopes = values;
    }
    return out;
  }

 private:
  int bias_ = -1, residual_ = -1, slopes_ = -1;  // positions, or -1
  bool one_slope_ = false;
  Post post_;
};

// Constant float32 weights (operand 1) of all groups as rows of products; group g begins at g *
// packed_rows_size(outputs / groups, depth).
std::shared_ptr<const Packed> pack_conv_rows(OpContext& context, const ConvShape& shape);

// Prepares a float32 convolution; the operands' positions are those of the node: 0 input, 1 weights, 2 bias.
Status prepare_conv(OpContext& context, const Attributes& attributes, const ConvFusion& fusion);

}  // namespace belay::cpu
