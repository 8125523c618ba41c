#include "core/base/log.h"

#include "fakes/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

using belay::testing::TempDir;

TEST(LogTest, LinesGoToTheFileWithNameAndLevelAndControlCharactersAreEscaped) {
  TempDir dir;
  Log log;
  ASSERT_TRUE(log.configure({.level = Level::kWarning,
                             .file = dir / "x.log",
                             .levels = {{"plugin", Level::kError}, {"plugin.cpu", Level::kDebug}}})
                  .ok());
  log.warning("core", "one\nforged \x1b[31mred\x1b[0m \xff \xc2\x9b");
  log.info("core", "not written");
  log.warning("plugin.other", "not written either");
  log.debug("plugin.cpu", "two");
  log.debug("plugin.cpux", "three");
  log.flush();
  std::ifstream file(dir / "x.log");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, AllOf(HasSubstr(" warning core: one\\nforged \\x1b[31mred\\x1b[0m \xef\xbf\xbd \\x9b\n"),
                          HasSubstr(" debug plugin.cpu: two\n"), Not(HasSubstr("not written")),
                          Not(HasSubstr("three"))));
}

TEST(LogTest, ALineThatRepeatsIsWrittenFiveTimes) {
  Log log;
  int lines = 0;
  log.listen([&](Level, std::string_view, std::string_view) { ++lines; });
  for (int i = 0; i < 100; ++i) log.error("core", "the same");
  EXPECT_EQ(lines, 5);
  log.error("hal", "the same");
  EXPECT_EQ(lines, 6);
}

TEST(LogTest, AFileThatCannotBeOpenedIsAnErrorAndTheLogStaysAsItWas) {
  Log log;
  int lines = 0;
  log.listen([&](Level, std::string_view, std::string_view) { ++lines; });
  const Status status = log.configure({.level = Level::kOff, .file = "/proc/none/x.log"});
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("log.file '/proc/none/x.log' cannot be opened"));
  log.error("core", "still written");
  EXPECT_EQ(lines, 1);
}

TEST(LogTest, LevelsAreReadByNameAndTheNearestIsNamed) {
  for (uint32_t level = 0; level < level_names().size(); ++level)
    EXPECT_EQ(*parse_level(level_names()[level]), Level(level));
  EXPECT_THAT(parse_level("warnin").status().message(), HasSubstr("did you mean 'warning'?"));
}

TEST(LogTest, LongLinesAreCutAndUtf8IsKept) {
  bool replaced = true;
  EXPECT_EQ(printable("Grüße \xf0\x9f\x98\x80", &replaced), "Grüße \xf0\x9f\x98\x80");
  EXPECT_FALSE(replaced);
  EXPECT_EQ(printable("\xe2\x82", &replaced), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_TRUE(replaced);
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xed\xa0\x80\xc0\xaf"),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace belay::core
