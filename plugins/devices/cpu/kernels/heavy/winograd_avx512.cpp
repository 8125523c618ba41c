// The transforms for CPUs with AVX-512 F, BW, DQ and VL. Headers come before the target is set, as in simd/avx2.cpp.
#include "winograd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define BELAY_LANES 64
#else
#define BELAY_LANES 16
#endif
#include "winograd.inc"

namespace belay::cpu {
constinit const WinogradLoops kWinogradAvx512 = make_winograd_loops();
}
#if defined(__x86_64__)
#pragma GCC pop_options
#endif
