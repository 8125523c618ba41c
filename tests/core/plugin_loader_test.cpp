#include "test_host.h"

#include "core/base/sha256.h"
#include "core/base/status_table.h"

#include <unistd.h>
#include <xmmintrin.h>
#include <clocale>
#include <csignal>
#include <thread>

// A fake plugin that does not come back, or is told to leave something behind, keeps what it holds: that is
// what is tested here, and no leak of the host's.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libbelay_a.so\n";
}

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
  EXPECT_THAT(test.log(), ElementsAre("plugin.a: a open", "plugin.a: a start", "plugin.a: a create",
                                      "plugin.a: a quiesce", "plugin.a: a close"));
  EXPECT_EQ(test.host->table_for("a").memory.blocks, 0u);
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
  EXPECT_THAT(lease.status().message(),
              HasSubstr("plugin 'a' offers it and is not named in the configuration"));
}

TEST(PluginLoaderTest, APluginIsLoadedForAComponentThatAKeyOfAnUpperLayerNames) {
  TempDir dir;
  install(dir, "a");
  Schema schema = core_schema();
  schema.add("count",
             {{.key = "use", .type = FieldType::kStringList, .choices = {"auto"}, .names_kind = FAKE_KIND}});
  {
    TestHost test(dir, "[count]\nuse = [\"auto\", \"a:3\"]\n", schema);
    ASSERT_TRUE(test.created.ok()) << test.created.message();
    ASSERT_TRUE(test.host->start().ok());
    EXPECT_EQ(test.info("a").state, PluginState::kActive);
  }
  TestHost wrong(dir, "[count]\nuse = \"aa\"\n", schema);
  EXPECT_EQ(wrong.created.code(), Code::kNotFound);
  EXPECT_THAT(wrong.created.message(),
              AllOf(HasSubstr("config test.toml:2:7: no plugin offers 'test.counter/1:aa'"),
                    HasSubstr("did you mean 'test.counter/1:a'?"), HasSubstr(dir.path())));
}

TEST(PluginLoaderTest, AMissingPluginIsNamedWithTheNearestAndThePlacesSearched) {
  TempDir dir;
  install(dir, "refuses");
  TestHost test(dir, "[plugin.refuse]\n");
  EXPECT_EQ(test.created.code(), Code::kNotFound);
  EXPECT_THAT(test.created.message(), AllOf(HasSubstr("config test.toml:1:1: no plugin has the id 'refuse'"),
                                            HasSubstr("did you mean 'refuses'?"), HasSubstr(dir.path())));
}

TEST(PluginLoaderTest, RequirementsAreLoadedFirstAndEndedLast) {
  TempDir dir;
  install(dir, "a", "", "requires = [\"test.counter/1:b\", \"belay.host.executor/1\"]\n");
  install(dir, "b", "requires = [\"c\"]\n");
  install(dir, "c");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.created.ok()) << test.created.message();
  ASSERT_TRUE(test.host->start().ok());
  ASSERT_TRUE(test.host->shutdown(kSoon).ok());
  EXPECT_THAT(test.log(), ElementsAre("plugin.c: c open", "plugin.b: b open", "plugin.a: a open",
                                      "plugin.c: c start", "plugin.b: b start", "plugin.a: a start",
                                      "plugin.a: a quiesce", "plugin.a: a close", "plugin.b: b quiesce",
                                      "plugin.b: b close", "plugin.c: c quiesce", "plugin.c: c close"));
}

TEST(PluginLoaderTest, ACircleOfRequirementsIsRefusedWithItsFullPathAndOthersGoOn) {
  TempDir dir;
  install(dir, "a", "requires = [\"b\"]\n");
  install(dir, "b", "", "requires = [\"test.counter/1:a\"]\n");
  install(dir, "c");
  TestHost test(dir, "[plugin.a]\n[plugin.c]\n");
  ASSERT_TRUE(test.created.ok()) << test.created.message();
  const Status status = test.host->start();
  EXPECT_THAT(status.message(), HasSubstr("a -> b -> a"));
  EXPECT_EQ(test.info("a").state, PluginState::kFailed);
  EXPECT_EQ(test.info("b").state, PluginState::kFailed);
  EXPECT_EQ(test.info("c").state, PluginState::kActive);
  EXPECT_THAT(test.log(), Not(Contains("plugin.a: a open")));
}

TEST(PluginLoaderTest, WhatStartWouldRefuseIsToldWithoutRunningAnything) {
  TempDir dir;
  install(dir, "a", "requires = [\"b\"]\n");
  install(dir, "b", "", "requires = [\"test.counter/1:a\"]\n");
  install(dir, "c", "requires = [\"belay.host.teleport/1\"]\n");
  install(dir, "refuses");
  install(dir, "needs", "requires = [\"belay.host.teleport/1\"]\n");
  install(dir, "same", "requires = [\"needs\"]\n");
  fs::permissions(dir / "libbelay_refuses.so", fs::perms::others_write, fs::perm_options::add);
  const std::string toml =
      "[plugin.a]\n[plugin.c]\n[plugin.refuses]\n[plugin.same]\n[plugin.needs]\noptional = true\n";
  TestHost test(dir, toml);
  ASSERT_TRUE(test.created.ok()) << test.created.message();
  const Status status = test.host->plugins().check();
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("a -> b -> a"), HasSubstr("plugin 'c' refused: this host has no service"),
                    HasSubstr("lets others replace code"),
                    HasSubstr("plugin 'same' refused: it requires 'needs', and plugin 'needs' failed"),
                    Not(HasSubstr("\nplugin 'needs'"))));
  EXPECT_EQ(test.info("c").state, PluginState::kFound);
  EXPECT_THAT(test.log(), IsEmpty());
  TestHost use(dir,
               "[plugin.refuses]\nuse = [\"test.counter/1:refused\"]\n[runtime]\nallow_insecure = true\n");
  ASSERT_TRUE(use.created.ok()) << use.created.message();
  EXPECT_THAT(
      use.host->plugins().check().message(),
      HasSubstr("config test.toml:2:7: plugin 'refuses' offers no 'test.counter/1:refused' - did you mean "
                "'test.counter/1:refuses'?"));
  TestHost good(dir, "[plugin.refuses]\n[runtime]\nallow_insecure = true\n");
  EXPECT_TRUE(good.host->plugins().check().ok());
}

TEST(PluginLoaderTest, AMissingHostServiceIsNamed) {
  TempDir dir;
  install(dir, "a", "requires = [\"belay.host.teleport/1\"]\n");
  TestHost test(dir, "[plugin.a]\n");
  EXPECT_THAT(test.host->start().message(),
              HasSubstr("plugin 'a' refused: this host has no service 'belay.host.teleport/1'"));
}

TEST(PluginLoaderTest, WhoRequiresAPluginThatFailedIsRefusedAndTheCauseIsTold) {
  TempDir dir;
  install(dir, "a", "requires = [\"b\"]\n");
  install(dir, "b");
  TestHost test(dir, "[plugin.a]\n[plugin.b.config]\nmode = \"open_fails\"\n");
  const Status status = test.host->start();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("the fake device is not there (while opening plugin 'b')"));
  EXPECT_THAT(test.info("a").reason,
              AllOf(HasSubstr("requires 'b'"), HasSubstr("the fake device is not there")));
  EXPECT_THAT(test.host->acquire("test.counter/1:a").status().message(),
              HasSubstr("plugin 'a' offers it and failed"));
}

TEST(PluginLoaderTest, TwoProvidersOfAKeyAreRefusedUnlessItIsListed) {
  TempDir dir;
  install(dir, "a");
  install(dir, "same", "", "", "a");
  {
    TestHost test(dir, "[plugin.a]\n[plugin.same]\n");
    const Status status = test.host->start();
    EXPECT_EQ(status.code(), Code::kAlreadyExists);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("libbelay_a.so"), HasSubstr("libbelay_same.so"), HasSubstr("override")));
    EXPECT_EQ(test.info("a").state, PluginState::kActive);
    EXPECT_EQ(test.info("same").state, PluginState::kFailed);
    EXPECT_THAT(test.log(), Contains("plugin.same: same close"));  // it had been opened
  }
  TestHost test(dir, "[runtime]\noverride = [\"test.counter/1:a\"]\n[plugin.a]\n[plugin.same]\n");
  EXPECT_TRUE(test.host->start().ok());
  EXPECT_EQ(test.host->services().find("test.counter/1:a")->plugin, "same");
}

TEST(PluginLoaderTest, AnOptionalPluginThatFailsIsNoFailureOfTheStart) {
  TempDir dir;
  install(dir, "a");
  install(dir, "b");
  TestHost test(dir, "[plugin.a]\noptional = true\nconfig = { mode = \"open_fails\" }\n[plugin.b]\n");
  EXPECT_TRUE(test.host->start().ok());
  EXPECT_EQ(test.info("a").state, PluginState::kFailed);
  EXPECT_EQ(test.info("b").state, PluginState::kActive);
}

TEST(PluginLoaderTest, WhatAPluginChangesInTheProcessIsPutBackAndReported) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a.config]\nmode = \"changes_process\"\n");
  const std::string locale = std::setlocale(LC_ALL, nullptr), folder = fs::current_path();
  const unsigned mode = _mm_getcsr() & 0xffc0;
  ASSERT_TRUE(test.host->start().ok());
  EXPECT_EQ(std::setlocale(LC_ALL, nullptr), locale);
  EXPECT_EQ(fs::current_path(), folder);
  EXPECT_EQ(_mm_getcsr() & 0xffc0, mode);
  struct sigaction action;
  sigaction(SIGUSR2, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
  EXPECT_EQ(test.host->table_for("a").misbehaved, 1u);  // one breach, however much it changed
  EXPECT_THAT(
      test.log(),
      Contains(AllOf(HasSubstr("loading changed the handler of SIGUSR2, the locale (C.UTF-8), the working "
                               "directory (/)"),
                     HasSubstr("of the process; it was put back."))));
}

TEST(PluginLoaderTest, WhatAPluginLeavesBehindIsReported) {
  const LeaksOnPurpose leaks;
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a.config]\nmode = \"leaks_then_fails\"\n");
  EXPECT_FALSE(test.host->start().ok());
  EXPECT_THAT(test.log(), Contains(HasSubstr("plugin 'a' leaves behind 1 blocks of 1")));
}

TEST(PluginLoaderTest, TimersOfAPluginEndWithIt) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a.config]\nmode = \"task_forever\"\n");
  ASSERT_TRUE(test.host->start().ok());
  EXPECT_TRUE(test.host->shutdown(kSoon).ok());
  EXPECT_EQ(test.info("a").state, PluginState::kResident);
}

TEST(PluginLoaderTest, APluginWhoseTaskDoesNotEndBecomesAZombieAndSaysWhy) {
  const LeaksOnPurpose leaks;
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a.config]\nmode = \"task_stuck\"\n");
  ASSERT_TRUE(test.host->start().ok());
  const Status status = test.host->shutdown(std::chrono::milliseconds(50));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("1 of its tasks have not ended"));
  EXPECT_EQ(test.info("a").state, PluginState::kZombie);
  EXPECT_THAT(test.log(), Not(Contains("plugin.a: a close")));
  test.host.reset();  // does not wait for the task
}

TEST(PluginLoaderTest, APluginInUseBecomesAZombieAndItsHoldersAreNamed) {
  const LeaksOnPurpose leaks;
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  auto lease = test.host->acquire("test.counter/1:a");
  EXPECT_TRUE(lease->valid());
  const Status status = test.host->plugins().unload("a", std::chrono::milliseconds(20));
  EXPECT_THAT(status.message(), HasSubstr("the application holds test.counter/1:a"));
  EXPECT_FALSE(lease->valid());      // revoked
  EXPECT_EQ(add(*lease, 1), 1025u);  // but alive
  EXPECT_EQ(test.host->acquire("test.counter/1:a").status().code(), Code::kNotFound);
  lease->reset();
}

TEST(PluginLoaderTest, AZombieEndsAtTheShutdownOnceItsHolderHasLetGo) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  auto lease = test.host->acquire("test.counter/1:a");
  EXPECT_EQ(test.host->plugins().unload("a", std::chrono::milliseconds(20)).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(test.info("a").state, PluginState::kZombie);
  lease->reset();
  EXPECT_TRUE(test.host->shutdown(kSoon).ok());
  EXPECT_EQ(test.info("a").state, PluginState::kResident);
  EXPECT_THAT(test.log(), Contains("plugin.a: a close"));
}

// A slot that blocks for two seconds and then calls the host.
class BlockingSlotTest : public ::testing::TestWithParam<const char*> {};

TEST_P(BlockingSlotTest, LeavesAZombieOthersGoOnAndTheHostMayEndBeforeItReturns) {
  const LeaksOnPurpose leaks;
  TempDir dir;
  install(dir, "a");
  install(dir, "b");
  const std::string slot = GetParam();
  {
    TestHost test(dir, "[runtime]\ninit_deadline = \"1100ms\"\n[plugin.a.config]\nmode = \"" + slot +
                           "_blocks\"\n[plugin.b]\n");
    const auto begin = std::chrono::steady_clock::now();
    const Status started = test.host->start();
    EXPECT_EQ(test.info("b").state, PluginState::kActive);
    const std::string words = "plugin 'a': " + slot + " has ";
    if (slot == "open" || slot == "start") {
      EXPECT_EQ(started.code(), Code::kDeadlineExceeded);
      EXPECT_THAT(started.message(), HasSubstr(words + "not returned after 1100 ms"));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1900));
      EXPECT_EQ(test.host->acquire("test.counter/1:a").status().code(), Code::kNotFound);
    } else {
      ASSERT_TRUE(started.ok());
      EXPECT_TRUE(test.host->acquire("test.counter/1:a").ok());
      EXPECT_EQ(test.host->plugins().unload("a", std::chrono::milliseconds(10)).code(),
                Code::kDeadlineExceeded);
    }
    EXPECT_EQ(test.info("a").state, PluginState::kZombie);
    EXPECT_THAT(test.info("a").reason, HasSubstr(words + "not returned"));
    EXPECT_THAT(test.log(), Contains(HasSubstr(words + "been running for 1 s")));
    EXPECT_TRUE(test.host->acquire("test.counter/1:b").ok());
    EXPECT_TRUE(test.host->shutdown(kSoon).ok());
    EXPECT_THAT(test.log(), Contains("plugin.b: b close"));
  }
  std::this_thread::sleep_for(
      std::chrono::milliseconds(2500));  // it comes back, and calls a host that is gone
}
INSTANTIATE_TEST_SUITE_P(Zoo, BlockingSlotTest, ::testing::Values("open", "start", "quiesce", "close"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PluginLoaderTest, APluginThatBreaksThreeRulesIsEndedAndTheReasonStays) {
  TempDir dir;
  install(dir, "a");
  install(dir, "b");
  TestHost test(dir, "[plugin.a]\n[plugin.b]\n");
  ASSERT_TRUE(test.host->start().ok());
  const belay_host& host = test.host->table_for("b").abi;
  host.misbehave(&host, to_str("a"), to_str("wrong offset 1"));
  host.misbehave(&host, to_str("test.counter/1:a"), to_str("wrong offset 2"));
  EXPECT_EQ(test.info("a").state, PluginState::kActive);
  host.misbehave(&host, to_str("nobody"), to_str("wrong offset"));  // only logged
  host.misbehave(&host, to_str("a"), to_str("wrong offset\n3"));
  while (test.info("a").state != PluginState::kResident || test.info("a").reason.empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THAT(test.info("a").reason,
              HasSubstr("broke a rule (3): wrong offset\\n3 (reported by plugin 'b')"));
  EXPECT_THAT(test.host->acquire("test.counter/1:a").status().message(), HasSubstr("broke a rule (3)"));
  EXPECT_THAT(test.log(), Contains("plugin.a: a close"));
  EXPECT_THAT(test.log(),
              Contains(HasSubstr("'nobody' broke a rule: wrong offset (reported by plugin 'b')")));
  EXPECT_EQ(test.info("b").state, PluginState::kActive);
  host.misbehave(&host, to_str("a"), to_str("a fourth"));  // it has ended
  EXPECT_TRUE(test.host->shutdown(kSoon).ok());
}

TEST(PluginLoaderTest, BrokenRulesAreOnlyLoggedWhereTheConfigurationSaysSo) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[runtime]\nstrikes = 0\n[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  for (int i = 0; i < 10; ++i) test.host->misbehaved("a", "rule " + std::to_string(i));
  EXPECT_EQ(test.info("a").state, PluginState::kActive);
  EXPECT_TRUE(test.host->acquire("test.counter/1:a").ok());
}

TEST(PluginLoaderTest, AUnloadedPluginIsGoneAndItsKeyToo) {
  TempDir dir;
  install(dir, "a", "unload = \"supported\"\n");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  ASSERT_TRUE(test.host->plugins().unload("a", kSoon).ok());
#if BELAY_SANITIZER == BELAY_SANITIZER_NONE
  EXPECT_EQ(test.info("a").state, PluginState::kUnmapped) << test.info("a").reason;
#endif
  EXPECT_THAT(test.host->services().all(), IsEmpty());
  EXPECT_EQ(test.host->plugins().unload("a", kSoon).code(), Code::kFailedPrecondition);
  EXPECT_EQ(test.host->plugins().unload("b", kSoon).code(), Code::kNotFound);
}

TEST(PluginLoaderTest, APluginWithoutManifestIsKnownByItsNote) {
  TempDir dir;
  install(dir, "a");
  fs::remove(dir / "libbelay_a.plugin.toml");
  TestHost test(dir, "[runtime]\nplugins = [\"a\"]\n");
  ASSERT_TRUE(test.created.ok()) << test.created.message();
  ASSERT_TRUE(test.host->start().ok());
  EXPECT_TRUE(test.host->services().find("test.counter/1:a").ok());
}

TEST(PluginLoaderTest, UseTakesSomeOfTheKeysAndRefusesOthers) {
  TempDir dir;
  install(dir, "a");
  {
    TestHost test(dir, "[plugin.a]\nuse = []\n");
    ASSERT_TRUE(test.host->start().ok());
    EXPECT_THAT(test.host->services().all(), IsEmpty());
  }
  TestHost test(dir, "[plugin.a]\nuse = \"test.counter/1:aa\"\n");
  EXPECT_THAT(test.host->start().message(),
              AllOf(HasSubstr("test.toml:2:7"), HasSubstr("offers no 'test.counter/1:aa'")));
}

TEST(PluginLoaderTest, AnExternalLibraryNeedsPermission) {
  TempDir dir, elsewhere;
  const std::string library = install(elsewhere, "a");
  const std::string table = "[plugin.a]\npath = \"" + library + "\"\n";
  TestHost refused(dir, table);
  EXPECT_EQ(refused.created.code(), Code::kInvalidArgument);  // the file itself may be as it should
  EXPECT_THAT(refused.created.message(), HasSubstr("allow_external"));
  TestHost test(dir, table + "[runtime]\nallow_external = true\n");
  ASSERT_TRUE(test.created.ok()) << test.created.message();
  EXPECT_TRUE(test.host->start().ok());
}

// ---- the zoo: each breaks one rule, at open or later
// ------------------------------------------------------------------
struct Bad {
  const char* mode;
  Code code;
  const char* message;
};
class BadModeTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadModeTest, IsRefusedAtOpenAndAnotherPluginWorks) {
  TempDir dir;
  install(dir, "a");
  install(dir, "b");
  {
    TestHost test(dir, std::string("[plugin.b]\n[plugin.a.config]\nmode = \"") + GetParam().mode + "\"\n");
    ASSERT_TRUE(test.created.ok()) << test.created.message();
    const Status status = test.host->start();
    EXPECT_EQ(status.code(), GetParam().code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
    EXPECT_EQ(test.info("a").state, PluginState::kFailed);
    EXPECT_THAT(test.info("a").reason, HasSubstr(GetParam().message));
    auto lease = test.host->acquire("test.counter/1:b");
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(add(*lease, 0), 1024u);
  }
  EXPECT_EQ(live_details(), 0u);
}
INSTANTIATE_TEST_SUITE_P(
    Zoo, BadModeTest,
    ::testing::Values(
        Bad{"open_fails", Code::kUnavailable, "the fake device is not there (while opening plugin 'a')"},
        Bad{"open_bare", Code::kDeviceLost, "Plugin 'a' gave DEVICE_LOST from open without saying why."},
        Bad{"open_throws", Code::kInternal, "Plugin 'a' threw an exception (thrown in open) out of open"},
        Bad{"open_throws_int", Code::kInternal, "Plugin 'a' threw something out of open"},
        Bad{"rubbish_code", Code::kInternal, "open gave 200, which is no status of this host"},
        Bad{"rubbish_handle", Code::kInternal, "which is no status of this host"},
        Bad{"start_fails", Code::kUnavailable, "it does not start (while starting plugin 'a')"},
        Bad{"score_throws", Code::kInternal, "threw an exception (thrown in score) out of score"}),
    [](const auto& info) { return std::string(info.param.mode); });

class BadCreateTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadCreateTest, FailsTheAcquireAndLeavesNothing) {
  TempDir dir;
  install(dir, "a");
  {
    TestHost test(dir, std::string("[plugin.a.config]\nmode = \"") + GetParam().mode + "\"\n");
    ASSERT_TRUE(test.host->start().ok());
    for (int i = 0; i < 2; ++i) {  // a failed attempt is no obstacle to the next
      const Status status = test.host->acquire("test.counter/1:a").status();
      EXPECT_EQ(status.code(), GetParam().code) << status.message();
      EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
    }
    EXPECT_TRUE(test.host->shutdown(kSoon).ok());
    EXPECT_EQ(test.host->table_for("a").memory.blocks, 0u);
  }
  EXPECT_EQ(live_details(), 0u);
}
INSTANTIATE_TEST_SUITE_P(
    Zoo, BadCreateTest,
    ::testing::Values(
        Bad{"create_fails", Code::kUnavailable, "nothing to count (while creating test.counter/1:a)"},
        Bad{"create_throws", Code::kInternal, "threw an exception (thrown in create) out of create"},
        Bad{"null_slots", Code::kInternal, "left required slots of test.counter/1 null: add, get."},
        Bad{"huge_table", Code::kInternal, "whose struct_size is 1073741824"},
        Bad{"no_table", Code::kInternal, "Plugin 'a' gave no table for a test.counter/1."},
        Bad{"score_zero", Code::kUnavailable, "does not work here: no fake\\ndevice"}),
    [](const auto& info) { return std::string(info.param.mode); });

struct BadFile {
  const char* variant;
  const char* message;
};
class BadFileTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, IsRefusedWithItsReasonAndAnotherPluginWorks) {
  TempDir dir;
  install(dir, GetParam().variant);
  install(dir, "b");
  TestHost test(dir, std::string("[runtime]\nplugins = [\"b\", \"") + GetParam().variant + "\"]\n");
  ASSERT_TRUE(test.created.ok()) << test.created.message();
  const Status status = test.host->start();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
  EXPECT_EQ(test.info(GetParam().variant).state, PluginState::kFailed);
  EXPECT_EQ(test.info("b").state, PluginState::kActive);
}
INSTANTIATE_TEST_SUITE_P(
    Zoo, BadFileTest,
    ::testing::Values(
        BadFile{"no_entry", "it exports no entry symbol belay_plugin_v0; it exports other_entry"},
        BadFile{"extra", "it exports more than its entry symbol: extra_symbol"},
        BadFile{"newer", "built for ABI 9, this host offers 0.1 (libbelay_newer.so) - install a newer host"},
        BadFile{"no_note", "it has no note .note.belay"},
        BadFile{"note_layout", "built for layout 999 of ABI 0.1, this host has layout"},
        BadFile{"other_sanitizer", "this host is not - build both alike"},
        BadFile{"execstack", "it wants an executable stack"},
        BadFile{"handshake_layout", "built for layout 999 of ABI 0.1"},
        BadFile{"needs", "plugin 'needs' refused: needs feature bits 4 of ABI 0.1"},
        BadFile{"refuses", "plugin 'refuses' refused: it says that it cannot work with this host (ABI 0.1)"},
        BadFile{"throws_in_entry",
                "threw an exception (thrown in the entry function) out of belay_plugin_v0"},
        BadFile{"table_id", "its table has the id 'somebody', its manifest 'table_id'"},
        BadFile{"small_table", "struct_size of its table is 24"},
        BadFile{"null_open", "required slot open is null"},
        BadFile{"null_create", "required slot create of component test.counter/1:null_create is null"}),
    [](const auto& info) { return std::string(info.param.variant); });

TEST(PluginLoaderTest, AnUndefinedSymbolIsAnErrorAtLoadAndNotTheEndOfTheProcess) {
  TempDir dir;
  install(dir, "undefined");
  TestHost test(dir, "[plugin.undefined]\n");
  const Status status = test.host->start();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("cannot be loaded"), HasSubstr("nobody_defines_this")));
}

TEST(PluginLoaderTest, AHostCallInTheEntryFunctionGivesNothing) {
  TempDir dir;
  install(dir, "calls_in_entry");
  TestHost test(dir, "[plugin.calls_in_entry]\n");
  EXPECT_TRUE(test.host->start().ok());
}

TEST(PluginLoaderTest, AManifestThatPromisesOtherComponentsIsRefused) {
  TempDir dir;
  install(dir, "a", "", "", "other");
  TestHost test(dir, "[plugin.a]\n");
  EXPECT_THAT(test.host->start().message(),
              HasSubstr("it has the components test.counter/1:a, its manifest says test.counter/1:other"));
}

TEST(PluginLoaderTest, ALibraryOfAnotherDigestThanItsManifestSaysIsNotLoaded) {
  TempDir dir;
  std::ifstream file(belay::testing::fake_file("a"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}}, digest = hex(sha256(bytes));
  install(dir, "a", "[integrity]\nsha256 = \"" + digest + "\"\n");
  install(dir, "b", "[integrity]\nsha256 = \"" + digest + "\"\n");
  TestHost test(dir, "[plugin.a]\n[plugin.b]\n");
  const Status status = test.host->start();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("libbelay_b.so' refused: its SHA-256 is"),
                                      HasSubstr("its manifest says " + digest)));
  EXPECT_EQ(test.info("a").state, PluginState::kActive);
  EXPECT_THAT(test.log(), Not(Contains("plugin.b: b open")));
}

TEST(PluginLoaderTest, OnlyPluginsOfAKnownDigestAreLoadedWhereThatIsWanted) {
  TempDir dir;
  const auto digest_of = [](const char* variant) {
    std::ifstream file(belay::testing::fake_file(variant), std::ios::binary);
    return hex(sha256(std::string{std::istreambuf_iterator<char>(file), {}}));
  };
  install(dir, "a", "[integrity]\nsha256 = \"" + digest_of("a") + "\"\n");
  install(dir, "b");
  install(dir, "c");
  const std::string strict = "[runtime]\nplugins = [\"a\", \"b\"]\nrequire_digest = true\n";
  {
    TestHost test(dir, strict);
    EXPECT_THAT(test.host->start().message(),
                AllOf(HasSubstr("plugin 'b' refused: [runtime] require_digest"), HasSubstr("plugin.b.sha256")));
    EXPECT_EQ(test.info("a").state, PluginState::kActive);
  }
  {
    TestHost test(dir, strict + "[plugin.b]\nsha256 = \"" + digest_of("b") + "\"\n");
    EXPECT_TRUE(test.host->start().ok());
    EXPECT_EQ(test.info("b").state, PluginState::kActive);
  }
  TestHost test(dir, "[plugin.c]\nsha256 = \"" + digest_of("b") + "\"\n");
  EXPECT_THAT(test.host->start().message(),
              AllOf(HasSubstr("libbelay_c.so' refused: its SHA-256 is " + digest_of("c")),
                    HasSubstr("plugin.c.sha256 says " + digest_of("b"))));
}

TEST(PluginLoaderTest, AFileThatIsReplacedAfterItWasCheckedIsNotLoaded) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\n");
  fs::rename(dir / "libbelay_a.so", dir / "old.so");  // keeps the old file's inode from being used again
  install(dir, "a");
  EXPECT_THAT(test.host->start().message(), HasSubstr("was replaced while it was being loaded"));
}

}  // namespace
}  // namespace belay::core
