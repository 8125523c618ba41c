// Operators between DequantizeLinear and QuantizeLinear that look at each element alone, or only move
// elements, work on bytes: exactly as the float graph does.
#include "passes/quantized.hpp"

#include "ir/infer.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace belay::passes {
namespace {

// Output i depends on element i of the inputs and on nothing else.
constexpr std::string_view kPointwise[] = {
    "Abs",     "Add",  "Ceil",        "Clip",      "Div",        "Elu",  "Erf",   "Exp",
    "Floor",   "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",  "Log",  "Max",   "Min",
    "Mul",     "Neg",  "Pow",         "PRelu",     "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Softplus",    "Softsign",  "Sqrt",       "Sub",  "Tanh",  "ThresholdedRelu",
    "Celu",    "Mish"};
// Output elements are elements of input 0 (MaxPool: quantisation keeps order).
constexpr std::string_view kMoving[] = {"Reshape",      "Transpose",    "Flatten", "Squeeze",
                                        "Unsqueeze",    "Slice",        "Gather",  "Expand",
                                        "DepthToSpace", "SpaceToDepth", "Tile",    "MaxPool"};

bool among(std::span<const std::string_view> ops, const ir::Node& node) {
  return node.domain.empty() && std::find(ops.begin(), ops.end(), node.op) != ops.end();
}

class Elementwise {
 public:
  Elementwise(QuantizedGraph graph, const Evaluator& evaluate)
      : graph_(std::move(graph)), evaluate_(evaluate) {}

  uint64_t run() {
    return graph_.each_node([&](ir::Node& node) {
      const auto to = graph_.quantizes(&node);
      return to && !graph_.constant(node.input(0)) &&
             (moved(node, *to) || looked_up(node, *to) || combined(node, *to) || averaged(node, *to) ||
              joined(node, *to));
    });
  }

 private:
  static bool same(const Dequantized& a, const Dequantized& b) {
    return a.dtype == b.dtype && a.scales == b.scales && a.zeros == b.zeros;
  }
  std::optional<Dequantized> source(ir::ValueId value) {
    const auto from = graph_.dequantized(value);
    return from && from->per_tensor() && from->is_bytes() && !graph_.constant(from->bytes) ? from
                                                                                           : std::nullopt;
  }
  // What Q makes of each byte that DQ reads.
  static std::vector<int64_t> requantized(const Dequantized& from, const Dequantized& to) {
    std::vector<int64_t> table;
    const float scale = float(from.scales[0]);
    for (int i = 0; i < 256; ++i)
      table.push_back(quantize(float(byte_value(i, from.dtype) - int64_t(from.zeros[0])) * scale,
                               float(to.scales[0]), int64_t(to.zeros[0]), to.dtype));
    return table;
  }

  // DQ, nodes that only move elements, Q: bytes move, then are looked up.
  bool moved(ir::Node& last, const Dequantized& to) {
    std::vector<ir::Node*> chain;
    ir::ValueId value = last.input(0);
    for (;;) {
      ir::Node* node = graph_.maker(value);
      if (!node || !among(kMoving, *node) || node->outputs.size() != 1) break;
      const auto readers = graph_.readers(value);
      if (!readers || readers->size() != 1) return false;
      for (size_t i = 1; i < node->inputs.size(); ++i)
        if (node->inputs[i] == node->inputs[0]) return false;
      chain.push_back(node);
      value = node->input(0);
    }
    if (chain.empty()) return false;
    const auto from = source(value);
    if (!from) return false;
    chain.back()->inputs[0] = from->bytes;
    for (ir::Node* node : chain) graph_.retype(node->outputs[0]);
    graph_.become_table(last, last.input(0), from->dtype, to.dtype, requantized(*from, to));
    return true;
  }

  // The nodes between one DQ'd value and Q, all of which look at single elements, in topological order;
  // constants are single numbers.
  struct Region {
    std::vector<ir::Node*> nodes;
    std::optional<Dequantized> from;
    ir::ValueId from_value = BELAY_NONE;  // what DQ makes
    std::set<ir::ValueId> seen;
  };
  bool collect(Region& region, ir::ValueId value, size_t depth) {
    if (!region.seen.insert(value).second) return true;
    if (const auto from = source(value)) {
      if (region.from) return region.from->bytes == from->bytes && region.from_value == value;
      region.from = from;
      region.from_value = value;
      return true;
    }
    ir::Node* node = graph_.maker(value);
    if (!node || !among(kPointwise, *node) || node->outputs.size() != 1 || depth > 16 ||
        region.nodes.size() > 16)
      return false;
    bool any = false;
    for (const ir::ValueId input : node->inputs) {
      if (input == BELAY_NONE) continue;
      if (const ir::ConstantPtr constant = graph_.constant(input)) {
        if (constant->count() != 1 || constant->dims.size() > 1) return false;
        continue;
      }
      if (!collect(region, input, depth + 1)) return false;
      any = true;
    }
    region.nodes.push_back(node);
    return any;
  }
  bool looked_up(ir::Node& last, const Dequantized& to) {
    Region region;
    if (!collect(region, last.input(0), 0) || !region.from) return false;
    // A constant of rank 1 must not add a dim.
    const ir::Type& type = graph_.env().type(region.from_value);
    if (!region.nodes.empty() && (!type.ranked || type.dims.empty())) return false;
    // What is between is read by nobody else.
    for (const ir::Node* node : region.nodes) {
      const auto readers = graph_.readers(node->outputs[0]);
      if (!readers) return false;
      for (const ir::Node* reader : *readers)
        if (reader != &last &&
            std::find(region.nodes.begin(), region.nodes.end(), reader) == region.nodes.end())
          return false;
    }
    std::vector<int64_t> table;
    if (region.nodes.empty()) {
      table = requantized(*region.from, to);
    } else {
      const auto values = evaluated(region);
      if (!values) return false;
      for (const float x : *values)
        table.push_back(quantize(x, float(to.scales[0]), int64_t(to.zeros[0]), to.dtype));
    }
    graph_.become_table(last, region.from->bytes, region.from->dtype, to.dtype, table);
    return true;
  }

  // What the region makes of all 256 bytes, by its own kernels.
  std::optional<std::vector<float>> evaluated(const Region& region) {
    if (!evaluate_) return std::nullopt;
    ir::Model model;
    model.graphs.emplace_back();
    std::map<ir::ValueId, ir::ValueId> copies;
    std::vector<double> all;
    for (int i = 0; i < 256; ++i)
      all.push_back(double(float(byte_value(i, region.from->dtype) - int64_t(region.from->zeros[0])) *
                           float(region.from->scales[0])));
    copies[region.from_value] =
        model.add_value(0, "bytes", {}, ir::make_floats(BELAY_DT_FLOAT32, all, {256}));
    ir::ConstantPtr made;
    for (const ir::Node* node : region.nodes) {
      std::vector<ir::ValueId> inputs;
      for (const ir::ValueId input : node->inputs) {
        if (input == BELAY_NONE) {
          inputs.push_back(BELAY_NONE);
          continue;
        }
        const auto [at, fresh] = copies.emplace(input, BELAY_NONE);
        if (fresh) at->second = model.add_value(0, "", {}, graph_.constant(input));
        inputs.push_back(at->second);
      }
      ir::Node& copy = model.add_node(0, node->op, node->version, node->name);
      copy.domain = node->domain;
      copy.attributes = node->attributes;
      copy.inputs = std::move(inputs);
      const ir::ValueId output = model.add_value(0, "", {});
      copy.outputs = {output};
      ir::Env env(model);
      if (!ir::infer(env, copy).ok() || !env.type(output).concrete()) return std::nullopt;
      const auto outputs = evaluate_(env, copy);
      if (!outputs || outputs->size() != 1 || !(*outputs)[0]) return std::nullopt;
      made = (*outputs)[0];
      model.values[output].constant = made;
      copies[node->outputs[0]] = output;
    }
    if (!made || made->dtype != BELAY_DT_FLOAT32 || made->dims != ir::Dims{256}) return std::nullopt;
    const auto values = ir::as_doubles(*made);
    if (!values) return std::nullopt;
    return std::vector<float>(values->begin(), values->end());
  }

  // Two DQ, Add or Mul, perhaps Relu or Clip, Q.
  bool combined(ir::Node& last, const Dequantized& to) {
    ir::Node* node = graph_.maker(last.input(0));
    if (!node || !graph_.only_reader(node->output(0))) return false;
    ir::Node* const clamp = node;
    const auto by = graph_.clamps(clamp);
    if (by) node = graph_.maker(clamp->input(0));
    if (!node || (!node->is("Add") && !node->is("Mul")) || !graph_.only_reader(node->output(0))) return false;
    std::vector<ir::ValueId> inputs;
    for (const ir::ValueId input : node->inputs) {
      const auto from = graph_.dequantized(input);
      if (!from || !from->per_tensor() || !from->is_bytes() || from->dtype != to.dtype) return false;
      inputs.insert(inputs.end(), {from->bytes, from->scale, graph_.zero_of(last.graph, *from)});
    }
    if (inputs.size() != 6) return false;
    inputs.insert(inputs.end(), {to.scale, graph_.zero_of(last.graph, to)});
    ir::Node& makes = by ? *clamp : last;
    const std::string_view op = node->is("Add") ? "QLinearAdd" : "QLinearMul";
    if (by) {
      graph_.retype(clamp->output(0));
      graph_.become_clamp(last, clamp->output(0), to, *by);
    }
    graph_.become(makes, kMicrosoft, op, 1, std::move(inputs));
    return true;
  }

  // DQ, AveragePool or GlobalAveragePool, Q.
  bool averaged(ir::Node& last, const Dequantized& to) {
    const ir::Node* node = graph_.maker(last.input(0));
    if (!node || (!node->is("AveragePool") && !node->is("GlobalAveragePool")) ||
        !graph_.only_reader(node->output(0)))
      return false;
    const auto from = source(node->input(0));
    if (!from || from->dtype != to.dtype) return false;
    const std::vector<ir::Attribute> attributes = node->attributes;
    graph_.become(last, kMicrosoft, "QLinear" + node->op, 1,
                  {from->bytes, from->scale, graph_.zero_of(last.graph, *from), to.scale,
                   graph_.zero_of(last.graph, to)});
    last.attributes = attributes;
    return true;
  }

  // Several DQ, Concat, Q: what has other scales than the result is looked up first.
  bool joined(ir::Node& last, const Dequantized& to) {
    ir::Node* node = graph_.maker(last.input(0));
    if (!node || !node->is("Concat") || graph_.only_reader(node->output(0)) != &last) return false;
    std::vector<Dequantized> sources;
    for (const ir::ValueId input : node->inputs) {
      const auto from = source(input);
      if (!from) return false;
      sources.push_back(*from);
    }
    ir::Model& model = graph_.model();
    for (size_t i = 0; i < sources.size(); ++i) {
      node->inputs[i] = sources[i].bytes;
      if (same(sources[i], to)) continue;
      ir::Node& table =
          model.add_node(node->graph, "ByteTable", 1, node->name + ".input" + std::to_string(i));
      table.outputs = {model.add_value(node->graph, table.name, {})};
      graph_.become_table(table, sources[i].bytes, sources[i].dtype, to.dtype, requantized(sources[i], to));
      node->inputs[i] = table.outputs[0];
      auto& nodes = model.graphs[node->graph].nodes;
      nodes.insert(std::find(nodes.begin(), nodes.end(), node->id), table.id);
    }
    graph_.retype(node->outputs[0]);
    graph_.become(last, "", "Identity", 16, {node->outputs[0]});
    return true;
  }

  QuantizedGraph graph_;
  const Evaluator& evaluate_;
};

}  // namespace

Result<uint64_t> quantize_elementwise(ir::Model& model, const Evaluator& evaluate) {
  BELAY_ASSIGN(QuantizedGraph graph, QuantizedGraph::of(model, evaluate));
  return Elementwise(std::move(graph), evaluate).run();
}

}  // namespace belay::passes
