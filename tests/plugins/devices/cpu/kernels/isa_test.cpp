// The level of the instruction set that a configuration names.
#include "simd/isa.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belay::cpu {
namespace {

TEST(IsaTest, ALevelIsKeptForTheProcessAndOthersAreRefused) {
  const Status unknown = fix_isa("sse3");
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  const Isa best = isa();
  ASSERT_TRUE(fix_isa("auto").ok());
  EXPECT_EQ(isa(), best);
  EXPECT_TRUE(fix_isa("auto").ok());
  if (best == Isa::kSse2) GTEST_SKIP() << "this CPU has no other level";
  const Status other = fix_isa("sse2");
  EXPECT_EQ(other.code(), Code::kFailedPrecondition);
  EXPECT_THAT(other.message(), testing::HasSubstr("already"));
  EXPECT_EQ(isa(), best);
}

}  // namespace
}  // namespace belay::cpu
