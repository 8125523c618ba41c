// hal/package.h: a model that was compiled for a device.
#pragma once

#include <belay/abi/native_model.h>
#include <belay/status.hpp>
#include "hal/slots.h"

#include <cstdint>
#include <string>

namespace belay::hal {

class Device;
class Stream;

// Checks what is asked of it and hands it to the driver. Made by its Device; thread-safe.
class Package : public Object {
 public:
  static constexpr uint32_t kKind = BELAY_OBJ_PACKAGE;

  Package(Device& device, std::string name) : device_(device), name_(std::move(name)) {}
  // Reads what the driver says of it: table and impl are set. What the driver says, or INTERNAL.
  Status prepare();

  const belay_driver_native_model_vt& vt() const {
    return *static_cast<const belay_driver_native_model_vt*>(table);
  }
  Device& device() const { return device_; }
  const std::string& name() const { return name_; }
  const belay_package_info& info() const { return info_; }
  belay_status io(bool output, uint64_t index, belay_io_info* inout);
  belay_status launch(Stream& stream, const belay_binding* bindings, uint64_t count, belay_event* out);

 private:
  Device& device_;
  const std::string name_;
  belay_package_info info_{};
};

}  // namespace belay::hal
