// Element types without arithmetic of their own: floats of 8 and 4 bits, integers of 4 and 2 bits. They are read into
// float or int8, computed there, and rounded on their way back. Elements of less than a byte lie in its low bits first.
#pragma once

#include "convert.hpp"
#include "types.hpp"

#include <cstdint>
#include <string_view>

namespace belay::cpu {

inline constexpr TypeMask kSmallFloats = kFloat8 | type_bit(BELAY_DT_FLOAT4E2M1);
inline constexpr TypeMask kSmallInts = types_of(BELAY_DT_UINT4, BELAY_DT_INT4, BELAY_DT_UINT2, BELAY_DT_INT2);
inline constexpr TypeMask kSmall = kSmallFloats | kSmallInts;
inline bool is_small(uint32_t dtype) { return type_bit(dtype) & kSmall; }

// Elements after which a byte surely ends: ranges of threads begin at multiples of it.
inline constexpr int64_t kSmallStep = 4;

enum class PowerRounding : uint8_t { kUp, kDown, kNearest };  // of float8e8m0, whose values are powers of 2
struct SmallRounding {
  bool saturate = true;  // what is too large becomes the largest value, else infinity or NaN
  PowerRounding powers = PowerRounding::kUp;
};

// Elements [at, at + n) of any type but strings, complex numbers and bool.
void load_floats(uint32_t dtype, const void* from, int64_t at, int64_t n, float* to);
// To nearest, ties to even, cut to the range of integers; at is a multiple of kSmallStep.
void store_floats(uint32_t dtype, const float* from, void* to, int64_t at, int64_t n, SmallRounding how);

// Of kSmallInts. Storing keeps the low bits.
void load_small_ints(uint32_t dtype, const void* from, int64_t at, int64_t n, int8_t* to);
void store_small_ints(uint32_t dtype, const int8_t* from, void* to, int64_t at, int64_t n);

// The float next to x that rounds to a smaller type as x does: of two it takes the odd one.
float to_odd_float(double x);

}  // namespace belay::cpu
