/* belay/abi/virtual_memory.h: extension belay.driver.virtual-memory/1 of a device: addresses apart from the memory behind
 * them. */
#ifndef BELAY_ABI_VIRTUAL_MEMORY_H
#define BELAY_ABI_VIRTUAL_MEMORY_H

#include <belay/abi/base.h>
#include <belay/abi/driver.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_DRIVER_VIRTUAL_MEMORY "belay.driver.virtual-memory/1"

typedef struct belay_driver_virtual_memory_vt { /* makes no objects but buffers, which end with the device's `free` */
  belay_hdr hdr;
  /* What can be mapped begins at and has a multiple of this, a power of two. [pure] r */
  uint64_t (*granularity)(belay_obj* device) BELAY_NOEXCEPT;
  /* Gives out->impl: a buffer of addresses, `req->bytes` of them (a multiple of the granularity, not 0), without memory:
   * reading or writing one is a fault of the program. The device's `map` tells where they are; `free` ends them and the
   * memory behind them. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (no such range of addresses). [any] r */
  belay_status (*reserve)(belay_obj* device, const belay_alloc_req* req, belay_created* out) BELAY_NOEXCEPT;
  /* Puts memory behind bytes [offset, offset + bytes) of a reserved buffer, all of it 0; none of them has any yet (the host
   * sees to that). Errors: RESOURCE_EXHAUSTED (says how much was asked, in use and there; nothing is mapped). [any] r */
  belay_status (*map)(belay_obj* device, belay_obj* buffer, uint64_t offset, uint64_t bytes) BELAY_NOEXCEPT;
  /* Takes it away with its contents; all of it was mapped, and no queued operation uses it. [any] r */
  belay_status (*unmap)(belay_obj* device, belay_obj* buffer, uint64_t offset, uint64_t bytes) BELAY_NOEXCEPT;
} belay_driver_virtual_memory_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_VIRTUAL_MEMORY_H */
