// hal/device.h: a device of a driver, opened.
#pragma once

#include <belay/abi/driver.h>
#include <belay/abi/hal.h>
#include <belay/status.hpp>
#include "hal/allocator.h"
#include "hal/bridge.h"
#include "hal/buffer.h"
#include "hal/package.h"
#include "hal/program.h"
#include "hal/retired.h"
#include "hal/slots.h"
#include "hal/stream.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace belay::hal {

// Makes buffers, streams and programs, checked, and counts them. Made by the DeviceManager; thread-safe.
class Device : public Object {
 public:
  static constexpr uint32_t kKind = BELAY_OBJ_DEVICE;

  // `name` is "cpu:0"; `index` counts over all drivers.
  Device(std::string driver, std::string name, uint32_t index)
      : driver_(std::move(driver)), name_(std::move(name)), index_(index) {}

  // Reads what the driver says of the device; the object's table and impl are set. What the driver says, or
  // INTERNAL.
  Status prepare();

  const belay_device_vt& vt() const { return *static_cast<const belay_device_vt*>(table); }
  const std::string& driver() const { return driver_; }
  const std::string& name() const { return name_; }
  uint32_t index() const { return index_; }
  const belay_device_info& info() const { return info_; }
  bool subdivides() const { return info_.hdr.flags & BELAY_DEVICE_SUBDIVIDES; }
  bool host_visible() const { return info_.hdr.flags & BELAY_DEVICE_HOST_VISIBLE; }
  // NULL: the driver has no programs.
  const belay_driver_program_vt* programs() const { return programs_; }
  Mirrors& mirrors() { return mirrors_; }
  Allocator& allocator() { return allocator_; }
  Retired& retired() { return retired_; }
  uint64_t alignment(uint64_t heap) const { return std::max<uint64_t>(heaps_[heap].alignment, 1); }
  // Memory that the driver has made, which has no slots, becomes an object with the configured layers before it; and
  // its end.
  Status adopt_buffer(belay_obj& object, void* impl);
  void free_of_driver(belay_obj& object);
  // Counts bytes against the limit. RESOURCE_EXHAUSTED begins with `what`. Then they are used, or left where it came
  // to nothing; only what was used is in the peak.
  Status take_room(const char* what, uint64_t bytes);
  void use_room(uint64_t bytes);
  void leave_room(uint64_t bytes) { room_.fetch_sub(bytes, std::memory_order_relaxed); }
  void give_room(uint64_t bytes) {  // of what was used
    in_use_.fetch_sub(bytes, std::memory_order_relaxed);
    leave_room(bytes);
    given_.fetch_add(1);
  }

  // Why host memory must be copied to be used here, as what follows "because"; nothing: it can be used where
  // it lies.
  Result<std::optional<std::string>> copy_reason(const belay_bind_req& req);
  // `owner` is named in messages about memory: a plugin's id, or empty for the application. `first`: the
  // stream that the buffer is used on first; without one it may be used at once.
  Result<Buffer*> alloc(const belay_alloc_req& req, std::string_view owner, Stream* first = nullptr);
  void free(Buffer* buffer);
  // Its handle ends now, its memory when `uses`, one of each timeline, are reached.
  Status free_after(Buffer* buffer, std::vector<belay_event> uses);
  // Gives the driver's part of a buffer back: no handle leads to it and nothing uses it.
  void bury(Buffer* buffer);
  // Buffers with [memory] checked that something was written beside.
  uint64_t damaged() const { return damaged_.load(std::memory_order_relaxed); }
  // Addresses without memory, and memory behind a part of them.
  Result<Buffer*> reserve(const belay_alloc_req& req, std::string_view owner);
  Status map(Buffer& buffer, uint64_t offset, uint64_t bytes);
  Status unmap(Buffer& buffer, uint64_t offset, uint64_t bytes);
  uint64_t granularity() { return virtual_memory_ ? virtual_memory_->granularity(this) : 0; }
  Result<Stream*> make_stream(const belay_hal_stream_req& req);
  // Finishes what is queued on it.
  void end_stream(Stream* stream);
  Result<Program*> make_program(const belay_program_req& req);
  void end_program(Program* program);
  // Owns what a driver made, or a recording of the HAL's own.
  Result<Program*> adopt_program(const belay_created& made, uint64_t binding_count);
  Result<Program*> adopt_program(std::unique_ptr<Recording> recording, uint64_t binding_count);

  Result<Package*> load_package(const belay_package_req& req);
  void end_package(Package* package);

  // What is in use, for messages: "12 MiB in 3 buffers (engine 8 MiB, application 4 MiB)".
  std::string usage() const;
  uint64_t bytes_in_use() const { return in_use_.load(std::memory_order_relaxed); }
  uint64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  uint64_t allocations() const { return allocations_.load(std::memory_order_relaxed); }
  uint64_t live_buffers() const { return live_buffers_.load(std::memory_order_relaxed); }
  uint64_t live_streams() const { return live_streams_.load(std::memory_order_relaxed); }
  uint64_t live_packages() const { return live_packages_.load(std::memory_order_relaxed); }
  uint64_t live_programs() const { return live_programs_.load(std::memory_order_relaxed); }

 private:
  Status check_alloc(const belay_alloc_req& req) const;
  // What becomes of a buffer's bytes.
  struct Bytes {
    uint64_t counted = 0, charged = 0;  // as in Buffer
    bool lent = false;                  // by the caller
    std::optional<ReservedPart> reserved = {};  // the addresses are those of a reserved buffer
  };
  Result<Buffer*> alloc_own(const belay_alloc_req& req, std::string_view owner, Stream* first);
  Status make_whole(const belay_alloc_req& req, Guard& guard);
  void check_guard(Buffer& buffer);
  bool make_room(uint64_t bytes);
  // A buffer that the driver's slot makes, called `make(&created)`.
  template <class Make>
  Result<Buffer*> make_buffer(const belay_alloc_req& req, std::string_view owner, const Bytes& bytes,
                              Make&& make);
  Result<Buffer*> alloc_lent(const belay_alloc_req& req, std::string_view owner);
  Status check_range(const Buffer& buffer, const char* call, uint64_t offset, uint64_t bytes);
  Status full(const std::string& text) const;

  const std::string driver_, name_;
  const uint32_t index_;
  belay_device_info info_{};
  std::vector<belay_heap_info> heaps_;
  const belay_driver_program_vt* programs_ = nullptr;
  const belay_driver_virtual_memory_vt* virtual_memory_ = nullptr;
  const belay_driver_native_model_vt* packages_ = nullptr;
  Mirrors mirrors_;
  Allocator allocator_{*this};
  Retired retired_{*this};
  std::atomic<uint64_t> room_{0}, in_use_{0}, given_{0}, peak_{0}, allocations_{0}, damaged_{0};
  std::atomic<uint64_t> live_buffers_{0}, live_streams_{0}, live_programs_{0}, live_packages_{0};
};

}  // namespace belay::hal
