// The loops for every CPU.
#include "bytes.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif
#include "bytes.inc"

namespace belay::cpu {
constinit const ByteMicro kBytesSse2 = make_bytes("sse2");
}
