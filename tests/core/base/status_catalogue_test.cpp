#include "core/base/status_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belay::core {
namespace {

using ::testing::HasSubstr;

TEST(StatusCatalogueTest, EveryCodeHasTitleCauseAndRemedy) {
  for (uint32_t code = 0; code < BELAY_CODE_COUNT; ++code) {
    const auto info = describe_code(code);
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->code, code) << info->name;
    EXPECT_FALSE(info->title.empty() || info->cause.empty() || info->remedy.empty()) << info->name;
    EXPECT_EQ(find_code(info->name)->code, code);
    EXPECT_EQ(find_code(std::to_string(code))->code, code);
  }
  EXPECT_EQ(describe_code(22).status().code(), Code::kOutOfRange);
}

TEST(StatusCatalogueTest, ACodeIsFoundByAnyWritingAndTheNearestIsNamed) {
  EXPECT_EQ(find_code("belay_device_lost")->code, BELAY_DEVICE_LOST);
  EXPECT_EQ(find_code("not-found")->code, BELAY_NOT_FOUND);
  EXPECT_THAT(find_code("NOT_FUOND").status().message(), HasSubstr("did you mean 'NOT_FOUND'?"));
}

}  // namespace
}  // namespace belay::core
