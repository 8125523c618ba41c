// The loops for CPUs with AVX-512 F, BW, DQ and VL. Headers come before the target is set, as in
// simd/avx2.cpp.
#include "bytes.hpp"

#include <algorithm>

#include "simd/target.hpp"

#if defined(__x86_64__)
BELAY_TARGET_AVX512
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
BELAY_TARGET_END
#endif
