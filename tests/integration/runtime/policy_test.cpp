// Memory policies as an application computes with them: its mistakes are told, and never reach a policy.
#include <belay/runtime.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace {

using belay::Code;
using belay::Status;
using ::testing::HasSubstr;

struct Policy {
  const belay_memory_policy_vt* vt = nullptr;
  belay_obj* object = nullptr;
};

class PolicyTest : public ::testing::Test {
 protected:
  PolicyTest() {
    auto made = belay::Runtime::create(
        {.text = "[runtime]\ndevice = \"null:0\"\n[models]\nformats = []\n[memory]\npolicies = "
                 "[\"zerocopy\", \"reuse\", \"pool\"]\n[engine]\nuse = \"\"\n",
         .plugin_dirs = {BELAY_TEST_PLUGIN_DIR}});
    EXPECT_TRUE(made.ok()) << made.status().message();
    runtime_ = std::move(made).value();
  }
  Policy policy(const char* name) {
    Policy out;
    const Status status =
        belay::take(belay_runtime_policy(runtime_.get(), belay::to_str(name), &out.vt, &out.object));
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  belay::Runtime runtime_;
};

template <class T>
T sized() {
  T out{};
  out.hdr.struct_size = sizeof out;
  return out;
}

void refused(const Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(words));
  EXPECT_THAT(belay::last_error().message(), HasSubstr(words));
}

TEST_F(PolicyTest, APlanRequestIsCheckedBeforeThePolicyGetsIt) {
  const Policy reuse = policy("reuse");
  struct Request {
    uint64_t bytes[2] = {100, 200}, align[2] = {64, 64}, first[3] = {0, 1, 2},
             fixed[2] = {BELAY_OFFSET_FREE, 0};
    uint32_t arena[2] = {0, 0};
    belay_interval lives[2] = {{0, 2}, {1, 3}};
    belay_pair pairs[1] = {{0, 1}};
    uint64_t offset[2] = {}, peak = 0, lower = 0;
    belay_plan_req req = sized<belay_plan_req>();
    belay_plan_result result = sized<belay_plan_result>();
  };
  const auto plan = [&](const std::function<void(Request&)>& change) {
    Request r;
    r.req.count = 2, r.req.bytes = r.bytes, r.req.align = r.align, r.req.arena = r.arena,
    r.req.arena_count = 1;
    r.req.interval_first = r.first, r.req.intervals = r.lives;
    r.result.offset = r.offset, r.result.peak = &r.peak, r.result.lower_bound = &r.lower;
    change(r);
    const Status status = belay::take(reuse.vt->plan(reuse.object, &r.req, &r.result));
    EXPECT_EQ(r.peak, status.ok() ? 328u : 0u);  // 128 + 200
    return status;
  };
  EXPECT_TRUE(plan([](Request&) {}).ok());
  EXPECT_TRUE(plan([](Request& r) { r.req.hdr.struct_size = offsetof(belay_plan_req, conflicts); }).ok());
  using Change = std::function<void(Request&)>;
  const std::vector<std::pair<Change, const char*>> mistakes = {
      {[](Request& r) { r.req.bytes = nullptr; }, "Plan request: bytes is NULL"},
      {[](Request& r) { r.req.interval_first = nullptr; }, "interval_first is NULL"},
      {[](Request& r) { r.req.intervals = nullptr; }, "intervals is NULL"},
      {[](Request& r) { r.req.conflict_count = 1; }, "conflicts is NULL"},
      {[](Request& r) { r.req.in_place_count = 1; }, "in_place is NULL"},
      {[](Request& r) { r.req.conflicts = r.pairs, r.req.conflict_count = 1, r.pairs[0].second = 2; },
       "conflicts[0] is (0, 2)"},
      {[](Request& r) { r.req.arena_count = 0; }, "arena_count is 0"},
      {[](Request& r) { r.arena[1] = 7; }, "buffer 1 is in arena 7"},
      {[](Request& r) { r.align[1] = 48; }, "buffer 1 has align 48, want a power of two"},
      {[](Request& r) { r.align[0] = 0; }, "buffer 0 has align 0, want a power of two"},
      {[](Request& r) {
         r.lives[1] = {3, 1};
       },
       "buffer 1 has lifetimes that are not sorted and disjoint"},
      {[](Request& r) { r.first[2] = 0; }, "buffer 1 has its intervals from 1 to 0"},
      {[](Request& r) { r.bytes[1] = uint64_t{1} << 63; },
       "buffer 1 has 9223372036854775808 bytes, want less"},
      {[](Request& r) { r.bytes[0] = r.bytes[1] = uint64_t{1} << 62; },
       "arena 0 that live at step 1 have 9223372036854775808 bytes together"},
      {[](Request& r) { r.req.fixed_offset = r.fixed, r.fixed[1] = UINT64_MAX - 63; }, "ends past 2^64"},
      {[](Request& r) { r.result.offset = nullptr; }, "the result's list offset is NULL"},
      {[](Request& r) { r.result.peak = nullptr; }, "the result's list peak is NULL"},
      {[](Request& r) { r.result.lower_bound = nullptr; }, "the result's list lower_bound is NULL"},
      {[](Request& r) { r.req.hdr.struct_size = 40; }, "struct_size of the request is 40"},
      {[](Request& r) { r.result.hdr.struct_size = 8; }, "struct_size of the result is 8"}};
  for (const auto& [change, words] : mistakes) {
    SCOPED_TRACE(words);
    refused(plan(change), words);
  }
  auto req = sized<belay_plan_req>();
  refused(belay::take(reuse.vt->plan(reuse.object, &req, nullptr)), "the result is NULL");
  refused(belay::take(reuse.vt->plan(reuse.object, nullptr, nullptr)), "the request is NULL");
}

TEST_F(PolicyTest, WhatIsPlacedIsCheckedAndOfTheCallersSegments) {
  const Policy pool = policy("pool");
  constexpr uint64_t kSegment = BELAY_SEGMENT_CALLER + 3, kBytes = uint64_t{1} << 20;
  const auto add = [&](uint64_t segment, uint64_t bytes, uint64_t heap) {
    return belay::take(pool.vt->segment_add(pool.object, segment, bytes, heap));
  };
  refused(add(1, kBytes, BELAY_HEAP_CALLER), "segment_add: segment is 0x1");
  refused(add(kSegment, kBytes, 0), "segment_add: heap is 0");
  refused(add(kSegment, uint64_t{1} << 63, BELAY_HEAP_CALLER), "bytes is 9223372036854775808");
  ASSERT_TRUE(add(kSegment, kBytes, BELAY_HEAP_CALLER).ok());

  belay_event waits[4];
  auto req = sized<belay_place_req>();
  auto out = sized<belay_placed>();
  req.bytes = 1000, req.heap = BELAY_HEAP_CALLER;
  out.waits = waits, out.wait_count = 4;
  const auto place = [&](const std::function<void(belay_place_req&, belay_placed&)>& change) {
    belay_place_req changed = req;
    belay_placed room = out;
    change(changed, room);
    return belay::take(pool.vt->place(pool.object, &changed, &room));
  };
  refused(place([](auto& r, auto&) { r.align = 24; }), "place: align is 24, want a power of two");
  refused(place([](auto& r, auto&) { r.heap = 5; }), "place: heap is 0x5");
  refused(place([](auto& r, auto&) { r.bytes = UINT64_MAX; }), "place: bytes is 18446744073709551615");
  refused(place([](auto&, auto& o) { o.waits = nullptr; }), "waits is NULL, but wait_count is 4");
  refused(place([](auto& r, auto&) { r.hdr.struct_size = 24; }), "struct_size of the request is 24");
  refused(place([](auto&, auto& o) { o.hdr.struct_size = 24; }), "struct_size of the place is 24");
  static const belay_progress nothing{};
  refused(place([](auto& r, auto&) { r.progress = &nothing; }), "progress has no function");
  refused(belay::take(pool.vt->place(pool.object, nullptr, &out)), "the request is NULL");
  refused(belay::take(pool.vt->place(pool.object, &req, nullptr)), "the place is NULL");

  ASSERT_TRUE(belay::take(pool.vt->place(pool.object, &req, &out)).ok());
  EXPECT_EQ(out.segment, kSegment);
  refused(belay::take(pool.vt->release(pool.object, out.cookie, nullptr, 2)),
          "uses is NULL, but its count is 2");
  EXPECT_TRUE(belay::take(pool.vt->release(pool.object, out.cookie, nullptr, 0)).ok());
  refused(belay::take(pool.vt->trim(pool.object, 1, nullptr, nullptr)), "each is NULL");
  refused(belay::take(pool.vt->segment_remove(pool.object, 1)), "segment_remove: segment is 0x1");
  ASSERT_TRUE(belay::take(pool.vt->segment_remove(pool.object, kSegment)).ok());
  refused(belay::take(pool.vt->stats(pool.object, nullptr)), "inout is NULL");
  refused(belay::take(pool.vt->snapshot(pool.object, {})), "json.write is NULL");
  pool.vt->destroy(pool.object);  // it is the runtime's
  belay::StringSink json;
  EXPECT_TRUE(belay::take(pool.vt->snapshot(pool.object, json.sink())).ok());
}

TEST_F(PolicyTest, MemoryToShareIsCheckedForTheDeviceAndForThePolicy) {
  const Policy zerocopy = policy("zerocopy");
  const belay::Device device = runtime_.default_device().value();
  char memory[64];
  const auto bind = [&](const std::function<void(belay_bind_req&)>& change, bool of_policy) {
    auto req = sized<belay_bind_req>();
    auto out = sized<belay_bound>();
    req.address = reinterpret_cast<uint64_t>(memory), req.bytes = sizeof memory,
    req.access = BELAY_ACCESS_READ;
    change(req);
    return belay::take(of_policy ? zerocopy.vt->bind(zerocopy.object, &req, &out)
                                 : runtime_.hal().bind(runtime_.host(), device.get(), &req, &out));
  };
  for (const bool of_policy : {false, true}) {
    EXPECT_TRUE(bind([](auto& r) { r.device_flags = BELAY_DEVICE_BINDS_HOST; }, of_policy).ok());
    refused(bind([](auto& r) { r.address = 0; }, of_policy), "bind: address is NULL, but bytes is 64");
    refused(bind([](auto& r) { r.bytes = UINT64_MAX; }, of_policy), "on end past 2^64");
    refused(bind([](auto& r) { r.alignment = 3; }, of_policy), "bind: alignment is 3");
    refused(bind([](auto& r) { r.access = 4; }, of_policy), "bind: access is 4");
  }
  EXPECT_EQ(zerocopy.vt->plan, nullptr);
  refused(belay::take(zerocopy.vt->bind(zerocopy.object, nullptr, nullptr)), "the request is NULL");
}

}  // namespace
