#include "small_types.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace belay::cpu {
namespace {

// A float with a sign above its magnitude's bits; magnitudes beyond `most` are infinity or NaN, if they are anything.
struct SmallFormat {
  int bits, mantissa, bias;
  uint8_t most;      // magnitude of the largest number
  uint8_t infinity;  // magnitude; 0: there is none
  uint8_t nan;       // all bits; 0: there is none
  bool one_zero;     // no negative zero: its place is NaN
};

const SmallFormat* small_format(uint32_t dtype) {
  static constexpr SmallFormat kE4m3fn{8, 3, 7, 0x7e, 0, 0x7f, false}, kE4m3fnuz{8, 3, 8, 0x7f, 0, 0x80, true},
      kE5m2{8, 2, 15, 0x7b, 0x7c, 0x7f, false}, kE5m2fnuz{8, 2, 16, 0x7f, 0, 0x80, true},
      kE2m1{4, 1, 1, 0x7, 0, 0, false};
  switch (dtype) {
    case BELAY_DT_FLOAT8E4M3FN:
      return &kE4m3fn;
    case BELAY_DT_FLOAT8E4M3FNUZ:
      return &kE4m3fnuz;
    case BELAY_DT_FLOAT8E5M2:
      return &kE5m2;
    case BELAY_DT_FLOAT8E5M2FNUZ:
      return &kE5m2fnuz;
    case BELAY_DT_FLOAT4E2M1:
      return &kE2m1;
    default:
      return nullptr;
  }
}

float decode(const SmallFormat& f, uint8_t bits) {
  const uint8_t sign = uint8_t(1 << (f.bits - 1)), magnitude = uint8_t(bits & (sign - 1));
  if (f.one_zero ? bits == f.nan : f.nan && magnitude > f.most && magnitude != f.infinity)
    return std::numeric_limits<float>::quiet_NaN();
  const int exponent = magnitude >> f.mantissa, fraction = magnitude & ((1 << f.mantissa) - 1);
  float value = f.infinity && magnitude == f.infinity ? INFINITY
                : exponent == 0 ? std::ldexp(float(fraction), 1 - f.bias - f.mantissa)
                                : std::ldexp(float(fraction + (1 << f.mantissa)), exponent - f.bias - f.mantissa);
  return bits & sign ? -value : value;
}

uint8_t encode(const SmallFormat& f, float x, bool saturate) {
  const uint8_t sign = std::signbit(x) ? uint8_t(1 << (f.bits - 1)) : uint8_t(0);
  if (std::isnan(x)) return f.nan == 0 ? f.most : f.one_zero ? f.nan : uint8_t(f.nan | sign);
  uint32_t magnitude = 0;
  const float size = std::fabs(x);
  bool over = std::isinf(size);
  if (!over && size != 0) {
    const int exponent = std::max(std::ilogb(size), 1 - f.bias);
    if (exponent > 20) {
      over = true;
    } else {
      // Subnormals have the exponent of the smallest normal numbers; a fraction that rounds up carries over.
      const uint32_t steps = uint32_t(std::nearbyint(std::ldexp(size, f.mantissa - exponent)));
      magnitude = (uint32_t(exponent + f.bias - 1) << f.mantissa) + steps;
      over = magnitude > f.most;
    }
  }
  if (over) {
    if (f.nan == 0) return uint8_t(f.most | sign);
    if (std::isinf(size) && f.one_zero) return f.nan;
    if (saturate) return uint8_t(f.most | sign);
    if (f.infinity) return uint8_t(f.infinity | sign);
    return f.one_zero ? f.nan : uint8_t(f.nan | sign);
  }
  if (magnitude == 0 && f.one_zero) return 0;
  return uint8_t(magnitude | sign);
}

// 2^(bits - 127), 0xff is NaN.
float decode_power(uint8_t bits) {
  return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, int(bits) - 127);
}
uint8_t encode_power(float x, SmallRounding how) {
  if (std::isnan(x)) return 0xff;
  const float size = std::fabs(x);
  if (std::isinf(size)) return how.saturate ? 0xfe : 0xff;
  if (size == 0) return 0;
  int exponent = std::ilogb(size);
  const float fraction = std::ldexp(size, -exponent);  // 1 to 2
  if (how.powers == PowerRounding::kUp ? fraction > 1 : how.powers == PowerRounding::kNearest && fraction >= 1.5f)
    ++exponent;
  if (exponent > 127) return how.saturate ? 0xfe : 0xff;
  return uint8_t(std::max(exponent, -127) + 127);
}

const std::array<float, 256>& decoded(uint32_t dtype) {
  using Table = std::array<float, 256>;
  static const auto make = [](uint32_t of) {
    Table table{};
    const SmallFormat* format = small_format(of);
    for (int i = 0; i < 256; ++i)
      table[size_t(i)] = format ? decode(*format, uint8_t(i & ((1 << format->bits) - 1))) : decode_power(uint8_t(i));
    return table;
  };
  static const Table e4m3fn = make(BELAY_DT_FLOAT8E4M3FN), e4m3fnuz = make(BELAY_DT_FLOAT8E4M3FNUZ),
                     e5m2 = make(BELAY_DT_FLOAT8E5M2), e5m2fnuz = make(BELAY_DT_FLOAT8E5M2FNUZ),
                     e2m1 = make(BELAY_DT_FLOAT4E2M1), e8m0 = make(BELAY_DT_FLOAT8E8M0);
  switch (dtype) {
    case BELAY_DT_FLOAT8E4M3FN:
      return e4m3fn;
    case BELAY_DT_FLOAT8E4M3FNUZ:
      return e4m3fnuz;
    case BELAY_DT_FLOAT8E5M2:
      return e5m2;
    case BELAY_DT_FLOAT8E5M2FNUZ:
      return e5m2fnuz;
    case BELAY_DT_FLOAT4E2M1:
      return e2m1;
    default:
      return e8m0;
  }
}

// Bits of element i where an element has `bits` of them, 8 at most.
uint8_t bits_at(const void* from, int64_t i, int bits) {
  const int each = 8 / bits;
  return uint8_t(static_cast<const uint8_t*>(from)[i / each] >> (i % each * bits) & ((1 << bits) - 1));
}
// Writes n elements given by bits_of(i), from the beginning of a byte on.
template <class F>
void put_bits(void* to, int64_t at, int64_t n, int bits, F&& bits_of) {
  const int64_t each = 8 / bits;
  uint8_t* y = static_cast<uint8_t*>(to) + at / each;
  for (int64_t i = 0; i < n; i += each) {
    uint8_t byte = 0;
    for (int64_t k = 0; k < std::min(each, n - i); ++k)
      byte = uint8_t(byte | (bits_of(i + k) & ((1 << bits) - 1)) << (k * bits));
    *y++ = byte;
  }
}
int bits_of_type(uint32_t dtype) { return int(find_dtype(dtype)->bits); }
bool is_signed_small(uint32_t dtype) { return dtype == BELAY_DT_INT4 || dtype == BELAY_DT_INT2; }

}  // namespace

void load_small_ints(uint32_t dtype, const void* from, int64_t at, int64_t n, int8_t* to) {
  const int bits = bits_of_type(dtype), sign = is_signed_small(dtype) ? 1 << (bits - 1) : 0;
  for (int64_t i = 0; i < n; ++i) to[i] = int8_t((int(bits_at(from, at + i, bits)) ^ sign) - sign);
}
void store_small_ints(uint32_t dtype, const int8_t* from, void* to, int64_t at, int64_t n) {
  put_bits(to, at, n, bits_of_type(dtype), [&](int64_t i) { return uint8_t(from[i]); });
}

void load_floats(uint32_t dtype, const void* from, int64_t at, int64_t n, float* to) {
  if (type_bit(dtype) & kSmallFloats) {
    const std::array<float, 256>& table = decoded(dtype);
    const int bits = bits_of_type(dtype);
    for (int64_t i = 0; i < n; ++i) to[i] = table[bits_at(from, at + i, bits)];
  } else if (type_bit(dtype) & kSmallInts) {
    const int bits = bits_of_type(dtype), sign = is_signed_small(dtype) ? 1 << (bits - 1) : 0;
    for (int64_t i = 0; i < n; ++i) to[i] = float((int(bits_at(from, at + i, bits)) ^ sign) - sign);
  } else if (is_16bit_float(dtype)) {
    widen(dtype, static_cast<const uint16_t*>(from) + at, to, n);
  } else {
    dispatch<kNumeric & ~(kF16 | kBf16)>(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* x = static_cast<const T*>(from) + at;
      for (int64_t i = 0; i < n; ++i) to[i] = float(x[i]);
    });
  }
}

void store_floats(uint32_t dtype, const float* from, void* to, int64_t at, int64_t n, SmallRounding how) {
  if (type_bit(dtype) & kSmallFloats) {
    const SmallFormat* format = small_format(dtype);
    put_bits(to, at, n, bits_of_type(dtype),
             [&](int64_t i) { return format ? encode(*format, from[i], how.saturate) : encode_power(from[i], how); });
  } else if (type_bit(dtype) & kSmallInts) {
    const int bits = bits_of_type(dtype);
    const float low = is_signed_small(dtype) ? float(-(1 << (bits - 1))) : 0,
                high = low + float((1 << bits) - 1);
    put_bits(to, at, n, bits, [&](int64_t i) {
      const float x = std::nearbyint(from[i]);
      return uint8_t(int(x > low ? std::min(x, high) : low));  // NaN is the lowest
    });
  } else if (is_16bit_float(dtype)) {
    narrow(dtype, from, static_cast<uint16_t*>(to) + at, n);
  } else {
    dispatch<kNumeric & ~(kF16 | kBf16)>(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* y = static_cast<T*>(to) + at;
      for (int64_t i = 0; i < n; ++i)
        if constexpr (std::is_integral_v<T>)
          y[i] = from[i] != from[i] ? std::numeric_limits<T>::min() : convert<T>(std::nearbyint(from[i]));
        else
          y[i] = T(from[i]);
    });
  }
}

float to_odd_float(double x) {
  const float near = float(x);
  if (double(near) == x || near != near || std::isinf(near)) return near;
  // One of the two floats around x is odd, and near is one of them.
  if (std::bit_cast<uint32_t>(near) & 1) return near;
  return std::nextafter(near, double(near) < x ? INFINITY : -INFINITY);
}

}  // namespace belay::cpu
