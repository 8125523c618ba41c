// The slots of the extension belay.driver.virtual-memory/1.
#include "device.h"

#include <belay/plugin.hpp>

namespace belay::cpu {
namespace {

uint64_t granularity(belay_obj*) noexcept { return Memory::kGranularity; }

belay_status reserve(belay_obj* object, const belay_alloc_req* req, belay_created* out) noexcept {
  Device& device = Device::of(object);
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&]() -> Status {
    BELAY_ASSIGN(out->impl, device.memory().reserve(*req));
    out->table = nullptr;
    return {};
  });
}

belay_status map(belay_obj* object, belay_obj* buffer, uint64_t offset, uint64_t bytes) noexcept {
  Device& device = Device::of(object);
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&] { return device.memory().map(self<Buffer>(buffer), offset, bytes); });
}

belay_status unmap(belay_obj* object, belay_obj* buffer, uint64_t offset, uint64_t bytes) noexcept {
  Device& device = Device::of(object);
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&] { return device.memory().unmap(self<Buffer>(buffer), offset, bytes); });
}

}  // namespace

const belay_driver_virtual_memory_vt kVirtualMemoryTable = {
    .hdr = {sizeof(belay_driver_virtual_memory_vt), 0, nullptr},
    .granularity = granularity,
    .reserve = reserve,
    .map = map,
    .unmap = unmap};

}  // namespace belay::cpu
