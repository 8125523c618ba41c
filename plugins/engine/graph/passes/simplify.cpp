// Constant folding, identities, constant branches, dead code.
#include "ir/evaluate.hpp"
#include "ir/infer.hpp"
#include "passes/passes.hpp"

#include <algorithm>

namespace belay::passes {
namespace {

// Graphs that the main graph reaches, itself included.
std::vector<ir::GraphId> reachable(const ir::Model& model) {
  std::vector<ir::GraphId> out{0};
  for (size_t i = 0; i < out.size(); ++i)
    for (const ir::NodeId id : model.graphs[out[i]].nodes)
      for (const ir::GraphId sub : ir::subgraphs_of(model.nodes[id])) out.push_back(sub);
  return out;
}

// The outputs of a node, where they are known: elements, not only types.
std::optional<std::vector<ir::ConstantPtr>> outputs_of(const ir::Env& env, const ir::Node& node,
                                                       const Evaluator& evaluate) {
  if (ir::is_random(node) || !ir::subgraphs_of(node).empty()) return std::nullopt;
  const bool dims_only = node.is("Shape") || node.is("Size");
  if (!dims_only)
    for (const ir::ValueId input : node.inputs)
      if (input != BELAY_NONE && !env.constant(input)) return std::nullopt;
  if (auto made = ir::evaluate_small(env, node)) return made;
  if (dims_only) return std::nullopt;
  for (const ir::ValueId output : node.outputs)
    if (output != BELAY_NONE && !env.type(output).concrete()) return std::nullopt;
  return evaluate ? evaluate(env, node) : std::nullopt;
}

// Folds the nodes that `chosen` allows.
Result<uint64_t> fold(ir::Model& model, const Evaluator& evaluate, bool (*chosen)(const ir::Node&)) {
  BELAY_ASSIGN(ir::Env env, infer_model(model));
  uint64_t changes = 0;
  for (const ir::GraphId graph : reachable(model)) {
    std::vector<ir::NodeId> kept;
    for (const ir::NodeId id : model.graphs[graph].nodes) {
      const ir::Node& node = model.nodes[id];
      bool constant_input = false;
      for (const ir::ValueId input : node.inputs) constant_input |= env.constant(input) != nullptr;
      // With a constant found in this walk more may be known of the outputs than before it.
      if (changes && constant_input && ir::subgraphs_of(node).empty()) {
        std::vector<ir::Type> before;
        for (const ir::ValueId output : node.outputs) before.push_back(env.type(output));
        const Status status = ir::infer(env, node);
        if (!status.ok() && graph == 0) return status;
        for (size_t i = 0; i < node.outputs.size(); ++i)
          if (node.outputs[i] != BELAY_NONE && !env.types[node.outputs[i]].kind)
            env.types[node.outputs[i]] = before[i];
      }
      const auto made = chosen(node) ? outputs_of(env, node, evaluate) : std::nullopt;
      if (!made || made->size() < node.outputs.size() || node.outputs.empty()) {
        kept.push_back(id);
        continue;
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] == BELAY_NONE) continue;
        env.set_constant(node.outputs[i], (*made)[i]);
        model.values[node.outputs[i]].constant = (*made)[i];
        model.values[node.outputs[i]].type = (*made)[i]->type();
      }
      ++changes;
    }
    model.graphs[graph].nodes = std::move(kept);
  }
  return changes;
}

}  // namespace

// Bytes that are dequantised stay bytes until it is known that no product multiplies them as they are.
Result<uint64_t> fold_constants(ir::Model& model, const Evaluator& evaluate) {
  return fold(model, evaluate, [](const ir::Node& node) { return !node.is("DequantizeLinear"); });
}

Result<uint64_t> fold_dequantized(ir::Model& model, const Evaluator& evaluate) {
  return fold(model, evaluate, [](const ir::Node& node) { return node.is("DequantizeLinear"); });
}

namespace {

// Whether the first output is the first input, whatever that holds. `type` gives the type of a value.
template <class TypeOf>
bool gives_its_input(const ir::Model& model, const ir::Node& node, TypeOf&& type_of) {
  const auto ints = [&](size_t i) {
    const ir::ConstantPtr& constant = model.constant_of(node.input(i));
    return constant ? ir::as_int64s(*constant) : std::nullopt;
  };
  if (node.is("Identity")) return node.inputs.size() == 1;
  if (node.is("Concat") || node.is("Sum") || node.is("Max") || node.is("Min") || node.is("Mean"))
    return node.inputs.size() == 1;
  if (node.is("Dropout")) {
    const auto training = ints(2);
    return node.version >= 12 &&
           (node.input(2) == BELAY_NONE || (training && training->size() == 1 && (*training)[0] == 0));
  }
  if (node.is("Transpose")) {
    const auto* perm = node.ints("perm");
    const ir::Type type = perm ? type_of(node.input(0)) : ir::Type{};
    if (!type.ranked || type.dims.size() != perm->size()) return false;  // also where it is no permutation
    for (size_t i = 0; i < perm->size(); ++i)
      if ((*perm)[i] != int64_t(i)) return false;
    return true;
  }
  if (node.is("Pad")) {
    const auto pads = node.version >= 11 ? ints(1) : std::nullopt;
    return pads && std::all_of(pads->begin(), pads->end(), [](int64_t pad) { return pad == 0; });
  }
  // Exporters cast what they quantise to the type that it has.
  if (!node.is("Cast")) return false;
  const uint32_t dtype = type_of(node.input(0)).dtype;
  return dtype != BELAY_DT_UNDEFINED && node.int_or("to", 0) == int64_t(dtype);
}

}  // namespace

Result<uint64_t> drop_identities(ir::Model& model, const Evaluator&) {
  uint64_t changes = 0;
  ir::Uses uses(model);
  std::optional<ir::Env> env;
  const auto type_of = [&](ir::ValueId value) {
    if (!env)
      if (Result<ir::Env> found = infer_model(model); found.ok()) env = std::move(*found);
    return env && value != BELAY_NONE ? env->type(value) : ir::Type{};
  };
  for (const ir::GraphId graph : reachable(model)) {
    std::vector<ir::NodeId> kept;
    for (const ir::NodeId id : model.graphs[graph].nodes) {
      const ir::Node& node = model.nodes[id];
      const ir::ValueId output = node.output(0), input = node.input(0);
      if (output == BELAY_NONE || input == BELAY_NONE || !gives_its_input(model, node, type_of)) {
        kept.push_back(id);
        continue;
      }
      if (node.output(1) != BELAY_NONE && !uses.of(node.output(1)).empty()) {  // the mask is wanted
        kept.push_back(id);
        continue;
      }
      uses.replace(model, output, input);
      ++changes;
    }
    model.graphs[graph].nodes = std::move(kept);
  }
  return changes;
}

Result<uint64_t> inline_branches(ir::Model& model, const Evaluator&) {
  uint64_t changes = 0;
  ir::Uses uses(model);
  for (const ir::GraphId graph : reachable(model)) {
    std::vector<ir::NodeId> nodes = std::move(model.graphs[graph].nodes), kept;
    model.graphs[graph].nodes.clear();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const ir::Node& node = model.nodes[nodes[i]];
      const ir::ConstantPtr& condition =
          node.is("If") ? model.constant_of(node.input(0)) : model.constant_of(BELAY_NONE);
      const auto flag = condition ? ir::as_int64s(*condition) : std::nullopt;
      const ir::GraphId branch = !flag || flag->size() != 1
                                     ? BELAY_NONE
                                     : node.graph_or_none((*flag)[0] ? "then_branch" : "else_branch");
      if (branch == BELAY_NONE || model.graphs[branch].outputs.size() < node.outputs.size()) {
        kept.push_back(nodes[i]);
        continue;
      }
      const std::vector<ir::NodeId> inner = std::move(model.graphs[branch].nodes);
      model.graphs[branch].nodes.clear();
      for (const ir::NodeId id : inner) {
        model.nodes[id].graph = graph;
        for (const ir::ValueId output : model.nodes[id].outputs)
          if (output != BELAY_NONE) model.values[output].graph = graph;
        for (const ir::GraphId sub : ir::subgraphs_of(model.nodes[id])) model.graphs[sub].parent = graph;
        kept.push_back(id);
      }
      for (size_t k = 0; k < node.outputs.size(); ++k)
        if (node.outputs[k] != BELAY_NONE)
          uses.replace(model, node.outputs[k], model.graphs[branch].outputs[k]);
      ++changes;
    }
    model.graphs[graph].nodes = std::move(kept);
  }
  return changes;
}

namespace {

// Walks each graph from its end, so that who reads a value has been judged before who makes it.
class DeadCode {
 public:
  explicit DeadCode(ir::Model& model) : model_(model), reads_(model.values.size()) { count(0, 1); }

  uint64_t remove(ir::GraphId graph) {
    uint64_t removed = 0;
    std::vector<ir::NodeId> kept;
    const std::vector<ir::NodeId> nodes = std::move(model_.graphs[graph].nodes);
    for (auto id = nodes.rbegin(); id != nodes.rend(); ++id) {
      ir::Node& node = model_.nodes[*id];
      const bool read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [&](ir::ValueId output) { return is_read(output); });
      if (!read) {
        count(node, -1);
        ++removed;
        continue;
      }
      for (const ir::GraphId sub : ir::subgraphs_of(node)) removed += remove(sub);
      trim(node);
      kept.push_back(*id);
    }
    model_.graphs[graph].nodes.assign(kept.rbegin(), kept.rend());
    return removed;
  }

 private:
  bool is_read(ir::ValueId value) const { return value != BELAY_NONE && reads_[value] > 0; }

  void count(ir::GraphId graph, int64_t change) {
    for (const ir::NodeId id : model_.graphs[graph].nodes) count(model_.nodes[id], change);
    for (const ir::ValueId output : model_.graphs[graph].outputs) reads_[output] += change;
  }
  void count(const ir::Node& node, int64_t change) {
    for (const ir::ValueId input : node.inputs)
      if (input != BELAY_NONE) reads_[input] += change;
    for (const ir::GraphId sub : ir::subgraphs_of(node)) count(sub, change);
  }

  // Drops the outputs that a node can do without when nobody reads them.
  void trim(ir::Node& node) const {
    static const std::set<std::string_view> trimmable = {
        "MaxPool", "Dropout", "LayerNormalization", "BatchNormalization", "LSTM", "GRU", "RNN", "Unique"};
    if (!node.domain.empty() || !trimmable.contains(node.op)) return;
    for (size_t i = 1; i < node.outputs.size(); ++i)
      if (!is_read(node.outputs[i])) node.outputs[i] = BELAY_NONE;
    while (node.outputs.size() > 1 && node.outputs.back() == BELAY_NONE) node.outputs.pop_back();
  }

  ir::Model& model_;
  std::vector<int64_t> reads_;  // of each value, by nodes and as outputs of graphs
};

}  // namespace

Result<uint64_t> remove_dead_code(ir::Model& model, const Evaluator&) { return DeadCode(model).remove(0); }

}  // namespace belay::passes
