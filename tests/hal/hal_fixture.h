// What the tests of the HAL share: a host without plugins, and a Hal over mocked drivers.
#pragma once

#include "core/host.h"
#include "core/base/status_table.h"
#include "hal/hal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <belay/testing/fake_host.hpp>
#include <belay/testing/mock_driver.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace belay::hal {

using belay::testing::Adopted;
using belay::testing::MockDevice;
using belay::testing::MockDriver;
using belay::testing::MockProgram;
using belay::testing::MockStream;
using belay::testing::table_for;
using belay::testing::TableBuilder;
using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Invoke;
using ::testing::IsEmpty;
using ::testing::NiceMock;
using ::testing::Not;
using ::testing::Return;
using ::testing::StrictMock;

using NiceStream = NiceMock<MockStream>;
using NiceDevice = NiceMock<MockDevice>;
using NiceDriver = NiceMock<MockDriver>;

template <class T>
T request() {
  T req{};
  req.hdr.struct_size = sizeof req;
  return req;
}

class HalTest : public ::testing::Test {
 protected:
  HalTest() {
    core::Config config;
    EXPECT_TRUE(config.add_text("test.toml", "[log]\nlevel = \"debug\"\nfile = \"/dev/null\"\n").ok());
    auto made = core::Host::create({.config = std::move(config), .standard_plugin_dirs = false});
    if (!made.ok()) ADD_FAILURE() << made.status().message();
    core_host_ = std::move(made).value();
    core_host_->log().listen([this](core::Level, std::string_view, std::string_view line) {
      std::lock_guard lock(log_mutex_);
      log_.emplace_back(line);
    });
    EXPECT_TRUE(core_host_->start().ok());
    details_before_ = core::live_details();
  }
  ~HalTest() override {
    hal_.reset();
    drivers_.clear();
    EXPECT_EQ(core::live_details(), details_before_);  // every detail was given back
    core_host_->log().listen({});
  }

  // Mocks to set expectations on, before start().
  NiceDriver& add_driver(const std::string& name) {
    auto mock = std::make_unique<NiceDriver>(host());
    NiceDriver& driver = *mock;
    drivers_.emplace_back(BELAY_OBJ_DRIVER, &table_for<MockDriver>(), mock.release());
    named_.push_back({name, name + "-plugin", drivers_.back().get()});
    return driver;
  }
  void start(HalOptions options = {}, std::vector<NamedObject> policies = {}) {
    if (drivers_.empty()) add_driver("mock");
    hal_ = std::make_unique<Hal>(*core_host_, options);
    core_host_->set_user(hal_.get());
    hal_->attach(named_, std::move(policies));
  }
  // A driver whose only device is this mock; the device is the driver's once it is opened.
  NiceDevice& add_device(const std::string& name) {
    auto mock = std::make_unique<NiceDevice>(host());
    NiceDevice& device = *mock;
    EXPECT_CALL(device, stream_create).Times(::testing::AnyNumber());  // but for next_stream(), as by default
    EXPECT_CALL(add_driver(name), open_device(0))
        .WillOnce(Return(::testing::ByMove(give<MockDevice>(std::move(mock)))));
    return device;
  }
  template <class T, class Mock>
  static Result<std::unique_ptr<T>> give(std::unique_ptr<Mock> mock) {
    return Result<std::unique_ptr<T>>(std::unique_ptr<T>(mock.release()));
  }
  // The next stream of the device.
  template <class Mock = NiceStream>
  Mock& next_stream(MockDevice& device) {
    auto mock = std::make_unique<Mock>(host());
    Mock& stream = *mock;
    EXPECT_CALL(device, stream_create)
        .WillOnce(Return(::testing::ByMove(give<MockStream>(std::move(mock)))))
        .RetiresOnSaturation();
    return stream;
  }

  const belay_host* host() { return &core_host_->table(); }
  const belay_hal_vt& vt() { return hal_table(); }
  Status take(belay_status raw) { return from_c(*host(), raw); }
  belay_obj* device(uint64_t index = 0) {
    belay_obj* out = nullptr;
    const Status status = take(vt().device(host(), index, &out));
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  belay_obj* stream(belay_obj* on, uint32_t flags = 0) {
    auto req = request<belay_hal_stream_req>();
    req.hdr.flags = flags;
    belay_obj* out = nullptr;
    const Status status = take(vt().stream_create(host(), on, &req, &out));
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  belay_obj* buffer(belay_obj* on, uint64_t bytes) {
    auto req = request<belay_alloc_req>();
    req.bytes = bytes;
    belay_obj* out = nullptr;
    const Status status = take(vt().buffer_create(host(), on, &req, &out));
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  std::vector<std::string> log() {
    std::lock_guard lock(log_mutex_);
    return log_;
  }

  std::unique_ptr<core::Host> core_host_;
  TableBuilder<belay_stream_vt> stream_table_{table_for<MockStream>()};  // for a test to change
  TableBuilder<belay_device_vt> device_table_{table_for<MockDevice>()};
  std::vector<Adopted<belay_driver_vt>> drivers_;
  std::vector<NamedObject> named_;
  std::unique_ptr<Hal> hal_;

 private:
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  uint64_t details_before_ = 0;
};

inline belay_status do_nothing(const belay_exec*, const void*, const uint64_t*) { return BELAY_OK; }
inline const belay_kernel kNothing{
    {sizeof(belay_kernel), 0, nullptr}, do_nothing, nullptr, 0, {"nothing", 7}};

}  // namespace belay::hal
