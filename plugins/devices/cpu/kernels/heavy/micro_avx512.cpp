// The loops for CPUs with AVX-512 F, BW, DQ and VL. Headers come before the target is set, as in
// simd/avx2.cpp.
#include "conv.hpp"
#include "micro.hpp"
#include "simd/target.hpp"
#include "winograd.hpp"

#if defined(__x86_64__)
BELAY_TARGET_AVX512
#define BELAY_LANES 64
#define BELAY_ROWS 8
#define BELAY_VECTORS 3
#else
#define BELAY_LANES 16
#define BELAY_ROWS 4
#define BELAY_VECTORS 2
#endif
#include "micro.inc"

namespace belay::cpu {
constinit const Micro kMicroAvx512 = make_micro("avx512", kWinogradAvx512);
}
#if defined(__x86_64__)
BELAY_TARGET_END
#endif
