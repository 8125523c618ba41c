#include "hal/bridge.h"

#include "hal/hal.h"

#include <algorithm>

namespace belay::hal {

// One timeline of a device that follows a stream of another: source value v is value base + v here.
struct Mirrors::Mirror {
  Device* device;
  uint64_t id;
  std::mutex mutex;     // of what follows; held while the driver is told, so that values only grow
  uint64_t source = 0;  // timeline that it follows; 0: free
  uint64_t base = 0;
  uint64_t told = 0;     // last value signalled
  uint64_t pending = 0;  // completions to come
  bool failed = false;   // carries a failure: not used for new waits
};

struct Arrival {
  Mirrors* mirrors;
  void* mirror;
  uint64_t value;
};

Mirrors::Mirrors() = default;
Mirrors::~Mirrors() = default;

void Mirrors::reached(void* user, belay_status status) {
  const std::unique_ptr<Arrival> arrival(static_cast<Arrival*>(user));
  Mirror& mirror = *static_cast<Mirror*>(arrival->mirror);
  Device& device = *mirror.device;
  std::lock_guard lock(mirror.mutex);
  if (status != BELAY_OK) mirror.failed = true;
  if (arrival->value > mirror.told || status != BELAY_OK) {
    mirror.told = std::max(mirror.told, arrival->value);
    const belay_status told = device.vt().timeline_signal(&device, mirror.id, mirror.told, status);
    if (told != BELAY_OK) {
      const Status failure = device.hal->take(told, device.driver(), "timeline_signal");
      device.hal->host().log().error(
          "hal", "Device '" + device.name() +
                     "' was not told that work of another device ended: " + failure.message());
    }
  }
  device.hal->release(status);  // the driver took its sentence only
  --mirror.pending;
}

Mirrors::Mirror* Mirrors::mirror_of(Device& device, uint64_t timeline) {
  std::lock_guard lock(mutex_);
  Mirror* free = nullptr;
  for (const auto& mirror : mirrors_) {
    std::lock_guard one(mirror->mutex);
    if (mirror->failed) continue;
    if (mirror->source == timeline) return mirror.get();
    if (mirror->source == 0 && mirror->pending == 0) free = mirror.get();
  }
  if (!free) {
    auto made = std::make_unique<Mirror>();
    made->device = &device;
    made->id = device.hal->timelines().add(Timelines::kNoDevice);
    if (!made->id) return nullptr;
    free = mirrors_.emplace_back(std::move(made)).get();
  }
  std::lock_guard one(free->mutex);
  free->source = timeline;
  free->base = free->told;
  return free;
}

Result<std::optional<belay_event>> Mirrors::join(Device& device, Stream& source, belay_event event) {
  Hal& hal = *device.hal;
  const auto doing = [&](Status status) {
    return std::move(status).while_doing("waiting on '" + device.name() + "' for work of '" +
                                         source.device().name() + "'");
  };
  const uint64_t last = source.last_value();
  if (event.value > last)
    return doing({Code::kOutOfRange, "Value " + std::to_string(event.value) +
                                         " of the event is not queued yet, the last is " +
                                         std::to_string(last) + "."});
  belay_status now = source.query(event.value);
  if (now == BELAY_OK) return std::optional<belay_event>();
  if (!BELAY_HAS(&device.vt(), belay_device_vt, timeline_signal)) {
    hal.release(now);
    now = source.synchronize(event.value, BELAY_FOREVER);
    if (now != BELAY_OK) return doing(hal.take(now, source.device().driver(), "synchronize"));
    return std::optional<belay_event>();
  }
  hal.release(now);

  Mirror* mirror = mirror_of(device, event.timeline);
  if (!mirror) return doing({Code::kResourceExhausted, "There are as many timelines as there can be."});
  uint64_t value;
  {
    std::lock_guard lock(mirror->mutex);
    value = mirror->base + event.value;
    if (value <= mirror->told && !mirror->failed) return std::optional<belay_event>();
    // Makes the timeline known to the driver before something waits for it.
    const belay_status made = device.vt().timeline_signal(&device, mirror->id, mirror->told, BELAY_OK);
    if (made != BELAY_OK) return doing(hal.take(made, device.driver(), "timeline_signal"));
    ++mirror->pending;
  }
  auto arrival = std::make_unique<Arrival>(Arrival{this, mirror, value});
  const belay_status asked = source.on_reached(event.value, {arrival.get(), &Mirrors::reached});
  if (asked != BELAY_OK) {
    std::lock_guard lock(mirror->mutex);
    --mirror->pending;
    return doing(hal.take(asked, source.device().driver(), "on_reached"));
  }
  (void)arrival.release();
  return std::optional<belay_event>({mirror->id, value});
}

void Mirrors::source_ended(uint64_t timeline, uint64_t last) {
  std::lock_guard lock(mutex_);
  for (const auto& mirror : mirrors_) {
    std::lock_guard one(mirror->mutex);
    if (mirror->source != timeline) continue;
    mirror->source = 0;
    mirror->told = std::max(mirror->told, mirror->failed ? mirror->told : mirror->base + last);
  }
}

void Mirrors::close(Device& device) {
  std::lock_guard lock(mutex_);
  for (const auto& mirror : mirrors_) {
    if (BELAY_HAS(&device.vt(), belay_device_vt, timeline_destroy))
      device.vt().timeline_destroy(&device, mirror->id);
    device.hal->timelines().remove(mirror->id);
  }
  mirrors_.clear();
}

}  // namespace belay::hal
