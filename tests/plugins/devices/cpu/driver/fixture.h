// A CPU device behind its C tables, made by the driver component as a host would make it.
#pragma once

#include "driver/driver.h"
#include "kernels/provider.hpp"

#include <belay/abi/driver.h>
#include <belay/testing/fake_host.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace belay::cpu::testing {

using belay::testing::Adopted;
using belay::testing::FakeHost;

// A configuration of integers and booleans, as a host hands it to `create`.
class Config : public belay_value {
 public:
  Config() : belay_value{&kTable} {}
  Config& set(const std::string& key, int64_t value) {
    auto& child = children_[key];
    child = std::make_unique<Config>();
    child->number_ = value;
    return *this;
  }

 private:
  static const Config& of(const belay_value* v) { return *static_cast<const Config*>(v); }
  static const belay_value_vt kTable;

  std::map<std::string, std::unique_ptr<Config>> children_;
  int64_t number_ = 0;
};

inline const belay_value_vt Config::kTable = {
    .hdr = {sizeof(belay_value_vt), 0, nullptr},
    .type = [](const belay_value*) -> uint32_t { return BELAY_VALUE_INT; },
    .as_bool = [](const belay_value* v) -> uint32_t { return of(v).number_ != 0; },
    .as_int = [](const belay_value* v) -> int64_t { return of(v).number_; },
    .as_float = [](const belay_value*) -> double { return 0; },
    .as_string = [](const belay_value*) -> belay_str { return {}; },
    .count = [](const belay_value*) -> uint64_t { return 0; },
    .at = [](const belay_value*, uint64_t) -> const belay_value* { return nullptr; },
    .get = [](const belay_value* v, belay_str key) -> const belay_value* {
      const auto at = of(v).children_.find(to_string(key));
      return at == of(v).children_.end() ? nullptr : at->second.get();
    },
    .key_at = [](const belay_value*, uint64_t) -> belay_str { return {}; },
    .where = [](const belay_value*, belay_sink) {}};

using DriverObject = Adopted<belay_driver_vt>;
using DeviceObject = Adopted<belay_device_vt>;
using StreamObject = Adopted<belay_stream_vt>;

// A kernel of a C++ callable: fn(exec, args) -> belay_status.
class TestKernel : public belay_kernel {
 public:
  using Fn = std::function<belay_status(const belay_exec*, const uint64_t*)>;
  explicit TestKernel(std::string name, Fn fn, uint64_t cost_ns = 0, uint32_t flags = 0)
      : belay_kernel{}, name_(std::move(name)), fn_(std::move(fn)) {
    hdr = {sizeof(belay_kernel), flags, nullptr};
    belay_kernel::fn = [](const belay_exec* exec, const void* state, const uint64_t* args) noexcept -> belay_status {
      return (*static_cast<const Fn*>(state))(exec, args);
    };
    state = &fn_;
    belay_kernel::cost_ns = cost_ns;
    belay_kernel::name = to_str(name_);
  }
  TestKernel(const TestKernel&) = delete;
  TestKernel& operator=(const TestKernel&) = delete;

 private:
  std::string name_;
  Fn fn_;
};

// A stream with the calls that tests make; what fails is a Status with its sentence.
class TestStream {
 public:
  TestStream(FakeHost& host, StreamObject object, uint64_t timeline)
      : host_(host), object_(std::move(object)), timeline_(timeline) {}

  belay_obj* get() const { return object_.get(); }
  uint64_t id() const { return timeline_; }
  uint64_t last() const { return object_->last_value(object_); }
  belay_event event() const { return {timeline_, last()}; }

  Result<uint64_t> launch(const belay_kernel& kernel, const std::vector<uint64_t>& args = {}) {
    belay_launch_req req{};
    req.hdr.struct_size = sizeof req;
    req.kernel = &kernel;
    req.args = args.data();
    req.arg_count = args.size();
    return queued([&](uint64_t* v) { return object_->launch(object_, &req, v); });
  }
  Result<uint64_t> copy(void* to, const void* from, uint64_t bytes) {
    belay_copy_req req{};
    req.hdr.struct_size = sizeof req;
    req.host_dst = to;
    req.host_src = from;
    req.bytes = bytes;
    return queued([&](uint64_t* v) { return object_->copy(object_, &req, v); });
  }
  Result<uint64_t> wait(belay_event event) {
    return queued([&](uint64_t* v) { return object_->wait(object_, event, v); });
  }
  Result<uint64_t> call(void (*fn)(void*), void* user) {
    return queued([&](uint64_t* v) { return object_->host_call(object_, fn, user, v); });
  }
  Status flush() { return host_.take(object_->flush(object_)); }
  Status query(uint64_t value) { return host_.take(object_->query(object_, value)); }
  Status synchronize(uint64_t value, uint64_t timeout = BELAY_FOREVER) {
    return host_.take(object_->synchronize(object_, value, timeout));
  }
  Status synchronize() { return synchronize(last()); }
  Status recover() { return host_.take(object_->recover(object_)); }
  Status on_reached(uint64_t value, belay_completion completion) {
    return host_.take(object_->on_reached(object_, value, completion));
  }
  void destroy() { object_.reset(); }

  template <class Call>
  Result<uint64_t> queued(Call&& call) {
    uint64_t value = 0;
    if (const belay_status status = call(&value); status != BELAY_OK) return host_.take(status);
    return value;
  }

 private:
  FakeHost& host_;
  StreamObject object_;
  uint64_t timeline_;
};

class CpuDevice : public ::testing::Test {
 protected:
  // The tick is off unless a test turns it on, so nothing starts by itself.
  CpuDevice() { config.set("tick_us", 0).set("threads", 2); }
  ~CpuDevice() override {
    device.reset();
    driver.reset();
    plugin.reset();
    host.advance(3'600'000'000'000);  // no timer is left to call into what is gone
    EXPECT_EQ(host.live_details(), 0u) << "statuses that nobody gave back";
    EXPECT_EQ(host.live_blocks(), 0u);
    EXPECT_TRUE(host.misbehaviour().empty());
  }

  DriverObject make_driver() {
    belay_created out{};
    out.hdr.struct_size = sizeof out;
    if (!plugin) plugin = std::make_unique<DriverState>(host);
    const belay_status status = driver_component()->create(reinterpret_cast<belay_ctx*>(plugin.get()), &config, &out);
    EXPECT_EQ(host.take(status).message(), "");
    return {BELAY_OBJ_DRIVER, static_cast<const belay_driver_vt*>(out.table), out.impl};
  }
  void open() {
    driver = make_driver();
    belay_created out{};
    out.hdr.struct_size = sizeof out;
    const Status status = host.take(driver->open_device(driver, 0, &out));
    ASSERT_TRUE(status.ok()) << status.message();
    device = {BELAY_OBJ_DEVICE, static_cast<const belay_device_vt*>(out.table), out.impl};
  }

  Result<TestStream> try_stream(uint64_t queue_depth = 0, int64_t priority = 0, uint32_t flags = 0) {
    if (!device.get()) open();
    belay_stream_req req{};
    req.hdr = {sizeof req, flags, nullptr};
    req.timeline = ++last_timeline;
    req.priority = priority;
    req.queue_depth = queue_depth;
    belay_created out{};
    out.hdr.struct_size = sizeof out;
    const belay_status status = device->stream_create(device, &req, &out);
    if (status != BELAY_OK) return host.take(status);
    return TestStream(host, {BELAY_OBJ_STREAM, static_cast<const belay_stream_vt*>(out.table), out.impl}, req.timeline);
  }
  TestStream stream(uint64_t queue_depth = 0, int64_t priority = 0, uint32_t flags = 0) {
    Result<TestStream> made = try_stream(queue_depth, priority, flags);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(made).value();
  }

  FakeHost host;
  Config config;
  std::unique_ptr<DriverState> plugin;
  DriverObject driver;
  DeviceObject device;
  uint64_t last_timeline = 0;
};

// A gate that a callback or kernel waits at until the test opens it.
class Gate {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }
  void pass() {
    reached_.store(true);
    reached_.notify_all();
    open_.wait(false);
  }
  void wait_reached() { reached_.wait(false); }

 private:
  std::atomic<bool> open_{false}, reached_{false};
};

// A completion that tests wait for.
struct Done {
  std::atomic<int> calls{0};
  std::atomic<belay_status> status{0};
  std::thread::id thread;
  belay_completion completion() {
    return {this, [](void* user, belay_status s) {
              auto& d = *static_cast<Done*>(user);
              d.status = s;
              d.thread = std::this_thread::get_id();
              ++d.calls;
              d.calls.notify_all();
            }};
  }
  void wait() { calls.wait(0); }
};

}  // namespace belay::cpu::testing
