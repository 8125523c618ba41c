#include "passes/quantized.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace belay::passes {

int64_t quantize(float x, float scale, int64_t zero, uint32_t dtype) {
  const double low = dtype == BELAY_DT_INT8 ? -128 : 0, high = dtype == BELAY_DT_INT8 ? 127 : 255;
  const double q = double(std::nearbyintf(x / scale)) + double(zero);
  return int64_t(q > low ? (q < high ? q : high) : low);  // NaN is the lowest
}

int64_t byte_value(int i, uint32_t dtype) { return dtype == BELAY_DT_INT8 ? int64_t(int8_t(i)) : i; }

Result<QuantizedGraph> QuantizedGraph::of(ir::Model& model, const Evaluator& evaluate) {
  BELAY_ASSIGN(ir::Env env, infer_model(model));
  return QuantizedGraph(model, std::move(env), evaluate);
}

std::optional<Dequantized> QuantizedGraph::parameters(const ir::Node& node) {
  const bool to_bytes = node.is("QuantizeLinear");
  if ((!to_bytes && !node.is("DequantizeLinear")) || node.int_or("block_size", 0) != 0) return std::nullopt;
  if (node.inputs.size() < 2 || node.output(0) == BELAY_NONE) return std::nullopt;
  Dequantized out;
  out.bytes = to_bytes ? node.outputs[0] : node.inputs[0];
  out.scale = node.inputs[1];
  out.zero = node.input(2);
  out.dtype = env().type(out.bytes).dtype;
  const ir::ConstantPtr scale = constant(out.scale);
  if (!scale || scale->dtype != BELAY_DT_FLOAT32 || scale->dims.size() > 1) return std::nullopt;
  const auto scales = ir::as_doubles(*scale);
  if (!scales || scales->empty()) return std::nullopt;
  out.scales = *scales;
  for (const double s : out.scales)
    if (!(s > 0) || !std::isfinite(s)) return std::nullopt;
  out.zeros.assign(out.scales.size(), 0);
  if (out.zero != BELAY_NONE) {
    const ir::ConstantPtr zero = constant(out.zero);
    if (!zero || zero->count() != out.scales.size() || zero->dtype != out.dtype) return std::nullopt;
    const auto zeros = ir::as_doubles(*zero);
    if (!zeros) return std::nullopt;
    out.zeros = *zeros;
  }
  out.axis = node.int_or("axis", 1);
  if (out.axis < 0) {
    if (!env().type(out.bytes).ranked) return std::nullopt;
    out.axis += int64_t(env().type(out.bytes).dims.size());
  }
  return out;
}

std::optional<Dequantized> QuantizedGraph::dequantized(ir::ValueId value) {
  const ir::Node* node = maker(value);
  if (!node || !node->is("DequantizeLinear")) return std::nullopt;
  auto out = parameters(*node);
  if (!out) return std::nullopt;
  // Weights may be floats that the model quantises itself.
  const ir::Node* inner = maker(out->bytes);
  if (inner && inner->is("QuantizeLinear") && constant(inner->input(0)) && evaluate_ && *evaluate_ &&
      env().type(out->bytes).concrete()) {
    const auto made = (*evaluate_)(env(), *inner);
    if (made && made->size() == 1 && (*made)[0])
      out->bytes = add_constant(node->graph, model().values[out->bytes].name + ".bytes", (*made)[0]);
  }
  return out;
}

std::optional<Dequantized> QuantizedGraph::quantizes(const ir::Node* node) {
  if (!node || !node->is("QuantizeLinear") || env().type(node->input(0)).dtype != BELAY_DT_FLOAT32) return std::nullopt;
  auto out = parameters(*node);
  return out && out->per_tensor() && out->is_bytes() ? out : std::nullopt;
}

std::optional<Clamp> QuantizedGraph::clamps(const ir::Node* node) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (!node || (!node->is("Relu") && !node->is("Clip"))) return std::nullopt;
  if (node->is("Relu")) return Clamp{0, kInfinity};
  Clamp out{-kInfinity, kInfinity};
  if (node->find("min") || node->find("max")) return std::nullopt;  // of a definition before 11
  for (size_t i = 1; i < 3; ++i) {
    if (node->input(i) == BELAY_NONE) continue;
    const auto bound = number(node->input(i));
    if (!bound) return std::nullopt;
    (i == 1 ? out.low : out.high) = *bound;
  }
  return out.low <= out.high ? std::optional<Clamp>(out) : std::nullopt;
}

void QuantizedGraph::become_clamp(ir::Node& node, ir::ValueId from, const Dequantized& to, const Clamp& clamp) {
  const float scale = float(to.scales[0]);
  const int64_t zero = int64_t(to.zeros[0]);
  const int64_t low = quantize(clamp.low, scale, zero, to.dtype), high = quantize(clamp.high, scale, zero, to.dtype);
  std::vector<int64_t> table;
  for (int i = 0; i < 256; ++i) table.push_back(std::clamp(byte_value(i, to.dtype), low, high));
  become_table(node, from, to.dtype, to.dtype, table);
}

ir::ValueId QuantizedGraph::bytes(ir::GraphId graph, const std::string& name, uint32_t dtype,
                                  const std::vector<int64_t>& values, ir::Dims dims) {
  auto made = ir::make_constant(dtype, std::move(dims));
  auto* to = const_cast<std::byte*>(made->data);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == BELAY_DT_INT32) {
      const int32_t value = int32_t(values[i]);
      std::memcpy(to + 4 * i, &value, 4);
    } else {
      to[i] = std::byte(uint8_t(values[i]));
    }
  }
  return add_constant(graph, name, made);
}

ir::ValueId QuantizedGraph::zero_of(ir::GraphId graph, const Dequantized& of) {
  if (of.zero != BELAY_NONE) return of.zero;
  return bytes(graph, model().values[of.bytes].name + ".zero", of.dtype,
               std::vector<int64_t>(of.scales.size(), 0),
               of.per_tensor() ? ir::Dims{} : ir::Dims{int64_t(of.scales.size())});
}

void QuantizedGraph::become_table(ir::Node& node, ir::ValueId from, uint32_t from_dtype, uint32_t dtype,
                                  const std::vector<int64_t>& table) {
  bool same = from_dtype == dtype;
  for (int i = 0; i < 256; ++i) same &= table[size_t(i)] == byte_value(i, dtype);
  if (same) return become(node, "", "Identity", 16, {from});
  const ir::ValueId entries = bytes(node.graph, node.name + ".table", dtype, table, {256});
  become(node, kOwnDomain, "ByteTable", 1, {from, entries});
}

}  // namespace belay::passes
