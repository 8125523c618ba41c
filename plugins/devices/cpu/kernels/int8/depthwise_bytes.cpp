#include "conv_bytes.hpp"

#include <cstring>

namespace belay::cpu {
namespace {

constexpr int64_t kMostTaps = 256;  // kept on the stack
constexpr int64_t kSlack = 512;      // bytes behind a plane that vectors may read

// The input of one channel, padded, and how its outputs are computed: by runs over several rows where the strides
// are 1 (what lies behind the end of a row is computed too and not used), else row by row.
struct Plane {
  int64_t rows, pitch;
  bool flat;
  int64_t sums_step;  // between rows of sums
  int64_t chunk;      // rows of outputs at once
  explicit Plane(const Window& w)
      : rows((w.out[1] - 1) * w.stride[1] + w.reach(1)),
        pitch((w.out[2] - 1) * w.stride[2] + w.reach(2)),
        flat(w.stride[1] == 1 && w.stride[2] == 1),
        sums_step(flat ? pitch : round_up(w.out[2], 32)),
        chunk(std::max<int64_t>(1, 2048 / sums_step)) {}
  int64_t bytes() const { return round_up(rows * pitch + kSlack, 64); }
  int64_t sum_words() const { return round_up(chunk * sums_step + 64, 16); }
};

// The places that the input has; the others keep their zero point.
void fill(const Window& w, const Plane& plane, const uint8_t* x, bool flip, uint8_t* to) {
  const int64_t top = w.begin[1], left = w.begin[2];
  const int64_t rows = std::min(w.in[1], plane.rows - top), columns = std::min(w.in[2], plane.pitch - left);
  if (rows > 0 && columns > 0)
    byte_micro().copy_rows(x, w.in[2], rows, columns, flip, to + top * plane.pitch + left, plane.pitch);
}

}  // namespace

bool taps_of_bytes(const ConvShape& shape) {
  const Window& w = shape.window;
  return shape.depthwise() && w.in[0] == 1 && w.out[0] == 1 && w.kernel[0] == 1 && w.volume() <= kMostTaps &&
         w.begin[1] >= 0 && w.begin[2] >= 0 && w.pixels_out() > 0 && w.pixels_in() > 0;
}

int64_t depthwise_bytes_words(const ConvShape& shape) {
  const Plane plane(shape.window);
  return plane.bytes() / 4 + plane.sum_words();
}

void run_depthwise_bytes(const Run& run, const ConvShape& shape, const BytesConv& conv, uint32_t lanes,
                         uint32_t* workspace) {
  const Window& w = shape.window;
  const Plane plane(w);
  const ByteMicro& micro = byte_micro();
  const int64_t volume = w.volume(), multiplier = shape.group_outputs(), words_each = depthwise_bytes_words(shape);
  const int64_t words_per_row = ceil_div(w.kernel[2], 4);
  const bool words = micro.tap_words && conv.w_form.is_signed && words_fit(w.stride[2], w.dilation[2]);
  for (uint32_t lane = 0; lane < lanes; ++lane)
    std::memset(workspace + lane * words_each, conv.x_zero ^ (conv.x_form.flip ? 0x80 : 0), size_t(plane.bytes()));
  run_lanes(run, shape.batch * shape.groups, lanes, [&](int64_t task, int64_t lane) {
    uint8_t* const x = reinterpret_cast<uint8_t*>(workspace + lane * words_each);
    int32_t* const sums = reinterpret_cast<int32_t*>(x + plane.bytes());
    const int64_t group = task % shape.groups;
    fill(w, plane, conv.x + task * w.pixels_in(), conv.x_form.flip, x);
    for (int64_t m = 0; m < multiplier; ++m) {
      const int64_t channel = group * multiplier + m;
      const uint8_t* weights = conv.w + channel * volume;
      const int32_t w_zero = conv.w_zero ? conv.w_zero[channel] : 0;
      TapWord tap_words[kMostTaps];
      int64_t offsets[kMostTaps];
      int32_t values[kMostTaps];
      const bool by_words = words && w_zero == 0;
      if (by_words) {
        for (int64_t r = 0; r < w.kernel[1]; ++r)
          for (int64_t p = 0; p < words_per_row; ++p) {
            uint32_t word = 0;
            for (int64_t t = 4 * p; t < std::min(w.kernel[2], 4 * p + 4); ++t)
              word |= uint32_t(weights[r * w.kernel[2] + t]) << (8 * (t - 4 * p));
            tap_words[r * words_per_row + p] = {r * w.dilation[1] * plane.pitch + 4 * p * w.dilation[2], word};
          }
      } else {
        for (int64_t t = 0; t < volume; ++t) {
          offsets[t] = t / w.kernel[2] * w.dilation[1] * plane.pitch + t % w.kernel[2] * w.dilation[2];
          values[t] = conv.w_form.value(weights[t]) - w_zero;
        }
      }
      const int64_t step = w.stride[2], row_step = w.stride[1] * plane.pitch;
      const auto sum = [&](int64_t from, int64_t n, int32_t* to) {
        if (!by_words) return micro.taps(x + from, conv.x_form.is_signed, offsets, values, volume, step, n, to);
        micro.tap_words(x + from, tap_words, w.kernel[1] * words_per_row, step, w.dilation[2], n, to);
      };
      for (int64_t r = 0; r < w.out[1]; r += plane.chunk) {
        const int64_t height = std::min(plane.chunk, w.out[1] - r);
        if (plane.flat)
          sum(r * row_step, (height - 1) * plane.pitch + w.out[2], sums);
        else
          for (int64_t i = 0; i < height; ++i) sum((r + i) * row_step, w.out[2], sums + i * plane.sums_step);
        const int64_t place = ((task / shape.groups) * shape.outputs + channel) * w.pixels_out() + r * w.out[2];
        conv.finish({sums, plane.sums_step, height, w.out[2], 0}, {}, channel, place, w.out[2]);
      }
    }
  });
}

}  // namespace belay::cpu
