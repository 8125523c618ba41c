// Parts of the program `belay` alone: text, suggestions, values made up and typed, what is made of a tensor.
#include "sdk/cli/fill.hpp"
#include "sdk/cli/inputs.hpp"
#include "sdk/cli/show.hpp"
#include "sdk/cli/text.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

namespace belay::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostTensor tensor(uint32_t dtype, std::vector<int64_t> dims) { return HostTensor::make(dtype, dims).value(); }

template <class T>
HostTensor tensor_of(uint32_t dtype, std::vector<int64_t> dims, std::vector<T> values) {
  return HostTensor::of<T>(dtype, dims, values).value();
}

TEST(CliTextTest, NearestForgivesTyposAndNothingElse) {
  const std::vector<std::string> verbs{"run", "bench", "inspect", "devices", "plugins"};
  EXPECT_EQ(nearest("rnu", verbs), "run");
  EXPECT_EQ(nearest("insp", verbs), "inspect");
  EXPECT_EQ(nearest("DEVICES", verbs), "devices");
  EXPECT_EQ(nearest("plugin", verbs), "plugins");
  EXPECT_EQ(nearest("xyz", verbs), "");
  EXPECT_EQ(nearest("", verbs), "");
  EXPECT_EQ(nearest(std::string(10'000, 'a'), verbs), "");
}

TEST(CliTextTest, UnitsFitTheSize) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(250 << 20), "250 MiB");
  EXPECT_EQ(time_text(37.2), "37.2 ns");
  EXPECT_EQ(time_text(1.5e9), "1.50 s");
  EXPECT_EQ(time_text(9e13), "90000 s");
}

TEST(CliTextTest, ForeignNamesAreMadeHarmless) {
  EXPECT_EQ(printable("caf\u00e9 \u4e2d"), "caf\u00e9 \u4e2d");
  EXPECT_EQ(printable("a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");  // a control character of two bytes
}

TEST(CliTextTest, TableAlignsCharactersNotBytes) {
  Table table(1, {1});
  table.row({"\u00e9", "7", "x"});
  table.row({"long", "10", ""});
  EXPECT_EQ(table.text(), " \u00e9      7  x\n long  10\n");
}

TEST(CliFillTest, HalfRoundsToNearestEven) {
  EXPECT_EQ(to_half(1.0f), 0x3c00);
  EXPECT_EQ(to_half(-2.5f), 0xc100);
  EXPECT_EQ(to_half(65504.0f), 0x7bff);
  EXPECT_EQ(to_half(65519.9f), 0x7bff);
  EXPECT_EQ(to_half(65520.0f), 0x7c00);
  EXPECT_EQ(to_half(0x1p-24f), 0x0001);
  EXPECT_EQ(to_half(0x1p-25f), 0x0000);         // half way, to the even one
  EXPECT_EQ(to_half(1.0f + 0x1p-11f), 0x3c00);  // the same
  EXPECT_EQ(to_half(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(to_half(std::numeric_limits<float>::quiet_NaN()) & 0x7e00, 0x7e00);
  EXPECT_EQ(to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0f + 3 * 0x1p-8f), 0x3f82);
}

TEST(CliFillTest, RandomValuesAreInRangeForEveryType) {
  for (uint32_t dtype = BELAY_DT_FLOAT32; dtype <= BELAY_DT_BFLOAT16; ++dtype) {
    HostTensor values = tensor(dtype, {100});
    fill_random(values, 1);
    if (dtype == BELAY_DT_STRING) {
      EXPECT_EQ(values.strings[0].size(), 1u);
      continue;
    }
    const bool byte = dtype == BELAY_DT_INT8 || dtype == BELAY_DT_UINT8;
    for (uint64_t i = 0; i < 100; ++i) EXPECT_LE(std::abs(element_value(values, i)), byte ? 255 : 1) << dtype;
  }
}

TEST(CliFillTest, TypedValuesMustFit) {
  HostTensor bytes = tensor(BELAY_DT_UINT8, {1}), halves = tensor(BELAY_DT_FLOAT16, {1}),
             flags = tensor(BELAY_DT_BOOL, {1});
  EXPECT_TRUE(set_element(bytes, 0, "255").ok());
  EXPECT_EQ(set_element(bytes, 0, "256").code(), Code::kInvalidArgument);
  EXPECT_EQ(set_element(bytes, 0, "1.5").code(), Code::kInvalidArgument);
  EXPECT_TRUE(set_element(halves, 0, "-0.5").ok());
  EXPECT_EQ(element_value(halves, 0), -0.5);
  EXPECT_TRUE(set_element(flags, 0, "true").ok());
  EXPECT_EQ(set_element(flags, 0, "2").code(), Code::kInvalidArgument);
}

TEST(CliShowTest, StatisticsLeaveOutWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinite = std::numeric_limits<float>::infinity();
  const Statistics s = statistics(tensor_of<float>(BELAY_DT_FLOAT32, {5}, {1, 3, nan, -infinite, 2}));
  EXPECT_EQ(s.nan, 1u);
  EXPECT_EQ(s.infinite, 1u);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 3);
  EXPECT_DOUBLE_EQ(s.mean, 2);
  EXPECT_NEAR(s.deviation, std::sqrt(2.0 / 3), 1e-12);
}

TEST(CliShowTest, ADeviationFarFromZeroIsExact) {
  const Statistics s =
      statistics(tensor_of<double>(BELAY_DT_FLOAT64, {4}, {1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16}));
  EXPECT_NEAR(s.deviation, std::sqrt(22.5), 1e-6);
}

TEST(CliShowTest, LargeTensorsAreSummed) {
  std::vector<int64_t> values(100);
  for (int64_t i = 0; i < 100; ++i) values[size_t(i)] = i;
  const std::string text = values_text(HostDatum(tensor_of<int64_t>(BELAY_DT_INT64, {10, 10}, values)));
  EXPECT_THAT(text, HasSubstr("largest  [9,9] 99  [9,8] 98"));
  EXPECT_THAT(text, HasSubstr("first  0  1  2"));
}

TEST(CliShowTest, JsonKeepsWhatNumbersCannotSay) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto floats = datum_json(HostDatum(tensor_of<float>(BELAY_DT_FLOAT32, {3}, {0.1f, nan, -INFINITY})));
  EXPECT_EQ(floats["values"].dump(), R"([0.1,"NaN","-Infinity"])");
  const auto ints = datum_json(HostDatum(tensor_of<uint64_t>(BELAY_DT_UINT64, {1}, {UINT64_MAX})));
  EXPECT_EQ(ints["values"].dump(), "[18446744073709551615]");
}

TEST(CliInputsTest, FilesOfATestCaseGoToTheInputsThatNeedThem) {
  std::vector<IoInfo> inputs(3);
  inputs[0].optional = true;
  EXPECT_THAT(inputs_for_files(inputs, 2), ElementsAre(1, 2));
  EXPECT_THAT(inputs_for_files(inputs, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(inputs_for_files(inputs, 1), ElementsAre(0));
}

}  // namespace
}  // namespace belay::cli
