// The loops for CPUs with AVX-512 F, BW, DQ and VL. Headers come before the target is set, as in
// simd/avx2.cpp.
#include "bytes.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define BELAY_LANES 64
#define BELAY_VECTORS 4
#define BELAY_VNNI 0
#define BELAY_VBMI 0
#endif
#include "bytes.inc"

namespace belay::cpu {
constinit const ByteMicro kBytesAvx512 = make_bytes("avx512");
}
#if defined(__x86_64__)
#pragma GCC pop_options
#endif
