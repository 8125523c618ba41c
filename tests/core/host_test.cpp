#include "core/slot_call.h"
#include "core/status_table.h"
#include "test_host.h"

#include <sys/wait.h>
#include <csignal>
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
  EXPECT_EQ(registry.choose("none/1").status().code(), Code::kNotFound);
  registry.remove_all("o"), registry.remove_all("p"), registry.remove_all("q");
  EXPECT_EQ(registry.choose("test.kind/1").status().code(), Code::kUnavailable);
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

// ---- host
// ---------------------------------------------------------------------------------------------------------------
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
  EXPECT_EQ(table.blocks, 1u);
  EXPECT_EQ(host.alloc(&host, 1, 3), nullptr);
  EXPECT_EQ(table.misbehaved, 1u);
  EXPECT_EQ(host.alloc(&host, UINT64_MAX, 8), nullptr);
  void* empty = host.alloc(&host, 0, 1);
  EXPECT_NE(empty, nullptr);
  host.free(&host, block), host.free(&host, empty), host.free(&host, nullptr);
  EXPECT_EQ(table.blocks, 0u);
  EXPECT_EQ(table.block_bytes, 0u);
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

TEST(HostTest, ThreeBrokenRulesAreAnErrorInTheLog) {
  TempDir dir;
  TestHost test(dir, "");
  const belay_host& host = test.host->table();
  for (int i = 0; i < 3; ++i) host.misbehave(&host, to_str("completion called twice"));
  EXPECT_THAT(test.log(),
              Contains(HasSubstr("(3): reported by it: completion called twice - the third time")));
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

TEST(HostTest, TheExampleHoldsThePluginsFound) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "");
  EXPECT_THAT(test.host->example(),
              AllOf(HasSubstr("[plugin.a.config]"), HasSubstr("# Where counting starts. (a size"),
                    HasSubstr("# start = \"1KiB\"")));
}

TEST(HostTest, InAForkedChildEveryCallFailsAndNamesTheCreator) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  auto lease = test.host->acquire("test.counter/1:a");
  ASSERT_TRUE(test.host->executor().post(table_of(&test.host->table()).tasks, [] {}).ok());
  const pid_t parent = getpid(), child = fork();
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

// ---- objects
// ------------------------------------------------------------------------------------------------------------
TEST(ObjectsTest, ManyThreadsGetOneObject) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a.config]\nmode = \"create_slow\"\n");
  ASSERT_TRUE(test.host->start().ok());
  std::vector<std::future<belay_obj*>> all;
  for (int i = 0; i < 8; ++i)
    all.push_back(
        std::async(std::launch::async, [&] { return test.host->acquire("test.counter/1:a")->object(); }));
  std::set<belay_obj*> objects;
  for (auto& one : all) objects.insert(one.get());
  EXPECT_THAT(objects, SizeIs(1));
  EXPECT_THAT(test.log(), ElementsAre("plugin.a: a open", "plugin.a: a start", "plugin.a: a create"));
}

TEST(ObjectsTest, ACircleOfAcquiresIsAnErrorAndNoDeadlock) {
  TempDir dir;
  install(dir, "a");
  install(dir, "b");
  TestHost test(dir,
                "[plugin.a.config]\nacquires = \"test.counter/1:b\"\n[plugin.b.config]\nacquires = "
                "\"test.counter/1:a\"\n");
  ASSERT_TRUE(test.host->start().ok());
  const Status status = test.host->acquire("test.counter/1:a").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("Making 'test.counter/1:a' waits for itself"));
  // From two threads at once, both ends: one of them finds the circle, whoever is first.
  auto one = std::async(std::launch::async, [&] { return test.host->acquire("test.counter/1:a").status(); });
  auto two = std::async(std::launch::async, [&] { return test.host->acquire("test.counter/1:b").status(); });
  EXPECT_FALSE(one.get().ok());
  EXPECT_FALSE(two.get().ok());
}

TEST(ObjectsTest, LeasesMoveAndAreGivenBackOnce) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  Lease lease = test.host->acquire("test.counter/1:a").value();
  const uint64_t id = lease.id();
  Lease other = std::move(lease);
  EXPECT_FALSE(lease.valid());  // NOLINT: a moved-from lease is empty
  EXPECT_TRUE(other.valid());
  other = Lease();
  EXPECT_FALSE(test.host->objects().valid(id));
  EXPECT_TRUE(test.host->shutdown(5s).ok());
}

// ---- executor
// -------------------------------------------------------------------------------------------------------------
TEST(ExecutorTest, ThreadsAreMadeAtFirstUseAndSignalsBlockedInThem) {
  Executor executor;
  TaskCount owner;
  EXPECT_EQ(executor.threads(), 0u);
  std::promise<bool> blocked;
  ASSERT_TRUE(executor
                  .post(owner,
                        [&] {
                          sigset_t set;
                          pthread_sigmask(SIG_SETMASK, nullptr, &set);
                          blocked.set_value(sigismember(&set, SIGTERM) == 1 &&
                                            sigismember(&set, SIGBUS) == 0);  // a fault of its own
                        })
                  .ok());
  EXPECT_TRUE(blocked.get_future().get());
  EXPECT_EQ(executor.threads(), 1u);
}

TEST(ExecutorTest, LongTasksDoNotDelayShortOnes) {
  Executor executor;
  TaskCount owner;
  std::promise<void> release;
  std::shared_future<void> gate(release.get_future());
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(executor.post_blocking(owner, [gate] { gate.wait(); }).ok());
  std::promise<void> ran;
  ASSERT_TRUE(executor.post(owner, [&] { ran.set_value(); }).ok());
  EXPECT_EQ(ran.get_future().wait_for(10s), std::future_status::ready);
  release.set_value();
  EXPECT_TRUE(executor.drain(owner, 10s));
}

TEST(ExecutorTest, ATimerRepeatsUntilItIsCancelledAndNotAfter) {
  Executor executor;
  TaskCount owner;
  std::atomic<int> count{0};
  const auto id = executor.timer(owner, 0ns, 1ms, [&] { ++count; });
  ASSERT_TRUE(id.ok());
  while (count < 3) std::this_thread::yield();
  executor.cancel(*id);
  const int after = count;
  EXPECT_TRUE(executor.drain(owner, 10s));
  EXPECT_EQ(count, after);
  executor.cancel(*id), executor.cancel(12345);
}

TEST(ExecutorTest, ATimerMayCancelItself) {
  Executor executor;
  TaskCount owner;
  std::atomic<uint64_t> id{0};
  std::atomic<int> count{0};
  const auto made = executor.timer(owner, 1ms, 1ms, [&] {
    while (id == 0) std::this_thread::yield();
    ++count;
    executor.cancel(id);
  });
  id = *made;
  EXPECT_FALSE(executor.drain(owner, 0ns) && count > 1);
  while (owner.tasks != 0) std::this_thread::yield();
  EXPECT_LE(count, 1);
}

TEST(ExecutorTest, AClosedOwnerIsRefusedAndAFarTimerEndsAtOnce) {
  Executor executor;
  TaskCount owner, other;
  ASSERT_TRUE(executor.timer(owner, std::chrono::nanoseconds::max(), 0ns, [] {}).ok());
  EXPECT_TRUE(executor.drain(owner, 10s));
  EXPECT_EQ(executor.post(owner, [] {}).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(executor.post(other, [] {}).ok());
}

TEST(ExecutorTest, ManyThreadsPostAndCancel) {
  Executor executor;
  TaskCount owner;
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(executor.post(owner, [&] { ++ran; }).ok());
        const auto id = executor.timer(owner, 1us, 1us, [] {});
        executor.cancel(*id);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(executor.drain(owner, 30s));
  EXPECT_EQ(ran, 800);
}

// ---- log
// ------------------------------------------------------------------------------------------------------------------
TEST(LogTest, LinesGoToTheFileWithNameAndLevelAndControlCharactersAreEscaped) {
  TempDir dir;
  Config config;
  ASSERT_TRUE(config
                  .add_text("t", "[log]\nlevel = \"warning\"\nfile = \"" + dir / "x.log" +
                                     "\"\nlevels = { plugin = \"error\", \"plugin.cpu\" = \"debug\" }\n")
                  .ok());
  ASSERT_TRUE(config.check(core_schema()).ok());
  Log log;
  ASSERT_TRUE(log.configure(config).ok());
  log.warning("core", "one\nforged \x1b[31mred\x1b[0m \xff \xc2\x9b");
  log.info("core", "not written");
  log.warning("plugin.other", "not written either");
  log.debug("plugin.cpu", "two");
  log.debug("plugin.cpux", "three");
  log.flush();
  std::ifstream file(dir / "x.log");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, AllOf(HasSubstr(" warning core: one\\nforged \\x1b[31mred\\x1b[0m \xef\xbf\xbd \\x9b\n"),
                          HasSubstr(" debug plugin.cpu: two\n"), Not(HasSubstr("not written")),
                          Not(HasSubstr("three"))));
}

TEST(LogTest, ALineThatRepeatsIsWrittenFiveTimes) {
  Log log;
  int lines = 0;
  log.listen([&](Level, std::string_view, std::string_view) { ++lines; });
  for (int i = 0; i < 100; ++i) log.error("core", "the same");
  EXPECT_EQ(lines, 5);
  log.error("hal", "the same");
  EXPECT_EQ(lines, 6);
}

TEST(LogTest, AFileThatCannotBeOpenedAndAWrongLevelAreErrors) {
  Log log;
  Config config;
  ASSERT_TRUE(config.add_text("t", "[log]\nfile = \"/proc/none/x.log\"\n").ok());
  ASSERT_TRUE(config.check(core_schema()).ok());
  EXPECT_THAT(log.configure(config).message(), HasSubstr("log.file '/proc/none/x.log' cannot be opened"));
  Config levels;
  ASSERT_TRUE(levels.add_text("t", "[log]\nlevels = { core = \"loud\" }\n").ok());
  ASSERT_TRUE(levels.check(core_schema()).ok());
  EXPECT_THAT(log.configure(levels).message(), HasSubstr("config t:2:19: log.levels: 'loud' is no level"));
}

TEST(LogTest, LongLinesAreCutAndUtf8IsKept) {
  bool replaced = true;
  EXPECT_EQ(printable("Grüße \xf0\x9f\x98\x80", &replaced), "Grüße \xf0\x9f\x98\x80");
  EXPECT_FALSE(replaced);
  EXPECT_EQ(printable("\xe2\x82", &replaced), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_TRUE(replaced);
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xed\xa0\x80\xc0\xaf"),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace belay::core
