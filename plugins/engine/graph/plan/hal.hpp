// plan/hal.hpp: owners of the HAL's objects.
#pragma once

#include <belay/abi/hal.h>
#include <belay/status.hpp>

#include <utility>

namespace belay::plan {

struct Hal {
  const belay_host* host = nullptr;
  const belay_hal_vt* vt = nullptr;

  Status check(belay_status raw) const { return from_c(*host, raw); }
  // Why a device cannot use memory of the host where it lies, as what follows "because"; empty: it can.
  Result<std::string> copy_reason(belay_obj* device, const void* data, uint64_t bytes, uint64_t access,
                                  uint64_t alignment) const {
    belay_bind_req req{};
    req.hdr.struct_size = sizeof req;
    req.address = reinterpret_cast<uint64_t>(data), req.bytes = bytes;
    req.access = access, req.alignment = alignment;
    StringSink reason;
    belay_bound bound{};
    bound.hdr.struct_size = sizeof bound;
    bound.reason = reason.sink();
    BELAY_TRY(check(vt->bind(host, device, &req, &bound)));
    if (bound.mode == BELAY_BIND_SHARE) return std::string();
    std::string why = std::move(reason).str();
    return why.empty() ? "a memory policy says so" : std::move(why);
  }
};

// Owns one object of the HAL and destroys it with `slot`; movable. (The slot's type depends on who compiles
// it: for authors of plugins it is noexcept.)
template <auto slot>
class Owned {
 public:
  Owned() = default;
  Owned(const Hal& hal, belay_obj* object) : hal_(hal), object_(object) {}
  Owned(Owned&& other) noexcept : hal_(other.hal_), object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(hal_, other.hal_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() {
    if (object_) (hal_.vt->*slot)(hal_.host, object_);
  }
  belay_obj* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  Hal hal_;
  belay_obj* object_ = nullptr;
};

using Stream = Owned<&belay_hal_vt::stream_destroy>;
using Program = Owned<&belay_hal_vt::program_destroy>;

// A buffer of the device and, where the host sees it, its address.
struct Buffer {
  Owned<&belay_hal_vt::buffer_destroy> object;
  void* host = nullptr;
  uint64_t bytes = 0;

  static Result<Buffer> create(const Hal& hal, belay_obj* device, uint64_t bytes, uint64_t heap) {
    belay_alloc_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = bytes;
    req.align = 64;
    req.heap = heap;
    belay_obj* object = nullptr;
    BELAY_TRY(hal.check(hal.vt->buffer_create(hal.host, device, &req, &object)));
    Buffer out;
    out.object = {hal, object};
    out.bytes = bytes;
    belay_hal_buffer_info info{};
    info.hdr.struct_size = sizeof info;
    BELAY_TRY(hal.check(hal.vt->buffer_info(hal.host, object, &info)));
    out.host = info.host;
    return out;
  }
};

}  // namespace belay::plan
