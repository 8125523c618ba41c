#include "core/discovery/plugin_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using namespace std::chrono_literals;

Manifest plugin(const std::string& id, std::vector<std::string> needs, std::vector<std::string> after = {}) {
  Manifest manifest;
  manifest.id = id;
  manifest.requires_ = std::move(needs);
  manifest.after = std::move(after);
  manifest.components = {{.kind = "k/1", .name = id, .priority = 0, .requires_ = {}, .after = {}}};
  return manifest;
}

PluginOrder order(const std::vector<Manifest>& manifests) {
  std::vector<const Manifest*> all;
  for (const Manifest& manifest : manifests) all.push_back(&manifest);
  return order_plugins(all);
}

TEST(PluginOrderTest, RequirementsComeFirstAndTheRestKeepsItsPlace) {
  EXPECT_THAT(order({plugin("a", {"k/1:c"}), plugin("b", {}), plugin("c", {"b"})}).order,
              ElementsAre("b", "c", "a"));
  EXPECT_THAT(order({plugin("a", {}, {"c", "nowhere"}), plugin("b", {}), plugin("c", {})}).order,
              ElementsAre("b", "c", "a"));
  EXPECT_THAT(order({plugin("a", {"k/1"}), plugin("b", {})}).order,
              ElementsAre("a", "b"));  // it has the kind itself
}

TEST(PluginOrderTest, ACircleOfWishesIsBrokenAndOneOfRequirementsIsNot) {
  EXPECT_THAT(order({plugin("a", {}, {"b"}), plugin("b", {"a"})}).order, ElementsAre("a", "b"));
  const PluginOrder circle =
      order({plugin("a", {"b"}), plugin("b", {"c"}), plugin("c", {"b"}), plugin("d", {})});
  EXPECT_THAT(circle.order, ElementsAre("d"));
  EXPECT_EQ(circle.cycles.at("a").message(),
            "plugin 'a' refused: requirements go in a circle: a -> b -> c -> b");
  EXPECT_EQ(circle.cycles.at("b").message(), "plugin 'b' refused: requirements go in a circle: b -> c -> b");
}

}  // namespace
}  // namespace belay::core
