#include "core/base/status_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace belay::core {
namespace {

using ::testing::HasSubstr;

std::string text_of(belay_status status) {
  StringSink sink;
  status_text(status, sink.sink());
  return std::move(sink).str();
}

TEST(StatusTest, SeveralAssignmentsStandOnOneLine) {
  const auto sum = [](Result<int> a, Result<int> b) -> Result<int> {
    BELAY_ASSIGN(const int x, a); BELAY_ASSIGN(const int y, b);  // clang-format off
    return x + y;
  };
  EXPECT_EQ(*sum(1, 2), 3);
  EXPECT_EQ(sum(1, Status(Code::kNotFound, "b")).status().code(), Code::kNotFound);
}

TEST(StatusTableTest, ADetailLivesUntilItIsReleased) {
  const belay_status status = make_status(BELAY_NOT_FOUND, "No plugin 'x'.", "ant", -7);
  EXPECT_EQ(BELAY_STATUS_CODE(status), BELAY_NOT_FOUND);
  EXPECT_EQ(text_of(status), "No plugin 'x'.");
  EXPECT_EQ(status_detail(status)->plugin, "ant");
  EXPECT_EQ(status_detail(status)->vendor_code, -7);
  EXPECT_EQ(live_details(), 1u);
  release_status(status);
  release_status(status);  // harmless
  EXPECT_EQ(live_details(), 0u);
  EXPECT_EQ(text_of(status), "Not found");
  EXPECT_EQ(status_detail(status).status().code(), Code::kNotFound);
}

TEST(StatusTableTest, AHandleOfASlotThatIsUsedAgainIsStale) {
  std::vector<belay_status> old;
  for (int i = 0; i < 4096; ++i) old.push_back(make_status(BELAY_UNKNOWN, "old"));
  for (const belay_status status : old) release_status(status);
  const belay_status fresh = make_status(BELAY_UNKNOWN, "fresh");
  for (const belay_status status : old) {
    EXPECT_EQ(text_of(status), "Unknown error");
    release_status(status);
  }
  EXPECT_EQ(text_of(fresh), "fresh");
  release_status(fresh);
}

TEST(StatusTableTest, AFullTableGivesTheBareCode) {
  std::vector<belay_status> all;
  for (int i = 0; i < 4096; ++i) all.push_back(make_status(BELAY_ABORTED, "x"));
  EXPECT_EQ(make_status(BELAY_ABORTED, "one too many"), BELAY_ABORTED);
  for (const belay_status status : all) release_status(status);
  EXPECT_EQ(live_details(), 0u);
}

TEST(StatusTableTest, RubbishIsNoStatus) {
  for (const belay_status rubbish :
       {belay_status(22), belay_status(255), belay_status(0xff05), ~belay_status(0)}) {
    EXPECT_EQ(status_detail(rubbish).status().code(), Code::kInvalidArgument);
    release_status(rubbish);
    EXPECT_FALSE(text_of(rubbish).empty());
  }
  EXPECT_EQ(make_status(BELAY_OK, "x"), BELAY_OK);
  const belay_status unknown = make_status(99, "x");
  EXPECT_EQ(BELAY_STATUS_CODE(unknown), BELAY_INTERNAL);
  release_status(unknown);
}

TEST(StatusTableTest, LongMessagesAreCut) {
  const belay_status status = make_status(BELAY_UNKNOWN, std::string(100000, 'x'));
  EXPECT_EQ(text_of(status).size(), 16384u);
  release_status(status);
}

TEST(StatusTableTest, ManyThreadsMakeReadAndRelease) {
  const uint64_t before = live_details();
  std::vector<std::thread> threads;
  const belay_status shared = make_status(BELAY_UNAVAILABLE, "shared by all");
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const std::string text = std::to_string(t) + ":" + std::to_string(i);
        const belay_status status = make_status(BELAY_ABORTED, text);
        ASSERT_EQ(text_of(status), text);
        ASSERT_EQ(text_of(shared), "shared by all");
        release_status(status);
        release_status(status);
      }
    });
  for (auto& thread : threads) thread.join();
  release_status(shared);
  EXPECT_EQ(live_details(), before);
}

}  // namespace
}  // namespace belay::core
