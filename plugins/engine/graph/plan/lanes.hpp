// plan/lanes.hpp: in which order the kernels of a program stand, and which of them may run at once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace belay::plan {

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;  // (before, after)

struct LaneRequest {
  std::vector<uint64_t> cost_ns;  // of each kernel on one thread; 0: not known
  Pairs edges;                    // what reads what, between kernels that stand in an order that can run
  uint32_t lanes = 1;             // that kernels are spread over
  bool always = false;            // also where little time is won
};

struct Lanes {
  bool parallel = false;        // false: one after the other, as they stood
  std::vector<uint32_t> order;  // the kernel at each position
  std::vector<uint64_t> end;    // by position: the first position that begins when this one has ended
  Pairs chains;                 // positions that follow each other on one lane
};

// Spreads kernels over lanes by their estimates: the longest way to the end goes first. The result decides
// where values may share memory; what runs at once in the end, the driver decides.
Lanes spread(const LaneRequest& req);

// `pairs` of positions without those that follow from others; sorted, each once.
Pairs reduce(Pairs pairs, uint32_t count);

}  // namespace belay::plan
