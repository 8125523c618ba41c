#include "node_runner.hpp"

#include "convert.hpp"
#include "simd/simd.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kConvertTypes[] = {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16,
                                      BELAY_DT_INT8,    BELAY_DT_INT16,   BELAY_DT_INT32,   BELAY_DT_INT64,
                                      BELAY_DT_UINT8,   BELAY_DT_UINT16,  BELAY_DT_UINT32,  BELAY_DT_UINT64,
                                      BELAY_DT_BOOL};

TEST(CastTest, SmallNumbersGoBetweenAllPairsOfTypes) {
  for (const uint32_t from : kConvertTypes)
    for (const uint32_t to : kConvertTypes) {
      const bool logic = from == BELAY_DT_BOOL || to == BELAY_DT_BOOL;
      const Tensor x = tensor_of(
          from, {5}, logic ? std::vector<double>{0, 1, 1, 0, 1} : std::vector<double>{0, 1, 2, 100, 64});
      EXPECT_TRUE(
          close(result(Node("Cast").in(x).attr("to", int64_t{to}).out(to)), tensor_of(to, {5}, values_of(x))))
          << dtype_name(from) << " to " << dtype_name(to);
    }
}

TEST(CastTest, WhatIsOutOfRangeHasADefinedAnswer) {
  const Tensor x = floats({7}, {NAN, INFINITY, -INFINITY, 1e20f, -1e20f, -1.7f, 300.9f});
  const auto cast = [&](uint32_t to) { return result(Node("Cast").in(x).attr("to", int64_t{to}).out(to)); };
  EXPECT_TRUE(close(cast(BELAY_DT_INT32),
                    tensor<int32_t>({7}, {0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, -1, 300})));
  EXPECT_TRUE(
      close(cast(BELAY_DT_INT64), ints({7}, {0, INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, -1, 300})));
  EXPECT_TRUE(close(cast(BELAY_DT_UINT8), tensor<uint8_t>({7}, {0, 255, 0, 255, 0, 0, 255})));
  EXPECT_TRUE(close(cast(BELAY_DT_BOOL), tensor_of(BELAY_DT_BOOL, {7}, {1, 1, 1, 1, 1, 1, 1})));
  EXPECT_TRUE(close(result(Node("Cast")
                               .in(tensor<int32_t>({2}, {-1, 257}))
                               .attr("to", int(BELAY_DT_UINT8))
                               .out(BELAY_DT_UINT8)),
                    tensor<uint8_t>({2}, {255, 1})));
  EXPECT_THAT(failure(Node("Cast").in(x).attr("to", int(BELAY_DT_STRING)).out(BELAY_DT_STRING)),
              HasSubstr("no conversion from float32 to string"));
}

// Every half there is, and floats around every boundary between two of them.
TEST(HalfTest, ConversionsRoundToNearestEvenOnEveryLevel) {
  std::vector<Half> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = {uint16_t(i)};
  for (const Simd* level : {&kSimdSse2, &simd()}) {
    std::vector<float> wide(all.size());
    std::vector<Half> back(all.size());
    level->half_to_float(all.data(), wide.data(), int64_t(all.size()));
    level->float_to_half(wide.data(), back.data(), int64_t(all.size()));
    for (size_t i = 0; i < all.size(); ++i) {
      const int exponent = int(i >> 10 & 31), fraction = int(i & 1023);
      if (exponent == 31) {
        EXPECT_TRUE(fraction ? std::isnan(wide[i]) : std::isinf(wide[i])) << i;
      } else {
        const double exact =
            (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24)) *
            (i >> 15 ? -1 : 1);
        EXPECT_EQ(double(wide[i]), exact);
        EXPECT_EQ(back[i].bits, all[i].bits);
      }
    }
    for (uint16_t i = 0; i < 0x7bff; i = uint16_t(i + 7)) {
      const float a = to_float(Half{i}), b = to_float(Half{uint16_t(i + 1)}), middle = (a + b) / 2;
      const float tests[] = {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, INFINITY)};
      const uint16_t want[] = {i, uint16_t(i & 1 ? i + 1 : i), uint16_t(i + 1)};
      Half got[3];
      level->float_to_half(tests, got, 3);
      for (int k = 0; k < 3; ++k) EXPECT_EQ(got[k].bits, want[k]) << i << " " << k;
    }
    const float edges[] = {65519.996f, 65520.0f, 1e30f, -1e30f};
    Half got[4];
    level->float_to_half(edges, got, 4);
    EXPECT_EQ(got[0].bits, 0x7bff);
    EXPECT_EQ(got[1].bits, 0x7c00);
    EXPECT_EQ(got[3].bits, 0xfc00);
  }
}

TEST(SimdTest, LevelsAgreeWithEachOther) {
  std::vector<const Simd*> levels = {&kSimdSse2};
  if (std::string_view(simd().name) != "sse2") levels.push_back(&kSimdAvx2);
  if (std::string_view(simd().name) == "avx512") levels.push_back(&kSimdAvx512);
  std::vector<float> x, y;
  for (const double v : numbers(1027, -20, 20)) x.push_back(float(v));
  for (const double v : numbers(1027, 0.1, 3, 7)) y.push_back(float(v));
  const auto near = [](float a, float b) {
    return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 3e-6f * std::fabs(b) + 1e-6f;
  };
  for (size_t k = 1; k < levels.size(); ++k) {
    std::vector<float> a(x.size()), b(x.size());
    for (size_t op = 0; op < size_t(Unary::kCount); ++op) {
      levels[0]->unary[op](x.data(), a.data(), int64_t(x.size()), 0.5f, 0.25f);
      levels[k]->unary[op](x.data(), b.data(), int64_t(x.size()), 0.5f, 0.25f);
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_TRUE(near(b[i], a[i]))
            << levels[k]->name << " unary " << op << " of " << x[i] << ": " << b[i] << " and " << a[i];
    }
    for (size_t op = 0; op < size_t(Binary::kCount); ++op)
      for (int form = 0; form < 4; ++form) {
        levels[0]->binary[op](x.data(), form & 1, y.data(), form >> 1, a.data(), int64_t(x.size()));
        levels[k]->binary[op](x.data(), form & 1, y.data(), form >> 1, b.data(), int64_t(x.size()));
        EXPECT_EQ(a, b) << levels[k]->name << " binary " << op;
      }
    for (size_t op = 0; op < size_t(Fold::kCount); ++op)
      for (const int64_t n : {1, 15, 16, 17, 64, 65, 1027}) {
        const float p = levels[0]->fold[op](y.data(), n), q = levels[k]->fold[op](y.data(), n);
        EXPECT_TRUE(near(q, p)) << levels[k]->name << " fold " << op << " of " << n << ": " << q << " and "
                                << p;
      }
    const double p = levels[0]->sum_exp(x.data(), 1027, 3), q = levels[k]->sum_exp(x.data(), 1027, 3);
    EXPECT_NEAR(p, q, 1e-6 * p) << levels[k]->name;
  }
}

TEST(QuantizeTest, RoundsToEvenCutsAndTakesAnAxis) {
  const Tensor x = floats({8}, {0, 2, 3, 1000, -254, -1000, NAN, 5});
  EXPECT_TRUE(close(result(Node("QuantizeLinear")
                               .in(x)
                               .in(floats({}, {2}))
                               .in(tensor<uint8_t>({}, {128}))
                               .out(BELAY_DT_UINT8)),
                    tensor<uint8_t>({8}, {128, 129, 130, 255, 1, 0, 0, 130})));
  EXPECT_TRUE(close(result(Node("QuantizeLinear")
                               .in(floats({2, 2}, {1, 1, 6, 6}))
                               .in(floats({2}, {1, 4}))
                               .in(tensor<int8_t>({2}, {0, 10}))
                               .attr("axis", -1)
                               .out(BELAY_DT_INT8)),
                    tensor<int8_t>({2, 2}, {1, 10, 6, 12})));
  EXPECT_TRUE(close(result(Node("DequantizeLinear")
                               .in(tensor<int8_t>({3}, {-128, 0, 127}))
                               .in(floats({}, {0.5f}))
                               .in(tensor<int8_t>({}, {-1}))
                               .out(BELAY_DT_FLOAT32)),
                    floats({3}, {-63.5f, 0.5f, 64})));
  EXPECT_TRUE(close(result(Node("DequantizeLinear")
                               .in(tensor<int32_t>({2}, {INT32_MIN, 7}))
                               .in(floats({}, {1}))
                               .out(BELAY_DT_FLOAT32)),
                    floats({2}, {-2147483648.0f, 7})));
  EXPECT_THAT(failure(Node("QuantizeLinear")
                          .in(floats({2, 2}, {1, 1, 1, 1}))
                          .in(floats({3}, {1, 1, 1}))
                          .out(BELAY_DT_UINT8)),
              HasSubstr("scale has 3 elements, want the 2 of axis 1"));
  Outcome outcome = Node("DynamicQuantizeLinear")
                        .in(floats({0}, {}))
                        .out(BELAY_DT_UINT8)
                        .out(BELAY_DT_FLOAT32)
                        .out(BELAY_DT_UINT8)
                        .run();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
}

}  // namespace
}  // namespace belay::cpu::testing
