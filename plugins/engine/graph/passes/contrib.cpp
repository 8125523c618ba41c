// Operators of com.microsoft that are others under one name are written as these: what is known of them, and
// done with them, is then known and done once. Those that have kernels of their own stay.
#include "passes/contrib.hpp"

namespace belay::passes {

Result<uint64_t> Contrib::run() {
  return write_graph(0, [this](ir::Node& node) -> Result<uint64_t> {
    if (!knows(node)) return 0;
    BELAY_ASSIGN(const bool changed, (this->*forms().at(node.op))(node));
    return changed;
  });
}

const std::unordered_map<std::string_view, Contrib::Form>& Contrib::forms() {
  static const std::unordered_map<std::string_view, Form> table = {
      {"Attention", &Contrib::attention},
      {"BiasAdd", &Contrib::bias_add},
      {"BiasDropout", &Contrib::bias_dropout},
      {"BiasGelu", &Contrib::bias_gelu},
      {"BiasSoftmax", &Contrib::bias_softmax},
      {"BiasSplitGelu", &Contrib::bias_split_gelu},
      {"CDist", &Contrib::distances},
      {"CausalConvWithState", &Contrib::causal_conv},
      {"DecoderMaskedMultiHeadAttention", &Contrib::decoder_attention},
      {"DequantizeLinear", &Contrib::same<13>},
      {"DynamicQuantizeLSTM", &Contrib::quantized_lstm},
      {"DynamicQuantizeMatMul", &Contrib::dynamic_matmul},
      {"EmbedLayerNormalization", &Contrib::embedding},
      {"FastGelu", &Contrib::fast_gelu},
      {"FusedConv", &Contrib::fused_conv},
      {"FusedGemm", &Contrib::fused_gemm},
      {"FusedMatMulActivation", &Contrib::fused_matmul_activation},
      {"GatedRelativePositionBias", &Contrib::gated_position_bias},
      {"GatherND", &Contrib::same<13>},
      {"GemmFastGelu", &Contrib::gemm_fast_gelu},
      {"GridSample", &Contrib::same<16>},
      {"GroupNorm", &Contrib::group_norm},
      {"NhwcConv", &Contrib::channels_last},
      {"NhwcFusedConv", &Contrib::channels_last},
      {"NhwcMaxPool", &Contrib::channels_last},
      {"Pad", &Contrib::pad},
      {"QAttention", &Contrib::quantized_attention},
      {"QEmbedLayerNormalization", &Contrib::quantized_embedding},
      {"QLinearAveragePool", &Contrib::channels_last},
      {"QLinearConcat", &Contrib::quantized_concat},
      {"QLinearConv", &Contrib::channels_last},
      {"QLinearLeakyRelu", &Contrib::quantized_unary},
      {"QLinearReduceMean", &Contrib::quantized_unary},
      {"QLinearSigmoid", &Contrib::quantized_unary},
      {"QLinearSoftmax", &Contrib::quantized_unary},
      {"QLinearWhere", &Contrib::quantized_where},
      {"QuantizeLinear", &Contrib::same<13>},
      {"Range", &Contrib::range},
      {"RelativePositionBias", &Contrib::relative_position_bias},
      {"SkipGroupNorm", &Contrib::group_norm},
      {"TransposeMatMul", &Contrib::transpose_matmul},
      {"Trilu", &Contrib::same<14>},
      {"Unique", &Contrib::unique},
  };
  return table;
}

// ---- the same operator as in ONNX, or nearly

Result<bool> Contrib::transpose_matmul(ir::Node& node) {
  node.op = "FusedMatMul";
  return true;
}

Result<bool> Contrib::range(ir::Node& node) {
  std::vector<ir::ValueId> inputs = node.inputs;
  inputs.resize(3, BELAY_NONE);
  const uint32_t dtype = env_.type(inputs[0]).dtype;
  if (inputs[2] == BELAY_NONE) {
    if (dtype == BELAY_DT_UNDEFINED) return false;
    if (dtype == BELAY_DT_INT64)
      inputs[2] = constant(ir::make_int64s(std::vector<int64_t>{1}, {}));
    else
      inputs[2] = before(node, {"Cast", 13, {}, {whole("to", dtype)}},
                         {constant(ir::make_int64s(std::vector<int64_t>{1}, {}))});
  }
  become(node, "Range", 11, std::move(inputs));
  return true;
}

// Its pads may be a row of a matrix.
Result<bool> Contrib::pad(ir::Node& node) {
  const ir::ValueId pads = before(node, {"Reshape", 14}, {node.input(1), ints({-1})});
  become(node, "Pad", 13, {node.input(0), pads, node.input(2)});
  return true;
}

// Values in the order in which they come first; no list of where they do.
Result<bool> Contrib::unique(ir::Node& node) {
  node.outputs.resize(3, BELAY_NONE);
  node.outputs.insert(node.outputs.begin() + 1, BELAY_NONE);
  while (node.outputs.size() > 1 && node.outputs.back() == BELAY_NONE) node.outputs.pop_back();
  become(node, "Unique", 11, node.inputs);
  node.set_int("sorted", 0);
  return true;
}

// ---- activations

// The activation that a fused node ends with, on what `made` holds; nothing: none is wanted.
Result<bool> Contrib::activate(ir::Node& node, ir::ValueId made, const std::string& activation,
                      const std::vector<std::pair<std::string_view, float>>& parameters) {
  static const std::unordered_map<std::string_view, uint32_t> known = {
      {"Relu", 14}, {"Tanh", 13},      {"Sigmoid", 13}, {"LeakyRelu", 16},       {"HardSigmoid", 6},
      {"Elu", 6},   {"Softplus", 1},   {"Softsign", 1}, {"ThresholdedRelu", 10}, {"Selu", 6},
      {"Celu", 12}, {"HardSwish", 14}, {"Clip", 13}};
  const auto at = known.find(activation);
  if (at == known.end()) return refuse(node, "activation '" + activation + "' is not known here");
  std::vector<ir::ValueId> inputs{made};
  if (activation == "Clip") {
    const uint32_t dtype = env_.type(made).dtype;
    if (parameters.size() != 2 || !ir::is_float(dtype))
      return refuse(node, "the activation Clip needs two parameters and a float type",
                    Code::kInvalidArgument);
    for (const auto& [name, value] : parameters)
      inputs.push_back(constant(ir::make_scalar(dtype, double(value))));
  } else {
    for (const auto& [name, value] : parameters) node.set_float(name, value);
  }
  become(node, activation, at->second, std::move(inputs));
  return true;
}

Result<bool> Contrib::fused_conv(ir::Node& node) {
  const std::string activation(node.string_or("activation", ""));
  std::vector<float> values;
  if (const ir::Attribute* at = node.find("activation_params"); at && at->kind == BELAY_ATTR_FLOATS)
    values = at->floats;
  keep_attributes(node, {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"});
  const std::vector<ir::ValueId> inputs{node.input(0), node.input(1), node.input(2)};
  const ir::ValueId added = node.input(3);
  if (activation.empty() && added == BELAY_NONE) {
    become(node, "Conv", 11, inputs);
    return true;
  }
  ir::ValueId made = before(node, {"Conv", 11, {}, take_attributes(node)}, inputs);
  if (activation.empty()) {
    become(node, "Add", 14, {made, added});
    return true;
  }
  if (added != BELAY_NONE) made = before(node, {"Add", 14}, {made, added});
  std::vector<std::pair<std::string_view, float>> parameters;
  static constexpr std::string_view kNames[] = {"alpha", "beta"};
  for (size_t i = 0; i < values.size() && i < 2; ++i) parameters.emplace_back(kNames[i], values[i]);
  return activate(node, made, activation, parameters);
}

Result<bool> Contrib::fused_gemm(ir::Node& node) {
  const std::string activation(node.string_or("activation", ""));
  std::vector<std::pair<std::string_view, float>> parameters;
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"activation_alpha", "alpha"},
                                 {"activation_beta", "beta"},
                                 {"activation_gamma", "gamma"}})
    if (node.find(from)) parameters.emplace_back(to, node.float_or(from, 0));
  keep_attributes(node, {"alpha", "beta", "transA", "transB"});
  if (activation.empty()) {
    become(node, "Gemm", 13, node.inputs);
    return true;
  }
  const ir::ValueId made = before(node, {"Gemm", 13, {}, take_attributes(node)}, node.inputs);
  return activate(node, made, activation, parameters);
}

Result<bool> Contrib::bias_add(ir::Node& node) {
  become(node, "Add", 14, {before(node, {"Add", 14}, {node.input(0), node.input(1)}), node.input(2)});
  return true;
}
Result<bool> Contrib::bias_gelu(ir::Node& node) {
  become(node, "Gelu", 1, {before(node, {"Add", 14}, {node.input(0), node.input(1)})}, kMicrosoft);
  return true;
}
Result<bool> Contrib::fast_gelu(ir::Node& node) {
  ir::ValueId x = node.input(0);
  if (node.input(1) != BELAY_NONE) x = before(node, {"Add", 14}, {x, node.input(1)});
  become(node, "Gelu", 20, {x});
  node.set_string("approximate", "tanh");
  return true;
}
Result<bool> Contrib::gemm_fast_gelu(ir::Node& node) {
  node.inputs = {before(node, {"MatMul", 13}, {node.input(0), node.input(1)}), node.input(2)};
  return fast_gelu(node);
}
Result<bool> Contrib::bias_split_gelu(ir::Node& node) {
  const ir::ValueId sum = before(node, {"Add", 14}, {node.input(0), node.input(1)});
  const std::vector<ir::ValueId> halves = several(node, {"Split", 13, {}, {whole("axis", -1)}}, {sum}, 2);
  become(node, "Mul", 14, {halves[0], before(node, {"Gelu", 1, kMicrosoft}, {halves[1]})});
  return true;
}

// ---- distances of the rows of two matrices
Result<bool> Contrib::distances(ir::Node& node) {
  const std::string metric(node.string_or("metric", "sqeuclidean"));
  if (metric != "sqeuclidean" && metric != "euclidean")
    return refuse(node, "metric is '" + metric + "', want 'sqeuclidean' or 'euclidean'",
                  Code::kInvalidArgument);
  node.attributes.clear();
  const ir::ValueId a = before(node, {"Unsqueeze", 13}, {node.input(0), ints({1})});
  const ir::ValueId apart = before(node, {"Sub", 14}, {a, node.input(1)});
  std::vector<ir::Attribute> rows{list("axes", {2}), whole("keepdims", 0)};
  if (metric == "euclidean") {
    become(node, "Sqrt", 13, {before(node, {"ReduceSumSquare", 13, {}, std::move(rows)}, {apart})});
  } else {
    node.attributes = std::move(rows);
    become(node, "ReduceSumSquare", 13, {apart});
  }
  return true;
}

Result<bool> Contrib::fused_matmul_activation(ir::Node& node) {
  const std::string activation(node.string_or("activation", ""));
  std::vector<std::pair<std::string_view, float>> parameters;
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"activation_alpha", "alpha"},
                                 {"activation_beta", "beta"},
                                 {"activation_gamma", "gamma"}})
    if (node.find(from)) parameters.emplace_back(to, node.float_or(from, 0));
  if (const int64_t axis = node.int_or("activation_axis", -1); axis != -1)
    return refuse(node, "attribute 'activation_axis' is " + std::to_string(axis) + ", only activations without an axis are known here");
  keep_attributes(node, {"alpha", "transA", "transB", "transBatchA", "transBatchB"});
  return activate(node, before(node, {"FusedMatMul", 1, kMicrosoft, take_attributes(node)}, {node.input(0), node.input(1)}),
                  activation, parameters);
}

Result<uint64_t> write_contrib(ir::Model& model, const Evaluator&) {
  const bool any = std::any_of(model.graphs.begin(), model.graphs.end(), [&](const ir::Graph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                       [&](ir::NodeId id) { return Contrib::knows(model.nodes[id]); });
  });
  if (!any) return 0;
  return Contrib(model).run();
}

}  // namespace belay::passes
