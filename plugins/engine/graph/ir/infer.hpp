// ir/infer.hpp: types of a node's outputs from what is known of its inputs, by the operators' definitions.
// Nodes are in canonical form (see passes/version_lift.hpp).
#pragma once

#include "ir/env.hpp"

namespace belay::ir {

// Sets the types of the node's outputs in `env` as far as they follow; what does not follow stays unknown.
// Operators without a rule leave their outputs unknown. Errors: INVALID_ARGUMENT (names the node, what is
// against the definition, and the inputs' types).
Status infer(Env& env, const Node& node);

// The same over a graph, with subgraphs: If from both branches, loop bodies with what holds in every
// iteration. For loading: keeps partial data.
Status infer_graph(Env& env, GraphId graph);

// Positions of inputs whose elements, not only their shape, decide the shapes of outputs. Bit i: input i.
uint64_t shape_inputs(const Node& node);

// True for operators whose output shape depends on the elements of their data in a way that only running them
// shows: NonZero, Unique ...
bool writes_shape(const Node& node);

// True where two runs on equal inputs may differ.
bool is_random(const Node& node);

}  // namespace belay::ir
