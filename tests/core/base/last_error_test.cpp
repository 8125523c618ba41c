#include "core/base/last_error.h"

#include "core/base/status_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include <pthread.h>

namespace belay::core {
namespace {

void keep(uint32_t code, const std::string& message) {
  const belay_status status = make_status(code, message);
  keep_last_error(status);
  release_status(status);
}

std::string text_of(belay_status status) {
  StringSink text;
  status_text(status, text.sink());
  return std::move(text).str();
}

TEST(LastErrorTest, IsTheLastFailureAndIsGivenOnce) {
  ASSERT_EQ(take_last_error(), BELAY_OK);
  const uint64_t details = live_details();
  const belay_status first = make_status(BELAY_NOT_FOUND, "There is no one.", "cpu", 507);
  const belay_status second = make_status(BELAY_OUT_OF_RANGE, "There is no two.", "cpu", 508);
  keep_last_error(first);
  keep_last_error(second);
  release_status(first);
  release_status(second);
  EXPECT_EQ(live_details(), details);  // what is kept takes no place of the table
  const belay_status last = take_last_error();
  EXPECT_EQ(BELAY_STATUS_CODE(last), BELAY_OUT_OF_RANGE);
  EXPECT_EQ(text_of(last), "There is no two.");
  EXPECT_EQ(status_detail(last)->plugin, "cpu");
  EXPECT_EQ(status_detail(last)->vendor_code, 508);
  release_status(last);
  EXPECT_EQ(take_last_error(), BELAY_OK);
}

TEST(LastErrorTest, ABareCodeReplacesTheSentenceBefore) {
  keep(BELAY_NOT_FOUND, "There is no one.");
  keep_last_error(BELAY_QUEUE_FULL);
  EXPECT_EQ(take_last_error(), BELAY_QUEUE_FULL);
}

TEST(LastErrorTest, AnswersAndSuccessesAreNotKept) {
  keep_last_error(BELAY_DEVICE_LOST);
  for (const belay_status answer : {BELAY_OK, BELAY_DEFERRED, BELAY_UNAVAILABLE, BELAY_NOT_FOUND})
    keep_last_error(answer);
  EXPECT_EQ(take_last_error(), BELAY_DEVICE_LOST);
  keep(BELAY_UNAVAILABLE, "The device is asleep.");
  const belay_status last = take_last_error();
  EXPECT_EQ(text_of(last), "The device is asleep.");
  release_status(last);
}

TEST(LastErrorTest, EachThreadHasItsOwn) {
  keep_last_error(BELAY_ABORTED);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      EXPECT_EQ(take_last_error(), BELAY_OK);
      for (int i = 0; i < 500; ++i) {
        const std::string said = "thread " + std::to_string(t) + ", " + std::to_string(i);
        keep(BELAY_INTERNAL, said);
        const belay_status last = take_last_error();
        EXPECT_EQ(text_of(last), said);
        release_status(last);
      }
      keep(BELAY_INTERNAL, "left behind");  // ends with its thread
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(take_last_error(), BELAY_ABORTED);
}

// A failure that is told while a thread ends, after its sentence has gone.
TEST(LastErrorTest, AThreadThatIsEndingKeepsTheCodeAlone) {
  struct Late {
    pthread_key_t key;
    int turns = 0;
    belay_status told = BELAY_OK;
  };
  Late late{};
  // The second turn of destructors comes when every other key of the thread has had its first.
  ASSERT_EQ(pthread_key_create(&late.key,
                               [](void* user) {
                                 Late& at = *static_cast<Late*>(user);
                                 if (++at.turns == 1) {
                                   pthread_setspecific(at.key, user);
                                   return;
                                 }
                                 keep(BELAY_CANCELLED, "too late");
                                 at.told = take_last_error();
                               }),
            0);
  std::thread([&] {
    pthread_setspecific(late.key, &late);
    keep(BELAY_ABORTED, "in time");
  }).join();
  pthread_key_delete(late.key);
  EXPECT_EQ(late.turns, 2);
  EXPECT_EQ(late.told, BELAY_CANCELLED);
}

}  // namespace
}  // namespace belay::core
