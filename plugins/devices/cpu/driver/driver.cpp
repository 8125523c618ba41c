#include "driver.h"

#include "cpu_info.h"
#include "device.h"
#include "options.h"
#include "program.h"

#include <belay/fill.hpp>
#include <belay/plugin.hpp>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace belay::cpu {
namespace {

class Driver {
 public:
  Driver(DriverState& plugin, Options options)
      : host_(*plugin.host), ticks_(plugin.ticks), cpu_(read_cpu_info()), options_(options), open_(options.devices) {
    if (options_.threads == 0) options_.threads = cpu_.cores;
    if (options_.memory_bytes == 0) options_.memory_bytes = cpu_.memory_bytes;
    options_.spin_ns = std::min<uint64_t>(options_.spin_ns, 20'000);
    options_.backlog_hard = std::max(options_.backlog_hard, options_.queue_depth);
  }

  const belay_host& host() const { return host_; }
  Ticks& ticks() const { return ticks_; }
  const Options& options() const { return options_; }
  const CpuInfo& cpu() const { return cpu_; }
  bool in_child() const { return fork_guard_.in_child(); }
  belay_status refuse_in_child() const {
    return host_.status_make(&host_, BELAY_FAILED_PRECONDITION, to_str(fork_guard_.sentence("cpu")));
  }

  Status check(uint64_t index) const {
    if (index < options_.devices) return {};
    return {Code::kOutOfRange, "Driver cpu has " + std::to_string(options_.devices) + " devices and no cpu:" +
                                   std::to_string(index) + "; set `devices` in its configuration for more."};
  }
  Status claim(uint64_t index) {
    std::lock_guard lock(mutex_);
    if (open_[index]) return {Code::kAlreadyExists, "Device cpu:" + std::to_string(index) + " is open already."};
    open_[index] = true;
    return {};
  }
  void release(uint64_t index) {
    std::lock_guard lock(mutex_);
    open_[index] = false;
  }

  void info(uint64_t index, belay_device_info* inout) const {
    fill(inout, {.hdr = {},
               .driver = literal("cpu"),
               .name = to_str(cpu_.name),
               .arch = to_str(cpu_.arch),
               .features = to_str(cpu_.features),
               .index = index,
               .threads = options_.threads,
               .memory_bytes = options_.memory_bytes,
               .heap_count = 1,
               .queue_depth = options_.queue_depth});
    inout->hdr.flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST | BELAY_DEVICE_SUBDIVIDES;
  }

 private:
  const belay_host& host_;
  Ticks& ticks_;
  const CpuInfo cpu_;
  Options options_;
  ForkGuard fork_guard_;
  std::mutex mutex_;
  std::vector<bool> open_;
};

// A device and the driver it came from; the device first, which is how other tables find it (Device::of).
struct OpenDevice {
  Device device;
  Driver& driver;
};

Device& device_of(const belay_obj* object) { return Device::of(object); }

// ---- the device's slots ------------------------------------------------------------------------------------------------
belay_status device_info(belay_obj* object, belay_device_info* inout) noexcept {
  OpenDevice& open = self<OpenDevice>(object);
  if (open.device.in_child()) return open.device.refuse_in_child();
  open.driver.info(open.device.index(), inout);
  return BELAY_OK;
}

belay_status device_heap(belay_obj* object, uint64_t index, belay_heap_info* inout) noexcept {
  OpenDevice& open = self<OpenDevice>(object);
  Device& device = open.device;
  if (device.in_child()) return device.refuse_in_child();
  if (index != 0)
    return device.fail(BELAY_OUT_OF_RANGE,
                       "Device " + device.name() + " has heap 0 only, and heap " + std::to_string(index) + " was asked for.");
  const uint64_t limit = device.memory().limit();
  const CpuInfo& cpu = open.driver.cpu();
  fill(inout, {.hdr = {},
             .heap_class = BELAY_HEAP_SHARED,
             .bytes = limit,
             .free_bytes = limit - std::min(limit, device.memory().in_use()),
             .alignment = Memory::kAlignment,
             .cache_bytes = std::max({cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes})});
  return BELAY_OK;
}

belay_status device_alloc(belay_obj* object, const belay_alloc_req* req, belay_created* out) noexcept {
  Device& device = device_of(object);
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&]() -> Status {
    BELAY_ASSIGN(Buffer * buffer, device.memory().alloc(*req));
    out->impl = buffer;
    out->table = nullptr;
    return {};
  });
}

void device_free(belay_obj* object, belay_obj* buffer) noexcept {
  Device& device = device_of(object);
  if (device.in_child()) return;
  device.memory().free(&self<Buffer>(buffer));
  buffer->impl = nullptr;
}

belay_status device_map(belay_obj* object, belay_obj* buffer, void** out) noexcept {
  Device& device = device_of(object);
  if (device.in_child()) return device.refuse_in_child();
  *out = self<Buffer>(buffer).data;
  return BELAY_OK;
}

belay_status device_stream_create(belay_obj* object, const belay_stream_req* req, belay_created* out) noexcept {
  Device& device = device_of(object);
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&]() -> Status {
    BELAY_ASSIGN(Stream * stream, Stream::create(device, *req));
    if (Status status = device.add_timeline(stream); !status.ok()) {
      stream->unref();
      return status;
    }
    out->impl = stream;
    out->table = &kStreamTable;
    return {};
  });
}

belay_status device_timeline_signal(belay_obj* object, uint64_t timeline, uint64_t value, belay_status failure) noexcept {
  Device& device = device_of(object);
  if (device.in_child()) return device.refuse_in_child();
  return guard(device.host(), [&]() -> Status {
    FailurePtr why;
    if (failure != BELAY_OK) {
      // The status stays the caller's: only its sentence is taken.
      StringSink text;
      device.host().status_text(&device.host(), failure, text.sink());
      why = std::make_shared<Failure>(Failure{BELAY_STATUS_CODE(failure), std::move(text).str()});
    }
    return device.signal(timeline, value, std::move(why));
  });
}

void device_timeline_destroy(belay_obj* object, uint64_t timeline) noexcept {
  Device& device = device_of(object);
  if (!device.in_child()) device.destroy_external(timeline);
}

belay_status device_health(belay_obj* object, belay_health* inout) noexcept {
  Device& device = device_of(object);
  if (device.in_child()) return device.refuse_in_child();
  inout->state = 0;  // host memory and threads do not get lost
  return BELAY_OK;
}

belay_status device_reset(belay_obj* object) noexcept {
  Device& device = device_of(object);
  if (device.in_child()) return device.refuse_in_child();
  return device.drain();
}

const void* device_extension(belay_obj*, belay_str id) noexcept {
  if (to_view(id) == BELAY_DRIVER_PROGRAM) return &kProgramTable;
  if (to_view(id) == BELAY_DRIVER_VIRTUAL_MEMORY) return &kVirtualMemoryTable;
  return nullptr;
}

void device_destroy(belay_obj* object) noexcept {
  OpenDevice* const open = &self<OpenDevice>(object);
  if (open->device.in_child()) return;
  Driver& driver = open->driver;
  const uint64_t index = open->device.index();
  delete open;
  driver.release(index);
}

// ---- the driver's slots ------------------------------------------------------------------------------------------------
uint64_t driver_device_count(belay_obj* object) noexcept { return self<Driver>(object).options().devices; }

belay_status driver_device_info(belay_obj* object, uint64_t index, belay_device_info* inout) noexcept {
  Driver& driver = self<Driver>(object);
  if (driver.in_child()) return driver.refuse_in_child();
  return guard(driver.host(), [&]() -> Status {
    BELAY_TRY(driver.check(index));
    driver.info(index, inout);
    return {};
  });
}

belay_status driver_open_device(belay_obj* object, uint64_t index, belay_created* out) noexcept {
  Driver& driver = self<Driver>(object);
  if (driver.in_child()) return driver.refuse_in_child();
  return guard(driver.host(), [&]() -> Status {
    BELAY_TRY(driver.check(index));
    BELAY_TRY(driver.claim(index));
    try {
      out->impl = new OpenDevice{{driver.host(), driver.ticks(), driver.options(), index}, driver};
    } catch (...) {
      driver.release(index);
      throw;
    }
    out->table = &kDeviceTable;
    return {};
  });
}

void driver_destroy(belay_obj* object) noexcept {
  Driver* const driver = &self<Driver>(object);
  if (!driver->in_child()) delete driver;
}

constexpr belay_driver_vt kDriverTable = {.hdr = {sizeof(belay_driver_vt), 0, nullptr},
                                          .device_count = driver_device_count,
                                          .device_info = driver_device_info,
                                          .open_device = driver_open_device,
                                          .destroy = driver_destroy};

// ---- the component -----------------------------------------------------------------------------------------------------
belay_status score(belay_ctx*, belay_score* inout) noexcept {
  inout->score = 500;
  write(inout->reason, "the processor of this machine");
  return BELAY_OK;
}

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  DriverState& plugin = state<DriverState>(ctx);
  return guard(*plugin.host, [&]() -> Status {
    give(out, std::make_unique<Driver>(plugin, Options::read(Value(config))), kDriverTable);
    return {};
  });
}

constexpr belay_component kComponent = {.hdr = {sizeof(belay_component), 0, nullptr},
                                        .kind = literal(BELAY_DRIVER_KIND),
                                        .name = literal("cpu"),
                                        .score = score,
                                        .create = create};

}  // namespace

const belay_device_vt kDeviceTable = {.hdr = {sizeof(belay_device_vt), 0, nullptr},
                                      .info = device_info,
                                      .heap = device_heap,
                                      .alloc = device_alloc,
                                      .free = device_free,
                                      .map = device_map,
                                      .stream_create = device_stream_create,
                                      .timeline_signal = device_timeline_signal,
                                      .timeline_destroy = device_timeline_destroy,
                                      .health = device_health,
                                      .reset = device_reset,
                                      .extension = device_extension,
                                      .destroy = device_destroy};

const belay_component* driver_component() { return &kComponent; }

}  // namespace belay::cpu
