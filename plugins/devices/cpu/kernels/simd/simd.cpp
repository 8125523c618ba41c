#include "simd.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace belay::cpu {
namespace {

// Clang's __builtin_cpu_supports knows no "f16c".
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

}  // namespace

const Simd& simd() {
  static const Simd& chosen = []() -> const Simd& {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? kSimdAvx512 : avx2 ? kSimdAvx2 : kSimdSse2;
  }();
  return chosen;
}

}  // namespace belay::cpu
