// The loops for CPUs with AVX2 and FMA. Headers come before the target is set, as in
// simd/avx2.cpp.
#include "bytes.hpp"

#include <algorithm>

#include "simd/target.hpp"

#if defined(__x86_64__)
BELAY_TARGET_AVX2
#define BELAY_LANES 32
#define BELAY_VECTORS 2
#define BELAY_VNNI 0
#define BELAY_VBMI 0
#endif
#include "bytes.inc"

namespace belay::cpu {
constinit const ByteMicro kBytesAvx2 = make_bytes("avx2");
}
#if defined(__x86_64__)
BELAY_TARGET_END
#endif
