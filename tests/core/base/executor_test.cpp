#include "core/base/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace belay::core
