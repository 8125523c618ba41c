#include "core/base/slot_call.h"
#include "core/base/status_table.h"
#include "fakes/fork.h"
#include "test_host.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstring>
#include <future>
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

TEST(HostTest, TwoHostsWithDifferentConfigurationsLiveInOneProcess) {
  TempDir dir;
  install(dir, "a");
  TestHost one(dir, "[plugin.a.config]\nstart = 1\n"), two(dir, "[plugin.a.config]\nstart = 2\n");
  ASSERT_TRUE(one.host->start().ok() && two.host->start().ok());
  auto first = one.host->acquire("test.counter/1:a"), second = two.host->acquire("test.counter/1:a");
  EXPECT_EQ(add(*first, 0), 1u);
  EXPECT_EQ(add(*second, 0), 2u);
  first->reset();
  one.host.reset();
  EXPECT_EQ(add(*second, 5), 7u);
}

TEST(HostTest, ServicesOfTheEmbedderReachPluginsWithHisPointer) {
  TempDir dir;
  TestHost test(dir, "");
  const int table = 0;
  int mine = 0;
  ASSERT_TRUE(test.host->add_service("belay.host.hal/1", &table).ok());
  EXPECT_EQ(test.host->add_service("belay.host.hal/1", &table).code(), Code::kAlreadyExists);
  test.host->set_user(&mine);
  const belay_host& host = test.host->table();
  EXPECT_EQ(host.get_service(&host, to_str("belay.host.hal/1")), &table);
  EXPECT_EQ(host.get_service(&host, to_str("belay.host.nothing/1")), nullptr);
  EXPECT_EQ(user_of(&host), &mine);
  EXPECT_EQ(user_of(&test.host->table_for("late").abi), &mine);
}

TEST(HostTest, StatusesSurviveTheirHost) {
  TempDir dir;
  belay_status status;
  {
    TestHost test(dir, "");
    status = to_c(test.host->table(), Status(Code::kNotFound, "No such thing."));
  }
  EXPECT_EQ(status_detail(status)->message, "No such thing.");
  release_status(status);
}

TEST(HostTest, MemoryIsCountedForEachPlugin) {
  TempDir dir;
  TestHost test(dir, "");
  HostTable& table = test.host->table_for("p");
  table.live = true;
  const belay_host& host = table.abi;
  void* block = host.alloc(&host, 100, 256);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 256, 0u);
  EXPECT_EQ(table.memory.blocks, 1u);
  EXPECT_EQ(host.alloc(&host, 1, 3), nullptr);
  EXPECT_EQ(table.misbehaved, 1u);
  EXPECT_EQ(host.alloc(&host, UINT64_MAX, 8), nullptr);
  void* empty = host.alloc(&host, 0, 1);
  EXPECT_NE(empty, nullptr);
  host.free(&host, block), host.free(&host, empty), host.free(&host, nullptr);
  EXPECT_EQ(table.memory.blocks, 0u);
  EXPECT_EQ(table.memory.bytes, 0u);
}

TEST(HostTest, AClosedPluginMayNotCallAndNothingBreaks) {
  TempDir dir;
  TestHost test(dir, "");
  const belay_host& host = test.host->table_for("p").abi;  // not open yet
  EXPECT_EQ(host.get_service(&host, to_str(BELAY_HOST_EXECUTOR)), nullptr);
  EXPECT_EQ(host.alloc(&host, 8, 8), nullptr);
  host.log(&host, BELAY_LOG_ERROR, to_str("lost"));
  const auto* executor = static_cast<const belay_executor_vt*>(test.host->service(BELAY_HOST_EXECUTOR));
  const Status status = from_c(test.host->table(), executor->post(
                                                       &host, [](void*) {}, nullptr));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("Plugin 'p' is closed and may not call the host"));
  EXPECT_THAT(test.log(), IsEmpty());
}

TEST(HostTest, APluginGetsNoMoreMemoryThanItsLimit) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\nmemory_limit = \"64KiB\"\n");
  ASSERT_TRUE(test.host->start().ok());
  HostTable& table = test.host->table_for("a");
  void* const block = table.abi.alloc(&table.abi, 60000, 8);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(table.abi.alloc(&table.abi, 60000, 8), nullptr);
  table.abi.free(&table.abi, block);
  void* const again = table.abi.alloc(&table.abi, 60000, 8);
  EXPECT_NE(again, nullptr);
  table.abi.free(&table.abi, again);
  EXPECT_LE(table.memory.peak, 65536u);
}

TEST(HostTest, FreeOfWhatIsNotItsOwnIsABrokenRuleAndHarmsNobody) {
  TempDir dir;
  TestHost test(dir, "");
  HostTable &own = test.host->table_for("own"), &other = test.host->table_for("other");
  own.live = other.live = true;
  char* const block = static_cast<char*>(own.abi.alloc(&own.abi, 4096, 64));
  std::memset(block, 7, 4096);
  own.abi.free(&own.abi, block + 64);
  own.abi.free(&own.abi, block + 3);
  EXPECT_EQ(own.misbehaved, 2u);
  EXPECT_EQ(own.memory.blocks, 1u);
  other.abi.free(&other.abi, block);  // freed, and known whose it was
  EXPECT_EQ(other.misbehaved, 1u);
  EXPECT_EQ(own.memory.blocks, 0u);
  EXPECT_EQ(other.memory.blocks, 0u);
  EXPECT_THAT(test.log(), Contains(HasSubstr("free of memory of plugin 'own'")));
}

TEST(HostTest, AMissingServiceIsNamedInTheLog) {
  TempDir dir;
  TestHost test(dir, "");
  HostTable& table = test.host->table_for("p");
  table.live = true;
  EXPECT_EQ(table.abi.get_service(&table.abi, to_str("belay.host.weather/1")), nullptr);
  EXPECT_THAT(test.log(), ElementsAre(AllOf(HasSubstr("plugin.p: this host (belay "),
                                            HasSubstr("has no service 'belay.host.weather/1'"))));
}

TEST(HostTest, TheExecutorServiceRunsTasksAndCatchesWhatTheyThrow) {
  TempDir dir;
  TestHost test(dir, "");
  const belay_host& host = test.host->table();
  const auto* executor =
      static_cast<const belay_executor_vt*>(host.get_service(&host, to_str(BELAY_HOST_EXECUTOR)));
  std::promise<void> done;
  ASSERT_EQ(executor->post(
                &host, [](void* user) { static_cast<std::promise<void>*>(user)->set_value(); }, &done),
            BELAY_OK);
  done.get_future().wait();
  ASSERT_EQ(executor->post_blocking(
                &host, [](void*) { throw 3; }, nullptr),
            BELAY_OK);
  while (table_of(&host).tasks.tasks != 0) std::this_thread::yield();
  EXPECT_THAT(test.log(), Contains(HasSubstr("threw something out of a task")));
  const Status null = from_c(host, executor->post(&host, nullptr, nullptr));
  EXPECT_EQ(null.code(), Code::kInvalidArgument);
}

TEST(HostTest, TheRegistryServiceLeasesObjectsOfOthers) {
  TempDir dir;
  install(dir, "a", "", "priority = 1\n");
  install(dir, "b");
  TestHost test(dir, "[plugin.a]\n[plugin.b]\n");
  ASSERT_TRUE(test.host->start().ok());
  const belay_host& host = test.host->table();
  const auto* registry =
      static_cast<const belay_registry_vt*>(host.get_service(&host, to_str(BELAY_HOST_REGISTRY)));
  belay_lease lease{{sizeof lease, 0, nullptr}, 0, nullptr};
  ASSERT_EQ(registry->acquire(&host, to_str("test.counter/1:b"), &lease), BELAY_OK);
  EXPECT_EQ(lease.object->magic, BELAY_OBJ_MAGIC);
  EXPECT_EQ(lease.object->kind, 77u);
  EXPECT_TRUE(test.host->objects().valid(lease.id));
  registry->release(&host, lease.id), registry->release(&host, lease.id);  // twice is harmless
  EXPECT_FALSE(test.host->objects().valid(lease.id));
  const Status missing = from_c(host, registry->acquire(&host, to_str("test.counter/1:c"), &lease));
  EXPECT_EQ(missing.code(), Code::kNotFound);
  std::vector<std::string> keys;
  registry->enumerate(
      &host, to_str(FAKE_KIND),
      [](void* to, belay_str key) { static_cast<std::vector<std::string>*>(to)->push_back(to_string(key)); },
      &keys);
  EXPECT_THAT(keys, ElementsAre("test.counter/1:a", "test.counter/1:b"));
}

TEST(HostTest, AWatcherOfTheRegistrySeesComponentsComeAndGoAndItsLeaseRevoked) {
  TempDir dir;
  install(dir, "a");
  install(dir, "b");
  install(dir, "c");
  TestHost test(dir, "[plugin.a]\n[plugin.b]\n[plugin.c]\n");
  ASSERT_TRUE(test.host->start().ok());
  const belay_host& host = test.host->table_for("c").abi;
  const auto* registry =
      static_cast<const belay_registry_vt*>(host.get_service(&host, to_str(BELAY_HOST_REGISTRY)));
  struct Seen {
    std::mutex mutex;
    std::vector<std::string> events;
    size_t count() {
      std::lock_guard lock(mutex);
      return events.size();
    }
  } seen;
  const auto changed = [](void* user, belay_str key, uint32_t what) {
    Seen& to = *static_cast<Seen*>(user);
    std::lock_guard lock(to.mutex);
    to.events.push_back((what == BELAY_COMPONENT_ADDED ? "+" : "-") + to_string(key).substr(15));
  };
  uint64_t watch = 0;
  ASSERT_EQ(registry->watch(&host, to_str(FAKE_KIND), changed, &seen, &watch), BELAY_OK);
  belay_lease lease{{sizeof lease, 0, nullptr}, 0, nullptr};
  ASSERT_EQ(registry->acquire(&host, to_str("test.counter/1:a"), &lease), BELAY_OK);
  EXPECT_EQ(registry->valid(&host, lease.id), BELAY_OK);
  std::thread ender([&] { EXPECT_TRUE(test.host->plugins().unload("a", 10s).ok()); });
  while (seen.count() < 4) std::this_thread::sleep_for(1ms);
  EXPECT_THAT(seen.events, ElementsAre("+a", "+b", "+c", "-a"));
  EXPECT_EQ(from_c(host, registry->valid(&host, lease.id)).code(), Code::kNotFound);
  registry->release(&host, lease.id);  // the plugin has waited for it
  ender.join();
  registry->unwatch(&host, watch);
  ASSERT_TRUE(test.host->plugins().unload("b", 5s).ok());
  ASSERT_EQ(registry->watch(&host, to_str(FAKE_KIND), changed, &seen, &watch), BELAY_OK);
  while (seen.count() < 5) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(test.host->shutdown(5s).ok());  // with the watch
  EXPECT_EQ(seen.events.back(), "+c");
  EXPECT_EQ(
      from_c(test.host->table(), registry->watch(&host, to_str(FAKE_KIND), nullptr, nullptr, nullptr)).code(),
      Code::kFailedPrecondition);
}

TEST(HostTest, StrandsAndDescriptorsAreOfThePluginThatAskedAndEndWithIt) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  const belay_host& host = test.host->table_for("a").abi;
  const belay_host& stranger = test.host->table();
  const auto* executor =
      static_cast<const belay_executor_vt*>(host.get_service(&host, to_str(BELAY_HOST_EXECUTOR)));
  std::atomic<int> ran{0}, ready{0};
  const auto count = [](void* user) { ++*static_cast<std::atomic<int>*>(user); };
  uint64_t strand = 0, watch = 0;
  ASSERT_EQ(executor->strand(&host, &strand), BELAY_OK);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(executor->post_to(&host, strand, count, &ran), BELAY_OK);
  EXPECT_EQ(from_c(host, executor->post_to(&stranger, strand, count, &ran)).code(), Code::kNotFound);
  EXPECT_EQ(from_c(host, executor->post_to(&host, strand, nullptr, nullptr)).code(), Code::kInvalidArgument);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(executor->watch_fd(&host, ends[1], 1, count, &ready, &watch), BELAY_OK);
  EXPECT_EQ(from_c(host, executor->watch_fd(&host, -1, 0, count, &ready, &watch)).code(),
            Code::kInvalidArgument);
  while (ran < 10 || ready == 0) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(test.host->shutdown(5s).ok());
  EXPECT_EQ(test.info("a").state, PluginState::kResident);
  const int before = ready;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(ready, before);
  close(ends[0]), close(ends[1]);
}

TEST(HostTest, AKindThatNobodyToldTheHostIsNotMade) {
  TempDir dir;
  install(dir, "a");
  Config config;
  ASSERT_TRUE(config.add_text("t", "[plugin.a]\n").ok());
  auto host =
      Host::create({.config = std::move(config), .plugin_dirs = {dir.path()}, .standard_plugin_dirs = false});
  ASSERT_TRUE((*host)->start().ok());
  EXPECT_EQ((*host)->acquire("test.counter/1:a").status().code(), Code::kFailedPrecondition);
}

TEST(HostTest, WhatIsNeededLaterIsCheckedLikeTheRest) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "");
  ASSERT_TRUE(test.host->need("test.counter/1:a", "the application").ok());
  EXPECT_EQ(
      test.host->need("b", "the application").message().rfind("the application: no plugin has the id 'b'", 0),
      0u);
  ASSERT_TRUE(test.host->start().ok());
  auto lease = test.host->acquire("test.counter/1:a");
  EXPECT_EQ(add(*lease, 0), 1024u);  // the default was filled in
}

TEST(HostTest, AWrongKeyOfAPluginIsToldBeforeAnythingIsLoaded) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a.config]\nstrat = \"1KiB\"\n");
  EXPECT_EQ(test.created.message(),
            "config test.toml:2:1: unknown key 'strat' for test.counter/1:a - did you mean 'start'?");
}

TEST(HostTest, InAForkedChildEveryCallFailsAndNamesTheCreator) {
#if BELAY_SANITIZER == BELAY_SANITIZER_THREAD
  GTEST_SKIP() << "ThreadSanitizer ends a child that makes threads after a fork of many threads.";
#endif
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  auto lease = test.host->acquire("test.counter/1:a");
  ASSERT_TRUE(test.host->executor().post(table_of(&test.host->table()).tasks, [] {}).ok());
  const pid_t parent = getpid(), child = belay::testing::fork_at_rest();
  if (child == 0) {
    const Status status = test.host->acquire("test.counter/1:a").status();
    const bool named = status.code() == Code::kFailedPrecondition &&
                       status.message().find("process " + std::to_string(parent)) != std::string::npos;
    const bool stopped = !test.host->shutdown(1s).ok() && !test.host->start().ok();
    lease->reset();
    test.host->log().error("core", "not written in a child");
    test.host.reset();  // does nothing and does not hang
    TestHost fresh(dir, "[plugin.a]\n");
    const bool works = fresh.host->start().ok() && fresh.host->acquire("test.counter/1:a").ok();
    _exit(named && stopped && works ? 0 : named + 2 * stopped + 4 * works + 1);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << result;
  EXPECT_EQ(add(*lease, 1), 1025u);
}

TEST(HostTest, ALogFileThatCannotBeOpenedIsAMistakeOfTheConfiguration) {
  TempDir dir;
  Config config;
  ASSERT_TRUE(config.add_text("test.toml", "[log]\nfile = \"/proc/none/x.log\"\n").ok());
  const auto made = Host::create({.config = std::move(config), .standard_plugin_dirs = false});
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(made.status().message(),
              HasSubstr("config test.toml:2:8: log.file '/proc/none/x.log' cannot be opened"));
}

TEST(HostTest, AWrongLevelOfALoggerIsNamedWithItsPlace) {
  TempDir dir;
  TestHost test(dir, "[log]\nlevels = { core = \"loud\" }\n");
  EXPECT_EQ(test.created.code(), Code::kInvalidArgument);
  EXPECT_THAT(test.created.message(), HasSubstr("config test.toml:2:19: log.levels: 'loud' is no level"));
}

}  // namespace
}  // namespace belay::core
