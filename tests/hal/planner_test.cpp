#include "hal/planner.h"

#include "hal_fixture.h"

#include <belay/abi/memory_policy.h>

#include <functional>

namespace belay::hal {
namespace {

// A plan request that owns its lists: each buffer lives in one interval.
struct Problem {
  std::vector<uint64_t> bytes, align, first{0}, fixed;
  std::vector<uint32_t> arena;
  std::vector<belay_interval> intervals;
  std::vector<belay_pair> conflicts, in_place;
  std::vector<uint64_t> offset, peak{0}, lower_bound{0};
  uint64_t arenas = 1;

  Problem& add(uint64_t size, uint64_t begin, uint64_t end, uint64_t alignment = 1,
               uint64_t at = BELAY_OFFSET_FREE) {
    bytes.push_back(size), align.push_back(alignment), fixed.push_back(at), arena.push_back(0);
    intervals.push_back({begin, end});
    first.push_back(intervals.size());
    return *this;
  }
  belay_plan_req req() {
    auto made = request<belay_plan_req>();
    made.count = bytes.size();
    made.bytes = bytes.data(), made.align = align.data(), made.arena = arena.data(),
    made.arena_count = arenas;
    made.interval_first = first.data(), made.intervals = intervals.data(), made.fixed_offset = fixed.data();
    made.conflicts = conflicts.data(), made.conflict_count = conflicts.size();
    made.in_place = in_place.data(), made.in_place_count = in_place.size();
    return made;
  }
  belay_plan_result result() {
    offset.resize(bytes.size());
    peak.resize(arenas), lower_bound.resize(arenas);
    auto made = request<belay_plan_result>();
    made.offset = offset.data(), made.peak = peak.data(), made.lower_bound = lower_bound.data();
    return made;
  }
  // What the check says to an answer; the peak is given true.
  Status check(std::vector<uint64_t> answer) {
    belay_plan_result given = result();
    offset = std::move(answer);
    given.offset = offset.data();
    peak.assign(arenas, 0), lower_bound.assign(arenas, 0);
    for (size_t i = 0; i < bytes.size(); ++i) peak[arena[i]] = std::max(peak[arena[i]], offset[i] + bytes[i]);
    return check_plan(req(), given);
  }
};

TEST(CheckPlanTest, AcceptsBuffersThatShareInTurn) {
  Problem problem;
  problem.add(100, 0, 2).add(50, 2, 4).add(50, 2, 4).add(0, 0, 4);
  EXPECT_TRUE(problem.check({0, 0, 50, 7}).ok());
}

TEST(CheckPlanTest, NamesBuffersThatOverlapWhileBothLive) {
  Problem problem;
  problem.add(100, 0, 3).add(50, 2, 4);
  EXPECT_TRUE(problem.check({0, 100}).ok());
  const Status status = problem.check({0, 99});
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("buffer 1 (50 bytes at 99"),
                                      HasSubstr("buffer 0 (100 bytes at 0"), HasSubstr("step 2")));
}

TEST(CheckPlanTest, FindsAnOverlapWithALongBufferBehindAShortOne) {
  Problem problem;
  problem.add(1000, 0, 9).add(10, 0, 9).add(10, 3, 5);
  EXPECT_FALSE(problem.check({0, 1000, 500}).ok());
  EXPECT_TRUE(problem.check({0, 1000, 1010}).ok());
}

TEST(CheckPlanTest, AgreesWithTryingAllPairs) {
  uint32_t seed = 1;
  const auto random = [&](uint32_t below) { return (seed = seed * 1664525 + 1013904223) / 65536 % below; };
  int good = 0;
  for (int round = 0; round < 3000; ++round) {
    Problem problem;
    std::vector<uint64_t> answer;
    const uint32_t count = 2 + random(5);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t begin = random(6);
      problem.add(random(12), begin, begin + random(4));
      answer.push_back(random(40));
    }
    bool apart = true;
    for (uint32_t a = 0; a < count; ++a)
      for (uint32_t b = a + 1; b < count; ++b) {
        const auto &x = problem.intervals[a], &y = problem.intervals[b];
        if (x.begin < x.end && y.begin < y.end && x.begin < y.end && y.begin < x.end && problem.bytes[a] &&
            problem.bytes[b] && answer[a] < answer[b] + problem.bytes[b] &&
            answer[b] < answer[a] + problem.bytes[a])
          apart = false;
      }
    ASSERT_EQ(problem.check(answer).ok(), apart) << "round " << round;
    good += apart;
  }
  EXPECT_GT(good, 300);
}

TEST(CheckPlanTest, AlignmentFixedOffsetsConflictsAndPeaksCount) {
  Problem problem;
  problem.add(10, 0, 1, 64).add(10, 1, 2, 1, 128).add(10, 2, 3);
  EXPECT_TRUE(problem.check({64, 128, 64}).ok());
  EXPECT_THAT(problem.check({32, 128, 0}).message(), HasSubstr("not aligned to 64"));
  EXPECT_THAT(problem.check({64, 64, 0}).message(), HasSubstr("fixed at 128"));
  problem.conflicts = {{0, 2}};
  EXPECT_THAT(problem.check({64, 128, 64}).message(), HasSubstr("they conflict"));
  EXPECT_TRUE(problem.check({64, 128, 0}).ok());
  belay_plan_result low = problem.result();
  problem.peak = {10};
  low.peak = problem.peak.data();
  EXPECT_THAT(check_plan(problem.req(), low).message(), HasSubstr("peak of arena 0"));
}

TEST(CheckPlanTest, APairInPlaceMayMeetAtOneOffsetAndNowhereElse) {
  Problem problem;
  problem.add(100, 0, 3).add(80, 2, 5);
  EXPECT_FALSE(problem.check({0, 0}).ok());
  problem.in_place = {{0, 1}};
  EXPECT_TRUE(problem.check({0, 0}).ok());
  EXPECT_FALSE(problem.check({0, 10}).ok());
}

TEST(PlanRequestTest, WrongListsAreNamed) {
  Problem problem;
  problem.add(10, 0, 2).add(10, 1, 3);
  const auto message = [&] { return check_plan_request(problem.req()).message(); };
  EXPECT_EQ(message(), "");
  problem.align[1] = 3;
  EXPECT_THAT(message(), HasSubstr("buffer 1 has align 3"));
  problem.align[1] = 1;
  problem.intervals[0] = {5, 2};
  EXPECT_THAT(message(), HasSubstr("buffer 0 has lifetimes that are not sorted"));
  problem.intervals[0] = {0, 2};
  problem.arena[0] = 1;
  EXPECT_THAT(message(), HasSubstr("buffer 0 is in arena 1; there are 1"));
  problem.arena[0] = 0;
  problem.conflicts = {{0, 2}};
  EXPECT_THAT(message(), HasSubstr("conflicts[0] is (0, 2)"));
  problem.conflicts.clear();
  problem.bytes[0] = uint64_t{1} << 63;
  EXPECT_THAT(message(), HasSubstr("buffer 0 has 9223372036854775808 bytes, want less than 2^63"));
  problem.bytes[0] = problem.bytes[1] = uint64_t{1} << 62;
  EXPECT_THAT(message(),
              HasSubstr("the buffers of arena 0 that live at step 1 have 9223372036854775808 bytes"));
  problem.intervals[1] = {2, 3};  // one after the other
  EXPECT_EQ(message(), "");
  problem.first[1] = 9;
  EXPECT_THAT(message(), HasSubstr("buffer 1 has its intervals from 9 to 2; want a list that grows"));
}

// A policy of one slot.
struct FakePolicy {
  belay_memory_policy_vt table{};
  belay_obj object{};
  std::function<belay_status(const belay_plan_req&, belay_plan_result&)> plan;
  uint64_t classes = BELAY_POLICY_PLAN;

  FakePolicy() {
    table.hdr.struct_size = sizeof table;
    table.serves = [](belay_obj* self) -> uint64_t { return static_cast<FakePolicy*>(self->impl)->classes; };
    table.plan = [](belay_obj* self, const belay_plan_req* req, belay_plan_result* result) {
      return static_cast<FakePolicy*>(self->impl)->plan(*req, *result);
    };
    object = {BELAY_OBJ_MAGIC, BELAY_OBJ_MEMORY_POLICY, 1, &table, this, {}};
  }
};

class PlannerTest : public HalTest {
 protected:
  Status plan(Problem& problem) {
    const belay_plan_req req = problem.req();
    belay_plan_result result = problem.result();
    return take(vt().plan(host(), &req, &result));
  }
  FakePolicy first_, second_;
};

TEST_F(PlannerTest, WithoutAPolicyEachBufferHasAPlaceOfItsOwn) {
  start();
  Problem problem;
  problem.add(10, 0, 1, 64).add(20, 1, 2, 64).add(5, 0, 2, 64, 256);
  ASSERT_TRUE(plan(problem).ok());
  EXPECT_EQ(problem.offset[2], 256u);
  EXPECT_TRUE(problem.check(problem.offset).ok());
  EXPECT_EQ(problem.offset[0] % 64, 0u);
  EXPECT_NE(problem.offset[0], problem.offset[1]);
}

TEST_F(PlannerTest, APolicyThatDeclinesLeavesTheNextItsTurn) {
  first_.plan = [](const belay_plan_req&, belay_plan_result&) { return belay_status(BELAY_DECLINED); };
  second_.plan = [](const belay_plan_req&, belay_plan_result& result) {
    result.offset[0] = 640;
    result.peak[0] = 650;
    result.lower_bound[0] = 10;
    return belay_status(BELAY_OK);
  };
  start({}, {{"first", "p1", &first_.object}, {"second", "p2", &second_.object}});
  Problem problem;
  problem.add(10, 0, 1);
  ASSERT_TRUE(plan(problem).ok());
  EXPECT_EQ(problem.offset[0], 640u);
}

TEST_F(PlannerTest, AWrongAnswerNamesThePolicyAndTheBuffers) {
  first_.plan = [](const belay_plan_req& req, belay_plan_result& result) {
    for (uint64_t i = 0; i < req.count; ++i) result.offset[i] = 0;
    result.peak[0] = 20;
    result.lower_bound[0] = 20;
    return belay_status(BELAY_OK);
  };
  start({}, {{"careless", "careless-plugin", &first_.object}});
  Problem problem;
  problem.add(10, 0, 2).add(20, 1, 3);
  const Status status = plan(problem);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'careless'"), HasSubstr("buffer 1"), HasSubstr("buffer 0")));
}

TEST_F(PlannerTest, AFailureOfAPolicyIsItsOwn) {
  first_.plan = [&](const belay_plan_req&, belay_plan_result&) {
    return to_c(*host(), {Code::kResourceExhausted, "Arena 0 has 10 bytes."});
  };
  start({}, {{"tight", "p1", &first_.object}});
  Problem problem;
  problem.add(10, 0, 2);
  EXPECT_EQ(plan(problem).message(), "Arena 0 has 10 bytes. (while planning memory with policy 'tight')");
}

TEST_F(PlannerTest, PoliciesOfOtherClassesAreNotAsked) {
  first_.classes = BELAY_POLICY_PLACE;
  first_.plan = [](const belay_plan_req&, belay_plan_result&) -> belay_status { return BELAY_INTERNAL; };
  start({}, {{"pool", "p1", &first_.object}});
  Problem problem;
  problem.add(10, 0, 2);
  EXPECT_TRUE(plan(problem).ok());
}

}  // namespace
}  // namespace belay::hal
