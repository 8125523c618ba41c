// Conversion between numbers, defined for every value.
#pragma once

#include "simd/simd.hpp"
#include "types.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

namespace belay::cpu {

// To an integer: towards zero; NaN is 0, what is out of range becomes the nearest bound. Between integers:
// the low bits. To bool: false for 0 only.
template <class To, class From>
inline To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // The bounds as the float type has them: the low one is exact, the high one is exact or one above the
    // range.
    constexpr From low = From(std::numeric_limits<To>::min());
    constexpr From high = From(std::numeric_limits<To>::max());
    if (!(x > low)) return x != x ? To(0) : std::numeric_limits<To>::min();
    if (x >= high) return std::numeric_limits<To>::max();
    return To(x);
  } else {
    return To(x);
  }
}

// Reads `n` elements of `dtype` as float (what is not a 16-bit float is copied as it is: call for those
// only).
inline void widen(uint32_t dtype, const void* from, float* to, int64_t n) {
  if (dtype == BELAY_DT_FLOAT16)
    simd().half_to_float(static_cast<const Half*>(from), to, n);
  else
    simd().bfloat16_to_float(static_cast<const BFloat16*>(from), to, n);
}
inline void narrow(uint32_t dtype, const float* from, void* to, int64_t n) {
  if (dtype == BELAY_DT_FLOAT16)
    simd().float_to_half(from, static_cast<Half*>(to), n);
  else
    simd().float_to_bfloat16(from, static_cast<BFloat16*>(to), n);
}
inline bool is_16bit_float(uint32_t dtype) { return dtype == BELAY_DT_FLOAT16 || dtype == BELAY_DT_BFLOAT16; }

}  // namespace belay::cpu
