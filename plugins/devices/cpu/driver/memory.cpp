#include "memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>

#include <sys/mman.h>

namespace belay::cpu {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kMapFrom = uint64_t{1} << 20;  // from here on memory goes back to the system when it is freed
constexpr uint64_t kPage = 4096;

// `bytes` (a multiple of the page) at a multiple of `align`, or null.
void* map_aligned(uint64_t bytes, uint64_t align) {
  const uint64_t extra = align > kPage ? align : 0;
  void* const raw =
      mmap(nullptr, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  if (extra == 0) return raw;
  const auto at = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t start = (at + align - 1) & ~(uintptr_t(align) - 1);
  if (start > at) munmap(raw, start - at);
  if (const uint64_t behind = at + bytes + extra - (start + bytes); behind > 0)
    munmap(reinterpret_cast<void*>(start + bytes), behind);
  return reinterpret_cast<void*>(start);
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " bytes";
}

Status Memory::no_room(uint64_t bytes, uint64_t in_use, const char* cause) const {
  return {Code::kResourceExhausted, "Device " + device_ + " has no room for " + bytes_text(bytes) + ": " +
                                        bytes_text(in_use) + " in use of " + bytes_text(limit_) + " (" + cause + ")."};
}

Result<Buffer*> Memory::alloc(const belay_alloc_req& req) {
  const uint64_t align = std::max(req.align, kAlignment);
  if (req.align & (req.align - 1) || req.align > kHugePage)
    return Status(Code::kInvalidArgument, "Buffer on " + device_ + ": align is " + std::to_string(req.align) +
                                              ", want a power of two up to " + std::to_string(kHugePage) + ".");
  if (req.heap != 0)
    return Status(Code::kInvalidArgument, "Buffer on " + device_ + ": heap is " + std::to_string(req.heap) +
                                              ", and the device has heap 0 only.");
  auto buffer = std::make_unique<Buffer>();
  buffer->bytes = req.bytes;
  if (req.host) {
    const auto address = reinterpret_cast<uintptr_t>(req.host);
    if (req.align && address % req.align != 0)
      return Status(Code::kInvalidArgument, "Buffer on " + device_ + ": the host memory begins at a multiple of " +
                                                std::to_string(uint64_t{1} << std::countr_zero(address)) +
                                                " and align is " + std::to_string(req.align) + ".");
    buffer->data = static_cast<char*>(req.host);
    return buffer.release();
  }

  // Reserve first, so that two threads together never pass the limit.
  uint64_t before = in_use_.load(std::memory_order_relaxed);
  do {
    if (req.bytes > limit_ || before > limit_ - req.bytes)
      return no_room(req.bytes, before, "raise memory_size in the device's configuration, or free buffers");
  } while (!in_use_.compare_exchange_weak(before, before + req.bytes, std::memory_order_relaxed));

  const bool map = req.bytes >= kMapFrom;
  if (map) {
    const bool huge = huge_pages_ && req.bytes >= kHugePage;
    const uint64_t size = (req.bytes + kPage - 1) & ~(kPage - 1);
    buffer->data = static_cast<char*>(map_aligned(size, huge ? kHugePage : align));
    if (buffer->data && huge) madvise(buffer->data, size, MADV_HUGEPAGE);
  } else {
    const uint64_t size = (std::max<uint64_t>(req.bytes, 1) + align - 1) & ~(align - 1);
    buffer->data = static_cast<char*>(std::aligned_alloc(align, size));
  }
  if (!buffer->data) {
    in_use_.fetch_sub(req.bytes, std::memory_order_relaxed);
    return no_room(req.bytes, before, "the system gives no more memory");
  }
  buffer->origin = map ? Buffer::Origin::kMapped : Buffer::Origin::kLibrary;
  buffer->charged = req.bytes;
  return buffer.release();
}

void Memory::free(Buffer* buffer) {
  if (!buffer) return;
  if (buffer->origin == Buffer::Origin::kMapped)
    munmap(buffer->data, (buffer->bytes + kPage - 1) & ~(kPage - 1));
  else if (buffer->origin == Buffer::Origin::kLibrary)
    std::free(buffer->data);
  in_use_.fetch_sub(buffer->charged, std::memory_order_relaxed);
  delete buffer;
}

}  // namespace belay::cpu
