#include "simd.hpp"

namespace belay::cpu {

const Simd& simd() {
  static const Simd& chosen = []() -> const Simd& {
    __builtin_cpu_init();
    const bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? kSimdAvx512 : avx2 ? kSimdAvx2 : kSimdSse2;
  }();
  return chosen;
}

}  // namespace belay::cpu
