#include "bytes.hpp"

namespace belay::cpu {

const ByteMicro& byte_micro() {
  static const ByteMicro& chosen = []() -> const ByteMicro& {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return !__builtin_cpu_supports("avx512vnni")   ? kBytesAvx512
             : __builtin_cpu_supports("avx512vbmi") ? kBytesVbmi
                                                     : kBytesVnni;
    if (avx2) return kBytesAvx2;
#endif
    return kBytesSse2;
  }();
  return chosen;
}

}  // namespace belay::cpu
