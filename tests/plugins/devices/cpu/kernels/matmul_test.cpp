#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kProductTypes[] = {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16,
                                      BELAY_DT_INT32,   BELAY_DT_INT64,   BELAY_DT_UINT32,  BELAY_DT_UINT64};

double product_tolerance(uint32_t dtype) {
  switch (dtype) {
    case BELAY_DT_FLOAT32:
      return 1e-5;
    case BELAY_DT_FLOAT64:
      return 1e-13;
    case BELAY_DT_FLOAT16:
      return 1e-3;
    case BELAY_DT_BFLOAT16:
      return 8e-3;
    default:
      return 0;
  }
}
bool whole(uint32_t dtype) { return product_tolerance(dtype) == 0; }
// Small whole numbers for integers, so that sums are exact in the reference.
Tensor operand(uint32_t dtype, const std::vector<int64_t>& dims, uint32_t seed) {
  const int64_t count = Tensor{0, dims, {}}.count();
  std::vector<double> values = numbers(count, whole(dtype) ? 0 : -1, whole(dtype) ? 9 : 1, seed);
  if (whole(dtype))
    for (double& value : values) value = std::floor(value);
  return tensor_of(dtype, dims, values);
}

struct Shapes {
  std::vector<int64_t> a, b, out;
};

// Element by element with numpy's rules, from the index of the output.
Tensor expected_matmul(const Tensor& a, const Tensor& b, const std::vector<int64_t>& out) {
  std::vector<int64_t> ad = a.dims, bd = b.dims, od = out;
  if (ad.size() == 1) ad.insert(ad.begin(), 1), od.insert(od.end() - (b.dims.size() == 1 ? 0 : 1), 1);
  if (bd.size() == 1) bd.push_back(1), od.push_back(1);
  const std::vector<double> av = values_of(a), bv = values_of(b);
  const int64_t m = od[od.size() - 2], n = od.back(), k = ad.back();
  std::vector<double> values;
  for (int64_t at = 0; at < Tensor{0, od, {}}.count(); ++at) {
    int64_t rest = at / (m * n), a_at = 0, b_at = 0, a_step = 1, b_step = 1;
    for (size_t d = 2; d < od.size(); ++d) {
      const size_t from_end = od.size() - 1 - d;
      const int64_t i = rest % od[from_end];
      rest /= od[from_end];
      if (d < ad.size()) a_at += ad[ad.size() - 1 - d] == 1 ? 0 : i * a_step, a_step *= ad[ad.size() - 1 - d];
      if (d < bd.size()) b_at += bd[bd.size() - 1 - d] == 1 ? 0 : i * b_step, b_step *= bd[bd.size() - 1 - d];
    }
    double sum = 0;
    for (int64_t p = 0; p < k; ++p)
      sum += av[size_t((a_at * m + at / n % m) * k + p)] * bv[size_t((b_at * k + p) * n + at % n)];
    values.push_back(sum);
  }
  return tensor_of(a.dtype, out, values);
}

void check_shapes_and_types() {
  const std::vector<Shapes> all = {
      {{3, 4}, {4, 5}, {3, 5}},
      {{1, 7}, {7, 1}, {1, 1}},
      {{33, 200}, {200, 65}, {33, 65}},
      {{4}, {4, 5}, {5}},
      {{3, 4}, {4}, {3}},
      {{6}, {6}, {}},
      {{2, 3, 4}, {2, 4, 5}, {2, 3, 5}},
      {{2, 3, 4}, {4, 50}, {2, 3, 50}},
      {{3, 4}, {2, 4, 5}, {2, 3, 5}},
      {{2, 1, 3, 4}, {3, 4, 2}, {2, 3, 3, 2}},
      {{1, 2, 20, 9}, {3, 1, 9, 60}, {3, 2, 20, 60}},
      {{5}, {2, 5, 3}, {2, 3}},
      {{2, 3, 5}, {5}, {2, 3}},
      {{0, 4}, {4, 5}, {0, 5}},
      {{3, 0}, {0, 5}, {3, 5}},
      {{2, 0, 3, 4}, {4, 5}, {2, 0, 3, 5}},
      {{1, 300}, {300, 130}, {1, 130}},
      {{150, 40}, {40, 3}, {150, 3}},
  };
  for (const uint32_t dtype : kProductTypes)
    for (const Shapes& s : all) {
      const Tensor a = operand(dtype, s.a, 1), b = operand(dtype, s.b, 2);
      const double tol = product_tolerance(dtype);
      EXPECT_TRUE(close(result(Node("MatMul", 13).in(a).in(b)), expected_matmul(a, b, s.out), tol, tol * 10))
          << dtype_name(dtype) << " " << text_of(s.a) << " " << text_of(s.b);
    }
}

TEST(MatMulTest, MatchesTheDefinitionInAllShapesAndTypes) { each_micro(check_shapes_and_types); }

TEST(MatMulTest, IntegersWrapAround) {
  const Tensor a = tensor<int32_t>({1, 2}, {2000000000, 2000000000}), b = tensor<int32_t>({2, 1}, {2, -1});
  EXPECT_EQ(result(Node("MatMul", 13).in(a).in(b)), tensor<int32_t>({1, 1}, {2000000000}));
}

TEST(MatMulTest, FailuresNameBothShapes) {
  const Tensor a = floats({2, 3}, std::vector<float>(6));
  EXPECT_THAT(failure(Node("MatMul").in(a).in(a)), HasSubstr("[2,3] and [2,3]"));
  EXPECT_THAT(failure(Node("MatMul").in(a).in(floats({}, {1}))), HasSubstr("rank 1 at least"));
  EXPECT_THAT(failure(Node("MatMul")
                          .in(floats({2, 1, 3}, std::vector<float>(6)))
                          .in(floats({3, 3, 1}, std::vector<float>(9)))),
              HasSubstr("do not broadcast"));
}

TEST(GemmTest, MatchesTheDefinitionWithEachCAndFactor) {
  struct Size {
    int64_t m, n, k;
  };
  for (const uint32_t dtype : kProductTypes)
    for (const Size s : {Size{1, 10, 30}, {5, 7, 3}, {40, 70, 150}, {3, 1, 4}, {1, 1, 1}, {2, 3, 0}})
      for (int transposed = 0; transposed < 4; ++transposed)
        for (const std::vector<int64_t>& c_dims :
             {std::vector<int64_t>{-1}, {}, {1}, {s.n}, {1, s.n}, {s.m, 1}, {s.m, s.n}})
          for (const float factor : {1.0f, 2.0f}) {
            const bool ta = transposed & 1, tb = transposed & 2, has_c = c_dims != std::vector<int64_t>{-1};
            const Tensor a =
                operand(dtype, ta ? std::vector<int64_t>{s.k, s.m} : std::vector<int64_t>{s.m, s.k}, 1);
            const Tensor b =
                operand(dtype, tb ? std::vector<int64_t>{s.n, s.k} : std::vector<int64_t>{s.k, s.n}, 2);
            const Tensor c = has_c ? operand(dtype, c_dims, 3) : Tensor{};
            Node node("Gemm", 13);
            node.in(a).in(b);
            if (has_c) node.in(c);
            node.attr("transA", int64_t{ta})
                .attr("transB", int64_t{tb})
                .attr("alpha", factor)
                .attr("beta", 3 - factor);
            const std::vector<double> av = values_of(a), bv = values_of(b),
                                      cv = has_c ? values_of(c) : std::vector<double>();
            std::vector<double> y;
            for (int64_t i = 0; i < s.m; ++i)
              for (int64_t j = 0; j < s.n; ++j) {
                double sum = 0;
                for (int64_t p = 0; p < s.k; ++p)
                  sum +=
                      av[size_t(ta ? p * s.m + i : i * s.k + p)] * bv[size_t(tb ? j * s.k + p : p * s.n + j)];
                sum *= factor;
                if (has_c) {
                  const int64_t row = c_dims.size() == 2 && c_dims[0] > 1 ? i : 0;
                  const int64_t width = c_dims.empty() ? 1 : c_dims.back();
                  sum += double(3 - factor) * cv[size_t(row * width + (width > 1 ? j : 0))];
                }
                y.push_back(sum);
              }
            const double tol = product_tolerance(dtype);
            ASSERT_TRUE(close(result(node), tensor_of(dtype, {s.m, s.n}, y), tol, tol * 20))
                << dtype_name(dtype) << " m " << s.m << " n " << s.n << " k " << s.k << " trans "
                << transposed << " C " << text_of(c_dims) << " alpha " << factor;
          }
}

TEST(GemmTest, FailuresNameShapes) {
  const Tensor a = floats({2, 3}, std::vector<float>(6));
  EXPECT_THAT(failure(Node("Gemm").in(a).in(a)), HasSubstr("do not fit together"));
  EXPECT_THAT(failure(Node("Gemm").in(a).in(a).in(floats({3}, {1, 2, 3})).attr("transB", 1)),
              HasSubstr("C has the shape [3], which does not broadcast to [2,2]"));
  EXPECT_THAT(failure(Node("Gemm").in(floats({6}, std::vector<float>(6))).in(a)), HasSubstr("want rank 2"));
}

}  // namespace
}  // namespace belay::cpu::testing
