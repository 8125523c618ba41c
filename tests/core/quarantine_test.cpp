// Plugins that end the process which loads them, and what the next one does about it.
#include "fakes/fork.h"
#include "test_host.h"

#include <sys/resource.h>
#include <sys/wait.h>

namespace belay::core {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Ending {
  const char* plugin;
  const char* mode;
  const char* reason;
};
class QuarantineTest : public ::testing::TestWithParam<Ending> {
 protected:
  static std::string toml(const TempDir& dir) {
    const std::string id = GetParam().plugin;
    return "[runtime]\nplugins = [\"b\", \"" + id + "\"]\nprobe = \"none\"\nstate_dir = \"" + dir / "state" +
           "\"\n" +
           (GetParam().mode[0] ? "[plugin." + id + ".config]\nmode = \"" + GetParam().mode + "\"\n" : "");
  }
};

TEST_P(QuarantineTest, KeepsThePluginAwayFromTheNextProcessUntilItsFileChanges) {
#if BELAY_SANITIZER != BELAY_SANITIZER_NONE
  GTEST_SKIP() << "A sanitizer takes the signals of a crash.";
#endif
  TempDir dir;
  const std::string id = GetParam().plugin;
  install(dir, id);
  install(dir, "b");
  const pid_t child = belay::testing::fork_at_rest();
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    TestHost test(dir, toml(dir));
    if (test.created.ok()) static_cast<void>(test.host->start());
    _exit(77);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 77);
  {
    TestHost next(dir, toml(dir));
    ASSERT_TRUE(next.created.ok()) << next.created.message();
    EXPECT_THAT(next.host->start().message(),
                AllOf(HasSubstr("plugin '" + id + "' quarantined: "), HasSubstr(GetParam().reason),
                      HasSubstr("belay plugins release " + id)));
    EXPECT_EQ(next.info(id).state, PluginState::kQuarantined);
    EXPECT_EQ(next.info("b").state, PluginState::kActive);
  }
  fs::copy_file(dir / ("libbelay_" + id + ".so"), dir / "new");
  fs::rename(dir / "new", dir / ("libbelay_" + id + ".so"));
  const Catalog again =
      Catalog::search({.first_dirs = {dir.path()}, .state_dir = dir / "state", .standard_dirs = false});
  EXPECT_TRUE(again.find(id)->refused.ok()) << again.find(id)->refused.message();
}
INSTANTIATE_TEST_SUITE_P(Zoo, QuarantineTest,
                         ::testing::Values(Ending{"crashes", "", "SIGILL in its constructors ended process"},
                                           Ending{"a", "open_aborts", "SIGABRT in open ended process"},
                                           Ending{"a", "open_exits", "exit() in open ended process"},
                                           Ending{"a", "start_crashes", "SIGILL in start ended process"}),
                         [](const auto& info) {
                           return std::string(info.param.plugin) + "_" + info.param.mode;
                         });

}  // namespace
}  // namespace belay::core
