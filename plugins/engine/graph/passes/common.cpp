// Nodes that compute the same from the same become one.
#include "ir/infer.hpp"
#include "passes/passes.hpp"

#include <map>

namespace belay::passes {
namespace {

// All that a node's outputs depend on, as text; empty where another node of the same text may differ.
std::string key_of(const ir::Node& node) {
  if (ir::is_random(node) || !ir::subgraphs_of(node).empty()) return {};
  std::string key = node.domain + ":" + node.op + ":" + std::to_string(node.version);
  const auto number = [&](const auto& value) { key += "," + std::to_string(value); };
  for (const ir::ValueId input : node.inputs) number(input);
  key += ">" + std::to_string(node.outputs.size());
  std::map<std::string_view, const ir::Attribute*> attributes;
  for (const ir::Attribute& attribute : node.attributes) attributes.emplace(attribute.name, &attribute);
  for (const auto& [name, attribute] : attributes) {
    if (!attribute->tensors.empty() || !attribute->graphs.empty() || attribute->type.kind) return {};
    key += ";" + std::string(name) + "=" + std::to_string(attribute->kind);
    for (const int64_t value : attribute->ints) number(value);
    for (const float value : attribute->floats) {
      uint32_t bits;
      static_assert(sizeof bits == sizeof value);
      __builtin_memcpy(&bits, &value, sizeof bits);
      number(bits);
    }
    for (const std::string& value : attribute->strings) {
      number(value.size());
      key += value;
    }
  }
  return key;
}

}  // namespace

Result<uint64_t> join_common(ir::Model& model, const Evaluator&) {
  uint64_t changes = 0;
  ir::Uses uses(model);
  // Readers are changed at once, so keys name the values that stay.
  for (ir::GraphId graph = 0; graph < model.graphs.size(); ++graph) {
    std::map<std::string, ir::NodeId> first;
    const std::vector<ir::NodeId> nodes = model.graphs[graph].nodes;
    std::vector<ir::NodeId> kept;
    for (const ir::NodeId id : nodes) {
      ir::Node& node = model.nodes[id];
      const std::string key = key_of(node);
      // An output of the graph keeps its own name and place.
      bool is_output = false;
      for (const ir::ValueId output : node.outputs)
        if (output != BELAY_NONE)
          for (const ir::Uses::Use& use : uses.of(output)) is_output |= use.node == BELAY_NONE;
      if (key.empty() || is_output) {
        kept.push_back(id);
        continue;
      }
      const auto [at, fresh] = first.emplace(key, id);
      const ir::Node& same = model.nodes[at->second];
      bool all = !fresh;
      for (size_t i = 0; all && i < node.outputs.size(); ++i)
        all = node.outputs[i] == BELAY_NONE || same.outputs[i] != BELAY_NONE;
      if (!all) {
        kept.push_back(id);
        continue;
      }
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (node.outputs[i] != BELAY_NONE) uses.replace(model, node.outputs[i], same.outputs[i]);
      node.outputs.clear();
      ++changes;
    }
    model.graphs[graph].nodes = std::move(kept);
  }
  return changes;
}

}  // namespace belay::passes
