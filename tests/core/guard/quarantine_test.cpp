#include "core/guard/quarantine.h"

#include "core/base/slot_call.h"
#include "fakes/fork.h"
#include "fakes/temp_dir.h"

#include <belay/abi/plugin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <csignal>
#include <functional>
#include <thread>

namespace belay::core {
namespace {

using belay::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class QuarantineTest : public ::testing::Test {
 protected:
  QuarantineTest() : file_(dir_.write("libbelay_x.so", "one")), state_(dir_ / "state") {}
  // A process that loads the plugin x and then does something.
  int loader(const std::function<void()>& then) const {
    const pid_t child = belay::testing::fork_at_rest();
    if (child == 0) {
      const rlimit none{0, 0};
      setrlimit(RLIMIT_CORE, &none);
      const Quarantine quarantine(state_);
      Quarantine::Journal journal(quarantine);
      journal.loading("x", file_);
      then();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
  std::string after() const {
    const Quarantine quarantine(state_);
    quarantine.look_for_the_dead();
    return quarantine.check("x", file_).message();
  }
  size_t files() const { return size_t(std::distance(fs::directory_iterator(state_), {})); }

  const TempDir dir_;
  const std::string file_, state_;
};

TEST_F(QuarantineTest, AFileIsInItUntilItChanges) {
  const Quarantine quarantine(state_);
  EXPECT_TRUE(quarantine.check("x", file_).ok());
  ASSERT_TRUE(quarantine.add("x", file_, "it \"broke\"\n").ok());
  const Status status = quarantine.check("x", file_);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("plugin 'x' quarantined: it \"broke\""), HasSubstr(file_),
                                      HasSubstr("belay plugins release x")));
  ASSERT_EQ(Quarantine(state_).list().size(), 1u);
  EXPECT_EQ(Quarantine(state_).list()[0].reason, "it \"broke\"\n");
  dir_.write("libbelay_x.so", "another");
  EXPECT_TRUE(quarantine.check("x", file_).ok());
  EXPECT_THAT(quarantine.list(), IsEmpty());
}

TEST_F(QuarantineTest, ReleaseLetsItBeTriedAgainAndNamesThoseThereAre) {
  const Quarantine quarantine(state_);
  EXPECT_THAT(quarantine.release("x").message(), HasSubstr("there are none"));
  ASSERT_TRUE(quarantine.add("x", file_, "why").ok());
  EXPECT_THAT(quarantine.release("y").message(), HasSubstr("there is x"));
  EXPECT_TRUE(quarantine.release("x").ok());
  EXPECT_TRUE(quarantine.check("x", file_).ok());
}

TEST_F(QuarantineTest, ACrashInsideAPluginIsRememberedWithSignalAndSlot) {
#if BELAY_SANITIZER != BELAY_SANITIZER_NONE
  GTEST_SKIP() << "A sanitizer takes the signals of a crash.";
#endif
  const int status = loader([] {
    const SlotCall call("x", "open", BELAY_THREAD_INIT);
    raise(SIGSEGV);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  EXPECT_THAT(after(), HasSubstr("SIGSEGV in open ended process"));
  EXPECT_EQ(files(), 1u);  // the journal is gone
}

TEST_F(QuarantineTest, AFaultyInstructionOnAnotherThreadToo) {
#if BELAY_SANITIZER != BELAY_SANITIZER_NONE
  GTEST_SKIP() << "A sanitizer takes the signals of a crash.";
#endif
  const int status = loader([] {
    std::thread([] {
      const SlotCall call("x", "create", BELAY_THREAD_SERIAL);
      __builtin_trap();
    }).join();
  });
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_THAT(after(), HasSubstr("SIGILL in create"));
}

TEST_F(QuarantineTest, ExitInsideAPluginIsRemembered) {
  const int status = loader([] {
    const SlotCall call("x", "open", BELAY_THREAD_INIT);
    std::exit(0);
  });
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_THAT(after(), HasSubstr("exit() in open"));
}

TEST_F(QuarantineTest, WhoIsKilledFromOutsideOrCrashesOfItselfBlamesNobody) {
  EXPECT_TRUE(WIFSIGNALED(loader([] {
    const SlotCall call("x", "open", BELAY_THREAD_INIT);
    raise(SIGKILL);
  })));
  EXPECT_EQ(after(), "");
  EXPECT_TRUE(WIFSIGNALED(loader([] { std::signal(SIGABRT, SIG_DFL), raise(SIGABRT); })));
  EXPECT_EQ(after(), "");
  EXPECT_TRUE(WIFSIGNALED(loader([] {
    const SlotCall call("another", "open", BELAY_THREAD_INIT);  // not what it loads
    raise(SIGABRT);
  })));
  EXPECT_EQ(after(), "");
  EXPECT_EQ(files(), 0u);
}

TEST_F(QuarantineTest, OneThatStillLoadsIsLeftAlone) {
  const Quarantine quarantine(state_);
  {
    Quarantine::Journal journal(quarantine);
    journal.loading("x", file_);
    EXPECT_EQ(after(), "");
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(QuarantineTest, HandlersOfTheProcessAreBackAfterwards) {
  struct sigaction before, during, now;
  sigaction(SIGSEGV, nullptr, &before);
  const Quarantine quarantine(state_);
  {
    Quarantine::Journal first(quarantine), second(quarantine);
    first.loading("x", file_), second.loading("x", file_);
    sigaction(SIGSEGV, nullptr, &during);
    EXPECT_NE(during.sa_sigaction, before.sa_sigaction);
  }
  sigaction(SIGSEGV, nullptr, &now);
  EXPECT_EQ(now.sa_sigaction, before.sa_sigaction);
}

TEST_F(QuarantineTest, RubbishInTheFolderIsPassedOver) {
  const Quarantine quarantine(state_);
  ASSERT_TRUE(quarantine.add("x", file_, "why").ok());
  for (const char* name : {"1-0.loading", "zzz.loading", "0.quarantine", "other"}) {
    std::ofstream(state_ + "/" + name) << "id = 7\n[[[";
  }
  fs::create_directory(state_ + "/2-0.loading");
  quarantine.look_for_the_dead();
  EXPECT_EQ(quarantine.list().size(), 1u);
  EXPECT_THAT(after(), HasSubstr("why"));
}

TEST_F(QuarantineTest, WithoutAFolderNothingIsKept) {
  for (const std::string& directory : {std::string(), file_ + "/below", std::string("/proc/nothing")}) {
    const Quarantine none(directory);
    Quarantine::Journal journal(none);
    journal.loading("x", file_);
    EXPECT_TRUE(none.add("x", file_, "why").ok());
    EXPECT_TRUE(none.check("x", file_).ok());
    EXPECT_THAT(none.list(), IsEmpty());
    none.look_for_the_dead();
  }
  fs::create_directory(state_);
  fs::permissions(state_, fs::perms(0777));
  const Quarantine open_to_all(state_);
  EXPECT_TRUE(open_to_all.add("x", file_, "why").ok());
  EXPECT_TRUE(open_to_all.check("x", file_).ok());
}

}  // namespace
}  // namespace belay::core
