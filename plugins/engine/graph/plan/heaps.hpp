// plan/heaps.hpp: which heap of a device holds what.
#pragma once

#include "plan/hal.hpp"

#include <optional>

namespace belay::plan {

struct Heaps {
  uint64_t working = 0;               // what kernels alone write and read
  std::optional<uint64_t> constants;  // where the device has memory that is made for them

  static Result<Heaps> of(const Hal& hal, belay_obj* device, uint64_t count) {
    Heaps out;
    bool found = false;
    for (uint64_t i = 0; i < count; ++i) {
      BELAY_ASSIGN(const belay_heap_info heap, info(hal, device, i));
      if (heap.heap_class == BELAY_HEAP_CONSTANT && !out.constants) out.constants = i;
      if (heap.heap_class == BELAY_HEAP_DEVICE && !found) {
        out.working = i;
        found = true;
      }
    }
    return out;
  }
  static Result<belay_heap_info> info(const Hal& hal, belay_obj* device, uint64_t heap) {
    belay_heap_info out{};
    out.hdr.struct_size = sizeof out;
    BELAY_TRY(hal.check(hal.vt->heap_info(hal.host, device, heap, &out)));
    return out;
  }
};

}  // namespace belay::plan
