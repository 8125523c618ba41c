// The loops for CPUs with AVX2, FMA and F16C. Headers come before the target is set: functions of theirs that
// are not inlined must stay fit for every CPU, for the linker may take this file's copy for all.
#include "simd.hpp"
#include "simd/target.hpp"

#if defined(__x86_64__)
BELAY_TARGET_AVX2
#define BELAY_SIMD_F16C 1
#endif
#define BELAY_SIMD_BYTES 32
#include "loops.inc"

namespace belay::cpu {
constinit const Simd kSimdAvx2 = make_simd("avx2");
}
#if defined(__x86_64__)
BELAY_TARGET_END
#endif
