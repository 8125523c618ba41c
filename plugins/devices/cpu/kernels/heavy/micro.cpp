#include "micro.hpp"

namespace belay::cpu {

const Micro& micro() {
  static const Micro& chosen = []() -> const Micro& {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return kMicroAvx512;
    if (avx2) return kMicroAvx2;
#endif
    return kMicroSse2;
  }();
  return chosen;
}

}  // namespace belay::cpu
