#include "hal/device_manager.h"

#include "hal/hal.h"

#include <belay/kinds.hpp>

namespace belay::hal {
namespace {

const belay_driver_vt& table(const NamedObject& driver) {
  return *static_cast<const belay_driver_vt*>(driver.object->table);
}

}  // namespace

void DeviceManager::attach(std::vector<NamedObject> drivers) {
  drivers_ = std::move(drivers);
  for (size_t i = 0; i < drivers_.size(); ++i) {
    const uint64_t count = table(drivers_[i]).device_count(drivers_[i].object);
    for (uint64_t k = 0; k < count && entries_.size() < Timelines::kNoDevice; ++k)
      entries_.push_back({i, k, drivers_[i].name + ":" + std::to_string(k)});
  }
}

DeviceManager::~DeviceManager() { close_all(); }

std::string DeviceManager::names() const {
  std::string all;
  for (const Entry& entry : entries_) all += (all.empty() ? "" : ", ") + entry.name;
  return all.empty() ? "none" : all;
}

Result<Device*> DeviceManager::open(uint64_t index) {
  if (index >= entries_.size())
    return Status(Code::kOutOfRange, "There is no device " + std::to_string(index) + "; there are " +
                                         std::to_string(entries_.size()) + ": " + names() + ".");
  Entry& entry = entries_[index];
  const NamedObject& driver = drivers_[entry.driver];
  std::lock_guard lock(mutex_);
  if (entry.device) return entry.device;

  Device* device = hal_.device_slots().make(&hal_, driver.plugin, entry.name, uint32_t(index));
  if (!device)
    return Status(Code::kResourceExhausted, "There is no memory to open device '" + entry.name + "'.");
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  Status ready =
      hal_.take(table(driver).open_device(driver.object, entry.index, &made), driver.plugin, "open_device");
  if (ready.ok()) ready = hal_.adopt(*device, shape::kDevice, made, driver.plugin, driver.object);
  if (ready.ok()) {
    ready = device->prepare();
    if (!ready.ok()) hal_.end(*device, shape::kDevice);
  }
  if (!ready.ok()) {
    hal_.device_slots().drop(device);
    return std::move(ready).while_doing("opening device '" + entry.name + "'");
  }
  Slots<Device>::publish(device);
  return entry.device = device;
}

Result<uint64_t> DeviceManager::find(std::string_view name) const {
  if (name == "auto") {
    uint64_t best = entries_.size(), least = UINT64_MAX;
    for (uint64_t i = 0; i < entries_.size() && entries_[i].driver == entries_[0].driver; ++i) {
      const Device* device = opened(i);
      const uint64_t load = device ? device->bytes_in_use() : 0;
      if (load < least) best = i, least = load;
    }
    if (best < entries_.size()) return best;
  }
  for (uint64_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].name == name || (entries_[i].index == 0 && drivers_[entries_[i].driver].name == name))
      return i;
  return Status(Code::kNotFound,
                "There is no device '" + std::string(name) + "'; there are: " + names() +
                    ". Want the name of a driver, or one with a number such as 'cpu:0', or 'auto'.");
}

Status DeviceManager::info(uint64_t index, belay_device_info* inout) {
  if (Device* device = opened(index))
    return hal_.take(device->vt().info(device, inout), device->driver(), "info");
  if (index >= entries_.size()) return open(index).status();
  const NamedObject& driver = drivers_[entries_[index].driver];
  return hal_.take(table(driver).device_info(driver.object, entries_[index].index, inout), driver.plugin,
                   "device_info");
}

Device* DeviceManager::opened(uint64_t index) const {
  if (index >= entries_.size()) return nullptr;
  std::lock_guard lock(mutex_);
  return entries_[index].device;
}

void DeviceManager::close_all() {
  std::lock_guard lock(mutex_);
  for (size_t i = entries_.size(); i-- > 0;) {
    Device* device = std::exchange(entries_[i].device, nullptr);
    if (!device) continue;
    device->mirrors().close(*device);
    device->retired().close();
    device->allocator().close();
    Slots<Device>::retire(device);
    hal_.end(*device, shape::kDevice);
    hal_.device_slots().drop(device);
  }
}

}  // namespace belay::hal
