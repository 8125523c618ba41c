// ir/evaluate.hpp: runs small nodes of shape arithmetic at once, without a kernel: models compute shapes with
// dozens of tiny integer nodes, and planning for new shapes must not launch each.
#pragma once

#include "ir/env.hpp"

namespace belay::ir {

inline constexpr uint64_t kSmallElements = 4096;

// The outputs of a node whose inputs are known in `env` (Shape and Size: whose input's dims are) and whose
// outputs' types were inferred, or nothing where the node is not one of these, is too large, or is against
// its definition (then its kernel says so).
std::optional<std::vector<ConstantPtr>> evaluate_small(const Env& env, const Node& node);

}  // namespace belay::ir
