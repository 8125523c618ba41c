// The memory of a device: host memory, counted against the device's limit.
#pragma once

#include <belay/abi/driver.h>
#include <belay/status.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace belay::cpu {

struct Buffer {
  char* data = nullptr;
  uint64_t bytes = 0;
  std::atomic<uint64_t> charged{0};  // against the limit; 0: the memory is the caller's
  enum class Origin { kCaller, kLibrary, kMapped, kReserved } origin = Origin::kCaller;
};

class Memory {
 public:
  // `limit` bytes at most. `device`: its name, for messages.
  Memory(std::string device, uint64_t limit, bool huge_pages)
      : device_(std::move(device)), limit_(limit), huge_pages_(huge_pages) {}

  // New memory, or the caller's where the request has some. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT. Any thread.
  Result<Buffer*> alloc(const belay_alloc_req& req);
  void free(Buffer* buffer);

  // Addresses without memory, and memory behind some of them; multiples of kGranularity. Any thread.
  Result<Buffer*> reserve(const belay_alloc_req& req);
  Status map(Buffer& buffer, uint64_t offset, uint64_t bytes);
  Status unmap(Buffer& buffer, uint64_t offset, uint64_t bytes);

  uint64_t limit() const { return limit_; }
  uint64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }

  static constexpr uint64_t kAlignment = 64;  // of every allocation, at least
  static constexpr uint64_t kGranularity = 4096;

 private:
  Status check(const belay_alloc_req& req) const;
  Status charge(uint64_t bytes);
  Status no_room(uint64_t bytes, uint64_t in_use, const char* cause) const;

  const std::string device_;
  const uint64_t limit_;
  const bool huge_pages_;
  std::atomic<uint64_t> in_use_{0};
};

// "1536 MiB", "100 bytes": exact where it is a multiple of the unit, else in bytes.
std::string bytes_text(uint64_t bytes);

}  // namespace belay::cpu
