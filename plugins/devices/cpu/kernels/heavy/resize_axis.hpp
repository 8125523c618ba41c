// One axis of a Resize: where each output place reads the input, and with which weights.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace belay::cpu {

enum class Sampling : uint8_t { kNearest, kLinear, kCubic };
enum class Coordinates : uint8_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixelForNn,
  kTfCropAndResize
};
enum class Rounding : uint8_t {
  kPreferFloor,
  kPreferCeil,
  kFloor,
  kCeil,
  kByScale
};  // kByScale: of version 10

struct ResizeRules {
  Sampling sampling = Sampling::kNearest;
  Coordinates coordinates = Coordinates::kHalfPixel;
  Rounding rounding = Rounding::kPreferFloor;
  double cubic_a = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
};

// Output place o is the sum over t < taps of weights[o * taps + t] * input[places[o * taps + t]]; places are
// inside.
struct ResizeAxis {
  int64_t in = 1, out = 1, taps = 1;
  std::vector<int64_t> places;
  std::vector<float> weights;  // empty: one tap of weight 1
  std::vector<uint8_t>
      outside;           // of kTfCropAndResize: output places that take the extrapolation value; or empty
  bool changes = false;  // some output place is not the input's place of the same number
};

// `scale` is that of the operator: output length over input length, not rounded.
ResizeAxis make_axis(const ResizeRules& rules, int64_t in, int64_t out, double scale, double roi_begin,
                     double roi_end);

}  // namespace belay::cpu
