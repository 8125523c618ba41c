#include "pool_checker.hpp"

#include <belay/abi/plugin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>

// Every allocation of the program: the one that `g_fail_in` counts down to fails.
namespace {
thread_local uint64_t g_fail_in = 0;  // 0: none
}  // namespace

void* operator new(size_t bytes) {
  if (g_fail_in && --g_fail_in == 0) throw std::bad_alloc();
  if (void* const made = std::malloc(bytes ? bytes : 1)) return made;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t align) {
  if (g_fail_in && --g_fail_in == 0) throw std::bad_alloc();
  const size_t step = size_t(align);
  if (void* const made = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return made;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace belay::testing {
namespace {

using ::testing::HasSubstr;

#if BELAY_SANITIZER != BELAY_SANITIZER_NONE
constexpr int kRounds = 60;
#else
constexpr int kRounds = 250;
#endif

pool::Options small() {
  return {.block_size = 256, .pool_size = 64 << 10, .growth = 4096, .growth_percent = 10};
}

TEST(PoolTest, WhatIsReleasedOnATimelineIsItsAtOnceAndOthersAfterTheEvent) {
  PoolChecker checker(small());
  const uint64_t first = checker.place({.bytes = 60 << 10, .timeline = 1});
  checker.release(first, {{1, checker.queue(1)}});
  const uint64_t again = checker.place({.bytes = 60 << 10, .timeline = 1});
  EXPECT_EQ(checker.reserved(), 64u << 10);
  checker.release(again, {{1, checker.queue(1)}});
  EXPECT_NE(checker.place({.bytes = 60 << 10, .timeline = 2, .room = 0}), 0u);  // no room for a wait: it grows
  EXPECT_GT(checker.reserved(), 64u << 10);
  EXPECT_EQ(checker.waits(), 0u);
  checker.reach_all();
  const uint64_t reserved = checker.reserved();
  EXPECT_NE(checker.place({.bytes = 60 << 10, .timeline = 2}), 0u);
  EXPECT_EQ(checker.reserved(), reserved);
  EXPECT_EQ(checker.waits(), 0u);
  EXPECT_EQ(checker.wrong(), "");
}

TEST(PoolTest, WaitsComeBeforeGrowthOrAfterIt) {
  for (const bool wait : {true, false}) {
    pool::Options options = small();
    options.wait_first = wait;
    PoolChecker checker(options);
    checker.release(checker.place({.bytes = 30 << 10, .timeline = 1}), {{1, checker.queue(1)}});
    EXPECT_NE(checker.place({.bytes = 60 << 10, .timeline = 2}), 0u);  // the clean rest alone is too small
    EXPECT_EQ(checker.waits(), wait ? 1u : 0u);
    EXPECT_EQ(checker.reserved() == 64 << 10, wait);
    EXPECT_EQ(checker.wrong(), "");
  }
}

TEST(PoolTest, ARunOfSeveralTimelinesWaitsForTheLatestOfEach) {
  pool::Options options = small();
  options.hard_limit = 64 << 10;
  options.wait_first = false;  // the limit leaves nothing else
  PoolChecker checker(options);
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < 4; ++i) all.push_back(checker.place({.bytes = 16 << 10, .timeline = 1 + i % 2}));
  for (uint64_t i = 0; i < 4; ++i) checker.release(all[i], {{1 + i % 2, checker.queue(1 + i % 2)}});
  EXPECT_NE(checker.place({.bytes = 64 << 10, .timeline = 3}), 0u);
  EXPECT_EQ(checker.waits(), 2u);
  EXPECT_EQ(checker.wrong(), "");
}

TEST(PoolTest, ABlockUsedOnSeveralTimelinesIsFreeAfterAllOfThem) {
  PoolChecker checker(small());
  const uint64_t block = checker.place({.bytes = 64 << 10, .timeline = 1});
  checker.release(block, {{1, checker.queue(1)}, {2, checker.queue(2)}, {3, checker.queue(3)}});
  checker.reach(2, 1);
  EXPECT_NE(checker.place({.bytes = 64 << 10, .timeline = 3}), 0u);
  EXPECT_EQ(checker.waits(), 1u);  // timeline 1
  EXPECT_EQ(checker.reserved(), 64u << 10);
  EXPECT_EQ(checker.wrong(), "");
}

TEST(PoolTest, AHardLimitIsNamedWithWhatIsInUse) {
  pool::Options options = small();
  options.hard_limit = 128 << 10;
  PoolChecker checker(options);
  EXPECT_NE(checker.place({.bytes = 100 << 10}), 0u);
  EXPECT_EQ(checker.place({.bytes = 100 << 10}), 0u);
  EXPECT_EQ(checker.last().code(), Code::kResourceExhausted);
  EXPECT_THAT(checker.last().message(), HasSubstr("no place for 102400 bytes: of heap 1 102400 of 131072 bytes are in use, "
                                                  "and hard_limit, 131072, leaves 0"));
  EXPECT_NE(checker.place({.bytes = 20 << 10}), 0u);
  EXPECT_EQ(checker.pool().stats().exhausted, 1u);
  EXPECT_EQ(checker.wrong(), "");
}

TEST(PoolTest, PastTheSoftLimitItGrowsByNoMoreThanItMust) {
  pool::Options options = small();
  options.soft_limit = 96 << 10;
  options.growth = 1 << 20;
  PoolChecker checker(options);
  checker.place({.bytes = 64 << 10});
  checker.place({.bytes = 64 << 10});
  EXPECT_EQ(checker.reserved(), 128u << 10);
  EXPECT_EQ(checker.wrong(), "");
}

TEST(PoolTest, ACookieIsGoodOnce) {
  PoolChecker checker(small());
  const uint64_t cookie = checker.place({});
  EXPECT_TRUE(checker.pool().release(cookie, nullptr, 0).ok());
  EXPECT_EQ(checker.pool().release(cookie, nullptr, 0).code(), Code::kNotFound);
  PoolChecker other(small());
  const uint64_t old = other.place({});
  other.release(old, {});
  const uint64_t fresh = other.place({});  // the same block
  EXPECT_NE(old, fresh);
  EXPECT_FALSE(other.pool().release_at_once(old, nullptr, 0));
  EXPECT_THAT(other.pool().release(0xabc, nullptr, 0).message(), HasSubstr("the cookie 0xabc;"));
  EXPECT_EQ(other.wrong(), "");
}

TEST(PoolTest, AlignmentPastTheBlockSizeIsKeptAndItsGapIsFree) {
  PoolChecker checker(small());
  checker.place({.bytes = 256});
  EXPECT_NE(checker.place({.bytes = 4096, .align = 32768}), 0u);
  EXPECT_EQ(checker.pool().stats().in_use, 256u + 4096u);
  EXPECT_NE(checker.place({.bytes = 32768 - 256}), 0u);
  EXPECT_EQ(checker.reserved(), 64u << 10);
  EXPECT_EQ(checker.place({.bytes = 1, .align = 4 << 20}), 0u);
  EXPECT_EQ(checker.last().code(), Code::kDeclined);
  EXPECT_EQ(checker.place({.bytes = UINT64_MAX}), 0u);
  EXPECT_EQ(checker.last().code(), Code::kDeclined);
  EXPECT_EQ(checker.wrong(), "");
}

TEST(PoolTest, WrongOptionsAreNamedWithTheirValues) {
  EXPECT_THAT(pool::Options{.block_size = 3000}.check().message(), HasSubstr("block_size is 3000, want a power of two"));
  EXPECT_THAT(pool::Options{.alignment = 3}.check().message(), HasSubstr("alignment is 3, want a power of two"));
  EXPECT_THAT((pool::Options{.soft_limit = 4096, .hard_limit = 2048}.check().message()),
              HasSubstr("soft_limit is 4096, want no more than hard_limit, which is 2048"));
  EXPECT_THAT(pool::Options{.hard_limit = 100}.check().message(), HasSubstr("hard_limit is 100"));
}

TEST(PoolTest, WrongSegmentsAreRefused) {
  pool::Pool pool(small());
  EXPECT_THAT(pool.add_segment(1, 100, 1).message(), HasSubstr("Segment 1 of 100 bytes is smaller than a block"));
  EXPECT_EQ(pool.add_segment(1, uint64_t{1} << 60, 1).code(), Code::kOutOfRange);
  EXPECT_TRUE(pool.add_segment(1, 4096, 1).ok());
  EXPECT_EQ(pool.add_segment(1, 4096, 2).code(), Code::kAlreadyExists);
  EXPECT_EQ(pool.remove_segment(2).code(), Code::kNotFound);
}

// More streams than there are colours for.
TEST(PoolTest, AThousandTimelines) {
  PoolChecker checker(small());
  std::vector<uint64_t> all;
  for (uint64_t i = 1; i <= 1000; ++i) all.push_back(checker.place({.bytes = 300, .timeline = i}));
  for (uint64_t i = 1; i <= 1000; ++i) checker.release(all[i - 1], {{i, checker.queue(i)}});
  for (uint64_t i = 1; i <= 1000; ++i) all[i - 1] = checker.place({.bytes = 500, .timeline = 1 + i * 7 % 1000, .room = 64});
  checker.compare();
  checker.end();
  EXPECT_EQ(checker.wrong(), "");
}

TEST(PoolPropertyTest, NothingOverlapsAndNothingIsLost) {
  uint64_t waits = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::mt19937 random{uint32_t(round)};
    std::vector<uint8_t> bytes(3000);
    for (uint8_t& byte : bytes) byte = uint8_t(random());
    ASSERT_EQ(drive_pool(bytes.data(), bytes.size(), &waits), "") << "round " << round;
  }
  EXPECT_GT(waits, 0u);
}

// An allocation of the pool's own fails, whichever: what was asked for fails with it, and all else goes on.
TEST(PoolPropertyTest, OutOfMemoryAtTheKthAllocationLeavesEverythingUsable) {
  bool failed = true;
  for (uint64_t k = 1; failed; ++k) {
    failed = false;
    pool::Pool pool(small());
    std::vector<uint64_t> cookies;
    cookies.reserve(400);
    uint64_t segments = 0, value = 0;
    g_fail_in = k;
    const auto attempt = [&](auto&& body) {  // again where memory is out
      try {
        body();
      } catch (const std::bad_alloc&) {
        failed = true;
        ASSERT_EQ(g_fail_in, 0u);
        ASSERT_EQ(pool.check(), "");
        body();
      }
    };
    for (uint64_t i = 0; i < 400; ++i) {
      belay_place_req req{};
      req.bytes = 300 + i % 7 * 1000;
      req.heap = 1 + i % 2;
      req.timeline = 1 + i % 5;
      belay_placed out{};
      Status status;
      attempt([&] { status = pool.place(req, out); });
      while (status.code() == Code::kNeedSegment) {
        const uint64_t id = ++segments;
        attempt([&] {
          if (!pool.add_segment(id, out.need_bytes, req.heap).ok()) throw std::bad_alloc();
        });
        attempt([&] { status = pool.place(req, out); });
      }
      ASSERT_TRUE(status.ok()) << status.message();
      cookies.push_back(out.cookie);
      if (i % 3) continue;
      const belay_event uses[] = {{1 + i % 5, ++value}, {7, ++value}};
      const uint64_t cookie = cookies[cookies.size() / 2];
      cookies.erase(cookies.begin() + long(cookies.size() / 2));
      attempt([&] { ASSERT_TRUE(pool.release(cookie, uses, 1 + i % 2).ok()); });
    }
    g_fail_in = 0;
    ASSERT_EQ(pool.check(), "");
    for (const uint64_t cookie : cookies) ASSERT_TRUE(pool.release(cookie, nullptr, 0).ok());
    ASSERT_EQ(pool.stats().in_use, 0u);
  }
}

}  // namespace
}  // namespace belay::testing
