#include "test_host.h"

#include "core/status_table.h"

#include <clocale>
#include <csignal>
#include <sys/stat.h>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kSoon = std::chrono::seconds(5);

TEST(PluginLoaderTest, APluginNamedInTheConfigurationRunsFromOpenToClose) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a.config]\nstart = \"2KiB\"\n");
  ASSERT_TRUE(test.created.ok()) << test.created.message();
  ASSERT_TRUE(test.host->start().ok());
  EXPECT_EQ(test.info("a").state, PluginState::kActive);
  {
    auto lease = test.host->acquire("test.counter/1:a");
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    EXPECT_EQ(add(*lease, 2), 2050u);
    auto again = test.host->acquire("test.counter/1:a");
    EXPECT_EQ(again->object(), lease->object());  // made once, shared
  }
  EXPECT_TRUE(test.host->shutdown(kSoon).ok());
  EXPECT_EQ(test.info("a").state, PluginState::kResident);
  EXPECT_THAT(test.log(), ElementsAre("plugin.a: a open", "plugin.a: a start", "plugin.a: a create", "plugin.a: a quiesce",
                                      "plugin.a: a close"));
  EXPECT_EQ(test.host->table_for("a").blocks, 0u);
}

TEST(PluginLoaderTest, WhatNobodyNamesIsNotLoaded) {
  TempDir dir;
  install(dir, "a");
  install(dir, "b");
  TestHost test(dir, "[runtime]\nplugins = [\"b\"]\n");
  ASSERT_TRUE(test.created.ok()) << test.created.message();
  ASSERT_TRUE(test.host->start().ok());
  EXPECT_EQ(test.info("a").state, PluginState::kFound);
  const auto lease = test.host->acquire("test.counter/1:a");
  EXPECT_EQ(lease.status().code(), Code::kNotFound);
  EXPECT_THAT(lease.status().message(), HasSubstr("plugin 'a' offers it and is not named in the configuration"));
}

}  // namespace
}  // namespace belay::core
