// tensor.h: a dense row-major tensor that is read and written element by element, whatever its type. Slow and
// plain on purpose: this device is what faster ones are compared with.
#pragma once

#include <belay/graph/dtype.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace reference {

using Dims = std::vector<int64_t>;

inline int64_t count_of(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

inline std::string to_text(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

// Rounds to nearest, ties to even, into a format of `mantissa` stored bits with the given exponent width; the
// bits.
inline uint32_t round_to(double value, int exponent_bits, int mantissa) {
  const uint32_t sign = std::signbit(value) ? 1u << (exponent_bits + mantissa) : 0;
  const uint32_t top = ((1u << exponent_bits) - 1) << mantissa;
  if (std::isnan(value)) return sign | top | (1u << (mantissa - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | top;
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;  // subnormal
  const double scaled = std::nearbyint(std::ldexp(magnitude, mantissa - exponent));
  const uint64_t units =
      uint64_t(scaled);  // of 2^(exponent - mantissa); a carry moves into the exponent by itself
  const uint64_t bits = units + (uint64_t(exponent + bias - 1) << mantissa);
  return bits >= top ? sign | top : sign | uint32_t(bits);
}

inline double widen(uint32_t bits, int exponent_bits, int mantissa) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t exponent = (bits >> mantissa) & ((1u << exponent_bits) - 1),
                 fraction = bits & ((1u << mantissa) - 1);
  const double sign = (bits >> (exponent_bits + mantissa)) & 1 ? -1 : 1;
  if (exponent == (1u << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp((1u << mantissa) + fraction, int(exponent) - bias - mantissa);
}

struct Tensor {
  uint32_t dtype = BELAY_DT_UNDEFINED;
  Dims dims;
  void* data = nullptr;

  bool present() const { return dtype != BELAY_DT_UNDEFINED; }
  int64_t count() const { return count_of(dims); }
  bool is_float() const {
    return dtype == BELAY_DT_FLOAT32 || dtype == BELAY_DT_FLOAT64 || dtype == BELAY_DT_FLOAT16 ||
           dtype == BELAY_DT_BFLOAT16;
  }
  bool is_unsigned64() const { return dtype == BELAY_DT_UINT64; }

  template <class T>
  T raw(int64_t i) const {
    T value;
    std::memcpy(&value, static_cast<const char*>(data) + i * int64_t(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void raw(int64_t i, T value) {
    std::memcpy(static_cast<char*>(data) + i * int64_t(sizeof(T)), &value, sizeof(T));
  }

  // Element i of a floating-point or integer tensor.
  double real(int64_t i) const {
    switch (dtype) {
      case BELAY_DT_FLOAT32:
        return raw<float>(i);
      case BELAY_DT_FLOAT64:
        return raw<double>(i);
      case BELAY_DT_FLOAT16:
        return widen(raw<uint16_t>(i), 5, 10);
      case BELAY_DT_BFLOAT16:
        return widen(raw<uint16_t>(i), 8, 7);
      case BELAY_DT_UINT64:
        return double(raw<uint64_t>(i));
      default:
        return double(integer(i));
    }
  }
  // Element i of an integer or bool tensor (uint64 as its bits).
  int64_t integer(int64_t i) const {
    switch (dtype) {
      case BELAY_DT_INT8:
        return raw<int8_t>(i);
      case BELAY_DT_UINT8:
      case BELAY_DT_BOOL:
        return raw<uint8_t>(i);
      case BELAY_DT_INT16:
        return raw<int16_t>(i);
      case BELAY_DT_UINT16:
        return raw<uint16_t>(i);
      case BELAY_DT_INT32:
        return raw<int32_t>(i);
      case BELAY_DT_UINT32:
        return raw<uint32_t>(i);
      case BELAY_DT_INT64:
      case BELAY_DT_UINT64:
        return raw<int64_t>(i);
      default:
        throw std::runtime_error("an integer tensor is wanted, got " + std::string(belay::dtype_name(dtype)));
    }
  }
  void put_real(int64_t i, double value) {
    switch (dtype) {
      case BELAY_DT_FLOAT32:
        return raw<float>(i, float(value));
      case BELAY_DT_FLOAT64:
        return raw<double>(i, value);
      case BELAY_DT_FLOAT16:
        return raw<uint16_t>(i, uint16_t(round_to(value, 5, 10)));
      case BELAY_DT_BFLOAT16:
        return raw<uint16_t>(i, uint16_t(round_to(value, 8, 7)));
      case BELAY_DT_BOOL:
        return raw<uint8_t>(i, value != 0);
      default:
        return put_integer(i, truncate(value));
    }
  }
  // Wraps to the width of the type.
  void put_integer(int64_t i, int64_t value) {
    switch (dtype) {
      case BELAY_DT_BOOL:
        return raw<uint8_t>(i, value != 0);
      case BELAY_DT_INT8:
      case BELAY_DT_UINT8:
        return raw<uint8_t>(i, uint8_t(value));
      case BELAY_DT_INT16:
      case BELAY_DT_UINT16:
        return raw<uint16_t>(i, uint16_t(value));
      case BELAY_DT_INT32:
      case BELAY_DT_UINT32:
        return raw<uint32_t>(i, uint32_t(value));
      case BELAY_DT_INT64:
      case BELAY_DT_UINT64:
        return raw<int64_t>(i, value);
      default:
        return put_real(i, double(value));
    }
  }
  void copy(int64_t to, const Tensor& from, int64_t at) {
    const size_t width = *belay::dtype_bytes(dtype, 1);
    std::memcpy(static_cast<char*>(data) + to * int64_t(width),
                static_cast<const char*>(from.data) + at * int64_t(width), width);
  }

  std::vector<double> reals() const {
    std::vector<double> out(static_cast<size_t>(count()));
    for (int64_t i = 0; i < count(); ++i) out[size_t(i)] = real(i);
    return out;
  }
  std::vector<int64_t> integers() const {
    std::vector<int64_t> out(static_cast<size_t>(count()));
    for (int64_t i = 0; i < count(); ++i) out[size_t(i)] = integer(i);
    return out;
  }

 private:
  // Out-of-range values go to the nearest int64 (or uint64 for that type), NaN to 0.
  int64_t truncate(double value) const {
    if (std::isnan(value)) return 0;
    if (is_unsigned64()) return value <= 0 ? 0 : value >= 0x1p64 ? -1 : int64_t(uint64_t(value));
    return value >= 0x1p63 ? INT64_MAX : value <= -0x1p63 ? INT64_MIN : int64_t(value);
  }
};

// Walks all positions of `dims` in row-major order.
class Walk {
 public:
  explicit Walk(Dims dims) : dims_(std::move(dims)), at_(dims_.size(), 0), left_(count_of(dims_)) {}
  bool done() const { return left_ == 0; }
  const Dims& at() const { return at_; }
  void next() {
    --left_;
    for (size_t d = dims_.size(); d-- > 0;) {
      if (++at_[d] < dims_[d]) return;
      at_[d] = 0;
    }
  }

 private:
  Dims dims_, at_;
  int64_t left_;
};

inline int64_t flat(const Dims& at, const Dims& dims) {
  int64_t index = 0;
  for (size_t d = 0; d < dims.size(); ++d) index = index * dims[d] + at[d];
  return index;
}

// The element of a tensor of `dims` that stands at `at` of the shape it is broadcast to.
inline int64_t broadcast(const Dims& at, const Dims& dims) {
  int64_t index = 0;
  const size_t skip = at.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d) index = index * dims[d] + (dims[d] == 1 ? 0 : at[skip + d]);
  return index;
}

inline size_t axis_of(int64_t axis, size_t rank) {
  if (axis < -int64_t(rank) || axis >= int64_t(rank))
    throw std::runtime_error("axis " + std::to_string(axis) + " of a tensor of rank " + std::to_string(rank));
  return size_t(axis < 0 ? axis + int64_t(rank) : axis);
}

}  // namespace reference
