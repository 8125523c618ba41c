#include "depthwise.hpp"

#include "lanes.hpp"

#include <cstring>

namespace belay::cpu {
namespace {

// The input of one channel as the kernel wants it: padded with zeros, so that no tap needs a check, and split
// by what a place is modulo the strides, so that neighbouring outputs always read neighbours. A band of rows is
// there at a time, which stays in the first-level cache.
struct Planes {
  int64_t out_rows = 0;         // rows of the output in a band
  int64_t rows = 0, pitch = 0;  // of one part
  int64_t part = 0, slice = 0;  // floats
  int64_t slices = 0;
  explicit Planes(const Window& w) {
    slices = padded(w, 0, w.out[0]);
    pitch = ceil_div(padded(w, 2, w.out[2]), w.stride[2]);
    constexpr int64_t kBand = 4096, kTile = 4;
    const int64_t row = slices * pitch * w.stride[1] * w.stride[2];
    out_rows = std::min(w.out[1], std::max(kTile, (kBand / row - (w.kernel[1] > 1 ? 1 : 0)) / kTile * kTile));
    rows = ceil_div(padded(w, 1, out_rows), w.stride[1]);
    part = round_up(rows * pitch + kWindowSlack, 16);
    slice = part * w.stride[1] * w.stride[2];
  }
  static int64_t padded(const Window& w, int d, int64_t out) {
    return std::max<int64_t>((out - 1) * w.stride[d] + w.reach(d), 1);
  }
  // Where the place (d, h, k) of the padded input is.
  int64_t at(const Window& w, int64_t d, int64_t h, int64_t k) const {
    return d * slice + (h % w.stride[1] * w.stride[2] + k % w.stride[2]) * part + h / w.stride[1] * pitch +
           k / w.stride[2];
  }
  int64_t size() const { return slices * slice; }
};

// What the outputs of a band see that begins with row `top` of the output. To the left and to the right of the
// input there is zero, and stays so.
void fill(const Window& w, const Planes& planes, const float* x, int64_t top, float* to) {
  const Micro& loops = micro();
  const int64_t depth = std::min(w.in[0], planes.slices - w.begin[0]), stride = w.stride[2];
  const int64_t columns = std::min(w.in[2], planes.pitch * stride - w.begin[2]);
  if (columns <= 0) return;
  const auto column_at = [&](int64_t place) { return place % stride * planes.part + place / stride; };
  for (int64_t d = 0; d < depth; ++d)
    // Rows that are a stride apart lie one behind the other.
    for (int64_t phase = 0; phase < w.stride[1]; ++phase) {
      const int64_t place = top * w.stride[1] + phase - w.begin[1];  // in the input, of the first of these rows
      const int64_t begin = place >= 0 ? 0 : std::min(planes.rows, ceil_div(-place, w.stride[1]));
      const int64_t end =
          place >= w.in[1] ? begin : std::clamp(ceil_div(w.in[1] - place, w.stride[1]), begin, planes.rows);
      float* const base = to + (d + w.begin[0]) * planes.slice + phase * stride * planes.part;
      for (int64_t part = 0; part < stride; ++part) {
        float* const rows = base + part * planes.part;
        std::memset(rows, 0, size_t(begin * planes.pitch) * sizeof(float));
        std::memset(rows + end * planes.pitch, 0, size_t((planes.rows - end) * planes.pitch) * sizeof(float));
      }
      if (begin == end) continue;
      const int64_t step = w.stride[1] * w.in[2];
      const float* from = x + (d * w.in[1] + place + begin * w.stride[1]) * w.in[2];
      float* const first = base + begin * planes.pitch;
      if (stride == 1) {
        loops.pad_rows(first + w.begin[2], planes.pitch, from, step, end - begin, columns);
      } else if (stride == 2) {
        loops.pad_halves(first + column_at(w.begin[2]), first + column_at(w.begin[2] + 1), planes.pitch, from,
                         step, end - begin, columns);
      } else {
        for (int64_t r = 0; r < end - begin; ++r)
          for (int64_t i = 0; i < std::min(stride, columns); ++i)
            loops.copy_row(first + r * planes.pitch + column_at(w.begin[2] + i), from + r * step + i,
                           ceil_div(columns - i, stride), stride);
      }
    }
}

}  // namespace

int64_t depthwise_scratch(const ConvShape& shape) { return Planes(shape.window).size(); }

void run_depthwise(const Run& run, const ConvShape& shape, uint32_t lanes, const DepthwiseArgs& args,
                   float* workspace) {
  const Window& w = shape.window;
  const Planes planes(w);
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
      fill(w, planes, args.x + channel * w.pixels_in(), h, padded);
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
          if (act) args.post.apply(part.y, part.rows * part.columns, output);
        }
      }
    }
  });
}

}  // namespace belay::cpu
