#include "device.h"

#include "plugin_state.h"

#include <belay/abi/driver.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace reference {
namespace {

using belay::Code;
using belay::Status;

// A counter that only grows, and which of its values failed.
struct Timeline {
  struct Failure {
    uint64_t from, to;
    Status status;
  };
  uint64_t reached = 0;
  std::vector<Failure> failures;
  std::vector<std::pair<uint64_t, belay_completion>> waiting;

  const Status* failure(uint64_t value) const {
    for (const Failure& f : failures)
      if (value >= f.from && value <= f.to) return &f.status;
    return nullptr;
  }
};

struct Buffer {
  char* data;
  uint64_t bytes;
  bool owned;
};
char* bytes_of(const belay_obj* buffer) { return static_cast<Buffer*>(buffer->impl)->data; }

struct Device {
  const belay_host& host;
  const uint64_t delay_ns, memory_limit;
  std::mt19937_64 random;  // under `mutex`
  std::mutex mutex;        // of all timelines and queues of this device
  std::condition_variable changed;
  std::map<uint64_t, Timeline> timelines;
  std::atomic<uint64_t> in_use{0};

  Device(const belay_host& h, belay::Value config)
      : host(h),
        delay_ns(uint64_t(config["delay"].as_int())),
        memory_limit(uint64_t(config["memory_size"].as_int())),
        random(uint64_t(config["seed"].as_int(1))) {}

  // Moves a timeline on. Completions run without the lock.
  void advance(std::unique_lock<std::mutex>& lock, uint64_t id, uint64_t value) {
    Timeline& timeline = timelines[id];
    timeline.reached = std::max(timeline.reached, value);
    std::vector<std::pair<belay_completion, Status>> due;
    std::erase_if(timeline.waiting, [&](const auto& entry) {
      if (entry.first > timeline.reached) return false;
      const Status* failure = timeline.failure(entry.first);
      due.push_back({entry.second, failure ? *failure : Status()});
      return true;
    });
    changed.notify_all();
    lock.unlock();
    for (const auto& [completion, status] : due) completion.done(completion.user, belay::to_c(host, status));
    lock.lock();
  }
};

struct Driver {
  const belay_host& host;
  belay::Value config;
};

// ---- streams
// ----------------------------------------------------------------------------------------------------------
class Stream {
 public:
  Stream(Device& device, const belay_stream_req& req)
      : device_(device),
        timeline_(req.timeline),
        go_on_(req.hdr.flags & BELAY_STREAM_CONTINUE_ON_FAILURE),
        depth_(req.queue_depth ? req.queue_depth : kDepth) {
    {
      std::lock_guard lock(device_.mutex);
      device_.timelines[timeline_];
    }
    thread_ = std::thread([this] { loop(); });
  }
  ~Stream() {
    {
      std::lock_guard lock(device_.mutex);
      stop_ = true;
    }
    device_.changed.notify_all();
    thread_.join();  // the timeline stays: another stream may still look at it
  }

  static constexpr uint64_t kDepth = 4096;

  // `work` runs on the stream's thread; `always`: also after a failure.
  Status submit(std::string name, std::function<Status()> work, uint64_t* out_value, bool always = false) {
    {
      std::lock_guard lock(device_.mutex);
      if (queue_.size() >= depth_)
        return {Code::kQueueFull,
                "The stream holds " + std::to_string(depth_) + " operations, as many as it may."};
      queue_.push_back({std::move(name), std::move(work), always});
      if (out_value) *out_value = queued_ + 1;
      ++queued_;
    }
    device_.changed.notify_all();
    return {};
  }

  Status wait_for(uint64_t timeline, uint64_t value, uint64_t timeout_ns, bool from_stream) {
    std::unique_lock lock(device_.mutex);
    if (!from_stream && std::this_thread::get_id() == thread_.get_id() &&
        value > device_.timelines[timeline].reached)
      return {Code::kFailedPrecondition,
              "The stream would wait for itself: a host callback waits for its own stream."};
    auto there = [&] { return device_.timelines[timeline].reached >= value; };
    if (timeout_ns == BELAY_FOREVER)
      device_.changed.wait(lock, there);
    else if (!device_.changed.wait_for(
                 lock, std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, 1ull << 60)), there))
      return {Code::kDeadlineExceeded, "Value " + std::to_string(value) + " is not reached within " +
                                           std::to_string(timeout_ns) + " ns; the work goes on."};
    const Status* failure = device_.timelines[timeline].failure(value);
    return failure ? *failure : Status();
  }

  Status query(uint64_t value) {
    std::lock_guard lock(device_.mutex);
    const Timeline& timeline = device_.timelines[timeline_];
    if (timeline.reached < value)
      return {Code::kUnavailable, "Value " + std::to_string(value) + " is not reached yet."};
    const Status* failure = timeline.failure(value);
    return failure ? *failure : Status();
  }

  Status on_reached(uint64_t value, belay_completion completion) {
    Status outcome;
    {
      std::lock_guard lock(device_.mutex);
      Timeline& timeline = device_.timelines[timeline_];
      if (timeline.reached < value) {
        timeline.waiting.push_back({value, completion});
        return {};
      }
      if (const Status* failure = timeline.failure(value)) outcome = *failure;
    }
    completion.done(completion.user, belay::to_c(device_.host, outcome));
    return {};
  }

  Status recover() {
    const Status ended = wait_for(timeline_, last(), BELAY_FOREVER, false);
    if (ended.code() == Code::kFailedPrecondition) return ended;
    std::lock_guard lock(device_.mutex);
    for (Timeline::Failure& failure : device_.timelines[timeline_].failures)
      failure.to = std::min(failure.to, queued_);
    return {};
  }

  uint64_t last() {
    std::lock_guard lock(device_.mutex);
    return queued_;
  }
  Device& device() { return device_; }
  uint64_t timeline() const { return timeline_; }

 private:
  struct Operation {
    std::string name;
    std::function<Status()> work;
    bool always;
  };

  void loop() {
    std::unique_lock lock(device_.mutex);
    while (true) {
      device_.changed.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Operation operation = std::move(queue_.front());
      queue_.pop_front();
      const uint64_t value = ++begun_;
      const uint64_t pause = device_.delay_ns ? device_.random() % device_.delay_ns : 0;
      const bool skip = !operation.always && !go_on_ && device_.timelines[timeline_].failure(value);
      lock.unlock();
      if (pause) std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
      Status status = skip ? Status() : operation.work();
      lock.lock();
      Timeline& timeline = device_.timelines[timeline_];
      if (!status.ok() && !timeline.failure(value))
        timeline.failures.push_back(
            {value, UINT64_MAX, Status(status.code(), status.message() + operation.name)});
      device_.advance(lock, timeline_, value);
    }
  }

  Device& device_;
  const uint64_t timeline_;
  const bool go_on_;
  const uint64_t depth_;
  std::deque<Operation> queue_;
  uint64_t queued_ = 0, begun_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

Stream& stream_of(belay_obj* object) { return belay::self<Stream>(object); }

// A range of a buffer, or of host memory where `buffer` is null.
belay::Result<char*> range(const belay_obj* buffer, const void* host, uint64_t offset, uint64_t bytes) {
  if (!buffer) return static_cast<char*>(const_cast<void*>(host)) + offset;
  const Buffer& at = *static_cast<Buffer*>(buffer->impl);
  if (offset > at.bytes || bytes > at.bytes - offset)
    return Status(Code::kOutOfRange, "Bytes " + std::to_string(offset) + " to " +
                                         std::to_string(offset + bytes) + " of a buffer of " +
                                         std::to_string(at.bytes) + " bytes.");
  return at.data + offset;
}

belay_status copy(belay_obj* object, const belay_copy_req* req, uint64_t* out_value) noexcept {
  return belay::guard(stream_of(object).device().host, [&]() -> Status {
    BELAY_ASSIGN(char* to, range(req->dst, req->host_dst, req->dst_offset, req->bytes));
    BELAY_ASSIGN(const char* from, range(req->src, req->host_src, req->src_offset, req->bytes));
    const uint64_t bytes = req->bytes;
    if (bytes && to < from + bytes && from < to + bytes)
      return {Code::kInvalidArgument, "The ranges of a copy of " + std::to_string(bytes) + " bytes overlap."};
    return stream_of(object).submit(
        "", [=] { return bytes ? (void)std::memcpy(to, from, bytes) : (void)0, Status(); }, out_value);
  });
}

belay_status fill(belay_obj* object, const belay_fill_req* req, uint64_t* out_value) noexcept {
  return belay::guard(stream_of(object).device().host, [&]() -> Status {
    const uint64_t width = req->pattern_bytes, bytes = req->bytes, pattern = req->pattern;
    if ((width != 1 && width != 2 && width != 4 && width != 8) || bytes % width)
      return {Code::kInvalidArgument, "A pattern of " + std::to_string(width) + " bytes for " +
                                          std::to_string(bytes) +
                                          " bytes; it must be 1, 2, 4 or 8 and divide them."};
    BELAY_ASSIGN(char* to, range(req->dst, nullptr, req->dst_offset, bytes));
    return stream_of(object).submit(
        "",
        [=] {
          for (uint64_t i = 0; i < bytes; i += width) std::memcpy(to + i, &pattern, width);
          return Status();
        },
        out_value);
  });
}

// What a running kernel finds around it.
struct Surroundings {
  belay_exec exec;
  const belay_host& host;
  const belay_launch_req& req;
  std::vector<std::unique_ptr<char[]>> scratch;
  uint32_t cancelled = 0;
};
Surroundings& around(const belay_exec* exec) { return *static_cast<Surroundings*>(exec->user); }

void serial_for(const belay_exec*, uint64_t count, void (*body)(void*, uint64_t), void* arg) noexcept {
  for (uint64_t i = 0; i < count; ++i) body(arg, i);
}
void* scratch(const belay_exec* exec, uint64_t bytes) noexcept try {
  auto& blocks = around(exec).scratch;
  blocks.push_back(std::make_unique<char[]>(bytes + 63));
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(blocks.back().get()) + 63) & ~uintptr_t{63});
} catch (...) {
  return nullptr;
}
void* output(const belay_exec* exec, uint64_t index, const int64_t* dims, uint32_t rank) noexcept {
  const belay_launch_req& req = around(exec).req;
  return req.output ? req.output(req.output_user, index, dims, rank) : nullptr;
}
belay_status fail(const belay_exec* exec, uint32_t code, belay_str message) noexcept {
  return around(exec).host.status_make(&around(exec).host, code, message);
}

belay_status launch(belay_obj* object, const belay_launch_req* req, uint64_t* out_value) noexcept {
  Device& device = stream_of(object).device();
  return belay::guard(device.host, [&]() -> Status {
    std::vector<uint64_t> args(req->args, req->args + req->arg_count);
    belay_launch_req kept = *req;
    kept.accesses = nullptr;
    return stream_of(object).submit(
        " (in kernel '" + belay::to_string(req->kernel->name) + "')",
        [&device, args, kept]() -> Status {
          Surroundings here{{}, device.host, kept, {}, 0};
          here.exec = {{sizeof(belay_exec), 0, nullptr},
                       &here,
                       1,
                       0,
                       serial_for,
                       scratch,
                       output,
                       fail,
                       &here.cancelled};
          return belay::from_c(device.host, kept.kernel->fn(&here.exec, kept.kernel->state, args.data()));
        },
        out_value);
  });
}

belay_status wait(belay_obj* object, belay_event event, uint64_t* out_value) noexcept {
  Stream& stream = stream_of(object);
  return belay::guard(stream.device().host, [&]() -> Status {
    {
      std::lock_guard lock(stream.device().mutex);
      if (event.timeline && !stream.device().timelines.contains(event.timeline))
        return {Code::kNotFound, "Timeline " + std::to_string(event.timeline) + " is none of this device."};
    }
    return stream.submit(
        "",
        [&stream, event]() -> Status {
          return event.timeline ? stream.wait_for(event.timeline, event.value, BELAY_FOREVER, true)
                                : Status();
        },
        out_value);
  });
}

belay_status host_call(belay_obj* object, void (*fn)(void*), void* user, uint64_t* out_value) noexcept {
  return belay::guard(stream_of(object).device().host, [&]() -> Status {
    return stream_of(object).submit(
        "", [=] { return fn(user), Status(); }, out_value);
  });
}
belay_status query(belay_obj* object, uint64_t value) noexcept {
  return belay::guard(stream_of(object).device().host, [&] { return stream_of(object).query(value); });
}
belay_status synchronize(belay_obj* object, uint64_t value, uint64_t timeout_ns) noexcept {
  Stream& stream = stream_of(object);
  return belay::guard(stream.device().host,
                      [&] { return stream.wait_for(stream.timeline(), value, timeout_ns, false); });
}
belay_status on_reached(belay_obj* object, uint64_t value, belay_completion completion) noexcept {
  return belay::guard(stream_of(object).device().host,
                      [&] { return stream_of(object).on_reached(value, completion); });
}
uint64_t last_value(belay_obj* object) noexcept { return stream_of(object).last(); }
belay_status recover(belay_obj* object) noexcept {
  return belay::guard(stream_of(object).device().host, [&] { return stream_of(object).recover(); });
}
void destroy_stream(belay_obj* object) noexcept { delete &stream_of(object); }

constexpr belay_stream_vt kStream{{sizeof(belay_stream_vt), 0, nullptr},
                                  copy,
                                  fill,
                                  launch,
                                  wait,
                                  host_call,
                                  nullptr,
                                  query,
                                  synchronize,
                                  on_reached,
                                  last_value,
                                  recover,
                                  destroy_stream};

// ---- the device
// -------------------------------------------------------------------------------------------------------------
Device& device_of(belay_obj* object) { return belay::self<Device>(object); }

void describe(belay_device_info* info) {
  info->hdr.flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST | BELAY_DEVICE_SUBDIVIDES;
  info->driver = belay::literal("reference");
  info->name = belay::literal("plain loops");
  info->arch = belay::literal("reference");
  info->features = {};
  info->index = 0;
  info->threads = 1;
  info->memory_bytes = 0;
  info->heap_count = 1;
  info->queue_depth = Stream::kDepth;
}
belay_status device_info(belay_obj* object, belay_device_info* inout) noexcept {
  describe(inout);
  inout->memory_bytes = device_of(object).memory_limit;
  return BELAY_OK;
}
belay_status heap(belay_obj* object, uint64_t index, belay_heap_info* inout) noexcept {
  if (index) return BELAY_OUT_OF_RANGE;
  const Device& device = device_of(object);
  inout->heap_class = BELAY_HEAP_SHARED;
  inout->bytes = device.memory_limit ? device.memory_limit : UINT64_MAX;
  inout->free_bytes = inout->bytes - std::min<uint64_t>(inout->bytes, device.in_use);
  inout->alignment = 64;
  inout->cache_bytes = 0;
  return BELAY_OK;
}

belay_status alloc(belay_obj* object, const belay_alloc_req* req, belay_created* out) noexcept {
  Device& device = device_of(object);
  return belay::guard(device.host, [&]() -> Status {
    if (req->heap)
      return {Code::kInvalidArgument, "Heap " + std::to_string(req->heap) + "; the device has heap 0 only."};
    char* const given = req->within ? bytes_of(req->within) + req->within_offset : static_cast<char*>(req->host);
    auto buffer = std::make_unique<Buffer>(Buffer{given, req->bytes, !given});
    if (buffer->owned) {
      const uint64_t align = std::max<uint64_t>(64, req->align);
      const uint64_t before = device.in_use.fetch_add(req->bytes);
      void* memory = nullptr;
      if ((device.memory_limit &&
           (before > device.memory_limit || req->bytes > device.memory_limit - before)) ||
          posix_memalign(&memory, align, std::max<uint64_t>(1, req->bytes)) != 0) {
        device.in_use -= req->bytes;
        return {Code::kResourceExhausted,
                "No memory for " + std::to_string(req->bytes) + " bytes: " + std::to_string(before) +
                    " are in use" +
                    (device.memory_limit ? " of " + std::to_string(device.memory_limit) : "") + "."};
      }
      buffer->data = static_cast<char*>(memory);
    }
    out->impl = buffer.release();
    out->table = nullptr;
    return {};
  });
}
void free_buffer(belay_obj* object, belay_obj* buffer) noexcept {
  Buffer* at = static_cast<Buffer*>(buffer->impl);
  if (at->owned) {
    device_of(object).in_use -= at->bytes;
    std::free(at->data);
  }
  delete at;
}
belay_status map(belay_obj*, belay_obj* buffer, void** out) noexcept {
  return *out = bytes_of(buffer), BELAY_OK;
}

belay_status stream_create(belay_obj* object, const belay_stream_req* req, belay_created* out) noexcept {
  Device& device = device_of(object);
  return belay::guard(device.host, [&]() -> Status {
    belay::give(out, std::make_unique<Stream>(device, *req), kStream);
    return {};
  });
}
belay_status timeline_signal(belay_obj* object, uint64_t timeline, uint64_t value,
                             belay_status failure) noexcept {
  Device& device = device_of(object);
  return belay::guard(device.host, [&]() -> Status {
    const Status status = belay::from_c(device.host, failure);
    std::unique_lock lock(device.mutex);
    if (!status.ok()) device.timelines[timeline].failures.push_back({value, UINT64_MAX, status});
    device.advance(lock, timeline, value);
    return {};
  });
}
void timeline_destroy(belay_obj* object, uint64_t timeline) noexcept {
  std::lock_guard lock(device_of(object).mutex);
  device_of(object).timelines.erase(timeline);
}
belay_status health(belay_obj*, belay_health* inout) noexcept { return inout->state = 0, BELAY_OK; }
const void* extension(belay_obj*, belay_str) noexcept { return nullptr; }

void destroy_device(belay_obj* object) noexcept { delete &device_of(object); }

constexpr belay_device_vt kDevice{{sizeof(belay_device_vt), 0, nullptr},
                                  device_info,
                                  heap,
                                  alloc,
                                  free_buffer,
                                  map,
                                  stream_create,
                                  timeline_signal,
                                  timeline_destroy,
                                  health,
                                  nullptr,
                                  extension,
                                  destroy_device};

// ---- the driver
// ---------------------------------------------------------------------------------------------------------------
uint64_t device_count(belay_obj*) noexcept { return 1; }
belay_status driver_device_info(belay_obj*, uint64_t index, belay_device_info* inout) noexcept {
  if (index) return BELAY_OUT_OF_RANGE;
  describe(inout);
  return BELAY_OK;
}
belay_status open_device(belay_obj* object, uint64_t index, belay_created* out) noexcept {
  Driver& driver = belay::self<Driver>(object);
  return belay::guard(driver.host, [&]() -> Status {
    if (index)
      return {Code::kOutOfRange,
              "Device reference:" + std::to_string(index) + "; there is reference:0 only."};
    belay::give(out, std::make_unique<Device>(driver.host, driver.config), kDevice);
    return {};
  });
}
void destroy_driver(belay_obj* object) noexcept { delete &belay::self<Driver>(object); }

constexpr belay_driver_vt kDriver{
    {sizeof(belay_driver_vt), 0, nullptr}, device_count, driver_device_info, open_device, destroy_driver};

belay_status create(belay_ctx* ctx, const belay_value* config, belay_created* out) noexcept {
  const belay_host& host = *belay::state<PluginState>(ctx).host;
  return belay::guard(host, [&]() -> Status {
    belay::give(out, std::unique_ptr<Driver>(new Driver{host, belay::Value(config)}), kDriver);
    return {};
  });
}

}  // namespace

const belay_component* driver_component() {
  static constexpr belay_component component{{sizeof(belay_component), 0, nullptr},
                                             belay::literal(BELAY_DRIVER_KIND),
                                             belay::literal("reference"),
                                             nullptr,
                                             create};
  return &component;
}

}  // namespace reference
