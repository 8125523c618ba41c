#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

double reduce(const std::string& op, const std::vector<double>& values, bool integers) {
  double sum = 0, abs = 0, square = 0, prod = 1, most = -INFINITY, least = INFINITY, exps = 0;
  for (const double v : values) {
    sum += v, abs += std::fabs(v), square += v * v, prod *= v, exps += std::exp(v);
    most = std::max(most, v), least = std::min(least, v);
  }
  const double n = double(values.size());
  double out = 0;
  if (op == "ReduceSum") out = sum;
  if (op == "ReduceMean") out = sum / n;
  if (op == "ReduceMax") out = most;
  if (op == "ReduceMin") out = least;
  if (op == "ReduceProd") out = prod;
  if (op == "ReduceL1") out = abs;
  if (op == "ReduceL2") out = std::sqrt(square);
  if (op == "ReduceLogSum") out = std::log(sum);
  if (op == "ReduceLogSumExp") out = std::log(exps);
  if (op == "ReduceSumSquare") out = square;
  return integers ? std::trunc(out) : out;
}

Tensor reference(const std::string& op, const Tensor& in, std::vector<bool> axes, bool keep) {
  const std::vector<double> values = values_of(in);
  std::vector<int64_t> dims, walk;
  for (size_t d = 0; d < in.dims.size(); ++d) {
    walk.push_back(axes[d] ? 1 : in.dims[d]);
    if (!axes[d] || keep) dims.push_back(walk.back());
  }
  int64_t count = 1;
  for (const int64_t d : walk) count *= d;
  std::vector<std::vector<double>> groups{size_t(count)};
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = int64_t(i), at = 0, step = 1;
    for (size_t d = in.dims.size(); d-- > 0; rest /= in.dims[d]) {
      if (!axes[d]) at += rest % in.dims[d] * step;
      step *= walk[d];
    }
    groups[size_t(at)].push_back(values[i]);
  }
  std::vector<double> out;
  for (const auto& group : groups) out.push_back(reduce(op, group, !(type_bit(in.dtype) & kFloats)));
  return tensor_of(in.dtype, dims, out);
}

const char* const kOps[] = {"ReduceSum", "ReduceMean", "ReduceMax",    "ReduceMin",       "ReduceProd",
                            "ReduceL1",  "ReduceL2",   "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"};

TEST(ReduceTest, EverySetOfAxesMatchesThePlainRule) {
  for (const char* op : kOps)
    for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16,
                                 BELAY_DT_INT32, BELAY_DT_UINT8})
      for (const std::vector<int64_t>& dims : {std::vector<int64_t>{3, 1, 5}, {2, 3, 20}}) {
        const bool narrow = dtype == BELAY_DT_UINT8;
        const Tensor x =
            tensor_of(dtype, dims, numbers(Tensor{dtype, dims, {}}.count(), 1, narrow ? 1.9 : 1.5));
        for (int set = 0; set < 8; ++set) {
          std::vector<int64_t> axes;
          std::vector<bool> flags;
          for (int d = 0; d < 3; ++d) {
            flags.push_back(set >> d & 1);
            if (flags.back()) axes.push_back(d % 2 ? d : d - 3);
          }
          if (axes.empty()) flags = {true, true, true};
          const double rtol = dtype == BELAY_DT_FLOAT64   ? 1e-12
                              : dtype == BELAY_DT_FLOAT32 ? 3e-6
                              : dtype == BELAY_DT_FLOAT16 ? 2e-3
                                                          : 1e-2;
          EXPECT_TRUE(
              close(result(Node(op).in(x).in(ints({int64_t(axes.size())}, axes)).attr("keepdims", set % 2)),
                    reference(op, x, flags, set % 2), rtol, rtol))
              << op << " " << dtype_name(dtype) << " " << text_of(dims) << " axes " << text_of(axes);
        }
      }
}

TEST(ReduceTest, LongRunsAreExactAndDoNotDependOnThreads) {
  const Tensor x = tensor_of(BELAY_DT_FLOAT32, {1, 300000}, std::vector<double>(300000, 0.1));
  EXPECT_TRUE(close(result(Node("ReduceSum").in(x).in(ints({1}, {1}))),
                    floats({1, 1}, {float(300000 * double(0.1f))}), 1e-6));
  EXPECT_TRUE(close(result(Node("ReduceLogSumExp").in(x).in(ints({1}, {1}))),
                    floats({1, 1}, {float(std::log(300000.0) + double(0.1f))}), 1e-6));
  EXPECT_TRUE(close(
      result(Node("ReduceMean").in(tensor_of(BELAY_DT_FLOAT16, {300000}, std::vector<double>(300000, 1)))),
      tensor_of(BELAY_DT_FLOAT16, {1}, {1})));
}

TEST(ReduceTest, NothingToReduceGivesTheNeutralElement) {
  const Tensor none = floats({2, 0}, {});
  const Tensor axis = ints({1}, {1});
  EXPECT_TRUE(close(result(Node("ReduceSum").in(none).in(axis)), floats({2, 1}, {0, 0})));
  EXPECT_TRUE(close(result(Node("ReduceProd").in(none).in(axis)), floats({2, 1}, {1, 1})));
  EXPECT_TRUE(close(result(Node("ReduceMax").in(none).in(axis)), floats({2, 1}, {-INFINITY, -INFINITY})));
  EXPECT_TRUE(close(result(Node("ReduceMean").in(none).in(axis)), floats({2, 1}, {NAN, NAN})));
  EXPECT_EQ(result(Node("ReduceSum").in(none).in(ints({1}, {0}))).dims, (std::vector<int64_t>{1, 0}));
  EXPECT_TRUE(close(result(Node("ReduceMean").in(tensor<int32_t>({0}, {}))), tensor<int32_t>({1}, {0})));
  EXPECT_TRUE(close(result(Node("ReduceSumSquare").in(floats({}, {3}))), floats({}, {9})));
}

TEST(ReduceTest, InfinitiesAndNanPass) {
  EXPECT_TRUE(close(
      result(
          Node("ReduceLogSumExp").in(floats({2, 2}, {INFINITY, 1, -INFINITY, -INFINITY})).in(ints({1}, {1}))),
      floats({2, 1}, {INFINITY, -INFINITY})));
  EXPECT_TRUE(close(result(Node("ReduceMax").in(floats({3}, {1, NAN, 2}))), floats({1}, {NAN})));
  EXPECT_TRUE(close(result(Node("ReduceMin").in(tensor<int64_t>({2}, {INT64_MIN, INT64_MAX}))),
                    ints({1}, {INT64_MIN})));
}

TEST(ReduceTest, EmptyAxesCanMeanNoReduction) {
  EXPECT_TRUE(close(
      result(Node("ReduceSum").in(floats({2}, {1, 2})).in(ints({0}, {})).attr("noop_with_empty_axes", 1)),
      floats({2}, {1, 2})));
  EXPECT_THAT(failure(Node("ReduceSum").in(floats({2}, {1, 2})).in(ints({1}, {1}))),
              HasSubstr("axis is 1, want -1 to 0"));
  EXPECT_THAT(failure(Node("ReduceSum").in(floats({2}, {1, 2})).in(ints({2}, {0, -1}))),
              HasSubstr("name axis 0 twice"));
}

TEST(EinsumTest, DiagonalsEllipsesAndSums) {
  const Tensor a = floats({2, 3}, {1, 2, 3, 4, 5, 6}), b = floats({3, 2}, {1, 0, 0, 1, 1, 1});
  EXPECT_TRUE(close(result(Node("Einsum").in(a).in(b).attr("equation", "ij, jk -> ik")),
                    floats({2, 2}, {4, 5, 10, 11})));
  EXPECT_TRUE(
      close(result(Node("Einsum").in(a).attr("equation", "ij->ji")), floats({3, 2}, {1, 4, 2, 5, 3, 6})));
  EXPECT_TRUE(
      close(result(Node("Einsum").in(floats({2, 2}, {1, 2, 3, 4})).attr("equation", "ii")), floats({}, {5})));
  EXPECT_TRUE(close(result(Node("Einsum").in(a).in(a).attr("equation", "...j,...j")), floats({2}, {14, 77})));
  EXPECT_TRUE(close(result(Node("Einsum")
                               .in(tensor<int32_t>({2}, {3, 4}))
                               .in(tensor<int32_t>({1}, {5}))
                               .attr("equation", "i,j->ij")),
                    tensor<int32_t>({2, 1}, {15, 20})));
  EXPECT_THAT(failure(Node("Einsum").in(a).attr("equation", "ijk")),
              HasSubstr("names 3 dims of an input of rank 2"));
  EXPECT_THAT(failure(Node("Einsum").in(a).attr("equation", "ij->ik")),
              HasSubstr("gives the output a dim that no input has"));
  EXPECT_THAT(failure(Node("Einsum").in(a).in(a).attr("equation", "ij,jk")),
              HasSubstr("its letter stands for 3 elsewhere"));
}

}  // namespace
}  // namespace belay::cpu::testing
