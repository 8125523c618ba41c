#include "hal/allocator.h"

#include "hal_fixture.h"

#include <belay/testing/mock_memory_policy.hpp>

#include <thread>

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
  EXPECT_CALL(on, alloc(::testing::Field(&belay_alloc_req::host, nullptr))).Times(1);  // one segment
  EXPECT_CALL(on, alloc(::testing::Field(&belay_alloc_req::host, ::testing::NotNull()))).Times(2);
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
  const auto answer = [&](uint64_t id, uint64_t at) {
    EXPECT_CALL(policy, place)
        .WillOnce([=](const belay_place_req&, belay_placed* out) {
          out->segment = id, out->offset = at, out->wait_count = 0;
          return Status();
        })
        .RetiresOnSaturation();
    belay_obj* out = nullptr;
    const Status status = try_buffer(100, &out);
    EXPECT_EQ(status.code(), Code::kInternal);
    return status.message();
  };
  EXPECT_THAT(answer(segment, 64), AllOf(HasSubstr("policy 'pool'"), HasSubstr("where a buffer lives")));
  EXPECT_THAT(answer(segment, 1 << 20), HasSubstr("which has 1048576 bytes"));
  EXPECT_THAT(answer(segment, UINT64_MAX - 63), HasSubstr("which has 1048576 bytes"));
  EXPECT_THAT(answer(segment, 129), HasSubstr("not aligned to 64"));
  EXPECT_THAT(answer(segment + 1000, 0), HasSubstr("none of its segments"));
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
  uint64_t flags = BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST;
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
