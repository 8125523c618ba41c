// hal/buffer.h: memory of a device, or of the host lent to it.
#pragma once

#include <belay/abi/driver.h>
#include "hal/slots.h"

#include <cstdint>

namespace belay::hal {

class Device;

struct Buffer : Object {
  static constexpr uint32_t kKind = BELAY_OBJ_BUFFER;

  Device* device = nullptr;
  uint64_t bytes = 0;
  void* host = nullptr;   // where the host sees the bytes; nullptr: nowhere
  bool borrowed = false;  // the bytes belong to whoever lent them
  uint32_t owner = 0;     // index into the ledger's owners

  bool holds(uint64_t offset, uint64_t length) const { return offset <= bytes && length <= bytes - offset; }
};

}  // namespace belay::hal
