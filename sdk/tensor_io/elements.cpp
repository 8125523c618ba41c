#include "elements.hpp"

#include <belay/graph/dtype.hpp>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace belay {
namespace {

template <class T>
T load(const std::byte* bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof value, sizeof value);
  return value;
}

template <class T>
std::complex<double> number(const std::byte* bytes, uint64_t index) {
  return double(load<T>(bytes, index));
}

template <class T>
std::complex<double> complex_number(const std::byte* bytes, uint64_t index) {
  return {double(load<T>(bytes, 2 * index)), double(load<T>(bytes, 2 * index + 1))};
}

double half(uint16_t bits) { return small_float(bits, 5, 10, 15, Special::kIeee); }

// Element of `width` < 8 bits, packed from the low end of each byte; it may cross into the next one.
uint32_t packed(const std::byte* bytes, uint64_t index, uint32_t width) {
  const uint64_t at = index * width;
  uint32_t value = uint32_t(bytes[at / 8]) >> at % 8;
  if (at % 8 + width > 8) value |= uint32_t(bytes[at / 8 + 1]) << (8 - at % 8);
  return value & ((1u << width) - 1);
}

template <int kExponent, int kMantissa, int kBias, Special kSpecial>
std::complex<double> tiny(const std::byte* bytes, uint64_t index) {
  constexpr uint32_t kWidth = 1 + kExponent + kMantissa;
  return small_float(kWidth == 8 ? uint32_t(bytes[index]) : packed(bytes, index, kWidth), kExponent,
                     kMantissa, kBias, kSpecial);
}

template <uint32_t kWidth, bool kSigned>
std::complex<double> tiny_int(const std::byte* bytes, uint64_t index) {
  const auto value = int(packed(bytes, index, kWidth));
  return kSigned && value >> (kWidth - 1) ? value - (1 << kWidth) : value;
}

}  // namespace

double small_float(uint32_t bits, int exponent, int mantissa, int bias, Special special) {
  const bool negative = bits >> (exponent + mantissa) & 1;
  const uint32_t e = bits >> mantissa & ((1u << exponent) - 1), m = bits & ((1u << mantissa) - 1);
  const bool top = e == (1u << exponent) - 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (special == Special::kIeee && top) return m ? kNan : negative ? -HUGE_VAL : HUGE_VAL;
  if (special == Special::kFn && top && m == (1u << mantissa) - 1) return kNan;
  if (special == Special::kFnuz && negative && e == 0 && m == 0) return kNan;
  const double value = e == 0 ? std::ldexp(double(m), 1 - bias - mantissa)
                              : std::ldexp(double(m | 1u << mantissa), int(e) - bias - mantissa);
  return negative ? -value : value;
}

Decode decoder(uint32_t dtype) {
  switch (dtype) {
    case BELAY_DT_FLOAT32:
      return number<float>;
    case BELAY_DT_FLOAT64:
      return number<double>;
    case BELAY_DT_UINT8:
    case BELAY_DT_BOOL:
      return number<uint8_t>;
    case BELAY_DT_INT8:
      return number<int8_t>;
    case BELAY_DT_UINT16:
      return number<uint16_t>;
    case BELAY_DT_INT16:
      return number<int16_t>;
    case BELAY_DT_UINT32:
      return number<uint32_t>;
    case BELAY_DT_INT32:
      return number<int32_t>;
    case BELAY_DT_UINT64:
      return number<uint64_t>;
    case BELAY_DT_INT64:
      return number<int64_t>;
    case BELAY_DT_FLOAT16:
      return [](const std::byte* b, uint64_t i) { return std::complex<double>(half(load<uint16_t>(b, i))); };
    case BELAY_DT_BFLOAT16:
      return [](const std::byte* b, uint64_t i) {
        return std::complex<double>(std::bit_cast<float>(uint32_t{load<uint16_t>(b, i)} << 16));
      };
    case BELAY_DT_COMPLEX64:
      return complex_number<float>;
    case BELAY_DT_COMPLEX128:
      return complex_number<double>;
    case BELAY_DT_COMPLEX32:
      return [](const std::byte* b, uint64_t i) {
        return std::complex<double>(half(load<uint16_t>(b, 2 * i)), half(load<uint16_t>(b, 2 * i + 1)));
      };
    case BELAY_DT_FLOAT8E4M3FN:
      return tiny<4, 3, 7, Special::kFn>;
    case BELAY_DT_FLOAT8E4M3FNUZ:
      return tiny<4, 3, 8, Special::kFnuz>;
    case BELAY_DT_FLOAT8E5M2:
      return tiny<5, 2, 15, Special::kIeee>;
    case BELAY_DT_FLOAT8E5M2FNUZ:
      return tiny<5, 2, 16, Special::kFnuz>;
    case BELAY_DT_FLOAT8E8M0:
      return [](const std::byte* b, uint64_t i) {
        return std::complex<double>(b[i] == std::byte{0xff} ? NAN : std::ldexp(1.0, int(b[i]) - 127));
      };
    case BELAY_DT_FLOAT6E3M2:
      return tiny<3, 2, 3, Special::kFinite>;
    case BELAY_DT_FLOAT6E2M3:
      return tiny<2, 3, 1, Special::kFinite>;
    case BELAY_DT_FLOAT4E2M1:
      return tiny<2, 1, 1, Special::kFinite>;
    case BELAY_DT_FLOAT4E1M2:
      return tiny<1, 2, 1, Special::kFinite>;
    case BELAY_DT_UINT4:
      return tiny_int<4, false>;
    case BELAY_DT_INT4:
      return tiny_int<4, true>;
    case BELAY_DT_UINT2:
      return tiny_int<2, false>;
    case BELAY_DT_INT2:
      return tiny_int<2, true>;
    case BELAY_DT_UINT1:
      return tiny_int<1, false>;
    default:
      return nullptr;
  }
}

double element_value(const HostTensor& tensor, uint64_t index) {
  const Decode decode = decoder(tensor.dtype);
  return decode && index < tensor.count() ? decode(tensor.bytes.data(), index).real()
                                          : std::numeric_limits<double>::quiet_NaN();
}

std::string element_text(const HostTensor& tensor, uint64_t index) {
  if (index >= tensor.count()) return "?";
  const auto text = [](auto value) {
    char out[64];
    return std::string(out, std::to_chars(out, out + sizeof out, value).ptr);
  };
  const std::byte* bytes = tensor.bytes.data();
  switch (tensor.dtype) {
    case BELAY_DT_STRING:
      return "\"" + tensor.strings[index] + "\"";
    case BELAY_DT_BOOL:
      return bytes[index] == std::byte{0} ? "false" : "true";
    case BELAY_DT_INT64:
      return text(load<int64_t>(bytes, index));
    case BELAY_DT_UINT64:
      return text(load<uint64_t>(bytes, index));
    case BELAY_DT_FLOAT64:
      return text(load<double>(bytes, index));
    default:
      break;
  }
  const Decode decode = decoder(tensor.dtype);
  if (!decode) return "0x" + text(uint32_t(bytes[index]));
  const std::complex<double> value = decode(bytes, index);
  const bool is_double = tensor.dtype == BELAY_DT_COMPLEX128;
  const auto part = [&](double v) {
    return is_double ? text(v) : text(float(v));
  };  // no digits that the type lacks
  if (tensor.dtype != BELAY_DT_COMPLEX64 && tensor.dtype != BELAY_DT_COMPLEX32 && !is_double) {
    if (tensor.dtype == BELAY_DT_INT32 || tensor.dtype == BELAY_DT_UINT32) return text(int64_t(value.real()));
    return part(value.real());
  }
  return "(" + part(value.real()) + "," + part(value.imag()) + ")";
}

}  // namespace belay
