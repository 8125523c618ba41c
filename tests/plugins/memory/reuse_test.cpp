#include "plan_checker.hpp"

#include <belay/abi/plugin.h>
#include <gtest/gtest.h>
#include <planner/planner.hpp>

#include <algorithm>
#include <numeric>
#include <random>

namespace belay::testing {
namespace {

#if BELAY_SANITIZER != BELAY_SANITIZER_NONE
constexpr uint32_t kShare = 10;  // of the usual size: each takes thirty times as long
#else
constexpr uint32_t kShare = 1;
#endif

Status run_planner(const PlanProblem& problem, PlanAnswer& out) {
  belay_plan_result result = out.room_for(problem);
  const PlanRequest request(problem);
  const Status status = reuse::plan(request.req(), result);
  out.optimal = result.optimal;
  return status;
}

PlanAnswer solve(const PlanProblem& problem) {
  PlanAnswer out;
  const Status status = run_planner(problem, out);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(check(problem, out), "");
  return out;
}

TEST(ReusePlanTest, BuffersThatNeverMeetShareTheirPlace) {
  const PlanAnswer answer = solve({.buffers = {{128, 0, 2}, {128, 2, 4}, {64, 4, 5}}});
  EXPECT_EQ(answer.peak[0], 128u);
  EXPECT_EQ(answer.lower_bound[0], 128u);
  EXPECT_EQ(answer.optimal, 1u);
}

TEST(ReusePlanTest, ABufferLivesInTheGapOfAnother) {
  const PlanAnswer answer =
      solve({.buffers = {{.bytes = 128, .begin = 0, .end = 1, .more = {{5, 6}}}, {128, 2, 4}}});
  EXPECT_EQ(answer.peak[0], 128u);
}

TEST(ReusePlanTest, ConflictsKeepApartWhatDoesNotMeet) {
  const PlanAnswer answer = solve({.buffers = {{128, 0, 2}, {128, 2, 4}}, .conflicts = {{0, 1}}});
  EXPECT_EQ(answer.peak[0], 256u);
}

TEST(ReusePlanTest, AnInPlacePairSharesItsOffset) {
  const PlanAnswer answer = solve({.buffers = {{128, 0, 2}, {128, 1, 3}}, .in_place = {{0, 1}}});
  EXPECT_EQ(answer.peak[0], 128u);
  EXPECT_EQ(answer.lower_bound[0], 128u);
}

TEST(ReusePlanTest, APairThatMeetsLongerThanOneStepIsKeptApart) {
  const PlanAnswer answer = solve({.buffers = {{128, 0, 3}, {128, 1, 4}}, .in_place = {{0, 1}}});
  EXPECT_EQ(answer.peak[0], 256u);
}

TEST(ReusePlanTest, FixedBuffersStayAndOthersGoAroundThem) {
  const PlanAnswer answer =
      solve({.buffers = {{.bytes = 64, .begin = 0, .end = 4, .fixed = 64}, {64, 0, 4}, {64, 0, 4}}});
  EXPECT_EQ(answer.offset[0], 64u);
  EXPECT_EQ(answer.peak[0], 192u);
}

TEST(ReusePlanTest, ArenasAreIndependent) {
  const PlanAnswer answer = solve({.buffers = {{.bytes = 64, .begin = 0, .end = 4, .arena = 0},
                                               {.bytes = 192, .begin = 0, .end = 4, .arena = 1}},
                                   .arenas = 2});
  EXPECT_EQ(answer.peak, (std::vector<uint64_t>{64, 192}));
}

TEST(ReusePlanTest, EmptyBuffersAndEmptyLivesCostNothing) {
  const PlanAnswer answer = solve({.buffers = {{0, 0, 4}, {0, 0, 0}, {64, 1, 2}}});
  EXPECT_EQ(answer.peak[0], 64u);
}

TEST(ReusePlanTest, WhatCannotHaveAnAddressIsRefusedByName) {
  PlanAnswer answer;
  for (const uint64_t most : {uint64_t{1} << 62, uint64_t{INT64_MAX} - 100}) {
    const Status status = run_planner({.buffers = {{most, 0, 1}, {most, 0, 1}}}, answer);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("Buffer 1"), std::string::npos) << status.message();
  }
  EXPECT_EQ(run_planner({.buffers = {{UINT64_MAX - 100, 0, 1}}}, answer).code(), Code::kInvalidArgument);
}

// The largest numbers that may be: sums of them have a sign.
TEST(ReusePlanTest, ExtremesOfStepsAndBytesArePlanned) {
  const uint64_t half = uint64_t{1} << 62;
  PlanAnswer answer;
  ASSERT_TRUE(run_planner({.buffers = {{half, 0, uint64_t{1} << 63},
                                       {half - 1000, INT64_MAX, UINT64_MAX},
                                       {500, UINT64_MAX - 1, UINT64_MAX}}},
                          answer)
                  .ok());
  EXPECT_GE(answer.peak[0], 2 * half - 1000);
  EXPECT_LE(answer.peak[0], uint64_t{INT64_MAX});
}

TEST(ReusePlanTest, EqualSeedsGiveEqualAnswers) {
  PlanProblem problem;
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const uint64_t begin = random() % 50;
    problem.buffers.push_back({(random() % 100 + 1) * 64, begin, begin + 1 + random() % 20});
  }
  EXPECT_EQ(solve(problem).offset, solve(problem).offset);
}

bool meet(const PlanProblem::Buffer& a, const PlanProblem::Buffer& b) {
  const auto lives = [](const PlanProblem::Buffer& of) {
    std::vector<belay_interval> all = of.more;
    all.push_back({of.begin, of.end});
    return all;
  };
  for (const belay_interval& x : lives(a))
    for (const belay_interval& y : lives(b))
      if (x.begin < y.end && y.begin < x.end) return true;
  return false;
}

// The least peak of all: of some order, in which each buffer lies as low as it can.
uint64_t least_peak(const PlanProblem& problem) {
  const auto& all = problem.buffers;
  std::vector<std::vector<bool>> meets(all.size(), std::vector<bool>(all.size()));
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = 0; b < all.size(); ++b) meets[a][b] = meet(all[a], all[b]);
  std::vector<uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0u);
  uint64_t least = UINT64_MAX;
  do {
    std::vector<std::pair<uint64_t, uint32_t>> placed;  // offset, buffer
    uint64_t peak = 0;
    for (const uint32_t i : order) {
      uint64_t offset = 0;
      std::sort(placed.begin(), placed.end());
      for (const auto& [at, other] : placed)
        if (meets[i][other] && at < offset + all[i].bytes) offset = std::max(offset, at + all[other].bytes);
      placed.emplace_back(offset, i);
      peak = std::max(peak, offset + all[i].bytes);
    }
    least = std::min(least, peak);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

TEST(ReusePlanTest, SmallProblemsAreSolvedAndProved) {
  for (uint32_t seed = 0; seed < 150 / kShare; ++seed) {
    std::mt19937 random(seed);
    PlanProblem problem{.budget_ns = 2'000'000'000, .seed = seed};
    for (uint32_t i = 0; i < 7; ++i) {
      const uint64_t begin = random() % 6;
      PlanProblem::Buffer b{
          .bytes = random() % 9 + 1, .begin = begin, .end = begin + 1 + random() % 4, .align = 1};
      if (seed % 2 && random() % 2) b.more.push_back({b.end + 1, b.end + 2 + random() % 3});
      problem.buffers.push_back(b);
    }
    const PlanAnswer answer = solve(problem);
    EXPECT_EQ(answer.peak[0], least_peak(problem)) << seed;
    EXPECT_EQ(answer.optimal, 1u) << seed;
  }
}

TEST(ReusePlanTest, AChainInPlaceNeedsTheMemoryOfOneLink) {
  PlanProblem problem{.budget_ns = 1'000'000};
  for (uint32_t i = 0; i < 50; ++i) problem.buffers.push_back({4096, i, i + 2});
  for (uint32_t i = 0; i + 1 < 50; ++i) problem.in_place.push_back({i, i + 1});
  EXPECT_EQ(solve(problem).peak[0], 4096u);
}

// Random requests with everything in them: the checker finds nothing, and the peak is between the bound and
// the sum.
TEST(ReusePlanTest, RandomPlansAreRight) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    PlanProblem problem{.arenas = 1 + seed % 3, .budget_ns = seed % 2 ? 100'000u : 0u, .seed = seed};
    const uint32_t count = random() % 40 + 1;
    for (uint32_t i = 0; i < count; ++i) {
      PlanProblem::Buffer b{random() % 5 ? random() % 5000 : 0, random() % 30, 0};
      b.end = b.begin + random() % 10;
      b.align = uint64_t{1} << random() % 9;
      b.arena = random() % problem.arenas;
      if (random() % 8 == 0) b.more.push_back({b.end + 1 + random() % 5, b.end + 7});
      problem.buffers.push_back(b);
    }
    for (uint32_t i = 0; i < count / 4; ++i)
      problem.conflicts.push_back({uint32_t(random() % count), uint32_t(random() % count)});
    for (uint32_t i = 0; i + 1 < count; ++i) {
      const auto &a = problem.buffers[i], &b = problem.buffers[i + 1];
      if (a.more.empty() && a.end == b.begin + 1) problem.in_place.push_back({i, i + 1});
    }
    const PlanAnswer answer = solve(problem);
    for (uint64_t a = 0; a < problem.arenas; ++a) {
      EXPECT_GE(answer.peak[a], answer.lower_bound[a] * (answer.optimal ? 1 : 0)) << seed;
      uint64_t sum = 0;
      for (const auto& b : problem.buffers)
        if (b.arena == a) sum += b.bytes + b.align;
      EXPECT_LE(answer.peak[a], sum) << seed;
    }
  }
}

// More buffers live at once than a list of pairs could hold: still right, in memory linear in their number.
TEST(ReusePlanTest, CrowdedPlansAreRight) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    PlanProblem problem;
    const uint32_t count = 2600 / kShare;
    for (uint32_t i = 0; i < count; ++i) {
      PlanProblem::Buffer b{random() % 9 ? random() % 5000 : 0, random() % 40, 0};
      b.end = random() % 50 ? b.begin + 30 + random() % 30 : b.begin;
      b.align = uint64_t{1} << random() % 9;
      if (i < 3 && seed % 2) b.fixed = i * 8192;
      if (random() % 8 == 0) b.more.push_back({b.end + 1 + random() % 5, b.end + 7});
      problem.buffers.push_back(b);
    }
    for (uint32_t i = 0; i < count / 5; ++i)
      problem.conflicts.push_back(
          {3 + uint32_t(random()) % (count - 3), 3 + uint32_t(random()) % (count - 3)});
    const PlanAnswer answer = solve(problem);
    EXPECT_LE(double(answer.peak[0]), 1.3 * double(answer.lower_bound[0])) << seed;
  }
}

// So many that what is taken is kept as bits, with everything that requests have; sizes of one unit, and not.
TEST(ReusePlanTest, ThousandsOfBuffersAreRightWhateverTheirUnit) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    PlanProblem problem{.budget_ns = seed % 2 ? 20'000'000u : 0u, .seed = seed};
    const uint64_t unit = seed % 4 == 3 ? 1 : seed % 4 == 2 ? 192 : 512;
    for (uint32_t i = 0; i < 2600; ++i) {
      PlanProblem::Buffer b{unit * (1 + random() % (1u << random() % 9)), random() % 400, 0};
      b.end = b.begin + 1 + (random() % 10 ? random() % 20 : random() % 200);
      b.align = seed % 4 == 2 ? 64 : uint64_t{1} << random() % 10;
      if (i < 3 && seed > 0) b.fixed = i * 1024 * unit;
      if (random() % 8 == 0) b.more.push_back({b.end + 1 + random() % 5, b.end + 7});
      problem.buffers.push_back(b);
    }
    for (uint32_t i = 0; i < 500; ++i)
      problem.conflicts.push_back({3 + uint32_t(random()) % 2597, 3 + uint32_t(random()) % 2597});
    for (uint32_t i = 3; i + 1 < 2600; ++i) {
      auto &a = problem.buffers[i], &b = problem.buffers[i + 1];
      if (random() % 6 || !a.more.empty() || !b.more.empty()) continue;
      b.end += a.end - 1 - b.begin;
      b.begin = a.end - 1;
      if (b.end > b.begin + 1) problem.in_place.push_back({i, i + 1});
    }
    for (auto& b : problem.buffers) b.end = std::max(b.end, b.begin);
    const PlanAnswer answer = solve(problem);
    if (unit == 1) continue;  // the bound knows nothing of alignments that are larger than the buffers
    EXPECT_LE(double(answer.peak[0]), 1.3 * double(answer.lower_bound[0])) << seed;
  }
}

// Mostly short lives and a few long ones, of sizes of many orders: more than one pass over them, which leaves
// 1.025 of the bound and more, and with everything that requests have still right.
TEST(ReusePlanTest, LargePlansAreMendedUntilTheyAreNearTheBound) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    std::mt19937 random(seed);
    const bool plain = seed == 0;
    PlanProblem problem{.budget_ns = seed == 2 ? 50'000'000u : 0u, .seed = seed};
    for (uint32_t i = 0; i < 4600; ++i) {
      PlanProblem::Buffer b{512 * (1 + random() % (1u << random() % 12)), i / 16, 0};
      b.end = b.begin + 1 + random() % (random() % 50 == 0 ? 200 : random() % 5 == 0 ? 30 : 2);
      b.align = plain ? 512 : uint64_t{1} << random() % 10;
      if (!plain && i < 5) b.fixed = i * 1'000'000 / 512 * 512;
      if (!plain && random() % 8 == 0) b.more.push_back({b.end + 1 + random() % 5, b.end + 7});
      problem.buffers.push_back(b);
    }
    for (uint32_t i = 0; !plain && i < 900; ++i)
      problem.conflicts.push_back({5 + uint32_t(random()) % 4595, 5 + uint32_t(random()) % 4595});
    const PlanAnswer answer = solve(problem);
    const double most = plain ? 1.015 : 1.2;
    EXPECT_LE(double(answer.peak[0]), most * double(answer.lower_bound[0])) << seed;
  }
}

// However little the budget is, the first rule ends; so no number here depends on a clock.
TEST(ReusePlanTest, ASmallBudgetIsNotMuchWorseThanNone) {
  for (const uint32_t count : {1000u, 3000u}) {
    PlanProblem problem;
    std::mt19937 random(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t begin = random() % (2 * count);
      problem.buffers.push_back({64 + random() % 5000, begin, begin + 1 + random() % 400});
    }
    PlanAnswer quick, made;
    ASSERT_TRUE(run_planner(problem, quick).ok());
    for (const uint64_t budget : {1u, 1'000'000u}) {
      problem.budget_ns = budget;
      ASSERT_TRUE(run_planner(problem, made).ok());
      EXPECT_LE(double(made.peak[0]), 1.2 * double(quick.peak[0])) << count << " in " << budget << " ns";
    }
  }
}

// Who has no time at all gets an answer, too.
TEST(ReusePlanTest, ACancelledPlanIsRight) {
  PlanProblem problem{.budget_ns = 1'000'000'000};
  std::mt19937 random(1);
  for (uint32_t i = 0; i < 3000; ++i) {
    const uint64_t begin = random() % 300;
    problem.buffers.push_back({64 + random() % 5000, begin, begin + 1 + random() % 60});
  }
  const PlanRequest request(problem);
  belay_plan_req req = request.req();
  const uint32_t cancelled = 1;
  req.cancel = &cancelled;
  PlanAnswer answer;
  belay_plan_result result = answer.room_for(problem);
  ASSERT_TRUE(reuse::plan(req, result).ok());
  EXPECT_EQ(check(problem, answer), "");
}

// So many that the small ones come last, and so few others that those are searched exactly.
TEST(ReusePlanTest, ManySmallBuffersBesideWhatIsSearchedExactlyAreRight) {
  PlanProblem problem{.budget_ns = 300'000'000};
  std::mt19937 random(5);
  for (uint32_t i = 0; i < 4200; ++i) {
    const bool large = i < 2048;
    const uint64_t begin = random() % 64, bytes = large ? (random() % 900 + 100) * 1024 : 64;
    problem.buffers.push_back({bytes, begin, begin + 1 + (large ? random() % 4 : 0)});
  }
  const PlanAnswer answer = solve(problem);
  EXPECT_LE(double(answer.peak[0]), 1.1 * double(answer.lower_bound[0]));
}

TEST(ReusePlanTest, TensOfThousandsOfBuffersAliveAtOnceLieOneAfterAnother) {
  PlanProblem problem;
  const uint32_t count = 50'000 / kShare;
  for (uint32_t i = 0; i < count; ++i) problem.buffers.push_back({64, 0, 10});
  PlanAnswer answer;
  ASSERT_TRUE(run_planner(problem, answer).ok());
  std::sort(answer.offset.begin(), answer.offset.end());
  for (uint64_t i = 0; i < answer.offset.size(); ++i) ASSERT_EQ(answer.offset[i], i * 64);
  EXPECT_EQ(answer.peak[0], uint64_t{count} * 64);
  EXPECT_EQ(answer.optimal, 1u);
}

TEST(ReusePlanTest, WhatDoesNotFitAboveAFixedBufferIsRefused) {
  PlanProblem problem;
  problem.buffers = {{64, 0, 2}, {64, 0, 2}};
  problem.buffers[0].fixed = UINT64_MAX - 191;
  PlanAnswer answer;
  const Status status = run_planner(problem, answer);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("fixed up to offset 18446744073709551488"), std::string::npos)
      << status.message();
}

// The lives of a deep network: mostly chains, some long skips. A budget far above what it takes on any
// machine.
TEST(ReusePlanTest, NetworksAreNearTheBound) {
  PlanProblem problem{.budget_ns = 500'000'000};
  std::mt19937 random(3);
  for (uint64_t step = 0; step < 400; ++step)
    problem.buffers.push_back(
        {(random() % 64 + 1) * 1024, step, step + 2 + (random() % 6 == 0 ? random() % 12 : 0)});
  const PlanAnswer answer = solve(problem);
  EXPECT_LE(double(answer.peak[0]), 1.1 * double(answer.lower_bound[0]));
}

}  // namespace
}  // namespace belay::testing
