// Brings every node to one canonical form, so that inference, planning and kernels know one definition of
// each operator: the newest up to opset 17. What newer definitions take as inputs becomes an input; what only
// old ones had goes.
#include "passes/node_writer.hpp"
#include "passes/passes.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

namespace belay::passes {
namespace {

// The newest version up to opset 17 of the operators that have more than one.
const std::unordered_map<std::string_view, uint32_t>& canonical_versions() {
  static const std::unordered_map<std::string_view, uint32_t> table = {
      {"Abs", 13},
      {"Acos", 7},
      {"Add", 14},
      {"And", 7},
      {"ArgMax", 13},
      {"ArgMin", 13},
      {"AveragePool", 11},
      {"BatchNormalization", 15},
      {"Cast", 13},
      {"Ceil", 13},
      {"Clip", 13},
      {"Compress", 11},
      {"Concat", 13},
      {"Constant", 13},
      {"Conv", 11},
      {"ConvTranspose", 11},
      {"CumSum", 14},
      {"DepthToSpace", 13},
      {"DequantizeLinear", 13},
      {"Div", 14},
      {"Dropout", 13},
      {"Elu", 6},
      {"Equal", 13},
      {"Erf", 13},
      {"Exp", 13},
      {"Expand", 13},
      {"Flatten", 13},
      {"Floor", 13},
      {"GRU", 14},
      {"Gather", 13},
      {"GatherElements", 13},
      {"GatherND", 13},
      {"Gemm", 13},
      {"GlobalLpPool", 2},
      {"Greater", 13},
      {"GreaterOrEqual", 16},
      {"HardSigmoid", 6},
      {"Hardmax", 13},
      {"Identity", 16},
      {"If", 16},
      {"InstanceNormalization", 6},
      {"IsNaN", 13},
      {"LRN", 13},
      {"LSTM", 14},
      {"LeakyRelu", 16},
      {"Less", 13},
      {"LessOrEqual", 16},
      {"Log", 13},
      {"LogSoftmax", 13},
      {"Loop", 16},
      {"LpPool", 11},
      {"MatMul", 13},
      {"Max", 13},
      {"MaxPool", 12},
      {"MaxUnpool", 11},
      {"Mean", 13},
      {"MeanVarianceNormalization", 13},
      {"Min", 13},
      {"Mod", 13},
      {"Mul", 14},
      {"Neg", 13},
      {"NegativeLogLikelihoodLoss", 13},
      {"NonMaxSuppression", 11},
      {"NonZero", 13},
      {"OneHot", 11},
      {"Or", 7},
      {"PRelu", 16},
      {"Pad", 13},
      {"Pow", 15},
      {"QuantizeLinear", 13},
      {"RNN", 14},
      {"Reciprocal", 13},
      {"ReduceL1", 13},
      {"ReduceL2", 13},
      {"ReduceLogSum", 13},
      {"ReduceLogSumExp", 13},
      {"ReduceMax", 13},
      {"ReduceMean", 13},
      {"ReduceMin", 13},
      {"ReduceProd", 13},
      {"ReduceSum", 13},
      {"ReduceSumSquare", 13},
      {"Relu", 14},
      {"Reshape", 14},
      {"Resize", 13},
      {"RoiAlign", 16},
      {"ScatterElements", 16},
      {"ScatterND", 16},
      {"Selu", 6},
      {"Shape", 15},
      {"Sigmoid", 13},
      {"Sign", 13},
      {"Size", 13},
      {"Slice", 13},
      {"Softmax", 13},
      {"SoftmaxCrossEntropyLoss", 13},
      {"SpaceToDepth", 13},
      {"Split", 13},
      {"Sqrt", 13},
      {"Squeeze", 13},
      {"Sub", 14},
      {"Sum", 13},
      {"Tanh", 13},
      {"Tile", 13},
      {"TopK", 11},
      {"Transpose", 13},
      {"Unique", 11},
      {"Unsqueeze", 13},
      {"Where", 16},
      {"Xor", 7},
  };
  return table;
}

// Lifts the nodes of one graph, inferring types as it goes: some forms need a rank.
class Lifter : NodeWriter {
 public:
  explicit Lifter(ir::Model& model) : NodeWriter(model) {}

  Result<uint64_t> run() {
    return write_graph(
        0, [this](ir::Node& node) -> Result<uint64_t> { return node.domain.empty() ? lift(node) : 0; });
  }

 private:
  void set_input(ir::Node& node, size_t at, ir::ValueId value) {
    if (node.inputs.size() <= at) node.inputs.resize(at + 1, BELAY_NONE);
    node.inputs[at] = value;
  }
  // An attribute that is a list of integers becomes input `at`.
  void to_input(ir::Node& node, const char* attribute, size_t at) {
    if (const auto* values = node.ints(attribute); values && node.input(at) == BELAY_NONE)
      set_input(node, at, ints(*values));
    node.erase(attribute);
  }

  // A new node before the one at hand; gives its output.
  ir::ValueId before(const char* op, uint32_t version, const std::string& name,
                     std::vector<ir::ValueId> inputs, std::optional<int64_t> axis = {}) {
    ir::Node& node = model_.add_node(graph_, op, version, name);
    node.inputs = std::move(inputs);
    if (axis) node.set_int("axis", *axis);
    const ir::NodeId id = node.id;
    const ir::ValueId out = model_.add_value(graph_, name + "." + op);
    model_.nodes[id].outputs = {out};
    append(model_.nodes[id]);
    return out;
  }

  uint64_t lift(ir::Node& node) {
    const uint32_t from = node.version;
    const std::string op = node.op;
    node.erase("consumed_inputs");
    if (op == "Upsample") {
      if (!lift_upsample(node)) return 0;
    } else if (op == "Scatter") {
      node.op = "ScatterElements";
    } else if (!lift_by_operator(node)) {
      return 0;
    }
    const auto at = canonical_versions().find(node.op);
    if (at != canonical_versions().end() && node.version < at->second) node.version = at->second;
    return node.version != from || node.op != op;
  }

  bool is_used(ir::ValueId value) const {
    if (value == BELAY_NONE) return false;
    const auto reads = [&](const auto& list) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    return std::any_of(model_.nodes.begin(), model_.nodes.end(),
                       [&](const auto& at) { return reads(at.inputs); }) ||
           std::any_of(model_.graphs.begin(), model_.graphs.end(),
                       [&](const auto& at) { return reads(at.outputs); });
  }

  // False: the node keeps its version, for kernels to refuse or know.
  bool lift_by_operator(ir::Node& node) {
    const std::string& op = node.op;
    const uint32_t v = node.version;
    if (v >= 21 && (op == "Transpose" || op == "Pad") && lift_small(node)) return true;
    if (v >= 21 && op == "QLinearMatMul" && node.inputs.size() == 8) return lift_quantized_matmul(node);
    if (v >= 19 && (op == "Cast" || op == "CastLike")) lift_text_cast(node);
    static const std::set<std::string_view> broadcasting = {"Add", "Sub", "Mul",   "Div",     "Pow", "And",
                                                            "Or",  "Xor", "Equal", "Greater", "Less"};
    if (broadcasting.contains(op) && v < 7) return lift_broadcast(node);
    if ((op == "Squeeze" || op == "Unsqueeze" || op == "ReduceSum") && v < 13)
      return to_input(node, "axes", 1), true;
    if (op == "Split" && v < 13) return to_input(node, "split", 1), true;
    if (op.starts_with("Reduce") && v >= 18) return lift_reduce_18(node);
    if (op == "Slice" && v < 10) return lift_slice(node);
    if (op == "Pad" && v < 11) return lift_pad(node);
    if (op == "Clip" && v < 11) return lift_clip(node);
    if (op == "TopK" && v < 10) {
      set_input(node, 1, ints({node.int_or("k", 0)}));
      node.erase("k");
    } else if (op == "Reshape" && v < 5) {
      to_input(node, "shape", 1);
    } else if (op == "Dropout" && v < 12) {
      return lift_dropout(node);
    } else if (op == "BatchNormalization" && v < 14) {
      if (node.int_or("spatial", 1) == 0) return false;  // statistics for each position: no newer form
      // Outputs for training, which these versions only give where they are asked to train.
      for (size_t i = 1; i < node.outputs.size(); ++i)
        if (is_used(node.outputs[i])) return false;
      if (node.outputs.size() > 1) node.outputs.resize(1);
      for (const char* gone : {"spatial", "is_test"}) node.erase(gone);
    } else if ((op == "Softmax" || op == "LogSoftmax" || op == "Hardmax") && v < 13) {
      return lift_softmax(node);
    } else if (op == "Resize" && v < 11) {
      return lift_resize_10(node);
    } else if (op == "Cast" && v < 6) {
      return lift_cast(node);
    } else if (op == "Concat" && v < 4 && !node.find("axis")) {
      node.set_int("axis", 1);
    } else if (op == "PRelu" && v < 7) {
      return lift_prelu(node);
    } else if (op == "RoiAlign" && v < 16) {
      // The default was what is now called so.
      if (!node.find("coordinate_transformation_mode"))
        node.set_string("coordinate_transformation_mode", "output_half_pixel");
    } else if ((op == "GRU" || op == "LSTM" || op == "RNN") && v < 7) {
      node.erase("output_sequence");
    } else if (op == "Gemm" && v < 7) {
      node.erase("broadcast");
    } else if (op == "TfIdfVectorizer") {
      lift_tf_idf(node);
    } else if (op == "Scan" && v < 9) {
      return false;  // another operator in all but name; the engine runs both
    } else if (op == "Tile" && v < 6) {
      return false;
    }
    return true;
  }

  ir::ValueId cast(const std::string& name, ir::ValueId value, uint32_t to) {
    ir::Node& node = model_.add_node(graph_, "Cast", 13, name);
    node.inputs = {value};
    node.set_int("to", to);
    const ir::NodeId id = node.id;
    const ir::ValueId out = model_.add_value(graph_, name + ".wide");
    model_.nodes[id].outputs = {out};
    append(model_.nodes[id]);
    return out;
  }

  // Elements of less than a byte are moved as bytes: kernels move whole bytes.
  bool lift_small(ir::Node& node) {
    const uint32_t dtype = env_.type(node.input(0)).dtype;
    const DtypeInfo* info = find_dtype(dtype);
    if (!info || info->bits == 0 || info->bits >= 8) return false;
    const uint32_t wide = dtype == BELAY_DT_FLOAT4E2M1 ? BELAY_DT_FLOAT32 : BELAY_DT_INT8;
    std::vector<ir::ValueId> inputs = node.inputs;
    inputs[0] = cast(node.name, inputs[0], wide);
    if (node.op == "Pad" && node.input(2) != BELAY_NONE) inputs[2] = cast(node.name, inputs[2], wide);
    ir::Node& inner = model_.add_node(graph_, node.op, 13, node.name);
    inner.inputs = std::move(inputs);
    inner.attributes = node.attributes;
    const ir::NodeId id = inner.id;
    const ir::ValueId moved = model_.add_value(graph_, node.name + ".moved");
    model_.nodes[id].outputs = {moved};
    append(model_.nodes[id]);
    node.op = "Cast";
    node.inputs = {moved};
    node.attributes.clear();
    node.set_int("to", dtype);
    return true;
  }

  // Text is read and written as numbers that C++ has: between it and small types lies a wider one.
  void lift_text_cast(ir::Node& node) {
    const uint32_t from = env_.type(node.input(0)).dtype;
    const uint32_t to = node.op == "Cast" ? uint32_t(node.int_or("to", 0)) : env_.type(node.input(1)).dtype;
    const auto is_small = [](uint32_t dtype) {
      return dtype >= BELAY_DT_FLOAT8E4M3FN && dtype <= BELAY_DT_INT2;
    };
    if (from == BELAY_DT_STRING && is_small(to)) node.inputs[0] = cast(node.name, node.inputs[0], BELAY_DT_FLOAT64);
    if (to != BELAY_DT_STRING || !is_small(from)) return;
    const bool whole = find_dtype(from)->name.find("int") != std::string_view::npos;
    node.inputs[0] = cast(node.name, node.inputs[0], whole ? uint32_t(BELAY_DT_INT8) : uint32_t(BELAY_DT_FLOAT32));
  }

  // Kernels multiply bytes with scales of float32. Scales of 16 bits are widened; floats of 8 bits are
  // multiplied as float32.
  bool lift_quantized_matmul(ir::Node& node) {
    const auto is_float8 = [&](size_t i) {
      const DtypeInfo* info = find_dtype(env_.type(node.input(i)).dtype);
      return info && info->name.starts_with("float8");
    };
    if (!is_float8(0) && !is_float8(3) && !is_float8(7)) {
      for (const size_t i : {1, 4, 6})
        if (const uint32_t dtype = env_.type(node.input(i)).dtype;
            ir::is_float(dtype) && dtype != BELAY_DT_FLOAT32)
          node.inputs[i] = cast(node.name, node.inputs[i], BELAY_DT_FLOAT32);
      return true;
    }
    const auto wide = [&](size_t i, int64_t axis) {
      ir::Node& made = model_.add_node(graph_, "DequantizeLinear", 23, node.name);
      made.inputs = {node.inputs[i], node.inputs[i + 1], node.inputs[i + 2]};
      made.set_int("axis", axis);
      made.set_int("output_dtype", BELAY_DT_FLOAT32);
      const ir::NodeId id = made.id;
      const ir::ValueId out = model_.add_value(graph_, node.name + ".wide");
      model_.nodes[id].outputs = {out};
      append(model_.nodes[id]);
      return out;
    };
    const ir::ValueId a = wide(0, -2), b = wide(3, -1), scale = node.inputs[6], zero = node.inputs[7];
    const ir::ValueId product = before("MatMul", 13, node.name, {a, b});
    node.op = "QuantizeLinear";
    node.version = 23;
    node.inputs = {product, scale, zero};
    node.set_int("axis", -2);
    return true;
  }

  // Before version 7 the second operand was stretched only on demand, and from a given axis of the first.
  bool lift_broadcast(ir::Node& node) {
    const int64_t broadcast = node.int_or("broadcast", 0);
    const ir::Attribute* axis_at = node.find("axis");
    if (broadcast && axis_at && axis_at->kind == BELAY_ATTR_INT && node.input(0) != BELAY_NONE &&
        node.input(1) != BELAY_NONE) {
      const ir::Type &a = env_.type(node.inputs[0]), &b = env_.type(node.inputs[1]);
      if (!a.ranked || !b.ranked) return false;
      const int64_t rank = int64_t(a.dims.size());
      const int64_t axis = axis_at->ints[0] < 0 ? axis_at->ints[0] + rank : axis_at->ints[0];
      const int64_t behind = rank - axis - int64_t(b.dims.size());
      if (axis < 0 || behind < 0) return false;
      if (behind > 0) {
        std::vector<int64_t> axes;
        for (int64_t i = 0; i < behind; ++i) axes.push_back(int64_t(b.dims.size()) + i);
        node.inputs[1] = before("Unsqueeze", 13, node.name, {node.inputs[1], ints(axes)});
      }
    }
    node.erase("broadcast");
    node.erase("axis");
    return true;
  }

  bool lift_prelu(ir::Node& node) {
    if (node.input(0) == BELAY_NONE || node.input(1) == BELAY_NONE) return false;
    const ir::Type &x = env_.type(node.inputs[0]), &slope = env_.type(node.inputs[1]);
    if (!slope.ranked) return false;
    if (slope.dims.size() != 1 || slope.dims[0] == 1) return true;
    if (!x.ranked) {  // a 1 for each dim of x behind the channel's
      const ir::ValueId rank =
          before("Shape", 15, node.name, {before("Shape", 15, node.name, {node.inputs[0]})});
      const ir::ValueId behind =
          before("Max", 13, node.name, {before("Sub", 14, node.name, {rank, ints({2})}), ints({0})});
      const ir::ValueId ones = before("Expand", 13, node.name, {ints({1}), behind});
      const ir::ValueId dims = before("Concat", 13, node.name, {ints({-1}), ones}, 0);
      node.inputs[1] = before("Reshape", 14, node.name, {node.inputs[1], dims});
      return true;
    }
    if (x.dims.size() <= 2) return true;  // the channel axis is the last
    std::vector<int64_t> axes;
    for (size_t i = 2; i < x.dims.size(); ++i) axes.push_back(int64_t(i) - 1);
    node.inputs[1] = before("Unsqueeze", 13, node.name, {node.inputs[1], ints(axes)});
    return true;
  }

  bool lift_reduce_18(ir::Node& node) {
    // Down to the form with an attribute, where the axes are constant; an empty list with "noop" has none.
    if (node.op == "ReduceSum") return true;
    if (node.input(1) != BELAY_NONE) {
      const ir::Constant* axes = env_.constant(node.inputs[1]);
      const auto values = axes ? ir::as_int64s(*axes) : std::nullopt;
      if (!values || (values->empty() && node.int_or("noop_with_empty_axes", 0))) return false;
      if (!values->empty()) node.set_ints("axes", *values);
      node.inputs.resize(1);
    } else if (node.int_or("noop_with_empty_axes", 0)) {
      return false;
    }
    node.erase("noop_with_empty_axes");
    if (node.version < 20) node.version = 13;  // 20 adds bool to Max and Min
    return true;
  }

  bool lift_slice(ir::Node& node) {
    const auto *starts = node.ints("starts"), *ends = node.ints("ends");
    if (!starts || !ends) return false;
    const std::vector<int64_t> first = *starts, last = *ends;
    set_input(node, 1, ints(first));
    set_input(node, 2, ints(last));
    to_input(node, "axes", 3);
    node.erase("starts");
    node.erase("ends");
    return true;
  }

  bool lift_pad(ir::Node& node) {
    to_input(node, node.find("pads") ? "pads" : "paddings", 1);
    const uint32_t dtype = env_.type(node.input(0)).dtype;
    if (const ir::Attribute* value = node.find("value");
        value && value->kind == BELAY_ATTR_FLOAT && value->floats[0] != 0) {
      if (!ir::is_float(dtype)) return false;
      set_input(node, 2, constant(ir::make_scalar(dtype, double(value->floats[0]))));
    }
    node.erase("value");
    return node.input(1) != BELAY_NONE;
  }

  bool lift_clip(ir::Node& node) {
    const uint32_t dtype = env_.type(node.input(0)).dtype;
    if (!ir::is_float(dtype)) return false;
    const char* const names[] = {"min", "max"};
    for (size_t i = 0; i < 2; ++i) {
      if (const ir::Attribute* bound = node.find(names[i]); bound && bound->kind == BELAY_ATTR_FLOAT)
        set_input(node, i + 1, constant(ir::make_scalar(dtype, double(bound->floats[0]))));
      node.erase(names[i]);
    }
    return true;
  }

  bool lift_dropout(ir::Node& node) {
    const float ratio = node.float_or("ratio", 0.5f);
    const bool training = node.version < 7 && node.find("is_test") && node.int_or("is_test", 0) == 0;
    node.erase("is_test");
    node.erase("ratio");
    (void)training;  // is_test = 0 is what exporters left in place: an executable only ever infers
    set_input(node, 1, constant(ir::make_scalar(BELAY_DT_FLOAT32, double(ratio))));
    return true;
  }

  // Before 13 these worked on a matrix: dims before `axis` are its rows, the others together its columns.
  bool lift_softmax(ir::Node& node) {
    if (node.input(0) == BELAY_NONE) return false;
    const int64_t axis = node.int_or("axis", 1);
    const ir::Type& type = env_.type(node.input(0));
    if (type.ranked) {
      const int64_t rank = int64_t(type.dims.size());
      const int64_t from = axis < 0 ? axis + rank : axis;
      if (from < 0 || from > rank) return true;  // told by inference
      bool one = from < rank;                    // only one dim of the columns is not 1
      for (int64_t i = from + 1; i < rank; ++i) one &= type.dims[size_t(i)] == 1;
      if (one) {
        node.set_int("axis", from);
        return true;
      }
    }
    const ir::ValueId x = node.inputs[0];
    const ir::ValueId shape = before("Shape", 15, node.name, {x});
    const ir::ValueId flat = before("Flatten", 13, node.name, {x});
    model_.nodes[list_.back()].set_int("axis", axis);
    // The type was inferred before the attribute was there.
    (void)ir::infer(env_, model_.nodes[list_.back()]).ok();
    ir::Node& inner = model_.add_node(graph_, node.op, 13, node.name);
    inner.inputs = {flat};
    inner.set_int("axis", 1);
    const ir::NodeId id = inner.id;
    const ir::ValueId soft = model_.add_value(graph_, node.name + ".flat");
    model_.nodes[id].outputs = {soft};
    append(model_.nodes[id]);
    node.op = "Reshape";
    node.inputs = {soft, shape};
    node.erase("axis");
    return true;
  }

  bool lift_cast(ir::Node& node) {
    const std::string_view name = node.string_or("to", "");
    static const std::unordered_map<std::string_view, uint32_t> names = {
        {"FLOAT", 1},   {"UINT8", 2},   {"INT8", 3},   {"UINT16", 4}, {"INT16", 5},
        {"INT32", 6},   {"INT64", 7},   {"STRING", 8}, {"BOOL", 9},   {"FLOAT16", 10},
        {"DOUBLE", 11}, {"UINT32", 12}, {"UINT64", 13}};
    const auto at = names.find(name);
    if (at == names.end()) return false;
    node.set_int("to", at->second);
    return true;
  }

  // Sampling before version 11: asymmetric; nearest takes the floor, and the ceiling where it shrinks.
  void old_sampling(ir::Node& node, ir::ValueId scales) {
    node.set_string("coordinate_transformation_mode", "asymmetric");
    bool shrinks = false;
    if (const ir::Constant* constant = env_.constant(scales))
      if (const auto values = ir::as_doubles(*constant))
        for (const double scale : *values) shrinks |= scale < 1;
    node.set_string("nearest_mode", shrinks ? "ceil" : "floor");
    if (node.string_or("mode", "nearest") == "bilinear") node.set_string("mode", "linear");
  }

  bool lift_resize_10(ir::Node& node) {
    if (node.inputs.size() != 2) return false;
    const ir::ValueId scales = node.inputs[1];
    old_sampling(node, scales);
    node.inputs = {node.inputs[0], BELAY_NONE, scales};
    return true;
  }

  // Words become their places in the pool: the operator itself counts numbers.
  void lift_tf_idf(ir::Node& node) {
    const ir::Attribute* pool = node.find("pool_strings");
    if (!pool || node.input(0) == BELAY_NONE) return;
    ir::Attribute keys;
    keys.name = "keys";
    keys.kind = BELAY_ATTR_STRINGS;
    std::map<std::string_view, int64_t> places;
    std::vector<int64_t> numbers;
    for (const std::string& word : pool->strings) {
      const auto [at, fresh] = places.emplace(word, int64_t(places.size()));
      if (fresh) keys.strings.push_back(word);
      numbers.push_back(at->second);
    }
    ir::Node& index = model_.add_node(graph_, "StringIndex", 1, node.name);
    index.domain = "belay";
    index.inputs = {node.input(0)};
    index.outputs = {model_.add_value(graph_, node.name + ".StringIndex")};
    index.attributes.push_back(std::move(keys));
    append(index);
    node.inputs[0] = index.outputs[0];
    node.erase("pool_strings");
    node.set_ints("pool_int64s", std::move(numbers));
  }

  bool lift_upsample(ir::Node& node) {
    ir::ValueId scales = node.input(1);
    if (const ir::Attribute* at = node.find("scales"); at && at->kind == BELAY_ATTR_FLOATS) {
      const std::vector<double> values(at->floats.begin(), at->floats.end());
      scales = constant(ir::make_floats(BELAY_DT_FLOAT32, values, {int64_t(values.size())}));
      node.erase("scales");
    } else if (node.find("height_scale") && node.find("width_scale")) {
      const std::vector<double> values{1, 1, double(node.float_or("height_scale", 1)),
                                       double(node.float_or("width_scale", 1))};
      scales = constant(ir::make_floats(BELAY_DT_FLOAT32, values, {4}));
      node.erase("height_scale");
      node.erase("width_scale");
    }
    if (scales == BELAY_NONE) return false;
    node.op = "Resize";
    old_sampling(node, scales);
    node.inputs = {node.inputs[0], BELAY_NONE, scales};
    return true;
  }
};

}  // namespace

Result<uint64_t> lift_versions(ir::Model& model, const Evaluator&) { return Lifter(model).run(); }

}  // namespace belay::passes
