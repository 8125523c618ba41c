// hal/buffer.h: memory of a device, or of the host lent to it.
#pragma once

#include <belay/abi/driver.h>
#include "hal/guard.h"
#include "hal/slots.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace belay::hal {

class Device;

// Which bytes of a reserved buffer have memory: ranges that do not meet. Shared with whatever will use the buffer's
// addresses later, which finds none once the buffer has ended. Thread-safe.
class MappedRanges {
 public:
  explicit MappedRanges(uint64_t reserved) : reserved_(reserved) {}
  bool covers(uint64_t offset, uint64_t bytes) const;
  void clear();               // the buffer has ended
  std::string extent() const;  // "which has 12 bytes reserved, 0 of them mapped"
  std::mutex& mutex() const { return mutex_; }  // held over a change and the driver's part in it
  // Under the mutex. The first byte of the range that is mapped (or not); `offset + bytes`: there is none.
  uint64_t first(bool mapped, uint64_t offset, uint64_t bytes) const;
  void add(uint64_t offset, uint64_t bytes);
  void remove(uint64_t offset, uint64_t bytes);
  uint64_t total() const { return total_; }

 private:
  const uint64_t reserved_;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> ranges_;  // begin, end
  uint64_t total_ = 0;
};

// A part of a reserved buffer, for what uses it later than it is named.
struct ReservedPart {
  std::shared_ptr<MappedRanges> ranges;
  uint64_t offset = 0, bytes = 0;
  bool has_memory() const { return ranges->covers(offset, bytes); }
  std::string text() const;  // "bytes 0 to 0 + 12 of a buffer, which has ..."
};

// Where a policy put a buffer, see Allocator.
struct Place {
  size_t policy = 0;
  uint64_t segment = 0, offset = 0, cookie = 0;
  belay_obj* within = nullptr;  // the driver's buffer that the segment is
  bool released = false;  // the policy may place others there, though the driver's buffer is still in it
};

struct Buffer : Object {
  static constexpr uint32_t kKind = BELAY_OBJ_BUFFER;

  Device* device = nullptr;
  uint64_t bytes = 0;
  void* host = nullptr;   // where the host sees the bytes; nullptr: nowhere
  bool borrowed = false;  // the bytes belong to whoever lent them
  uint32_t owner = 0;     // index into the ledger's owners

  uint64_t counted = 0;  // bytes that its owner has
  uint64_t charged = 0;  // bytes that it takes of the device; 0 too where it lies in a segment
  std::optional<Place> place;
  std::unique_ptr<Guard> guard;          // with [memory] checked
  std::shared_ptr<MappedRanges> mapped;  // of a reserved buffer, and of one over addresses of such a buffer
  uint64_t mapped_from = 0;              // where in it this one begins

  bool reserved() const { return mapped && !borrowed; }
  // Whether an operation may use the range: it is inside and has memory.
  bool holds(uint64_t offset, uint64_t length) const {
    return offset <= bytes && length <= bytes - offset && 
           (!mapped || mapped->covers(mapped_from + offset, length));
  }
  // Of a buffer with `mapped`.
  ReservedPart part(uint64_t offset, uint64_t length) const { return {mapped, mapped_from + offset, length}; }
  // "which has 12 bytes", for messages of what it does not hold.
  std::string extent() const;
};

}  // namespace belay::hal
