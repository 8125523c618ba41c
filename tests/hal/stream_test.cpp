#include "hal_fixture.h"

#include <atomic>
#include <thread>

namespace belay::hal {
namespace {

class StreamTest : public HalTest {
 protected:
  void SetUp() override { mock_device_ = &add_device("mock"); }
  // Opens the device and a stream of it.
  NiceStream& open(HalOptions options = {}, uint32_t flags = 0) {
    start(options);
    device_ = device();
    NiceStream& mock = next_stream(*mock_device_);
    stream_ = stream(device_, flags);
    return mock;
  }
  Status launch(belay_event* event = nullptr) {
    auto req = request<belay_launch_req>();
    req.kernel = &kNothing;
    return take(vt().launch(host(), stream_, &req, event));
  }

  NiceDevice* mock_device_ = nullptr;
  belay_obj* device_ = nullptr;
  belay_obj* stream_ = nullptr;
};

TEST_F(StreamTest, WhatIsQueuedReachesTheDriverAndGivesItsEvent) {
  NiceStream& mock = open();
  EXPECT_CALL(mock, launch).WillOnce(Return(Result<uint64_t>(41)));
  belay_event event{};
  ASSERT_TRUE(launch(&event).ok());
  EXPECT_EQ(event.value, 41u);
  EXPECT_TRUE(hal_->timelines().ours(event.timeline));
  EXPECT_CALL(mock, last_value).WillRepeatedly(Return(41));
  EXPECT_CALL(mock, synchronize(41, 5)).WillOnce(Return(Status()));
  EXPECT_TRUE(take(vt().synchronize(host(), event, 5)).ok());
}

TEST_F(StreamTest, AFailureKeepsItsSentence) {
  NiceStream& mock = open();
  EXPECT_CALL(mock, launch).WillOnce(Return(Status(Code::kDeviceLost, "Device 0 fell off the bus.")));
  const Status status = launch();
  EXPECT_EQ(status.code(), Code::kDeviceLost);
  EXPECT_EQ(status.message(), "Device 0 fell off the bus.");
}

TEST_F(StreamTest, CopiesOutsideABufferNeverReachTheDriver) {
  NiceStream& mock = open();
  belay_obj* small = buffer(device_, 16);
  EXPECT_CALL(mock, copy).Times(0);
  auto req = request<belay_copy_req>();
  char bytes[64];
  req.dst = small, req.dst_offset = 8, req.host_src = bytes, req.bytes = 9;
  Status status = take(vt().copy(host(), stream_, &req, nullptr));
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("8"), HasSubstr("9"), HasSubstr("16 bytes"), HasSubstr("mock:0")));
  req.dst_offset = UINT64_MAX, req.bytes = 2;  // wraps
  EXPECT_EQ(take(vt().copy(host(), stream_, &req, nullptr)).code(), Code::kOutOfRange);
  req.dst_offset = 0, req.host_src = nullptr;
  EXPECT_EQ(take(vt().copy(host(), stream_, &req, nullptr)).code(), Code::kInvalidArgument);
  req.src = small, req.src_offset = 4, req.bytes = 8;
  EXPECT_THAT(take(vt().copy(host(), stream_, &req, nullptr)).message(), HasSubstr("overlap"));
  vt().buffer_destroy(host(), small);
  EXPECT_EQ(take(vt().copy(host(), stream_, &req, nullptr)).code(), Code::kNotFound);
}

TEST_F(StreamTest, AnEmptyCopyStillTakesItsPlace) {
  NiceStream& mock = open();
  EXPECT_CALL(mock, copy).WillOnce(Return(Result<uint64_t>(3)));
  auto req = request<belay_copy_req>();
  EXPECT_TRUE(take(vt().copy(host(), stream_, &req, nullptr)).ok());
}

TEST_F(StreamTest, WrongHandlesAreNamed) {
  open();
  auto req = request<belay_launch_req>();
  req.kernel = &kNothing;
  Status status = take(vt().launch(host(), nullptr, &req, nullptr));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("launch"), HasSubstr("NULL"), HasSubstr("stream")));
  status = take(vt().launch(host(), device_, &req, nullptr));
  EXPECT_THAT(status.message(), HasSubstr("is a device, want a stream"));
  belay_obj rubbish{};
  status = take(vt().launch(host(), &rubbish, &req, nullptr));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  belay_obj* gone = stream(device_);
  vt().stream_destroy(host(), gone);
  status = take(vt().launch(host(), gone, &req, nullptr));
  EXPECT_EQ(status.code(), Code::kNotFound);
  vt().stream_destroy(host(), gone);  // twice: logged, nothing else
  EXPECT_THAT(log(), Contains(HasSubstr("stream_destroy: stream was destroyed")));
}

TEST_F(StreamTest, RequestsOfAWrongSizeOrWithoutAKernelAreRefused) {
  NiceStream& mock = open();
  EXPECT_CALL(mock, launch).Times(0);
  auto req = request<belay_launch_req>();
  EXPECT_THAT(take(vt().launch(host(), stream_, &req, nullptr)).message(), HasSubstr("kernel is NULL"));
  belay_kernel empty{};
  empty.name = to_str("hollow");
  req.kernel = &empty;
  EXPECT_THAT(take(vt().launch(host(), stream_, &req, nullptr)).message(),
              HasSubstr("'hollow' has no function"));
  req.kernel = &kNothing;
  req.arg_count = 2;
  EXPECT_THAT(take(vt().launch(host(), stream_, &req, nullptr)).message(), HasSubstr("arg_count is 2"));
  req.hdr.struct_size = 8;
  EXPECT_THAT(take(vt().launch(host(), stream_, &req, nullptr)).message(), HasSubstr("struct_size"));
  EXPECT_EQ(take(vt().launch(host(), stream_, nullptr, nullptr)).code(), Code::kInvalidArgument);
}

TEST_F(StreamTest, ADriverWithoutLaunchSaysSo) {
  mock_device_->stream_table = &stream_table_.null(&belay_stream_vt::launch).table();
  open();
  const Status status = launch();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("launches no kernels"));
}

TEST_F(StreamTest, AStreamWithoutARequiredSlotIsRefusedAndNothingIsLeft) {
  mock_device_->stream_table =
      &stream_table_.null(&belay_stream_vt::query).null(&belay_stream_vt::fill).table();
  start();
  device_ = device();
  auto req = request<belay_hal_stream_req>();
  belay_obj* out = nullptr;
  auto leaked =
      std::make_unique<NiceStream>(host());  // a broken plugin's object cannot be destroyed through its table
  MockStream* impl = leaked.get();
  EXPECT_CALL(*mock_device_, stream_create)
      .WillOnce(Return(::testing::ByMove(give<MockStream>(std::move(leaked)))));
  const Status status = take(vt().stream_create(host(), device_, &req, &out));
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("query"), HasSubstr("fill")));
  delete impl;
}

// ---- a full queue
// ----------------------------------------------------------------------------------------------------

TEST_F(StreamTest, AFullQueueIsEmptiedByTheCallerAndTheOperationQueued) {
  NiceStream& mock = open();
  EXPECT_CALL(mock, last_value).WillRepeatedly(Return(2000));
  EXPECT_CALL(mock, launch)
      .WillOnce(Return(Status(Code::kQueueFull, "full")))
      .WillOnce(Return(Result<uint64_t>(2001)));
  EXPECT_CALL(mock, synchronize(2000 - 512, BELAY_FOREVER))
      .WillOnce(Return(Status()));  // half of the depth, 1024
  EXPECT_TRUE(launch().ok());
}

TEST_F(StreamTest, AFullQueueIsReportedWhereTheConfigurationSaysSo) {
  NiceStream& mock = open({.queue_full = QueueFull::kReport});
  EXPECT_CALL(mock, launch).WillOnce(Return(Status(Code::kQueueFull, "The stream holds 1024 operations.")));
  EXPECT_CALL(mock, synchronize).Times(0);
  const Status status = launch();
  EXPECT_EQ(status.code(), Code::kQueueFull);
  EXPECT_EQ(status.message(), "The stream holds 1024 operations.");
}

TEST_F(StreamTest, BlockingSleepsUntilThereIsRoom) {
  NiceStream& mock = open({.queue_full = QueueFull::kBlock});
  EXPECT_CALL(mock, last_value).WillRepeatedly(Return(10));
  EXPECT_CALL(mock, launch)
      .WillOnce(Return(Status(Code::kQueueFull, "full")))
      .WillOnce(Return(Result<uint64_t>(11)));
  EXPECT_CALL(mock, synchronize).Times(0);
  std::thread worker;
  EXPECT_CALL(mock, on_reached(10, _)).WillOnce([&](uint64_t, belay_completion done) {
    worker = std::thread([done] { done.done(done.user, BELAY_OK); });
    return Status();
  });
  EXPECT_TRUE(launch().ok());
  worker.join();
}

TEST_F(StreamTest, AStepOfTheStreamItselfGetsQueueFullInsteadOfADeadlock) {
  NiceStream& mock = open();
  EXPECT_CALL(mock, last_value).WillRepeatedly(Return(10));
  EXPECT_CALL(mock, launch).WillOnce(Return(Status(Code::kQueueFull, "full")));
  EXPECT_CALL(mock, synchronize)
      .WillOnce(Return(Status(Code::kFailedPrecondition, "would wait for itself")))
      .WillRepeatedly(Return(Status()));  // when the stream is destroyed
  EXPECT_CALL(mock, query).WillRepeatedly(Return(Status(Code::kUnavailable, "")));
  EXPECT_EQ(launch().code(), Code::kQueueFull);
}

// ---- locks
// -----------------------------------------------------------------------------------------------------------

TEST_F(StreamTest, QueueingIsSerialForTheDriver) {
  NiceStream& mock = open();
  std::atomic<int> inside{0};
  std::atomic<bool> together{false};
  uint64_t value = 0;  // not atomic: the lock is what keeps it whole
  ON_CALL(mock, launch).WillByDefault([&](const belay_launch_req&) -> Result<uint64_t> {
    if (inside.fetch_add(1) != 0) together = true;
    ++value;
    inside.fetch_sub(1);
    return value;
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) EXPECT_TRUE(launch().ok());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(together);
  EXPECT_EQ(value, 2000u);
}

TEST_F(StreamTest, AnExceptionOfThePluginIsAStatusAndTheLockIsFree) {
  NiceStream& mock = open();
  stream_table_.set(
      &belay_stream_vt::fill, +[](belay_obj*, const belay_fill_req*, uint64_t*) -> belay_status {
        throw std::runtime_error("a plugin that throws");
      });
  mock_device_->stream_table = &stream_table_.table();
  next_stream(*mock_device_);
  belay_obj* broken = stream(device_);
  auto req = request<belay_fill_req>();
  req.dst = buffer(device_, 8);
  req.bytes = 8, req.pattern_bytes = 4;
  for (int i = 0; i < 2; ++i) {
    const Status status = take(vt().fill(host(), broken, &req, nullptr));
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("a plugin that throws"));
  }
  (void)mock;
}

// ---- events
// ----------------------------------------------------------------------------------------------------------

TEST_F(StreamTest, WaitingForWhatNobodyQueuedIsAnErrorAndNoHang) {
  NiceStream& mock = open();
  belay_event event{};
  ASSERT_TRUE(launch(&event).ok());
  event.value += 5;
  EXPECT_CALL(mock, synchronize).Times(0);
  const Status status = take(vt().synchronize(host(), event, BELAY_FOREVER));
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("value 6"), HasSubstr("the last is 1")));
}

TEST_F(StreamTest, EventsOutliveTheirStreamAsReached) {
  open();
  belay_event event{};
  ASSERT_TRUE(launch(&event).ok());
  vt().stream_destroy(host(), stream_);
  EXPECT_TRUE(take(vt().query(host(), event)).ok());
  EXPECT_TRUE(take(vt().synchronize(host(), event, BELAY_FOREVER)).ok());
  int called = 0;
  EXPECT_TRUE(take(vt().on_reached(host(), event,
                                   {&called, [](void* user, belay_status) { ++*static_cast<int*>(user); }}))
                  .ok());
  EXPECT_EQ(called, 1);
  // A new stream in the same slot does not take the event for its own.
  NiceStream& again = next_stream(*mock_device_);
  belay_obj* other = stream(device_);
  EXPECT_CALL(again, query).Times(::testing::AnyNumber());
  EXPECT_CALL(again, query(event.value)).Times(0);
  EXPECT_TRUE(take(vt().query(host(), event)).ok());
  EXPECT_TRUE(take(vt().wait(host(), other, {0, 7})).ok());  // no event: always reached
}

TEST_F(StreamTest, TimelinesThatWereNeverMadeAreNotFound) {
  open();
  belay_event event{};
  ASSERT_TRUE(launch(&event).ok());
  EXPECT_EQ(take(vt().query(host(), {event.timeline ^ (uint64_t(1) << 60), 1})).code(),
            Code::kNotFound);  // another salt
  EXPECT_EQ(take(vt().query(host(), {event.timeline + 1, 1})).code(), Code::kNotFound);
  EXPECT_EQ(take(vt().wait(host(), stream_, {event.timeline ^ (uint64_t(1) << 60), 1})).code(),
            Code::kNotFound);
}

TEST_F(StreamTest, DestroyLetsThoseWhoWaitByEventFinish) {
  NiceStream& mock = open();
  belay_event event{};
  ASSERT_TRUE(launch(&event).ok());
  std::atomic<bool> waiting{false}, flushed{false};
  EXPECT_CALL(mock, flush).WillRepeatedly([&] {
    flushed = true;
    return Status();
  });
  EXPECT_CALL(mock, synchronize).WillOnce([&](uint64_t, uint64_t) {
    waiting = true;
    while (!flushed) std::this_thread::yield();
    return Status();
  });
  std::thread waiter([&] { EXPECT_TRUE(take(vt().synchronize(host(), event, BELAY_FOREVER)).ok()); });
  while (!waiting) std::this_thread::yield();
  vt().stream_destroy(host(), stream_);  // returns only after the waiter has left the driver
  waiter.join();
}

TEST_F(StreamTest, PendingOperationsAreFoundByAsking) {
  NiceStream& mock = open();
  EXPECT_CALL(mock, last_value).WillRepeatedly(Return(1000));
  for (uint64_t reached : {0u, 1u, 500u, 997u, 1000u}) {
    EXPECT_CALL(mock, query).WillRepeatedly([reached](uint64_t value) {
      return value <= reached ? Status() : Status(Code::kUnavailable, "");
    });
    uint64_t pending = 7;
    ASSERT_TRUE(take(vt().pending(host(), stream_, &pending)).ok());
    EXPECT_EQ(pending, 1000 - reached);
  }
}

}  // namespace
}  // namespace belay::hal
