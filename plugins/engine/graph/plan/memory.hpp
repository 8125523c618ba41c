// plan/memory.hpp: places of the values that live only inside one program.
#pragma once

#include "plan/hal.hpp"

#include <cstdint>
#include <vector>

namespace belay::plan {

struct ArenaBuffer {
  uint64_t bytes = 0;
  uint64_t begin = 0, end = 0;  // steps: from the kernel that writes it to after the last that reads it
};

struct ArenaPlan {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0, live_bytes = 0;
};

// Asks the memory policy. `in_place`: pairs (input, output) of indices of buffers.
Result<ArenaPlan> place_buffers(const Hal& hal, const std::vector<ArenaBuffer>& buffers,
                                const std::vector<belay_pair>& in_place);

}  // namespace belay::plan
