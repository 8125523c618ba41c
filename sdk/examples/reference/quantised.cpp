// quantised.cpp: between floating-point numbers and scaled integers.
#include "op.h"

#include <algorithm>

namespace reference {
namespace {

std::pair<double, double> range_of(uint32_t dtype) {
  switch (dtype) {
    case BELAY_DT_UINT8:
      return {0, 255};
    case BELAY_DT_INT8:
      return {-128, 127};
    case BELAY_DT_UINT16:
      return {0, 65535};
    case BELAY_DT_INT16:
      return {-32768, 32767};
    case BELAY_DT_INT32:
      return {-2147483648.0, 2147483647.0};
    default:
      throw std::runtime_error("quantised type " + std::string(belay::dtype_name(dtype)));
  }
}

// Which scale belongs to element i: the only one, or that of its place along `axis`.
int64_t scale_index(const Node& node, const Dims& dims, const Tensor& scale, int64_t i) {
  if (scale.count() == 1) return 0;
  const size_t axis = axis_of(node.int_or("axis", 1), dims.size());
  int64_t inner = 1;
  for (size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  return i / inner % dims[axis];
}

// Float32 arithmetic, as the definition has it: a double quotient would round other ties.
void quantize(Call& call) {
  const auto [low, high] = range_of(call.out[0].dtype);
  for (int64_t i = 0; i < call.out[0].count(); ++i) {
    const int64_t s = scale_index(call.node, call.in[0].dims, call.in[1], i);
    const float scaled = float(call.in[0].real(i)) / float(call.in[1].real(s));
    const double value = double(std::nearbyintf(scaled)) + (call.has(2) ? call.in[2].real(s) : 0);
    call.out[0].put_integer(i, int64_t(std::clamp(value, low, high)));
  }
}

void dequantize(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i) {
    const int64_t s = scale_index(call.node, call.in[0].dims, call.in[1], i);
    call.out[0].put_real(i,
                         (call.in[0].real(i) - (call.has(2) ? call.in[2].real(s) : 0)) * call.in[1].real(s));
  }
}

void dynamic_quantize(Call& call) {
  float low = 0, high = 0;  // the range holds zero
  for (int64_t i = 0; i < call.in[0].count(); ++i) {
    low = std::min(low, float(call.in[0].real(i)));
    high = std::max(high, float(call.in[0].real(i)));
  }
  const float scale = (high - low) / 255.0f;
  const float zero = scale == 0 ? 0 : std::nearbyintf(std::clamp(-low / scale, 0.0f, 255.0f));
  for (int64_t i = 0; i < call.out[0].count(); ++i) {
    const float scaled = scale == 0 ? 0 : std::nearbyintf(float(call.in[0].real(i)) / scale);
    call.out[0].put_integer(i, int64_t(std::clamp(scaled + zero, 0.0f, 255.0f)));
  }
  call.out[1].put_real(0, scale);
  call.out[2].put_integer(0, int64_t(zero));
}

}  // namespace

void add_quantised(Table& table) {
  table.insert({{"QuantizeLinear", {quantize}},
                {"DequantizeLinear", {dequantize}},
                {"DynamicQuantizeLinear", {dynamic_quantize}}});
}

}  // namespace reference
