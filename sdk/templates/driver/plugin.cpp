// The plugin @ID@: a driver with one device, whose memory is the host's. Its streams (stream.hpp) run copies,
// fills and kernels in their order.
#include "stream.hpp"

#include <belay/fill.hpp>

#include <sys/utsname.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace {

using belay::Code;
using belay::Status;

constexpr uint64_t kAlignment = 64;

struct Driver {
  const belay_host& host;
  const belay_executor_vt& executor;
  const uint64_t memory, queue_depth;
  const std::string arch;
  std::atomic<bool> open{false};

  Status check_index(uint64_t index) const {
    if (index == 0) return {};
    return {Code::kOutOfRange, "Driver '@ID@' has no device " + std::to_string(index) + ", it has one: 0."};
  }
  void describe(belay_device_info* inout) const {
    belay_device_info info{};
    info.driver = belay::literal("@ID@"), info.name = belay::literal("memory of the host");
    info.arch = belay::to_str(arch), info.features = belay::literal("");
    info.threads = 1, info.memory_bytes = memory, info.heap_count = 1, info.queue_depth = queue_depth;
    belay::fill(inout, info);
    inout->hdr.flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST | BELAY_DEVICE_SUBDIVIDES;
  }
};

struct Device {
  Driver& driver;
  const std::shared_ptr<Shared> shared;
  std::atomic<uint64_t> used{0};

  Status alloc(const belay_alloc_req& req, belay_created* out) {
    const uint64_t align = req.align ? req.align : kAlignment;
    if (req.heap != 0)
      return {Code::kInvalidArgument, "Heap " + std::to_string(req.heap) + " is none, want 0."};
    if (align & (align - 1))
      return {Code::kInvalidArgument, "Alignment " + std::to_string(align) + " is no power of two."};
    auto buffer = std::make_unique<Buffer>();
    buffer->bytes = req.bytes;
    if (req.host || req.within) {
      buffer->data = req.within ? belay::self<Buffer>(req.within).data + req.within_offset
                                : static_cast<char*>(req.host);
    } else {
      const uint64_t before = used.fetch_add(req.bytes);
      void* block = nullptr;
      if (req.bytes > driver.memory || before > driver.memory - req.bytes ||
          posix_memalign(&block, std::max(align, kAlignment), std::max<uint64_t>(req.bytes, 1)) != 0) {
        used.fetch_sub(req.bytes);
        return {Code::kResourceExhausted,
                "Device @ID@:0 has no " + std::to_string(req.bytes) + " bytes: " + std::to_string(before) +
                    " of " + std::to_string(driver.memory) +
                    " are in use; [plugin.'@ID@'.config] memory sets how many there are."};
      }
      buffer->data = static_cast<char*>(block), buffer->owned = true;
    }
    out->impl = buffer.release();
    out->table = nullptr;  // a buffer has no slots
    return {};
  }

  void free(Buffer* buffer) {
    if (buffer->owned) {
      used.fetch_sub(buffer->bytes);
      std::free(buffer->data);
    }
    delete buffer;
  }

  Status heap(uint64_t index, belay_heap_info* inout) const {
    if (index != 0) return {Code::kOutOfRange, "Heap " + std::to_string(index) + " is none, want 0."};
    belay_heap_info info{};
    info.heap_class = BELAY_HEAP_SHARED, info.bytes = driver.memory, info.alignment = kAlignment;
    info.free_bytes = driver.memory - std::min<uint64_t>(used, driver.memory);
    belay::fill(inout, info);
    return {};
  }

  // The host's own timelines, by which it joins waits between drivers.
  Status signal(uint64_t id, uint64_t value, belay_status failure) {
    Status status;
    if (failure != BELAY_OK) {  // it stays the caller's
      belay::StringSink text;
      driver.host.status_text(&driver.host, failure, text.sink());
      status = {Code(BELAY_STATUS_CODE(failure)), text.text()};
    }
    std::unique_lock lock(shared->mutex);
    std::shared_ptr<Timeline>& entry = shared->timelines[id];
    if (!entry) entry = std::make_shared<Timeline>();
    const std::shared_ptr<Timeline> timeline = entry;
    if (!status.ok()) timeline->failures.push_back({timeline->reached + 1, UINT64_MAX, std::move(status)});
    timeline->queued = std::max(timeline->queued, value);
    shared->advance(lock, *timeline, value);
    return {};
  }
};

// ---- the table of the device
// ---------------------------------------------------------------------------------------
template <class Body>
belay_status with(belay_obj* object, Body&& body) noexcept {
  Device& device = belay::self<Device>(object);
  return belay::guard(device.driver.host, [&]() -> Status { return body(device); });
}

belay_status info(belay_obj* object, belay_device_info* inout) noexcept {
  belay::self<Device>(object).driver.describe(inout);
  return BELAY_OK;
}
belay_status heap(belay_obj* object, uint64_t index, belay_heap_info* inout) noexcept {
  return with(object, [&](Device& device) { return device.heap(index, inout); });
}
belay_status alloc(belay_obj* object, const belay_alloc_req* req, belay_created* out) noexcept {
  return with(object, [&](Device& device) { return device.alloc(*req, out); });
}
void free_buffer(belay_obj* object, belay_obj* buffer) noexcept {
  belay::self<Device>(object).free(static_cast<Buffer*>(buffer->impl));
}
belay_status map(belay_obj*, belay_obj* buffer, void** out) noexcept {
  *out = belay::self<Buffer>(buffer).data;
  return BELAY_OK;
}
belay_status stream_create(belay_obj* object, const belay_stream_req* req, belay_created* out) noexcept {
  return with(object, [&](Device& device) {
    const bool continues = req->hdr.flags & BELAY_STREAM_CONTINUE_ON_FAILURE;
    belay::give(out, std::make_unique<Stream>(device.shared, req->timeline, continues), Stream::table());
    return Status();
  });
}
belay_status timeline_signal(belay_obj* object, uint64_t id, uint64_t value, belay_status failure) noexcept {
  return with(object, [&](Device& device) { return device.signal(id, value, failure); });
}
void timeline_destroy(belay_obj* object, uint64_t id) noexcept {
  Shared& shared = *belay::self<Device>(object).shared;
  const std::lock_guard lock(shared.mutex);
  shared.timelines.erase(id);
}
belay_status health(belay_obj*, belay_health* inout) noexcept {
  inout->state = 0;  // memory of the host is never lost
  return BELAY_OK;
}
const void* extension(belay_obj*, belay_str) noexcept { return nullptr; }
void destroy_device(belay_obj* object) noexcept {
  const std::unique_ptr<Device> device(&belay::self<Device>(object));
  device->driver.open = false;
}

constexpr belay_device_vt kDeviceTable{.hdr = {sizeof(belay_device_vt), 0, nullptr},
                                       .info = info,
                                       .heap = heap,
                                       .alloc = alloc,
                                       .free = free_buffer,
                                       .map = map,
                                       .stream_create = stream_create,
                                       .timeline_signal = timeline_signal,
                                       .timeline_destroy = timeline_destroy,
                                       .health = health,
                                       .reset = nullptr,
                                       .extension = extension,
                                       .destroy = destroy_device};

// ---- the table of the driver
// ---------------------------------------------------------------------------------------
uint64_t device_count(belay_obj*) noexcept { return 1; }

belay_status device_info(belay_obj* object, uint64_t index, belay_device_info* inout) noexcept {
  Driver& driver = belay::self<Driver>(object);
  return belay::guard(driver.host, [&]() -> Status {
    BELAY_TRY(driver.check_index(index));
    driver.describe(inout);
    return {};
  });
}

belay_status open_device(belay_obj* object, uint64_t index, belay_created* out) noexcept {
  Driver& driver = belay::self<Driver>(object);
  return belay::guard(driver.host, [&]() -> Status {
    BELAY_TRY(driver.check_index(index));
    if (driver.open) return {Code::kAlreadyExists, "Device @ID@:0 is open already."};
    std::shared_ptr<Shared> shared(new Shared{driver.host, driver.executor, driver.queue_depth, {}, {}, {}});
    belay::give(out, std::unique_ptr<Device>(new Device{driver, std::move(shared)}), kDeviceTable);
    driver.open = true;
    return {};
  });
}

void destroy_driver(belay_obj* object) noexcept { delete &belay::self<Driver>(object); }

constexpr belay_driver_vt kDriverTable{.hdr = {sizeof(belay_driver_vt), 0, nullptr},
                                       .device_count = device_count,
                                       .device_info = device_info,
                                       .open_device = open_device,
                                       .destroy = destroy_driver};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::unique_ptr<Plugin>(new Plugin{host});
  }
};

// Any driver of real hardware is better.
belay_status score(belay_ctx*, belay_score* inout) noexcept {
  inout->score = 1;
  belay::write(inout->reason, "memory of the host is always there");
  return BELAY_OK;
}

belay_status create(belay_ctx* ctx, const belay_value* raw, belay_created* out) noexcept {
  const belay_host& host = belay::state<Plugin>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    const auto* executor =
        static_cast<const belay_executor_vt*>(host.get_service(&host, belay::literal(BELAY_HOST_EXECUTOR)));
    if (!executor) return {Code::kFailedPrecondition, "The host has no " BELAY_HOST_EXECUTOR "."};
    utsname machine{};
    uname(&machine);
    const belay::Value config(raw);
    belay::give(
        out,
        std::unique_ptr<Driver>(new Driver{host, *executor, uint64_t(config["memory"].as_int(1 << 30)),
                                           uint64_t(config["queue_depth"].as_int(1024)), machine.machine}),
        kDriverTable);
    return {};
  });
}

constexpr belay_component kComponent{.hdr = {sizeof(belay_component), 0, nullptr},
                                     .kind = belay::literal(BELAY_DRIVER_KIND),
                                     .name = belay::literal("@ID@"),
                                     .score = score,
                                     .create = create};
constexpr const belay_component* kComponents[] = {&kComponent};

}  // namespace

BELAY_DEFINE_PLUGIN(Plugin, "@ID@", "0.1.0", kComponents)
