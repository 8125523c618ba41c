// Rules of operators that work element by element, and of reductions.
#include "ir/infer_context.hpp"

namespace belay::ir {
namespace {

Status like_first(Infer& at) {
  at.set(0, at.in(0));
  return {};
}

Status to_bool(Infer& at) {
  Type type = at.in(0);
  type.kind = BELAY_TYPE_TENSOR;
  type.dtype = BELAY_DT_BOOL;
  at.set(0, type);
  return {};
}

Status broadcast_all(Infer& at, uint32_t dtype) {
  Dims dims;
  for (size_t i = 0; i < at.inputs(); ++i) {
    if (!at.has(i)) continue;
    if (!at.ranked(i)) {
      at.set_unranked(0, dtype);
      return {};
    }
    BELAY_TRY(at.broadcast(dims, at.dims(i)));
  }
  at.set(0, dtype, std::move(dims));
  return {};
}

Status broadcasting(Infer& at) {
  // Both operands of ONNX arithmetic have one type (Pow apart, whose result has its base's).
  if (!at.node().is("Pow"))
    for (size_t i = 1; i < at.inputs(); ++i)
      if (at.dtype(i) != BELAY_DT_UNDEFINED && at.dtype(0) != BELAY_DT_UNDEFINED &&
          at.dtype(i) != at.dtype(0))
        return at.fail("operands have different element types");
  return broadcast_all(at, at.dtype(0));
}

Status comparison(Infer& at) {
  if (at.dtype(0) != BELAY_DT_UNDEFINED && at.dtype(1) != BELAY_DT_UNDEFINED && at.dtype(0) != at.dtype(1))
    return at.fail("operands have different element types");
  return broadcast_all(at, BELAY_DT_BOOL);
}

Status prelu(Infer& at) {
  if (at.ranked(0) && at.ranked(1)) {
    Dims dims = at.dims(0);
    BELAY_TRY(at.broadcast(dims, at.dims(1)));
    if (dims.size() != at.dims(0).size()) return at.fail("the slope does not broadcast to the input");
    // An input dim of 1 does not grow: the slope broadcasts in one direction.
    for (size_t i = 0; i < dims.size(); ++i)
      if (at.dims(0)[i] == 1 && dims[i] > 1) return at.fail("the slope does not broadcast to the input");
  }
  return like_first(at);
}

Status where(Infer& at) { return broadcast_all(at, at.dtype(1)); }

Status cast(Infer& at) {
  Type type = at.in(0);
  type.kind = BELAY_TYPE_TENSOR;
  type.dtype = uint32_t(at.node().int_or("to", 0));
  if (!find_dtype(type.dtype))
    return at.fail("attribute 'to' is no element type: " + std::to_string(type.dtype));
  at.set(0, type);
  return {};
}

Status cast_like(Infer& at) {
  Type type = at.in(0);
  type.kind = BELAY_TYPE_TENSOR;
  type.dtype = at.dtype(1);
  at.set(0, type);
  return {};
}

Status dropout(Infer& at) {
  at.set(0, at.in(0));
  Type mask = at.in(0);
  mask.dtype = BELAY_DT_BOOL;
  at.set(1, mask);
  return {};
}

Status quantize(Infer& at) {
  Type type = at.in(0);
  type.kind = BELAY_TYPE_TENSOR;
  type.dtype = at.has(2) ? at.dtype(2) : uint32_t(at.node().int_or("output_dtype", 0));
  if (type.dtype == BELAY_DT_UNDEFINED) type.dtype = BELAY_DT_UINT8;
  at.set(0, type);
  return {};
}

// QLinearAdd, QLinearMul: operands 0 and 3.
Status qlinear_binary(Infer& at) {
  if (!at.ranked(0) || !at.ranked(3)) {
    at.set_unranked(0, at.dtype(0));
    return {};
  }
  Dims out = at.dims(0);
  BELAY_TRY(at.broadcast(out, at.dims(3)));
  at.set(0, at.dtype(0), std::move(out));
  return {};
}

Status byte_table(Infer& at) {
  Type type = at.in(0);
  type.kind = BELAY_TYPE_TENSOR;
  type.dtype = at.dtype(1);
  at.set(0, type);
  return {};
}

Status dequantize(Infer& at) {
  Type type = at.in(0);
  type.kind = BELAY_TYPE_TENSOR;
  // Scales that are no floats for results are integers or powers of 2.
  type.dtype = uint32_t(at.node().int_or("output_dtype", 0));
  if (type.dtype == BELAY_DT_UNDEFINED) type.dtype = is_float(at.dtype(1)) ? at.dtype(1) : uint32_t(BELAY_DT_FLOAT32);
  at.set(0, type);
  return {};
}

Status dynamic_quantize(Infer& at) {
  Type type = at.in(0);
  type.kind = BELAY_TYPE_TENSOR;
  type.dtype = BELAY_DT_UINT8;
  at.set(0, type);
  at.set(1, BELAY_DT_FLOAT32, {});
  at.set(2, BELAY_DT_UINT8, {});
  return {};
}

Status reduce(Infer& at) {
  const uint32_t dtype = at.node().op.starts_with("Arg") ? uint32_t(BELAY_DT_INT64) : at.dtype(0);
  const bool keep = at.node().int_or("keepdims", 1) != 0;
  if (!at.ranked(0)) {
    at.set_unranked(0, dtype);
    return {};
  }
  const int64_t rank = at.rank(0);
  std::optional<Dims> axes;
  bool given = false;
  if (at.node().op.starts_with("Arg")) {
    axes = Dims{at.node().int_or("axis", 0)};
    given = true;
  } else if (const auto* attribute = at.node().ints("axes")) {
    axes = *attribute;
    given = true;
  } else if (at.has(1)) {
    axes = at.known_ints(1);
    given = true;
  }
  if (given && !axes) {
    if (keep)
      at.set(0, dtype, Dims(size_t(rank), kUnknown));
    else
      at.set_unranked(0, dtype);
    return {};
  }
  std::vector<bool> reduced(size_t(rank), false);
  if (!given || axes->empty()) {
    if (at.node().int_or("noop_with_empty_axes", 0) == 0) reduced.assign(size_t(rank), true);
  } else {
    BELAY_ASSIGN(const std::vector<size_t> named, at.axes(*axes, rank));
    for (const size_t axis : named) reduced[axis] = true;
  }
  Dims dims;
  for (size_t i = 0; i < size_t(rank); ++i) {
    if (!reduced[i])
      dims.push_back(at.dims(0)[i]);
    else if (keep)
      dims.push_back(1);
  }
  at.set(0, dtype, std::move(dims));
  return {};
}

Status softmax(Infer& at) {
  if (at.ranked(0)) BELAY_TRY(at.axis(at.node().int_or("axis", -1), at.rank(0)).status());
  return like_first(at);
}

Status random_like(Infer& at) {
  Type type = at.in(0);
  const int64_t dtype = at.node().int_or("dtype", 0);
  if (dtype) type.dtype = uint32_t(dtype);
  at.set(0, type);
  return {};
}

Status random_shape(Infer& at) {
  const auto* shape = at.node().ints("shape");
  if (!shape) return at.fail("attribute 'shape' is missing");
  at.set(0, uint32_t(at.node().int_or("dtype", BELAY_DT_FLOAT32)), *shape);
  return {};
}

constexpr RuleEntry kElementwiseRules[] = {
    {"Abs", like_first},
    {"Acos", like_first},
    {"Acosh", like_first},
    {"Asin", like_first},
    {"Asinh", like_first},
    {"Atan", like_first},
    {"Atanh", like_first},
    {"Ceil", like_first},
    {"Celu", like_first},
    {"Clip", like_first},
    {"Cos", like_first},
    {"Cosh", like_first},
    {"CumProd", like_first},
    {"CumSum", like_first},
    {"Elu", like_first},
    {"Erf", like_first},
    {"Exp", like_first},
    {"Floor", like_first},
    {"Gelu", like_first},
    {"HardSigmoid", like_first},
    {"HardSwish", like_first},
    {"Hardmax", softmax},
    {"Identity", like_first},
    {"LRN", like_first},
    {"LeakyRelu", like_first},
    {"Log", like_first},
    {"LogSoftmax", softmax},
    {"LpNormalization", like_first},
    {"MeanVarianceNormalization", like_first},
    {"Mish", like_first},
    {"Neg", like_first},
    {"Not", like_first},
    {"Reciprocal", like_first},
    {"Relu", like_first},
    {"ReverseSequence", like_first},
    {"RotaryEmbedding", like_first},
    {"TensorScatter", like_first},
    {"Round", like_first},
    {"Selu", like_first},
    {"Shrink", like_first},
    {"Sigmoid", like_first},
    {"Sign", like_first},
    {"Sin", like_first},
    {"Sinh", like_first},
    {"Softmax", softmax},
    {"Softplus", like_first},
    {"Softsign", like_first},
    {"Sqrt", like_first},
    {"Swish", like_first},
    {"Tan", like_first},
    {"Tanh", like_first},
    {"ThresholdedRelu", like_first},
    {"Trilu", like_first},
    {"Scatter", like_first},
    {"ScatterElements", like_first},
    {"ScatterND", like_first},
    {"GroupNormalization", like_first},
    {"InstanceNormalization", like_first},
    {"QuickGelu", like_first, kMicrosoft},
    {"Inverse", like_first, kMicrosoft},
    {"IsInf", to_bool},
    {"IsNaN", to_bool},
    {"Add", broadcasting},
    {"Sub", broadcasting},
    {"Mul", broadcasting},
    {"Div", broadcasting},
    {"Mod", broadcasting},
    {"Pow", broadcasting},
    {"BitShift", broadcasting},
    {"And", broadcasting},
    {"Or", broadcasting},
    {"Xor", broadcasting},
    {"BitwiseAnd", broadcasting},
    {"BitwiseOr", broadcasting},
    {"BitwiseXor", broadcasting},
    {"BitwiseNot", like_first},
    {"Max", broadcasting},
    {"Min", broadcasting},
    {"Sum", broadcasting},
    {"Mean", broadcasting},
    {"PRelu", prelu},
    {"Where", where},
    {"Equal", comparison},
    {"Greater", comparison},
    {"GreaterOrEqual", comparison},
    {"Less", comparison},
    {"LessOrEqual", comparison},
    {"BitCast", cast},
    {"Cast", cast},
    {"CastLike", cast_like},
    {"Dropout", dropout},
    {"QuantizeLinear", quantize},
    {"DequantizeLinear", dequantize},
    {"QLinearAdd", qlinear_binary, kMicrosoft},
    {"QLinearMul", qlinear_binary, kMicrosoft},
    {"ByteTable", byte_table, kOwnDomain},
    {"DynamicQuantizeLinear", dynamic_quantize},
    {"ReduceL1", reduce},
    {"ReduceL2", reduce},
    {"ReduceLogSum", reduce},
    {"ReduceLogSumExp", reduce},
    {"ReduceMax", reduce},
    {"ReduceMean", reduce},
    {"ReduceMin", reduce},
    {"ReduceProd", reduce},
    {"ReduceSum", reduce},
    {"ReduceSumSquare", reduce},
    {"ArgMax", reduce},
    {"ArgMin", reduce},
    {"Bernoulli", random_like},
    {"RandomNormalLike", random_like},
    {"RandomUniformLike", random_like},
    {"EyeLike", random_like},
    {"RandomNormal", random_shape},
    {"RandomUniform", random_shape},
};

}  // namespace

std::span<const RuleEntry> elementwise_rules() { return kElementwiseRules; }

}  // namespace belay::ir
