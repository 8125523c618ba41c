// Operators of com.microsoft that are others under one name are written as these: what is known of them, and
// done with them, is then known and done once. Those that have kernels of their own stay.
#include "passes/node_writer.hpp"
#include "passes/quantized.hpp"

#include <algorithm>
#include <unordered_map>

namespace belay::passes {
namespace {

class Contrib : NodeWriter {
 public:
  explicit Contrib(ir::Model& model) : NodeWriter(model) {}

  static bool knows(const ir::Node& node) { return node.domain == kMicrosoft && forms().contains(node.op); }

  Result<uint64_t> run() {
    return write_graph(0, [this](ir::Node& node) -> Result<uint64_t> {
      if (!knows(node)) return 0;
      BELAY_ASSIGN(const bool changed, (this->*forms().at(node.op))(node));
      return changed;
    });
  }

 private:
  // Gives whether the node is another now.
  using Form = Result<bool> (Contrib::*)(ir::Node&);
  static const std::unordered_map<std::string_view, Form>& forms() {
    static const std::unordered_map<std::string_view, Form> table = {
        {"Attention", &Contrib::attention},
        {"BiasAdd", &Contrib::bias_add},
        {"BiasGelu", &Contrib::bias_gelu},
        {"BiasSplitGelu", &Contrib::bias_split_gelu},
        {"CDist", &Contrib::distances},
        {"DequantizeLinear", &Contrib::same<13>},
        {"DynamicQuantizeLSTM", &Contrib::quantized_lstm},
        {"DynamicQuantizeMatMul", &Contrib::dynamic_matmul},
        {"EmbedLayerNormalization", &Contrib::embedding},
        {"FastGelu", &Contrib::fast_gelu},
        {"FusedConv", &Contrib::fused_conv},
        {"FusedGemm", &Contrib::fused_gemm},
        {"GatherND", &Contrib::same<13>},
        {"GemmFastGelu", &Contrib::gemm_fast_gelu},
        {"GridSample", &Contrib::same<16>},
        {"Pad", &Contrib::pad},
        {"QAttention", &Contrib::quantized_attention},
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
        {"TransposeMatMul", &Contrib::transpose_matmul},
        {"Trilu", &Contrib::same<14>},
        {"Unique", &Contrib::unique},
    };
    return table;
  }

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

  // ---- the same operator as in ONNX

  template <uint32_t kVersion>
  Result<bool> same(ir::Node& node) {
    node.domain.clear();
    node.version = kVersion;
    return true;
  }

  Result<bool> transpose_matmul(ir::Node& node) {
    node.op = "FusedMatMul";
    return true;
  }

  Result<bool> range(ir::Node& node) {
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
  Result<bool> pad(ir::Node& node) {
    const ir::ValueId pads = before(node, {"Reshape", 14}, {node.input(1), ints({-1})});
    become(node, "Pad", 13, {node.input(0), pads, node.input(2)});
    return true;
  }

  // Values in the order in which they come first; no list of where they do.
  Result<bool> unique(ir::Node& node) {
    node.outputs.resize(3, BELAY_NONE);
    node.outputs.insert(node.outputs.begin() + 1, BELAY_NONE);
    while (node.outputs.size() > 1 && node.outputs.back() == BELAY_NONE) node.outputs.pop_back();
    become(node, "Unique", 11, node.inputs);
    node.set_int("sorted", 0);
    return true;
  }

  // ---- activations

  // The activation that a fused node ends with, on what `made` holds; nothing: none is wanted.
  Result<bool> activate(ir::Node& node, ir::ValueId made, const std::string& activation,
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

  Result<bool> fused_conv(ir::Node& node) {
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

  Result<bool> fused_gemm(ir::Node& node) {
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

  Result<bool> bias_add(ir::Node& node) {
    become(node, "Add", 14, {before(node, {"Add", 14}, {node.input(0), node.input(1)}), node.input(2)});
    return true;
  }
  Result<bool> bias_gelu(ir::Node& node) {
    become(node, "Gelu", 1, {before(node, {"Add", 14}, {node.input(0), node.input(1)})}, kMicrosoft);
    return true;
  }
  Result<bool> fast_gelu(ir::Node& node) {
    ir::ValueId x = node.input(0);
    if (node.input(1) != BELAY_NONE) x = before(node, {"Add", 14}, {x, node.input(1)});
    become(node, "Gelu", 20, {x});
    node.set_string("approximate", "tanh");
    return true;
  }
  Result<bool> gemm_fast_gelu(ir::Node& node) {
    node.inputs = {before(node, {"MatMul", 13}, {node.input(0), node.input(1)}), node.input(2)};
    return fast_gelu(node);
  }
  Result<bool> bias_split_gelu(ir::Node& node) {
    const ir::ValueId sum = before(node, {"Add", 14}, {node.input(0), node.input(1)});
    const std::vector<ir::ValueId> halves = several(node, {"Split", 13, {}, {whole("axis", -1)}}, {sum}, 2);
    become(node, "Mul", 14, {halves[0], before(node, {"Gelu", 1, kMicrosoft}, {halves[1]})});
    return true;
  }

  // ---- attention: the projection is a product like others

  static Status refuse_rotary(const ir::Node& node) {
    if (const int64_t value = node.int_or("do_rotary", 0); value != 0)
      return refuse(node, "attribute 'do_rotary' is " + std::to_string(value) +
                              ", only 0 is supported: the operator does not say by which angles; put RotaryEmbedding before "
                              "MultiHeadAttention in its place");
    return {};
  }
  Result<bool> attention(ir::Node& node) {
    BELAY_TRY(refuse_rotary(node));
    ir::ValueId qkv = before(node, {"MatMul", 13}, {node.input(0), node.input(1)});
    if (node.input(2) != BELAY_NONE) qkv = before(node, {"Add", 14}, {qkv, node.input(2)});
    keep_attributes(node, {"mask_filter_value", "num_heads", "past_present_share_buffer", "qkv_hidden_sizes", "scale",
                           "unidirectional"});
    become(node, "QkvAttention", 1, {qkv, node.input(3), node.input(4), node.input(5), node.input(6)}, kOwnDomain);
    return true;
  }
  Result<bool> quantized_attention(ir::Node& node) {
    BELAY_TRY(refuse_rotary(node));
    if (node.int_or("past_present_share_buffer", 0) != 0)
      return refuse(node, "attribute 'past_present_share_buffer' is 1, but no input says how much the buffer holds");
    const ir::ValueId qkv = before(node, {"MatMulIntegerToFloat", 1, kMicrosoft},
                                   {node.input(0), node.input(1), node.input(3), node.input(4), node.input(6),
                                    node.input(7), node.input(2)});
    keep_attributes(node, {"mask_filter_value", "num_heads", "scale", "unidirectional"});
    become(node, "QkvAttention", 1, {qkv, node.input(5), node.input(8)}, kOwnDomain);
    return true;
  }

  // ---- distances of the rows of two matrices
  Result<bool> distances(ir::Node& node) {
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

  // ---- word, position and segment of each place, added and normalised

  Result<bool> embedding(ir::Node& node) {
    const ir::ValueId ids = node.input(0), mask = node.input(7);
    ir::ValueId sum = before(node, {"Gather", 13}, {node.input(2), ids});
    if (node.input(1) != BELAY_NONE && node.input(4) != BELAY_NONE)
      sum = before(node, {"Add", 14}, {sum, before(node, {"Gather", 13}, {node.input(4), node.input(1)})});
    const ir::ValueId shape = before(node, {"Shape", 15}, {ids});
    ir::ValueId places = BELAY_NONE;
    if (node.input(8) != BELAY_NONE) {
      places = before(node, {"Gather", 13}, {node.input(3), node.input(8)});
    } else {
      const ir::ValueId length = before(node, {"Slice", 13}, {shape, ints({1}), ints({2}), ints({0})});
      places = before(node, {"Slice", 13}, {node.input(3), ints({0}), length, ints({0})});
    }
    if (const ir::ValueId counts = node.output(1); counts != BELAY_NONE) {
      ir::Node& last = mask == BELAY_NONE ? zeros(node, shape) : ones(node, mask);
      last.outputs = {counts};
      append(last);
    }
    const ir::ValueId sums = node.output(2);
    node.outputs = {node.output(0)};
    if (sums != BELAY_NONE) node.outputs.insert(node.outputs.end(), {BELAY_NONE, BELAY_NONE, sums});
    const float epsilon = node.float_or("epsilon", 1e-12f);
    node.attributes.clear();
    node.set_float("epsilon", epsilon);
    become(node, "SkipLayerNormalization", 1, {sum, places, node.input(5), node.input(6)}, kMicrosoft);
    return true;
  }
  // How many ones there are in each row of a mask. The node is not in the list yet.
  ir::Node& ones(const ir::Node& of, ir::ValueId mask) {
    const ir::ValueId one = before(of, {"Cast", 13, {}, {whole("to", BELAY_DT_INT32)}},
                                   {constant(ir::make_int64s(std::vector<int64_t>{1}, {}))});
    const ir::ValueId equal = before(of, {"Equal", 13}, {mask, one});
    const ir::ValueId counted = before(of, {"Cast", 13, {}, {whole("to", BELAY_DT_INT32)}}, {equal});
    ir::Node& node = model_.add_node(graph_, "ReduceSum", 13, of.name);
    node.inputs = {counted, ints({1})};
    node.set_int("keepdims", 0);
    return node;
  }
  ir::Node& zeros(const ir::Node& of, ir::ValueId shape) {
    const ir::ValueId rows = before(of, {"Slice", 13}, {shape, ints({0}), ints({1}), ints({0})});
    ir::Node& node = model_.add_node(graph_, "ConstantOfShape", 9, of.name);
    node.inputs = {rows};
    ir::Attribute& value = node.attributes.emplace_back();
    value.name = "value";
    value.kind = BELAY_ATTR_TENSOR;
    value.tensors = {ir::make_constant(BELAY_DT_INT32, {1})};
    return node;
  }

  // ---- quantised operators

  ir::ValueId dequantized(const ir::Node& of, ir::ValueId x, ir::ValueId scale, ir::ValueId zero) {
    return before(of, {"DequantizeLinear", 13}, {x, scale, zero});
  }
  // `node` quantises y to the type of `like`.
  Result<bool> quantize(ir::Node& node, ir::ValueId y, ir::ValueId scale, ir::ValueId zero,
                        ir::ValueId like) {
    node.attributes.clear();
    become(node, "QuantizeLinear", 13, {y, scale, zero == BELAY_NONE ? zero_like(like) : zero});
    return true;
  }

  Result<bool> quantized_unary(ir::Node& node) {
    static const std::unordered_map<std::string_view, uint32_t> versions = {
        {"LeakyRelu", 16}, {"ReduceMean", 13}, {"Sigmoid", 13}, {"Softmax", 13}};
    Part part{};
    const auto inner = versions.find(std::string_view(node.op).substr(7));
    part.op = inner->first;
    part.version = inner->second;
    if (part.op == "Softmax") {
      const int64_t opset = node.int_or("opset", 13);
      if (opset < 13) part.version = opset < 11 ? 1 : 11;
      if (!node.find("axis")) node.set_int("axis", -1);
      node.erase("opset");
    }
    part.attributes = take_attributes(node);
    const ir::ValueId x = node.input(0);
    const ir::ValueId y = before(node, std::move(part), {dequantized(node, x, node.input(1), node.input(2))});
    return quantize(node, y, node.input(3), node.input(4), x);
  }

  Result<bool> quantized_concat(ir::Node& node) {
    if (node.inputs.size() < 5 || (node.inputs.size() - 2) % 3 != 0)
      return refuse(
          node,
          "there are " + std::to_string(node.inputs.size()) +
              " inputs, want a scale and a zero point, then a tensor, a scale and a zero point for each part",
          Code::kInvalidArgument);
    std::vector<ir::ValueId> parts;
    for (size_t i = 2; i < node.inputs.size(); i += 3)
      parts.push_back(dequantized(node, node.inputs[i], node.inputs[i + 1], node.inputs[i + 2]));
    const std::vector<ir::ValueId> inputs = node.inputs;
    return quantize(node, before(node, {"Concat", 13, {}, take_attributes(node)}, std::move(parts)),
                    inputs[0], inputs[1], inputs[2]);
  }

  Result<bool> quantized_where(ir::Node& node) {
    const ir::ValueId x = dequantized(node, node.input(1), node.input(2), node.input(3));
    const ir::ValueId y = dequantized(node, node.input(4), node.input(5), node.input(6));
    return quantize(node, before(node, {"Where", 16}, {node.input(0), x, y}), node.input(7), node.input(8),
                    node.input(1));
  }

  Result<bool> dynamic_matmul(ir::Node& node) {
    const std::vector<ir::ValueId> a = several(node, {"DynamicQuantizeLinear", 11}, {node.input(0)}, 3);
    become(node, "MatMulIntegerToFloat", 1,
           {a[0], node.input(1), a[1], node.input(2), a[2], node.input(3), node.input(4)}, kMicrosoft);
    return true;
  }

  // Channels go to the front and back again.
  Result<bool> channels_last(ir::Node& node) {
    const bool conv = node.op == "QLinearConv";
    if (node.int_or("channels_last", 0) != 0) {
      size_t rank = 0;
      if (const auto* kernel = node.ints("kernel_shape"); kernel && !kernel->empty())
        rank = kernel->size() + 2;
      else if (conv && env_.type(node.input(3)).ranked)
        rank = env_.type(node.input(3)).dims.size();
      if (rank < 3) return refuse(node, "the rank of its weights is not known, which channels_last needs");
      std::vector<int64_t> there{0, int64_t(rank) - 1}, back{0};
      for (size_t d = 1; d + 1 < rank; ++d) there.push_back(int64_t(d)), back.push_back(int64_t(d) + 1);
      back.push_back(1);
      std::vector<ir::ValueId> inputs = node.inputs;
      inputs[0] = before(node, {"Transpose", 13, {}, {list("perm", there)}}, {inputs[0]});
      node.erase("channels_last");
      const ir::ValueId made =
          conv
              ? before(node, {"QLinearConv", 10, {}, take_attributes(node)}, std::move(inputs))
              : before(node, {"QLinearAveragePool", 1, kMicrosoft, take_attributes(node)}, std::move(inputs));
      node.set_ints("perm", back);
      become(node, "Transpose", 13, {made});
      return true;
    }
    if (!conv) return false;
    node.erase("channels_last");
    return same<10>(node);
  }

  // The weights are bytes only to be small: as numbers they are those of LSTM, but for their order.
  Result<bool> quantized_lstm(ir::Node& node) {
    const auto weights = [&](size_t at, size_t scale_at) -> ir::ValueId {
      const ir::Type& scale = env_.type(node.input(scale_at));
      if (!scale.ranked || scale.dims.empty() || scale.dims.size() > 2) return BELAY_NONE;
      const std::vector<int64_t> axes =
          scale.dims.size() == 2 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2};
      const auto number = [&](ir::ValueId bytes) {
        return before(node, {"Cast", 13, {}, {whole("to", BELAY_DT_FLOAT32)}}, {bytes});
      };
      const auto spread = [&](ir::ValueId value) {
        return before(node, {"Unsqueeze", 13}, {value, ints(axes)});
      };
      const ir::ValueId moved =
          before(node, {"Sub", 14}, {number(node.input(at)), spread(number(node.input(scale_at + 1)))});
      const ir::ValueId scaled = before(node, {"Mul", 14}, {moved, spread(node.input(scale_at))});
      return before(node, {"Transpose", 13, {}, {list("perm", {0, 2, 1})}}, {scaled});
    };
    const ir::ValueId w = weights(1, 8), r = weights(2, 10);
    if (w == BELAY_NONE || r == BELAY_NONE)
      return refuse(node, "the ranks of the weights' scales are not known to be 1 or 2");
    become(node, "LSTM", 14,
           {node.input(0), w, r, node.input(3), node.input(4), node.input(5), node.input(6), node.input(7)});
    return true;
  }
};

}  // namespace

Result<uint64_t> write_contrib(ir::Model& model, const Evaluator&) {
  const bool any = std::any_of(model.graphs.begin(), model.graphs.end(), [&](const ir::Graph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                       [&](ir::NodeId id) { return Contrib::knows(model.nodes[id]); });
  });
  if (!any) return 0;
  return Contrib(model).run();
}

}  // namespace belay::passes
