#include "operands.hpp"

#include <algorithm>
#include <string>

namespace belay::cpu {

Status expect_one_value(const OpContext& op, int i) {
  if (i < 0 || !op.has(size_t(i)) || op.count(size_t(i)) == 1) return {};
  return op.bad("input " + std::to_string(i) + " has the shape " + text_of(op.dims(size_t(i))) + ", want one value");
}

Status expect_type_of(const OpContext& op, int i, int as) {
  return expect_type(op, i, op.dtype(size_t(as)), "input " + std::to_string(i));
}

Status expect_type(const OpContext& op, int i, uint32_t dtype, std::string_view name) {
  if (i < 0 || !op.has(size_t(i)) || op.dtype(size_t(i)) == dtype) return {};
  return op.bad(std::string(name) + " is of type " + std::string(dtype_name(op.dtype(size_t(i)))) + ", want " +
                std::string(dtype_name(dtype)));
}

Result<uint32_t> byte_output(const OpContext& op, size_t zero) {
  const uint32_t out = op.dtype(zero);
  if (out == BELAY_DT_INT8 || out == BELAY_DT_UINT8) return out;
  return op.bad("the output's zero point is of type " + std::string(dtype_name(out)) + ", want int8 or uint8");
}

bool known_zeros(const OpContext& op, int i) {
  if (i < 0 || !op.has(size_t(i))) return true;
  const auto* zeros = static_cast<const uint8_t*>(op.constant(size_t(i)));
  return zeros && std::all_of(zeros, zeros + op.count(size_t(i)), [](uint8_t zero) { return zero == 0; });
}

}  // namespace belay::cpu
