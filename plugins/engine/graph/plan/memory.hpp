// plan/memory.hpp: places of the values that live only inside one program.
#pragma once

#include "plan/hal.hpp"

#include <cstdint>
#include <vector>

namespace belay::plan {

struct ArenaBuffer {
  uint64_t bytes = 0;
  uint64_t begin = 0, end = 0;  // steps: from the kernel that writes it to after the last that reads it
  uint64_t owner = 0;  // the value, or the kernel whose workspace it is: equal over plans of one graph
};

// Buffers, pairs (input, output) of them that may be one, and where they lie.
struct ArenaLayout {
  std::vector<ArenaBuffer> buffers;
  std::vector<belay_pair> in_place;
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0, live_bytes = 0;

  // Whether the places also do for these buffers: the same, of the same size or smaller.
  bool holds(const std::vector<ArenaBuffer>& others, const std::vector<belay_pair>& others_in_place) const;
};

// Makes buffers that have another size than in `before` larger by so many percent of their size.
void add_room(std::vector<ArenaBuffer>& buffers, const std::vector<ArenaBuffer>& before, uint64_t percent);

// Asks the memory policy for offsets; fills these, `bytes` and `live_bytes`.
Status place_buffers(const Hal& hal, ArenaLayout& layout);

}  // namespace belay::plan
