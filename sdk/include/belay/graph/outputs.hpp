// belay/graph/outputs.hpp: a frozen graph that gives more of its values. In library belay::graph.
#pragma once

#include <belay/abi/graph.h>
#include <belay/status.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace belay::graph {

// Appends values of the main graph, by name and in order, to its outputs. `image`, in aligned words, was verified and is
// so afterwards. Errors: NOT_FOUND (names the value; `image` is as it was), OUT_OF_RANGE.
Status add_outputs(std::vector<uint64_t>& image, std::span<const std::string> names);

}  // namespace belay::graph
