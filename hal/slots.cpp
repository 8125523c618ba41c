#include "hal/slots.h"

#include <sys/mman.h>

namespace belay::hal {

void* map_pages(size_t bytes, Keep keep) noexcept {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  // Since Linux 4.14; on an older kernel a child would go on with its parent's devices, so there is no memory
  // for that.
  if (keep == Keep::kNot && madvise(address, bytes, MADV_WIPEONFORK) != 0) {
    munmap(address, bytes);
    return nullptr;
  }
  return address;
}

void unmap(void* address, size_t bytes) noexcept { munmap(address, bytes); }

}  // namespace belay::hal
