#include "importer.hpp"

#include <belay/graph/dtype.hpp>
#include <belay/tensor_io/wire.hpp>

namespace belay::onnx {
namespace {

}  // namespace

// `what` names the graph in messages: "the graph", "graph 'then' of node 'if'".
Status Importer::import_graph(const GraphProto& graph, Scope& scope, std::string_view what) {
  if (scope.depth > int(BELAY_GRAPH_MAX_DEPTH))
    return invalid("Graphs are nested more than " + std::to_string(BELAY_GRAPH_MAX_DEPTH) + " deep.");
  if (!graph.sparse_initializers.empty()) {
    std::string name;  // that of its values: SparseTensorProto field 1
    wire::Message m(graph.sparse_initializers[0], base_, "SparseTensorProto");
    while (m.next())
      if (m.field() == 1)
        if (const auto values = read_tensor(m.bytes(), base_); values.ok())
          name = wire::printable(values->name);
    return {Code::kUnimplemented, "Initializer '" + name + "' is sparse, which is not supported."};
  }
  for (const std::string_view message : graph.value_infos) {
    BELAY_ASSIGN(const ValueInfoProto info, read_value_info(message, base_));
    if (info.type && !info.name.empty()) scope.types[info.name] = *info.type;
  }
  for (const std::string_view message : graph.outputs) {  // what the graph promises outside wins
    BELAY_ASSIGN(const ValueInfoProto info, read_value_info(message, base_));
    if (info.type && !info.name.empty()) scope.types[info.name] = *info.type;
  }
  BELAY_ASSIGN(const auto initializers, add_initializers(graph));
  BELAY_TRY(add_inputs(graph, scope, initializers));
  for (const auto& [name, constant] : initializers) {
    if (scope.names.contains(name)) continue;  // an input with a default
    BELAY_ASSIGN(const uint32_t value, new_value(scope, name));
    builder_.set_value_constant(value, constant.index);
    builder_.set_value_type(value, constant.type);
    scope.names[name] = {value, true};
  }
  BELAY_TRY(import_nodes(graph.nodes, scope));
  return std::move(add_outputs(graph, scope)).while_doing("reading the outputs of " + std::string(what));
}

Result<std::map<std::string_view, Importer::Constant>> Importer::add_initializers(const GraphProto& graph) {
  std::map<std::string_view, Constant> out;
  for (const std::string_view message : graph.initializers) {
    BELAY_ASSIGN(const TensorProto tensor, read_tensor(message, base_));
    if (tensor.name.empty()) return invalid("An initializer of " + quoted(graph.name) + " has no name.");
    if (out.contains(tensor.name))
      return invalid("Initializer " + quoted(tensor.name) + " is there twice, want once.");
    BELAY_ASSIGN(out[tensor.name], add_tensor(tensor, tensor.name));
  }
  return out;
}

Status Importer::add_inputs(const GraphProto& graph, Scope& scope,
                            const std::map<std::string_view, Constant>& initializers) {
  for (const std::string_view message : graph.inputs) {
    BELAY_ASSIGN(const ValueInfoProto info, read_value_info(message, base_));
    if (info.name.empty()) return invalid("An input of graph " + quoted(graph.name) + " has no name.");
    if (scope.names.contains(info.name))
      return invalid("Graph input " + quoted(info.name) + " is there twice, want once.");
    const auto initial = initializers.find(info.name);
    // Before IR 4 each initializer is also listed as an input, though nobody means to give it: it is a
    // constant.
    if (initial != initializers.end() && ir_version_ < 4) continue;
    uint32_t type = BELAY_NONE;
    if (info.type) {
      BELAY_ASSIGN(type, add_type(*info.type, info.name));
    }
    if (type == BELAY_NONE && scope.depth == 0)
      return invalid("Graph input " + quoted(info.name) + " has no type, or the element type 0.");
    const uint32_t value = builder_.add_value(scope.graph, scope.prefix + wire::utf8(info.name), type);
    if (initial != initializers.end()) builder_.set_value_constant(value, initial->second.index);
    builder_.add_input(scope.graph, value);
    scope.names[info.name] = {value, true};
  }
  return {};
}

Status Importer::add_outputs(const GraphProto& graph, Scope& scope) {
  std::set<std::string_view> seen;
  for (const std::string_view message : graph.outputs) {
    BELAY_ASSIGN(const ValueInfoProto info, read_value_info(message, base_));
    if (info.name.empty()) return invalid("An output of graph " + quoted(graph.name) + " has no name.");
    // A branch may give one value twice; a caller of the model finds outputs by name.
    if (!seen.insert(info.name).second && scope.depth == 0)
      return invalid("Graph output " + quoted(info.name) + " is there twice, want once.");
    const Name* name = find(scope, info.name);
    if (!name || name->value == BELAY_NONE)
      return invalid("Graph output " + quoted(info.name) +
                     " is made by no node and is no input or initializer.");
    builder_.add_output(scope.graph, name->value);
  }
  return {};
}

// Names first, then nodes: a file whose nodes are not sorted names values before it makes them.
Status Importer::import_nodes(std::span<const std::string_view> messages, Scope& scope) {
  std::vector<NodeProto> nodes;
  nodes.reserve(messages.size());
  for (const std::string_view message : messages) {
    BELAY_ASSIGN(NodeProto node, read_node(message, base_));
    if (node.op.empty()) return invalid("Node " + quoted(node.name) + " has no op_type.");
    node.domain = plain_domain(node.domain);
    BELAY_TRY(declare_outputs(node, scope));
    nodes.push_back(std::move(node));
  }
  for (const NodeProto& node : nodes) {
    BELAY_TRY(import_node(node, scope));
    for (const std::string_view output : node.outputs)
      if (!output.empty()) scope.names[output].ready = true;
  }
  return {};
}

Status Importer::declare_outputs(const NodeProto& node, Scope& scope) {
  for (const std::string_view output : node.outputs) {
    if (output.empty()) continue;
    const auto at = scope.names.find(output);
    if (at != scope.names.end()) {
      if (at->second.open) {
        at->second.open = false;
        continue;
      }
      return invalid("Value " + quoted(output) + " is made twice, the second time by " + node_text(node) +
                     "; want one producer.");
    }
    if (scope.parent && find(*scope.parent, output))
      warn_once("Value " + quoted(output) + " has the name of a value of an outer graph and hides it.");
    BELAY_ASSIGN(const uint32_t value, new_value(scope, output));
    scope.names[output] = {value};
  }
  return {};
}

Result<uint32_t> Importer::new_value(Scope& scope, std::string_view name) {
  uint32_t type = BELAY_NONE;
  if (const auto at = scope.types.find(name); at != scope.types.end()) {
    BELAY_ASSIGN(type, add_type(at->second, name));
  }
  return builder_.add_value(scope.graph, scope.prefix + wire::utf8(name), type);
}

Importer::Name* Importer::find(const Scope& scope, std::string_view name) const {
  for (const Scope* at = &scope; at; at = at->parent)
    if (const auto found = at->names.find(name); found != at->names.end())
      return const_cast<Name*>(&found->second);
  return nullptr;
}

}  // namespace belay::onnx
