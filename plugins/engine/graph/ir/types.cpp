#include "ir/types.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace belay::ir {

std::string dims_to_string(std::span<const int64_t> dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) text += ",";
    text += dims[i] >= 0 ? std::to_string(dims[i]) : "?";
  }
  return text + "]";
}

std::string to_string(const Type& type) {
  switch (type.kind) {
    case BELAY_TYPE_TENSOR:
      return std::string(dtype_name(type.dtype)) + (type.ranked ? dims_to_string(type.dims) : "[...]");
    case BELAY_TYPE_SEQUENCE:
      return "sequence(" + (type.element ? to_string(*type.element) : "?") + ")";
    case BELAY_TYPE_OPTIONAL:
      return "optional(" + (type.element ? to_string(*type.element) : "?") + ")";
    case BELAY_TYPE_MAP:
      return "map";
    default:
      return "unknown";
  }
}

uint64_t alignment_of(uint32_t dtype) {
  switch (dtype) {
    case BELAY_DT_STRING:
      return alignof(uint64_t);
    case BELAY_DT_COMPLEX64:
      return 4;
    case BELAY_DT_COMPLEX128:
      return 8;
    default: {
      const DtypeInfo* info = find_dtype(dtype);
      return info && info->bits >= 8 ? info->bits / 8 : 1;
    }
  }
}

bool is_aligned(const void* data, uint32_t dtype) {
  return reinterpret_cast<uintptr_t>(data) % alignment_of(dtype) == 0;
}

uint64_t next_constant_key() {
  // Providers may share packed constants over all runtimes of a process, so keys are unique in the process.
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<Constant> make_constant(uint32_t dtype, Dims dims) {
  const auto count = element_count(dims);
  const auto bytes = count ? dtype_bytes(dtype, *count) : std::nullopt;
  if (!bytes || *bytes > UINT64_MAX - 128) return nullptr;
  const uint64_t room = (*bytes + 127) / 64 * 64;
  void* memory = std::aligned_alloc(64, room);
  if (!memory) return nullptr;
  std::memset(memory, 0, room);
  auto constant = std::make_shared<Constant>();
  constant->owner =
      std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); });
  constant->dtype = dtype;
  constant->dims = std::move(dims);
  constant->data = static_cast<const std::byte*>(memory);
  constant->bytes = *bytes;
  constant->key = next_constant_key();
  return constant;
}

namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace

ConstantPtr make_int64s(std::span<const int64_t> values, Dims dims) {
  auto constant = make_constant(BELAY_DT_INT64, std::move(dims));
  if (constant && !values.empty())
    std::memcpy(const_cast<std::byte*>(constant->data), values.data(), constant->bytes);
  return constant;
}

ConstantPtr make_int64s(std::span<const int64_t> values) {
  return make_int64s(values, {int64_t(values.size())});
}

ConstantPtr make_scalar(uint32_t dtype, double value) {
  if (is_float(dtype)) return make_floats(dtype, {&value, 1}, {});
  auto constant = make_constant(dtype, {});
  if (!constant) return nullptr;
  auto* at = const_cast<std::byte*>(constant->data);
  switch (dtype) {
    case BELAY_DT_INT8:
      store(at, int8_t(value));
      break;
    case BELAY_DT_UINT8:
      store(at, uint8_t(value));
      break;
    case BELAY_DT_BOOL:
      store(at, uint8_t(value != 0));
      break;
    case BELAY_DT_INT16:
      store(at, int16_t(value));
      break;
    case BELAY_DT_UINT16:
      store(at, uint16_t(value));
      break;
    case BELAY_DT_INT32:
      store(at, int32_t(value));
      break;
    case BELAY_DT_UINT32:
      store(at, uint32_t(value));
      break;
    case BELAY_DT_INT64:
      store(at, int64_t(value));
      break;
    case BELAY_DT_UINT64:
      store(at, uint64_t(value));
      break;
    default:
      return nullptr;
  }
  return constant;
}

std::optional<std::vector<int64_t>> as_int64s(const Constant& constant, uint64_t limit) {
  const uint64_t count = constant.count();
  if (count > limit) return std::nullopt;
  std::vector<int64_t> out(count);
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* data = constant.data;
    switch (constant.dtype) {
      case BELAY_DT_INT64:
        out[i] = load<int64_t>(data + i * 8);
        break;
      case BELAY_DT_UINT64:
        out[i] = int64_t(load<uint64_t>(data + i * 8));
        break;
      case BELAY_DT_INT32:
        out[i] = load<int32_t>(data + i * 4);
        break;
      case BELAY_DT_UINT32:
        out[i] = load<uint32_t>(data + i * 4);
        break;
      case BELAY_DT_INT16:
        out[i] = load<int16_t>(data + i * 2);
        break;
      case BELAY_DT_UINT16:
        out[i] = load<uint16_t>(data + i * 2);
        break;
      case BELAY_DT_INT8:
        out[i] = load<int8_t>(data + i);
        break;
      case BELAY_DT_UINT8:
      case BELAY_DT_BOOL:
        out[i] = load<uint8_t>(data + i);
        break;
      default:
        return std::nullopt;
    }
  }
  return out;
}

std::optional<std::vector<double>> as_doubles(const Constant& constant, uint64_t limit) {
  const uint64_t count = constant.count();
  if (count > limit) return std::nullopt;
  if (!is_float(constant.dtype)) {
    const auto ints = as_int64s(constant, limit);
    if (!ints) return std::nullopt;
    return std::vector<double>(ints->begin(), ints->end());
  }
  std::vector<double> out(count);
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* data = constant.data;
    switch (constant.dtype) {
      case BELAY_DT_FLOAT32:
        out[i] = load<float>(data + i * 4);
        break;
      case BELAY_DT_FLOAT64:
        out[i] = load<double>(data + i * 8);
        break;
      case BELAY_DT_FLOAT16:
        out[i] = half_to_float(load<uint16_t>(data + i * 2));
        break;
      default:
        out[i] = bfloat_to_float(load<uint16_t>(data + i * 2));
        break;
    }
  }
  return out;
}

ConstantPtr make_floats(uint32_t dtype, std::span<const double> values, Dims dims) {
  if (!is_float(dtype)) return nullptr;
  auto constant = make_constant(dtype, std::move(dims));
  if (!constant) return nullptr;
  auto* at = const_cast<std::byte*>(constant->data);
  for (size_t i = 0; i < values.size(); ++i) switch (dtype) {
      case BELAY_DT_FLOAT32:
        store(at + i * 4, float(values[i]));
        break;
      case BELAY_DT_FLOAT64:
        store(at + i * 8, values[i]);
        break;
      case BELAY_DT_FLOAT16:
        store(at + i * 2, float_to_half(float(values[i])));
        break;
      default:
        store(at + i * 2, float_to_bfloat(float(values[i])));
        break;
    }
  return constant;
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1f,
                 mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float value = std::ldexp(float(mantissa), -24);
    return sign ? -value : value;
  }
  const uint32_t wide =
      exponent == 31 ? 0x7f800000u | mantissa << 13 : (exponent + 112) << 23 | mantissa << 13;
  return std::bit_cast<float>(sign | wide);
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000u,
                 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds beyond the largest half
  if (magnitude < 0x38800000u)                                    // subnormal: lrint rounds to nearest even
    return uint16_t(sign | uint32_t(std::lrint(std::ldexp(std::fabs(value), 24))));
  const uint32_t rebased = magnitude - 0x38000000u;
  return uint16_t(sign | (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t float_to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t(bits >> 16 | 0x40u);
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace belay::ir
