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

// x -> Relu -> a -> Exp -> y
std::vector<uint64_t> chain() {
  Builder b;
  const uint32_t x = b.add_value(0, "x", BELAY_NONE), a = b.add_value(0, "a", BELAY_NONE),
                 y = b.add_value(0, "y", BELAY_NONE);
  b.add_input(0, x);
  b.add_node(0, "", "Relu", 14, "first", {{x}}, {{a}});
  b.add_node(0, "", "Exp", 13, "second", {{a}}, {{y}});
  b.add_output(0, y);
  const Result<std::string> frozen = b.freeze();
  EXPECT_TRUE(frozen.ok()) << frozen.status().message();
  std::vector<uint64_t> image((frozen->size() + 7) / 8);
  std::memcpy(image.data(), frozen->data(), frozen->size());
  return image;
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
