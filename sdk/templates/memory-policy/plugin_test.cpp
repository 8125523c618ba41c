// The plugin @ID@ as its file is built, called as a host calls it.
#include <belay/abi/memory_policy.h>
#include <belay/testing/plugin_file.hpp>

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace {

using belay::Code;
using belay::testing::FakeHost;
using belay::testing::PluginFile;

class MemoryPolicy : public testing::Test {
 protected:
  belay::Status place(uint64_t bytes, uint64_t align, belay_placed* out) {
    belay_place_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = bytes, req.align = align, req.heap = 1, req.timeline = 5, req.progress = &progress;
    *out = {};
    out->hdr.struct_size = sizeof *out;
    return host.take(policy->place(policy, &req, out));
  }
  belay_policy_stats stats() {
    belay_policy_stats now{};
    now.hdr.struct_size = sizeof now;
    EXPECT_EQ(policy->stats(policy, &now), BELAY_OK);
    return now;
  }

  uint64_t reached = 0;  // of every timeline
  belay_progress progress{[](void* user, belay_event event) noexcept {
                            return uint32_t(event.value <= *static_cast<uint64_t*>(user));
                          },
                          &reached};
  FakeHost host;
  PluginFile plugin{host, BELAY_PLUGIN_FILE};
  belay::testing::Adopted<belay_memory_policy_vt> policy =
      plugin.make<belay_memory_policy_vt>(BELAY_MEMORY_POLICY_KIND);
};

TEST_F(MemoryPolicy, PlacesAtTheLowestFreeOffset) {
  belay_placed a, b, c;
  EXPECT_EQ(place(100, 64, &a).code(), Code::kNeedSegment);
  EXPECT_GE(a.need_bytes, 100u);
  ASSERT_EQ(policy->segment_add(policy, 7, 1024, 2), BELAY_OK);  // another heap
  EXPECT_EQ(place(100, 64, &a).code(), Code::kNeedSegment);
  ASSERT_EQ(policy->segment_add(policy, 8, 1024, 1), BELAY_OK);
  ASSERT_TRUE(place(100, 64, &a).ok());
  ASSERT_TRUE(place(200, 64, &b).ok());
  EXPECT_EQ(a.segment, 8u);
  EXPECT_EQ(a.offset, 0u);
  EXPECT_EQ(b.offset, 128u);
  ASSERT_EQ(policy->release(policy, a.cookie, nullptr, 0), BELAY_OK);
  ASSERT_TRUE(place(128, 1, &c).ok());
  EXPECT_EQ(c.offset, 0u);
  EXPECT_EQ(stats().blocks, 2u);
  EXPECT_EQ(stats().in_use, 328u);
}

TEST_F(MemoryPolicy, WaitsForWhatUsesABlock) {
  belay_placed a, b;
  ASSERT_EQ(policy->segment_add(policy, 1, 256, 1), BELAY_OK);
  ASSERT_TRUE(place(256, 1, &a).ok());
  const belay_event use{5, 3};
  ASSERT_EQ(policy->release(policy, a.cookie, &use, 1), BELAY_OK);
  EXPECT_EQ(stats().pending, 256u);
  EXPECT_EQ(place(256, 1, &b).code(), Code::kNeedSegment);
  reached = 3;
  EXPECT_TRUE(place(256, 1, &b).ok());
  EXPECT_EQ(stats().pending, 0u);
}

TEST_F(MemoryPolicy, NamesWhatItDoesNotKnow) {
  const auto status = host.take(policy->release(policy, 42, nullptr, 0));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("42"), std::string::npos) << status.message();
  EXPECT_EQ(host.take(policy->segment_remove(policy, 9)).code(), Code::kNotFound);
  belay_placed out;
  EXPECT_EQ(place(64, uint64_t(1) << 40, &out).code(), Code::kDeclined);
  EXPECT_EQ(host.live_details(), 0u);
}

TEST_F(MemoryPolicy, NoTwoBlocksOverlapAndAllIsGivenBack) {
  std::mt19937 random(1);
  ASSERT_EQ(policy->segment_add(policy, 1, 1 << 16, 1), BELAY_OK);
  std::vector<std::pair<belay_placed, uint64_t>> live;
  for (int step = 0; step < 2000; ++step) {
    const uint64_t bytes = random() % 3000, align = uint64_t(1) << random() % 8;
    belay_placed out;
    if (random() % 3 && place(bytes, align, &out).ok()) {
      EXPECT_EQ(out.offset % align, 0u);
      EXPECT_LE(out.offset + bytes, 1u << 16);
      for (const auto& [other, length] : live)
        EXPECT_TRUE(out.offset >= other.offset + length || other.offset >= out.offset + bytes);
      live.emplace_back(out, bytes);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      EXPECT_EQ(policy->release(policy, live.back().first.cookie, nullptr, 0), BELAY_OK);
      live.pop_back();
    }
  }
  for (const auto& [one, bytes] : live) EXPECT_EQ(policy->release(policy, one.cookie, nullptr, 0), BELAY_OK);
  EXPECT_EQ(stats().in_use, 0u);
  EXPECT_EQ(stats().largest_free, 1u << 16);
  std::vector<uint64_t> unused;
  const auto each = [](void* user, uint64_t id) { static_cast<std::vector<uint64_t>*>(user)->push_back(id); };
  EXPECT_EQ(policy->trim(policy, 1, each, &unused), BELAY_OK);
  EXPECT_EQ(unused, std::vector<uint64_t>{1});
}

}  // namespace
