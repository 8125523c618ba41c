// The transforms for CPUs with AVX2 and FMA. Headers come before the target is set, as in simd/avx2.cpp.
#include "simd/target.hpp"
#include "winograd.hpp"

#if defined(__x86_64__)
BELAY_TARGET_AVX2
#define BELAY_LANES 32
#else
#define BELAY_LANES 16
#endif
#include "winograd.inc"

namespace belay::cpu {
constinit const WinogradLoops kWinogradAvx2 = make_winograd_loops();
}
#if defined(__x86_64__)
BELAY_TARGET_END
#endif
