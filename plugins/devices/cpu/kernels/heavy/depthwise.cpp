#include "depthwise.hpp"

#include "planes.hpp"

#include <cstring>

namespace belay::cpu {

int64_t depthwise_scratch(const ConvShape& shape) { return Planes::of_bands(shape.window).size(); }

void run_depthwise(const Run& run, const ConvShape& shape, uint32_t lanes, const DepthwiseArgs& args,
                   float* workspace) {
  const Window& w = shape.window;
  const Planes planes = Planes::of_bands(w);
  const int64_t size = planes.size();
  Dims offsets;
  for (int64_t d = 0; d < w.kernel[0]; ++d)
    for (int64_t h = 0; h < w.kernel[1]; ++h)
      for (int64_t k = 0; k < w.kernel[2]; ++k)
        offsets.push_back(planes.at(w, d * w.dilation[0], h * w.dilation[1], k * w.dilation[2]));
  const int64_t taps = w.volume(), multiplier = shape.group_outputs(), pixels = w.pixels_out();
  const auto all = [](const int64_t(&values)[3], int64_t value) {
    return values[1] == value && values[2] == value;
  };
  DepthwiseRows rows;
  rows.x_step = planes.pitch;
  rows.columns = w.out[2];
  rows.offsets = offsets.data();
  rows.taps = taps;
  if (w.kernel[0] == 1 && all(w.stride, 1) && all(w.dilation, 1) && w.kernel[1] == w.kernel[2] &&
      (w.kernel[1] == 3 || w.kernel[1] == 5))
    rows.side = w.kernel[1];
  TileEnd<float> end;
  args.post.clamp_into(end);
  rows.clamp = end.clamp, rows.low = end.low, rows.high = end.high;
  const bool act = !args.post.none() && !end.clamp;
  for (int64_t lane = 0; lane < int64_t(lanes); ++lane)
    std::memset(workspace + lane * size, 0, size_t(size) * sizeof(float));

  run_lanes(run, shape.batch * shape.inputs, lanes, [&](int64_t channel, int64_t lane) {
    float* const padded = workspace + lane * size;
    DepthwiseRows part = rows;
    for (int64_t h = 0; h < w.out[1]; h += planes.out_rows) {
      fill_band(w, planes, args.x + channel * w.pixels_in(), h, padded);
      part.rows = std::min(planes.out_rows, w.out[1] - h);
      for (int64_t m = 0; m < multiplier; ++m) {
        const int64_t output = channel % shape.inputs * multiplier + m;
        part.w = args.weights + output * taps;
        part.start = args.bias ? args.bias[output] : 0.0f;
        for (int64_t d = 0; d < w.out[0]; ++d) {
          const int64_t at = (channel / shape.inputs * shape.outputs + output) * pixels + (d * w.out[1] + h) * w.out[2];
          part.x = padded + d * w.stride[0] * planes.slice;
          part.y = args.y + at;
          part.residual = args.residual ? args.residual + at : nullptr;
          micro().depthwise(part);
          const int64_t n = part.rows * part.columns;
          if (act) args.post.apply(part.y, n, output);
          if (args.divisors)
            simd().binary[size_t(Binary::kDiv)](part.y, 1, args.divisors + (d * w.out[1] + h) * w.out[2] * args.divisor_step,
                                                args.divisor_step, part.y, n);
        }
      }
    }
  });
}

}  // namespace belay::cpu
