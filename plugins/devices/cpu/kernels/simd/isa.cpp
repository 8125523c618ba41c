#include "isa.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace belay::cpu {
namespace {

constexpr std::string_view kIsaNames[] = {"sse2", "avx2", "avx512", "avx512_vnni", "avx512_vbmi"};

Isa supported() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // Clang's __builtin_cpu_supports knows no "f16c".
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !f16c) return Isa::kSse2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return Isa::kAvx2;
  if (!__builtin_cpu_supports("avx512vnni")) return Isa::kAvx512;
  return __builtin_cpu_supports("avx512vbmi") ? Isa::kVbmi : Isa::kVnni;
#else
  return Isa::kSse2;
#endif
}

constexpr int kNotFixed = -1;
std::atomic<int> fixed_level{kNotFixed};

}  // namespace

Isa isa() {
  const int level = fixed_level.load(std::memory_order_relaxed);
  return level == kNotFixed ? supported() : Isa(level);
}

Status fix_isa(std::string_view name) {
  const Isa most = supported();
  Isa wanted = most;
  if (name != "auto") {
    const auto found = std::find(std::begin(kIsaNames), std::end(kIsaNames), name);
    if (found == std::end(kIsaNames))
      return {Code::kInvalidArgument, "'" + std::string(name) + "' is no level of the instruction set."};
    wanted = Isa(found - std::begin(kIsaNames));
  }
  if (wanted > most)
    return {Code::kUnimplemented, "The kernels are to use " + std::string(name) +
                                      ", which this CPU lacks; it has " + std::string(kIsaNames[size_t(most)]) + "."};
  int before = kNotFixed;
  if (fixed_level.compare_exchange_strong(before, int(wanted)) || before == int(wanted)) return {};
  return {Code::kFailedPrecondition,
          "The kernels are to use " + std::string(name) + ", but in this process they use " +
              std::string(kIsaNames[size_t(before)]) + " already: all runtimes of a process share them."};
}

}  // namespace belay::cpu
