#include "passes/rewriter.hpp"

#include <algorithm>

namespace belay::passes {

Rewriter::Rewriter(ir::Model& model, ir::Env env)
    : model_(&model), env_(std::move(env)), uses_(model), maker_(model.values.size(), BELAY_NONE) {
  for (const ir::Graph& graph : model.graphs)
    for (const ir::NodeId id : graph.nodes)
      for (const ir::ValueId output : model.nodes[id].outputs)
        if (output != BELAY_NONE) maker_[output] = id;
}

Result<Rewriter> Rewriter::of(ir::Model& model) {
  BELAY_ASSIGN(ir::Env env, infer_model(model));
  return Rewriter(model, std::move(env));
}

ir::Node* Rewriter::maker(ir::ValueId value) {
  return value == BELAY_NONE || value >= maker_.size() || maker_[value] == BELAY_NONE
             ? nullptr
             : &model_->nodes[maker_[value]];
}

std::optional<std::vector<ir::Node*>> Rewriter::readers(ir::ValueId value) {
  const ir::Node* from = maker(value);
  if (!from) return std::nullopt;
  std::vector<ir::Node*> out;
  for (const ir::Uses::Use& use : uses_.of(value)) {
    if (use.node == BELAY_NONE || use.graph != from->graph) return std::nullopt;
    ir::Node* node = &model_->nodes[use.node];
    // A node that became another may not read it any more.
    if (node->input(use.index) != value) continue;
    if (std::find(out.begin(), out.end(), node) == out.end()) out.push_back(node);
  }
  return out;
}

ir::Node* Rewriter::only_reader(ir::ValueId value) {
  const auto all = readers(value);
  return all && all->size() == 1 ? (*all)[0] : nullptr;
}

std::optional<float> Rewriter::number(ir::ValueId value) {
  const ir::ConstantPtr of = value == BELAY_NONE ? nullptr : constant(value);
  if (!of || of->dtype != BELAY_DT_FLOAT32 || of->count() != 1) return std::nullopt;
  return float((*ir::as_doubles(*of))[0]);
}

ir::ValueId Rewriter::add_constant(ir::GraphId graph, std::string name, ir::ConstantPtr constant) {
  const ir::ValueId value = model_->add_value(graph, std::move(name), {}, std::move(constant));
  env_.grow();
  return value;
}

void Rewriter::become(ir::Node& node, std::string_view domain, std::string_view op, uint32_t version,
                      std::vector<ir::ValueId> inputs) {
  node.domain = domain;
  node.op = op;
  node.version = version;
  node.inputs = std::move(inputs);
  node.attributes.clear();
}

}  // namespace belay::passes
