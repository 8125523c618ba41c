// Layers before the plugins of a runtime: what `validate` says of an application, and of one that does all right.
#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace {

using belay::Buffer;
using belay::Event;
using belay::Runtime;
using belay::Stream;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ValidatedRuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = Runtime::create({.sets = {"runtime.layers=[\"validate\"]", "log.level=off", "engine.use=\"\"",
                                          "models.formats=[]", "memory.policies=[\"pool\"]"},
                                 .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
    ASSERT_TRUE(made.ok()) << made.status().message();
    runtime = std::move(made).value();
    device = runtime.default_device().value();
    one = device.stream().value(), two = device.stream().value();
  }
  std::string report() {
    const auto reports = runtime.report();
    EXPECT_TRUE(reports.ok()) << reports.status().message();
    std::string all;
    for (const auto& each : *reports) all += each.text;
    return all;
  }
  // So that what is queued cannot end, and be known to have ended, before the next call.
  void hold(Stream& stream) {
    ASSERT_TRUE(stream.host_call([this] {
      while (!go.load()) std::this_thread::yield();
    }).ok());
  }

  std::atomic<bool> go{false};
  Runtime runtime;
  belay::Device device;
  Stream one, two;
};

TEST_F(ValidatedRuntimeTest, ARaceOfTwoStreamsIsNamed) {
  Buffer buffer = device.alloc(1024).value();
  hold(one);
  ASSERT_TRUE(one.fill(buffer, 0, 512, uint8_t{1}).ok());
  ASSERT_TRUE(two.fill(buffer, 256, 512, uint8_t{2}).ok());
  go = true;
  ASSERT_TRUE(one.synchronize().ok() && two.synchronize().ok());
  EXPECT_THAT(report(), AllOf(HasSubstr("[race] stream 2 of cpu:0 (plugin 'cpu'), stream.fill: operation 1 of stream 2 of cpu:0 "
                                        "(fill) writes bytes 256 to 512 of buffer"),
                              HasSubstr("operation 2 of stream 1 of cpu:0 (fill) writes them"),
                              HasSubstr("let stream 2 of cpu:0 wait for event ")));
}

TEST_F(ValidatedRuntimeTest, WhatEventsKeepApartIsSilent) {
  std::vector<uint8_t> result(1024);
  {
    Buffer buffer = device.alloc(1024).value(), copy = device.alloc(1024).value();
    for (int round = 0; round < 20; ++round) {
      const Event filled = one.fill(buffer, 0, 1024, uint8_t(round)).value();
      ASSERT_TRUE(two.wait(filled).ok());
      const Event copied = two.copy(copy, 0, buffer, 0, 1024).value();
      ASSERT_TRUE(one.wait(copied).ok());
      if (round % 5 == 0) {
        ASSERT_TRUE(two.synchronize().ok());
      }
    }
    ASSERT_TRUE(two.read(copy, 0, result.data(), result.size()).value().synchronize().ok());
    EXPECT_EQ(result, std::vector<uint8_t>(1024, 19));
    const Event last = one.record().value();
    ASSERT_TRUE(buffer.destroy_after({last}).ok());
    ASSERT_TRUE(one.synchronize().ok());
  }
  for (int round = 0; round < 20; ++round) {  // memory that goes from one stream to the other
    Stream &from = round % 2 ? one : two, &to = round % 2 ? two : one;
    Buffer buffer = from.alloc(4096).value();
    const Event filled = from.fill(buffer, 0, 4096, uint32_t(round)).value();
    ASSERT_TRUE(to.wait(filled).ok());
    const Event read = to.read(buffer, 0, result.data(), 1024).value();
    ASSERT_TRUE(buffer.destroy_after({read}).ok());
  }
  ASSERT_TRUE(one.synchronize().ok() && two.synchronize().ok());
  EXPECT_EQ(report(), "");
}

TEST_F(ValidatedRuntimeTest, CapturedWorkIsSilentOnceItIsInOrder) {
  Buffer buffer = device.alloc(1024).value();
  ASSERT_TRUE(one.capture_begin().ok());
  ASSERT_TRUE(one.fill(buffer, 0, 1024, uint8_t{1}).ok());
  auto program = one.capture_end();
  ASSERT_TRUE(program.ok()) << program.status().message();
  const Event first = one.launch(*program, {}).value();
  ASSERT_TRUE(two.wait(first).ok());
  ASSERT_TRUE(two.launch(*program, {}).ok());
  ASSERT_TRUE(two.synchronize().ok());
  EXPECT_EQ(report(), "");
}

}  // namespace
