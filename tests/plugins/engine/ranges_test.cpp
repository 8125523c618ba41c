// Random graphs: kernels that may run at once share no memory, and plans that begin from plans for other
// shapes give what plans made by themselves give.
#include "engine_fixture.hpp"
#include "options.hpp"

#include <random>

namespace belay::testing {
namespace {

using Floats = std::vector<float>;

// A graph of elementwise nodes over x [n] and w [3], and what it computes.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    for (const auto& [name, size] : {std::pair{"x", D::dim("n")}, std::pair{"w", D::dim(3)}})
      nodes_.push_back({"", maker.input(name, {size}), 0, 0, nodes_.size() == 1});
    const size_t count = 8 + below(50);
    for (size_t i = 0; i < count; ++i) {
      const char* const ops[] = {"Neg", "Relu", "Add", "Add"};
      Node node{ops[below(4)], 0, near(), 0, false};
      node.fixed = nodes_[node.a].fixed;
      do node.b = near();
      while (nodes_[node.b].fixed != node.fixed);
      std::vector<uint32_t> inputs{nodes_[node.a].value};
      if (node.op == "Add") inputs.push_back(nodes_[node.b].value);
      node.value = maker.node(node.op, 14, inputs);
      nodes_.push_back(node);
    }
    std::set<size_t> read;
    for (const Node& node : nodes_) read.insert({node.a, node.b});
    for (size_t i = 2; i < nodes_.size(); ++i)
      if (!read.contains(i) || below(12) == 0) outputs_.push_back(i), maker.output(nodes_[i].value);
  }

  size_t outputs() const { return outputs_.size(); }
  std::vector<Floats> compute(const Floats& x, const Floats& w) const {
    std::vector<Floats> values{x, w};
    for (size_t i = 2; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      Floats& to = values.emplace_back(values[node.a]);
      for (size_t k = 0; k < to.size(); ++k)
        to[k] = node.op == "Neg"    ? -to[k]
                : node.op == "Relu" ? std::max(0.f, to[k])
                                    : to[k] + values[node.b][k];
    }
    std::vector<Floats> out;
    for (const size_t i : outputs_) out.push_back(values[i]);
    return out;
  }
  GraphMaker maker;

 private:
  struct Node {
    std::string op;
    uint32_t value;
    size_t a, b;
    bool fixed;  // has the shape of w
  };
  size_t below(size_t limit) { return random_() % limit; }
  size_t near() { return nodes_.size() - 1 - std::min(below(nodes_.size()), below(nodes_.size())); }

  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  std::vector<size_t> outputs_;
};

class RangesTest : public EngineTest {
 protected:
  void SetUp() override {
    toy->cost_ns = 20'000;
    toy->cost_spread = 90'000;
    toy->in_place = true;
  }
  void run_and_compare(Runner& runner, const RandomGraph& graph, int64_t n) {
    Floats x, w{1, -2, 3};
    for (int64_t i = 0; i < n; ++i) x.push_back(float(i % 7 - 3));
    Tensor in = Tensor::of<float>({n}, x), other = Tensor::of<float>({3}, w);
    ASSERT_TRUE(runner.set(0, in).ok());
    ASSERT_TRUE(runner.set(1, other).ok());
    const Status status = runner.run();
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(host.races(), "");
    const std::vector<Floats> want = graph.compute(x, w);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(runner.output(i).values<float>(), want[i]) << "output " << i;
  }
};

TEST_F(RangesTest, KernelsWithoutAnOrderShareNoMemory) {
  uint64_t pairs = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGraph graph(seed);
    Options options;
    options.set("streams", int64_t(2 + seed % 4));
    toy->fuse = seed % 2;
    ASSERT_TRUE(load(graph.maker, &options).ok());
    Runner runner(host, executable);
    for (const int64_t n : {5, 9, 10, 3}) {
      host.order_seed = seed * 100 + uint64_t(n);
      ASSERT_NO_FATAL_FAILURE(run_and_compare(runner, graph, n));
    }
    pairs += host.dependencies;
  }
  EXPECT_GT(pairs, 1000u);
}

TEST_F(RangesTest, PlansThatBeginFromOthersGiveTheSameResults) {
  for (uint64_t seed = 100; seed < 130; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGraph graph(seed);
    Options options;
    options.set("streams", int64_t(seed % 3));
    options.set("plan_cache", 2);
    toy->fuse = seed % 2;
    ASSERT_TRUE(load(graph.maker, &options).ok());
    Runner runner(host, executable);
    std::mt19937_64 random(seed);
    for (int turn = 0; turn < 30; ++turn) {
      host.order_seed = random();
      // 0 and 1 are shapes of their own; equal to the dim of w; up and down.
      ASSERT_NO_FATAL_FAILURE(run_and_compare(runner, graph, int64_t(random() % 40)));
    }
  }
}

TEST_F(RangesTest, AGrowingShapeIsPlacedSeldomAndOnlyWhatChangedIsPrepared) {
  GraphMaker g;
  uint32_t x = g.input("x", {D::dim("n")}), w = g.input("w", {D::dim(3)});
  for (int i = 0; i < 6; ++i) x = g.node("Neg", 13, {x});
  for (int i = 0; i < 5; ++i) w = g.node("Neg", 13, {w});
  g.output(x);
  g.output(w);
  const auto count = [&](int64_t growth) {
    Options options;
    options.set("plan_growth", growth);
    EXPECT_TRUE(load(g, &options).ok());
    Runner runner(host, executable);
    const uint64_t plans = host.plans;
    const int prepared = toy->prepared;
    for (int64_t n = 20; n < 100; ++n) {
      Tensor in = Tensor::of<float>({n}, Floats(size_t(n), 2)), other = Tensor::of<float>({3}, {1, 2, 3});
      EXPECT_TRUE(runner.set(0, in).ok());
      EXPECT_TRUE(runner.set(1, other).ok());
      EXPECT_TRUE(runner.run().ok());
      EXPECT_EQ(runner.output(0).values<float>(), Floats(size_t(n), 2));
      EXPECT_EQ(runner.output(1).values<float>(), (Floats{-1, -2, -3}));
    }
    return std::pair{host.plans - plans, toy->prepared - prepared};
  };
  EXPECT_EQ(count(0), (std::pair{uint64_t{80}, 80 * 11}));
  const auto [plans, prepared] = count(25);
  EXPECT_LE(plans, 10u);  // log(5) / log(1.25), the first two, and rounding
  EXPECT_EQ(prepared, 80 * 6 + 5);
}

TEST_F(RangesTest, RoomForShapesToComeIsNotTakenWhereThereIsNone) {
  GraphMaker g;
  uint32_t x = g.input("x", {D::dim("n")});
  for (int i = 0; i < 4; ++i) x = g.node("Neg", 13, {x});
  g.output(x);
  Options options;
  options.set("memory_limit", 8'000);  // two buffers of 1000 floats
  toy->in_place = false;
  ASSERT_TRUE(load(g, &options).ok());
  Runner runner(host, executable);
  for (const int64_t n : {900, 980, 990, 960}) {
    Tensor in = Tensor::of<float>({n}, Floats(size_t(n), 2));
    ASSERT_TRUE(runner.set(0, in).ok());
    const Status status = runner.run();
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace
}  // namespace belay::testing
