#include "bytes.hpp"

#include "../simd/isa.hpp"

#include <atomic>

namespace belay::cpu {
namespace {

const ByteMicro& best() {
  switch (isa()) {
    case Isa::kSse2:
      return kBytesSse2;
    case Isa::kAvx2:
      return kBytesAvx2;
    case Isa::kAvx512:
      return kBytesAvx512;
    case Isa::kVnni:
      return kBytesVnni;
    case Isa::kVbmi:
      break;
  }
  return kBytesVbmi;
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
