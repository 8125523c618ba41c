// hal/device_manager.h: the devices of all drivers as one list.
#pragma once

#include <belay/abi/driver.h>
#include <belay/status.hpp>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace belay::hal {

class Device;
class Hal;

struct NamedObject {
  std::string name;    // of the component: "cpu"
  std::string plugin;  // that offers it
  belay_obj* object;
};

// Lists devices in the order of the drivers and opens one at its first use. Thread-safe.
class DeviceManager {
 public:
  explicit DeviceManager(Hal& hal) : hal_(hal) {}
  ~DeviceManager();
  void attach(std::vector<NamedObject> drivers);  // once, before other calls

  uint64_t count() const { return entries_.size(); }
  // OUT_OF_RANGE says how many there are; what the driver says.
  Result<Device*> open(uint64_t index);
  // "cpu:0", or "cpu" for its first; "auto": the one with the least memory in use, of the first driver that
  // has any. NOT_FOUND names those there are.
  Result<uint64_t> find(std::string_view name) const;
  const std::string& name(uint64_t index) const { return entries_[index].name; }
  // Of a device that need not be open.
  Status info(uint64_t index, belay_device_info* inout);
  // Devices opened so far, in order; null for the others.
  Device* opened(uint64_t index) const;
  std::string names() const;  // "cpu:0, null:0"
  void close_all();

 private:
  struct Entry {
    size_t driver;
    uint64_t index;    // among the driver's
    std::string name;  // "cpu:0"
    Device* device = nullptr;
  };
  Hal& hal_;
  std::vector<NamedObject> drivers_;
  std::vector<Entry> entries_;
  mutable std::mutex mutex_;  // of Entry::device
};

}  // namespace belay::hal
