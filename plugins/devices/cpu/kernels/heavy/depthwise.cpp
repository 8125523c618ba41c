#include "depthwise.hpp"

#include "lanes.hpp"

#include <cstring>
#include <vector>

namespace belay::cpu {
namespace {

// The input of one channel as the kernel wants it: padded with zeros, so that no tap needs a check, and split
// by what a place is modulo the strides, so that neighbouring outputs always read neighbours. The outputs of
// one slice are then one run, whatever the strides; its places behind the end of a row are computed too and
// left out when rows are stored.
struct Planes {
  int64_t rows = 0, pitch = 0;  // of one part
  int64_t part = 0, slice = 0;  // floats
  int64_t slices = 0;
  explicit Planes(const Window& w) {
    const auto padded = [&](int d) {
      return std::max<int64_t>((w.out[d] - 1) * w.stride[d] + w.reach(d), 1);
    };
    rows = ceil_div(padded(1), w.stride[1]);
    pitch = ceil_div(padded(2), w.stride[2]);
    part = rows * pitch;
    slice = part * w.stride[1] * w.stride[2];
    slices = padded(0);
  }
  // Where the place (d, h, k) of the padded input is.
  int64_t at(const Window& w, int64_t d, int64_t h, int64_t k) const {
    return d * slice + (h % w.stride[1] * w.stride[2] + k % w.stride[2]) * part + h / w.stride[1] * pitch +
           k / w.stride[2];
  }
  int64_t size() const { return round_up(slices * slice + 32, 16); }
  // Rows of the output computed at once, which stay in the first-level cache.
  int64_t chunk() const { return std::max<int64_t>(1, 2048 / pitch); }
  int64_t sums() const { return round_up(chunk() * pitch, 16) + 16; }
};

// What of an input row goes where in the parts of one row; the same for all rows.
struct Phase {
  int64_t first, count, to;
};
std::vector<Phase> phases_of(const Window& w, const Planes& planes) {
  std::vector<Phase> out;
  const int64_t stride = w.stride[2];
  for (int64_t phase = 0; phase < stride; ++phase) {
    // Input columns whose padded place is `phase` modulo the stride.
    const int64_t first = ((phase - w.begin[2]) % stride + stride) % stride;
    const int64_t at = (first + w.begin[2]) / stride;
    const int64_t count =
        std::min(ceil_div(std::max<int64_t>(0, w.in[2] - first), stride), planes.pitch - at);
    if (count > 0) out.push_back({first, count, phase * planes.part + at});
  }
  return out;
}

// Only the places that the input has; the others are zero and stay so.
void fill(const Window& w, const Planes& planes, const std::vector<Phase>& phases, const float* x,
          float* to) {
  const auto copy = micro().copy_row;
  const int64_t depth = std::min(w.in[0], planes.slices - w.begin[0]);
  const int64_t rows = std::min(w.in[1], planes.rows * w.stride[1] - w.begin[1]);
  for (int64_t d = 0; d < depth; ++d) {
    int64_t part = w.begin[1] % w.stride[1], row = w.begin[1] / w.stride[1];
    for (int64_t h = 0; h < rows; ++h) {
      const float* from = x + (d * w.in[1] + h) * w.in[2];
      float* base =
          to + (d + w.begin[0]) * planes.slice + part * w.stride[2] * planes.part + row * planes.pitch;
      for (const Phase& phase : phases) copy(base + phase.to, from + phase.first, phase.count, w.stride[2]);
      if (++part == w.stride[1]) part = 0, ++row;
    }
  }
}

}  // namespace

int64_t depthwise_scratch(const ConvShape& shape) {
  const Planes planes(shape.window);
  return planes.size() + planes.sums();
}

void run_depthwise(const Run& run, const ConvShape& shape, uint32_t lanes, const DepthwiseArgs& args,
                   float* workspace) {
  const Window& w = shape.window;
  const Planes planes(w);
  const int64_t scratch = depthwise_scratch(shape), columns = w.out[2];
  Dims offsets;
  for (int64_t d = 0; d < w.kernel[0]; ++d)
    for (int64_t h = 0; h < w.kernel[1]; ++h)
      for (int64_t k = 0; k < w.kernel[2]; ++k)
        offsets.push_back(planes.at(w, d * w.dilation[0], h * w.dilation[1], k * w.dilation[2]));
  const int64_t taps = w.volume(), multiplier = shape.group_outputs(), pixels = w.pixels_out();
  const std::vector<Phase> phases = phases_of(w, planes);
  const int64_t chunk = planes.chunk();
  const Micro& loops = micro();
  const auto copy = loops.copy_row;
  // Short rows: the activation takes all of them, and what is between, at once.
  const bool together = columns < 32 && !args.residual && !args.post.none();
  for (int64_t lane = 0; lane < int64_t(lanes); ++lane)
    std::memset(workspace + lane * scratch, 0, size_t(planes.size()) * sizeof(float));

  run_lanes(run, shape.batch * shape.inputs, lanes, [&](int64_t channel, int64_t lane) {
    float* const padded = workspace + lane * scratch;
    float* const sums = padded + planes.size();
    fill(w, planes, phases, args.x + channel * w.pixels_in(), padded);
    for (int64_t m = 0; m < multiplier; ++m) {
      const int64_t output = channel % shape.inputs * multiplier + m;
      const int64_t at = (channel / shape.inputs * shape.outputs + output) * pixels;
      const float bias = args.bias ? args.bias[output] : 0.0f;
      float* y = args.y + at;
      const float* residual = args.residual ? args.residual + at : nullptr;
      for (int64_t d = 0; d < w.out[0]; ++d)
        for (int64_t h = 0; h < w.out[1]; h += chunk) {
          const int64_t rows = std::min(chunk, w.out[1] - h);
          const float* from = padded + d * w.stride[0] * planes.slice + h * planes.pitch;
          const int64_t count = round_up((rows - 1) * planes.pitch + columns, 16);
          loops.taps(sums, count, from, offsets.data(), args.weights + output * taps, taps, bias);
          if (together) args.post.apply(sums, count, output);
          for (int64_t r = 0; r < rows; ++r, y += columns) {
            float* row = sums + r * planes.pitch;
            if (residual) {
              simd().binary[size_t(Binary::kAdd)](row, 1, residual, 1, row, columns);
              residual += columns;
            }
            if (together || args.post.none())
              copy(y, row, columns, 1);
            else
              args.post.apply_to(row, y, columns, output);
          }
        }
    }
  });
}

}  // namespace belay::cpu
