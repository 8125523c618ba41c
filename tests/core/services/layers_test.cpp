// The layers of a host before the counters of fake plugins.
#include "core/services/layers.h"
#include "core/services/services.h"
#include "core/test_host.h"

#include <belay/kinds.hpp>

#include <cstdlib>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

const char* const kKey = FAKE_KIND ":a";

// A host with the plugin `a` behind these layers: a list in TOML.
struct LayeredHost : TestHost {
  static Schema schema() {
    Schema made = core_schema();
    made.add("runtime", {Field{.key = "layers",
                               .type = FieldType::kStringList,
                               .default_value = "[]",
                               .doc = "layers",
                               .names_kind = BELAY_LAYER_KIND}});
    return made;
  }
  LayeredHost(const TempDir& dir, const std::string& layers, const std::string& more = "")
      : TestHost(dir, "[runtime]\nplugins = [\"a\"]\nlayers = " + layers + "\n" + more, schema()) {
    started = created;
    if (!host) return;
    started = Services::offer(*host);
    host->add_kind(shape::kLayer);
    if (started.ok()) started = host->start();
  }
  Layers& layers() { return services_of(host->table_for("a")).layers; }
  // What the layers have logged and what ended, without the names of loggers.
  std::vector<std::string> said() {
    std::vector<std::string> all;
    for (const std::string& line : log()) {
      const std::string text = line.substr(line.find(": ") + 2);
      if (text.starts_with("layer") || text == "a close") all.push_back(text);
    }
    return all;
  }
  uint64_t bytes_of_a() { return host->table_for("a").memory.bytes; }
  Status started;
};

class LayersTest : public ::testing::Test {
 protected:
  void SetUp() override { install(dir, "a"), install_layer("layer_x"), install_layer("layer_y"); }
  void install_layer(const std::string& id) { belay::testing::install_layer(dir, id); }
  TempDir dir;
};

TEST_F(LayersTest, WithoutLayersAnObjectHasItsMakersTable) {
  LayeredHost test(dir, "[]");
  ASSERT_TRUE(test.started.ok()) << test.started.message();
  EXPECT_TRUE(test.layers().none());
  auto lease = test.host->acquire(kKey);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  for (const uint64_t word : lease->object()->layer_word) EXPECT_EQ(word, 0u);
  EXPECT_EQ(test.layers().report()->size(), 0u);
}

TEST_F(LayersTest, TheFirstOfTheListIsNearestToTheCaller) {
  LayeredHost test(dir, R"(["layer_x", "layer_y"])");
  ASSERT_TRUE(test.started.ok()) << test.started.message();
  {
    auto lease = test.host->acquire(kKey);
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    EXPECT_EQ(add(*lease, 5), 1024u + 5);
  }
  ASSERT_TRUE(test.host->shutdown(10s).ok());
  EXPECT_THAT(test.said(), ElementsAre("layer_y attach to 'a'", "layer_x attach to 'a'", "layer_x add",
                                       "layer_y add", "layer_x detach", "layer_y detach", "a close",
                                       "layer_y close", "layer_x close"));
}

TEST_F(LayersTest, SlotsThatALayerDoesNotKnowReachTheMakerWithTheObject) {
  LayeredHost test(dir, R"(["layer_x"])");
  ASSERT_TRUE(test.started.ok()) << test.started.message();
  auto lease = test.host->acquire(kKey);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  const auto& table = lease->table<fake_counter_vt>();
  EXPECT_EQ(table.hdr.struct_size, sizeof(fake_counter_vt));
  table.add(lease->object(), 1);
  EXPECT_EQ(table.get(lease->object()), 1025u);
}

TEST_F(LayersTest, ReportsComeInTheOrderOfTheList) {
  LayeredHost test(dir, R"(["layer_y", "layer_x"])");
  ASSERT_TRUE(test.started.ok()) << test.started.message();
  auto before = test.layers().report();
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_EQ(before->size(), 2u);
  EXPECT_EQ((*before)[0].text, "");
  auto lease = test.host->acquire(kKey);
  ASSERT_TRUE(lease.ok());
  add(*lease, 1), add(*lease, 1);
  auto after = test.layers().report();
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_EQ((*after)[0].layer, "layer_y");
  EXPECT_EQ((*after)[0].text, "adds: 2\n");
  EXPECT_EQ((*after)[1].layer, "layer_x");
  EXPECT_EQ((*after)[1].text, "adds: 2\n");
}

TEST_F(LayersTest, AReportThatFailsSaysSo) {
  LayeredHost test(dir, R"(["layer_x"])", "[plugin.layer_x.config]\nmode = \"no_report\"\n");
  ASSERT_TRUE(test.started.ok()) << test.started.message();
  EXPECT_EQ(test.layers().report().status().code(), Code::kUnavailable);
}

// What is refused is destroyed once, and the layers that stood before it already forget it.
void expect_refused(const TempDir& dir, const std::string& mode, Code code, const std::string& text) {
  LayeredHost test(dir, R"(["layer_x", "layer_y"])", "[plugin.layer_x.config]\nmode = \"" + mode + "\"\n");
  ASSERT_TRUE(test.started.ok()) << test.started.message();
  const auto lease = test.host->acquire(kKey);
  ASSERT_FALSE(lease.ok());
  EXPECT_EQ(lease.status().code(), code) << lease.status().message();
  EXPECT_THAT(lease.status().message(), AllOf(HasSubstr(text), HasSubstr("putting layer 'layer_x' before a " FAKE_KIND)));
  EXPECT_EQ(test.bytes_of_a(), 0u);
  EXPECT_EQ(std::ranges::count(test.said(), "layer_y detach"), 1);
  const bool attached = mode != "refuses" && mode != "throws";
  EXPECT_EQ(std::ranges::count(test.said(), "layer_x detach"), attached);
  EXPECT_FALSE(test.host->acquire(kKey).ok());  // again, and again destroyed
  EXPECT_EQ(test.bytes_of_a(), 0u);
  EXPECT_TRUE(test.host->shutdown(10s).ok());
}

TEST_F(LayersTest, WhatALayerRefusesIsDestroyedOnce) {
  expect_refused(dir, "refuses", Code::kResourceExhausted, "it has seen enough counters");
}
TEST_F(LayersTest, ALayerThatThrowsRefuses) { expect_refused(dir, "throws", Code::kInternal, "layer_x"); }
TEST_F(LayersTest, ALayerMayLeaveNoRequiredSlotNull) {
  expect_refused(dir, "null_slot", Code::kInternal, "Plugin 'layer_x' left required slots of " FAKE_KIND " null: add.");
}
TEST_F(LayersTest, ALayerMayNotTakeTheTableAway) {
  expect_refused(dir, "no_table", Code::kInternal, "'layer_x' gave a table where there is none, or none");
}

TEST_F(LayersTest, ALayerThatIsNotThereIsNamed) {
  LayeredHost test(dir, R"(["nobody"])");
  const Status& status = test.started;
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), AllOf(HasSubstr("nobody"), HasSubstr("test.toml:3")));
}

TEST_F(LayersTest, ALayerCannotRequireOtherPlugins) {
  belay::testing::install_layer(dir, "layer_x", 1, "requires = [\"" FAKE_KIND ":a\"]\n");
  LayeredHost test(dir, R"(["layer_x"])");
  const Status& status = test.started;
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("a layer ends after all other plugins, so it cannot require '" FAKE_KIND ":a'"));
}

TEST_F(LayersTest, ALayerOutlivesWhatItStandsBefore) {
  auto test = std::make_unique<LayeredHost>(dir, R"(["layer_x"])");
  ASSERT_TRUE(test->started.ok()) << test->started.message();
  auto lease = test->host->acquire(kKey);
  ASSERT_TRUE(lease.ok());
  lease->reset();
  ASSERT_TRUE(test->host->shutdown(10s).ok());  // the fake aborts where it ends before its objects
  EXPECT_THAT(test->said(), ElementsAre("layer_x attach to 'a'", "layer_x detach", "a close", "layer_x close"));
}

TEST_F(LayersTest, HostsOfAProcessHaveListsOfTheirOwn) {
  LayeredHost one(dir, R"(["layer_x"])"), two(dir, R"(["layer_y", "layer_x"])"), three(dir, "[]");
  ASSERT_TRUE(one.started.ok() && two.started.ok() && three.started.ok());
  auto first = one.host->acquire(kKey), second = two.host->acquire(kKey), third = three.host->acquire(kKey);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  add(*first, 1), add(*second, 2), add(*third, 3);
  EXPECT_THAT(one.said(), ElementsAre("layer_x attach to 'a'", "layer_x add"));
  EXPECT_THAT(two.said(), ElementsAre("layer_x attach to 'a'", "layer_y attach to 'a'", "layer_y add", "layer_x add"));
  EXPECT_THAT(three.said(), ElementsAre());
  EXPECT_EQ(first->table<fake_counter_vt>().get(first->object()), 1025u);
  EXPECT_EQ(second->table<fake_counter_vt>().get(second->object()), 1026u);
}

// In a process of its own: the words that layers have taken are never given back.
TEST(LayersDeathTest, SixteenDifferentLayersOfAProcessAndNotOneMore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = [] {
    const TempDir dir;
    install(dir, "a"), belay::testing::install_layer(dir, "layers", 17), belay::testing::install_layer(dir, "layer_x");
    std::string list = "\"layers\"";
    for (int i = 1; i < 16; ++i) list += ", \"l" + std::to_string(i) + "\"";
    for (int round = 0; round < 2; ++round) {  // a second host has the same
      LayeredHost all(dir, "[" + list + "]");
      if (!all.started.ok()) std::fprintf(stderr, "%s\n", all.started.message().c_str()), std::_Exit(2);
      const auto lease = all.host->acquire(kKey);
      if (!lease.ok()) std::fprintf(stderr, "%s\n", lease.status().message().c_str()), std::_Exit(3);
    }
    LayeredHost one_more(dir, R"(["l16"])");
    if (!one_more.started.ok()) std::fprintf(stderr, "%s\n", one_more.started.message().c_str()), std::_Exit(4);
    const auto lease = one_more.host->acquire(kKey);
    if (lease.ok() || one_more.bytes_of_a() != 0) std::_Exit(5);
    std::fprintf(stderr, "%s\n", lease.status().message().c_str());
    std::_Exit(0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0),
              "Layer 'layers:l16' is one more than the 16 different ones of a process");
}

}  // namespace
}  // namespace belay::core
