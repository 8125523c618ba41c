#include "fakes/fork.h"
#include "hal_fixture.h"

#include "core/base/last_error.h"

#include <sys/wait.h>
#include <unistd.h>
#include <thread>

namespace belay::hal {
namespace {

class DeviceTest : public HalTest {};

TEST_F(DeviceTest, DevicesOfAllDriversAreOneListAndFoundByName) {
  NiceDriver& one = add_driver("one");
  ON_CALL(one, device_count).WillByDefault(Return(2));
  add_driver("two");
  start();
  EXPECT_EQ(vt().device_count(host()), 3u);
  EXPECT_EQ(*hal_->devices().find("one:1"), 1u);
  EXPECT_EQ(*hal_->devices().find("two"), 2u);
  const auto missing = hal_->devices().find("three:0");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), AllOf(HasSubstr("'three:0'"), HasSubstr("one:0, one:1, two:0")));
  belay_obj* out = nullptr;
  const Status past = take(vt().device(host(), 3, &out));
  EXPECT_EQ(past.code(), Code::kOutOfRange);
  EXPECT_THAT(past.message(), HasSubstr("there are 3"));
}

TEST_F(DeviceTest, ADeviceIsOpenedOnceAndTheLeastLoadedIsAuto) {
  NiceDriver& driver = add_driver("one");
  ON_CALL(driver, device_count).WillByDefault(Return(2));
  EXPECT_CALL(driver, open_device(0)).Times(1);
  start();
  EXPECT_EQ(device(0), device(0));
  EXPECT_EQ(*hal_->devices().find("auto"), 0u);
  belay_obj* block = buffer(device(0), 4096);
  EXPECT_EQ(*hal_->devices().find("auto"), 1u);
  vt().buffer_destroy(host(), block);
  EXPECT_EQ(*hal_->devices().find("auto"), 0u);
}

TEST_F(DeviceTest, ADriverThatCannotOpenKeepsItsReason) {
  NiceDriver& driver = add_driver("one");
  EXPECT_CALL(driver, open_device).WillOnce([](uint64_t) -> Result<std::unique_ptr<MockDevice>> {
    return Status(Code::kUnavailable, "Another process uses it.");
  });
  start();
  belay_obj* out = nullptr;
  const Status status = take(vt().device(host(), 0, &out));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "Another process uses it. (while opening device 'one:0')");
}

TEST_F(DeviceTest, ADeviceWithRubbishForHeapsIsRefusedAndClosed) {
  NiceDevice& mock = add_device("one");
  EXPECT_CALL(mock, info).WillRepeatedly([](belay_device_info* info) {
    static_cast<void>(belay::testing::plain_device_info(info));
    info->heap_count = 0;
    return Status();
  });
  EXPECT_CALL(mock, died()).Times(1);
  start();
  belay_obj* out = nullptr;
  const Status status = take(vt().device(host(), 0, &out));
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("has 0 heaps"));
}

TEST_F(DeviceTest, AllocationsAreCheckedCountedAndFoundByAddress) {
  start();
  belay_obj* on = device();
  belay_obj* first = buffer(on, 1000);
  belay_obj* second = buffer(on, 24);
  auto memory = request<belay_hal_memory_info>();
  StringSink usage;
  memory.usage = usage.sink();
  ASSERT_TRUE(take(vt().memory_info(host(), on, &memory)).ok());
  EXPECT_EQ(memory.bytes, 1024u);
  EXPECT_EQ(memory.buffers, 2u);
  EXPECT_EQ(usage.text(), "1.0 KiB in 2 buffers (application 1.0 KiB)");

  auto info = request<belay_hal_buffer_info>();
  ASSERT_TRUE(take(vt().buffer_info(host(), first, &info)).ok());
  EXPECT_EQ(info.bytes, 1000u);
  EXPECT_EQ(info.device, on);
  belay_obj* found = nullptr;
  uint64_t offset = 0;
  char* base = static_cast<char*>(info.host);
  ASSERT_TRUE(take(vt().find(host(), base + 999, &found, &offset)).ok());
  EXPECT_EQ(found, first);
  EXPECT_EQ(offset, 999u);
  EXPECT_EQ(vt().find(host(), base + 1000, &found, &offset), BELAY_NOT_FOUND);

  vt().buffer_destroy(host(), first);
  EXPECT_EQ(vt().find(host(), base, &found, &offset), BELAY_NOT_FOUND);
  EXPECT_EQ(take(vt().buffer_info(host(), first, &info)).code(), Code::kNotFound);
  vt().buffer_destroy(host(), second);
  ASSERT_TRUE(take(vt().memory_info(host(), on, &memory)).ok());
  EXPECT_EQ(memory.bytes, 0u);
  EXPECT_EQ(memory.peak_bytes, 1024u);
}

TEST_F(DeviceTest, WhatFailedIsNotInThePeak) {
  NiceDevice& on = add_device("mock");
  start({.memory_limit = uint64_t{1} << 50});
  vt().buffer_destroy(host(), buffer(device(), 1000));
  EXPECT_CALL(on, alloc).WillRepeatedly(Return(Status(Code::kResourceExhausted, "No room.")));
  auto req = request<belay_alloc_req>();
  for (const uint64_t bytes : {uint64_t{1} << 45, uint64_t{1} << 51}) {  // the driver refuses, and the limit
    req.bytes = bytes;
    belay_obj* out = nullptr;
    EXPECT_EQ(take(vt().buffer_create(host(), device(), &req, &out)).code(), Code::kResourceExhausted);
    auto memory = request<belay_hal_memory_info>();
    ASSERT_TRUE(take(vt().memory_info(host(), device(), &memory)).ok());
    EXPECT_EQ(memory.bytes, 0u);
    EXPECT_EQ(memory.peak_bytes, 1000u);
  }
}

TEST_F(DeviceTest, LentHostMemoryIsFoundButNotCounted) {
  start();
  alignas(64) static char lent[256];
  auto req = request<belay_alloc_req>();
  req.bytes = sizeof lent, req.host = lent;
  belay_obj *whole = nullptr, *part = nullptr;
  ASSERT_TRUE(take(vt().buffer_create(host(), device(), &req, &whole)).ok());
  req.bytes = 16, req.host = lent + 64;
  ASSERT_TRUE(take(vt().buffer_create(host(), device(), &req, &part)).ok());
  belay_obj* found = nullptr;
  uint64_t offset = 0;
  ASSERT_TRUE(
      take(vt().find(host(), lent + 200, &found, &offset)).ok());  // behind the part, inside the whole
  EXPECT_EQ(found, whole);
  auto memory = request<belay_hal_memory_info>();
  ASSERT_TRUE(take(vt().memory_info(host(), device(), &memory)).ok());
  EXPECT_EQ(memory.bytes, 0u);
  vt().buffer_destroy(host(), whole);
  vt().buffer_destroy(host(), part);
}

TEST_F(DeviceTest, WrongAllocationsNameTheValue) {
  NiceDevice& mock = add_device("one");
  start();
  belay_obj* on = device();
  EXPECT_CALL(mock, alloc).Times(0);
  const auto failure = [&](auto change) {
    auto req = request<belay_alloc_req>();
    req.bytes = 8;
    change(req);
    belay_obj* out = nullptr;
    return take(vt().buffer_create(host(), on, &req, &out)).message();
  };
  EXPECT_THAT(failure([](auto& req) { req.align = 48; }), HasSubstr("align is 48"));
  EXPECT_THAT(failure([](auto& req) { req.heap = 1; }), HasSubstr("heap is 1, want less than 1"));
  EXPECT_THAT(failure([](auto& req) { req.access = 8; }), HasSubstr("access is 8"));
  EXPECT_THAT(failure([](auto& req) { req.hdr.struct_size = 3; }), HasSubstr("struct_size"));
}

TEST_F(DeviceTest, OutOfMemorySaysWhoHasIt) {
  NiceDevice& mock = add_device("one");
  start();
  belay_obj* on = device();
  belay_obj* held = buffer(on, 3 << 20);
  EXPECT_CALL(mock, alloc)
      .WillOnce(Return(Result<void*>(Status(Code::kResourceExhausted, "Asked for 8 bytes, 0 are free."))));
  auto req = request<belay_alloc_req>();
  req.bytes = 8;
  belay_obj* out = nullptr;
  const Status status = take(vt().buffer_create(host(), on, &req, &out));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("Asked for 8 bytes"), HasSubstr("3.0 MiB in 1 buffer (application 3.0 MiB)")));
  vt().buffer_destroy(host(), held);
}

TEST_F(DeviceTest, TheConfiguredLimitHolds) {
  start({.memory_limit = 1000});
  belay_obj* on = device();
  belay_obj* held = buffer(on, 600);
  auto req = request<belay_alloc_req>();
  req.bytes = 401;
  belay_obj* out = nullptr;
  const Status status = take(vt().buffer_create(host(), on, &req, &out));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("limit of 1000 B"), HasSubstr("[memory] limit")));
  req.bytes = UINT64_MAX;
  EXPECT_EQ(take(vt().buffer_create(host(), on, &req, &out)).code(), Code::kResourceExhausted);
  vt().buffer_destroy(host(), held);
  req.bytes = 1000;
  ASSERT_TRUE(take(vt().buffer_create(host(), on, &req, &out)).ok());
  vt().buffer_destroy(host(), out);
}

TEST_F(DeviceTest, WhatIsLeftIsEndedAndNamed) {
  NiceDevice& mock = add_device("one");
  start();
  belay_obj* on = device();
  NiceStream& stream_mock = next_stream(mock);
  EXPECT_CALL(stream_mock, died()).Times(1);
  EXPECT_CALL(mock, free).Times(1);
  EXPECT_CALL(mock, died()).Times(1);
  stream(on);
  buffer(on, 2048);
  hal_.reset();
  EXPECT_THAT(log(), AllOf(Contains(HasSubstr("A stream of 'one:0'")),
                           Contains(HasSubstr("A buffer of 2.0 KiB on 'one:0'"))));
}

TEST_F(DeviceTest, ResetWithoutTheSlotIsUnimplementedAndHealthIsPassedOn) {
  NiceDevice& mock = add_device("one");
  EXPECT_CALL(mock, health).WillOnce([](belay_health* health) {
    health->state = 1;
    write(health->reason, "link down");
    return Status();
  });
  start();
  StringSink reason;
  auto health = request<belay_health>();
  health.reason = reason.sink();
  ASSERT_TRUE(take(vt().health(host(), device(), &health)).ok());
  EXPECT_EQ(health.state, 1u);
  EXPECT_EQ(reason.text(), "link down");
  EXPECT_CALL(mock, reset).WillOnce(Return(Status()));
  EXPECT_TRUE(take(vt().reset(host(), device())).ok());
}

TEST_F(DeviceTest, InAForkedChildEveryCallNamesTheProcessAndDestroyDoesNothing) {
  NiceDevice& mock = add_device("one");
  start();
  belay_obj* on = device();
  NiceStream& stream_mock = next_stream(mock);
  belay_obj* queue = stream(on);
  belay_obj* block = buffer(on, 64);
  belay_event event{};
  auto launch = request<belay_launch_req>();
  launch.kernel = &kNothing;
  ASSERT_TRUE(take(vt().launch(host(), queue, &launch, &event)).ok());
  const std::string creator = "process " + std::to_string(getpid());
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = belay::testing::fork_at_rest();
  if (child == 0) {
    int wrong = 0;
    const auto expect = [&](const Status& status) {
      if (status.code() != Code::kFailedPrecondition || status.message().find(creator) == std::string::npos)
        ++wrong;
    };
    expect(take(vt().launch(host(), queue, &launch, nullptr)));
    expect(take(vt().synchronize(host(), event, 0)));
    expect(take(vt().wait(host(), queue, event)));
    auto alloc = request<belay_alloc_req>();
    belay_obj* out = nullptr;
    expect(take(vt().buffer_create(host(), on, &alloc, &out)));
    expect(take(vt().device(host(), 0, &out)));
    if (vt().device_count(host()) != 0) ++wrong;
    vt().stream_destroy(host(), queue);  // would call the mock
    vt().buffer_destroy(host(), block);
    _exit(wrong);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_CALL(stream_mock, died()).Times(1);  // here, in the parent
  vt().stream_destroy(host(), queue);
  vt().buffer_destroy(host(), block);
}

TEST_F(DeviceTest, ThreadsAllocateFreeAndLookUpAtOnce) {
  start();
  belay_obj* on = device();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        belay_obj* block = buffer(on, 64);
        auto info = request<belay_hal_buffer_info>();
        EXPECT_TRUE(take(vt().buffer_info(host(), block, &info)).ok());
        belay_obj* found = nullptr;
        uint64_t offset = 0;
        EXPECT_EQ(vt().find(host(), info.host, &found, &offset), BELAY_OK);
        EXPECT_EQ(found, block);
        vt().buffer_destroy(host(), block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  auto memory = request<belay_hal_memory_info>();
  ASSERT_TRUE(take(vt().memory_info(host(), on, &memory)).ok());
  EXPECT_EQ(memory.bytes, 0u);
  EXPECT_EQ(memory.allocations, 800u);
}

}  // namespace

TEST_F(DeviceTest, TheApplicationsLastErrorIsThatOfItsOwnCalls) {
  start();
  const auto last = [&] { return take(core::take_last_error()); };
  (void)last();  // of tests before
  belay_obj* out = nullptr;
  EXPECT_FALSE(take(vt().device(host(), 7, &out)).ok());
  const belay_host* plugin = &core_host_->table_for("engine").abi;
  const Status engines = from_c(*plugin, vt().device(plugin, 8, &out));
  EXPECT_EQ(engines.code(), Code::kOutOfRange);
  uint64_t offset = 0;
  EXPECT_EQ(vt().find(host(), &offset, &out, &offset), BELAY_NOT_FOUND);  // an answer
  const Status status = last();
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("no device 7"));
  vt().stream_destroy(host(), static_cast<belay_obj*>(nullptr));
  EXPECT_TRUE(last().ok());
  vt().buffer_destroy(host(), device());  // gives no status
  EXPECT_THAT(last().message(), HasSubstr("buffer_destroy: buffer is a device, want a buffer"));
}

}  // namespace belay::hal
