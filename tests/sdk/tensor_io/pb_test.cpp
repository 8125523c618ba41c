#include <belay/graph/dtype.hpp>
#include <belay/tensor_io.hpp>
#include <belay/tensor_io/onnx_tensor.hpp>
#include <belay/tensor_io/wire.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace belay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using wire::put_bytes;
using wire::put_number;

std::string tensor(uint32_t dtype, std::vector<int64_t> dims) {
  std::string out;
  for (const int64_t dim : dims) put_number(out, 1, uint64_t(dim));
  put_number(out, 2, dtype);
  put_bytes(out, 8, "t");
  return out;
}
std::string packed(std::vector<int64_t> values) {
  std::string out;
  for (const int64_t value : values) wire::put_varint(out, uint64_t(value));
  return out;
}

TEST(PbTest, EveryTypeComesBackAsItWasWritten) {
  for (const DtypeInfo& info : kDtypes) {
    if (info.dtype >= BELAY_DT_COMPLEX32) continue;  // ONNX has no number for these
    auto made = HostTensor::make(info.dtype, std::vector<int64_t>{3, 5}).value();
    for (size_t i = 0; i < made.bytes.size(); ++i) made.bytes[i] = std::byte(i * 37);
    for (size_t i = 0; i < made.strings.size(); ++i) made.strings[i] = std::string(i, 'x');
    const auto read = parse_pb(to_pb(made, "name"));
    ASSERT_TRUE(read.ok()) << info.name << ": " << read.status().message();
    EXPECT_EQ(read->tensor, made) << info.name;
  }
}

TEST(PbTest, TypedDataOfEachFieldIsRead) {
  std::string halves = tensor(BELAY_DT_FLOAT16, {2});
  put_bytes(halves, 5, packed({0x3c00, 0xc000}));
  EXPECT_EQ(element_value(parse_pb(halves)->tensor, 1), -2.0);

  std::string negative = tensor(BELAY_DT_INT8, {2});
  put_number(negative, 5, uint64_t(int64_t{-5}));  // not packed
  put_number(negative, 5, 7);
  EXPECT_THAT(parse_pb(negative)->tensor.as<int8_t>(), ElementsAre(-5, 7));

  std::string words = tensor(BELAY_DT_UINT32, {1});
  put_bytes(words, 11, packed({0xffffffff}));
  EXPECT_THAT(parse_pb(words)->tensor.as<uint32_t>(), ElementsAre(0xffffffffu));

  std::string nibbles = tensor(BELAY_DT_UINT4, {3});  // two in each value
  put_bytes(nibbles, 5, packed({0x21, 0x03}));
  EXPECT_EQ(element_value(parse_pb(nibbles)->tensor, 1), 2);
  EXPECT_EQ(element_value(parse_pb(nibbles)->tensor, 2), 3);

  std::string complex = tensor(BELAY_DT_COMPLEX64, {1});
  const float pair[] = {1, -1};
  put_bytes(complex, 4, {reinterpret_cast<const char*>(pair), sizeof pair});
  EXPECT_EQ(element_text(parse_pb(complex)->tensor, 0), "(1,-1)");
}

TEST(PbTest, CountAndDataMustAgreeForEachType) {
  for (const DtypeInfo& info : kDtypes) {
    if (info.dtype >= BELAY_DT_COMPLEX32 || info.dtype == BELAY_DT_STRING) continue;
    std::string empty = tensor(info.dtype, {128});
    EXPECT_EQ(parse_pb(empty).status().code(), Code::kInvalidArgument) << info.name;
    for (const int change : {-1, 1}) {
      std::string raw = tensor(info.dtype, {128});
      put_bytes(raw, 9, std::string(size_t(int64_t(*dtype_bytes(info.dtype, 128)) + change), '\0'));
      const auto status = parse_pb(raw).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << info.name;
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("'t'"), HasSubstr(std::to_string(*dtype_bytes(info.dtype, 128)))));
    }
  }
  std::string scalar = tensor(BELAY_DT_INT64, {});
  put_bytes(scalar, 7, packed({1, 2}));
  EXPECT_THAT(parse_pb(scalar).status().message(), HasSubstr("has 2 values, want 1"));
}

TEST(PbTest, BadShapesAndTypesAreNamed) {
  const auto message = [](std::string file) { return parse_pb(file).status().message(); };
  EXPECT_THAT(message(tensor(BELAY_DT_FLOAT32, {2, -1})), HasSubstr("dims[1] = -1, want 0 or more"));
  EXPECT_THAT(message(tensor(BELAY_DT_FLOAT32, {int64_t{1} << 32, int64_t{1} << 32})), HasSubstr("64 bits"));
  EXPECT_THAT(message(tensor(BELAY_DT_FLOAT32, {int64_t{1} << 62, 4, 0})), HasSubstr("64 bits"));
  EXPECT_THAT(message(tensor(BELAY_DT_FLOAT64, {int64_t{1} << 61})), HasSubstr("bytes"));
  for (const uint32_t dtype : {0u, 27u, 64u, 999u, 0xffffffffu})
    EXPECT_THAT(message(tensor(dtype, {1})), HasSubstr("data type")) << dtype;
  EXPECT_THAT(message(tensor(BELAY_DT_FLOAT32, std::vector<int64_t>(33, 1))), HasSubstr("32 dims"));
}

TEST(PbTest, ValuesThatDoNotFitTheTypeAreNamed) {
  std::string wide = tensor(BELAY_DT_UINT8, {1});
  put_number(wide, 5, 300);
  EXPECT_THAT(parse_pb(wide).status().message(), HasSubstr("300"));
  std::string both = tensor(BELAY_DT_INT64, {1});
  put_number(both, 7, 1);
  put_bytes(both, 9, "12345678");
  EXPECT_THAT(parse_pb(both).status().message(), HasSubstr("more than one"));
  std::string other = tensor(BELAY_DT_INT64, {1});
  put_number(other, 5, 1);
  EXPECT_THAT(parse_pb(other).status().message(), HasSubstr("field of another type"));
}

TEST(PbTest, SequencesOptionalsAndMapsComeBack) {
  HostDatum sequence, optional, map;
  sequence.kind = BELAY_TYPE_SEQUENCE;
  sequence.items = {HostTensor::make(BELAY_DT_FLOAT32, std::vector<int64_t>{2}).value(),
                    HostTensor::make(BELAY_DT_INT8, {}).value()};
  optional.kind = BELAY_TYPE_OPTIONAL;
  EXPECT_EQ(parse_pb(to_pb(optional), BELAY_TYPE_OPTIONAL).value(), optional);
  optional.items = {sequence};
  map.kind = BELAY_TYPE_MAP;
  const int64_t key = int64_t{1} << 62;
  map.items = {HostTensor::of<int64_t>(BELAY_DT_INT64, {}, std::span(&key, 1)).value(), optional};
  EXPECT_EQ(parse_pb(to_pb(sequence), BELAY_TYPE_SEQUENCE).value(), sequence);
  EXPECT_EQ(parse_pb(to_pb(optional), BELAY_TYPE_OPTIONAL).value(), optional);
  EXPECT_EQ(parse_pb(to_pb(map), BELAY_TYPE_MAP).value(), map);
}

TEST(PbTest, AnEmptyMapComesBack) {
  HostDatum map;
  map.kind = BELAY_TYPE_MAP;
  EXPECT_EQ(parse_pb(to_pb(map), BELAY_TYPE_MAP).value(), map);
}

TEST(PbTest, NestingIsBounded) {
  HostDatum deep;
  deep.kind = BELAY_TYPE_SEQUENCE;
  for (int i = 0; i < 40; ++i) {
    HostDatum outer;
    outer.kind = BELAY_TYPE_SEQUENCE;
    outer.items.push_back(std::move(deep));
    deep = std::move(outer);
  }
  EXPECT_THAT(parse_pb(to_pb(deep), BELAY_TYPE_SEQUENCE).status().message(), HasSubstr("32 deep"));
}

TEST(PbTest, ExternalDataIsRefused) {
  std::string file = tensor(BELAY_DT_FLOAT32, {1}), entry;
  put_bytes(entry, 1, "location");
  put_bytes(entry, 2, "/etc/passwd");
  put_bytes(file, 13, entry);
  put_number(file, 14, 1);
  EXPECT_EQ(parse_pb(file).status().code(), Code::kInvalidArgument);
}

TEST(WireTest, LengthsOf64BitsAreNotCut) {
  std::string file = tensor(BELAY_DT_UINT8, {4});
  wire::put_varint(file, 9 << 3 | 2);
  wire::put_varint(file, (uint64_t{1} << 32) + 4);  // cut to 32 bits this would be the right length
  file += "abcd";
  const auto status = parse_pb(file).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("4294967300"), HasSubstr("4 bytes left")));
}

TEST(WireTest, EveryTruncationIsAnErrorOrAShorterTensor) {
  const std::string file =
      to_pb(HostTensor::make(BELAY_DT_FLOAT32, std::vector<int64_t>{2, 3}).value(), "name");
  for (size_t length = 0; length < file.size(); ++length)
    EXPECT_FALSE(parse_pb(std::string_view(file).substr(0, length)).ok()) << length;
}

TEST(WireTest, TagsAndTypesAreChecked) {
  for (const std::string& bad : {std::string("\x03"), std::string("\x00", 1),
                                 std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
                                 std::string("\x80"), std::string("\x0d\x01"), std::string("\x4a\x05")})
    EXPECT_EQ(parse_pb(bad).status().code(), Code::kDataLoss);
}

TEST(PrintableTest, OnlyCleanUtf8PassesThrough) {
  EXPECT_EQ(wire::printable("caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80"),
            "caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80");
  EXPECT_EQ(wire::printable("a\x1b[31m\n"), "a\\x1b[31m\\x0a");
  EXPECT_EQ(wire::printable("\xff\xc0\x80\xed\xa0\x80"), "\\xff\\xc0\\x80\\xed\\xa0\\x80");
  EXPECT_LT(wire::printable(std::string(100000, 'x')).size(), 200u);
}

// Files that a real writer made.
TEST(PbTest, DebianTestDataIsRead) {
  const std::filesystem::path root = "/usr/share/libonnx-testdata/data/node";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "libonnx-testdata is not installed";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".pb") continue;
    bool read = false;
    for (const uint32_t kind : {BELAY_TYPE_TENSOR, BELAY_TYPE_SEQUENCE, BELAY_TYPE_OPTIONAL})
      read = read || read_pb(entry.path(), kind).ok();
    EXPECT_TRUE(read) << entry.path() << ": " << read_pb(entry.path()).status().message();
    ++files;
  }
  EXPECT_GT(files, 2000);
}

}  // namespace
}  // namespace belay
