#include <belay/graph/dtype.hpp>
#include <belay/tensor_io.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace belay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A file as NumPy writes it.
std::string npy(std::string_view header, std::string_view data, int major = 1) {
  std::string text(header);
  text.append((64 - (10 + text.size() + 1) % 64) % 64, ' ').append("\n");
  std::string out("\x93NUMPY");
  out += char(major);
  out += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) out += char(text.size() >> 8 * i);
  return out.append(text).append(data);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(NpyTest, EveryNumberTypeComesBackAsItWasWritten) {
  for (const DtypeInfo& info : kDtypes) {
    if (info.dtype == BELAY_DT_STRING) continue;
    const bool packed = info.bits < 8;
    const std::vector<int64_t> dims = packed ? std::vector<int64_t>{8} : std::vector<int64_t>{2, 3};
    auto made = HostTensor::make(info.dtype, dims);
    ASSERT_TRUE(made.ok());
    for (size_t i = 0; i < made->bytes.size(); ++i)
      made->bytes[i] = std::byte(info.dtype == BELAY_DT_BOOL ? i % 2 : i * 7);
    if (info.bits == 6) continue;  // 8 / 6 does not divide
    const auto read = parse_npy(to_npy(*made), info.dtype);
    ASSERT_TRUE(read.ok()) << info.name << ": " << read.status().message();
    EXPECT_EQ(*read, *made) << info.name;
  }
}

TEST(NpyTest, TwoBytesOfVoidAreBfloat16) {
  const auto read = parse_npy(
      npy("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", bytes_of<uint16_t>({0x3f80, 0xc000})));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->dtype, BELAY_DT_BFLOAT16);
  EXPECT_EQ(element_value(*read, 0), 1.0);
  EXPECT_EQ(element_value(*read, 1), -2.0);
}

TEST(NpyTest, FortranOrderIsTurned) {
  // [[1, 2, 3], [4, 5, 6]] stored by columns.
  const auto read = parse_npy(npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }",
                                  bytes_of<int32_t>({1, 4, 2, 5, 3, 6})));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->as<int32_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(NpyTest, BigEndianNumbersAreSwapped) {
  const auto read = parse_npy(npy("{'descr': '>u2', 'fortran_order': False, 'shape': (2,), }",
                                  std::string("\x01\x02\x03\x04", 4), 2));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->as<uint16_t>(), ElementsAre(0x0102, 0x0304));
}

TEST(NpyTest, StringsOfBothKindsAreRead) {
  const auto unicode = parse_npy(npy("{'descr': '<U2', 'fortran_order': False, 'shape': (2,), }",
                                     bytes_of<uint32_t>({'a', 0x4e2d, 'b', 0}), 3));
  ASSERT_TRUE(unicode.ok()) << unicode.status().message();
  EXPECT_THAT(unicode->strings, ElementsAre("a\xe4\xb8\xad", "b"));
  const auto bytes = parse_npy(
      npy("{'descr': '|S3', 'fortran_order': False, 'shape': (2, 1), }", std::string("ab\0cde", 6)));
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_THAT(bytes->strings, ElementsAre("ab", "cde"));
}

TEST(NpyTest, StringsComeBackAsTheyWereWritten) {
  auto made = HostTensor::make(BELAY_DT_STRING, std::vector<int64_t>{2, 2});
  made->strings = {"", "caf\xc3\xa9", "\xf0\x9f\x98\x80", "plain"};
  EXPECT_EQ(parse_npy(to_npy(*made)).value(), *made);
  made->strings[1] = "\xff\xfe";  // not UTF-8: written as bytes
  EXPECT_EQ(parse_npy(to_npy(*made)).value(), *made);
}

TEST(NpyTest, ScalarsAndEmptyTensorsWork) {
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{}, {0}, {3, 0, 2}}) {
    const auto made = HostTensor::make(BELAY_DT_FLOAT32, dims);
    EXPECT_EQ(parse_npy(to_npy(*made)).value(), *made);
  }
}

TEST(NpyTest, DamageIsReportedAndNeverRead) {
  const std::string good =
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", std::string(24, '\1'));
  ASSERT_TRUE(parse_npy(good).ok());
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(parse_npy(std::string_view(good).substr(0, length)).ok()) << length;
  for (size_t at = 0; at < good.size() - 24; ++at)
    for (const char c : {'\0', '\xff', '(', '\''}) {
      std::string bad = good;
      bad[at] = c;
      (void)parse_npy(bad);  // must not crash; many are harmless
    }
}

TEST(NpyTest, WrongSizesShowWhatWasFoundAndExpected) {
  const auto shorter =
      parse_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", std::string(20, 'x')));
  EXPECT_EQ(shorter.status().code(), Code::kDataLoss);
  EXPECT_THAT(shorter.status().message(),
              AllOf(HasSubstr("20 bytes"), HasSubstr("6 elements"), HasSubstr("[2,3]")));
  const auto huge =
      parse_npy(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", ""));
  EXPECT_EQ(huge.status().code(), Code::kDataLoss);
  const auto tall =
      parse_npy(npy("{'descr': '<U0', 'fortran_order': False, 'shape': (1099511627776,), }", ""));
  EXPECT_EQ(tall.status().code(), Code::kDataLoss);
}

TEST(NpyTest, PythonObjectsAndStructuresAreRefused) {
  EXPECT_EQ(parse_npy(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "x")).status().code(),
            Code::kUnimplemented);
  EXPECT_EQ(parse_npy(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd"))
                .status()
                .code(),
            Code::kUnimplemented);
  EXPECT_THAT(
      parse_npy(npy("{'descr': '<f16', 'fortran_order': False, 'shape': (1,), }", std::string(16, 'x')))
          .status()
          .message(),
      HasSubstr("<f16"));
}

TEST(RawTest, OpenDimTakesTheFilesSize) {
  const std::string path = testing::TempDir() + "belay_raw_test.bin";
  ASSERT_TRUE(write_file(path, std::string(24, '\0')).ok());
  const auto read = read_raw(path, BELAY_DT_FLOAT32, std::array<int64_t, 2>{-1, 3});
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->dims, ElementsAre(2, 3));
  const auto wrong = read_raw(path, BELAY_DT_FLOAT32, std::array<int64_t, 2>{2, 4});
  EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong.status().message(), AllOf(HasSubstr("24"), HasSubstr("32")));
  std::filesystem::remove(path);
  EXPECT_EQ(read_raw(path, BELAY_DT_FLOAT32, {}).status().code(), Code::kNotFound);
}

TEST(TextTest, TypesAndShapesAreParsed) {
  EXPECT_EQ(parse_dtype("float32"), BELAY_DT_FLOAT32);
  EXPECT_EQ(parse_dtype("bf16"), BELAY_DT_BFLOAT16);
  EXPECT_EQ(parse_dtype("quad"), std::nullopt);
  EXPECT_THAT(parse_dims("1x3x224").value(), ElementsAre(1, 3, 224));
  EXPECT_THAT(parse_dims("[2, 5]").value(), ElementsAre(2, 5));
  EXPECT_TRUE(parse_dims("").value().empty());
  EXPECT_THAT(parse_dims("2xq").status().message(), HasSubstr("'q'"));
  EXPECT_FALSE(parse_dims("2x").ok());
}

}  // namespace
}  // namespace belay
