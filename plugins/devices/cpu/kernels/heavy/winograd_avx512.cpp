// The transforms for CPUs with AVX-512 F, BW, DQ and VL. Headers come before the target is set, as in
// simd/avx2.cpp.
#include "simd/target.hpp"
#include "winograd.hpp"

#if defined(__x86_64__)
BELAY_TARGET_AVX512
#define BELAY_LANES 64
#else
#define BELAY_LANES 16
#endif
#include "winograd.inc"

namespace belay::cpu {
constinit const WinogradLoops kWinogradAvx512 = make_winograd_loops();
}
#if defined(__x86_64__)
BELAY_TARGET_END
#endif
