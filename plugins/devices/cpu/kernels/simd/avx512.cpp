// The loops for CPUs with AVX-512 F, BW, DQ and VL. Headers come before the target is set, as in avx2.cpp.
#include "simd.hpp"
#include "simd/target.hpp"

#if defined(__x86_64__)
BELAY_TARGET_AVX512
#define BELAY_SIMD_F16C 1
#endif
#define BELAY_SIMD_BYTES 64
#include "loops.inc"

namespace belay::cpu {
constinit const Simd kSimdAvx512 = make_simd("avx512");
}
#if defined(__x86_64__)
BELAY_TARGET_END
#endif
