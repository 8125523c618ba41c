// Shapes that depend on data, control flow, sequences.
#include "engine_fixture.hpp"

namespace belay::testing {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

TEST_F(EngineTest, AShapeThatDependsOnDataIsSeenWhenItIsThere) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(4)});
  const uint32_t where = g.node("NonZero", 13, {g.node("Relu", 14, {x})});
  g.output(g.node("Mul", 14, {where, g.constant<int64_t>({10}, {1})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  const std::pair<Floats, Ints> cases[] = {
      {{1, -1, 2, 0}, {0, 20}}, {{0, 0, 0, 3}, {30}}, {{-1, -1, -1, -1}, {}}, {{5, 0, 5, -1}, {0, 20}}};
  for (const auto& [in, want] : cases) {
    Tensor tensor = Tensor::of<float>({4}, in);
    ASSERT_TRUE(runner.set(0, tensor).ok());
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(runner.output(0).dims, (Ints{1, int64_t(want.size())}));
    EXPECT_EQ(runner.output(0).values<int64_t>(), want);
  }
}

TEST_F(EngineTest, AShapeThatIsAnInputIsReadFirst) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(6)}), shape = g.input("shape", {D::dim("r")}, BELAY_DT_INT64);
  g.output(g.node("Neg", 13, {g.node("Reshape", 14, {g.node("Neg", 13, {x}), shape})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({6}, {1, 2, 3, 4, 5, 6}), a = Tensor::of<int64_t>({2}, {2, -1}),
         b = Tensor::of<int64_t>({3}, {1, 3, 2}), bad = Tensor::of<int64_t>({1}, {4});
  ASSERT_TRUE(runner.set(0, in).ok());
  ASSERT_TRUE(runner.set(1, a).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).dims, (Ints{2, 3}));
  ASSERT_TRUE(runner.set(1, b).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).dims, (Ints{1, 3, 2}));
  EXPECT_EQ(runner.output(0).values<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(runner.set(1, bad).ok());
  const Status status = runner.run();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("6 elements do not fill the shape [4]"));
}

// if (x < limit) x + 1 else -x, of two shapes
TEST_F(EngineTest, TheTakenBranchRuns) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(1)});
  const uint32_t less = g.node("Less", 13, {x, g.constant<float>({10}, {1})});
  const uint32_t yes = g.b.add_graph("yes", 0), no = g.b.add_graph("no", 0);
  g.output(g.node("Add", 14, {x, g.constant<float>({1}, {1}, yes)}, yes), yes);
  g.output(g.node("Neg", 13, {x}, no), no);
  const uint32_t y = g.node("If", 16, {less});
  g.b.set_graph(g.last, "then_branch", yes);
  g.b.set_graph(g.last, "else_branch", no);
  g.output(g.node("Mul", 14, {y, g.constant<float>({2}, {1})}));
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  for (const auto& [in, want] : std::vector<std::pair<float, float>>{{3, 8}, {20, -40}, {4, 10}, {11, -22}}) {
    Tensor tensor = Tensor::of<float>({1}, {in});
    ASSERT_TRUE(runner.set(0, tensor).ok());
    ASSERT_TRUE(runner.run().ok());
    EXPECT_EQ(runner.output(0).values<float>(), Floats{want});
  }
}

TEST_F(EngineTest, AConstantConditionLeavesNoBranch) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(1)});
  const uint32_t yes = g.b.add_graph("yes", 0), no = g.b.add_graph("no", 0);
  g.output(g.node("Neg", 13, {x}, yes), yes);
  g.output(x, no);
  const uint8_t truth = 1;
  const uint32_t at = g.b.add_constant("t", BELAY_DT_BOOL, Ints{}, {&truth, 1});
  const uint32_t condition = g.b.add_value(0, "t", g.b.tensor_type(BELAY_DT_BOOL, Ints{}), at);
  const uint32_t y = g.node("If", 16, {condition});
  g.b.set_graph(g.last, "then_branch", yes);
  g.b.set_graph(g.last, "else_branch", no);
  g.output(y);
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor tensor = Tensor::of<float>({1}, {3});
  ASSERT_TRUE(runner.set(0, tensor).ok());
  ASSERT_TRUE(runner.run().ok());
  EXPECT_EQ(runner.output(0).values<float>(), Floats{-3});
  EXPECT_EQ(host.launches, 1u);
}

// A loop that carries a value, reads one from outside and collects each state.
TEST_F(EngineTest, ALoopCarriesAndCollects) {
  GraphMaker g;
  const uint32_t trips = g.input("trips", {}, BELAY_DT_INT64), start = g.input("start", {D::dim(2)}),
                 step = g.input("step", {D::dim(2)});
  const uint32_t body = g.b.add_graph("body", 0);
  g.input("i", {}, BELAY_DT_INT64, body);
  const uint32_t going = g.input("going", {}, BELAY_DT_BOOL, body),
                 state = g.input("state", {D::dim(2)}, BELAY_DT_FLOAT32, body);
  const uint32_t next = g.node("Add", 14, {state, step}, body);
  g.output(going, body);
  g.output(next, body);
  g.output(next, body);
  const std::vector<uint32_t> out = g.nodes("Loop", 16, {trips, BELAY_NONE, start}, 2);
  g.b.set_graph(g.last, "body", body);
  g.output(out[0]);
  g.output(out[1]);
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor s = Tensor::of<float>({2}, {0, 1}), d = Tensor::of<float>({2}, {1, 10});
  ASSERT_TRUE(runner.set(1, s).ok());
  ASSERT_TRUE(runner.set(2, d).ok());
  for (const int64_t n : {3, 0, 2}) {
    Tensor count = Tensor::of<int64_t>({}, {n});
    ASSERT_TRUE(runner.set(0, count).ok());
    const Status status = runner.run();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(runner.output(0).values<float>(), (Floats{float(n), 1 + 10 * float(n)}));
    EXPECT_EQ(runner.output(1).dims, (Ints{n, 2}));
    Floats want;
    for (int64_t i = 1; i <= n; ++i) want.insert(want.end(), {float(i), 1 + 10 * float(i)});
    EXPECT_EQ(runner.output(1).values<float>(), want);
  }
}

TEST_F(EngineTest, SequencesAreMadeCutAndJoined) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim("n"), D::dim(2)});
  const uint32_t rows = g.node("SplitToSequence", 11, {x});
  g.output(g.node("SequenceLength", 11, {rows}));
  g.output(g.node("SequenceAt", 11, {rows, g.constant<int64_t>({-1}, {})}));
  const uint32_t more =
      g.node("SequenceInsert", 11, {rows, g.node("Neg", 13, {x}), g.constant<int64_t>({0}, {})});
  g.output(g.node("ConcatFromSequence", 11, {more}));
  g.b.set_int(g.last, "axis", 0);
  ASSERT_TRUE(load(g).ok());
  Runner runner(host, executable);
  Tensor in = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  ASSERT_TRUE(runner.set(0, in).ok());
  const Status status = runner.run();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(runner.output(0).values<int64_t>(), Ints{2});
  EXPECT_EQ(runner.output(1).dims, (Ints{1, 2}));
  EXPECT_EQ(runner.output(1).values<float>(), (Floats{3, 4}));
  EXPECT_EQ(runner.output(2).dims, (Ints{4, 2}));
  EXPECT_EQ(runner.output(2).values<float>(), (Floats{-1, -2, -3, -4, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace belay::testing
