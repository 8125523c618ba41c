// Plans kept for shapes, lanes, asynchronous runs, and what stats say of plans of several stages.
#include "engine_fixture.hpp"
#include "options.hpp"

#include <plan/lanes.hpp>

#include <malloc.h>

#include <thread>

namespace belay::testing {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

class PlansTest : public EngineTest {
 protected:
  // A chain that keeps two buffers of n floats in its arena.
  void load_chain(Options& options) {
    GraphMaker g;
    uint32_t x = g.input("x", {D::dim("n")});
    for (int i = 0; i < 4; ++i) x = g.node("Neg", 13, {x});
    g.output(x);
    ASSERT_TRUE(load(g, &options).ok());
  }
  void run_with(Runner& runner, int64_t n) {
    Tensor in = Tensor::of<float>({n}, Floats(size_t(n), 2));
    ASSERT_TRUE(runner.set(0, in).ok());
    const Status status = runner.run();
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(runner.output(0).values<float>(), Floats(size_t(n), 2));
  }
};

TEST_F(PlansTest, ThousandsOfShapesHoldMemoryFlat) {
#if BELAY_SANITIZER == BELAY_SANITIZER_ADDRESS
  constexpr int64_t kShapes = 200;  // each takes fifty times as long, and leaks are seen one by one
#else
  constexpr int64_t kShapes = 10'000;
#endif
  Options options;
  load_chain(options);
  Runner runner(host, executable);
  uint64_t objects = 0, bytes = 0;
  for (int64_t n = 1; n <= kShapes; ++n) {
    run_with(runner, 1 + n % (kShapes / 2));
    if (n != kShapes / 2) continue;
    objects = host.live_objects();
    bytes = mallinfo2().uordblks;
  }
  EXPECT_EQ(stats().plan_misses, uint64_t(kShapes));
  EXPECT_EQ(stats().plans, 16u);
  EXPECT_LE(host.live_objects(), objects + 4);
  EXPECT_LE(mallinfo2().uordblks, bytes + 200'000);
}

TEST_F(PlansTest, PlansGoWhenTheirBytesExceedTheBound) {
  Options options;
  options.set("plan_cache", 1000);
  options.set("plan_cache_bytes", 1 << 20);
  load_chain(options);
  Runner runner(host, executable);
  for (int64_t n = 10'000; n < 10'100; ++n) run_with(runner, n);  // each has an arena of 80 kB
  EXPECT_GE(stats().plans, 8u);
  EXPECT_LE(stats().plans, 13u);
  const uint64_t misses = stats().plan_misses;
  run_with(runner, 10'095);
  EXPECT_EQ(stats().plan_misses, misses);  // of the latest
  run_with(runner, 10'001);
  EXPECT_EQ(stats().plan_misses, misses + 1);  // of the oldest
}

TEST_F(PlansTest, OnePlanLargerThanTheBoundStillRuns) {
  Options options;
  options.set("plan_cache_bytes", 1);
  load_chain(options);
  Runner runner(host, executable);
  run_with(runner, 100);
  run_with(runner, 200);
  EXPECT_EQ(stats().plans, 1u);
}

TEST_F(PlansTest, DimsOfOneNameAreEqualOverAllInputs) {
  GraphMaker g;
  const uint32_t a = g.input("a", {D::dim("n"), D::dim(2)}), b = g.input("b", {D::dim(3), D::dim("n")});
  g.output(g.node("Neg", 13, {a}));
  g.output(g.node("Neg", 13, {b}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor x = Tensor::of<float>({2, 2}, {1, 2, 3, 4}), y = Tensor::of<float>({3, 1}, {1, 2, 3}),
         z = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(runner.set(0, x).ok());
  ASSERT_TRUE(runner.set(1, y).ok());
  const Status status = runner.run();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("The dim 'n' of 'test' is 2 in axis 0 of input 'a' (float32[2,2]) and "
                        "1 in axis 1 of input 'b' (float32[3,1])"));
  ASSERT_TRUE(runner.set(1, z).ok());
  EXPECT_TRUE(runner.run().ok());
}

TEST_F(PlansTest, StatsCoverAllStagesOfARun) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(4)});
  const uint32_t where = g.node("NonZero", 13, {g.node("Neg", 13, {x})});  // then a second stage
  g.output(g.node("Mul", 14, {where, g.constant<int64_t>({10}, {1})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({4}, {1, 0, 2, 0});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(runner.set(0, in).ok());
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(stats().kernels, 3u);       // Neg, NonZero, Mul
    EXPECT_EQ(stats().arena_bytes, 16u);  // the result of Neg passes between the stages
    EXPECT_EQ(stats().live_bytes, 16u);
  }
}

// ---- lanes

TEST(LanesTest, TwoHeavyChainsGoSideBySide) {
  plan::LaneRequest req;
  req.cost_ns = {200'000, 200'000, 200'000, 200'000, 1'000};
  req.edges = {{0, 1}, {2, 3}, {1, 4}, {3, 4}};
  req.lanes = 2;
  const plan::Lanes lanes = plan::spread(req);
  ASSERT_TRUE(lanes.parallel);
  EXPECT_EQ(lanes.order, (std::vector<uint32_t>{0, 2, 1, 3, 4}));
  EXPECT_EQ(lanes.end, (std::vector<uint64_t>{2, 2, 4, 4, 5}));
}

TEST(LanesTest, WhatWinsLittleKeepsItsOrder) {
  plan::LaneRequest req;
  req.cost_ns = {2'000, 2'000, 2'000};
  req.edges = {{0, 2}, {1, 2}};
  req.lanes = 2;
  EXPECT_FALSE(plan::spread(req).parallel);
  req.always = true;
  EXPECT_TRUE(plan::spread(req).parallel);
  req.cost_ns[1] = 0;  // not known
  EXPECT_FALSE(plan::spread(req).parallel);
}

TEST(LanesTest, PairsThatFollowFromOthersGo) {
  const plan::Pairs left = plan::reduce({{0, 1}, {1, 2}, {0, 2}, {0, 3}, {2, 3}, {1, 2}}, 4);
  EXPECT_EQ(left, (plan::Pairs{{0, 1}, {1, 2}, {2, 3}}));
}

// Kernels that may run at once share no memory, whatever the order in which they run.
TEST_F(PlansTest, LanesThatRunInAnyOrderGiveTheSameResults) {
  for (const int64_t streams : {1, 2, 3}) {
    GraphMaker g;
    const uint32_t x = g.input("x", {D::dim(3)});
    std::vector<uint32_t> ends;
    for (int chain = 0; chain < 3; ++chain) {
      uint32_t at = g.node("Add", 14, {x, g.constant<float>({float(chain)}, {1})});
      for (int i = 0; i < 5; ++i) at = g.node(i % 2 ? "Neg" : "Relu", 14, {g.node("Add", 14, {at, x})});
      ends.push_back(at);
    }
    g.output(g.node("Add", 14, {g.node("Add", 14, {ends[0], ends[1]}), ends[2]}));
    Options options;
    options.set("streams", streams);
    toy->cost_ns = 30'000;
    toy->in_place = true;
    ASSERT_TRUE(load(g, &options).ok());
    Runner runner(host, executable);
    Tensor in = Tensor::of<float>({3}, {1, 2, 3});
    Floats first;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      host.order_seed = seed;  // any order that the dependencies allow
      ASSERT_TRUE(runner.set(0, in).ok());
      ASSERT_TRUE(runner.run().ok());
      if (first.empty()) first = runner.output(0).values<float>();
      ASSERT_EQ(runner.output(0).values<float>(), first);
    }
    EXPECT_EQ(host.dependencies > 0, streams > 1);
    Floats want;
    for (const float v : {1.f, 2.f, 3.f}) {
      float sum = 0;
      for (int chain = 0; chain < 3; ++chain) {
        float at = v + float(chain);
        for (int i = 0; i < 5; ++i) at = i % 2 ? -(at + v) : std::max(0.f, at + v);
        sum += at;
      }
      want.push_back(sum);
    }
    EXPECT_EQ(first, want);
  }
}

// ---- asynchronous runs

struct Told {
  std::atomic<int> times{0};
  std::atomic<uint32_t> code{~0u};
  FakeHost* host = nullptr;
  belay_completion completion() {
    return {this, [](void* user, belay_status status) BELAY_NOEXCEPT {
              auto& self = *static_cast<Told*>(user);
              self.code = uint32_t(self.host->take(status).code());
              self.times.fetch_add(1);
            }};
  }
};

class AsyncTest : public PlansTest {
 protected:
  void SetUp() override {
    GraphMaker g;
    g.output(g.node("Neg", 13, {g.input("x", {D::dim(1)})}));
    ASSERT_TRUE(load(g).ok());
    told.host = &host;
  }
  Told told;
};

TEST_F(AsyncTest, TheCompletionComesOnceWithTheResult) {
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({1}, {3});
  ASSERT_TRUE(runner.set(0, in).ok());
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(BELAY_STATUS_CODE(runner.run_async(told.completion())), uint32_t(BELAY_DEFERRED));
    EXPECT_EQ(told.times, i);  // this host's device runs at once
    EXPECT_EQ(told.code, uint32_t(Code::kOk));
    EXPECT_EQ(runner.output(0).values<float>(), Floats{-3});
  }
  EXPECT_EQ(stats().runs, 3u);
}

TEST_F(AsyncTest, AFailureIsToldOnceAndTheNextRunWorks) {
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({1}, {3});
  ASSERT_TRUE(runner.set(0, in).ok());
  host.fail_next = true;
  ASSERT_EQ(BELAY_STATUS_CODE(runner.run_async(told.completion())), uint32_t(BELAY_DEFERRED));
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.code, uint32_t(Code::kInternal));
  ASSERT_EQ(BELAY_STATUS_CODE(runner.run_async(told.completion())), uint32_t(BELAY_DEFERRED));
  EXPECT_EQ(told.times, 1);
  EXPECT_TRUE(host.run_one());  // the stream works again after a task of the executor has seen to it
  EXPECT_EQ(told.times, 2);
  EXPECT_EQ(told.code, uint32_t(Code::kOk));
}

TEST_F(AsyncTest, WhatCannotStartGivesAnErrorWithoutACompletion) {
  Runner runner(host, executable);  // its input is not set
  const belay_status status = runner.run_async(told.completion());
  EXPECT_EQ(host.take(status).code(), Code::kFailedPrecondition);
  EXPECT_EQ(told.times, 0);
}

TEST_F(AsyncTest, DestroyingAContextWaitsForItsRun) {
  host.hold = true;  // completions wait for `release`
  std::atomic<bool> destroyed{false};
  std::thread releaser;
  {
    Runner runner(host, executable);
    Tensor in = Tensor::of<float>({1}, {3});
    ASSERT_TRUE(runner.set(0, in).ok());
    ASSERT_EQ(BELAY_STATUS_CODE(runner.run_async(told.completion())), uint32_t(BELAY_DEFERRED));
    EXPECT_EQ(told.times, 0);
    releaser = std::thread([&] {
      std::this_thread::yield();
      EXPECT_FALSE(destroyed);
      host.release();
    });
  }
  destroyed = true;
  EXPECT_EQ(told.times, 1);
  releaser.join();
}

}  // namespace
}  // namespace belay::testing
