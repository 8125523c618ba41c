// What operators on bytes have in common: checks of scales and zero points, and how these are read.
#pragma once

#include "../registry.hpp"
#include "byte_product.hpp"

namespace belay::cpu {

inline constexpr TypeMask kBytes = kI8 | kU8;

// Each passes where the operand is absent; i: its position, -1: the operator has none.
Status expect_one_value(const OpContext& op, int i);
Status expect_type_of(const OpContext& op, int i, int as);  // as operand `as`
Status expect_type(const OpContext& op, int i, uint32_t dtype, std::string_view name);

// The type of an output that has its zero point at `zero`.
Result<uint32_t> byte_output(const OpContext& op, size_t zero);
// Whether the zero points at `i` are known, and all of them 0; an absent operand is.
bool known_zeros(const OpContext& op, int i);

// The scale and zero point at inputs `scale` and `scale + 1`.
struct Line {
  float scale;
  int32_t zero;
};
inline Line line_of(const Run& run, size_t scale, bool has_zero, bool is_signed) {
  return {*run.in<float>(scale), has_zero ? ByteForm{false, is_signed}.value(*run.in<uint8_t>(scale + 1)) : 0};
}

}  // namespace belay::cpu
