#include "core/base/bounded_call.h"

#include <gtest/gtest.h>

#include <pthread.h>
#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <thread>

namespace belay::core {
namespace {

using namespace std::chrono_literals;

void nobody(std::chrono::seconds) { ADD_FAILURE() << "late"; }

TEST(BoundedCallTest, WhatReturnsInTimeHasRunOnAThreadOfItsOwn) {
  std::thread::id ran;
  EXPECT_TRUE(call_bounded([&] { ran = std::this_thread::get_id(); }, 10s, nobody));
  EXPECT_NE(ran, std::thread::id());
  EXPECT_NE(ran, std::this_thread::get_id());
  EXPECT_TRUE(call_bounded([] {}, std::chrono::nanoseconds::max(), nobody));  // no overflow
}

TEST(BoundedCallTest, SignalsAreLeftToTheApplication) {
  sigset_t inside;
  EXPECT_TRUE(call_bounded([&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); }, 10s, nobody));
  EXPECT_TRUE(sigismember(&inside, SIGINT) && sigismember(&inside, SIGTERM));
  EXPECT_FALSE(sigismember(&inside, SIGSEGV));
  sigset_t outside;
  pthread_sigmask(SIG_SETMASK, nullptr, &outside);
  EXPECT_FALSE(sigismember(&outside, SIGINT));
}

TEST(BoundedCallTest, ABodyThatEndsItsThreadHasEnded) {
  EXPECT_TRUE(call_bounded([] { pthread_exit(nullptr); }, 10s, nobody));
}

TEST(BoundedCallTest, WhatDoesNotReturnIsLeftBehindWithWhatItOwns) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(call_bounded(
      [gate, ended] {
        gate->get_future().wait();
        ended->set_value();
      },
      20ms, nobody));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  gate->set_value();
  ended->get_future().wait();
}

TEST(BoundedCallTest, TheCallerIsToldAfterOneSecond) {
  std::atomic<int> told{0};
  EXPECT_TRUE(call_bounded([] { std::this_thread::sleep_for(1200ms); }, 10s,
                           [&](std::chrono::seconds after) {
                             EXPECT_EQ(after, 1s);
                             ++told;
                           }));
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace belay::core
