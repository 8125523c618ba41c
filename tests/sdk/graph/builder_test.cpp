#include <belay/graph/builder.hpp>
#include <belay/graph/string_table.hpp>
#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

namespace belay::graph {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Shorthand over Builder: values by name, nodes of one graph.
struct Graph {
  Builder b;
  std::map<std::string, uint32_t> ids;

  uint32_t value(const std::string& name, uint32_t graph = 0) {
    const auto [at, added] = ids.try_emplace(name, 0);
    if (added) at->second = b.add_value(graph, name, BELAY_NONE);
    return at->second;
  }
  uint32_t node(const std::string& op, std::vector<std::string> inputs, std::vector<std::string> outputs,
                uint32_t graph = 0) {
    std::vector<uint32_t> in, out;
    for (const auto& name : inputs) in.push_back(name.empty() ? BELAY_NONE : value(name, graph));
    for (const auto& name : outputs) out.push_back(name.empty() ? BELAY_NONE : value(name, graph));
    return b.add_node(graph, "", op, 13, op + "_node", in, out);
  }
  std::string freeze(std::vector<uint32_t>* order = nullptr) {
    auto image = b.freeze(order);
    EXPECT_TRUE(image.ok()) << image.status().message();
    if (!image.ok()) return {};
    const Status status = verify({image->data(), image->size()});
    EXPECT_TRUE(status.ok()) << status.message();
    return *image;
  }
  Status failure() { return b.freeze().status(); }
};

View view(const std::string& image) { return View({image.data(), image.size()}); }

TEST(BuilderTest, NodesAreSortedAndASortedGraphKeepsItsOrder) {
  Graph g;
  g.b.add_input(0, g.value("x"));
  g.node("C", {"b"}, {"c"});
  g.node("A", {"x"}, {"a"});
  g.node("B", {"a"}, {"b"});
  g.node("Free", {"x"}, {"f"});
  g.b.add_output(0, g.value("c"));
  std::vector<uint32_t> order;
  const std::string image = g.freeze(&order);
  EXPECT_THAT(order, ElementsAre(1, 2, 0, 3));
  EXPECT_EQ(view(image).node(0).op(), "A");
  EXPECT_EQ(view(image).values()[g.value("c")].producer, 2u);

  Graph sorted;
  sorted.b.add_input(0, sorted.value("x"));
  for (const char* op : {"P", "Q", "R"}) sorted.node(op, {"x"}, {std::string(op)});
  sorted.freeze(&order);
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST(BuilderTest, ACycleIsShownWithItsPath) {
  Graph g;
  g.node("A", {"c"}, {"a"});
  g.node("B", {"a"}, {"b"});
  g.node("C", {"b"}, {"c"});
  g.node("After", {"c"}, {"d"});
  const Status status = g.failure();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr("cycle"),
            HasSubstr("'A_node' (A) -> value 'a' -> node 'B_node' (B) -> value 'b' -> node 'C_node' (C)")));
  Graph self;
  self.node("Loopy", {"a"}, {"a"});
  EXPECT_THAT(self.failure().message(), HasSubstr("cycle"));
}

TEST(BuilderTest, MistakesNameTheValueAndNode) {
  {
    Graph g;
    g.node("A", {"nothing"}, {"a"});
    EXPECT_THAT(g.failure().message(), AllOf(HasSubstr("'nothing'"), HasSubstr("'A_node'")));
  }
  {
    Graph g;
    g.b.add_input(0, g.value("x"));
    g.node("A", {"x"}, {"y"});
    g.node("B", {"x"}, {"y"});
    EXPECT_THAT(g.failure().message(), AllOf(HasSubstr("'y'"), HasSubstr("'A_node'"), HasSubstr("'B_node'")));
  }
  {
    Graph g;
    g.b.add_input(0, g.value("x"));
    g.node("A", {"x"}, {"x"});
    EXPECT_THAT(g.failure().message(), HasSubstr("'x' is an input or constant"));
  }
  {
    Graph g;
    g.b.add_output(7, 3);  // there is no graph 7
    EXPECT_THAT(g.failure().message(), HasSubstr("graph 7"));
  }
}

TEST(BuilderTest, ConstantBytesMustFitTypeAndSource) {
  const std::array<int64_t, 1> three{3};
  const std::array<int64_t, 2> negative{2, -1}, huge{int64_t{1} << 32, int64_t{1} << 32};
  const auto failure = [](auto&& make) {
    Builder b;
    b.set_source_bytes(0, 100);
    make(b);
    return b.freeze().status().message();
  };
  EXPECT_THAT(failure([&](Builder& b) {
                b.add_constant("w", BELAY_DT_FLOAT32, three, {"12345678", 8});
              }),
              AllOf(HasSubstr("'w'"), HasSubstr("8 bytes, want 12")));
  EXPECT_THAT(failure([&](Builder& b) { b.add_constant_at("w", BELAY_DT_FLOAT32, three, 0, 92, 12); }),
              HasSubstr("past the end"));
  EXPECT_THAT(
      failure([&](Builder& b) { b.add_constant_at("w", BELAY_DT_FLOAT32, three, 0, UINT64_MAX - 7, 12); }),
      HasSubstr("past the end"));
  EXPECT_THAT(failure([&](Builder& b) {
                b.add_constant("w", BELAY_DT_FLOAT32, negative, {"", 0});
              }),
              HasSubstr("negative dim"));
  EXPECT_THAT(failure([&](Builder& b) {
                b.add_constant("w", BELAY_DT_FLOAT32, huge, {"", 0});
              }),
              HasSubstr("64 bits"));
  EXPECT_THAT(failure([&](Builder& b) { b.add_constant("w", 77, three, {"", 0}); }), HasSubstr("77"));
  EXPECT_THAT(failure([&](Builder& b) { b.add_constant_at("w", BELAY_DT_FLOAT32, three, 4, 0, 12); }),
              HasSubstr("source 4"));
}

TEST(BuilderTest, CapturesAreFoundThroughAllLevels) {
  Graph g;
  g.b.add_input(0, g.value("cond"));
  const uint32_t outer = g.b.add_graph("outer", 0), inner = g.b.add_graph("inner", outer);
  // The user of the inner graph comes before the producer of what it captures: sorting must see that.
  const uint32_t choose = g.node("If", {"cond"}, {"y"});
  g.b.set_graph(choose, "then_branch", outer);
  const uint32_t nested = g.node("If", {"cond"}, {"n"}, outer);
  g.b.set_graph(nested, "then_branch", inner);
  g.b.add_output(outer, g.value("n"));
  g.node("Use", {"late"}, {"u"}, inner);
  g.b.add_output(inner, g.value("u"));
  // "late" was made as a value of the inner graph by the line above: use one of the main graph instead.
  const uint32_t late = g.b.add_value(0, "late_main", BELAY_NONE);
  const uint32_t in[] = {late}, out[] = {g.b.add_value(inner, "u2", BELAY_NONE)};
  g.b.add_node(inner, "", "Use2", 13, "use2", in, out);
  const std::array<uint32_t, 1> made{late}, from{g.value("cond")};
  g.b.add_node(0, "", "Make", 13, "make", from, made);
  g.b.set_value_constant(g.value("late"), g.b.add_constant("late", BELAY_DT_BOOL, {}, {"\1", 1}));
  g.b.add_output(0, g.value("y"));
  const std::string image = g.freeze();
  const View v = view(image);
  EXPECT_EQ(v.node(0).op(), "Make");
  EXPECT_EQ(v.node(1).op(), "If");
  EXPECT_THAT(v.indices(v.graphs()[inner].captures), ElementsAre(late));
  EXPECT_THAT(v.indices(v.graphs()[outer].captures), ElementsAre(g.value("cond"), late));
  EXPECT_TRUE(v.indices(v.graphs()[0].captures).empty());
}

TEST(BuilderTest, SubgraphsBelongToOneNodeAndNestNoDeeperThanTheLimit) {
  Graph g;
  g.b.add_input(0, g.value("c"));
  const uint32_t sub = g.b.add_graph("sub", 0);
  EXPECT_THAT(g.failure().message(), HasSubstr("belongs to no node"));
  g.b.set_graph(g.node("If", {"c"}, {}), "then_branch", sub);
  g.freeze();
  g.b.set_graph(g.node("If", {"c"}, {}), "then_branch", sub);
  EXPECT_THAT(g.failure().message(), HasSubstr("belongs to"));

  const auto nested = [](int depth) {
    auto made = std::make_unique<Graph>();
    made->b.add_input(0, made->value("c"));
    uint32_t graph = 0;
    for (int i = 0; i < depth; ++i) {
      const uint32_t in[] = {made->value("c")};
      const uint32_t node = made->b.add_node(graph, "", "If", 13, "", in, {});
      graph = made->b.add_graph("g", graph);
      made->b.set_graph(node, "then_branch", graph);
    }
    return made;
  };
  nested(20)->freeze();
  nested(32)->freeze();
  EXPECT_THAT(nested(33)->failure().message(), HasSubstr("33 graphs deep"));
}

TEST(BuilderTest, AttributesOfAllKindsAreRead) {
  Graph g;
  const uint32_t n = g.node("Op", {}, {"y"});
  const std::array<int64_t, 2> ints{1, -2};
  const std::array<float, 2> floats{0.5f, -1};
  const std::array<std::string_view, 2> texts{"a", "b"};
  g.b.set_int(n, "i", 1);
  g.b.set_int(n, "i", -7);  // the later one stays
  g.b.set_float(n, "f", 2.5f);
  g.b.set_string(n, "s", "text");
  g.b.set_ints(n, "is", ints);
  g.b.set_floats(n, "fs", floats);
  g.b.set_strings(n, "ss", texts);
  const uint32_t c = g.b.add_string_constant("c", std::array<int64_t, 1>{2}, texts);
  g.b.set_tensor(n, "t", c);
  g.b.set_type(n, "tp", g.b.sequence_type(g.b.tensor_type(BELAY_DT_FLOAT32, std::nullopt)));
  const std::string image = g.freeze();
  const View view_of = view(image);
  const NodeView node = view_of.node(0);
  EXPECT_EQ(node.int_or("i", 0), -7);
  EXPECT_EQ(node.float_or("f", 0), 2.5f);
  EXPECT_EQ(node.string_or("s", ""), "text");
  EXPECT_THAT(*node.ints("is"), ElementsAre(1, -2));
  EXPECT_THAT(*node.floats("fs"), ElementsAre(0.5f, -1));
  EXPECT_THAT(node.strings("ss"), ElementsAre("a", "b"));
  ASSERT_EQ(node.constant("t"), c);
  const belay_span table = view_of.constant_bytes(view_of.constants()[c], {});
  EXPECT_EQ(string_element(table, 2, 1), "b");
  EXPECT_EQ(node.int_or("absent", 3), 3);
}

TEST(BuilderTest, TypesAndShapesAreInterned) {
  Builder b;
  const std::vector<Dim> shape{{-1, "batch"}, {3, ""}};
  EXPECT_EQ(b.tensor_type(BELAY_DT_FLOAT32, shape), b.tensor_type(BELAY_DT_FLOAT32, shape));
  EXPECT_NE(b.tensor_type(BELAY_DT_FLOAT32, shape), b.tensor_type(BELAY_DT_FLOAT32, std::nullopt));
  EXPECT_EQ(b.sequence_type(0), b.sequence_type(0));
  const std::string image = b.freeze().value();
  EXPECT_EQ(view(image).types().size(), 3u);
}

TEST(BuilderTest, TextFormShowsWhatMatters) {
  Graph g;
  g.b.set_source_bytes(0, 64);
  const std::vector<Dim> shape{{-1, "N"}, {2, ""}};
  const uint32_t type = g.b.tensor_type(BELAY_DT_FLOAT32, shape);
  g.b.set_value_type(g.value("x"), type);
  g.b.add_input(0, g.value("x"));
  const float one[] = {1, 2};
  g.b.set_value_constant(g.value("bias"),
                         g.b.add_constant("bias", BELAY_DT_FLOAT32, std::array<int64_t, 1>{2}, {one, 8}));
  g.b.set_value_constant(g.value("big w"),
                         g.b.add_constant_at("big w", BELAY_DT_FLOAT32, std::array<int64_t, 1>{4}, 0, 3, 16));
  const uint32_t n = g.node("Gemm", {"x", "big w", "", "bias"}, {"y"});
  g.b.set_float(n, "alpha", 0.5f);
  g.b.add_output(0, g.value("y"));
  StringSink text;
  const std::string image = g.freeze();
  print({image.data(), image.size()}, text.sink());
  EXPECT_THAT(text.text(),
              AllOf(HasSubstr("input %x float32[N,2]\n"), HasSubstr("constant %bias float32[2] {1, 2}\n"),
                    HasSubstr("constant %\"big w\" float32[4] source 0 offset 3 bytes 16\n"),
                    HasSubstr("%y ? = Gemm.13(%x, %\"big w\", _, %bias) alpha=0.5 \"Gemm_node\"\n"),
                    HasSubstr("output %y ?\n")));
}

TEST(BuilderTest, RandomGraphsInRandomOrderAreAccepted) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const int count = 1 + int(random() % 60);
    std::vector<int> order(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) order[size_t(i)] = i;
    std::shuffle(order.begin(), order.end(), random);
    Graph g;
    g.b.add_input(0, g.value("v0"));
    for (const int i : order) {
      std::vector<std::string> inputs;
      for (uint32_t k = 0; k < 1 + random() % 3; ++k)
        inputs.push_back("v" + std::to_string(random() % uint32_t(i + 1)));
      g.node("Op", inputs, {"v" + std::to_string(i + 1)});
    }
    g.b.add_output(0, g.value("v" + std::to_string(count)));
    g.freeze();
  }
}

}  // namespace
}  // namespace belay::graph
