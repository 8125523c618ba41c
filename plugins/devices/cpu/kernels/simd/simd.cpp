#include "simd.hpp"

#include "isa.hpp"

namespace belay::cpu {

const Simd& simd() {
  static const Simd& chosen = isa() >= Isa::kAvx512 ? kSimdAvx512 : isa() == Isa::kAvx2 ? kSimdAvx2 : kSimdSse2;
  return chosen;
}

}  // namespace belay::cpu
