// Patterns: Conv, MatMul and Gemm with what follows them in one kernel.
#include "conv.hpp"
#include "fused.hpp"
#include "heavy.hpp"
#include "matmul.hpp"

#include <algorithm>

namespace belay::cpu {
namespace {

// Operands of a fused kernel, whatever is absent is BELAY_NONE: so a position means the same in all.
enum : size_t { kBias = 2, kResidual = 3, kSlope = 4, kMin = 5, kMax = 6, kOperands = 7 };

bool finish_match(const Chain& chain, std::vector<uint32_t> inputs, Match& out) {
  if (chain.nodes().size() < 2) return false;
  out.nodes = chain.nodes();
  std::ranges::sort(out.nodes);
  // Absent operands at the end would say nothing.
  while (!inputs.empty() && inputs.back() == BELAY_NONE) inputs.pop_back();
  out.inputs = std::move(inputs);
  out.outputs = {chain.value()};
  out.score = 600 + 10 * out.nodes.size();
  return true;
}

uint64_t product_cost(const graph::View& view, uint32_t out, uint32_t weights) {
  const auto y = view.shape(out), w = view.shape(weights);
  if (!y || !w || w->empty() || std::ranges::min(*w) < 0) return 0;
  double terms = double(product(*w)), pixels = 1;
  for (const int64_t dim : *y) pixels *= double(std::max<int64_t>(dim, 0));
  return 300 + uint64_t(terms * pixels / std::max(1.0, double((*w)[0])) / 40);
}

// Whether `value` holds one number for each channel of an output of rank `rank`: [C, 1, ...], with leading
// ones or none.
bool by_channel(const Chain& chain, uint32_t value, int64_t channels, size_t rank) {
  const auto dims = chain.shape(value);
  if (!dims || dims->size() > rank || product(*dims) != channels) return false;
  if (dims->size() + 1 < rank) return channels == 1;
  return (*dims)[dims->size() - (rank - 1)] == channels;
}

bool match_conv(const ClaimContext& context, uint32_t index, Match& out) {
  const graph::NodeView node = context.view.node(index);
  if (!node.domain().empty() || node.inputs().size() < 2 || node.outputs().size() != 1) return false;
  if (context.view.dtype(node.input(0)) != BELAY_DT_FLOAT32 ||
      context.view.dtype(node.input(1)) != BELAY_DT_FLOAT32)
    return false;
  Chain chain(context, index);
  const auto shape = chain.shape(chain.value()), weights = chain.shape(node.input(1));
  if (!shape || shape->size() < 3 || !weights) return false;
  const int64_t channels = (*shape)[1];
  std::vector<uint32_t> inputs(kOperands, BELAY_NONE);
  for (size_t i = 0; i < std::min<size_t>(3, node.inputs().size()); ++i) inputs[i] = node.inputs()[i];
  if (inputs[kBias] == BELAY_NONE)
    inputs[kBias] = chain.add([&](uint32_t other) {
      return chain.shape(other) != shape && by_channel(chain, other, channels, shape->size());
    });
  inputs[kResidual] =
      chain.add([&](uint32_t other) { return other != chain.value() && chain.shape(other) == shape; });
  // The nodes of an activation are looked at before they are taken: a PRelu may have slopes of another shape.
  Chain before = chain;
  if (chain.activation(inputs[kSlope], inputs[kMin], inputs[kMax]) && inputs[kSlope] != BELAY_NONE) {
    const auto slope = chain.shape(inputs[kSlope]);
    if (!slope || (product(*slope) != 1 && !by_channel(chain, inputs[kSlope], channels, shape->size()))) {
      inputs[kSlope] = BELAY_NONE;
      chain = before;
    }
  }
  const bool depthwise = node.int_or("group", 1) > 1;
  if (inputs[kResidual] != BELAY_NONE && !depthwise && !context.constant(inputs[kResidual]))
    out.in_place.push_back({uint32_t{kResidual}, 0});
  out.cost_ns = product_cost(context.view, chain.value(), node.input(1));
  return finish_match(chain, std::move(inputs), out);
}

Status read_clip(OpContext& op, Post& post) {
  if (post.act != Unary::kClip && post.act != Unary::kLeakyClip) return {};
  for (const size_t i : {size_t{kMin}, size_t{kMax}}) {
    if (!op.has(i)) continue;
    BELAY_ASSIGN(const std::vector<double> value, op.numbers(i));
    (i == kMin && post.act == Unary::kClip ? post.a : post.b) = float(value.at(0));
    op.input_unused(i);
  }
  return {};
}

Status prepare_fused_conv(PatternContext& pattern) {
  OpContext& op = pattern.op;
  ConvFusion fusion;
  fusion.post = post_of(pattern.view, pattern.nodes);
  BELAY_TRY(read_clip(op, fusion.post));
  if (op.has(kBias)) fusion.bias = kBias;
  if (op.has(kResidual)) fusion.residual = kResidual;
  if (op.has(kSlope)) fusion.slopes = kSlope;
  return prepare_conv(op, pattern.attributes(0), fusion);
}

bool match_matmul(const ClaimContext& context, uint32_t index, Match& out) {
  const graph::NodeView node = context.view.node(index);
  if (!node.domain().empty() || node.inputs().size() != 2 || node.outputs().size() != 1) return false;
  if (context.view.dtype(node.input(0)) != BELAY_DT_FLOAT32 ||
      context.view.dtype(node.input(1)) != BELAY_DT_FLOAT32)
    return false;
  Chain chain(context, index);
  const auto shape = chain.shape(chain.value());
  const auto right = chain.shape(node.input(1));
  // A vector on the right has no columns that a bias could go with.
  if (!shape || shape->empty() || !right || right->size() < 2) return false;
  std::vector<uint32_t> inputs(kOperands, BELAY_NONE);
  inputs[0] = node.input(0);
  inputs[1] = node.input(1);
  inputs[kBias] = chain.add([&](uint32_t other) {
    const auto dims = chain.shape(other);
    if (!dims || dims == shape || dims->size() > shape->size()) return false;
    return product(*dims) == 1 || (product(*dims) == shape->back() && dims->back() == shape->back());
  });
  inputs[kResidual] =
      chain.add([&](uint32_t other) { return other != chain.value() && chain.shape(other) == shape; });
  Chain before = chain;
  if (chain.activation(inputs[kSlope], inputs[kMin], inputs[kMax]) && inputs[kSlope] != BELAY_NONE) {
    inputs[kSlope] = BELAY_NONE;
    chain = before;
  }
  if (inputs[kResidual] != BELAY_NONE && !context.constant(inputs[kResidual]))
    out.in_place.push_back({uint32_t{kResidual}, 0});
  out.cost_ns = product_cost(context.view, chain.value(), node.input(1));
  return finish_match(chain, std::move(inputs), out);
}

Status prepare_fused_matmul(PatternContext& pattern) {
  OpContext& op = pattern.op;
  MatMulFusion fusion;
  fusion.post = post_of(pattern.view, pattern.nodes);
  BELAY_TRY(read_clip(op, fusion.post));
  if (op.has(kBias)) fusion.bias = kBias;
  if (op.has(kResidual)) fusion.residual = kResidual;
  return prepare_matmul(op, fusion);
}

bool match_gemm(const ClaimContext& context, uint32_t index, Match& out) {
  const graph::NodeView node = context.view.node(index);
  if (!node.domain().empty() || node.inputs().size() < 2 || node.outputs().size() != 1) return false;
  if (context.view.dtype(node.input(0)) != BELAY_DT_FLOAT32) return false;
  Chain chain(context, index);
  if (!chain.shape(chain.value())) return false;
  std::vector<uint32_t> inputs(kOperands, BELAY_NONE);
  for (size_t i = 0; i < std::min<size_t>(3, node.inputs().size()); ++i) inputs[i] = node.inputs()[i];
  if (!chain.activation(inputs[kSlope], inputs[kMin], inputs[kMax]) || inputs[kSlope] != BELAY_NONE)
    return false;
  out.cost_ns = product_cost(context.view, chain.value(), node.input(1));
  return finish_match(chain, std::move(inputs), out);
}

Status prepare_fused_gemm(PatternContext& pattern) {
  Post post = post_of(pattern.view, pattern.nodes);
  BELAY_TRY(read_clip(pattern.op, post));
  return prepare_gemm(pattern.op, pattern.attributes(0), post);
}

}  // namespace

void add_fused_products(Registry& registry) {
  registry.add(PatternDef{"Conv with bias, residual or activation", "Conv", match_conv, prepare_fused_conv});
  registry.add(
      PatternDef{"MatMul with bias, residual or activation", "MatMul", match_matmul, prepare_fused_matmul});
  registry.add(PatternDef{"Gemm with activation", "Gemm", match_gemm, prepare_fused_gemm});
}

}  // namespace belay::cpu
