// Positions along an axis, as tensors of int32 or int64 hold them.
#pragma once

#include <cstdint>

namespace belay::cpu {

struct Positions {
  bool wide;  // int64
  int64_t at(const void* base, int64_t i) const {
    return wide ? static_cast<const int64_t*>(base)[i] : static_cast<const int32_t*>(base)[i];
  }
};

// In [0, dim), or -1 when it is out of bounds; negative ones count from the end.
inline int64_t placed(int64_t index, int64_t dim) {
  if (index < 0) index += dim;
  return index >= 0 && index < dim ? index : -1;
}

}  // namespace belay::cpu
