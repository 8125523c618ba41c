// Folds y * scale + shift, with one scale and shift for each channel, into the constant weights that make y.
#include "passes/passes.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace belay::passes {
namespace {

struct Affine {
  std::vector<double> scale, shift;  // by output channel
};

// One number for each of `channels`, where a constant broadcast to rank `rank` has only a channel axis.
std::optional<std::vector<double>> by_channel(const ir::Constant& constant, int64_t rank, uint64_t channels) {
  if (constant.dims.size() > size_t(rank)) return std::nullopt;  // it would add a dim
  const size_t lead = size_t(rank) - constant.dims.size();
  for (size_t i = 0; i < constant.dims.size(); ++i)
    if (constant.dims[i] != 1 && !(i + lead == 1 && uint64_t(constant.dims[i]) == channels))
      return std::nullopt;
  auto values = ir::as_doubles(constant, channels);
  if (!values || values->empty()) return std::nullopt;
  if (values->size() == 1) values->assign(channels, (*values)[0]);
  return values;
}

// What `node`, the only reader of a value of `channels` channels and rank `rank`, does to it.
std::optional<Affine> affine_of(const ir::Model& model, const ir::Node& node, ir::ValueId value,
                                uint32_t dtype, int64_t rank, uint64_t channels) {
  Affine out{std::vector<double>(channels, 1), std::vector<double>(channels, 0)};
  if (node.is("BatchNormalization")) {
    if (node.inputs.size() != 5 || node.inputs[0] != value || node.int_or("training_mode", 0) ||
        node.outputs.size() > 1)
      return std::nullopt;
    std::vector<double> in[4];
    for (size_t i = 0; i < 4; ++i) {
      const ir::ConstantPtr& constant = model.constant_of(node.inputs[i + 1]);
      if (!constant || constant->dtype != dtype || constant->count() != channels) return std::nullopt;
      in[i] = *ir::as_doubles(*constant, channels);
    }
    const double epsilon = double(node.float_or("epsilon", 1e-5f));
    for (size_t c = 0; c < channels; ++c) {
      out.scale[c] = in[0][c] / std::sqrt(in[3][c] + epsilon);
      out.shift[c] = in[1][c] - in[2][c] * out.scale[c];
    }
    return out;
  }
  const bool add = node.is("Add"), subtract = node.is("Sub"), multiply = node.is("Mul"),
             divide = node.is("Div");
  if ((!add && !subtract && !multiply && !divide) || node.inputs.size() != 2) return std::nullopt;
  const size_t side = node.inputs[0] == value ? 1 : 0;
  if (side == 0 && (subtract || divide)) return std::nullopt;
  const ir::ConstantPtr& constant = model.constant_of(node.inputs[side]);
  if (!constant || constant->dtype != dtype || node.inputs[1 - side] != value) return std::nullopt;
  const auto values = by_channel(*constant, rank, channels);
  if (!values) return std::nullopt;
  for (size_t c = 0; c < channels; ++c) {
    if (add) out.shift[c] = (*values)[c];
    if (subtract) out.shift[c] = -(*values)[c];
    if (multiply) out.scale[c] = (*values)[c];
    if (divide) out.scale[c] = 1 / (*values)[c];
  }
  return out;
}

// Where weights keep their output channels: [outer][channels / groups][inner], and `outer` is cut into
// groups.
struct Layout {
  uint64_t outer = 1, per_group = 0, inner = 1, groups = 1;
  int64_t rank = 0;  // of the result
  uint64_t channels() const { return per_group * groups; }
};

std::optional<Layout> layout_of(const ir::Node& node, const ir::Constant& weights) {
  Layout out;
  const ir::Dims& dims = weights.dims;
  out.rank = int64_t(dims.size());
  if (!weights.count()) return std::nullopt;
  if (node.is("Conv") && dims.size() >= 3) {
    out.per_group = uint64_t(dims[0]);
    out.inner = weights.count() / out.per_group;
  } else if (node.is("ConvTranspose") && dims.size() >= 3) {
    out.outer = uint64_t(dims[0]);
    out.per_group = uint64_t(dims[1]);
    out.inner = weights.count() / (out.outer * out.per_group);
    out.groups = uint64_t(node.int_or("group", 1));
    if (!out.groups || out.outer % out.groups) return std::nullopt;
  } else if (node.is("Gemm") && dims.size() == 2) {
    const bool transposed = node.int_or("transB", 0) != 0;
    out.outer = transposed ? 1 : uint64_t(dims[0]);
    out.per_group = uint64_t(dims[transposed ? 0 : 1]);
    out.inner = transposed ? uint64_t(dims[1]) : 1;
  } else {
    return std::nullopt;
  }
  return out;
}

// The weights scaled by the output channel of each element; null where a number stops being finite.
template <class T>
ir::ConstantPtr scaled(const ir::Constant& weights, const std::vector<double>& scale, const Layout& layout) {
  auto out = ir::make_constant(weights.dtype, weights.dims);
  if (!out) return nullptr;
  const std::byte* from = weights.data;  // may be unaligned: it lies in the file
  auto* to = const_cast<std::byte*>(out->data);
  bool finite = true;
  for (uint64_t o = 0; o < layout.outer; ++o)
    for (uint64_t c = 0; c < layout.per_group; ++c) {
      const double by = scale[o / (layout.outer / layout.groups) * layout.per_group + c];
      for (uint64_t i = 0; i < layout.inner; ++i, from += sizeof(T), to += sizeof(T)) {
        T value;
        std::memcpy(&value, from, sizeof(T));
        const T result = T(double(value) * by);
        finite &= std::isfinite(result) || !std::isfinite(value);
        std::memcpy(to, &result, sizeof(T));
      }
    }
  return finite ? out : nullptr;
}

// Folds the reader of `node`'s output into it. True when it did.
bool fold_reader(ir::Model& model, const ir::Uses& uses, ir::Node& node) {
  const ir::ValueId made = node.output(0);
  if (made == BELAY_NONE || node.inputs.size() < 2 || uses.of(made).size() != 1) return false;
  const ir::Uses::Use use = uses.of(made)[0];
  // A reader in a subgraph may not run, or run often.
  if (use.node == BELAY_NONE || use.graph != node.graph) return false;
  const ir::ConstantPtr weights = model.constant_of(node.inputs[1]);
  if (!weights || (weights->dtype != BELAY_DT_FLOAT32 && weights->dtype != BELAY_DT_FLOAT64)) return false;
  const auto layout = layout_of(node, *weights);
  if (!layout) return false;
  const bool gemm = node.is("Gemm");
  std::vector<double> bias(layout->channels(), 0);
  if (node.input(2) != BELAY_NONE) {
    const ir::ConstantPtr& constant = model.constant_of(node.inputs[2]);
    if (!constant || constant->dtype != weights->dtype) return false;
    const auto values = by_channel(*constant, gemm ? 2 : 1, layout->channels());
    if (gemm && !values) return false;  // another bias for each row
    if (!gemm && constant->count() != layout->channels()) return false;
    bias = gemm ? *values : *ir::as_doubles(*constant, layout->channels());
    const double beta = gemm ? double(node.float_or("beta", 1)) : 1;
    for (double& value : bias) value *= beta;
  }
  ir::Node& reader = model.nodes[use.node];
  const auto affine = affine_of(model, reader, made, weights->dtype, layout->rank, layout->channels());
  if (!affine || reader.output(0) == BELAY_NONE) return false;
  const bool scales =
      std::any_of(affine->scale.begin(), affine->scale.end(), [](double s) { return s != 1; });
  ir::ConstantPtr fresh = weights;
  if (scales)
    fresh = weights->dtype == BELAY_DT_FLOAT32 ? scaled<float>(*weights, affine->scale, *layout)
                                               : scaled<double>(*weights, affine->scale, *layout);
  if (!fresh) return false;
  for (size_t c = 0; c < bias.size(); ++c) {
    bias[c] = bias[c] * affine->scale[c] + affine->shift[c];
    if (!std::isfinite(bias[c])) return false;
  }
  const ir::ConstantPtr shift = ir::make_floats(weights->dtype, bias, {int64_t(bias.size())});
  if (!shift) return false;
  const std::string& name = node.name;
  if (scales) node.inputs[1] = model.add_value(node.graph, name + ".weights", {}, fresh);
  node.inputs.resize(std::max<size_t>(3, node.inputs.size()), BELAY_NONE);
  node.inputs[2] = model.add_value(node.graph, name + ".bias", {}, shift);
  if (gemm) node.erase("beta");
  // The node now makes what its reader made; the reader has no output left and is dropped below.
  node.outputs[0] = reader.outputs[0];
  node.name = name.empty() ? reader.name : name + " + " + reader.name;
  auto& nodes = model.graphs[node.graph].nodes;
  nodes.erase(std::find(nodes.begin(), nodes.end(), reader.id));
  reader.outputs.clear();
  return true;
}

}  // namespace

Result<uint64_t> fold_affine(ir::Model& model, const Evaluator&) {
  uint64_t changes = 0;
  // Stays right while readers are folded: who reads what the node makes then is who read what the reader
  // made.
  const ir::Uses uses(model);
  for (ir::GraphId graph = 0; graph < model.graphs.size(); ++graph) {
    const std::vector<ir::NodeId> nodes = model.graphs[graph].nodes;
    for (const ir::NodeId id : nodes) {
      ir::Node& node = model.nodes[id];
      if (node.graph != graph || (!node.is("Conv") && !node.is("ConvTranspose") && !node.is("Gemm")))
        continue;
      while (fold_reader(model, uses, node)) ++changes;
    }
  }
  return changes;
}

}  // namespace belay::passes
