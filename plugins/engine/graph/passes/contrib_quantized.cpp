// Quantised operators of com.microsoft: what DequantizeLinear, an operator of ONNX and QuantizeLinear do.
#include "passes/contrib.hpp"

namespace belay::passes {

ir::ValueId Contrib::dequantized(const ir::Node& of, ir::ValueId x, ir::ValueId scale, ir::ValueId zero) {
  return before(of, {"DequantizeLinear", 13}, {x, scale, zero});
}
// `node` quantises y to the type of `like`.
Result<bool> Contrib::quantize(ir::Node& node, ir::ValueId y, ir::ValueId scale, ir::ValueId zero,
                      ir::ValueId like) {
  node.attributes.clear();
  become(node, "QuantizeLinear", 13, {y, scale, zero == BELAY_NONE ? zero_like(like) : zero});
  return true;
}

Result<bool> Contrib::quantized_unary(ir::Node& node) {
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

Result<bool> Contrib::quantized_concat(ir::Node& node) {
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

Result<bool> Contrib::quantized_where(ir::Node& node) {
  const ir::ValueId x = dequantized(node, node.input(1), node.input(2), node.input(3));
  const ir::ValueId y = dequantized(node, node.input(4), node.input(5), node.input(6));
  return quantize(node, before(node, {"Where", 16}, {node.input(0), x, y}), node.input(7), node.input(8),
                  node.input(1));
}

Result<bool> Contrib::dynamic_matmul(ir::Node& node) {
  const std::vector<ir::ValueId> a = several(node, {"DynamicQuantizeLinear", 11}, {node.input(0)}, 3);
  become(node, "MatMulIntegerToFloat", 1,
         {a[0], node.input(1), a[1], node.input(2), a[2], node.input(3), node.input(4)}, kMicrosoft);
  return true;
}

// Channels go to the front and back again.
Result<bool> Contrib::channels_last(ir::Node& node) {
  struct Inner {
    std::string_view op;
    uint32_t version;
    std::string_view domain;
    int weights;     // input; -1: none
    int also_moved;  // another input with channels last; -1: none
    bool always;     // else where the attribute says so
  };
  static const std::unordered_map<std::string_view, Inner> inner = {
      {"NhwcConv", {"Conv", 11, "", 1, -1, true}},
      {"NhwcFusedConv", {"FusedConv", 1, kMicrosoft, 1, 3, true}},
      {"NhwcMaxPool", {"MaxPool", 12, "", -1, -1, true}},
      {"QLinearAveragePool", {"QLinearAveragePool", 1, kMicrosoft, -1, -1, false}},
      {"QLinearConv", {"QLinearConv", 10, "", 3, -1, false}}};
  const Inner form = inner.at(node.op);
  if (form.always || node.int_or("channels_last", 0) != 0) {
    size_t rank = 0;
    if (const auto* kernel = node.ints("kernel_shape"); kernel && !kernel->empty())
      rank = kernel->size() + 2;
    else if (form.weights >= 0 && env_.type(node.input(size_t(form.weights))).ranked)
      rank = env_.type(node.input(size_t(form.weights))).dims.size();
    if (rank < 3) return refuse(node, "the rank of its weights is not known, which channels in the last place need");
    std::vector<int64_t> there{0, int64_t(rank) - 1}, back{0};
    for (size_t d = 1; d + 1 < rank; ++d) there.push_back(int64_t(d)), back.push_back(int64_t(d) + 1);
    back.push_back(1);
    std::vector<ir::ValueId> inputs = node.inputs;
    for (const int i : {0, form.also_moved})
      if (i >= 0 && node.input(size_t(i)) != BELAY_NONE)
        inputs[size_t(i)] = before(node, {"Transpose", 13, {}, {list("perm", there)}}, {inputs[size_t(i)]});
    node.erase("channels_last");
    const ir::ValueId made = before(node, {form.op, form.version, form.domain, take_attributes(node)}, std::move(inputs));
    node.set_ints("perm", back);
    become(node, "Transpose", 13, {made});
    return true;
  }
  if (node.op != "QLinearConv") return false;
  node.erase("channels_last");
  return same<10>(node);
}

// The weights are bytes only to be small: as numbers they are those of LSTM, but for their order.
Result<bool> Contrib::quantized_lstm(ir::Node& node) {
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

}  // namespace belay::passes
