// Memory made and ended in the order of streams whose work takes random times: nobody meets the bytes of
// another.
#include <belay/abi/plugin.h>
#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

namespace {

using belay::Buffer;
using belay::Event;
using belay::Stream;

constexpr bool kSlow = BELAY_SANITIZER != BELAY_SANITIZER_NONE;

struct Case {
  const char* name;
  std::vector<std::string> sets;
};

class OrderedMemoryTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    std::vector<std::string> sets = GetParam().sets;
    sets.insert(sets.end(), {"log.level=warning", "engine.use=\"\"", "models.formats=[]"});
    auto made = belay::Runtime::create({.sets = std::move(sets), .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
    ASSERT_TRUE(made.ok()) << made.status().message();
    runtime_ = std::move(made).value();
    device_ = runtime_.default_device().value();
  }
  // Makes a buffer on the stream, fills it at some time, looks at it at another, and ends it meanwhile; where
  // `elsewhere` is given that one looks too.
  void use(Stream& stream, Stream* elsewhere, uint64_t bytes, char tag, std::minstd_rand& random) {
    auto made = stream.alloc(bytes);
    ASSERT_TRUE(made.ok()) << made.status().message();
    Buffer buffer = std::move(made).value();
    char* const at = static_cast<char*>(buffer.host());
    const auto pause = [us = random() % 60] {
      if (us > 20) std::this_thread::sleep_for(std::chrono::microseconds(us));
    };
    const auto look = [this, at, bytes, tag, pause] {
      pause();
      for (uint64_t i = 0; i < bytes; ++i)
        if (at[i] != tag) {
          wrong_.fetch_add(1);
          return;
        }
    };
    ASSERT_TRUE(stream
                    .host_call([at, bytes, tag, pause] {
                      pause();
                      std::memset(at, tag, bytes);
                    })
                    .ok());
    auto seen = stream.host_call(look);
    ASSERT_TRUE(seen.ok());
    if (!elsewhere) {
      ASSERT_TRUE(buffer.destroy_after({*seen}).ok());
      return;
    }
    ASSERT_TRUE(elsewhere->wait(*seen).ok());
    auto last = elsewhere->host_call(look);
    ASSERT_TRUE(last.ok());
    ASSERT_TRUE(buffer.destroy_after({*seen, *last}).ok());
  }

  belay::Runtime runtime_;
  belay::Device device_;
  std::atomic<int> wrong_{0};
};

TEST_P(OrderedMemoryTest, NobodyMeetsTheBytesOfAnother) {
  constexpr size_t kStreams = 4;
  const int rounds = kSlow ? 300 : 3000;
  std::vector<Stream> streams;
  for (size_t i = 0; i < kStreams; ++i) streams.push_back(device_.stream({.block = true}).value());
  std::minstd_rand random(7);
  for (int i = 0; i < rounds; ++i) {
    Stream& stream = streams[random() % kStreams];
    Stream& other = streams[random() % kStreams];
    const uint64_t bytes = 1 + random() % (i % 7 ? 3000 : 60000);
    use(stream, i % 3 || &other == &stream ? nullptr : &other, bytes, char(1 + i % 100), random);
    if (HasFatalFailure()) return;
  }
  for (Stream& stream : streams) ASSERT_TRUE(stream.record()->synchronize().ok());
  EXPECT_EQ(wrong_, 0);
  EXPECT_EQ(device_.memory()->buffers, 0u);
  EXPECT_EQ(device_.memory()->damaged, 0u);
}

TEST_P(OrderedMemoryTest, ThreadsWithAStreamEach) {
  const int rounds = kSlow ? 80 : 600;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Stream stream = device_.stream({.block = true}).value();
      std::minstd_rand random(t + 1);
      for (int i = 0; i < rounds && !HasFatalFailure(); ++i)
        use(stream, nullptr, 1 + random() % 5000, char(1 + t * 25 + i % 25), random);
      EXPECT_TRUE(stream.record()->synchronize().ok());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong_, 0);
}

// A stream that the application holds up holds up nobody who can do without its memory.
TEST_P(OrderedMemoryTest, AStreamThatStandsStillHoldsUpNobodyElse) {
  Stream held = device_.stream().value(), other = device_.stream().value();
  std::atomic<bool> go{false};
  std::vector<Buffer> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(held.alloc(100 << 10).value());
  auto stands = held.host_call([&] {
    while (!go) std::this_thread::yield();
  });
  ASSERT_TRUE(stands.ok());
  for (Buffer& buffer : kept) ASSERT_TRUE(buffer.destroy_after({*stands}).ok());
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(device_.alloc(1000 + i * 3000).ok());
    ASSERT_TRUE(other.alloc(1000 + i * 3000).ok());
  }
  ASSERT_TRUE(other.record()->synchronize().ok());
  go = true;
  ASSERT_TRUE(held.record()->synchronize().ok());
}

// Whatever is still queued when memory runs out, it comes back and the next one that asks gets it.
TEST_P(OrderedMemoryTest, MemoryThatRunsOutComesBack) {
  Stream stream = device_.stream({.block = true}).value();
  std::minstd_rand random(3);
  int made = 0, refused = 0;
  for (int i = 0; i < 200; ++i) {
    auto buffer = stream.alloc(700 << 10);
    if (!buffer.ok()) {
      EXPECT_EQ(buffer.status().code(), belay::Code::kResourceExhausted) << buffer.status().message();
      ++refused;
      ASSERT_TRUE(stream.record()->synchronize().ok());
      continue;
    }
    ++made;
    auto last = stream.host_call([] { std::this_thread::sleep_for(std::chrono::microseconds(30)); });
    ASSERT_TRUE(buffer->destroy_after({*last}).ok());
  }
  EXPECT_GE(made, 100);
}

// Threads that want more than there is wait for what others have ended, whoever of them looks first.
class ShortMemoryTest : public OrderedMemoryTest {};

TEST_P(ShortMemoryTest, ThreadsThatRunOutWaitForEachOther) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Stream stream = device_.stream({.block = true}).value();
      for (int i = 0; i < (kSlow ? 200 : 2000) && !HasFailure(); ++i) {
        auto one = stream.alloc(100 << 10), two = device_.alloc(60 << 10);
        ASSERT_TRUE(one.ok()) << one.status().message();
        ASSERT_TRUE(two.ok()) << two.status().message();
        const auto filled = stream.fill<uint32_t>(*one, 0, 100 << 10, uint32_t(t));
        const auto copied = stream.copy(*two, 0, *one, 0, 60 << 10);
        ASSERT_TRUE(filled.ok() && copied.ok());
        ASSERT_TRUE(one->destroy_after({*copied}).ok());
        ASSERT_TRUE(two->destroy_after({*copied}).ok());
      }
      EXPECT_TRUE(stream.synchronize().ok());
    });
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Policies, ShortMemoryTest,
                         ::testing::Values(Case{"None", {"memory.policies=[]", "memory.limit=\"1MiB\""}},
                                           Case{"Checked",
                                                {"memory.policies=[]", "memory.checked=true", "memory.limit=\"1MiB\""}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(OrderedMemoryTest, WhatIsLeftIsNamedWithItsOwner) {
  auto left = device_.alloc(12345);
  ASSERT_TRUE(left.ok());
  ::testing::internal::CaptureStderr();
  runtime_ = belay::Runtime();
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::HasSubstr("A buffer of 12.1 KiB on 'cpu:0' of owner 'application' was not destroyed"));
}

INSTANTIATE_TEST_SUITE_P(
    Policies, OrderedMemoryTest,
    ::testing::Values(Case{"None", {"memory.policies=[]", "memory.limit=\"64MiB\""}},
                      Case{"Pool", {"memory.policies=[\"pool\"]", "memory.limit=\"64MiB\""}},
                      Case{"SmallPool",
                           {"memory.policies=[\"pool\"]", "plugin.pool.config.pool_size=\"1MiB\"",
                            "plugin.pool.config.growth=\"0\"", "plugin.pool.config.soft_limit=\"1MiB\"",
                            "plugin.pool.config.hard_limit=\"4MiB\""}},
                      Case{"GrowFirst",
                           {"memory.policies=[\"pool\"]", "plugin.pool.config.cross_stream=\"grow\"",
                            "memory.limit=\"64MiB\""}},
                      Case{"Checked",
                           {"memory.policies=[\"pool\"]", "memory.checked=true", "memory.limit=\"64MiB\""}}),
    [](const ::testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
