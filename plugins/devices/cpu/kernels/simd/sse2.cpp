// The loops for every x86-64 CPU (and, without intrinsics, for any other).
#include "simd.hpp"
#define BELAY_SIMD_BYTES 16
#include "loops.inc"

namespace belay::cpu {
constinit const Simd kSimdSse2 = make_simd("sse2");
}
