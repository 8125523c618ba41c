#include "core/base/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
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
  TaskCount owner;
  Executor executor;
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
  TaskCount owner;
  Executor executor;
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
  TaskCount owner;
  Executor executor;
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
  TaskCount owner;
  Executor executor;
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
  TaskCount owner, other;
  Executor executor;
  ASSERT_TRUE(executor.timer(owner, std::chrono::nanoseconds::max(), 0ns, [] {}).ok());
  EXPECT_TRUE(executor.drain(owner, 10s));
  EXPECT_EQ(executor.post(owner, [] {}).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(executor.post(other, [] {}).ok());
}

TEST(ExecutorTest, ManyThreadsPostAndCancel) {
  TaskCount owner;
  Executor executor;
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

TEST(ExecutorTest, AStrandRunsItsTasksInOrderAndNeverTwoAtOnce) {
  TaskCount owner;
  Executor executor;
  const auto one = executor.strand(owner), two = executor.strand(owner);
  ASSERT_TRUE(one.ok() && two.ok());
  std::vector<int> order;  // no lock: a strand is one
  std::atomic<int> inside{0}, others{0};
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(executor
                    .post(owner, *one,
                          [&, i] {
                            EXPECT_EQ(++inside, 1);
                            order.push_back(i);
                            --inside;
                          })
                    .ok());
    ASSERT_TRUE(executor.post(owner, *two, [&] { ++others; }).ok());
  }
  EXPECT_TRUE(executor.drain(owner, 30s));  // what is queued still runs
  ASSERT_EQ(order.size(), 500u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(others, 500);
  EXPECT_EQ(executor.post(owner, *one, [] {}).code(), Code::kFailedPrecondition);
}

TEST(ExecutorTest, ACancelledStrandDropsWhatHasNotBegun) {
  TaskCount owner, stranger;
  Executor executor;
  const auto id = executor.strand(owner);
  std::promise<void> begun, gate;
  std::atomic<int> ran{0};
  ASSERT_TRUE(executor.post(owner, *id, [&] { begun.set_value(), gate.get_future().wait(), ++ran; }).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(executor.post(owner, *id, [&] { ++ran; }).ok());
  EXPECT_EQ(executor.post(stranger, *id, [] {}).code(), Code::kNotFound);
  begun.get_future().wait();
  std::thread opener([&] { std::this_thread::sleep_for(20ms), gate.set_value(); });
  executor.cancel(*id);  // waits for the one that runs
  EXPECT_EQ(ran, 1);
  opener.join();
  EXPECT_EQ(executor.post(owner, *id, [] {}).code(), Code::kNotFound);
  EXPECT_TRUE(executor.drain(owner, 30s));
  EXPECT_EQ(ran, 1);
}

TEST(ExecutorTest, AWatchRunsWhileTheDescriptorIsReadyUntilItIsCancelled) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  {
    TaskCount owner, left;
    std::atomic<int> bytes{0}, calls{0};
    Executor executor;
    const auto id = executor.watch(owner, ends[0], false, [&] {
      char got[8];
      ++calls;
      if (const ssize_t n = ::read(ends[0], got, sizeof got); n > 0) bytes += int(n);
    });
    ASSERT_TRUE(id.ok()) << id.status().message();
    EXPECT_EQ(owner.tasks, 1u);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(::write(ends[1], "abcdefghijkl", 12), 12);
    while (bytes < 60) std::this_thread::sleep_for(1ms);
    EXPECT_GE(calls, 8);  // ready until all is read
    executor.cancel(*id);
    const int before = calls;
    EXPECT_EQ(::write(ends[1], "x", 1), 1);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(calls, before);
    EXPECT_EQ(executor.watch(owner, -1, false, [] {}).status().code(), Code::kInvalidArgument);
    const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const auto regular = executor.watch(owner, file, false, [] {});
    if (!regular.ok()) {
      EXPECT_EQ(regular.status().code(), Code::kInvalidArgument);
    }
    EXPECT_TRUE(executor.drain(owner, 30s));
    close(file);
    // One is still watched when the executor ends.
    ASSERT_TRUE(executor.watch(left, ends[1], true, [] { std::this_thread::yield(); }).ok());
  }
  EXPECT_NE(fcntl(ends[0], F_GETFD), -1);  // the descriptors are the owner's
  EXPECT_NE(fcntl(ends[1], F_GETFD), -1);
  close(ends[0]), close(ends[1]);
}

TEST(ExecutorTest, ManyThreadsUseStrandsAndWatches) {
  TaskCount owner;
  Executor executor;
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto strand = executor.strand(owner);
        int ends[2];
        ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
        const auto watch = executor.watch(owner, ends[1], true, [&] { ++ran; });
        for (int k = 0; k < 5; ++k) EXPECT_TRUE(executor.post(owner, *strand, [&] { ++ran; }).ok());
        executor.cancel(*strand), executor.cancel(*watch);
        close(ends[0]), close(ends[1]);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(executor.drain(owner, 30s));
}

}  // namespace
}  // namespace belay::core
