// passes/node_writer.hpp: what passes share that write nodes as other operators.
#pragma once

#include "ir/infer.hpp"

#include <utility>
#include <vector>

namespace belay::passes {

// Makes the lists of nodes anew and infers types as it goes, for some forms depend on a type or a rank.
class NodeWriter {
 protected:
  explicit NodeWriter(ir::Model& model) : model_(model), env_(model) {
    for (const ir::Graph& graph : model.graphs)
      for (const ir::ValueId input : graph.inputs) env_.types[input] = model.values[input].type;
  }

  // Calls write(node), which gives how many changes it made or a failure, for the nodes of a graph and of its
  // subgraphs; what it appends stands before the node. Gives the sum.
  template <class Write>
  Result<uint64_t> write_graph(ir::GraphId graph, const Write& write) {
    const std::vector<ir::NodeId> nodes = std::move(model_.graphs[graph].nodes);
    const ir::GraphId outer = std::exchange(graph_, graph);
    std::vector<ir::NodeId> outer_list = std::exchange(list_, {});
    uint64_t changes = 0;
    for (const ir::NodeId id : nodes) {
      for (const ir::GraphId sub : ir::subgraphs_of(model_.nodes[id])) {
        BELAY_ASSIGN(const uint64_t inner, write_graph(sub, write));
        changes += inner;
      }
      BELAY_ASSIGN(const uint64_t made, write(model_.nodes[id]));
      changes += made;
      append(model_.nodes[id]);
    }
    model_.graphs[graph].nodes = std::exchange(list_, std::move(outer_list));
    graph_ = outer;
    return changes;
  }

  // Types are only for choosing a form here: what is against a definition is told later, by name.
  void append(ir::Node& node) {
    list_.push_back(node.id);
    env_.grow();
    if (ir::subgraphs_of(node).empty()) (void)ir::infer(env_, node).ok();
    for (const ir::ValueId output : node.outputs)
      if (output != BELAY_NONE && !env_.types[output].kind) env_.types[output] = model_.values[output].type;
  }
  ir::ValueId constant(ir::ConstantPtr value) {
    const ir::ValueId id = model_.add_value(graph_, "", {}, std::move(value));
    env_.grow();
    return id;
  }
  ir::ValueId ints(const std::vector<int64_t>& values) { return constant(ir::make_int64s(values)); }

  ir::Model& model_;
  ir::Env env_;
  ir::GraphId graph_ = 0;
  std::vector<ir::NodeId> list_;
};

}  // namespace belay::passes
