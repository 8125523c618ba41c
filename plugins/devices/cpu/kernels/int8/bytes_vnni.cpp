// The loops for CPUs with AVX-512 F, BW, DQ, VL and VNNI. Headers come before the target is set, as in
// simd/avx2.cpp.
#include "bytes.hpp"

#include <algorithm>

#include "simd/target.hpp"

#if defined(__x86_64__)
BELAY_TARGET_VNNI
#define BELAY_LANES 64
#define BELAY_VECTORS 4
#define BELAY_VNNI 1
#define BELAY_VBMI 0
#endif
#include "bytes.inc"

namespace belay::cpu {
constinit const ByteMicro kBytesVnni = make_bytes("vnni");
}
#if defined(__x86_64__)
BELAY_TARGET_END
#endif
