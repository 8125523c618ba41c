// The least host that the CPU plugin needs, and its objects: what is measured is the driver, through its C tables.
#pragma once

#include <belay/abi/driver.h>
#include <belay/abi/plugin.h>
#include <belay/plugin.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <dlfcn.h>

namespace belay::bench {

inline uint64_t now_ns() {
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count());
}

// One thread with a timer: the executor of the host, for the progress tick.
class Timers {
 public:
  ~Timers() { stop(); }
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  void add(uint64_t delay, void (*task)(void*), void* user) {
    std::lock_guard lock(mutex_);
    due_.emplace(now_ns() + delay, std::pair(task, user));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    wake_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (due_.empty()) {
        if (stop_) return;
        wake_.wait(lock);
        continue;
      }
      const auto first = due_.begin();
      const uint64_t now = now_ns();
      if (first->first > now && !stop_) {
        wake_.wait_for(lock, std::chrono::nanoseconds(first->first - now));
        continue;
      }
      const auto task = first->second;
      due_.erase(first);
      lock.unlock();
      task.first(task.second);
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<uint64_t, std::pair<void (*)(void*), void*>> due_;
  std::thread thread_;
  bool stop_ = false;
};

inline Timers& timers() {
  static Timers all;
  return all;
}

inline const belay_executor_vt& executor() {
  static const belay_executor_vt table = {
      .hdr = {sizeof(belay_executor_vt), 0, nullptr},
      .post = nullptr,
      .post_blocking = nullptr,
      .timer = [](const belay_host*, uint64_t delay, uint64_t, void (*task)(void*), void* user,
                  uint64_t* id) -> belay_status { return timers().add(delay, task, user), *id = 1, BELAY_OK; },
      .cancel = [](const belay_host*, uint64_t) {},
      .strand = nullptr,
      .post_to = nullptr,
      .watch_fd = nullptr};
  return table;
}

inline const belay_host& host() {
  static const belay_host table = {
      .hdr = {sizeof(belay_host), 0, nullptr},
      .product = literal("bench"),
      .version = literal("0"),
      .get_service = [](const belay_host*, belay_str id) -> const void* {
        return to_view(id) == BELAY_HOST_EXECUTOR ? &executor() : nullptr;
      },
      .log = [](const belay_host*, uint32_t, belay_str) {},
      .status_make = [](const belay_host*, uint32_t code, belay_str text) -> belay_status {
        std::fprintf(stderr, "%.*s\n", int(text.len), text.ptr);
        return code;
      },
      .status_text = [](const belay_host*, belay_status, belay_sink) {},
      .status_release = [](const belay_host*, belay_status) {},
      .alloc = [](const belay_host*, uint64_t bytes, uint64_t align) { return std::aligned_alloc(align, bytes); },
      .free = [](const belay_host*, void* p) { std::free(p); },
      .now_ns = [](const belay_host*) { return now_ns(); },
      .misbehave = [](const belay_host*, belay_str, belay_str) {}};
  return table;
}

inline void check(belay_status status, const char* what) {
  if (status == BELAY_OK) return;
  std::fprintf(stderr, "%s failed with code %u\n", what, BELAY_STATUS_CODE(status));
  std::exit(1);
}

// An integer of the configuration by key; the rest has its default.
struct Number : belay_value {
  int64_t number = 0;
  std::map<std::string, Number> children;
  Number();
};
inline const belay_value_vt& number_table() {
  static const belay_value_vt table = {
      .hdr = {sizeof(belay_value_vt), 0, nullptr},
      .type = [](const belay_value*) -> uint32_t { return BELAY_VALUE_INT; },
      .as_bool = [](const belay_value* v) -> uint32_t { return static_cast<const Number*>(v)->number != 0; },
      .as_int = [](const belay_value* v) { return static_cast<const Number*>(v)->number; },
      .as_float = [](const belay_value*) { return 0.0; },
      .as_string = [](const belay_value*) { return belay_str{}; },
      .count = [](const belay_value*) -> uint64_t { return 0; },
      .at = [](const belay_value*, uint64_t) -> const belay_value* { return nullptr; },
      .get = [](const belay_value* v, belay_str key) -> const belay_value* {
        const auto& children = static_cast<const Number*>(v)->children;
        const auto at = children.find(to_string(key));
        return at == children.end() ? nullptr : &at->second;
      },
      .key_at = [](const belay_value*, uint64_t) { return belay_str{}; },
      .where = [](const belay_value*, belay_sink) {}};
  return table;
}
inline Number::Number() : belay_value{&number_table()} {}

struct Object : belay_obj {
  Object(uint32_t kind, const belay_created& made)
      : belay_obj{BELAY_OBJ_MAGIC, kind, 1, made.table, made.impl, {}} {}
  Object(const Object&) = delete;
};

// The plugin, its driver and its first device, for the life of the process.
class Plugin {
 public:
  explicit Plugin(const char* path, const Number& config) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    const auto entry = reinterpret_cast<belay_entry_fn>(dlsym(library, BELAY_ENTRY_NAME));
    belay_handshake handshake{};
    handshake.hdr.struct_size = sizeof handshake;
    const belay_plugin* const plugin = entry(&host(), &handshake);
    check(plugin->open(&host(), &config, &context_), "open");
    for (uint64_t i = 0; i < plugin->component_count; ++i) {
      if (to_view(plugin->components[i]->kind) != BELAY_DRIVER_KIND) continue;
      belay_created made{};
      check(plugin->components[i]->create(context_, &config, &made), "create");
      driver_ = std::make_unique<Object>(BELAY_OBJ_DRIVER, made);
    }
    belay_created made{};
    check(static_cast<const belay_driver_vt*>(driver_->table)->open_device(driver_.get(), 0, &made), "open_device");
    device_ = std::make_unique<Object>(BELAY_OBJ_DEVICE, made);
  }
  ~Plugin() {
    vt().destroy(device_.get());
    static_cast<const belay_driver_vt*>(driver_->table)->destroy(driver_.get());
    timers().stop();
  }
  belay_obj* device() { return device_.get(); }
  const belay_device_vt& vt() const { return *static_cast<const belay_device_vt*>(device_->table); }
  const belay_driver_program_vt& programs() const {
    return *static_cast<const belay_driver_program_vt*>(vt().extension(device_.get(), literal(BELAY_DRIVER_PROGRAM)));
  }

 private:
  belay_ctx* context_ = nullptr;
  std::unique_ptr<Object> driver_, device_;
};

class Stream {
 public:
  explicit Stream(Plugin& plugin, uint64_t depth = 0) : id_(++last_id()) {
    belay_stream_req req{};
    req.hdr.struct_size = sizeof req;
    req.timeline = id_;
    req.queue_depth = depth;
    belay_created made{};
    check(plugin.vt().stream_create(plugin.device(), &req, &made), "stream_create");
    object_ = std::make_unique<Object>(BELAY_OBJ_STREAM, made);
    vt_ = static_cast<const belay_stream_vt*>(made.table);
  }
  ~Stream() { vt_->destroy(object_.get()); }
  belay_obj* get() { return object_.get(); }
  uint64_t id() const { return id_; }
  uint64_t launch(const belay_launch_req& req) {
    uint64_t value = 0;
    if (vt_->launch(object_.get(), &req, &value) != BELAY_OK) std::abort();
    return value;
  }
  uint64_t copy(const belay_copy_req& req) {
    uint64_t value = 0;
    if (vt_->copy(object_.get(), &req, &value) != BELAY_OK) std::abort();
    return value;
  }
  uint64_t wait(belay_event event) {
    uint64_t value = 0;
    if (vt_->wait(object_.get(), event, &value) != BELAY_OK) std::abort();
    return value;
  }
  void synchronize(uint64_t value) {
    if (vt_->synchronize(object_.get(), value, BELAY_FOREVER) != BELAY_OK) std::abort();
  }
  const belay_stream_vt& vt() const { return *vt_; }

 private:
  static uint64_t& last_id() {
    static uint64_t last = 0;
    return last;
  }
  uint64_t id_;
  std::unique_ptr<Object> object_;
  const belay_stream_vt* vt_ = nullptr;
};

}  // namespace belay::bench
