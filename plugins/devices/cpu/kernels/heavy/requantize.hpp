// Quantised sums on their way to 8 bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace belay::cpu {

// round(sum * factor) + zero, rounded to even and clamped to the type. NaN (a scale of 0 / 0) becomes the
// lowest value.
template <class Out>
Out requantize(int32_t sum, float factor, int32_t zero) {
  const float scaled = std::nearbyintf(float(sum) * factor) + float(zero);
  constexpr float kLow = float(std::numeric_limits<Out>::min()),
                  kHigh = float(std::numeric_limits<Out>::max());
  return Out(int32_t(scaled > kLow ? (scaled < kHigh ? scaled : kHigh) : kLow));
}

}  // namespace belay::cpu
