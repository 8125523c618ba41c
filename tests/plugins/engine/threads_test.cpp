// Many threads on one executable.
#include "engine_fixture.hpp"
#include "options.hpp"

#include <thread>

namespace belay::testing {
namespace {

TEST_F(EngineTest, EightThreadsWithTheirOwnShapesGetTheirOwnResults) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim("n")});
  const uint32_t y = g.node("Mul", 14, {g.node("Add", 14, {x, x}), g.constant<float>({3}, {1})});
  g.output(y);
  g.output(g.node("NonZero", 13, {y}));
  ASSERT_TRUE(load(g).ok());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Runner runner(host, executable);
      for (int i = 0; i < 50; ++i) {
        const int64_t n = 1 + (t * 7 + i) % 5;
        std::vector<float> values;
        for (int64_t k = 0; k < n; ++k) values.push_back(float(t * 100 + i + k) * float((k + t) % 2));
        Tensor in = Tensor::of<float>({n}, values);
        std::vector<int64_t> where;
        for (int64_t k = 0; k < n; ++k) {
          values[size_t(k)] *= 6;
          if (values[size_t(k)] != 0) where.push_back(k);
        }
        if (!runner.set(0, in).ok() || !runner.run().ok() || runner.output(0).values<float>() != values ||
            runner.output(1).values<int64_t>() != where)
          wrong.fetch_add(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(stats().runs, 400u);
}

class ContextsTest : public EngineTest {
 protected:
  void load_with_two_contexts(const char* full) {
    GraphMaker g;
    g.output(g.node("Neg", 13, {g.input("x", {D::dim(1)})}));
    options.set("max_contexts", 2);
    options.set("contexts_full", full);
    ASSERT_TRUE(load(g, &options).ok());
  }
  Options options;
};

TEST_F(ContextsTest, OneMoreThanAllIsRefusedAndOneThatWasGivenBackIsTaken) {
  load_with_two_contexts("error");
  Runner first(host, executable);
  auto second = std::make_unique<Runner>(host, executable);
  ASSERT_TRUE(first.status.ok() && second->status.ok());
  const Runner third(host, executable);
  EXPECT_EQ(third.status.code(), Code::kResourceExhausted);
  EXPECT_THAT(third.status.message(), ::testing::HasSubstr("All 2 execution contexts"));
  second.reset();
  EXPECT_TRUE(Runner(host, executable).status.ok());
  EXPECT_EQ(stats().contexts, 2u);
}

TEST_F(ContextsTest, CallersWaitForAContextWhereThatIsAsked) {
  load_with_two_contexts("wait");
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t)
    threads.emplace_back([&] {
      Runner runner(host, executable);
      Tensor in = Tensor::of<float>({1}, {1});
      if (runner.status.ok() && runner.set(0, in).ok() && runner.run().ok()) done.fetch_add(1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 32);
  EXPECT_LE(stats().contexts, 2u);
}

}  // namespace
}  // namespace belay::testing
