#include "micro.hpp"

#include <atomic>

namespace belay::cpu {
namespace {

const Micro& best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return kMicroAvx512;
  if (avx2) return kMicroAvx2;
#endif
  return kMicroSse2;
}

std::atomic<const Micro*> chosen{nullptr};

}  // namespace

const Micro& micro() {
  if (const Micro* level = chosen.load(std::memory_order_relaxed)) [[likely]]
    return *level;
  use_micro(best());
  return micro();
}

void use_micro(const Micro& level) { chosen.store(&level, std::memory_order_relaxed); }

}  // namespace belay::cpu
