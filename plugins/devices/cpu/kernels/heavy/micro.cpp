#include "micro.hpp"

#include "../simd/isa.hpp"

#include <atomic>

namespace belay::cpu {
namespace {

const Micro& best() {
  return isa() >= Isa::kAvx512 ? kMicroAvx512 : isa() == Isa::kAvx2 ? kMicroAvx2 : kMicroSse2;
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
