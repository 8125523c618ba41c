// belay/graph/outputs.hpp: a frozen graph that gives more of its values. In library belay::graph.
#pragma once

#include <belay/abi/graph.h>
#include <belay/graph/view.hpp>
#include <belay/status.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace belay::graph {

// What leads to any value of a frozen graph, also of a graph inside of it.
inline std::string value_address(const View& view, uint32_t value) {
  return "#" + std::to_string(value) + ":" + std::string(view.string(view.values()[value].name));
}

// Appends values in order to the outputs of the main graph: its own by name, those of graphs inside by address. A value of
// a branch is given where that branch ran, else the condition; one of a body as a sequence of what each iteration made. `image`, in aligned words, was verified and is so
// afterwards. Errors: NOT_FOUND (names the value; `image` is as it was), OUT_OF_RANGE.
Status add_outputs(std::vector<uint64_t>& image, std::span<const std::string> names);

}  // namespace belay::graph
