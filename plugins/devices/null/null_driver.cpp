// The null driver: what a driver has to have, and no device behind it.
#include "null_stream.hpp"

#include <belay/fill.hpp>

#include <cstdlib>

namespace null {
namespace {

using belay::Code;
using belay::guard;
using belay::Status;

struct Driver {
  const belay_host& host;
  const belay_executor_vt* executor;
  uint64_t memory, queue_depth;
  std::mutex mutex;
  std::vector<bool> open;  // by device

  Status check_index(uint64_t index) const {
    if (index < open.size()) return {};
    return {Code::kOutOfRange, "Driver 'null' has no device " + std::to_string(index) + ", it has " +
                                   std::to_string(open.size()) + "."};
  }
  void describe(uint64_t index, belay_device_info* inout) const {
    belay_device_info info{};
    info.driver = belay::literal("null"), info.name = belay::literal("no device"),
    info.arch = belay::literal("null");
    info.features = belay::literal("");
    info.index = index, info.threads = 1, info.memory_bytes = memory, info.heap_count = 1,
    info.queue_depth = queue_depth;
    belay::fill(inout, info);
    inout->hdr.flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST | BELAY_DEVICE_SUBDIVIDES;
  }
};

struct Device {
  Driver& driver;
  const uint64_t index;
  std::shared_ptr<Shared> shared;
  std::atomic<uint64_t> used{0};

  Status alloc(const belay_alloc_req& req, belay_created* out) {
    const uint64_t align = req.align ? req.align : 64;
    if (req.heap != 0)
      return {Code::kInvalidArgument, "Heap " + std::to_string(req.heap) + " is none, want 0."};
    if (align & (align - 1))
      return {Code::kInvalidArgument, "Alignment " + std::to_string(align) + " is no power of two."};
    auto buffer = std::make_unique<Buffer>();
    buffer->bytes = req.bytes;
    if (req.host || req.within) {
      buffer->data = req.within ? belay::self<Buffer>(req.within).data + req.within_offset
                                : static_cast<char*>(req.host);
      buffer->borrowed = true;
    } else {
      const uint64_t before = used.fetch_add(req.bytes);
      void* block = nullptr;
      if (req.bytes > driver.memory || before > driver.memory - req.bytes ||
          posix_memalign(&block, std::max<uint64_t>(align, 64), std::max<uint64_t>(req.bytes, 1)) != 0) {
        used.fetch_sub(req.bytes);
        return {Code::kResourceExhausted,
                "Device null:" + std::to_string(index) + " has no " + std::to_string(req.bytes) + " bytes: " +
                    std::to_string(before) + " of " + std::to_string(driver.memory) + " are in use."};
      }
      buffer->data = static_cast<char*>(block);
    }
    out->impl = buffer.release();
    out->table = nullptr;
    return {};
  }
};

template <class Body>
belay_status device_slot(belay_obj* obj, Body&& body) noexcept {
  Device& device = belay::self<Device>(obj);
  return guard(device.driver.host, [&] { return body(device); });
}

constexpr belay_device_vt kDeviceTable = {
    .hdr = {sizeof(belay_device_vt), 0, nullptr},
    .info = [](belay_obj* obj, belay_device_info* inout) noexcept -> belay_status {
      belay::self<Device>(obj).driver.describe(belay::self<Device>(obj).index, inout);
      return BELAY_OK;
    },
    .heap = [](belay_obj* obj, uint64_t index, belay_heap_info* inout) noexcept -> belay_status {
      return device_slot(obj, [&](Device& device) -> Status {
        if (index != 0) return {Code::kOutOfRange, "Heap " + std::to_string(index) + " is none, want 0."};
        belay_heap_info info{};
        info.heap_class = BELAY_HEAP_SHARED, info.bytes = device.driver.memory, info.alignment = 64;
        info.free_bytes = device.driver.memory - std::min<uint64_t>(device.used, device.driver.memory);
        belay::fill(inout, info);
        return {};
      });
    },
    .alloc = [](belay_obj* obj, const belay_alloc_req* req, belay_created* out) noexcept -> belay_status {
      return device_slot(obj, [&](Device& device) { return device.alloc(*req, out); });
    },
    .free =
        [](belay_obj* obj, belay_obj* buffer_obj) noexcept {
          Buffer* buffer = static_cast<Buffer*>(buffer_obj->impl);
          if (!buffer->borrowed) {
            belay::self<Device>(obj).used.fetch_sub(buffer->bytes);
            std::free(buffer->data);
          }
          delete buffer;
        },
    .map = [](belay_obj*, belay_obj* buffer, void** out) noexcept -> belay_status {
      *out = belay::self<Buffer>(buffer).data;
      return BELAY_OK;
    },
    .stream_create = [](belay_obj* obj, const belay_stream_req* req,
                        belay_created* out) noexcept -> belay_status {
      return device_slot(obj, [&](Device& device) -> Status {
        const bool continues = req->hdr.flags & BELAY_STREAM_CONTINUE_ON_FAILURE;
        belay::give(out, std::make_unique<Stream>(device.shared, req->timeline, continues), Stream::kTable);
        return {};
      });
    },
    .timeline_signal = [](belay_obj* obj, uint64_t timeline, uint64_t value,
                          belay_status failure) noexcept -> belay_status {
      return device_slot(obj, [&](Device& device) -> Status {
        Status status = belay::from_c(device.driver.host, failure);
        std::unique_lock lock(device.shared->mutex);
        std::shared_ptr<Timeline>& line = device.shared->timelines[timeline];
        if (!line) line = std::make_shared<Timeline>();
        const std::shared_ptr<Timeline> keep = line;
        if (!status.ok()) keep->failed.push_back({keep->reached + 1, UINT64_MAX, std::move(status)});
        keep->queued = std::max(keep->queued, value);
        device.shared->advance(lock, *keep, value);
        return {};
      });
    },
    .timeline_destroy =
        [](belay_obj* obj, uint64_t timeline) noexcept {
          Device& device = belay::self<Device>(obj);
          std::lock_guard lock(device.shared->mutex);
          device.shared->timelines.erase(timeline);
        },
    .health = [](belay_obj*, belay_health* inout) noexcept -> belay_status {
      inout->state = 0;
      return BELAY_OK;
    },
    .reset = [](belay_obj*) noexcept -> belay_status { return BELAY_OK; },
    .extension = [](belay_obj*, belay_str) noexcept -> const void* { return nullptr; },
    .destroy =
        [](belay_obj* obj) noexcept {
          Device* device = static_cast<Device*>(obj->impl);
          {
            std::lock_guard lock(device->driver.mutex);
            device->driver.open[device->index] = false;
          }
          delete device;
        },
};

constexpr belay_driver_vt kDriverTable = {
    .hdr = {sizeof(belay_driver_vt), 0, nullptr},
    .device_count = [](belay_obj* obj) noexcept -> uint64_t { return belay::self<Driver>(obj).open.size(); },
    .device_info = [](belay_obj* obj, uint64_t index, belay_device_info* inout) noexcept -> belay_status {
      Driver& driver = belay::self<Driver>(obj);
      return guard(driver.host, [&]() -> Status {
        BELAY_TRY(driver.check_index(index));
        driver.describe(index, inout);
        return {};
      });
    },
    .open_device = [](belay_obj* obj, uint64_t index, belay_created* out) noexcept -> belay_status {
      Driver& driver = belay::self<Driver>(obj);
      return guard(driver.host, [&]() -> Status {
        BELAY_TRY(driver.check_index(index));
        std::lock_guard lock(driver.mutex);
        if (driver.open[index])
          return {Code::kAlreadyExists, "Device null:" + std::to_string(index) + " is open already."};
        auto shared = std::make_shared<Shared>(driver.host);
        shared->executor = driver.executor, shared->queue_depth = driver.queue_depth;
        belay::give(out, std::unique_ptr<Device>(new Device{driver, index, std::move(shared)}), kDeviceTable);
        driver.open[index] = true;
        return {};
      });
    },
    .destroy = [](belay_obj* obj) noexcept { delete static_cast<Driver*>(obj->impl); },
};

struct Plugin {
  const belay_host& host;
  static belay::Result<std::unique_ptr<Plugin>> open(const belay_host& host, belay::Value) {
    return std::unique_ptr<Plugin>(new Plugin{host});
  }
};

constexpr belay_component kDriver = {
    .hdr = {sizeof(belay_component), 0, nullptr},
    .kind = belay::literal(BELAY_DRIVER_KIND),
    .name = belay::literal("null"),
    .score = [](belay_ctx*, belay_score* inout) noexcept -> belay_status {
      inout->score = 1;  // any real device is better
      belay::write(inout->reason, "always");
      return BELAY_OK;
    },
    .create = [](belay_ctx* ctx, const belay_value* raw, belay_created* out) noexcept -> belay_status {
      const belay_host& host = belay::state<Plugin>(ctx).host;
      return guard(host, [&]() -> Status {
        const belay::Value config(raw);
        const auto* executor = static_cast<const belay_executor_vt*>(
            host.get_service(&host, belay::literal(BELAY_HOST_EXECUTOR)));
        if (!executor) return {Code::kFailedPrecondition, "The host has no " BELAY_HOST_EXECUTOR "."};
        belay::give(out,
                    std::unique_ptr<Driver>(new Driver{host,
                                                       executor,
                                                       uint64_t(config["memory"].as_int(1 << 30)),
                                                       uint64_t(config["queue_depth"].as_int(1024)),
                                                       {},
                                                       std::vector<bool>(config["devices"].as_int(1))}),
                    kDriverTable);
        return {};
      });
    },
};
constexpr const belay_component* kComponents[] = {&kDriver};

}  // namespace
}  // namespace null

BELAY_DEFINE_PLUGIN(null::Plugin, "null", "0.1.0", null::kComponents)
