#include "core/service_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

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

belay_component component(const char* name, const char* kind = "test.kind/1") {
  return {{sizeof(belay_component), 0, nullptr}, to_str(kind), to_str(name), nullptr, nullptr};
}

TEST(ServiceRegistryTest, SecondProviderOfAKeyIsRefusedAndBothFilesAreNamed) {
  const belay_component one = component("x"), two = one;
  ServiceRegistry registry;
  ASSERT_TRUE(registry.add({{.component = &one, .plugin = "ant", .file = "libbelay_ant.so"}}).ok());
  const Status status = registry.add({{.component = &two, .plugin = "bee", .file = "libbelay_bee.so"}});
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("libbelay_ant.so"), HasSubstr("libbelay_bee.so")));
  EXPECT_EQ(registry.find("test.kind/1:x")->component, &one);
}

TEST(ServiceRegistryTest, AllOfAPluginOrNothing) {
  const belay_component x = component("x"), y = component("y");
  ServiceRegistry registry;
  ASSERT_TRUE(registry.add({{.component = &x, .plugin = "ant"}}).ok());
  EXPECT_FALSE(registry.add({{.component = &y, .plugin = "bee"}, {.component = &x, .plugin = "bee"}}).ok());
  EXPECT_FALSE(registry.find("test.kind/1:y").ok());
  EXPECT_FALSE(registry.add({{.component = &y, .plugin = "bee"}, {.component = &y, .plugin = "bee"}}).ok());
}

TEST(ServiceRegistryTest, AKeyUnderOverrideIsReplaced) {
  const belay_component one = component("x"), two = one;
  ServiceRegistry registry({"test.kind/1:x"});
  ASSERT_TRUE(registry.add({{.component = &one, .plugin = "ant"}}).ok());
  ASSERT_TRUE(registry.add({{.component = &two, .plugin = "bee"}}).ok());
  EXPECT_EQ(registry.find("test.kind/1:x")->plugin, "bee");
  registry.remove_all("bee");
  EXPECT_THAT(registry.find("test.kind/1:x").status().message(),
              HasSubstr("No running plugin offers 'test.kind/1:x'"));
}

TEST(ServiceRegistryTest, TheChoiceIsByPriorityThenScoreThenPlugin) {
  const belay_component a = component("a"), b = component("b"), c = component("c"), d = component("d"),
                        e = component("e", "test.kindred/1");
  ServiceRegistry registry;
  ASSERT_TRUE(registry
                  .add({{.component = &a, .plugin = "p", .score = 900},
                        {.component = &b, .plugin = "o", .score = 900}})
                  .ok());
  ASSERT_TRUE(registry.add({{.component = &c, .plugin = "q", .priority = 1, .score = 1}}).ok());
  ASSERT_TRUE(
      registry.add({{.component = &d, .plugin = "r", .priority = 9, .score = 0, .reason = "not here"}}).ok());
  ASSERT_TRUE(registry.add({{.component = &e, .plugin = "s"}}).ok());
  std::vector<std::string> names;
  for (const Service& service : registry.candidates("test.kind/1")) names.push_back(service.name());
  EXPECT_THAT(names, ElementsAre("c", "b", "a", "d"));
  EXPECT_EQ(registry.choose("test.kind/1")->name(), "c");
  EXPECT_THAT(registry.explain("test.kind/1"),
              AllOf(HasSubstr("d of plugin r priority 9 score 0 (not here)"), HasSubstr("-> using c")));
  EXPECT_THAT(registry.explain("test.kind/1", "d, then a"), HasSubstr("(not here) -> using d, then a"));
  EXPECT_EQ(registry.choose("none/1").status().code(), Code::kNotFound);
  registry.remove_all("o"), registry.remove_all("p"), registry.remove_all("q");
  EXPECT_EQ(registry.choose("test.kind/1").status().code(), Code::kUnavailable);
}

TEST(ServiceRegistryTest, AWatchIsToldOfItsKindUntilItOrItsPluginEnds) {
  const belay_component one = component("x"), two = component("y"), other = component("z", "other.kind/1");
  ServiceRegistry registry;
  ASSERT_TRUE(registry.add({{.component = &one, .plugin = "ant"}}).ok());
  std::vector<std::string> bee, cow;
  const auto note = [](std::vector<std::string>& to) {
    return [&to](const std::string& key, bool there) { to.push_back((there ? "+" : "-") + key); };
  };
  registry.watch(1, "bee", "test.kind/1", note(bee));
  registry.watch(2, "cow", "test.kind/1", note(cow));
  ASSERT_TRUE(
      registry.add({{.component = &two, .plugin = "dog"}, {.component = &other, .plugin = "dog"}}).ok());
  registry.remove_all("ant");
  registry.unwatch(1, "cow");  // not its own
  registry.unwatch(2, "cow");
  registry.remove_all("dog");
  registry.remove_all("bee");
  ASSERT_TRUE(registry.add({{.component = &one, .plugin = "ant"}}).ok());
  EXPECT_THAT(bee, ElementsAre("+test.kind/1:x", "+test.kind/1:y", "-test.kind/1:x", "-test.kind/1:y"));
  EXPECT_THAT(cow, ElementsAre("+test.kind/1:x", "+test.kind/1:y", "-test.kind/1:x"));
}

TEST(ServiceRegistryTest, ManyThreadsAddFindAndRemove) {
  ServiceRegistry registry;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&registry, t] {
      const std::string name = "n" + std::to_string(t), plugin = "p" + std::to_string(t);
      const belay_component mine = component(name.c_str());
      for (int i = 0; i < 300; ++i) {
        ASSERT_TRUE(registry.add({{.component = &mine, .plugin = plugin}}).ok());
        ASSERT_TRUE(registry.find("test.kind/1:" + name).ok());
        registry.remove_all(plugin);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(registry.all(), IsEmpty());
}

}  // namespace
}  // namespace belay::core
