// The picture of a snapshot of a memory policy.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace belay::cli {

// An SVG document of a snapshot (belay.memory-snapshot/1): addresses to the right and then down, segment after
// segment; a box for each block, by what it is.
std::string draw_memory_map(const nlohmann::json& snapshot, const std::string& title);

}  // namespace belay::cli
