#include <belay/graph/builder.hpp>
#include <belay/graph/outputs.hpp>
#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace belay::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<uint64_t> image_of(Builder& b) {
  const Result<std::string> frozen = b.freeze();
  EXPECT_TRUE(frozen.ok()) << frozen.status().message();
  std::vector<uint64_t> image((frozen->size() + 7) / 8);
  std::memcpy(image.data(), frozen->data(), frozen->size());
  return image;
}

// x -> Relu -> a -> Exp -> y
std::vector<uint64_t> chain() {
  Builder b;
  const uint32_t x = b.add_value(0, "x", BELAY_NONE), a = b.add_value(0, "a", BELAY_NONE),
                 y = b.add_value(0, "y", BELAY_NONE);
  b.add_input(0, x);
  b.add_node(0, "", "Relu", 14, "first", {{x}}, {{a}});
  b.add_node(0, "", "Exp", 13, "second", {{a}}, {{y}});
  b.add_output(0, y);
  return image_of(b);
}

std::vector<std::string> outputs_of(const std::vector<uint64_t>& image) {
  const View view({image.data(), image.size() * 8});
  std::vector<std::string> names;
  for (const uint32_t value : view.indices(view.graphs()[0].outputs))
    names.emplace_back(view.string(view.values()[value].name));
  return names;
}

TEST(AddOutputsTest, ValuesFollowTheOutputsOfTheGraph) {
  std::vector<uint64_t> image = chain();
  const std::vector<std::string> names{"a", "x", "y"};  // an input and an output may be given again
  ASSERT_TRUE(add_outputs(image, names).ok());
  const Status status = verify({image.data(), image.size() * 8});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(outputs_of(image), ElementsAre("y", "a", "x", "y"));
  ASSERT_TRUE(add_outputs(image, std::vector<std::string>{"a"}).ok());  // once more
  EXPECT_TRUE(verify({image.data(), image.size() * 8}).ok());
  EXPECT_THAT(outputs_of(image), ElementsAre("y", "a", "x", "y", "a"));
  const View view({image.data(), image.size() * 8});
  EXPECT_EQ(view.node(1).op(), "Exp");
  EXPECT_EQ(view.node(1).inputs()[0], view.node(0).outputs()[0]);
}

// c, x -> If (then: Relu -> r -> Neg -> t; else: Exp -> e) -> y
std::vector<uint64_t> branches() {
  Builder b;
  const uint32_t type = b.tensor_type(BELAY_DT_FLOAT32, std::nullopt);
  const uint32_t c = b.add_value(0, "c", b.tensor_type(BELAY_DT_BOOL, std::nullopt)), x = b.add_value(0, "x", type),
                 y = b.add_value(0, "y", type);
  b.add_input(0, c);
  b.add_input(0, x);
  const uint32_t then_graph = b.add_graph("then", 0), else_graph = b.add_graph("else", 0);
  const uint32_t r = b.add_value(then_graph, "r", type), t = b.add_value(then_graph, "t", type),
                 e = b.add_value(else_graph, "e", type);
  b.add_node(then_graph, "", "Relu", 14, "relu", {{x}}, {{r}});
  b.add_node(then_graph, "", "Neg", 13, "neg", {{r}}, {{t}});
  b.add_output(then_graph, t);
  b.add_node(else_graph, "", "Exp", 13, "exp", {{x}}, {{e}});
  b.add_output(else_graph, e);
  const uint32_t node = b.add_node(0, "", "If", 16, "if", {{c}}, {{y}});
  b.set_graph(node, "then_branch", then_graph);
  b.set_graph(node, "else_branch", else_graph);
  b.add_output(0, y);
  return image_of(b);
}

TEST(AddOutputsTest, AValueOfABranchComesOutOfItsNode) {
  std::vector<uint64_t> image = branches();
  std::string address;
  const View before({image.data(), image.size() * 8});
  for (uint32_t v = 0; v < before.values().size(); ++v)
    if (before.string(before.values()[v].name) == "r") address = value_address(before, v);
  const Status added = add_outputs(image, std::vector<std::string>{address, "x"});
  ASSERT_TRUE(added.ok()) << added.message();
  const Status status = verify({image.data(), image.size() * 8});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(outputs_of(image), ElementsAre("y", "r", "x"));
  const View view({image.data(), image.size() * 8});
  for (uint32_t n = 0; n < view.nodes().size(); ++n) {
    if (view.node(n).op() != "If") continue;
    EXPECT_EQ(view.node(n).outputs().size(), 2u);
    const auto taken = view.indices(view.graphs()[view.node(n).graph("then_branch")].outputs);
    EXPECT_EQ(view.string(view.values()[taken[1]].name), "r");
    const auto other = view.indices(view.graphs()[view.node(n).graph("else_branch")].outputs);
    EXPECT_EQ(view.string(view.values()[other[1]].name), "c");
  }
  EXPECT_EQ(add_outputs(image, std::vector<std::string>{"#0:nothing"}).code(), Code::kNotFound);
  EXPECT_EQ(add_outputs(image, std::vector<std::string>{"#99999:r"}).code(), Code::kNotFound);
}

TEST(AddOutputsTest, AValueThatIsNotThereIsNamedAndNothingChanges) {
  std::vector<uint64_t> image = chain();
  const std::vector<uint64_t> before = image;
  for (const std::string name : {"b", ""}) {
    const Status status = add_outputs(image, std::vector<std::string>{"a", name});
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("no value '" + name + "'"));
    EXPECT_EQ(image, before);
  }
}

}  // namespace
}  // namespace belay::graph
