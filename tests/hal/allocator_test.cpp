#include "hal/allocator.h"

#include "hal_fixture.h"

#include <belay/testing/mock_memory_policy.hpp>

#include <thread>

#include <sys/mman.h>

namespace belay::hal {
namespace {

using belay::testing::MockMemoryPolicy;
using NicePolicy = NiceMock<MockMemoryPolicy>;

// Places one after the other in segments of 1 MiB; a segment is empty again when all that was in it has gone.
struct Bump {
  struct Segment {
    uint64_t bytes, used = 0, live = 0;
  };
  std::mutex mutex;
  std::map<uint64_t, Segment> segments;
  std::map<uint64_t, uint64_t> segment_of;  // by cookie
  uint64_t last_cookie = 0;

  void install(MockMemoryPolicy& mock) {
    ON_CALL(mock, serves).WillByDefault(Return(BELAY_POLICY_PLACE));
    ON_CALL(mock, place).WillByDefault([this](const belay_place_req& req, belay_placed* out) {
      std::lock_guard lock(mutex);
      out->wait_count = 0;
      for (auto& [id, segment] : segments) {
        const uint64_t at = (segment.used + req.align - 1) / req.align * req.align;
        if (at + req.bytes > segment.bytes) continue;
        segment.used = at + req.bytes;
        ++segment.live;
        out->segment = id, out->offset = at, out->cookie = ++last_cookie;
        segment_of[last_cookie] = id;
        return Status();
      }
      out->need_bytes = std::max<uint64_t>(req.bytes, 1 << 20);
      return Status(Code::kNeedSegment, "more");
    });
    ON_CALL(mock, release).WillByDefault([this](uint64_t cookie, const belay_event*, uint64_t) {
      std::lock_guard lock(mutex);
      Segment& segment = segments.at(segment_of.at(cookie));
      if (--segment.live == 0) segment.used = 0;
      segment_of.erase(cookie);
      return Status();
    });
    ON_CALL(mock, segment_add).WillByDefault([this](uint64_t id, uint64_t bytes, uint64_t) {
      std::lock_guard lock(mutex);
      segments[id] = {bytes};
      return Status();
    });
    ON_CALL(mock, segment_remove).WillByDefault([this](uint64_t id) {
      std::lock_guard lock(mutex);
      segments.erase(id);
      return Status();
    });
    ON_CALL(mock, trim).WillByDefault([this](uint64_t, const std::function<void(uint64_t)>& each) {
      std::lock_guard lock(mutex);
      for (const auto& [id, segment] : segments)
        if (segment.live == 0) each(id);
      return Status();
    });
  }
};

// A stream whose work ends when the test says so.
struct Slow {
  std::atomic<uint64_t> queued{0}, reached{0};
  void install(NiceStream& mock) {
    ON_CALL(mock, launch).WillByDefault([this](const belay_launch_req&) -> Result<uint64_t> {
      return ++queued;
    });
    ON_CALL(mock, wait).WillByDefault([this](belay_event) -> Result<uint64_t> { return ++queued; });
    ON_CALL(mock, last_value).WillByDefault([this] { return queued.load(); });
    ON_CALL(mock, query).WillByDefault([this](uint64_t value) {
      return value <= reached ? Status() : Status(Code::kUnavailable, "");
    });
    ON_CALL(mock, synchronize).WillByDefault([this](uint64_t value, uint64_t) {
      reached = std::max(reached.load(), value);
      return Status();
    });
  }
};

class AllocatorTest : public HalTest {
 protected:
  ~AllocatorTest() override { hal_.reset(); }
  NicePolicy& add_policy(const std::string& name,
                         const belay_memory_policy_vt& table = table_for<MockMemoryPolicy>()) {
    auto mock = std::make_unique<NicePolicy>(host());
    NicePolicy& policy = *mock;
    policies_.emplace_back(BELAY_OBJ_MEMORY_POLICY, &table, mock.release());
    policy_names_.push_back({name, name + "-plugin", policies_.back().get()});
    return policy;
  }
  void begin(HalOptions options = {}) { start(options, policy_names_); }
  Status try_buffer(uint64_t bytes, belay_obj** out, void* lent = nullptr, uint64_t access = 0,
                    uint64_t align = 0) {
    auto req = request<belay_alloc_req>();
    req.bytes = bytes, req.host = lent, req.access = access, req.align = align;
    return take(vt().buffer_create(host(), device(), &req, out));
  }
  char* address(belay_obj* buffer) {
    auto info = request<belay_hal_buffer_info>();
    EXPECT_TRUE(take(vt().buffer_info(host(), buffer, &info)).ok());
    return static_cast<char*>(info.host);
  }
  belay_hal_memory_info memory() {
    auto info = request<belay_hal_memory_info>();
    EXPECT_TRUE(take(vt().memory_info(host(), device(), &info)).ok());
    return info;
  }
  std::vector<Adopted<belay_memory_policy_vt>> policies_;
  std::vector<NamedObject> policy_names_;
  Bump bump_;
};

TEST_F(AllocatorTest, BuffersLieWhereThePolicySays) {
  NiceDevice& on = add_device("mock");
  NicePolicy& policy = add_policy("pool");
  bump_.install(policy);
  begin();
  EXPECT_CALL(on, alloc(::testing::Field(&belay_alloc_req::within, nullptr))).Times(1);  // one segment
  EXPECT_CALL(on, alloc(::testing::Field(&belay_alloc_req::within, ::testing::NotNull()))).Times(2);
  EXPECT_CALL(policy, segment_add(_, 1 << 20, _)).Times(1);
  belay_obj* one = buffer(device(), 100);
  belay_obj* two = buffer(device(), 200);
  EXPECT_EQ(address(two) - address(one), 128);
  belay_obj* found = nullptr;
  uint64_t offset = 0;
  ASSERT_EQ(vt().find(host(), address(two) + 5, &found, &offset), BELAY_OK);
  EXPECT_EQ(found, two);
  EXPECT_EQ(memory().bytes, uint64_t(1) << 20);  // what the device gave
  EXPECT_EQ(memory().buffers, 2u);
  EXPECT_CALL(policy, release(1, nullptr, 0));
  EXPECT_CALL(policy, release(2, nullptr, 0));
  EXPECT_CALL(policy, segment_remove(_)).Times(1);
  vt().buffer_destroy(host(), one);
  vt().buffer_destroy(host(), two);
  hal_.reset();
}

TEST_F(AllocatorTest, WhoDeclinesIsPassedOverAndTheDriverIsLast) {
  NiceDevice& on = add_device("mock");
  NicePolicy &first = add_policy("first"), &second = add_policy("second");
  EXPECT_CALL(first, place).WillOnce(Return(Status(Code::kDeclined, "too small")));
  EXPECT_CALL(second, place).WillOnce(Return(Status(Code::kDeclined, "too small, too")));
  begin();
  EXPECT_CALL(on, alloc).Times(1);
  belay_obj* one = buffer(device(), 100);
  vt().buffer_destroy(host(), one);
}

TEST_F(AllocatorTest, WrongPlacesAreRefusedAndNamed) {
  NicePolicy& policy = add_policy("pool");
  bump_.install(policy);
  begin();
  belay_obj* kept = buffer(device(), 100);
  const uint64_t segment = bump_.segments.begin()->first;
  uint64_t cookie = 700;
  const auto answer = [&](uint64_t id, uint64_t at) {
    EXPECT_CALL(policy, place)
        .WillOnce([id, at, cookie](const belay_place_req&, belay_placed* out) {
          out->segment = id, out->offset = at, out->cookie = cookie, out->wait_count = 2;
          out->waits[0] = {1, 11}, out->waits[1] = {2, 12};
          return Status();
        })
        .RetiresOnSaturation();
    belay_obj* out = nullptr;
    const Status status = try_buffer(100, &out);
    EXPECT_EQ(status.code(), Code::kInternal);
    return status.message();
  };
  // Such a place is given back to the policy, with what may still use it.
  ON_CALL(policy, release).WillByDefault([&](uint64_t given, const belay_event* uses, uint64_t count) {
    EXPECT_EQ(given, cookie);
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(uses[1].value, 12u);
    return Status();
  });
  EXPECT_CALL(policy, release).Times(5);
  EXPECT_THAT(answer(segment, 64), AllOf(HasSubstr("policy 'pool'"), HasSubstr("where a buffer lives")));
  EXPECT_THAT(answer(segment, 1 << 20), HasSubstr("which has 1048576 bytes"));
  EXPECT_THAT(answer(segment, UINT64_MAX - 63), HasSubstr("which has 1048576 bytes"));
  EXPECT_THAT(answer(segment, 129), HasSubstr("not aligned to 64"));
  EXPECT_THAT(answer(segment + 1000, 0), HasSubstr("none of its segments"));
  ::testing::Mock::VerifyAndClearExpectations(&policy);
  // But not where a live buffer has the cookie: that buffer is released once, when it ends.
  cookie = 1;
  EXPECT_CALL(policy, release).Times(0);
  EXPECT_THAT(answer(segment, 64), HasSubstr("where a buffer lives"));
  ::testing::Mock::VerifyAndClearExpectations(&policy);
  EXPECT_CALL(policy, release(1, _, 0)).WillOnce(Return(Status()));
  vt().buffer_destroy(host(), kept);
}

TEST_F(AllocatorTest, APolicyThatWantsSegmentAfterSegmentIsStopped) {
  NicePolicy& policy = add_policy("pool");
  bump_.install(policy);
  ON_CALL(policy, place).WillByDefault([](const belay_place_req& req, belay_placed* out) {
    out->need_bytes = req.bytes;
    return Status(Code::kNeedSegment, "more");
  });
  begin();
  belay_obj* out = nullptr;
  EXPECT_EQ(try_buffer(100, &out).code(), Code::kInternal);
}

TEST_F(AllocatorTest, TheLimitCountsSegmentsAndEmptyOnesGoFirst) {
  NicePolicy& policy = add_policy("pool");
  bump_.install(policy);
  begin({.memory_limit = 3 << 20});
  belay_obj* one = buffer(device(), 2 << 20);
  belay_obj* out = nullptr;
  EXPECT_EQ(try_buffer(2 << 20, &out).code(), Code::kResourceExhausted);
  vt().buffer_destroy(host(), one);
  ASSERT_TRUE(try_buffer(3 << 20, &out).ok());  // the empty segment of 2 MiB made room
  EXPECT_EQ(memory().bytes, uint64_t(3) << 20);
  vt().buffer_destroy(host(), out);
}

// ---- in the order of streams
// ---------------------------------------------------------------------------------------------

class OrderedTest : public AllocatorTest {
 protected:
  void open(HalOptions options = {}, bool with_policy = true) {
    device_ = &add_device("mock");
    if (with_policy) bump_.install(*(policy_ = &add_policy("pool")));
    begin(options);
    // The mock that is asked for last is that of the stream made first.
    second_mock_ = &next_stream(*device_), first_mock_ = &next_stream(*device_);
    slow_first_.install(*first_mock_), slow_second_.install(*second_mock_);
    first_ = stream(device()), second_ = stream(device());
  }
  belay_event work(belay_obj* on) {
    auto req = request<belay_launch_req>();
    req.kernel = &kNothing;
    belay_event event{};
    EXPECT_TRUE(take(vt().launch(host(), on, &req, &event)).ok());
    return event;
  }
  Status destroy_after(belay_obj* buffer, std::vector<belay_event> uses) {
    return take(vt().buffer_destroy_after(host(), buffer, uses.data(), uses.size()));
  }
  Status buffer_on(belay_obj* stream, uint64_t bytes, belay_obj** out) {
    auto req = request<belay_alloc_req>();
    req.bytes = bytes;
    return take(vt().buffer_create_on(host(), stream, &req, out));
  }

  Slow slow_first_, slow_second_;
  NiceDevice* device_ = nullptr;
  NicePolicy* policy_ = nullptr;
  NiceStream *first_mock_ = nullptr, *second_mock_ = nullptr;
  belay_obj *first_ = nullptr, *second_ = nullptr;
};

TEST_F(OrderedTest, ThePolicyGetsTheEventsAndTheDriverItsBufferLater) {
  open();
  belay_obj* one = buffer(device(), 100);
  const belay_event early = work(first_), late = work(first_), other = work(second_);
  EXPECT_CALL(*policy_, release(_, ::testing::NotNull(), 2))
      .WillOnce([&](uint64_t, const belay_event* uses, uint64_t) {
        EXPECT_EQ(uses[0].timeline, late.timeline);
        EXPECT_EQ(uses[0].value, late.value);  // the later one of a timeline
        EXPECT_EQ(uses[1].value, other.value);
        return Status();
      });
  ASSERT_TRUE(destroy_after(one, {early, late, other}).ok());
  EXPECT_EQ(destroy_after(one, {early}).code(), Code::kNotFound);  // the handle has ended
  EXPECT_EQ(memory().buffers, 1u);
  slow_first_.reached = 2;
  vt().buffer_destroy(host(), buffer(device(), 0));
  EXPECT_EQ(memory().buffers, 1u);
  slow_second_.reached = 1;
  vt().buffer_destroy(host(), buffer(device(), 0));
  EXPECT_EQ(memory().buffers, 0u);
}

TEST_F(OrderedTest, WorkThatHasEndedIsNoUse) {
  open();
  belay_obj* one = buffer(device(), 100);
  const belay_event done = work(first_);
  slow_first_.reached = 1;
  EXPECT_CALL(*policy_, release(_, nullptr, 0)).Times(1);
  ASSERT_TRUE(destroy_after(one, {done, {0, 7}}).ok());
  EXPECT_EQ(memory().buffers, 0u);
}

TEST_F(OrderedTest, AStreamWaitsForWhoHadTheMemoryAndTheHostDoesToo) {
  open();
  const belay_event other = work(second_);
  const auto with_wait = [&](const belay_place_req& req, belay_placed* out) {
    EXPECT_EQ(req.progress->reached(req.progress->user, other), slow_second_.reached ? 1u : 0u);
    EXPECT_EQ(req.progress->reached(req.progress->user, {other.timeline ^ uint64_t(1) << 40, 1}),
              1u);  // there is none
    const Status status = policy_->place(req, out);
    if (status.ok()) out->waits[0] = other, out->wait_count = 1;
    return status;
  };
  belay_obj* kept = buffer(device(), 64);  // its segment is there now
  EXPECT_CALL(*policy_, place).WillRepeatedly(::testing::DoDefault());
  EXPECT_CALL(*policy_, place).WillOnce(with_wait).RetiresOnSaturation();
  EXPECT_CALL(*first_mock_, wait(_)).WillOnce([&](belay_event event) {
    EXPECT_EQ(event.timeline, other.timeline);
    return Status();
  });
  belay_obj* on_stream = nullptr;
  ASSERT_TRUE(buffer_on(first_, 100, &on_stream).ok());
  EXPECT_EQ(slow_second_.reached, 0u);  // nobody waited

  EXPECT_CALL(*policy_, place).WillOnce(with_wait).RetiresOnSaturation();
  belay_obj* on_host = buffer(device(), 100);
  EXPECT_EQ(slow_second_.reached, 1u);
  for (belay_obj* each : {kept, on_stream, on_host}) vt().buffer_destroy(host(), each);
}

TEST_F(OrderedTest, AWaitThatCannotBeQueuedGivesThePlaceBack) {
  open();
  const belay_event other = work(second_);
  belay_obj* kept = buffer(device(), 64);
  EXPECT_CALL(*policy_, place).WillRepeatedly(::testing::DoDefault());
  EXPECT_CALL(*policy_, place)
      .WillOnce([&](const belay_place_req& req, belay_placed* out) {
        const Status status = policy_->place(req, out);
        out->waits[0] = other, out->wait_count = 1;
        return status;
      })
      .RetiresOnSaturation();
  EXPECT_CALL(*first_mock_, wait(_)).WillOnce(Return(Status(Code::kDataLoss, "the device is lost")));
  EXPECT_CALL(*policy_, release(_, ::testing::NotNull(), 1)).Times(1);
  belay_obj* out = nullptr;
  EXPECT_EQ(buffer_on(first_, 100, &out).code(), Code::kDataLoss);
  EXPECT_EQ(memory().buffers, 1u);
  EXPECT_CALL(*policy_, release(_, nullptr, 0)).Times(1);
  vt().buffer_destroy(host(), kept);
}

TEST_F(OrderedTest, ASegmentWithUnfinishedWorkIsNotGivenBack) {
  open({.memory_limit = 3 << 20});
  belay_obj* one = buffer(device(), 2 << 20);
  const belay_event event = work(first_);
  ASSERT_TRUE(destroy_after(one, {event}).ok());
  belay_obj* out = nullptr;
  EXPECT_CALL(*first_mock_, synchronize)
      .WillOnce(Return(Status(Code::kDeadlineExceeded, "it goes on")))
      .WillRepeatedly(::testing::DoDefault());
  const Status status = try_buffer(3 << 20, &out);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("1 more that have ended waits for queued work"));
  slow_first_.reached = 1;
  ASSERT_TRUE(try_buffer(3 << 20, &out).ok());
  vt().buffer_destroy(host(), out);
}

TEST_F(OrderedTest, WithoutAPolicyTheDriversMemoryComesBackWhenItIsWanted) {
  open({.memory_limit = 3 << 20}, false);
  belay_obj* one = buffer(device(), 2 << 20);
  ASSERT_TRUE(destroy_after(one, {work(first_)}).ok());
  belay_obj* out = nullptr;
  EXPECT_CALL(*first_mock_, synchronize(1, _)).WillOnce([&](uint64_t, uint64_t timeout) {
    EXPECT_NE(timeout, BELAY_FOREVER);
    slow_first_.reached = 1;
    return Status();
  });
  ASSERT_TRUE(try_buffer(2 << 20, &out).ok());  // after the work that used it
  vt().buffer_destroy(host(), out);
}

TEST_F(OrderedTest, EventsThatAreNoneAreRefusedAndTheBufferStays) {
  open();
  belay_obj* one = buffer(device(), 100);
  const belay_event event = work(first_);
  EXPECT_EQ(destroy_after(one, {event, {event.timeline, 2}}).code(), Code::kOutOfRange);
  EXPECT_EQ(destroy_after(one, {{event.timeline + 2, 1}}).code(), Code::kNotFound);
  EXPECT_EQ(take(vt().buffer_destroy_after(host(), one, nullptr, 1)).code(), Code::kInvalidArgument);
  EXPECT_EQ(memory().buffers, 1u);
  vt().buffer_destroy(host(), one);
}

TEST_F(OrderedTest, ARecordingTakesNoMemoryOfItsOwn) {
  open();
  ASSERT_TRUE(take(vt().capture_begin(host(), first_)).ok());
  belay_obj* out = nullptr;
  const Status status = buffer_on(first_, 100, &out);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("capturing"));
}

// ---- checked
// -------------------------------------------------------------------------------------------------------------

class CheckedTest : public AllocatorTest, public ::testing::WithParamInterface<bool> {
 protected:
  void open() {
    add_device("mock");
    if (GetParam()) bump_.install(add_policy("pool"));
    begin({.checked = true});
  }
};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutAPolicy, CheckedTest, ::testing::Bool());

TEST_P(CheckedTest, WritesBesideABufferAreFoundAndSayWhereItWasMade) {
  open();
  for (const auto& [at, text] : std::vector<std::pair<int64_t, std::string>>{
           {100, "1 byte behind its end, the nearest 0 bytes behind it"},
           {100 + 127, "the nearest 127 bytes behind it"},
           {-1, "1 byte before its begin, the nearest 1 byte before it"},
           {-128, "the nearest 128 bytes before it"}}) {
    belay_obj* one = buffer(device(), 100);
    char* const bytes = address(one);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 64, 0u);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(bytes[i], char(0xff));
    const uint64_t before = memory().damaged;
    std::memset(bytes, 0, 100);
    bytes[at] = 0;
    vt().buffer_destroy(host(), one);
    EXPECT_EQ(memory().damaged, before + 1);
    EXPECT_THAT(log(), Contains(AllOf(HasSubstr("Written beside a buffer of 100 bytes on 'mock:0': "),
                                      HasSubstr(text), HasSubstr("test_hal"))));
  }
}

TEST_P(CheckedTest, BuffersInOrderKeepTheirZonesAndBytes) {
  open();
  std::vector<belay_obj*> all;
  for (uint64_t i = 0; i < 40; ++i) {
    all.push_back(buffer(device(), 1 + i * 37));
    std::memset(address(all.back()), int(i), 1 + i * 37);
  }
  for (uint64_t i = 0; i < 40; ++i)
    for (uint64_t k = 0; k < 1 + i * 37; ++k) ASSERT_EQ(address(all[i])[k], char(i));
  for (belay_obj* each : all) vt().buffer_destroy(host(), each);
  EXPECT_EQ(memory().damaged, 0u);
  EXPECT_EQ(memory().buffers, 0u);
  EXPECT_EQ(memory().bytes, GetParam() ? uint64_t(1) << 20 : 0u);
}

TEST_F(OrderedTest, CheckedEventsMustCoverWhatIsQueued) {
  open({.checked = true});
  belay_obj* one = buffer(device(), 100);
  auto fill = request<belay_fill_req>();
  fill.dst = one, fill.bytes = 100, fill.pattern_bytes = 1;
  ON_CALL(*first_mock_, fill).WillByDefault([&](const belay_fill_req&) -> Result<uint64_t> {
    return ++slow_first_.queued;
  });
  const belay_event early = work(first_);
  belay_event used{};
  ASSERT_TRUE(take(vt().fill(host(), first_, &fill, &used)).ok());
  const Status status = destroy_after(one, {early});
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("operation 2 (fill)"), HasSubstr("none of the events covers")));
  ASSERT_TRUE(destroy_after(one, {used}).ok());  // it was left as it is
}

TEST_F(OrderedTest, CheckedEventsCoverWhatTheirStreamWaitedFor) {
  open({.checked = true});
  auto fill = request<belay_fill_req>();
  fill.bytes = 100, fill.pattern_bytes = 1;
  ON_CALL(*first_mock_, fill).WillByDefault([&](const belay_fill_req&) -> Result<uint64_t> {
    return ++slow_first_.queued;
  });
  const auto filled = [&](belay_obj* buffer) {
    fill.dst = buffer;
    belay_event event{};
    EXPECT_TRUE(take(vt().fill(host(), first_, &fill, &event)).ok());
    return event;
  };
  belay_obj *one = buffer(device(), 100), *two = buffer(device(), 100);
  const belay_event used = filled(one), later = filled(two);
  const belay_event before = work(second_);
  ASSERT_TRUE(take(vt().wait(host(), second_, used)).ok());
  const belay_event after = work(second_);
  EXPECT_EQ(destroy_after(one, {before}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(destroy_after(two, {after}).code(), Code::kFailedPrecondition);  // queued after what was waited for
  EXPECT_TRUE(destroy_after(one, {after}).ok());
  // More waits than are kept at once, and one that leads back.
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(take(vt().wait(host(), second_, later)).ok());
    ASSERT_TRUE(take(vt().wait(host(), first_, after)).ok());
  }
  EXPECT_TRUE(destroy_after(two, {work(second_)}).ok());
}

TEST_P(CheckedTest, LeaksAreCountedByWhereTheyWereMade) {
  open();
  for (int i = 0; i < 3; ++i) buffer(device(), 1000);
  buffer(device(), 24);
  hal_.reset();
  EXPECT_THAT(log(), Contains(AllOf(HasSubstr("3 buffers of 2.9 KiB together on 'mock:0'"),
                                    HasSubstr("owner 'application'"), HasSubstr("Made by "))));
  EXPECT_THAT(log(), Contains(HasSubstr("A buffer of 24 B on 'mock:0'")));
}

// ---- lent memory
// ---------------------------------------------------------------------------------------------------------

TEST_F(AllocatorTest, MemoryOfASegmentIsNeverTouched) {
  NiceDevice& on = add_device("mock");
  NicePolicy& policy = add_policy("pool");
  bump_.install(policy);
  void* segment = nullptr;
  ON_CALL(on, alloc).WillByDefault([&](const belay_alloc_req& req) -> Result<void*> {
    if (req.within) return static_cast<void*>(static_cast<char*>(req.within->impl) + req.within_offset + 1);
    segment = mmap(nullptr, req.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return segment;
  });
  ON_CALL(on, free).WillByDefault([&](belay_obj* buffer) {
    if (buffer->impl == segment) munmap(segment, 1 << 20);
  });
  begin();
  std::vector<belay_obj*> all;
  for (uint64_t i = 1; i < 30; ++i) all.push_back(buffer(device(), i * 1000));
  EXPECT_EQ(address(all[0]), segment);
  for (belay_obj* each : all) vt().buffer_destroy(host(), each);
  hal_.reset();
}

TEST_F(AllocatorTest, WhereThereIsNoRoomForASegmentTheDriverPlacesTheBufferAlone) {
  NicePolicy& policy = add_policy("pool");
  bump_.install(policy);
  begin({.memory_limit = 1000});
  belay_obj* out = nullptr;
  ASSERT_TRUE(try_buffer(600, &out).ok());  // a segment has 1 MiB
  EXPECT_EQ(memory().bytes, 600u);
  belay_obj* none = nullptr;
  EXPECT_EQ(try_buffer(600, &none).code(), Code::kResourceExhausted);
  vt().buffer_destroy(host(), out);
}

TEST_F(AllocatorTest, HostMemoryIsLentWhereThePolicyShares) {
  add_device("mock");
  NicePolicy& policy = add_policy("zerocopy");
  ON_CALL(policy, serves).WillByDefault(Return(BELAY_POLICY_BIND));
  EXPECT_CALL(policy, bind)
      .WillOnce([](const belay_bind_req& req, belay_bound* out) {
        EXPECT_EQ(req.bytes, 64u);
        EXPECT_EQ(req.access, BELAY_ACCESS_READ | BELAY_ACCESS_WRITE);
        out->mode = BELAY_BIND_SHARE;
        return Status();
      })
      .WillRepeatedly([](const belay_bind_req&, belay_bound* out) {
        out->mode = BELAY_BIND_COPY;
        write(out->reason, "it is not aligned to a page");
        return Status();
      });
  begin();
  alignas(64) char mine[64] = "mine";
  belay_obj *shared = nullptr, *copied = nullptr, *none = nullptr;
  ASSERT_TRUE(try_buffer(64, &shared, mine).ok());
  EXPECT_EQ(address(shared), mine);
  ASSERT_TRUE(try_buffer(64, &copied, mine, BELAY_ACCESS_READ).ok());
  EXPECT_NE(address(copied), mine);
  EXPECT_STREQ(address(copied), "mine");
  const Status status = try_buffer(64, &none, mine);  // what is written would not arrive
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("it is not aligned to a page"));
  vt().buffer_destroy(host(), shared);
  vt().buffer_destroy(host(), copied);
}

TEST_F(AllocatorTest, AskedWhetherToBindThePoliciesDecideAndWhatCannotBeIsACopy) {
  NiceDevice& on = add_device("mock");
  NicePolicy& policy = add_policy("zerocopy");
  ON_CALL(policy, serves).WillByDefault(Return(BELAY_POLICY_BIND));
  uint64_t flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST | BELAY_DEVICE_SUBDIVIDES;
  ON_CALL(policy, bind).WillByDefault([&](const belay_bind_req& req, belay_bound* out) {
    EXPECT_EQ(req.device_flags, flags);
    out->mode = req.bytes < 8 ? BELAY_BIND_COPY : BELAY_BIND_SHARE;
    if (req.bytes < 8) write(out->reason, "it is small");
    return req.bytes == 9 ? Status(Code::kDeclined, "odd") : Status();
  });
  (void)on;
  begin();
  const auto ask = [&](uint64_t address, uint64_t bytes, uint64_t alignment, std::string* why) {
    auto req = request<belay_bind_req>();
    req.address = address, req.bytes = bytes, req.alignment = alignment, req.access = BELAY_ACCESS_READ;
    StringSink reason;
    auto bound = request<belay_bound>();
    bound.reason = reason.sink();
    const Status status = take(vt().bind(host(), device(), &req, &bound));
    *why = std::move(reason).str();
    if (status.ok()) {
      EXPECT_EQ(bound.mode, why->empty() ? BELAY_BIND_SHARE : BELAY_BIND_COPY);
    }
    return status;
  };
  std::string why;
  ASSERT_TRUE(ask(0x1000, 64, 4, &why).ok());
  EXPECT_EQ(why, "");
  ASSERT_TRUE(ask(0x1000, 7, 4, &why).ok());
  EXPECT_EQ(why, "it is small");
  ASSERT_TRUE(ask(0x1000, 9, 4, &why).ok());  // nobody decided
  EXPECT_EQ(why, "");
  ASSERT_TRUE(ask(0x1002, 64, 4, &why).ok());  // a policy that shares it is wrong
  EXPECT_THAT(why, HasSubstr("not aligned to 4"));
  const Status odd = ask(0x1000, 64, 12, &why);
  EXPECT_EQ(odd.code(), Code::kInvalidArgument);
  EXPECT_THAT(odd.message(), HasSubstr("alignment is 12"));
}

TEST_F(AllocatorTest, APolicyWithoutItsSlotsIsLeftOut) {
  static TableBuilder<belay_memory_policy_vt> old(table_for<MockMemoryPolicy>());
  old.null(&belay_memory_policy_vt::release);
  NicePolicy& policy = add_policy("pool", old.table());
  ON_CALL(policy, serves).WillByDefault(Return(BELAY_POLICY_PLACE));
  EXPECT_CALL(policy, place).Times(0);
  begin();
  belay_obj* one = buffer(device(), 100);
  vt().buffer_destroy(host(), one);
  EXPECT_THAT(log(), Contains(HasSubstr("serves PLACE")));
}

TEST_F(AllocatorTest, ThreadsPlaceReleaseAndTrim) {
  NicePolicy& policy = add_policy("pool");
  bump_.install(policy);
  begin({.memory_limit = 8 << 20});
  belay_obj* on = device();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 60; ++i) {
        auto req = request<belay_alloc_req>();
        req.bytes = 1000 + 70000 * ((i + uint64_t(t)) % 9);
        belay_obj* out = nullptr;
        const belay_status status = vt().buffer_create(host(), on, &req, &out);
        if (status != BELAY_OK) {
          EXPECT_EQ(BELAY_STATUS_CODE(status), BELAY_RESOURCE_EXHAUSTED);
          host()->status_release(host(), status);
          continue;
        }
        std::memset(address(out), t, req.bytes);
        for (uint64_t k = 0; k < req.bytes; k += 997) EXPECT_EQ(address(out)[k], char(t));
        vt().buffer_destroy(host(), out);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace belay::hal
