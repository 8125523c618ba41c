// The null driver through a real host: loaded from TOML, driven through its C tables.
#include "core/host.h"
#include "core/base/status_table.h"

#include <belay/kinds.hpp>
#include <belay/testing/fake_host.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

namespace belay {
namespace {

using testing::Adopted;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class NullDriverTest : public ::testing::Test {
 protected:
  using Stream = Adopted<belay_stream_vt>;

  void SetUp() override {
    core::Config config;
    ASSERT_TRUE(config
                    .add_text("null.toml",
                              "[runtime]\nplugins = [\"null\"]\nallow_insecure = true\n"
                              "[plugin.null.config]\nmemory = \"1MiB\"\nqueue_depth = 4\n")
                    .ok());
    auto made = core::Host::create(
        {.config = std::move(config), .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}, .standard_plugin_dirs = false});
    ASSERT_TRUE(made.ok()) << made.status().message();
    host_ = std::move(made).value();
    for (const TableShape& kind : kComponentKinds) host_->add_kind(kind);
    ASSERT_TRUE(host_->start().ok());
    auto lease = host_->acquire("belay.driver/1:null");
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    driver_ = std::move(lease).value();
    belay_created created{};
    ASSERT_TRUE(take(driver_.table<belay_driver_vt>().open_device(driver_.object(), 0, &created)).ok());
    device_ = Adopted<belay_device_vt>(BELAY_OBJ_DEVICE, static_cast<const belay_device_vt*>(created.table),
                                       created.impl);
    ASSERT_TRUE(check_table(shape::kDevice, created.table, "null").ok());
  }
  void TearDown() override {
    device_.reset();
    driver_.reset();
    if (host_) {
      EXPECT_TRUE(host_->shutdown(10s).ok());
    }
    host_.reset();
    EXPECT_EQ(core::live_details(), 0u);
  }

  Status take(belay_status raw) { return from_c(host_->table(), raw); }

  Stream stream(uint64_t timeline, uint32_t flags = 0) {
    belay_stream_req req{{sizeof req, flags, nullptr}, timeline, 0, 0};
    belay_created created{};
    EXPECT_TRUE(take(device_->stream_create(device_, &req, &created)).ok());
    EXPECT_TRUE(check_table(shape::kStream, created.table, "null").ok());
    return Stream(BELAY_OBJ_STREAM, static_cast<const belay_stream_vt*>(created.table), created.impl);
  }
  Status copy(const Stream& on, void* dst, const void* src, uint64_t bytes, uint64_t* value) {
    belay_copy_req req{};
    req.hdr.struct_size = sizeof req;
    req.host_dst = dst, req.host_src = src, req.bytes = bytes;
    return take(on->copy(on, &req, value));
  }
  Status launch(const Stream& on, const belay_kernel& kernel, uint64_t arg, uint64_t* value) {
    belay_launch_req req{};
    req.hdr.struct_size = sizeof req;
    req.kernel = &kernel, req.args = &arg, req.arg_count = 1;
    return take(on->launch(on, &req, value));
  }

  std::unique_ptr<core::Host> host_;
  core::Lease driver_;
  Adopted<belay_device_vt> device_;
};

const belay_kernel kAddOne = {{sizeof(belay_kernel), 0, nullptr},
                              [](const belay_exec* exec, const void*, const uint64_t* args) -> belay_status {
                                ++*reinterpret_cast<int*>(args[0]);
                                return exec->scratch(exec, 100) ? BELAY_OK : BELAY_RESOURCE_EXHAUSTED;
                              },
                              nullptr,
                              0,
                              literal("add_one")};
const belay_kernel kFails = {{sizeof(belay_kernel), 0, nullptr},
                             [](const belay_exec* exec, const void*, const uint64_t*) {
                               return exec->fail(exec, BELAY_DATA_LOSS, to_str("the weights are gone"));
                             },
                             nullptr,
                             0,
                             literal("fails")};

TEST_F(NullDriverTest, TellsWhatItIs) {
  const auto& table = driver_.table<belay_driver_vt>();
  EXPECT_EQ(table.device_count(driver_.object()), 1u);
  belay_device_info info{};
  info.hdr.struct_size = sizeof info;
  ASSERT_TRUE(take(table.device_info(driver_.object(), 0, &info)).ok());
  EXPECT_EQ(info.memory_bytes, 1u << 20);
  EXPECT_EQ(info.queue_depth, 4u);
  EXPECT_EQ(take(table.device_info(driver_.object(), 9, &info)).code(), Code::kOutOfRange);
  belay_created again{};
  EXPECT_EQ(take(table.open_device(driver_.object(), 0, &again)).code(), Code::kAlreadyExists);
}

TEST_F(NullDriverTest, MemoryIsCountedAndBounded) {
  belay_alloc_req req{};
  req.hdr.struct_size = sizeof req;
  req.bytes = 1 << 20, req.align = 4096;
  belay_created buffer{};
  ASSERT_TRUE(take(device_->alloc(device_, &req, &buffer)).ok());
  belay_obj object{BELAY_OBJ_MAGIC, BELAY_OBJ_BUFFER, 1, nullptr, buffer.impl, {}};
  void* address = nullptr;
  ASSERT_TRUE(take(device_->map(device_, &object, &address)).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 4096, 0u);
  belay_created more{};
  const Status full = take(device_->alloc(device_, &req, &more));
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("1048576 of 1048576 are in use"));
  Stream one = stream(1);
  belay_fill_req fill{};
  fill.hdr.struct_size = sizeof fill;
  fill.dst = &object, fill.bytes = 8, fill.dst_offset = 4, fill.pattern = 0x01020304, fill.pattern_bytes = 4;
  uint64_t value = 0;
  ASSERT_TRUE(take(one->fill(one, &fill, &value)).ok());
  EXPECT_EQ(std::memcmp(static_cast<char*>(address) + 4, "\4\3\2\1\4\3\2\1", 8), 0);
  fill.dst_offset = (1 << 20) - 4;
  EXPECT_EQ(take(one->fill(one, &fill, &value)).code(), Code::kOutOfRange);
  fill.pattern_bytes = 3;
  EXPECT_EQ(take(one->fill(one, &fill, &value)).code(), Code::kInvalidArgument);
  device_->free(device_, &object);
  belay_heap_info heap{};
  heap.hdr.struct_size = sizeof heap;
  ASSERT_TRUE(take(device_->heap(device_, 0, &heap)).ok());
  EXPECT_EQ(heap.free_bytes, 1u << 20);
}

TEST_F(NullDriverTest, WorkIsDoneAtOnceAndInOrder) {
  Stream one = stream(1);
  int from = 7, to = 0;
  uint64_t copied = 0, added = 0;
  ASSERT_TRUE(copy(one, &to, &from, sizeof to, &copied).ok());
  ASSERT_TRUE(launch(one, kAddOne, reinterpret_cast<uint64_t>(&to), &added).ok());
  EXPECT_EQ(to, 8);
  EXPECT_EQ(added, copied + 1);
  EXPECT_EQ(one->last_value(one), added);
  EXPECT_TRUE(take(one->query(one, added)).ok());
  EXPECT_EQ(take(one->synchronize(one, added + 1, 0)).code(), Code::kFailedPrecondition);
  char overlapping[16] = {};
  EXPECT_EQ(copy(one, overlapping + 4, overlapping, 8, &copied).code(), Code::kInvalidArgument);
}

TEST_F(NullDriverTest, AFailureFailsWhatFollowsUntilItIsRecoveredAndNamesItsOrigin) {
  Stream one = stream(1), two = stream(2);
  int number = 0;
  uint64_t bad = 0, after = 0, waited = 0, good = 0;
  ASSERT_TRUE(launch(one, kFails, 0, &bad).ok());
  ASSERT_TRUE(launch(one, kAddOne, reinterpret_cast<uint64_t>(&number), &after).ok());
  EXPECT_EQ(number, 0);
  const Status status = take(one->synchronize(one, after, BELAY_FOREVER));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("the weights are gone"), HasSubstr("kernel fails"),
                                      HasSubstr("of timeline 1")));
  ASSERT_TRUE(take(two->wait(two, {1, bad}, &waited)).ok());  // passes on, with its origin
  EXPECT_THAT(take(two->synchronize(two, waited, BELAY_FOREVER)).message(), HasSubstr("of timeline 1"));
  ASSERT_TRUE(take(one->recover(one)).ok());
  ASSERT_TRUE(launch(one, kAddOne, reinterpret_cast<uint64_t>(&number), &good).ok());
  EXPECT_TRUE(take(one->synchronize(one, good, BELAY_FOREVER)).ok());
  EXPECT_EQ(number, 1);
  EXPECT_FALSE(take(one->query(one, bad)).ok());
}

TEST_F(NullDriverTest, HostCallsRunOnAnotherThreadInOrder) {
  Stream one = stream(1);
  struct State {
    std::thread::id thread;
    int number = 0, seen = -1;
  } state;
  uint64_t value = 0;
  ASSERT_TRUE(launch(one, kAddOne, reinterpret_cast<uint64_t>(&state.number), &value).ok());
  ASSERT_TRUE(take(one->host_call(
                       one,
                       [](void* user) {
                         auto* s = static_cast<State*>(user);
                         std::this_thread::sleep_for(5ms);
                         s->thread = std::this_thread::get_id(), s->seen = s->number;
                       },
                       &state, &value))
                  .ok());
  ASSERT_TRUE(launch(one, kAddOne, reinterpret_cast<uint64_t>(&state.number), &value).ok());
  ASSERT_TRUE(take(one->synchronize(one, value, BELAY_FOREVER)).ok());
  EXPECT_EQ(state.seen, 1);
  EXPECT_EQ(state.number, 2);
  EXPECT_NE(state.thread, std::this_thread::get_id());
}

TEST_F(NullDriverTest, AWaitForATimelineOfTheHostHoldsTheStreamAndFillsItsQueue) {
  Stream one = stream(1);
  int number = 0;
  uint64_t value = 0;
  EXPECT_EQ(take(one->wait(one, {77, 1}, &value)).code(), Code::kNotFound);
  ASSERT_TRUE(take(device_->timeline_signal(device_, 77, 0, BELAY_OK)).ok());
  ASSERT_TRUE(take(one->wait(one, {77, 3}, &value)).ok());
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(launch(one, kAddOne, reinterpret_cast<uint64_t>(&number), &value).ok());
  const Status full = launch(one, kAddOne, reinterpret_cast<uint64_t>(&number), &value);
  EXPECT_EQ(full.code(), Code::kQueueFull);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(take(one->synchronize(one, value, 1000000)).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(take(one->query(one, value)).code(), Code::kUnavailable);
  std::atomic<int> reached{0};
  ASSERT_TRUE(take(one->on_reached(one, value,
                                   {&reached,
                                    [](void* user, belay_status status) {
                                      *static_cast<std::atomic<int>*>(user) += status == BELAY_OK ? 1 : 100;
                                    }}))
                  .ok());
  EXPECT_EQ(reached, 0);
  ASSERT_TRUE(take(device_->timeline_signal(device_, 77, 3, BELAY_OK)).ok());
  EXPECT_TRUE(take(one->synchronize(one, value, BELAY_FOREVER)).ok());
  EXPECT_EQ(number, 3);
  EXPECT_EQ(reached, 1);
  device_->timeline_destroy(device_, 77);
}

TEST_F(NullDriverTest, ManyThreadsDriveStreamsThatWaitForEachOther) {
  std::vector<std::thread> threads;
  std::vector<Stream> streams;
  for (uint64_t i = 1; i <= 4; ++i) streams.push_back(stream(i));
  std::vector<int> numbers(4);
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Stream& mine = streams[t];
      Stream& other = streams[(t + 1) % 4];
      uint64_t value = 0;
      for (int i = 0; i < 100; ++i) {
        while (!launch(mine, kAddOne, reinterpret_cast<uint64_t>(&numbers[t]), &value).ok())
          std::this_thread::yield();
        const uint64_t last = other->last_value(other);
        while (!take(mine->wait(mine, {(t + 1) % 4 + 1, last}, &value)).ok()) std::this_thread::yield();
        if (i % 10 == 0)
          while (!take(mine->host_call(
                           mine, [](void*) {}, nullptr, &value))
                      .ok())
            std::this_thread::yield();
      }
      ASSERT_TRUE(take(mine->synchronize(mine, value, BELAY_FOREVER)).ok());
    });
  for (auto& thread : threads) thread.join();
  for (const int number : numbers) EXPECT_EQ(number, 100);
}

}  // namespace
}  // namespace belay
