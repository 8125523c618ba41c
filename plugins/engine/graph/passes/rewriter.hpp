// passes/rewriter.hpp: what passes that look for patterns share: who makes and who reads a value. Inside
// passes only.
//
// Such a pass changes the node that ends a pattern and leaves what that no longer reads: dead code goes
// later.
#pragma once

#include "ir/env.hpp"
#include "passes/passes.hpp"

#include <optional>
#include <vector>

namespace belay::passes {

class Rewriter {
 public:
  static Result<Rewriter> of(ir::Model& model);

  ir::Model& model() { return *model_; }
  const ir::Env& env() const { return env_; }
  // Null: nobody, or a pass that runs now.
  ir::Node* maker(ir::ValueId value);
  // All nodes that read it; nothing where it is an output of a graph or read in another graph.
  std::optional<std::vector<ir::Node*>> readers(ir::ValueId value);
  // The node that alone reads `value`; null where there are others, or none.
  ir::Node* only_reader(ir::ValueId value);
  ir::ConstantPtr constant(ir::ValueId value) { return model_->constant_of(value); }
  // A float32 constant of one element.
  std::optional<float> number(ir::ValueId value);

  // The number of nodes that `change` changed; it may add nodes, which it is not given.
  template <class F>
  uint64_t each_node(F&& change) {
    uint64_t changes = 0;
    for (ir::Graph& graph : model_->graphs) {
      const std::vector<ir::NodeId> nodes = graph.nodes;
      for (const ir::NodeId id : nodes) changes += change(model_->nodes[id]);
    }
    return changes;
  }

  // A new value with a constant.
  ir::ValueId add_constant(ir::GraphId graph, std::string name, ir::ConstantPtr constant);
  // Makes `node` another operator with the same outputs and no attributes.
  void become(ir::Node& node, std::string_view domain, std::string_view op, uint32_t version,
              std::vector<ir::ValueId> inputs);
  // The value has another element type than before.
  void retype(ir::ValueId value) { model_->values[value].type = {}; }

 protected:
  Rewriter(ir::Model& model, ir::Env env);

 private:
  ir::Model* model_;
  ir::Env env_;
  ir::Uses uses_;
  std::vector<ir::NodeId> maker_;
};

}  // namespace belay::passes
