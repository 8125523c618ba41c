// The loops for every CPU.
#include "conv.hpp"
#include "micro.hpp"
#include "winograd.hpp"

#define BELAY_LANES 16
#define BELAY_ROWS 4
#define BELAY_VECTORS 2
#include "micro.inc"

namespace belay::cpu {
constinit const Micro kMicroSse2 = make_micro("sse2", kWinogradSse2);
}
