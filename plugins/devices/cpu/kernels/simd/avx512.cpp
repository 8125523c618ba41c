// The loops for CPUs with AVX-512 F, BW, DQ and VL. Headers come before the target is set, as in avx2.cpp.
#include "simd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#define BELAY_SIMD_F16C 1
#endif
#define BELAY_SIMD_BYTES 64
#include "loops.inc"

namespace belay::cpu {
constinit const Simd kSimdAvx512 = make_simd("avx512");
}
#if defined(__x86_64__)
#pragma GCC pop_options
#endif
