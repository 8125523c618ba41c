#include <belay/tensor_io.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace belay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

HostTensor floats(std::vector<int64_t> dims, std::vector<float> values) {
  return HostTensor::of<float>(BELAY_DT_FLOAT32, dims, values).value();
}
template <class T>
HostTensor one(uint32_t dtype, T value) {
  return HostTensor::of<T>(dtype, {}, std::span<const T>(&value, 1)).value();
}

TEST(CompareTest, NamesTheElementFurthestOutOfTolerance) {
  const HostTensor want = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(compare(floats({2, 2}, {1, 2.0001f, 3, 4}), want).equal);
  const Comparison found = compare(floats({2, 2}, {1, 2.1f, 3, 5}), want);
  EXPECT_FALSE(found.equal);
  EXPECT_EQ(found.differing, 2u);
  EXPECT_THAT(found.worst_at, ElementsAre(1, 1));
  EXPECT_EQ(found.worst_difference, 1.0);
  EXPECT_THAT(found.reason, AllOf(HasSubstr("2 of 4 elements"), HasSubstr("element [1,1] is 5, want 4"),
                                  HasSubstr("differs by 1")));
}

TEST(CompareTest, NanEqualsNanAndInfinityItself) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = HUGE_VALF;
  EXPECT_TRUE(compare(floats({3}, {nan, inf, -inf}), floats({3}, {nan, inf, -inf})).equal);
  EXPECT_FALSE(compare(floats({1}, {nan}), floats({1}, {1})).equal);
  EXPECT_FALSE(compare(floats({1}, {1}), floats({1}, {nan})).equal);
  EXPECT_FALSE(compare(floats({1}, {1e38f}), floats({1}, {inf})).equal);
  EXPECT_FALSE(compare(floats({1}, {-inf}), floats({1}, {inf})).equal);
}

TEST(CompareTest, AbsoluteToleranceGrowsWithTheLargestReference) {
  const Tolerance tolerance{0, 0, 1e-2};
  EXPECT_TRUE(compare(floats({2}, {0.5f, 100}), floats({2}, {0, 100}), tolerance).equal);
  EXPECT_FALSE(compare(floats({2}, {0.5f, 1}), floats({2}, {0, 1}), tolerance).equal);
}

TEST(CompareTest, LargeIntegersAreComparedExactly) {
  const int64_t big = int64_t{1} << 60;
  const Tolerance exact{0, 0, 0};
  EXPECT_FALSE(compare(one(BELAY_DT_INT64, big + 1), one(BELAY_DT_INT64, big), exact).equal);
  EXPECT_EQ(compare(one(BELAY_DT_INT64, INT64_MAX), one(BELAY_DT_INT64, INT64_MIN), exact).worst_difference,
            std::ldexp(1.0, 64));
}

TEST(CompareTest, TypesShapesAndCountsMustAgree) {
  EXPECT_THAT(compare(floats({1}, {1}), one(BELAY_DT_FLOAT64, 1.0)).reason,
              AllOf(HasSubstr("float32"), HasSubstr("float64")));
  EXPECT_THAT(compare(floats({2}, {1, 2}), floats({1, 2}, {1, 2})).reason,
              AllOf(HasSubstr("[2]"), HasSubstr("[1,2]")));
  HostDatum list, longer;
  list.kind = longer.kind = BELAY_TYPE_SEQUENCE;
  longer.items.push_back(floats({1}, {1}));
  EXPECT_THAT(compare(list, longer).reason, HasSubstr("0 items, want 1"));
  EXPECT_THAT(compare(list, longer.items[0]).reason, HasSubstr("sequence"));
  list.items.push_back(floats({1}, {2}));
  EXPECT_THAT(compare(list, longer).reason, HasSubstr("Item 0"));
}

TEST(CompareTest, StringsAndBoolsAreExact) {
  auto a = HostTensor::make(BELAY_DT_STRING, std::vector<int64_t>{2}).value(), b = a;
  a.strings = {"x", "y"};
  b.strings = {"x", "z"};
  EXPECT_THAT(compare(a, b).reason, AllOf(HasSubstr("\"y\""), HasSubstr("\"z\""), HasSubstr("[1]")));
  EXPECT_FALSE(compare(one<uint8_t>(BELAY_DT_BOOL, 1), one<uint8_t>(BELAY_DT_BOOL, 0), {0, 10, 0}).equal);
}

TEST(ElementTest, SmallTypesHaveTheirValues) {
  const auto value = [](uint32_t dtype, uint8_t bits) {
    return element_value(
        HostTensor::copy_of(dtype, std::vector<int64_t>{1}, std::as_bytes(std::span(&bits, 1))).value(), 0);
  };
  EXPECT_EQ(value(BELAY_DT_FLOAT8E4M3FN, 0x7e), 448);
  EXPECT_TRUE(std::isnan(value(BELAY_DT_FLOAT8E4M3FN, 0x7f)));
  EXPECT_EQ(value(BELAY_DT_FLOAT8E4M3FNUZ, 0x7f), 240);
  EXPECT_TRUE(std::isnan(value(BELAY_DT_FLOAT8E4M3FNUZ, 0x80)));
  EXPECT_EQ(value(BELAY_DT_FLOAT8E5M2, 0x7b), 57344);
  EXPECT_EQ(value(BELAY_DT_FLOAT8E5M2, 0xfc), -HUGE_VAL);
  EXPECT_EQ(value(BELAY_DT_FLOAT8E5M2FNUZ, 0x7f), 57344);
  EXPECT_EQ(value(BELAY_DT_FLOAT8E8M0, 128), 2);
  EXPECT_EQ(value(BELAY_DT_FLOAT4E2M1, 0x7), 6);
  EXPECT_EQ(value(BELAY_DT_FLOAT6E3M2, 0x1f), 28);
  EXPECT_EQ(value(BELAY_DT_FLOAT6E2M3, 0x1f), 7.5);
  EXPECT_EQ(value(BELAY_DT_INT4, 0x0f), -1);
  EXPECT_EQ(value(BELAY_DT_UINT4, 0x0f), 15);
  EXPECT_EQ(value(BELAY_DT_INT2, 0x02), -2);
  EXPECT_EQ(element_value(one<uint16_t>(BELAY_DT_FLOAT16, 0x0001), 0), std::ldexp(1.0, -24));
  EXPECT_EQ(element_value(one<uint16_t>(BELAY_DT_FLOAT16, 0x7bff), 0), 65504);
}

TEST(DatumTest, ViewAndCopyRoundTrip) {
  HostDatum map, list;
  map.kind = BELAY_TYPE_MAP;
  auto key = HostTensor::make(BELAY_DT_STRING, {}).value();
  key.strings[0] = "key";
  map.items = {key, floats({2}, {1, 2})};
  list.kind = BELAY_TYPE_SEQUENCE;
  list.items = {map, map};
  const DatumView view(list);
  EXPECT_EQ(copy_datum(*view.get()).value(), list);
}

TEST(DatumTest, StridesAreResolvedAndBounded) {
  std::vector<float> storage{1, 2, 3, 4, 5, 6};
  const int64_t dims[] = {3, 2}, strides[] = {1, 3};
  belay_tensor t{};
  t.hdr.struct_size = sizeof t;
  t.dtype = BELAY_DT_FLOAT32;
  t.rank = 2;
  t.dims = dims;
  t.strides = strides;
  t.data = storage.data();
  t.bytes = 24;
  EXPECT_THAT(copy_tensor(t).value().as<float>(), ElementsAre(1, 4, 2, 5, 3, 6));
  t.bytes = 20;
  EXPECT_EQ(copy_tensor(t).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace belay
