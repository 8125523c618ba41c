#include "ir/model.hpp"

#include <algorithm>
#include <set>

namespace belay::ir {

const Attribute* Node::find(std::string_view attribute) const {
  for (const Attribute& at : attributes)
    if (at.name == attribute) return &at;
  return nullptr;
}

int64_t Node::int_or(std::string_view attribute, int64_t otherwise) const {
  const Attribute* at = find(attribute);
  return at && at->kind == BELAY_ATTR_INT ? at->ints[0] : otherwise;
}

float Node::float_or(std::string_view attribute, float otherwise) const {
  const Attribute* at = find(attribute);
  return at && at->kind == BELAY_ATTR_FLOAT ? at->floats[0] : otherwise;
}

std::string_view Node::string_or(std::string_view attribute, std::string_view otherwise) const {
  const Attribute* at = find(attribute);
  return at && at->kind == BELAY_ATTR_STRING ? std::string_view(at->strings[0]) : otherwise;
}

const std::vector<int64_t>* Node::ints(std::string_view attribute) const {
  const Attribute* at = find(attribute);
  return at && at->kind == BELAY_ATTR_INTS ? &at->ints : nullptr;
}

GraphId Node::graph_or_none(std::string_view attribute) const {
  const Attribute* at = find(attribute);
  return at && at->kind == BELAY_ATTR_GRAPH ? at->graphs[0] : BELAY_NONE;
}

void Node::erase(std::string_view attribute) {
  std::erase_if(attributes, [&](const Attribute& at) { return at.name == attribute; });
}

void Node::set_int(std::string_view attribute, int64_t value) {
  erase(attribute);
  Attribute& at = attributes.emplace_back();
  at.name = attribute;
  at.kind = BELAY_ATTR_INT;
  at.ints = {value};
}

void Node::set_ints(std::string_view attribute, std::vector<int64_t> values) {
  erase(attribute);
  Attribute& at = attributes.emplace_back();
  at.name = attribute;
  at.kind = BELAY_ATTR_INTS;
  at.ints = std::move(values);
}

void Node::set_float(std::string_view attribute, float value) {
  erase(attribute);
  Attribute& at = attributes.emplace_back();
  at.name = attribute;
  at.kind = BELAY_ATTR_FLOAT;
  at.floats = {value};
}

void Node::set_string(std::string_view attribute, std::string value) {
  erase(attribute);
  Attribute& at = attributes.emplace_back();
  at.name = attribute;
  at.kind = BELAY_ATTR_STRING;
  at.strings = {std::move(value)};
}

std::string Node::label() const {
  return "node '" + name + "' (" + (domain.empty() ? "" : domain + ".") + op + ")";
}

ValueId Model::add_value(GraphId graph, std::string name, Type type, ConstantPtr constant) {
  if (constant && !type.kind) type = constant->type();
  values.push_back({std::move(name), std::move(type), std::move(constant), graph, false});
  return ValueId(values.size() - 1);
}

Node& Model::add_node(GraphId graph, std::string op, uint32_t version, std::string name) {
  Node& node = nodes.emplace_back();
  node.id = NodeId(nodes.size() - 1);
  node.graph = graph;
  node.op = std::move(op);
  node.version = version;
  node.name = std::move(name);
  return node;
}

std::string Model::value_label(ValueId value) const {
  return value == BELAY_NONE ? "an absent value" : "value '" + values[value].name + "'";
}

std::vector<GraphId> subgraphs_of(const Node& node) {
  std::vector<GraphId> out;
  for (const Attribute& at : node.attributes) out.insert(out.end(), at.graphs.begin(), at.graphs.end());
  return out;
}

Uses::Uses(const Model& model) : of_(model.values.size()) {
  // Only graphs that can be reached count: an inlined branch's graph is empty, a dropped one is no reader.
  std::vector<GraphId> todo{0};
  while (!todo.empty()) {
    const GraphId id = todo.back();
    todo.pop_back();
    const Graph& graph = model.graphs[id];
    for (const NodeId node_id : graph.nodes) {
      const Node& node = model.nodes[node_id];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] != BELAY_NONE) of_[node.inputs[i]].push_back({node_id, uint32_t(i), id});
      for (const GraphId sub : subgraphs_of(node)) todo.push_back(sub);
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      of_[graph.outputs[i]].push_back({BELAY_NONE, uint32_t(i), id});
  }
}

void Uses::replace(Model& model, ValueId from, ValueId to) {
  if (from == to) return;
  for (const Use& use : of_[from]) {
    if (use.node == BELAY_NONE)
      model.graphs[use.graph].outputs[use.index] = to;
    else
      model.nodes[use.node].inputs[use.index] = to;
  }
  of_[to].insert(of_[to].end(), of_[from].begin(), of_[from].end());
  of_[from].clear();
}

namespace {

void collect_captures(const Model& model, GraphId graph, std::set<ValueId>& inner, std::set<ValueId>& seen,
                      std::vector<ValueId>& out) {
  const Graph& at = model.graphs[graph];
  inner.insert(at.inputs.begin(), at.inputs.end());
  const auto read = [&](ValueId value) {
    // A constant is everywhere at hand, whichever graph it was declared in.
    if (value == BELAY_NONE || inner.contains(value) || model.constant_of(value)) return;
    if (seen.insert(value).second) out.push_back(value);
  };
  for (const NodeId id : at.nodes) {
    const Node& node = model.nodes[id];
    for (const ValueId value : node.inputs) read(value);
    for (const GraphId sub : subgraphs_of(node)) collect_captures(model, sub, inner, seen, out);
    inner.insert(node.outputs.begin(), node.outputs.end());
  }
  for (const ValueId value : at.outputs) read(value);
}

}  // namespace

std::vector<ValueId> captures_of(const Model& model, GraphId graph) {
  std::set<ValueId> inner, seen;
  std::vector<ValueId> out;
  collect_captures(model, graph, inner, seen, out);
  return out;
}

}  // namespace belay::ir
