#include "core/config/units.h"

#include <gtest/gtest.h>

namespace belay::core {
namespace {

TEST(UnitsTest, UnitsAreReadAndPrinted) {
  EXPECT_EQ(*parse_size("0"), 0);
  EXPECT_EQ(*parse_size("1.5 KiB"), 1536);
  EXPECT_EQ(*parse_size("2MB"), 2000000);
  EXPECT_EQ(*parse_duration("1h"), 3600000000000);
  EXPECT_EQ(*parse_duration("0.5us"), 500);
  for (const char* wrong : {"", "KiB", "1", "1kib", "-1B", "nan", "inf", "1e3B", "9999999TiB", "1 B x"})
    EXPECT_FALSE(parse_size(wrong).ok()) << wrong;
  EXPECT_EQ(*parse_size("9007199254740993B"), 9007199254740993);  // which no double is
  EXPECT_EQ(*parse_size("9223372036854775807B"), 9223372036854775807);
  for (const char* large : {"9223372036854775808B", "8388608TiB", "8388608.0TiB", "99999999999999999999"})
    EXPECT_EQ(parse_size(large).status().code(), Code::kOutOfRange) << large;
  EXPECT_EQ(print_size(64 << 20), "64MiB");
  EXPECT_EQ(print_size(1000), "1000B");
  EXPECT_EQ(print_size(0), "0B");
  EXPECT_EQ(print_duration(1500000), "1500us");
}

}  // namespace
}  // namespace belay::core
