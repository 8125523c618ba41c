#include "core/guard/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <fstream>

namespace belay::core {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

ProbeResult shell(const std::string& script, std::chrono::nanoseconds deadline = 20s) {
  const Result<ProbeResult> result = probe({{"/bin/sh", "-c", script}, deadline});
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : ProbeResult{};
}

TEST(ProbeTest, WhatEndsByItselfSurvivesWhateverItsStatus) {
  EXPECT_TRUE(shell("exit 0").survived);
  const ProbeResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_TRUE(result.survived);
  EXPECT_EQ(result.output, "out\nerr\n");
}

TEST(ProbeTest, ASignalIsNamedWithTheLastOutput) {
  const ProbeResult result = shell("echo before; kill -ILL $$");
  EXPECT_FALSE(result.survived);
  EXPECT_EQ(result.what, "killed by SIGILL");
  EXPECT_EQ(result.output, "before\n");
}

TEST(ProbeTest, WhatHangsIsEndedWithAllThatItHasStarted) {
  const ProbeResult result = shell("sleep 1000 & echo $!; wait", 300ms);
  EXPECT_FALSE(result.survived);
  EXPECT_EQ(result.what, "not done after 300 ms");
  const pid_t grandchild = std::stoi(result.output);
  for (int i = 0; i < 200 && std::ifstream("/proc/" + std::to_string(grandchild) + "/cmdline").get() > 0; ++i)
    usleep(10000);
  EXPECT_LE(std::ifstream("/proc/" + std::to_string(grandchild) + "/cmdline").get(), 0);  // gone, or a zombie
}

TEST(ProbeTest, MuchOutputIsCutAtItsBegin) {
  const ProbeResult result = shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done");
  EXPECT_TRUE(result.survived);
  EXPECT_LE(result.output.size(), 1000u);
  EXPECT_THAT(result.output, HasSubstr("line 19999\n"));
}

TEST(ProbeTest, ItGetsNoDescriptorsNoSignalMaskAndNoInput) {
  int kept[2];
  ASSERT_EQ(pipe(kept), 0);
  const ProbeResult result =
      shell("ls /proc/self/fd | tr '\\n' ' '; grep SigBlk /proc/self/status; read x && echo input; true");
  close(kept[0]), close(kept[1]);
  EXPECT_THAT(result.output, HasSubstr("0 1 2 3 "));  // 3: of ls itself
  EXPECT_THAT(result.output, ::testing::Not(HasSubstr("0 1 2 3 4")));
  EXPECT_THAT(result.output, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(result.output, ::testing::Not(HasSubstr("input")));
}

TEST(ProbeTest, AProgramThatIsNotThereIsNamed) {
  const Result<ProbeResult> result = probe({{"/nonexistent/belay"}, 1s});
  EXPECT_EQ(result.status().code(), Code::kUnavailable);
  EXPECT_THAT(result.status().message(), HasSubstr("/nonexistent/belay cannot be started"));
}

}  // namespace
}  // namespace belay::core
