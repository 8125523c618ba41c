#include "depthwise.hpp"

#include "lanes.hpp"

#include <cstring>

namespace belay::cpu {
namespace {

// The input of one channel as the kernel wants it: padded with zeros, so that no tap needs a check.
struct Plane {
  int64_t size[3];  // padded
  explicit Plane(const Window& w) {
    for (int d = 0; d < 3; ++d)
      size[d] = std::max((w.out[d] - 1) * w.stride[d] + w.reach(d), int64_t{1});
  }
  int64_t count() const { return size[0] * size[1] * size[2]; }
};

bool needs_padding(const Window& w) {
  for (int d = 0; d < 3; ++d)
    if (w.begin[d] > 0 || (w.out[d] - 1) * w.stride[d] + w.reach(d) - w.begin[d] > w.in[d]) return true;
  return false;
}

// Of what the padded plane has, the input may cover less or (where windows stop early) more.
void pad_plane(const Window& w, const Plane& plane, const float* x, float* to) {
  const int64_t columns = std::max<int64_t>(0, std::min(w.in[2], plane.size[2] - w.begin[2]));
  const int64_t tail = std::max<int64_t>(0, plane.size[2] - w.begin[2] - columns);
  const int64_t lead = std::min(w.begin[2], plane.size[2]);
  for (int64_t d = 0; d < plane.size[0]; ++d)
    for (int64_t h = 0; h < plane.size[1]; ++h, to += plane.size[2]) {
      const int64_t id = d - w.begin[0], ih = h - w.begin[1];
      if (id < 0 || id >= w.in[0] || ih < 0 || ih >= w.in[1]) {
        std::memset(to, 0, size_t(plane.size[2]) * sizeof(float));
        continue;
      }
      for (int64_t i = 0; i < lead; ++i) to[i] = 0;
      std::memcpy(to + lead, x + (id * w.in[1] + ih) * w.in[2], size_t(columns) * sizeof(float));
      for (int64_t i = 0; i < tail; ++i) to[lead + columns + i] = 0;
    }
}

}  // namespace

int64_t depthwise_scratch(const ConvShape& shape) {
  return needs_padding(shape.window) ? round_up(Plane(shape.window).count() + 16, 16) : 0;
}

void run_depthwise(const Run& run, const ConvShape& shape, uint32_t lanes, const DepthwiseArgs& args, float* workspace) {
  const Window& w = shape.window;
  const bool pad = needs_padding(w);
  const Plane plane(w);
  const int64_t scratch = depthwise_scratch(shape);
  const int64_t width = pad ? plane.size[2] : w.in[2], height = pad ? plane.size[1] : w.in[1];
  Dims offsets;
  for (int64_t d = 0; d < w.kernel[0]; ++d)
    for (int64_t h = 0; h < w.kernel[1]; ++h)
      for (int64_t k = 0; k < w.kernel[2]; ++k)
        offsets.push_back((d * w.dilation[0] * height + h * w.dilation[1]) * width + k * w.dilation[2]);
  const int64_t taps = w.volume(), multiplier = shape.group_outputs(), pixels = w.pixels_out();

  run_lanes(run, shape.batch * shape.inputs, lanes, [&](int64_t channel, int64_t lane) {
    const float* x = args.x + channel * w.pixels_in();
    if (pad) {
      float* padded = workspace + lane * scratch;
      pad_plane(w, plane, x, padded);
      x = padded;
    }
    for (int64_t m = 0; m < multiplier; ++m) {
      const int64_t output = channel % shape.inputs * multiplier + m;
      const int64_t at = (channel / shape.inputs * shape.outputs + output) * pixels;
      const float bias = args.bias ? args.bias[output] : 0.0f;
      float* y = args.y + at;
      const float* residual = args.residual ? args.residual + at : nullptr;
      for (int64_t d = 0; d < w.out[0]; ++d)
        for (int64_t h = 0; h < w.out[1]; ++h, y += w.out[2]) {
          const float* row = x + (d * w.stride[0] * height + h * w.stride[1]) * width;
          micro().taps(y, w.out[2], w.stride[2], row, offsets.data(), args.weights + output * taps, taps, bias);
          if (residual) {
            simd().binary[size_t(Binary::kAdd)](y, 1, residual, 1, y, w.out[2]);
            residual += w.out[2];
          }
          args.post.apply(y, w.out[2], output);
        }
    }
  });
}

}  // namespace belay::cpu
