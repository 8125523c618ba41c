#include "hal_fixture.h"

#include <set>

namespace belay::hal {
namespace {

// Two drivers; work on `here` waits for work on `there`.
class BridgeTest : public HalTest {
 protected:
  void open() {
    here_device_ = &add_device("here");
    there_device_ = &add_device("there");
    start();
    here_mock_ = &next_stream(*here_device_);
    here_ = stream(device(0));
    there_mock_ = &next_stream(*there_device_);
    there_ = stream(device(1));
    ON_CALL(*there_mock_, query).WillByDefault(Return(Status(Code::kUnavailable, "")));
    ON_CALL(*there_mock_, on_reached).WillByDefault([this](uint64_t value, belay_completion done) {
      arrivals_.emplace_back(value, done);
      return Status();
    });
    ON_CALL(*here_mock_, wait).WillByDefault([this](belay_event event) -> Result<uint64_t> {
      waited_.push_back(event);
      return uint64_t(1);
    });
    ON_CALL(*here_device_, timeline_signal)
        .WillByDefault([this](uint64_t timeline, uint64_t value, belay_status failure) {
          signals_.push_back({timeline, value, BELAY_STATUS_CODE(failure)});
          return Status();
        });
  }
  // An event of work on `there` that has not ended.
  belay_event work() {
    auto req = request<belay_launch_req>();
    req.kernel = &kNothing;
    belay_event event{};
    EXPECT_TRUE(take(vt().launch(host(), there_, &req, &event)).ok());
    return event;
  }
  void arrive(size_t i, belay_status status = BELAY_OK) {
    arrivals_[i].second.done(arrivals_[i].second.user, status);
  }
  struct Signal {
    uint64_t timeline, value;
    uint32_t failure;
    bool operator==(const Signal&) const = default;
  };

  NiceDevice *here_device_ = nullptr, *there_device_ = nullptr;
  NiceStream *here_mock_ = nullptr, *there_mock_ = nullptr;
  belay_obj *here_ = nullptr, *there_ = nullptr;
  std::vector<std::pair<uint64_t, belay_completion>> arrivals_;
  std::vector<belay_event> waited_;
  std::vector<Signal> signals_;
};

TEST_F(BridgeTest, AWaitForAnotherDriverIsAWaitForATimelineThatTheHostAdvances) {
  open();
  const belay_event event = work();
  ASSERT_TRUE(take(vt().wait(host(), here_, event)).ok());
  ASSERT_EQ(waited_.size(), 1u);
  ASSERT_EQ(signals_.size(), 1u);
  EXPECT_NE(waited_[0].timeline, event.timeline);
  EXPECT_EQ(signals_[0], (Signal{waited_[0].timeline, 0, 0}));  // made known before it is waited for
  arrive(0);
  EXPECT_EQ(signals_.back(), (Signal{waited_[0].timeline, waited_[0].value, 0}));
}

TEST_F(BridgeTest, NothingIsWaitedForThatIsReached) {
  open();
  const belay_event event = work();
  EXPECT_CALL(*there_mock_, query).WillRepeatedly(Return(Status()));
  EXPECT_CALL(*here_mock_, wait).Times(0);
  EXPECT_TRUE(take(vt().wait(host(), here_, event)).ok());
}

TEST_F(BridgeTest, ArrivalsOutOfOrderNeverTurnTheTimelineBack) {
  open();
  const belay_event first = work(), second = work();
  ASSERT_TRUE(take(vt().wait(host(), here_, first)).ok());
  ASSERT_TRUE(take(vt().wait(host(), here_, second)).ok());
  EXPECT_EQ(waited_[0].timeline, waited_[1].timeline);
  arrive(1);
  const size_t told = signals_.size();
  arrive(0);
  EXPECT_EQ(signals_.size(), told);  // a smaller value is no news
  EXPECT_EQ(signals_.back().value, waited_[1].value);
}

TEST_F(BridgeTest, AFailureCrossesAndLaterWaitsHaveAFreshTimeline) {
  open();
  const belay_event bad = work();
  ASSERT_TRUE(take(vt().wait(host(), here_, bad)).ok());
  arrive(0, to_c(*host(), {Code::kDataLoss, "Node 'conv1' failed."}));
  EXPECT_EQ(signals_.back().failure, BELAY_DATA_LOSS);
  const belay_event good = work();
  ASSERT_TRUE(take(vt().wait(host(), here_, good)).ok());
  EXPECT_NE(waited_[1].timeline, waited_[0].timeline);
  arrive(1);
  EXPECT_EQ(signals_.back(), (Signal{waited_[1].timeline, waited_[1].value, 0}));
}

TEST_F(BridgeTest, ATimelineIsUsedAgainForTheNextStream) {
  open();
  std::set<uint64_t> timelines;
  for (int i = 0; i < 10; ++i) {
    const belay_event event = work();
    ASSERT_TRUE(take(vt().wait(host(), here_, event)).ok());
    EXPECT_GT(waited_.back().value, signals_.back().value);  // not reached before its time
    arrive(arrivals_.size() - 1);
    timelines.insert(waited_.back().timeline);
    vt().stream_destroy(host(), there_);
    there_mock_ = &next_stream(*there_device_);
    there_ = stream(device(1));
    ON_CALL(*there_mock_, query).WillByDefault(Return(Status(Code::kUnavailable, "")));
    ON_CALL(*there_mock_, on_reached).WillByDefault([this](uint64_t value, belay_completion done) {
      arrivals_.emplace_back(value, done);
      return Status();
    });
  }
  EXPECT_EQ(timelines.size(), 1u);
}

TEST_F(BridgeTest, ADriverWithoutTimelinesOfTheHostMakesTheCallerWait) {
  device_table_.null(&belay_device_vt::timeline_signal);
  NiceDriver& driver = add_driver("here");
  driver.device_table = &device_table_.table();
  there_device_ = &add_device("there");
  start();
  here_ = stream(device(0));
  there_mock_ = &next_stream(*there_device_);
  there_ = stream(device(1));
  const belay_event event = work();
  EXPECT_CALL(*there_mock_, query).WillRepeatedly(Return(Status(Code::kUnavailable, "")));
  EXPECT_CALL(*there_mock_, synchronize(event.value, BELAY_FOREVER))
      .WillOnce(Return(Status()))
      .WillOnce(Return(Status(Code::kDataLoss, "Node 'conv1' failed.")))
      .WillRepeatedly(Return(Status()));  // when the stream is destroyed
  EXPECT_TRUE(take(vt().wait(host(), here_, event)).ok());
  const Status failed = take(vt().wait(host(), here_, event));
  EXPECT_EQ(failed.code(), Code::kDataLoss);
  EXPECT_THAT(failed.message(),
              AllOf(HasSubstr("conv1"), HasSubstr("waiting on 'here:0' for work of 'there:0'")));
}

TEST_F(BridgeTest, AnEventOfAnotherDeviceThatIsNotQueuedIsAnError) {
  open();
  belay_event event = work();
  event.value += 3;
  const Status status = take(vt().wait(host(), here_, event));
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_TRUE(waited_.empty());
}

TEST_F(BridgeTest, CopiesReachBuffersOfAnotherDeviceThroughTheHost) {
  open();
  belay_obj* far = buffer(device(1), 64);
  auto info = request<belay_hal_buffer_info>();
  ASSERT_TRUE(take(vt().buffer_info(host(), far, &info)).ok());
  EXPECT_CALL(*here_mock_, copy).WillOnce([&](const belay_copy_req& req) -> Result<uint64_t> {
    EXPECT_EQ(req.src, nullptr);
    EXPECT_EQ(req.host_src, static_cast<const char*>(info.host) + 8);
    return uint64_t(1);
  });
  auto req = request<belay_copy_req>();
  char here[16];
  req.host_dst = here, req.src = far, req.src_offset = 8, req.bytes = 16;
  EXPECT_TRUE(take(vt().copy(host(), here_, &req, nullptr)).ok());
  vt().buffer_destroy(host(), far);
}

}  // namespace
}  // namespace belay::hal
