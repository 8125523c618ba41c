#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kIntTypes[] = {BELAY_DT_INT8,  BELAY_DT_INT16,  BELAY_DT_INT32,  BELAY_DT_INT64,
                                  BELAY_DT_UINT8, BELAY_DT_UINT16, BELAY_DT_UINT32, BELAY_DT_UINT64};

double unit_of(uint32_t dtype) {  // relative tolerance that rounding of the result alone needs, with room for
                                  // two more ulp
  return dtype == BELAY_DT_FLOAT64   ? 1e-13
         : dtype == BELAY_DT_FLOAT32 ? 5e-7
         : dtype == BELAY_DT_FLOAT16 ? 1e-3
                                     : 8e-3;
}

struct UnaryCase {
  const char* op;
  double low, high;
  double (*exact)(double);
  double atol = 0;
};
const UnaryCase kUnaryCases[] = {
    {"Abs", -9, 9, [](double x) { return std::fabs(x); }},
    {"Neg", -9, 9, [](double x) { return -x; }},
    {"Ceil", -9, 9, [](double x) { return std::ceil(x); }},
    {"Floor", -9, 9, [](double x) { return std::floor(x); }},
    {"Round", -9, 9, [](double x) { return std::nearbyint(x); }},
    {"Sign", -9, 9, [](double x) { return double((x > 0) - (x < 0)); }},
    {"Sqrt", 0, 90, [](double x) { return std::sqrt(x); }},
    {"Reciprocal", 0.1, 9, [](double x) { return 1 / x; }},
    {"Exp", -9, 9, [](double x) { return std::exp(x); }},
    {"Log", 0.001, 90, [](double x) { return std::log(x); }, 1e-7},
    {"Sin", -9, 9, [](double x) { return std::sin(x); }, 1e-7},
    {"Cos", -9, 9, [](double x) { return std::cos(x); }, 1e-7},
    {"Tan", -1, 1, [](double x) { return std::tan(x); }},
    {"Asin", -1, 1, [](double x) { return std::asin(x); }},
    {"Acos", -1, 0.9, [](double x) { return std::acos(x); }},
    {"Atan", -9, 9, [](double x) { return std::atan(x); }},
    {"Sinh", -5, 5, [](double x) { return std::sinh(x); }},
    {"Cosh", -5, 5, [](double x) { return std::cosh(x); }},
    {"Tanh", -9, 9, [](double x) { return std::tanh(x); }},
    {"Asinh", -9, 9, [](double x) { return std::asinh(x); }},
    {"Acosh", 1.1, 9, [](double x) { return std::acosh(x); }},
    {"Atanh", -0.9, 0.9, [](double x) { return std::atanh(x); }},
    {"Erf", -4, 4, [](double x) { return std::erf(x); }},
    {"Sigmoid", -20, 20, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"HardSigmoid", -9, 9, [](double x) { return std::fmin(1, std::fmax(0, double(0.2f) * x + 0.5)); }, 1e-7},
    {"HardSwish", -9, 9, [](double x) { return x * std::fmin(1, std::fmax(0, x / 6 + 0.5)); }, 1e-6},
    {"Relu", -9, 9, [](double x) { return x < 0 ? 0 : x; }},
    {"LeakyRelu", -9, 9, [](double x) { return x < 0 ? double(0.01f) * x : x; }},
    {"Elu", -9, 9, [](double x) { return x < 0 ? std::expm1(x) : x; }},
    {"Selu", -9, 9,
     [](double x) {
       return 1.05070102214813232421875 * (x > 0 ? x : 1.67326319217681884765625 * std::expm1(x));
     }},
    {"Celu", -9, 9, [](double x) { return x < 0 ? std::expm1(x) : x; }},
    {"ThresholdedRelu", -9, 9, [](double x) { return x > 1 ? x : 0; }},
    {"Softplus", -20, 20, [](double x) { return std::log1p(std::exp(x)); }, 1e-8},
    {"Softsign", -9, 9, [](double x) { return x / (1 + std::fabs(x)); }},
    {"Shrink", -2, 2, [](double x) { return x < -0.5  ? x
                                            : x > 0.5 ? x
                                                      : 0; }},
    {"Gelu", -6, 6, [](double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); }, 3e-7},
    {"Mish", -9, 9, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, 1e-7},
};

TEST(UnaryTest, EachFunctionMatchesTheExactOneInEachFloatTypeAndShape) {
  for (const UnaryCase& at : kUnaryCases)
    for (const uint32_t dtype : kFloatTypes)
      for (const std::vector<int64_t>& dims :
           {std::vector<int64_t>{}, {0}, {1}, {7}, {2, 0, 3}, {3, 5, 67}}) {
        const int64_t count = Tensor{dtype, dims, {}}.count();
        const Tensor x = tensor_of(dtype, dims, numbers(count, at.low, at.high, uint32_t(count) + 1));
        std::vector<double> expected;
        for (const double v : values_of(x)) expected.push_back(at.exact(v));
        EXPECT_TRUE(close(result(Node(at.op, 20).in(x)), tensor_of(dtype, dims, expected), unit_of(dtype),
                          dtype == BELAY_DT_FLOAT32   ? at.atol
                          : dtype == BELAY_DT_FLOAT64 ? 1e-14
                                                      : at.atol * 1e4))
            << at.op << " " << dtype_name(dtype) << " " << text_of(dims);
      }
}

TEST(UnaryTest, VectorFunctionsHoldOverAllBinadesAndAtTheEnds) {
  std::vector<float> x = {0.0f,  -0.0f,  kInf,    -kInf,   kNan, 1e-45f, -1e-45f, 3e38f, -3e38f, 88.7f,
                          88.8f, -87.4f, -103.9f, -104.5f, 0.5f, 1.5f,   2.5f,    -0.5f, -2.5f,  8388609.0f};
  for (int e = -149; e < 128; ++e)
    for (const double m : {1.0, 1.25, 1.4142135, 1.7, 1.999}) {
      x.push_back(float(std::ldexp(m, e)));
      x.push_back(-x.back());
    }
  for (const char* op : {"Exp", "Log", "Tanh", "Sigmoid", "Erf", "Softplus", "Elu", "Mish", "Ceil", "Floor",
                         "Round", "Abs", "Relu", "Sqrt", "Sign"}) {
    const UnaryCase* at = kUnaryCases;
    while (std::string_view(at->op) != op) ++at;
    const Tensor y = result(Node(op).in(floats({int64_t(x.size())}, x)));
    const std::vector<double> actual = values_of(y);
    for (size_t i = 0; i < x.size(); ++i) {
      double exact = at->exact(double(x[i]));
      if (std::string_view(op) == "Softplus" && x[i] > 100) exact = double(x[i]);
      if (std::string_view(op) == "Sign" && std::isnan(x[i])) exact = kNan;
      if (std::string_view(op) == "Mish" && x[i] == -kInf) continue;  // -inf * 0
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(actual[i])) << op << " of " << x[i] << " is " << actual[i];
      } else {
        const float rounded = float(exact);
        EXPECT_TRUE(actual[i] == double(rounded) ||
                    std::fabs(actual[i] - exact) <=
                        4e-7 * std::fabs(exact) + (std::string_view(op) == "Log" ? 5e-8 : 2e-38))
            << op << " of " << x[i] << " is " << actual[i] << ", want " << exact;
      }
    }
  }
}

TEST(UnaryTest, IntegersWrapAndKeepTheirType) {
  EXPECT_TRUE(
      close(result(Node("Abs").in(tensor<int8_t>({3}, {-128, -5, 7}))), tensor<int8_t>({3}, {-128, 5, 7})));
  EXPECT_TRUE(close(result(Node("Neg").in(tensor<int64_t>({2}, {INT64_MIN, 3}))),
                    tensor<int64_t>({2}, {INT64_MIN, -3})));
  EXPECT_TRUE(close(result(Node("Sign").in(tensor<uint16_t>({2}, {0, 9}))), tensor<uint16_t>({2}, {0, 1})));
  EXPECT_TRUE(
      close(result(Node("Relu").in(tensor<int32_t>({3}, {-4, 0, 4}))), tensor<int32_t>({3}, {0, 0, 4})));
}

TEST(UnaryTest, ClipTakesBoundsAsInputsEitherOfWhichMayBeAbsent) {
  for (const uint32_t dtype : kFloatTypes) {
    const Tensor x = tensor_of(dtype, {2, 2}, {-3, -1, 1, 3}), low = tensor_of(dtype, {}, {-2}),
                 high = tensor_of(dtype, {}, {2});
    EXPECT_TRUE(close(result(Node("Clip").in(x).in(low).in(high)), tensor_of(dtype, {2, 2}, {-2, -1, 1, 2})));
    EXPECT_TRUE(
        close(result(Node("Clip").in(x).absent().in(high)), tensor_of(dtype, {2, 2}, {-3, -1, 1, 2})));
    EXPECT_TRUE(close(result(Node("Clip").in(x)), x));
  }
  for (const uint32_t dtype : kIntTypes)
    EXPECT_TRUE(close(result(Node("Clip")
                                 .in(tensor_of(dtype, {4}, {1, 2, 3, 4}))
                                 .in(tensor_of(dtype, {}, {2}))
                                 .in(tensor_of(dtype, {}, {3}))),
                      tensor_of(dtype, {4}, {2, 2, 3, 3})));
  EXPECT_THAT(failure(Node("Clip").in(floats({2}, {1, 2})).in(floats({2}, {0, 0}))),
              HasSubstr("min has the shape [2], want a scalar"));
}

TEST(UnaryTest, TestsGiveBool) {
  const Tensor x = floats({4}, {kNan, kInf, -kInf, 1});
  EXPECT_TRUE(
      close(result(Node("IsNaN").in(x).out(BELAY_DT_BOOL)), tensor_of(BELAY_DT_BOOL, {4}, {1, 0, 0, 0})));
  EXPECT_TRUE(close(result(Node("IsInf").in(x).out(BELAY_DT_BOOL).attr("detect_negative", 0)),
                    tensor_of(BELAY_DT_BOOL, {4}, {0, 1, 0, 0})));
  EXPECT_TRUE(close(result(Node("Not").in(tensor_of(BELAY_DT_BOOL, {2}, {1, 0}))),
                    tensor_of(BELAY_DT_BOOL, {2}, {0, 1})));
}

TEST(ClaimTest, RefusalNamesOperatorVersionInputAndTypes) {
  EXPECT_EQ(failure(Node("Sin", 7).in(ints({1}, {1}))),
            "Operator Sin version 7: input 0 is of type int64, want float32, float16, float64, bfloat16.");
  EXPECT_EQ(failure(Node("NoSuchOp", 3, "com.microsoft").in(ints({1}, {1}))),
            "Operator com.microsoft.NoSuchOp version 3: there is no kernel for it.");
  EXPECT_EQ(failure(Node("Add", 14).in(ints({1}, {1}))),
            "Operator Add version 14: it has 1 inputs, want 2 to 2.");
}

// ---- two operands
// ----------------------------------------------------------------------------------------------------

// The plain rule: index by index.
template <class F>
Tensor broadcast_reference(uint32_t out_dtype, const Tensor& a, const Tensor& b, F f) {
  const size_t rank = std::max(a.dims.size(), b.dims.size());
  const auto dim = [&](const Tensor& t, size_t d) {
    return d + t.dims.size() < rank ? int64_t{1} : t.dims[d + t.dims.size() - rank];
  };
  std::vector<int64_t> dims(rank);
  int64_t count = 1;
  for (size_t d = 0; d < rank; ++d) count *= dims[d] = dim(a, d) == 1 ? dim(b, d) : dim(a, d);
  const std::vector<double> av = values_of(a), bv = values_of(b);
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, ai = 0, bi = 0, as = 1, bs = 1;
    for (size_t d = rank; d-- > 0;) {
      const int64_t at = rest % dims[d];
      rest /= dims[d];
      if (dim(a, d) != 1) ai += at * as;
      if (dim(b, d) != 1) bi += at * bs;
      as *= dim(a, d);
      bs *= dim(b, d);
    }
    out.push_back(f(av[size_t(ai)], bv[size_t(bi)]));
  }
  return tensor_of(out_dtype, dims, out);
}

const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> kShapePairs = {
    {{}, {}},
    {{5}, {}},
    {{}, {5}},
    {{1}, {1, 1}},
    {{3, 4}, {4}},
    {{3, 4}, {3, 1}},
    {{3, 1}, {1, 4}},
    {{2, 3, 40}, {40}},
    {{2, 3, 40}, {3, 1}},
    {{2, 1, 4, 1}, {3, 1, 5}},
    {{0, 3}, {3}},
    {{0}, {1}},
    {{2, 0, 3}, {1, 0, 1}},
    {{7, 130}, {7, 130}},
    {{2, 3, 2, 2}, {1, 3, 1, 1}},
    {{9, 700}, {9, 1}},
    {{1, 700}, {9, 1}},
    {{600, 3}, {3}}};

TEST(BinaryTest, ArithmeticBroadcastsInEveryType) {
  const struct {
    const char* op;
    double (*exact)(double, double);
  } cases[] = {{"Add", [](double a, double b) { return a + b; }},
               {"Sub", [](double a, double b) { return a - b; }},
               {"Mul", [](double a, double b) { return a * b; }},
               {"Div", [](double a, double b) { return a / b; }}};
  for (const auto& at : cases)
    for (const auto& [a_dims, b_dims] : kShapePairs) {
      for (const uint32_t dtype : kFloatTypes) {
        const Tensor a = tensor_of(dtype, a_dims, numbers(Tensor{dtype, a_dims, {}}.count(), 1, 9, 1));
        const Tensor b = tensor_of(dtype, b_dims, numbers(Tensor{dtype, b_dims, {}}.count(), 1, 9, 2));
        EXPECT_TRUE(close(result(Node(at.op).in(a).in(b)), broadcast_reference(dtype, a, b, at.exact),
                          unit_of(dtype), unit_of(dtype)))
            << at.op << dtype_name(dtype) << text_of(a_dims) << text_of(b_dims);
      }
      for (const uint32_t dtype : kIntTypes) {
        const Tensor a = tensor_of(dtype, a_dims, numbers(Tensor{dtype, a_dims, {}}.count(), 9, 12, 1));
        const Tensor b = tensor_of(dtype, b_dims, numbers(Tensor{dtype, b_dims, {}}.count(), 1, 9, 2));
        EXPECT_TRUE(close(
            result(Node(at.op).in(a).in(b)),
            broadcast_reference(dtype, a, b, [&](double p, double q) { return std::trunc(at.exact(p, q)); })))
            << at.op << dtype_name(dtype) << text_of(a_dims) << text_of(b_dims);
      }
    }
}

TEST(BinaryTest, IntegerDivisionByZeroNamesTheElement) {
  EXPECT_EQ(failure(Node("Div").in(tensor<int32_t>({2, 2}, {1, 2, 3, 4})).in(tensor<int32_t>({2}, {1, 0}))),
            "Div: element 1 of the result, of shape [2,2], is a division by zero.");
  EXPECT_THAT(failure(Node("Mod").in(tensor<uint8_t>({}, {1})).in(tensor<uint8_t>({}, {0}))),
              HasSubstr("division by zero"));
}

TEST(BinaryTest, SmallestIntegerDividedByMinusOneWrapsAround) {
  EXPECT_TRUE(close(result(Node("Div").in(tensor<int32_t>({1}, {INT32_MIN})).in(tensor<int32_t>({1}, {-1}))),
                    tensor<int32_t>({1}, {INT32_MIN})));
  EXPECT_TRUE(close(result(Node("Div").in(tensor<int64_t>({1}, {INT64_MIN})).in(tensor<int64_t>({1}, {-1}))),
                    tensor<int64_t>({1}, {INT64_MIN})));
  EXPECT_TRUE(close(result(Node("Mod").in(tensor<int64_t>({1}, {INT64_MIN})).in(tensor<int64_t>({1}, {-1}))),
                    tensor<int64_t>({1}, {0})));
  EXPECT_TRUE(close(result(Node("Mul").in(tensor<uint16_t>({1}, {65535})).in(tensor<uint16_t>({1}, {65535}))),
                    tensor<uint16_t>({1}, {1})));
}

TEST(BinaryTest, ModTakesTheSignOfTheDivisorOrWithFmodOfTheDividend) {
  const Tensor a = tensor<int32_t>({6}, {-4, 7, 5, 4, -7, 8}), b = tensor<int32_t>({6}, {2, -3, 8, -2, 3, 5});
  EXPECT_TRUE(close(result(Node("Mod").in(a).in(b)), tensor<int32_t>({6}, {0, -2, 5, 0, 2, 3})));
  EXPECT_TRUE(
      close(result(Node("Mod").in(a).in(b).attr("fmod", 1)), tensor<int32_t>({6}, {0, 1, 5, 0, -1, 3})));
  EXPECT_TRUE(
      close(result(Node("Mod").in(floats({2}, {-4.3f, 7.2f})).in(floats({2}, {2, -3})).attr("fmod", 1)),
            floats({2}, {std::fmod(-4.3f, 2.0f), std::fmod(7.2f, -3.0f)})));
  EXPECT_THAT(failure(Node("Mod").in(floats({1}, {1})).in(floats({1}, {1}))),
              HasSubstr("fmod is 0 for float32"));
}

TEST(BinaryTest, PowKeepsTheTypeOfTheBase) {
  EXPECT_TRUE(
      close(result(Node("Pow").in(floats({3}, {1, 2, 3})).in(floats({}, {2}))), floats({3}, {1, 4, 9})));
  EXPECT_TRUE(close(result(Node("Pow").in(floats({3}, {1, 4, 9})).in(floats({}, {0.5f}))),
                    floats({3}, {1, 2, 3}), 1e-6));
  EXPECT_TRUE(
      close(result(Node("Pow").in(floats({2}, {1.5f, 2})).in(ints({2}, {2, 3}))), floats({2}, {2.25f, 8})));
  EXPECT_TRUE(close(result(Node("Pow").in(tensor<int32_t>({3}, {2, -3, 2})).in(floats({3}, {3, 3, 0.5f}))),
                    tensor<int32_t>({3}, {8, -27, 1})));
  EXPECT_TRUE(close(result(Node("Pow").in(ints({4}, {3, -1, 0, 2})).in(ints({4}, {39, -3, -1, -1}))),
                    ints({4}, {4052555153018976267, -1, 0, 0})));
}

TEST(BinaryTest, ComparisonsAndLogicGiveBool) {
  for (const auto& [a_dims, b_dims] : kShapePairs)
    for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT16, BELAY_DT_INT8, BELAY_DT_UINT64}) {
      const Tensor a = tensor_of(dtype, a_dims, numbers(Tensor{dtype, a_dims, {}}.count(), 0, 3, 1));
      const Tensor b = tensor_of(dtype, b_dims, numbers(Tensor{dtype, b_dims, {}}.count(), 0, 3, 2));
      EXPECT_TRUE(
          close(result(Node("Less").in(a).in(b).out(BELAY_DT_BOOL)),
                broadcast_reference(BELAY_DT_BOOL, a, b, [](double p, double q) { return double(p < q); })));
      EXPECT_TRUE(
          close(result(Node("GreaterOrEqual").in(a).in(b).out(BELAY_DT_BOOL)),
                broadcast_reference(BELAY_DT_BOOL, a, b, [](double p, double q) { return double(p >= q); })));
      EXPECT_TRUE(
          close(result(Node("Equal").in(a).in(b).out(BELAY_DT_BOOL)),
                broadcast_reference(BELAY_DT_BOOL, a, b, [](double p, double q) { return double(p == q); })));
    }
  const Tensor p = tensor_of(BELAY_DT_BOOL, {4}, {0, 0, 1, 1}),
               q = tensor_of(BELAY_DT_BOOL, {4}, {0, 1, 0, 1});
  EXPECT_TRUE(close(result(Node("And").in(p).in(q)), tensor_of(BELAY_DT_BOOL, {4}, {0, 0, 0, 1})));
  EXPECT_TRUE(close(result(Node("Or").in(p).in(q)), tensor_of(BELAY_DT_BOOL, {4}, {0, 1, 1, 1})));
  EXPECT_TRUE(close(result(Node("Xor").in(p).in(q)), tensor_of(BELAY_DT_BOOL, {4}, {0, 1, 1, 0})));
}

TEST(BinaryTest, ShiftsBeyondTheWidthGiveZero) {
  EXPECT_TRUE(close(result(Node("BitShift")
                               .in(tensor<uint8_t>({4}, {16, 4, 1, 255}))
                               .in(tensor<uint8_t>({4}, {1, 2, 8, 200}))
                               .attr("direction", "RIGHT")),
                    tensor<uint8_t>({4}, {8, 1, 0, 0})));
  EXPECT_TRUE(close(result(Node("BitShift")
                               .in(tensor<uint64_t>({2}, {1, 1}))
                               .in(tensor<uint64_t>({2}, {63, 64}))
                               .attr("direction", "LEFT")),
                    tensor<uint64_t>({2}, {uint64_t{1} << 63, 0})));
}

TEST(BinaryTest, ShapesThatDoNotBroadcastAndTypesThatDifferAreRefused) {
  EXPECT_EQ(failure(Node("Add").in(floats({2}, {1, 2})).in(floats({3}, {1, 2, 3}))),
            "Add 'n': shapes [2] and [3] do not broadcast.");
  EXPECT_EQ(failure(Node("Add").in(floats({1}, {1})).in(ints({1}, {1}))),
            "Add 'n': inputs are of types float32 and int64, want the same.");
  EXPECT_THAT(failure(Node("PRelu").in(floats({2}, {1, 2})).in(floats({2, 2}, {1, 2, 3, 4}))),
              HasSubstr("does not broadcast to the input's [2]"));
}

}  // namespace
}  // namespace belay::cpu::testing
