// The transforms for every CPU.
#include "winograd.hpp"

#define BELAY_LANES 16
#include "winograd.inc"

namespace belay::cpu {
constinit const WinogradLoops kWinogradSse2 = make_winograd_loops();
}
