// A padded copy of one channel of a convolution's input.
#pragma once

#include "lanes.hpp"
#include "micro.hpp"
#include "window.hpp"

namespace belay::cpu {

// The input of one channel as the kernel wants it: padded with zeros, so that no tap needs a check, and split
// by what a place is modulo the strides, so that neighbouring outputs always read neighbours. A band of rows is
// there at a time.
struct Planes {
  int64_t out_rows = 0;         // rows of the output in a band
  int64_t rows = 0, pitch = 0;  // of one part
  int64_t part = 0, slice = 0;  // floats
  int64_t slices = 0;
  // For bands of so many rows of `columns` outputs, which may be more than the window has.
  Planes(const Window& w, int64_t band, int64_t columns) {
    out_rows = band;
    slices = padded(w, 0, w.out[0]);
    pitch = ceil_div(padded(w, 2, columns), w.stride[2]);
    rows = ceil_div(padded(w, 1, out_rows), w.stride[1]);
    part = round_up(rows * pitch + kWindowSlack, 16);
    slice = part * w.stride[1] * w.stride[2];
  }
  // Bands that stay in the first-level cache, in multiples of the rows that are computed at once.
  static Planes of_bands(const Window& w) {
    constexpr int64_t kBand = 4096, kTile = 4;
    const Planes one(w, 1, w.out[2]);
    const int64_t row = one.slices * one.pitch * w.stride[1] * w.stride[2];
    const int64_t band = std::max(kTile, (kBand / row - (w.kernel[1] > 1 ? 1 : 0)) / kTile * kTile);
    return Planes(w, std::min(w.out[1], band), w.out[2]);
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
// input `to` is left alone: there must be zero.
void fill_band(const Window& w, const Planes& planes, const float* x, int64_t top, float* to);

}  // namespace belay::cpu
