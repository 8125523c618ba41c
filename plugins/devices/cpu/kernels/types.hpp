// Sets of element types, sizes of elements, and the C++ types that stand for them.
#pragma once

#include <belay/abi/graph.h>
#include <belay/graph/dtype.hpp>

#include <bit>
#include <complex>
#include <cstdint>
#include <string>

namespace belay::cpu {

using TypeMask = uint64_t;  // bit d: element type d (all that kernels know are below 64)

constexpr TypeMask type_bit(uint32_t dtype) { return dtype < 64 ? TypeMask{1} << dtype : 0; }
template <class... D>
constexpr TypeMask types_of(D... dtypes) {
  return (type_bit(dtypes) | ...);
}

inline constexpr TypeMask kF32 = type_bit(BELAY_DT_FLOAT32), kF64 = type_bit(BELAY_DT_FLOAT64),
                          kF16 = type_bit(BELAY_DT_FLOAT16), kBf16 = type_bit(BELAY_DT_BFLOAT16),
                          kBool = type_bit(BELAY_DT_BOOL), kI8 = type_bit(BELAY_DT_INT8),
                          kU8 = type_bit(BELAY_DT_UINT8), kI32 = type_bit(BELAY_DT_INT32),
                          kI64 = type_bit(BELAY_DT_INT64);
inline constexpr TypeMask kFloats = kF32 | kF64 | kF16 | kBf16;
inline constexpr TypeMask kSignedInts =
    types_of(BELAY_DT_INT8, BELAY_DT_INT16, BELAY_DT_INT32, BELAY_DT_INT64);
inline constexpr TypeMask kUnsignedInts =
    types_of(BELAY_DT_UINT8, BELAY_DT_UINT16, BELAY_DT_UINT32, BELAY_DT_UINT64);
inline constexpr TypeMask kInts = kSignedInts | kUnsignedInts;
inline constexpr TypeMask kNumeric = kFloats | kInts;
inline constexpr TypeMask kIndex = kI32 | kI64;
inline constexpr TypeMask kComplex = types_of(BELAY_DT_COMPLEX64, BELAY_DT_COMPLEX128);
inline constexpr TypeMask kFloat8 =
    types_of(BELAY_DT_FLOAT8E4M3FN, BELAY_DT_FLOAT8E4M3FNUZ, BELAY_DT_FLOAT8E5M2, BELAY_DT_FLOAT8E5M2FNUZ,
             BELAY_DT_FLOAT8E8M0);
// Whatever fills whole bytes: what is only moved is moved by its size.
inline constexpr TypeMask kMovable = kNumeric | kBool | kComplex | kFloat8;
inline constexpr TypeMask kAny = ~type_bit(BELAY_DT_UNDEFINED);  // where elements are not looked at

// Bytes of one element; 0: not a whole number of bytes, or no fixed size.
inline uint32_t element_bytes(uint32_t dtype) {
  const DtypeInfo* info = find_dtype(dtype);
  return info && info->bits % 8 == 0 ? info->bits / 8 : 0;
}

inline std::string type_names(TypeMask mask) {
  std::string out;
  for (uint32_t dtype = 0; dtype < 64; ++dtype)
    if (mask >> dtype & 1) out.append(out.empty() ? "" : ", ").append(dtype_name(dtype));
  return out;
}

// 16-bit floats are stored as these and computed as float.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline float to_float(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline float to_float(Half x) {
  const uint32_t sign = uint32_t(x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  const float small = float(rest) * 0x1p-24f;  // subnormal: exact
  return sign ? -small : small;
}
// To nearest, ties to even; NaN stays NaN.
inline BFloat16 to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {uint16_t(bits >> 16 | 0x40u)};
  return {uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}
inline Half to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000u;
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return {uint16_t(sign | 0x7e00u | (rest >> 13 & 0x3ffu))};
  if (rest >= 0x477ff000u) return {uint16_t(sign | 0x7c00u)};  // from 65520 on: infinity
  if (rest < 0x38800000u) {                                    // below 2^-14: subnormal
    // Adding 0.5 puts the unit of a half's subnormals at the last bit of the sum, rounded as the FPU rounds.
    const float sum = std::bit_cast<float>(rest) + 0.5f;
    return {uint16_t(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u))};
  }
  return {uint16_t(sign | ((rest + 0xfffu + (rest >> 13 & 1) - 0x38000000u) >> 13))};
}

template <class T>
struct Tag {
  using type = T;
};

// Calls f(Tag<T>) with the C++ type of `dtype`, if it is one of the types in `kMask`; else returns false.
// bool is uint8_t under its own number: give kBool to have it called with Tag<bool>.
template <TypeMask kMask, class F>
bool dispatch(uint32_t dtype, F&& f) {
  switch (dtype) {
#define BELAY_CASE(number, T)                        \
  case number:                                       \
    if constexpr ((kMask & type_bit(number)) != 0) { \
      f(Tag<T>{});                                   \
      return true;                                   \
    }                                                \
    break;
    BELAY_CASE(BELAY_DT_FLOAT32, float)
    BELAY_CASE(BELAY_DT_FLOAT64, double)
    BELAY_CASE(BELAY_DT_FLOAT16, Half)
    BELAY_CASE(BELAY_DT_BFLOAT16, BFloat16)
    BELAY_CASE(BELAY_DT_INT8, int8_t)
    BELAY_CASE(BELAY_DT_INT16, int16_t)
    BELAY_CASE(BELAY_DT_INT32, int32_t)
    BELAY_CASE(BELAY_DT_INT64, int64_t)
    BELAY_CASE(BELAY_DT_UINT8, uint8_t)
    BELAY_CASE(BELAY_DT_UINT16, uint16_t)
    BELAY_CASE(BELAY_DT_UINT32, uint32_t)
    BELAY_CASE(BELAY_DT_UINT64, uint64_t)
    BELAY_CASE(BELAY_DT_BOOL, bool)
    BELAY_CASE(BELAY_DT_COMPLEX64, std::complex<float>)
    BELAY_CASE(BELAY_DT_COMPLEX128, std::complex<double>)
#undef BELAY_CASE
    default:
      break;
  }
  return false;
}

// The type in which values of T are computed, and the way there and back.
template <class T>
struct Compute {
  using type = T;
  static T load(T x) { return x; }
  static T store(T x) { return x; }
};
template <>
struct Compute<Half> {
  using type = float;
  static float load(Half x) { return to_float(x); }
  static Half store(float x) { return to_half(x); }
};
template <>
struct Compute<BFloat16> {
  using type = float;
  static float load(BFloat16 x) { return to_float(x); }
  static BFloat16 store(float x) { return to_bfloat16(x); }
};
template <class T>
using compute_t = typename Compute<T>::type;

// Calls f(Tag<U>) with an unsigned type of `bytes` bytes (1, 2, 4, 8, 16), for what only moves elements.
struct alignas(8) Bytes16 {
  uint64_t low, high;
};
template <class F>
bool dispatch_bytes(uint32_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      f(Tag<uint8_t>{});
      return true;
    case 2:
      f(Tag<uint16_t>{});
      return true;
    case 4:
      f(Tag<uint32_t>{});
      return true;
    case 8:
      f(Tag<uint64_t>{});
      return true;
    case 16:
      f(Tag<Bytes16>{});
      return true;
    default:
      return false;
  }
}

}  // namespace belay::cpu
