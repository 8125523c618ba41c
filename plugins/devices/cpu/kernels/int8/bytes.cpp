#include "bytes.hpp"

#include <atomic>

namespace belay::cpu {
namespace {

const ByteMicro& best() {
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
}

std::atomic<const ByteMicro*> chosen{nullptr};

}  // namespace

const ByteMicro& byte_micro() {
  const ByteMicro* level = chosen.load(std::memory_order_relaxed);
  if (!level) chosen.store(level = &best(), std::memory_order_relaxed);
  return *level;
}

void use_byte_micro(const ByteMicro* level) { chosen.store(level, std::memory_order_relaxed); }

}  // namespace belay::cpu
