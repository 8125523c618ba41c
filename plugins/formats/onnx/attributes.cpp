#include "importer.hpp"

#include <belay/tensor_io/wire.hpp>

#include <algorithm>
#include <bit>

namespace belay::onnx {
namespace {

constexpr std::string_view kKindNames[] = {
    "nothing", "a float", "an int", "a string",        "a tensor",       "a graph", "floats", "ints",
    "strings", "tensors", "graphs", "a sparse tensor", "sparse tensors", "a type",  "types"};
constexpr int64_t kTensor = 4, kGraph = 5, kFloats = 6, kGraphs = 10, kType = 13, kKinds = 14;

bool is_empty_list(const AttributeProto& at) {
  return at.type >= kFloats && at.type <= kGraphs && at.present == 0;
}

// Which of its fields is the value. Old files do not say: then the only field that is there does, and where
// none is (a zero that was not written) the kind that the operator wants, a letter, or '\0'.
Result<int64_t> kind_of(const AttributeProto& at, char wanted) {
  if (at.type == 0) {
    if (std::popcount(at.present) == 1) return int64_t(std::countr_zero(at.present));
    const size_t kind = wanted ? kAttributeKinds.find(wanted) : 0;
    if (at.present == 0 && kind != 0 && kind != kTensor && kind != kGraph && kind <= kGraphs)
      return int64_t(kind);
    return invalid("has no type and " + std::string(at.present ? "several values" : "no value"));
  }
  if (at.type < 0 || at.type > kKinds)
    return invalid("has the type " + std::to_string(at.type) + ", want 1 to 14");
  const uint32_t other = at.present & ~(1u << at.type);
  if (other != 0)
    return invalid("says that it is " + std::string(kKindNames[at.type]) + " but holds " +
                   std::string(kKindNames[std::countr_zero(other)]));
  if ((at.type == kTensor || at.type == kGraph || at.type == kType) && !at.has(at.type))
    return invalid("says that it is " + std::string(kKindNames[at.type]) + " but holds nothing");
  return at.type;
}

const AttributeProto* attribute_named(const std::vector<AttributeProto>& attributes, std::string_view name) {
  for (const AttributeProto& at : attributes)
    if (at.name == name) return &at;
  return nullptr;
}

}  // namespace

Result<Importer::Attributes> Importer::read_attributes(const NodeProto& node, const Call* call,
                                                       const Operator& op) const {
  Attributes out;
  std::set<std::string_view> seen;
  for (const std::string_view message : node.attributes) {
    std::string_view from = message;
    BELAY_ASSIGN(AttributeProto at, read_attribute(message, base_));
    const std::string_view name = at.name;
    const std::string text = "Attribute " + quoted(name) + " of " + node_text(node) + " ";
    if (name.empty()) return invalid("An attribute of " + node_text(node) + " has no name.");
    if (!seen.insert(name).second) return invalid(text + "is there twice, want once.");
    if (!at.reference.empty()) {
      if (!call)
        return invalid(text + "refers to the attribute " + quoted(at.reference) +
                       " of a function but is in none.");
      const auto found = call->attributes.find(at.reference);
      if (found == call->attributes.end())
        continue;  // neither given nor with a default: as if it were not there
      from = found->second;
      BELAY_ASSIGN(at, read_attribute(from, base_));
      at.name = name;
    }
    const char wanted = attribute_kind(op, name);
    const auto kind = kind_of(at, wanted);
    if (!kind.ok()) return Status(kind.status().code(), text + kind.status().message() + ".");
    at.type = *kind;
    if (wanted && kAttributeKinds[size_t(at.type)] != wanted) {
      const size_t want = kAttributeKinds.find(wanted);
      // Writers that know no type of an empty list guess one.
      if (!(is_empty_list(at) && int64_t(want) >= kFloats && int64_t(want) <= kGraphs))
        return invalid(text + "is " + std::string(kKindNames[at.type]) + ", want " +
                       std::string(kKindNames[want]) + ".");
      at.type = int64_t(want);
    }
    out.list.push_back(std::move(at));
    out.messages.push_back(from);
  }
  return out;
}

Result<size_t> Importer::count_inputs(const GraphProto& body) const {
  if (ir_version_ >= 4 || body.initializers.empty()) return body.inputs.size();
  std::set<std::string_view> constants;
  for (const std::string_view message : body.initializers) {
    BELAY_ASSIGN(const TensorProto tensor, read_tensor(message, base_));
    constants.insert(tensor.name);
  }
  size_t count = 0;
  for (const std::string_view message : body.inputs) {
    BELAY_ASSIGN(const ValueInfoProto info, read_value_info(message, base_));
    count += constants.contains(info.name) ? 0 : 1;
  }
  return count;
}

// That the numbers of inputs and outputs of a control-flow node and of its graphs fit together.
Status Importer::check_body(const NodeProto& node, uint32_t since_version,
                            const std::vector<AttributeProto>& attributes) const {
  const bool is_if = node.op == "If", is_loop = node.op == "Loop", is_scan = node.op == "Scan";
  if (!node.domain.empty() || !(is_if || is_loop || is_scan)) return {};
  const size_t ins = node.inputs.size(), outs = node.outputs.size();
  for (const AttributeProto& at : attributes) {
    if (at.type != kGraph) continue;
    BELAY_ASSIGN(const GraphProto body, read_graph(at.graph, base_));
    BELAY_ASSIGN(const size_t body_ins, count_inputs(body));
    const size_t body_outs = body.outputs.size();
    const auto wrong = [&](const std::string& what) {
      return invalid("The graph " + quoted(at.name) + " of " + node_text(node) + " has " + what + ".");
    };
    if (is_if) {
      if (body_ins != 0) return wrong(std::to_string(body_ins) + " inputs, want none");
      if (body_outs != outs)
        return wrong(std::to_string(body_outs) + " outputs, want " + std::to_string(outs) + " as the node");
      continue;
    }
    // Values that go round: for a Loop all but trip count and condition; for a Scan all but what is scanned.
    size_t want_ins = ins < 2 ? 2 : ins, least_outs = ins < 2 ? 1 : ins - 1, extra = 1;
    if (is_scan) {
      const size_t first = since_version < 9 ? 1 : 0;  // opset 8 has the lengths of the sequences in front
      const AttributeProto* scanned = attribute_named(attributes, "num_scan_inputs");
      const size_t values = ins < first ? 0 : ins - first;
      if (!scanned || scanned->i < 1 || uint64_t(scanned->i) > values)
        return invalid("The " + node_text(node) + " has num_scan_inputs " +
                       std::to_string(scanned ? scanned->i : 0) + ", want 1 to its " +
                       std::to_string(values) + " inputs.");
      want_ins = values;
      least_outs = values - size_t(scanned->i);
      extra = 0;
    }
    if (body_ins != want_ins)
      return wrong(std::to_string(body_ins) + " inputs, want " + std::to_string(want_ins));
    least_outs = std::max(least_outs, outs + extra);
    if (body_outs < least_outs)
      return wrong(std::to_string(body_outs) + " outputs, want " + std::to_string(least_outs) + " or more");
  }
  return {};
}

}  // namespace belay::onnx
