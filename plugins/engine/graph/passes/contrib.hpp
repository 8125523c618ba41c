// passes/contrib.hpp: operators of com.microsoft that are others under one name, written as these. Inside passes only.
#pragma once

#include "passes/node_writer.hpp"
#include "passes/quantized.hpp"

#include <algorithm>
#include <unordered_map>

namespace belay::passes {

class Contrib : NodeWriter {
 public:
  explicit Contrib(ir::Model& model) : NodeWriter(model) {}

  static bool knows(const ir::Node& node) { return node.domain == kMicrosoft && forms().contains(node.op); }
  Result<uint64_t> run();

 private:
  // Gives whether the node is another now.
  using Form = Result<bool> (Contrib::*)(ir::Node&);
  static const std::unordered_map<std::string_view, Form>& forms();

  // A zero of the type of `like`, where that is known.
  ir::ValueId zero_like(ir::ValueId like) {
    const uint32_t dtype = env_.type(like).dtype;
    return dtype == BELAY_DT_UNDEFINED ? BELAY_NONE : constant(ir::make_constant(dtype, {}));
  }

  // An operator that stands before the one at hand.
  struct Part {
    std::string_view op;
    uint32_t version = 1;
    std::string_view domain = {};
    std::vector<ir::Attribute> attributes = {};
  };
  std::vector<ir::ValueId> several(const ir::Node& of, Part part, std::vector<ir::ValueId> inputs,
                                   size_t outputs) {
    while (!inputs.empty() && inputs.back() == BELAY_NONE) inputs.pop_back();
    ir::Node& node = model_.add_node(graph_, std::string(part.op), part.version, of.name);
    node.domain = part.domain;
    node.inputs = std::move(inputs);
    node.attributes = std::move(part.attributes);
    for (size_t i = 0; i < outputs; ++i)
      node.outputs.push_back(model_.add_value(graph_, of.name + "." + std::string(part.op)));
    append(node);
    return node.outputs;
  }
  ir::ValueId before(const ir::Node& of, Part part, std::vector<ir::ValueId> inputs) {
    return several(of, std::move(part), std::move(inputs), 1)[0];
  }
  static ir::Attribute whole(std::string name, int64_t value) {
    ir::Node scratch;
    scratch.set_int(name, value);
    return scratch.attributes[0];
  }
  static ir::Attribute list(std::string name, std::vector<int64_t> values) {
    ir::Node scratch;
    scratch.set_ints(name, std::move(values));
    return scratch.attributes[0];
  }
  static void become(ir::Node& node, std::string_view op, uint32_t version, std::vector<ir::ValueId> inputs,
                     std::string_view domain = {}) {
    while (!inputs.empty() && inputs.back() == BELAY_NONE) inputs.pop_back();
    node.domain = domain;
    node.op = op;
    node.version = version;
    node.inputs = std::move(inputs);
  }
  static void keep_attributes(ir::Node& node, std::initializer_list<std::string_view> names) {
    std::erase_if(node.attributes, [&](const ir::Attribute& at) {
      return std::find(names.begin(), names.end(), at.name) == names.end();
    });
  }
  static std::vector<ir::Attribute> take_attributes(ir::Node& node) {
    return std::exchange(node.attributes, {});
  }
  static Status refuse(const ir::Node& node, const std::string& what, Code code = Code::kUnimplemented) {
    std::string text = node.label();
    text[0] = 'N';
    return {code, text + ": " + what + "."};
  }

  // The same operator as in ONNX.
  template <uint32_t kVersion>
  Result<bool> same(ir::Node& node) {
    node.domain.clear();
    node.version = kVersion;
    return true;
  }

  // contrib.cpp
  Result<bool> transpose_matmul(ir::Node& node);
  Result<bool> range(ir::Node& node);
  Result<bool> pad(ir::Node& node);
  Result<bool> unique(ir::Node& node);
  Result<bool> activate(ir::Node& node, ir::ValueId made, const std::string& activation,
                        const std::vector<std::pair<std::string_view, float>>& parameters);
  Result<bool> fused_conv(ir::Node& node);
  Result<bool> fused_gemm(ir::Node& node);
  Result<bool> fused_matmul_activation(ir::Node& node);
  Result<bool> bias_add(ir::Node& node);
  Result<bool> bias_gelu(ir::Node& node);
  Result<bool> fast_gelu(ir::Node& node);
  Result<bool> gemm_fast_gelu(ir::Node& node);
  Result<bool> bias_split_gelu(ir::Node& node);
  Result<bool> distances(ir::Node& node);

  // contrib_layers.cpp
  static Status refuse_rotary(const ir::Node& node);
  Result<bool> attention(ir::Node& node);
  Result<bool> quantized_attention(ir::Node& node);
  Result<bool> decoder_attention(ir::Node& node);
  Result<bool> embedding(ir::Node& node);
  Result<bool> quantized_embedding(ir::Node& node);
  struct Table {
    ir::ValueId data, scale = BELAY_NONE, zero = BELAY_NONE;  // bytes where there is a scale
  };
  ir::ValueId look_up(const ir::Node& of, const Table& table, ir::ValueId ids);
  Result<bool> add_embeddings(ir::Node& node, const Table& words, const Table& places, const Table& kinds, ir::ValueId gamma,
                              ir::ValueId beta, ir::ValueId place_ids);
  ir::Node& ones(const ir::Node& of, ir::ValueId mask);
  ir::Node& zeros(const ir::Node& of, ir::ValueId shape);
  Result<bool> bias_softmax(ir::Node& node);
  Result<bool> bias_dropout(ir::Node& node);
  Result<bool> relative_position_bias(ir::Node& node);
  Result<bool> gated_position_bias(ir::Node& node);
  Result<bool> group_norm(ir::Node& node);
  Result<bool> causal_conv(ir::Node& node);

  // contrib_quantized.cpp
  ir::ValueId dequantized(const ir::Node& of, ir::ValueId x, ir::ValueId scale, ir::ValueId zero);
  Result<bool> quantize(ir::Node& node, ir::ValueId y, ir::ValueId scale, ir::ValueId zero, ir::ValueId like);
  Result<bool> quantized_unary(ir::Node& node);
  Result<bool> quantized_concat(ir::Node& node);
  Result<bool> quantized_where(ir::Node& node);
  Result<bool> dynamic_matmul(ir::Node& node);
  Result<bool> channels_last(ir::Node& node);
  Result<bool> quantized_lstm(ir::Node& node);
};

}  // namespace belay::passes
