#include "fused.hpp"

#include <cmath>
#include <cstring>

namespace belay::cpu {
namespace {

struct ActForm {
  std::string_view op;
  Unary act;
};
constexpr ActForm kActs[] = {
    {"Relu", Unary::kRelu},
    {"LeakyRelu", Unary::kLeakyRelu},
    {"Clip", Unary::kClip},
    {"PRelu", Unary::kLeakyRelu},
    {"Sigmoid", Unary::kSigmoid},
    {"Tanh", Unary::kTanh},
    {"HardSwish", Unary::kHardSwish},
    {"HardSigmoid", Unary::kHardSigmoid},
    {"Elu", Unary::kElu},
    {"Softplus", Unary::kSoftplus},
    {"Mish", Unary::kMish},
};
const ActForm* find_act(std::string_view op) {
  for (const ActForm& form : kActs)
    if (form.op == op) return &form;
  return nullptr;
}

bool near(float x, float y) { return std::fabs(x - y) <= 1e-6f * std::fabs(y); }

bool is_sixth(graph::NodeView hard_sigmoid) {
  return near(hard_sigmoid.float_or("alpha", 0.2f), 1.0f / 6) && hard_sigmoid.float_or("beta", 0.5f) == 0.5f;
}

}  // namespace

std::optional<Dims> Chain::shape(uint32_t value) const {
  auto dims = context_->view.shape(value);
  if (dims)
    for (const int64_t dim : *dims)
      if (dim < 0) return std::nullopt;
  return dims;
}

uint32_t Chain::reader(uint32_t value, std::string_view op) const {
  const uint32_t next = context_->only_consumer(value);
  if (next == BELAY_NONE) return BELAY_NONE;
  const graph::NodeView at = node(next);
  return at.op() == op && at.domain().empty() ? next : BELAY_NONE;
}
uint32_t Chain::sole(std::string_view op) const { return reader(value_, op); }

uint32_t Chain::other_input(graph::NodeView node, uint32_t value) {
  if (node.inputs().size() != 2) return BELAY_NONE;
  if (node.inputs()[0] == value) return node.inputs()[1];
  return node.inputs()[1] == value ? node.inputs()[0] : BELAY_NONE;
}

std::optional<float> Chain::scalar(uint32_t value) const {
  if (value == BELAY_NONE) return std::nullopt;
  const auto dims = shape(value);
  const void* bytes = context_->constant(value);
  if (!bytes || !dims || product(*dims) != 1 || context_->view.dtype(value) != BELAY_DT_FLOAT32)
    return std::nullopt;
  float out;
  std::memcpy(&out, bytes, sizeof out);
  return out;
}

uint32_t Chain::producer(uint32_t value, uint32_t before) const {
  for (uint32_t n = before; n-- > nodes_.front();)
    for (const uint32_t out : node(n).outputs())
      if (out == value) return n;
  return BELAY_NONE;
}

bool Chain::gated() {
  if (context_->uses[value_] != 2) return false;
  const uint32_t mul = context_->last_consumer[value_];
  if (mul == BELAY_NONE || node(mul).op() != "Mul" || !node(mul).domain().empty()) return false;
  const uint32_t gate = other_input(node(mul), value_);
  if (gate == BELAY_NONE || gate == value_ || context_->uses[gate] != 1) return false;
  const uint32_t made = producer(gate, mul);
  if (made == BELAY_NONE || node(made).input(0) != value_ || !node(made).domain().empty()) return false;
  if (node(made).op() != "Sigmoid" && !(node(made).op() == "HardSigmoid" && is_sixth(node(made))))
    return false;
  nodes_.push_back(made);
  take(mul);
  return true;
}

// 0.5 * x * (1 + erf(x / sqrt(2))), the factor before or after.
bool Chain::gelu() {
  if (context_->uses[value_] != 2) return false;
  const uint32_t x = value_;
  std::vector<uint32_t> taken;
  uint32_t inner = BELAY_NONE, half = BELAY_NONE, product = BELAY_NONE;
  const belay_list all = context_->view.graphs()[context_->graph].nodes;
  const uint32_t last = context_->last_consumer[x];
  for (uint32_t n = nodes_.back() + 1; n <= last && n < all.first + all.count; ++n) {
    const graph::NodeView at = node(n);
    if (!at.domain().empty() || std::ranges::find(at.inputs(), x) == at.inputs().end()) continue;
    const uint32_t other = other_input(at, x);
    const float factor =
        other == BELAY_NONE ? 0.0f : scalar(other).value_or(0.0f);  // 0: no constant, or no use
    if (at.op() == "Div" && at.inputs()[0] == x && near(factor, 1.41421356f))
      inner = n;
    else if (at.op() == "Mul" && near(factor, 0.70710678f))
      inner = n;
    else if (at.op() == "Mul" && factor == 0.5f)
      half = n;
    else if (at.op() == "Mul" && factor == 0.0f)
      product = n;
  }
  if (inner == BELAY_NONE || (half == BELAY_NONE) == (product == BELAY_NONE)) return false;
  const uint32_t erf = reader(node(inner).output(0), "Erf");
  if (erf == BELAY_NONE) return false;
  const uint32_t plus = reader(node(erf).output(0), "Add");
  if (plus == BELAY_NONE || scalar(other_input(node(plus), node(erf).output(0))) != 1.0f) return false;
  const uint32_t mul = reader(node(plus).output(0), "Mul");
  if (mul == BELAY_NONE) return false;
  const uint32_t other = other_input(node(mul), node(plus).output(0));
  uint32_t end = mul;
  if (product != BELAY_NONE) {
    if (product != mul || other != x) return false;
    end = reader(node(mul).output(0), "Mul");
    if (end == BELAY_NONE || scalar(other_input(node(end), node(mul).output(0))) != 0.5f) return false;
    nodes_.insert(nodes_.end(), {inner, erf, plus, mul});
  } else {
    if (other != node(half).output(0) || reader(node(half).output(0), "Mul") != mul) return false;
    nodes_.insert(nodes_.end(), {inner, half, erf, plus});
  }
  take(end);
  return true;
}

// x * Clip(x + 3, 0, 6) / 6, as some exporters write HardSwish.
bool Chain::hard_swish_parts() {
  if (context_->uses[value_] != 2) return false;
  const uint32_t mul = context_->last_consumer[value_];
  if (mul == BELAY_NONE || node(mul).op() != "Mul" || !node(mul).domain().empty()) return false;
  const uint32_t gate = other_input(node(mul), value_);
  if (gate == BELAY_NONE || gate == value_ || context_->uses[gate] != 1) return false;
  const uint32_t clip = producer(gate, mul);
  if (clip == BELAY_NONE || node(clip).op() != "Clip" || !node(clip).domain().empty()) return false;
  if (node(clip).inputs().size() != 3 || scalar(node(clip).input(1)) != 0.0f ||
      scalar(node(clip).input(2)) != 6.0f)
    return false;
  const uint32_t sum = node(clip).input(0), plus = producer(sum, clip);
  if (plus == BELAY_NONE || context_->uses[sum] != 1 || node(plus).op() != "Add" ||
      !node(plus).domain().empty())
    return false;
  const uint32_t three = other_input(node(plus), value_);
  if (three == BELAY_NONE || scalar(three) != 3.0f) return false;
  const uint32_t div = reader(node(mul).output(0), "Div");
  if (div != BELAY_NONE && node(div).input(0) == node(mul).output(0) && scalar(node(div).input(1)) == 6.0f) {
    nodes_.insert(nodes_.end(), {plus, clip, mul});
    take(div);
    return true;
  }
  const uint32_t sixth = reader(node(mul).output(0), "Mul");
  if (sixth == BELAY_NONE) return false;
  const uint32_t factor = other_input(node(sixth), node(mul).output(0));
  if (factor == BELAY_NONE || !near(scalar(factor).value_or(0.0f), 1.0f / 6)) return false;
  nodes_.insert(nodes_.end(), {plus, clip, mul});
  take(sixth);
  return true;
}

bool Chain::activation(uint32_t& slope, uint32_t& min, uint32_t& max) {
  if (gated() || hard_swish_parts() || gelu()) return true;
  const uint32_t next = context_->only_consumer(value_);
  if (next == BELAY_NONE) return false;
  const graph::NodeView at = node(next);
  if (at.op() == "Gelu" && at.input(0) == value_ && (at.domain().empty() || at.domain() == "com.microsoft")) {
    take(next);
    return true;
  }
  if (!at.domain().empty() || !find_act(at.op()) || at.input(0) != value_) return false;
  if (at.op() == "Clip") {
    if (at.has("min") || at.has("max")) return false;  // of a definition before 11
    for (size_t i = 1; i < at.inputs().size(); ++i) {
      if (at.inputs()[i] == BELAY_NONE) continue;
      if (!scalar(at.inputs()[i])) return false;
      (i == 1 ? min : max) = at.inputs()[i];
    }
  }
  if (at.op() == "PRelu") slope = at.inputs().size() > 1 ? at.inputs()[1] : BELAY_NONE;
  take(next);
  if (at.op() == "LeakyRelu")
    if (const uint32_t limited = sole("Max"); limited != BELAY_NONE) {
      const uint32_t low = other_input(node(limited), value_);
      const auto limit = scalar(low);  // NaN would win
      if (limit && *limit == *limit && shape(node(limited).output(0)) == shape(value_)) {
        min = low;
        take(limited);
      }
    }
  return true;
}

Post post_of(const graph::View& view, const std::vector<uint32_t>& nodes) {
  Post post;
  const auto has = [&](std::string_view op) {
    for (size_t i = 1; i < nodes.size(); ++i)
      if (view.node(nodes[i]).op() == op) return true;
    return false;
  };
  if (has("Erf")) {
    post.act = Unary::kGelu;
    return post;
  }
  if (has("Mul")) {  // gated, or HardSwish in parts
    post.act = has("Sigmoid") ? Unary::kSwish : Unary::kHardSwish;
    post.a = 1;
    return post;
  }
  if (nodes.size() > 2 && view.node(nodes.back()).op() == "Max") {
    post.act = Unary::kLeakyClip;
    post.a = view.node(nodes[nodes.size() - 2]).float_or("alpha", 0.01f);
    return post;  // b is an operand
  }
  const graph::NodeView last = view.node(nodes.back());
  if (last.op() == "Gelu") {
    post.act = last.string_or("approximate", "none") == "tanh" ? Unary::kGeluTanh : Unary::kGelu;
    return post;
  }
  const ActForm* form = nodes.size() > 1 ? find_act(last.op()) : nullptr;
  if (!form) return post;
  post.act = form->act;
  if (last.op() == "LeakyRelu") post.a = last.float_or("alpha", 0.01f);
  if (last.op() == "Elu") post.a = last.float_or("alpha", 1.0f);
  if (last.op() == "HardSigmoid") post.a = last.float_or("alpha", 0.2f), post.b = last.float_or("beta", 0.5f);
  if (last.op() == "Clip")
    post.a = -std::numeric_limits<float>::infinity(), post.b = std::numeric_limits<float>::infinity();
  return post;
}

}  // namespace belay::cpu
