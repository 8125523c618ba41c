// Walks from a product's output along the nodes that can become its end: bias, residual, activation.
#pragma once

#include "../registry.hpp"
#include "post.hpp"

#include <optional>

namespace belay::cpu {

// Follows values that nothing else reads, collecting nodes.
class Chain {
 public:
  Chain(const ClaimContext& context, uint32_t root)
      : context_(&context), nodes_{root}, value_(node(root).output(0)) {}

  uint32_t value() const { return value_; }
  const std::vector<uint32_t>& nodes() const { return nodes_; }
  graph::NodeView node(uint32_t index) const { return context_->view.node(index); }
  std::optional<Dims> shape(uint32_t value) const;  // nothing: not known in full

  // value + other: gives `other`, if `wanted` says so of it.
  template <class F>
  uint32_t add(F&& wanted) {
    const uint32_t next = sole("Add");
    if (next == BELAY_NONE) return BELAY_NONE;
    const uint32_t other = other_input(node(next), value_);
    if (other == BELAY_NONE || context_->view.dtype(other) != context_->view.dtype(value_) || !wanted(other))
      return BELAY_NONE;
    take(next);
    return other;
  }
  // An activation in one or several nodes. Of a Clip `min` and `max` are constants (or absent), of a PRelu
  // `slope` is the operand. False: there is none, and nothing is taken.
  bool activation(uint32_t& slope, uint32_t& min, uint32_t& max);

 private:
  // The only reader of the value, if it is an `op` of the main domain.
  uint32_t sole(std::string_view op) const;
  static uint32_t other_input(graph::NodeView node, uint32_t value);
  void take(uint32_t node) {
    nodes_.push_back(node);
    value_ = this->node(node).output(0);
  }
  // The only node that reads `value`, if it is an `op`; and the value of a constant with one element.
  uint32_t reader(uint32_t value, std::string_view op) const;
  std::optional<float> scalar(uint32_t value) const;
  bool gated();  // x * f(x): two readers, which are both taken
  bool gelu();   // by Erf
  bool hard_swish_parts();
  uint32_t producer(uint32_t value, uint32_t before) const;

  const ClaimContext* context_;
  std::vector<uint32_t> nodes_;
  uint32_t value_;
};

// The activation that the nodes behind the root stand for, from their operators; `min` and `max` are those of
// a Clip.
Post post_of(const graph::View& view, const std::vector<uint32_t>& nodes);

}  // namespace belay::cpu
