#include "memory.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>

#include <sys/mman.h>

namespace belay::cpu {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kMapFrom = uint64_t{1} << 20;  // from here on memory goes back to the system when it is freed
constexpr uint64_t kPage = Memory::kGranularity;

// `bytes` (a multiple of the page) at a multiple of `align`, or null.
void* map_aligned(uint64_t bytes, uint64_t align, int access) {
  const uint64_t extra = align > kPage ? align : 0;
  if (bytes > UINT64_MAX - extra) return nullptr;
  void* const raw = mmap(nullptr, bytes + extra, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = double(bytes);
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit ? "%.1f %s" : "%.0f %s", value, kUnits[unit]);
  return text;
}

Status Memory::no_room(uint64_t bytes, uint64_t in_use, const char* cause) const {
  return {Code::kResourceExhausted, "Device " + device_ + " has no room for " + bytes_text(bytes) + ": " +
                                        bytes_text(in_use) + " in use of " + bytes_text(limit_) + " (" + cause + ")."};
}

Status Memory::check(const belay_alloc_req& req) const {
  if (req.align & (req.align - 1) || req.align > kHugePage)
    return {Code::kInvalidArgument, "Buffer on " + device_ + ": align is " + std::to_string(req.align) +
                                        ", want a power of two up to " + std::to_string(kHugePage) + "."};
  if (req.heap != 0)
    return {Code::kInvalidArgument, "Buffer on " + device_ + ": heap is " + std::to_string(req.heap) +
                                        ", and the device has heap 0 only."};
  return {};
}

// Before the memory is there, so that two threads together never pass the limit.
Status Memory::charge(uint64_t bytes) {
  uint64_t before = in_use_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || before > limit_ - bytes)
      return no_room(bytes, before, "raise memory_size in the device's configuration, or free buffers");
  } while (!in_use_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  return {};
}

Result<Buffer*> Memory::alloc(const belay_alloc_req& req) {
  const uint64_t align = std::max(req.align, kAlignment);
  BELAY_TRY(check(req));
  auto buffer = std::make_unique<Buffer>();
  buffer->bytes = req.bytes;
  if (req.within) {
    buffer->data = static_cast<Buffer*>(req.within->impl)->data + req.within_offset;
    return buffer.release();
  }
  if (req.host) {
    const auto address = reinterpret_cast<uintptr_t>(req.host);
    if (req.align && address % req.align != 0)
      return Status(Code::kInvalidArgument, "Buffer on " + device_ + ": the host memory begins at a multiple of " +
                                                std::to_string(uint64_t{1} << std::countr_zero(address)) +
                                                " and align is " + std::to_string(req.align) + ".");
    buffer->data = static_cast<char*>(req.host);
    return buffer.release();
  }

  BELAY_TRY(charge(req.bytes));
  const bool map = req.bytes >= kMapFrom;
  if (map) {
    const bool huge = huge_pages_ && req.bytes >= kHugePage;
    const uint64_t size = (req.bytes + kPage - 1) & ~(kPage - 1);
    buffer->data = static_cast<char*>(map_aligned(size, huge ? kHugePage : align, PROT_READ | PROT_WRITE));
    if (buffer->data && huge) madvise(buffer->data, size, MADV_HUGEPAGE);
  } else {
    const uint64_t size = (std::max<uint64_t>(req.bytes, 1) + align - 1) & ~(align - 1);
    buffer->data = static_cast<char*>(std::aligned_alloc(align, size));
  }
  if (!buffer->data) {
    const uint64_t before = in_use_.fetch_sub(req.bytes, std::memory_order_relaxed) - req.bytes;
    return no_room(req.bytes, before, "the system gives no more memory");
  }
  buffer->origin = map ? Buffer::Origin::kMapped : Buffer::Origin::kLibrary;
  buffer->charged = req.bytes;
  return buffer.release();
}

void Memory::free(Buffer* buffer) {
  if (!buffer) return;
  if (buffer->origin == Buffer::Origin::kMapped || buffer->origin == Buffer::Origin::kReserved)
    munmap(buffer->data, (buffer->bytes + kPage - 1) & ~(kPage - 1));
  else if (buffer->origin == Buffer::Origin::kLibrary)
    std::free(buffer->data);
  in_use_.fetch_sub(buffer->charged, std::memory_order_relaxed);
  delete buffer;
}

Result<Buffer*> Memory::reserve(const belay_alloc_req& req) {
  BELAY_TRY(check(req));
  if (req.bytes == 0 || req.bytes % kGranularity)
    return Status(Code::kInvalidArgument, "Reservation on " + device_ + " of " + std::to_string(req.bytes) +
                                              " bytes, want a multiple of " + std::to_string(kGranularity) + ".");
  auto buffer = std::make_unique<Buffer>();
  buffer->data = static_cast<char*>(map_aligned(req.bytes, std::max(req.align, kAlignment), PROT_NONE));
  if (!buffer->data)
    return Status(Code::kResourceExhausted, "The system has no range of " + bytes_text(req.bytes) +
                                                " of addresses for a reservation on " + device_ + ".");
  buffer->bytes = req.bytes;
  buffer->origin = Buffer::Origin::kReserved;
  return buffer.release();
}

Status Memory::map(Buffer& buffer, uint64_t offset, uint64_t bytes) {
  BELAY_TRY(charge(bytes));
  if (mprotect(buffer.data + offset, bytes, PROT_READ | PROT_WRITE) != 0) {
    const uint64_t before = in_use_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
    return no_room(bytes, before, "the system gives no more memory, or no more separate ranges of it");
  }
  buffer.charged.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

Status Memory::unmap(Buffer& buffer, uint64_t offset, uint64_t bytes) {
  // New pages without access take the place of the old ones, so nobody else's mapping can slip in between.
  if (mmap(buffer.data + offset, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED)
    return {Code::kResourceExhausted,
            "The system keeps " + bytes_text(bytes) + " of " + device_ + ": it has no more separate ranges of memory."};
  buffer.charged.fetch_sub(bytes, std::memory_order_relaxed);
  in_use_.fetch_sub(bytes, std::memory_order_relaxed);
  return {};
}

}  // namespace belay::cpu
