// The loops for every CPU.
#include "bytes.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif
#define BELAY_LANES 16
#define BELAY_VECTORS 2
#define BELAY_VNNI 0
#define BELAY_VBMI 0
#include "bytes.inc"

namespace belay::cpu {
constinit const ByteMicro kBytesSse2 = make_bytes("sse2");
}
