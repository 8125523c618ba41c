// Normalisations and activations that exporters write in parts become the operator they are.
#include "passes/rewriter.hpp"

#include <algorithm>
#include <cmath>

namespace belay::passes {
namespace {

bool near(float a, float b) { return std::fabs(a - b) <= 1e-5f * std::fabs(b); }

class Parts {
 public:
  explicit Parts(Rewriter graph) : graph_(std::move(graph)) {}

  uint64_t layer_norms() {
    return graph_.each_node([&](ir::Node& node) { return node.is("Div") && layer_norm(node); });
  }
  uint64_t gelus() {
    return graph_.each_node([&](ir::Node& node) { return node.is("Erf") && gelu(node); });
  }

 private:
  // From d / sqrt(mean(d d) + epsilon), where d = x - mean(x), on: times scale, plus bias.
  bool layer_norm(ir::Node& div) {
    const ir::ValueId distance = div.input(0);
    const ir::Node* sub = made_by(distance, "Sub");
    const ir::Node* root = made_by(div.input(1), "Sqrt");
    if (!sub || !root) return false;
    const ir::ValueId x = sub->input(0);
    const ir::Node* mean = made_by(sub->input(1), "ReduceMean");
    const ir::Node* sum = made_by(root->input(0), "Add");
    if (!mean || mean->input(0) != x || !sum) return false;
    size_t side = graph_.number(sum->input(1)) ? 1 : 0;
    const auto epsilon = graph_.number(sum->input(side));
    const ir::Node* variance = made_by(sum->input(1 - side), "ReduceMean");
    if (!epsilon || !(*epsilon >= 0) || !variance || !is_square(variance->input(0), distance)) return false;
    const ir::Type& type = graph_.env().type(x);
    if (type.dtype != BELAY_DT_FLOAT32 || !type.ranked || type.dims.empty()) return false;
    // A constant of higher rank than x would have added dims, before which the axes of the variance are
    // others.
    if (!has_rank(variance->input(0), type.dims.size()) || !has_rank(div.outputs[0], type.dims.size()))
      return false;
    const auto first = last_axes(*mean, type.dims.size());
    if (!first || last_axes(*variance, type.dims.size()) != first) return false;
    const ir::Dims row(type.dims.begin() + *first, type.dims.end());
    ir::Node* last = graph_.only_reader(div.outputs[0]);
    if (!last || !last->is("Mul")) return false;
    const ir::ValueId scale = other(*last, div.outputs[0]);
    if (!has_dims(scale, row)) return false;
    std::vector<ir::ValueId> inputs{x, scale};
    if (ir::Node* add = graph_.only_reader(last->outputs[0]); add && add->is("Add")) {
      const ir::ValueId bias = other(*add, last->outputs[0]);
      if (has_dims(bias, row)) {
        inputs.push_back(bias);
        last = add;
      }
    }
    graph_.become(*last, "", "LayerNormalization", 17, std::move(inputs));
    last->set_int("axis", *first);
    last->set_float("epsilon", *epsilon);
    return true;
  }

  // x (1 + erf(x / sqrt(2))) / 2: x, the sum and the half are multiplied in any order.
  bool gelu(ir::Node& erf) {
    const ir::Node* scaled = graph_.maker(erf.input(0));
    if (!scaled || scaled->inputs.size() != 2) return false;
    ir::ValueId x = BELAY_NONE;
    if (scaled->is("Div") && graph_.number(scaled->input(1)) &&
        near(*graph_.number(scaled->input(1)), 1.41421356f))
      x = scaled->input(0);
    for (size_t i = 0; i < 2 && scaled->is("Mul"); ++i)
      if (const auto factor = graph_.number(scaled->input(i)); factor && near(*factor, 0.70710678f))
        x = scaled->input(1 - i);
    if (x == BELAY_NONE || graph_.env().type(x).dtype != BELAY_DT_FLOAT32 || !graph_.env().type(x).ranked)
      return false;
    const ir::Node* sum = graph_.only_reader(erf.outputs[0]);
    if (!sum || !sum->is("Add") || graph_.number(other(*sum, erf.outputs[0])) != 1.0f) return false;
    ir::Node* product = graph_.only_reader(sum->outputs[0]);
    if (!product || !product->is("Mul")) return false;
    const ir::ValueId with = other(*product, sum->outputs[0]);
    ir::Node* last = product;
    if (with == x || graph_.number(with) == 0.5f) {
      last = graph_.only_reader(product->outputs[0]);
      if (!last || !last->is("Mul")) return false;
      const ir::ValueId rest = other(*last, product->outputs[0]);
      if (with == x ? graph_.number(rest) != 0.5f : rest != x) return false;
    } else {
      const ir::Node* half = made_by(with, "Mul");
      if (!half || other(*half, x) == BELAY_NONE || graph_.number(other(*half, x)) != 0.5f) return false;
    }
    // A constant of higher rank than x would have added dims.
    if (graph_.env().type(last->outputs[0]).dims != graph_.env().type(x).dims) return false;
    graph_.become(*last, "com.microsoft", "Gelu", 1, {x});
    return true;
  }

  const ir::Node* made_by(ir::ValueId value, std::string_view op) {
    const ir::Node* node = graph_.maker(value);
    return node && node->is(op) ? node : nullptr;
  }
  static ir::ValueId other(const ir::Node& node, ir::ValueId value) {
    if (node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return BELAY_NONE;
    return node.inputs[0] == value ? node.inputs[1] : node.inputs[1] == value ? node.inputs[0] : BELAY_NONE;
  }
  bool is_square(ir::ValueId value, ir::ValueId of) {
    const ir::Node* node = graph_.maker(value);
    if (!node || node->inputs.size() != 2 || node->inputs[0] != of) return false;
    return (node->is("Mul") && node->inputs[1] == of) ||
           (node->is("Pow") && graph_.number(node->inputs[1]) == 2.0f);
  }
  // The first of the axes that a mean with keepdims goes over, if they are all axes from it to the last.
  static std::optional<int64_t> last_axes(const ir::Node& node, size_t rank) {
    const auto* axes = node.ints("axes");
    if (!axes || axes->empty() || node.int_or("keepdims", 1) == 0 || node.inputs.size() != 1)
      return std::nullopt;
    std::vector<int64_t> sorted;
    for (const int64_t axis : *axes) sorted.push_back(axis < 0 ? axis + int64_t(rank) : axis);
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i)
      if (sorted[i] != int64_t(rank - sorted.size() + i)) return std::nullopt;
    return sorted[0];
  }
  bool has_rank(ir::ValueId value, size_t rank) const {
    const ir::Type& type = graph_.env().type(value);
    return type.ranked && type.dims.size() == rank;
  }
  bool has_dims(ir::ValueId value, const ir::Dims& dims) const {
    if (value == BELAY_NONE) return false;
    const ir::Type& type = graph_.env().type(value);
    return type.concrete() && type.dtype == BELAY_DT_FLOAT32 && type.dims == dims;
  }

  Rewriter graph_;
};

}  // namespace

Result<uint64_t> join_layer_norms(ir::Model& model, const Evaluator&) {
  BELAY_ASSIGN(Rewriter graph, Rewriter::of(model));
  return Parts(std::move(graph)).layer_norms();
}

Result<uint64_t> join_gelus(ir::Model& model, const Evaluator&) {
  BELAY_ASSIGN(Rewriter graph, Rewriter::of(model));
  return Parts(std::move(graph)).gelus();
}

}  // namespace belay::passes
