#include "ir/infer.hpp"

#include "ir/evaluate.hpp"
#include "ir/infer_context.hpp"

#include <map>
#include <unordered_map>

namespace belay::ir {
namespace {

// Operators of com.microsoft whose types are those of the operator of ONNX with that name.
constexpr std::string_view kAsInOnnx[] = {"DequantizeLinear", "GatherND",        "Gelu",           "GridSample", "QLinearConv",
                                          "QuantizeLinear",   "RotaryEmbedding", "Trilu"};

// Null: there is none.
Rule find_rule(const Node& node) {
  using Key = std::pair<std::string_view, std::string_view>;  // domain, operator
  static const std::map<Key, Rule> all = [] {
    std::map<Key, Rule> out;
    for (const auto family : {elementwise_rules(), movement_rules(), selection_rules(), nn_rules(), misc_rules(), contrib_rules()})
      for (const RuleEntry& entry : family) out.emplace(Key{entry.domain, entry.op}, entry.rule);
    for (const std::string_view op : kAsInOnnx)
      if (const auto at = out.find({"", op}); at != out.end()) out.emplace(Key{kMicrosoft, op}, at->second);
    return out;
  }();
  const auto at = all.find({node.domain, node.op});
  return at == all.end() ? nullptr : at->second;
}

// What holds for both types: a dim that differs is unknown.
Type meet(const Type& a, const Type& b) {
  if (a.kind != b.kind || a.dtype != b.dtype)
    return a.kind == b.kind ? Type{a.kind, 0, false, {}, nullptr} : Type{};
  Type out = a;
  if (!a.ranked || !b.ranked || a.dims.size() != b.dims.size()) {
    out.ranked = false;
    out.dims.clear();
    return out;
  }
  for (size_t i = 0; i < out.dims.size(); ++i)
    if (out.dims[i] != b.dims[i]) out.dims[i] = kUnknown;
  return out;
}

// Arithmetic over partly known shapes: only what keeps a symbol a symbol or has both sides known.
void fold_partial(Infer& at) {
  const std::string& op = at.node().op;
  if (op != "Mul" && op != "Add" && op != "Sub" && op != "Div" && op != "Cast" && op != "Identity") return;
  const auto a = at.ints(0);
  if (!a) return;
  if (op == "Cast" || op == "Identity") {
    if (op == "Identity" || at.node().int_or("to", 0) == BELAY_DT_INT64 ||
        at.node().int_or("to", 0) == BELAY_DT_INT32)
      at.set_partial(0, *a);
    return;
  }
  const auto b = at.ints(1);
  if (!b || (at.dtype(0) != BELAY_DT_INT64 && at.dtype(0) != BELAY_DT_INT32)) return;
  if (a->size() != b->size() && a->size() != 1 && b->size() != 1) return;
  if (a->empty() || b->empty()) return;
  Dims out(std::max(a->size(), b->size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = (*a)[a->size() == 1 ? 0 : i], y = (*b)[b->size() == 1 ? 0 : i];
    if (x < 0 || y < 0) {
      const bool same = (op == "Mul" || op == "Div") ? y == 1 : y == 0;
      const bool swapped = (op == "Mul" && x == 1) || (op == "Add" && x == 0);
      out[i] = same ? x : swapped ? y : kUnknown;
    } else if (op == "Mul" || op == "Add") {
      // What wraps around is no size.
      if (op == "Mul" ? __builtin_mul_overflow(x, y, &out[i]) : __builtin_add_overflow(x, y, &out[i])) out[i] = kUnknown;
    } else if (op == "Sub") {
      out[i] = x - y < 0 ? kUnknown : x - y;  // a negative number would read as a symbol
    } else {
      out[i] = y == 0 ? kUnknown : x / y;
    }
  }
  at.set_partial(0, std::move(out));
}

Status infer_if(Env& env, const Node& node) {
  const GraphId yes = node.graph_or_none("then_branch"), no = node.graph_or_none("else_branch");
  if (yes == BELAY_NONE || no == BELAY_NONE)
    return {Code::kInvalidArgument, "A branch of " + node.label() + " is missing."};
  if (const Type& condition = env.type(node.input(0)); condition.is_tensor() && condition.dtype != BELAY_DT_UNDEFINED &&
                                                       condition.dtype != BELAY_DT_BOOL)
    return {Code::kInvalidArgument, "The condition of " + node.label() + " is " + to_string(condition) + ", want bool."};
  // Shapes that do not fit in a branch are told when it is taken: models guard such code by the condition.
  if (!infer_graph(env, yes).ok() || !infer_graph(env, no).ok()) return {};
  const Graph &a = env.model->graphs[yes], &b = env.model->graphs[no];
  if (a.outputs.size() < node.outputs.size() || b.outputs.size() < node.outputs.size())
    return {Code::kInvalidArgument, "A branch of " + node.label() + " has too few outputs."};
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != BELAY_NONE)
      env.types[node.outputs[i]] = meet(env.type(a.outputs[i]), env.type(b.outputs[i]));
  return {};
}

// The axes along which Scan takes its inputs apart.
Status check_scan_axes(const Env& env, const Node& node) {
  const auto axes = node.ints("scan_input_axes");
  const int64_t scanned = node.int_or("num_scan_inputs", 0), states = int64_t(node.inputs.size()) - scanned;
  for (int64_t i = 0; axes && states >= 0 && i < scanned && i < int64_t(axes->size()); ++i) {
    const Type& type = env.type(node.inputs[size_t(states + i)]);
    const int64_t axis = (*axes)[size_t(i)], rank = int64_t(type.dims.size());
    if (type.is_tensor() && type.ranked && (axis < -rank || axis >= rank))
      return {Code::kInvalidArgument, "The scan input " + std::to_string(i) + " of " + node.label() + " has rank " +
                                          std::to_string(rank) + ", scan_input_axes wants axis " + std::to_string(axis) + "."};
  }
  return {};
}

// Bodies of loops see their state with unknown dims: it may change its shape from one iteration to the next.
Status infer_body(Env& env, const Node& node) {
  const GraphId body = node.graph_or_none("body");
  if (body == BELAY_NONE) return {Code::kInvalidArgument, "The body of " + node.label() + " is missing."};
  if (node.is("Scan")) BELAY_TRY(check_scan_axes(env, node));
  const Graph& graph = env.model->graphs[body];
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ValueId input = graph.inputs[i];
    Type type = env.model->values[input].type;
    if (node.is("Loop") && i == 0)
      type = Type::tensor(BELAY_DT_INT64, {});
    else if (node.is("Loop") && i == 1)
      type = Type::tensor(BELAY_DT_BOOL, {});
    else if (type.is_tensor())
      type = Type::unranked(type.dtype ? type.dtype
                                       : env.type(node.is("Loop") ? node.input(i) : BELAY_NONE).dtype);
    else if (!type.kind && node.is("Loop"))
      type = env.type(node.input(i)).is_tensor() ? Type::unranked(env.type(node.input(i)).dtype)
                                                 : env.type(node.input(i));
    env.types[input] = type;
  }
  if (!infer_graph(env, body).ok()) return {};
  if (node.is("SequenceMap")) {
    for (size_t i = 0; i < node.outputs.size() && i < graph.outputs.size(); ++i)
      if (node.outputs[i] != BELAY_NONE)
        env.types[node.outputs[i]] = Type::sequence(Type::unranked(env.type(graph.outputs[i]).dtype));
    return {};
  }
  const size_t skip = node.is("Loop") ? 1 : 0;
  const size_t state = node.is("Loop") ? (node.inputs.size() > 2 ? node.inputs.size() - 2 : 0) : 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == BELAY_NONE || i + skip >= graph.outputs.size()) continue;
    if (const Type& declared = env.model->values[node.outputs[i]].type;
        i >= state && declared.kind == BELAY_TYPE_SEQUENCE) {  // what each iteration gave, side by side
      env.types[node.outputs[i]] = declared;
      continue;
    }
    const Type& type = env.type(graph.outputs[i + skip]);
    Type out = type.is_tensor() ? Type::unranked(type.dtype) : type;
    if (node.is("Loop") && i >= state && type.is_tensor() && type.ranked) {  // stacked along a new first axis
      out = type;
      out.dims.insert(out.dims.begin(), kUnknown);
    }
    env.types[node.outputs[i]] = out;
  }
  return {};
}

// Rules and kernels take the numbers of element types as they stand.
Status check_element_types(Infer& at) {
  for (const char* name : {"to", "dtype", "output_dtype", "output_datatype", "stash_type"}) {
    const Attribute* attribute = at.node().find(name);
    if (!attribute || attribute->kind != BELAY_ATTR_INT) continue;
    const int64_t value = at.node().int_or(name, 0);
    if (value && (value < 0 || value > UINT32_MAX || !find_dtype(uint32_t(value))))
      return at.fail("attribute '" + std::string(name) + "' is no element type: " + std::to_string(value));
  }
  return {};
}

}  // namespace

Status infer(Env& env, const Node& node) {
  for (const ValueId value : node.outputs)
    if (value != BELAY_NONE) env.types[value] = {};
  const Rule rule = find_rule(node);
  if (!rule) return {};
  Infer at(env, node);
  // What a shape is made of is a list or a number, never a matrix.
  const uint64_t lists = shape_inputs(node);
  for (size_t i = 0; i < node.inputs.size() && i < 64; ++i)
    if ((lists >> i & 1) && at.has(i) && at.ranked(i) && at.rank(i) > 1)
      return at.fail("input " + std::to_string(i) + " has rank " + std::to_string(at.rank(i)) + ", want 1");
  BELAY_TRY(check_element_types(at));
  return rule(at);
}

Status infer_graph(Env& env, GraphId graph) {
  for (const NodeId id : env.model->graphs[graph].nodes) {
    const Node& node = env.model->nodes[id];
    if (node.is("If")) {
      BELAY_TRY(infer_if(env, node));
    } else if (node.is("Loop") || node.is("Scan") || node.is("SequenceMap")) {
      BELAY_TRY(infer_body(env, node));
    } else {
      BELAY_TRY(infer(env, node));
      Infer at(env, node);
      if (node.domain.empty()) fold_partial(at);
    }
    // Where nothing follows, what the model declares is better than nothing.
    for (const ValueId value : node.outputs) {
      if (value == BELAY_NONE) continue;
      const Type& declared = env.model->values[value].type;
      Type& type = env.types[value];
      if (!type.kind) {
        type = declared;
        if (!declared.concrete()) continue;
        type.ranked = false;  // but a declared shape is only a claim
        type.dims.clear();
      } else if (type.is_tensor() && type.dtype == BELAY_DT_UNDEFINED) {
        type.dtype = declared.dtype;
      }
    }
  }
  return {};
}

uint64_t shape_inputs(const Node& node) {
  if (!node.domain.empty())
    return node.domain == "com.microsoft" && node.op == "GroupQueryAttention" ? 1 << 6 : 0;
  static const std::unordered_map<std::string_view, uint64_t> table = {
      {"Reshape", 2},
      {"Expand", 2},
      {"ConstantOfShape", 1},
      {"Range", 7},
      {"Tile", 2},
      {"Slice", 2 + 4 + 8 + 16},
      {"Pad", 2 + 8},
      {"Resize", 2 + 4 + 8},
      {"TopK", 2},
      {"OneHot", 2},
      {"Squeeze", 2},
      {"Unsqueeze", 2},
      {"Split", 2},
      {"ReduceSum", 2},
      {"ReduceMax", 2},
      {"ReduceMin", 2},
      {"ReduceMean", 2},
      {"ReduceProd", 2},
      {"ReduceL1", 2},
      {"ReduceL2", 2},
      {"ReduceLogSum", 2},
      {"ReduceLogSumExp", 2},
      {"ReduceSumSquare", 2},
      {"HannWindow", 1},
      {"HammingWindow", 1},
      {"BlackmanWindow", 1},
      {"MelWeightMatrix", 3},
      {"MaxUnpool", 4},
      {"DFT", 2 + 4},
      {"STFT", 2 + 8},
      {"Col2Im", 2 + 4},
      {"CenterCropPad", 2},
      {"AffineGrid", 2},
      {"If", 1},
  };
  const auto at = table.find(node.op);
  if (at == table.end()) return 0;
  uint64_t bits = at->second;
  // The region of interest counts for one mode only.
  if (node.op == "Resize" && node.string_or("coordinate_transformation_mode", "") != "tf_crop_and_resize")
    bits &= ~uint64_t{2};
  return bits;
}

bool is_random(const Node& node) {
  return node.op.starts_with("Random") || node.op == "Bernoulli" || node.op == "Multinomial" ||
         (node.op == "Dropout" && node.input(2) != BELAY_NONE);
}

bool writes_shape(const Node& node) {
  return node.domain.empty() &&
         (node.op == "NonZero" || node.op == "NonMaxSuppression" || node.op == "Unique" ||
          node.op == "Compress");
}

}  // namespace belay::ir
