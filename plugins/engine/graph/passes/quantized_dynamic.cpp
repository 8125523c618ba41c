// MatMulInteger whose sums are cast, scaled and shifted is one product with a float result.
#include "passes/quantized.hpp"

namespace belay::passes {
namespace {

class Dynamic {
 public:
  explicit Dynamic(QuantizedGraph graph) : graph_(std::move(graph)) {}

  uint64_t run() {
    return graph_.each_node([&](ir::Node& node) {
      uint64_t changes = node.is("MatMulInteger") && scaled(node);
      if (node.op == "MatMulIntegerToFloat" && node.domain == kMicrosoft) changes += shifted(node);
      return changes;
    });
  }

 private:
  static ir::ValueId other_input(const ir::Node& node, ir::ValueId value) {
    if (node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return BELAY_NONE;
    return node.inputs[node.inputs[0] == value ? 1 : 0];
  }
  bool is_floats(ir::ValueId value) const {
    return value != BELAY_NONE && graph_.env().type(value).dtype == BELAY_DT_FLOAT32 &&
           graph_.env().type(value).ranked;
  }
  // One number that adds no dim.
  bool is_scalar(ir::ValueId value) const {
    if (!is_floats(value)) return false;
    const ir::Dims& dims = graph_.env().type(value).dims;
    return dims.empty() || dims == ir::Dims{1};
  }
  // One number, or one for each of `columns`.
  bool goes_with_columns(ir::ValueId value, int64_t columns) const {
    return is_scalar(value) || (is_floats(value) && graph_.env().type(value).dims == ir::Dims{columns});
  }
  int64_t columns_of(const ir::Node& node) const {
    const ir::Type& b = graph_.env().type(node.input(1));
    return b.ranked && b.dims.size() >= 2 ? b.dims.back() : -1;
  }

  // MatMulInteger, Cast to float, Mul by a * b, one of which is a number and the other goes with the columns.
  bool scaled(ir::Node& node) {
    const int64_t columns = columns_of(node);
    const ir::Type& a = graph_.env().type(node.input(0));
    if (columns < 1 || !a.ranked || a.dims.empty()) return false;
    const ir::Node* cast = graph_.only_reader(node.output(0));
    if (!cast || !cast->is("Cast") || cast->int_or("to", 0) != BELAY_DT_FLOAT32) return false;
    ir::Node* mul = graph_.only_reader(cast->output(0));
    if (!mul || !mul->is("Mul")) return false;
    const ir::ValueId factor = other_input(*mul, cast->output(0));
    const ir::Node* scales = graph_.maker(factor);
    if (!scales || !scales->is("Mul") || scales->inputs.size() != 2) return false;
    ir::ValueId one = scales->inputs[0], many = scales->inputs[1];
    if (!is_scalar(one)) std::swap(one, many);
    if (!is_scalar(one) || !goes_with_columns(many, columns)) return false;
    // The product reads its operands where the Mul stood: they are made before it.
    graph_.become(*mul, kMicrosoft, "MatMulIntegerToFloat", 1,
                  {node.input(0), node.input(1), one, many, node.input(2), node.input(3)});
    while (!mul->inputs.empty() && mul->inputs.back() == BELAY_NONE) mul->inputs.pop_back();
    return true;
  }

  // ... then Add of a constant for each column.
  bool shifted(ir::Node& node) {
    if (node.inputs.size() > 6 && node.inputs[6] != BELAY_NONE) return false;
    ir::Node* add = graph_.only_reader(node.output(0));
    if (!add || !add->is("Add")) return false;
    const ir::ValueId bias = other_input(*add, node.output(0));
    const ir::ConstantPtr constant = bias == BELAY_NONE ? nullptr : graph_.constant(bias);
    if (!constant || constant->dtype != BELAY_DT_FLOAT32 || constant->dims != ir::Dims{columns_of(node)})
      return false;
    std::vector<ir::ValueId> inputs = node.inputs;
    inputs.resize(6, BELAY_NONE);
    inputs.push_back(bias);
    graph_.become(*add, kMicrosoft, "MatMulIntegerToFloat", 1, std::move(inputs));
    return true;
  }

  QuantizedGraph graph_;
};

}  // namespace

Result<uint64_t> join_dynamic_products(ir::Model& model, const Evaluator& evaluate) {
  BELAY_ASSIGN(QuantizedGraph graph, QuantizedGraph::of(model, evaluate));
  return Dynamic(std::move(graph)).run();
}

}  // namespace belay::passes
