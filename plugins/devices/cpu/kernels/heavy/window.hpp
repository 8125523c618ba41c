// Geometry of convolutions and pools: kernel, strides, dilations and pads over the spatial dims, as ONNX
// defines them.
#pragma once

#include "../context.hpp"

namespace belay::cpu {

// Always three spatial dims: depth, height, width; those that the operator does not have come first and
// are 1.
struct Window {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t begin[3] = {0, 0, 0}, end[3] = {0, 0, 0};  // pads
  size_t rank = 0;                                   // spatial dims of the operator, 1 to 3

  int64_t pixels_in() const { return in[0] * in[1] * in[2]; }
  int64_t pixels_out() const { return out[0] * out[1] * out[2]; }
  int64_t volume() const { return kernel[0] * kernel[1] * kernel[2]; }
  // How far the kernel extends over dim d, in elements of the input.
  int64_t reach(int d) const { return (kernel[d] - 1) * dilation[d] + 1; }
  // The positions [first, last) of the kernel that meet the input along dim d, of the window that begins at place
  // `from` (negative: in the pad). A kernel may be far larger than what it meets.
  struct Part {
    int64_t first, last;
  };
  Part part(int d, int64_t from) const { return part(d, from, from); }
  // The same for any window that begins in [from, to].
  Part part(int d, int64_t from, int64_t to) const;
  // Each output reads the input at its own place, and nothing else.
  bool pointwise() const;
  // Spatial dims of the output, as many as the operator has.
  Dims out_dims() const { return Dims(out + (3 - rank), out + 3); }
};

struct WindowRules {
  bool ceil_mode = false;
  bool transposed = false;  // ConvTranspose: `out` is computed by the caller
};

// Reads auto_pad, pads, strides and dilations of the node. `x` is the input's shape (N, C, spatial ...),
// `kernel` the kernel's spatial dims. Fails naming the attribute.
Status read_window(const OpContext& context, const Attributes& attributes, const Dims& x,
                   std::span<const int64_t> kernel, const WindowRules& rules, Window& window);

// A list attribute of `rank` numbers of at least `least`, or `otherwise` for each.
Result<std::vector<int64_t>> spatial_list(const OpContext& context, const Attributes& attributes,
                                          std::string_view name, size_t rank, int64_t otherwise,
                                          int64_t least);

}  // namespace belay::cpu
