// ir/types.hpp: types of values and constant tensors of the engine's IR.
#pragma once

#include <belay/abi/graph.h>
#include <belay/graph/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace belay::ir {

// A dim is its size; kUnknown where nothing is known; or a code <= kFirstSymbol: an unknown size with a name,
// so that dims of one name are known to be equal.
using Dims = std::vector<int64_t>;
inline constexpr int64_t kUnknown = -1;
inline constexpr int64_t kFirstSymbol = -2;

struct Type {
  uint32_t kind = 0;                    // BELAY_TYPE_..., 0: nothing known
  uint32_t dtype = BELAY_DT_UNDEFINED;  // of a tensor
  bool ranked = false;                  // `dims` holds
  Dims dims;
  std::shared_ptr<const Type> element;  // of a sequence or optional, may be null

  static Type tensor(uint32_t dtype, Dims dims) {
    return {BELAY_TYPE_TENSOR, dtype, true, std::move(dims), nullptr};
  }
  static Type unranked(uint32_t dtype) { return {BELAY_TYPE_TENSOR, dtype, false, {}, nullptr}; }
  static Type sequence(Type of) {
    return {BELAY_TYPE_SEQUENCE, BELAY_DT_UNDEFINED, false, {}, std::make_shared<const Type>(std::move(of))};
  }
  static Type optional(Type of) {
    return {BELAY_TYPE_OPTIONAL, BELAY_DT_UNDEFINED, false, {}, std::make_shared<const Type>(std::move(of))};
  }
  bool is_tensor() const { return kind == BELAY_TYPE_TENSOR; }
  // A tensor whose element type and every dim are known.
  bool concrete() const {
    if (!is_tensor() || dtype == BELAY_DT_UNDEFINED || !ranked) return false;
    for (const int64_t dim : dims)
      if (dim < 0) return false;
    return true;
  }
};

// "float32[1,3,?,8]", "sequence(int64[?])"; for messages.
std::string to_string(const Type& type);
std::string dims_to_string(std::span<const int64_t> dims);

// A tensor whose bytes are known: dense, row-major; strings as in belay_graph_constant.
struct Constant {
  uint32_t dtype = BELAY_DT_UNDEFINED;
  Dims dims;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  std::shared_ptr<const void> owner;  // of the bytes; null: they lie in source `source` of the model
  uint32_t source = BELAY_NONE;
  uint64_t key = 0;  // equal keys: equal bytes, in the whole process

  uint64_t count() const { return element_count(dims).value_or(0); }
  Type type() const { return Type::tensor(dtype, dims); }
};
using ConstantPtr = std::shared_ptr<const Constant>;

// Bytes that an element's address must be a multiple of.
uint64_t alignment_of(uint32_t dtype);
bool is_aligned(const void* data, uint32_t dtype);

// A new constant with zeroed memory of its own, aligned to 64 bytes; `bytes` may be written until it is
// shared. Null where the size overflows or memory is short. Not for strings.
std::shared_ptr<Constant> make_constant(uint32_t dtype, Dims dims);
ConstantPtr make_int64s(std::span<const int64_t> values, Dims dims);
ConstantPtr make_int64s(std::span<const int64_t> values);  // one-dimensional
// One float32 value converted to `dtype` (floating point); null for other types.
ConstantPtr make_scalar(uint32_t dtype, double value);
uint64_t next_constant_key();

// The elements as int64, for integer and bool constants of at most `limit` elements.
std::optional<std::vector<int64_t>> as_int64s(const Constant& constant, uint64_t limit = 1 << 16);
// The elements as double, for numeric constants up to 64 bits.
std::optional<std::vector<double>> as_doubles(const Constant& constant, uint64_t limit = 1 << 16);
// The reverse, rounding to nearest even for float16 and bfloat16; null for other than floating-point types.
ConstantPtr make_floats(uint32_t dtype, std::span<const double> values, Dims dims);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float bfloat_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);

inline bool is_float(uint32_t dtype) {
  return dtype == BELAY_DT_FLOAT32 || dtype == BELAY_DT_FLOAT16 || dtype == BELAY_DT_FLOAT64 ||
         dtype == BELAY_DT_BFLOAT16;
}

}  // namespace belay::ir
