// windows.h: where a window of a convolution or a pooling lies in its input.
#pragma once

#include "op.h"

#include <algorithm>

namespace reference {

struct Windows {
  size_t spatial;  // axes after batch and channel
  Dims kernel, strides, dilations, before;

  // `output`: the output's dims, with batch and channel.
  Windows(const Node& node, const Dims& input, const Dims& output, Dims kernel_dims)
      : spatial(input.size() - 2), kernel(std::move(kernel_dims)) {
    strides = node.ints_or("strides", Dims(spatial, 1));
    dilations = node.ints_or("dilations", Dims(spatial, 1));
    const std::string pad = node.string_or("auto_pad", "NOTSET");
    before = node.ints_or("pads", Dims(2 * spatial, 0));
    before.resize(spatial);
    for (size_t d = 0; d < spatial && pad != "NOTSET"; ++d) {
      const int64_t total = std::max<int64_t>(
          0, (output[d + 2] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - input[d + 2]);
      before[d] = pad == "VALID" ? 0 : pad == "SAME_LOWER" ? total - total / 2 : total / 2;
    }
  }

  // The input position under tap `tap` of the window at `at`; false: in the padding.
  bool position(const Dims& at, const Dims& tap, const Dims& input, Dims& out) const {
    for (size_t d = 0; d < spatial; ++d) {
      out[d] = at[d] * strides[d] - before[d] + tap[d] * dilations[d];
      if (out[d] < 0 || out[d] >= input[d + 2]) return false;
    }
    return true;
  }
};

inline Dims tail(const Dims& dims, size_t from) { return Dims(dims.begin() + long(from), dims.end()); }

}  // namespace reference
