#include "importer.hpp"

#include <belay/graph/dtype.hpp>
#include <belay/tensor_io/wire.hpp>

#include <algorithm>
#include <memory>

namespace belay::onnx {
namespace {

constexpr int kMaxCallDepth = 100;
// A file of 60 functions of two calls each would become 2^60 nodes. What inlining may cost is the size of the
// nodes copied plus this much for each, up to kInlineBase and kInlineFactor times the file.
constexpr uint64_t kNodeCost = 64, kInlineBase = 32u << 20, kInlineFactor = 16;

}  // namespace

std::string Importer::node_text(const NodeProto& node) {
  std::string text = "node " + quoted(node.name) + " (" + wire::printable(node.op) + ")";
  // Many files name no node: then the value it makes says which.
  if (node.name.empty() && !node.outputs.empty()) text += " of value " + quoted(node.outputs[0]);
  return text;
}

Importer::Function* Importer::find_function(const NodeProto& node) {
  const auto at = functions_.find({node.domain, node.op, node.overload});
  return at == functions_.end() ? nullptr : &at->second;
}

Status Importer::import_node(const NodeProto& node, Scope& scope) {
  std::vector<uint32_t> inputs;
  for (const std::string_view name : node.inputs) {
    if (name.empty()) {
      inputs.push_back(BELAY_NONE);
      continue;
    }
    const Name* found = find(scope, name);
    if (!found)
      return invalid("The " + node_text(node) + " reads " + quoted(name) + ", which nothing defines.");
    if (!found->ready) warn_once("The nodes are not in topological order; they are sorted.");
    inputs.push_back(found->value);
  }
  if (Function* function = find_function(node)) return import_call(node, *function, scope, inputs);

  const std::string domain = node.domain.empty() ? "ai.onnx" : wire::printable(node.domain);
  const auto import = scope.opsets->find(node.domain);
  if (import == scope.opsets->end())
    return invalid("The " + node_text(node) + " is of domain " + domain + ", of which no opset is imported.");
  auto op = find_operator(node.domain, node.op, import->second);
  if (!op.ok()) {
    unknown_.push_back("operator " + quoted(node.op) + " of domain " + domain + ", version " +
                       std::to_string(import->second) + ", " + op.status().message() + " (" +
                       node_text(node) + ")");
    op = Operator{uint32_t(std::min<int64_t>(import->second, UINT32_MAX)), {}};  // shown, not run
  }
  BELAY_ASSIGN(const Attributes attributes, read_attributes(node, scope.call, *op));
  const std::string_view missing = missing_attribute(*op, [&](std::string_view name) {
    for (const AttributeProto& at : attributes.list)
      if (at.name == name) return true;
    return false;
  });
  if (!missing.empty())
    return invalid("The " + node_text(node) + " lacks the attribute " + quoted(missing) +
                   ", which is required.");
  const auto given = std::make_unique<bool[]>(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) given[i] = inputs[i] != BELAY_NONE;
  if (const Status use = check_use(*op, {given.get(), inputs.size()}, node.outputs.size()); !use.ok())
    return {use.code(), "The " + node_text(node) + " " + use.message() + "."};
  BELAY_TRY(check_body(node, op->since_version, attributes.list));

  std::vector<uint32_t> outputs;
  for (const std::string_view name : node.outputs)
    outputs.push_back(name.empty() ? BELAY_NONE : scope.names[name].value);
  if (node.domain.empty() && node.op == "Constant") return import_constant(node, attributes.list, outputs[0]);
  const uint32_t made =
      builder_.add_node(scope.graph, wire::utf8(node.domain), wire::utf8(node.op), op->since_version,
                        scope.prefix + wire::utf8(node.name), inputs, outputs);
  for (const AttributeProto& attribute : attributes.list)
    if (Status status = set_attribute(made, attribute, scope); !status.ok())
      return std::move(status).while_doing("reading attribute " + quoted(attribute.name) + " of " +
                                           node_text(node));
  return {};
}

// ---- functions
// ------------------------------------------------------------------------------------------------------

Status Importer::import_call(const NodeProto& node, Function& function, Scope& scope,
                             std::span<const uint32_t> inputs) {
  const FunctionProto& proto = function.proto;
  const std::string name = "Function " + quoted(proto.name);
  if (function.running) return invalid(name + " calls itself, by the " + node_text(node) + ".");
  if (call_depth_ == kMaxCallDepth)
    return invalid(name + ": functions call each other more than " + std::to_string(kMaxCallDepth) +
                   " deep.");
  if (node.inputs.size() > proto.inputs.size() || node.outputs.size() > proto.outputs.size())
    return invalid("The " + node_text(node) + " has " + std::to_string(node.inputs.size()) + " inputs and " +
                   std::to_string(node.outputs.size()) + " outputs; function " + quoted(proto.name) +
                   " has " + std::to_string(proto.inputs.size()) + " and " +
                   std::to_string(proto.outputs.size()) + ".");
  for (const std::string_view message : proto.nodes) inlined_ += kNodeCost + message.size();
  inlined_ += kNodeCost;
  if (inlined_ > kInlineBase + kInlineFactor * file_.size())
    return {Code::kResourceExhausted, name + ": its calls, inlined, would make the model too large."};

  Call call{&function, {}};
  for (const std::string_view message : proto.defaults) {
    BELAY_ASSIGN(const AttributeProto attribute, read_attribute(message, base_));
    call.attributes[attribute.name] = message;
  }
  BELAY_ASSIGN(const Attributes attributes, read_attributes(node, scope.call, {}));
  for (size_t i = 0; i < attributes.list.size(); ++i)
    call.attributes[attributes.list[i].name] = attributes.messages[i];

  Scope body;
  body.graph = scope.graph;
  body.depth = scope.depth;
  body.opsets = &function.opsets;
  body.call = &call;
  // Short, whatever the names: prefixes of nested calls must not add up.
  body.prefix = wire::utf8(proto.name).substr(0, 40) + "#" + std::to_string(++calls_) + "/";
  function.running = true;
  ++call_depth_;
  Status status = call_body(node, function, body, inputs, scope);
  --call_depth_;
  function.running = false;
  return std::move(status).while_doing("inlining function " + quoted(proto.name) + " for " + node_text(node));
}

Status Importer::call_body(const NodeProto& node, Function& function, Scope& body,
                           std::span<const uint32_t> inputs, const Scope& scope) {
  const FunctionProto& proto = function.proto;
  for (const std::string_view message : proto.value_infos) {
    BELAY_ASSIGN(const ValueInfoProto info, read_value_info(message, base_));
    if (info.type) body.types[info.name] = *info.type;
  }
  for (size_t i = 0; i < proto.inputs.size(); ++i)
    if (!body.names.try_emplace(proto.inputs[i], Name{i < inputs.size() ? inputs[i] : BELAY_NONE, true})
             .second)
      return invalid("Function " + quoted(proto.name) + " has two parameters " + quoted(proto.inputs[i]) +
                     ".");
  std::set<std::string_view> results;
  std::vector<size_t> passed;  // outputs that are inputs
  for (size_t i = 0; i < proto.outputs.size(); ++i) {
    const std::string_view name = proto.outputs[i];
    if (!results.insert(name).second)
      return invalid("Function " + quoted(proto.name) + " has two outputs " + quoted(name) + ".");
    if (i >= node.outputs.size() || node.outputs[i].empty()) continue;
    if (body.names.contains(name)) {
      passed.push_back(i);
    } else {
      body.names[name] = {scope.names.at(node.outputs[i]).value, false, true};
    }
  }
  BELAY_TRY(import_nodes(proto.nodes, body));
  for (const auto& [name, entry] : body.names)
    if (entry.open)
      return invalid("Function " + quoted(proto.name) + " never makes its output " + quoted(name) + ".");
  for (const size_t i : passed) {  // its value has another name outside, so a node must give it
    const uint32_t from = body.names[proto.outputs[i]].value;
    if (from == BELAY_NONE)
      return invalid("Function " + quoted(proto.name) + " gives out its input " + quoted(proto.outputs[i]) +
                     ", which the call lacks.");
    const auto opset = opsets_.find("");
    BELAY_ASSIGN(const Operator identity,
                 find_operator("", "Identity", opset == opsets_.end() ? kMaxOpset : opset->second));
    const uint32_t to = scope.names.at(node.outputs[i]).value;
    builder_.add_node(body.graph, "", "Identity", identity.since_version, body.prefix, {&from, 1}, {&to, 1});
  }
  return {};
}

// ---- constants
// ------------------------------------------------------------------------------------------------------

Status Importer::import_constant(const NodeProto& node, const std::vector<AttributeProto>& attributes,
                                 uint32_t value) {
  const AttributeProto* only = nullptr;
  for (const AttributeProto& attribute : attributes) {
    if (!attribute.name.starts_with("value") && attribute.name != "sparse_value") continue;
    if (only)
      return invalid("The " + node_text(node) + " has both " + quoted(only->name) + " and " +
                     quoted(attribute.name) + ", want one value.");
    only = &attribute;
  }
  if (!only) return invalid("The " + node_text(node) + " has no value.");
  if (value == BELAY_NONE) return {};
  auto constant = constant_of(*only, node.outputs[0]);
  if (!constant.ok())
    return std::move(constant).status().while_doing("reading " + quoted(only->name) + " of " +
                                                    node_text(node));
  builder_.set_value_constant(value, constant->index);
  builder_.set_value_type(value, constant->type);
  return {};
}

Result<Importer::Constant> Importer::constant_of(const AttributeProto& at, std::string_view name) {
  const std::string text = wire::utf8(name);
  const auto add = [&](uint32_t dtype, const auto* values, size_t count, bool list) {
    const std::vector<int64_t> dims(list ? 1 : 0, int64_t(count));
    return Constant{builder_.add_constant(text, dtype, dims, {values, count * sizeof(*values)}),
                    builder_.tensor_type(dtype, dims)};
  };
  switch (at.type) {
    case 1:
      return add(BELAY_DT_FLOAT32, &at.f, 1, false);
    case 2:
      return add(BELAY_DT_INT64, &at.i, 1, false);
    case 6:
      return add(BELAY_DT_FLOAT32, at.floats.data(), at.floats.size(), true);
    case 7:
      return add(BELAY_DT_INT64, at.ints.data(), at.ints.size(), true);
    case 4: {
      BELAY_ASSIGN(const TensorProto tensor, read_tensor(at.tensor, base_));
      return add_tensor(tensor, name);
    }
    case 3:
    case 8: {
      const Views strings = at.type == 3 ? Views{at.s} : at.strings;
      const std::vector<int64_t> dims(at.type == 3 ? 0 : 1, int64_t(strings.size()));
      return Constant{builder_.add_string_constant(text, dims, strings),
                      builder_.tensor_type(BELAY_DT_STRING, dims)};
    }
    default:
      return Status(Code::kUnimplemented, "A sparse value is not supported.");
  }
}

// ---- attributes of nodes
// --------------------------------------------------------------------------------------------

Status Importer::set_attribute(uint32_t node, const AttributeProto& at, Scope& scope) {
  const std::string name = wire::utf8(at.name);
  switch (at.type) {
    case 1:
      builder_.set_float(node, name, at.f);
      return {};
    case 2:
      builder_.set_int(node, name, at.i);
      return {};
    case 3:
      builder_.set_string(node, name, at.s);
      return {};
    case 6:
      builder_.set_floats(node, name, at.floats);
      return {};
    case 7:
      builder_.set_ints(node, name, at.ints);
      return {};
    case 8:
      builder_.set_strings(node, name, at.strings);
      return {};
    case 4:
    case 9: {
      std::vector<uint32_t> constants;
      for (const std::string_view message : at.type == 4 ? Views{at.tensor} : at.tensors) {
        BELAY_ASSIGN(const TensorProto tensor, read_tensor(message, base_));
        BELAY_ASSIGN(const Constant constant, add_tensor(tensor, tensor.name));
        constants.push_back(constant.index);
      }
      if (at.type == 4) {
        builder_.set_tensor(node, name, constants[0]);
      } else {
        builder_.set_tensors(node, name, constants);
      }
      return {};
    }
    case 5:
    case 10:
      return set_graphs(node, at, scope);
    case 13: {
      BELAY_ASSIGN(const uint32_t type, add_type(at.tp, at.name));
      if (type == BELAY_NONE) return invalid("The type is empty.");
      builder_.set_type(node, name, type);
      return {};
    }
    default:
      return {Code::kUnimplemented, "An attribute of sparse tensors or of several types is not supported."};
  }
}

Status Importer::set_graphs(uint32_t node, const AttributeProto& at, Scope& scope) {
  std::vector<uint32_t> graphs;
  if (scope.depth + 1 > int(BELAY_GRAPH_MAX_DEPTH))  // before another level is read
    return invalid("Graphs are nested more than " + std::to_string(BELAY_GRAPH_MAX_DEPTH) + " deep.");
  for (const std::string_view message : at.type == 5 ? Views{at.graph} : at.graphs) {
    BELAY_ASSIGN(const GraphProto graph, read_graph(message, base_));
    Scope inner;
    inner.parent = &scope;
    inner.graph = builder_.add_graph(wire::utf8(graph.name), scope.graph);
    inner.depth = scope.depth + 1;
    inner.opsets = scope.opsets;
    inner.call = scope.call;
    inner.prefix = scope.prefix;
    BELAY_TRY(import_graph(graph, inner, "graph " + quoted(graph.name)));
    graphs.push_back(inner.graph);
  }
  const std::string name = wire::utf8(at.name);
  if (at.type == 5) {
    builder_.set_graph(node, name, graphs[0]);
  } else {
    builder_.set_graphs(node, name, graphs);
  }
  return {};
}

}  // namespace belay::onnx
