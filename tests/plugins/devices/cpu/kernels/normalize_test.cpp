#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

double tolerance(uint32_t dtype) {
  return dtype == BELAY_DT_FLOAT64   ? 1e-11
         : dtype == BELAY_DT_FLOAT32 ? 2e-6
         : dtype == BELAY_DT_FLOAT16 ? 1e-3
                                     : 8e-3;
}

// softmax etc. over [outer][n][inner] of x.
std::vector<double> soft(const std::string& op, const std::vector<double>& x, int64_t outer, int64_t n,
                         int64_t inner) {
  std::vector<double> y(x.size());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      const auto at = [&](int64_t k) { return size_t((o * n + k) * inner + i); };
      int64_t best = 0;
      double sum = 0;
      for (int64_t k = 0; k < n; ++k)
        if (x[at(k)] > x[at(best)]) best = k;
      for (int64_t k = 0; k < n; ++k) sum += std::exp(x[at(k)] - x[at(best)]);
      for (int64_t k = 0; k < n; ++k)
        y[at(k)] = op == "Hardmax"   ? double(k == best)
                   : op == "Softmax" ? std::exp(x[at(k)] - x[at(best)]) / sum
                                     : x[at(k)] - x[at(best)] - std::log(sum);
    }
  return y;
}

TEST(SoftmaxTest, EachAxisMatchesTheDefinitionInEachType) {
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"})
    for (const uint32_t dtype : kFloatTypes)
      for (const std::vector<int64_t>& dims :
           {std::vector<int64_t>{5}, {3, 7}, {2, 3, 300}, {2, 20, 3, 5}, {1, 0, 4}, {3, 1000}})
        for (int64_t axis = -int64_t(dims.size()); axis < int64_t(dims.size()); ++axis) {
          const size_t a = size_t(axis < 0 ? axis + int64_t(dims.size()) : axis);
          int64_t outer = 1, inner = 1;
          for (size_t d = 0; d < dims.size(); ++d) (d < a ? outer : inner) *= d == a ? 1 : dims[d];
          const Tensor x = tensor_of(dtype, dims, numbers(count_of(dims), -5, 5));
          const std::vector<double> y = soft(op, values_of(x), outer, dims[a], inner);
          EXPECT_TRUE(close(result(Node(op, 13).in(x).attr("axis", axis)), tensor_of(dtype, dims, y),
                            tolerance(dtype), 1e-6))
              << op << " " << dtype_name(dtype) << " " << text_of(dims) << " axis " << axis;
        }
}

TEST(SoftmaxTest, OlderDefinitionsFlattenFromTheAxisOn) {
  const std::vector<int64_t> dims{2, 3, 4};
  const Tensor x = tensor_of(BELAY_DT_FLOAT32, dims, numbers(24, -5, 5));
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) {
    EXPECT_TRUE(close(result(Node(op, 11).in(x)), tensor_of(x.dtype, dims, soft(op, values_of(x), 2, 12, 1)),
                      1e-6, 1e-6));
    EXPECT_TRUE(close(result(Node(op, 1).in(x).attr("axis", 0)),
                      tensor_of(x.dtype, dims, soft(op, values_of(x), 1, 24, 1)), 1e-6, 1e-6));
  }
}

TEST(SoftmaxTest, LargeValuesDoNotOverflow) {
  const Tensor x = floats({1, 3}, {10000, 10001, 9990});
  EXPECT_TRUE(
      close(result(Node("Softmax", 13).in(x)), floats({1, 3}, {0.26893523f, 0.7310525f, 1.2209e-5f}), 1e-4));
  EXPECT_TRUE(close(result(Node("LogSoftmax", 13).in(x)),
                    floats({1, 3}, {-1.3132739f, -0.3132739f, -11.3132739f}), 1e-5));
  EXPECT_THAT(failure(Node("Softmax", 13).in(x).attr("axis", 2)), HasSubstr("axis is 2, want -2 to 1"));
}

TEST(BatchNormalizationTest, InferenceMatchesTheDefinition) {
  for (const uint32_t dtype : kFloatTypes)
    for (const std::vector<int64_t>& dims :
         {std::vector<int64_t>{2, 3, 4, 50}, {4, 3}, {1, 3, 7}, {0, 3, 2}}) {
      const Tensor x = tensor_of(dtype, dims, numbers(count_of(dims), -2, 2));
      const Tensor s = tensor_of(dtype, {3}, {1, 2, 0.5}), b = tensor_of(dtype, {3}, {0, -1, 1});
      const Tensor m = tensor_of(dtype, {3}, {0.5, 0, -0.5}), v = tensor_of(dtype, {3}, {1, 4, 0.25});
      std::vector<double> y;
      const int64_t pixels = count_of(std::vector<int64_t>(dims.begin() + 2, dims.end()));
      for (int64_t i = 0; i < x.count(); ++i) {
        const size_t c = size_t(i / pixels % 3);
        y.push_back((values_of(x)[size_t(i)] - values_of(m)[c]) / std::sqrt(values_of(v)[c] + double(0.01f)) *
                        values_of(s)[c] +
                    values_of(b)[c]);
      }
      EXPECT_TRUE(
          close(result(Node("BatchNormalization", 15).in(x).in(s).in(b).in(m).in(v).attr("epsilon", 0.01f)),
                tensor_of(dtype, dims, y), tolerance(dtype), tolerance(dtype)));
    }
}

TEST(BatchNormalizationTest, TrainingUsesTheBatchAndMovesTheStatistics) {
  const Tensor x = floats({2, 1, 2}, {1, 2, 3, 4}), one = floats({1}, {1}), zero = floats({1}, {0});
  Node node("BatchNormalization", 15);
  node.in(x).in(one).in(zero).in(floats({1}, {10})).in(floats({1}, {20}));
  node.attr("training_mode", 1).attr("momentum", 0.75f).attr("epsilon", 0.0f);
  node.out(BELAY_DT_FLOAT32).out(BELAY_DT_FLOAT32).out(BELAY_DT_FLOAT32);
  const Outcome outcome = node.run();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_TRUE(
      close(outcome.outputs[0], floats({2, 1, 2}, {-1.3416408f, -0.4472136f, 0.4472136f, 1.3416408f}), 1e-6));
  EXPECT_TRUE(close(outcome.outputs[1], floats({1}, {10 * 0.75f + 2.5f * 0.25f}), 1e-6));
  EXPECT_TRUE(close(outcome.outputs[2], floats({1}, {20 * 0.75f + 1.25f * 0.25f}), 1e-6));
}

TEST(BatchNormalizationTest, FailuresNameTheOperand) {
  const Tensor x = floats({1, 2, 2}, {1, 2, 3, 4}), two = floats({2}, {1, 1}), three = floats({3}, {1, 1, 1});
  EXPECT_THAT(failure(Node("BatchNormalization", 15).in(x).in(two).in(two).in(three).in(two)),
              HasSubstr("the mean has the shape [3], want [2]"));
}

TEST(InstanceNormalizationTest, EachPlaneHasItsOwnMoments) {
  for (const uint32_t dtype : kFloatTypes)
    for (const std::vector<int64_t>& dims : {std::vector<int64_t>{2, 3, 4, 50}, {1, 3, 7}, {2, 3, 1, 1, 1}}) {
      const Tensor x = tensor_of(dtype, dims, numbers(count_of(dims), 3, 5)),
                   s = tensor_of(dtype, {3}, {1, 2, 0.5}), b = tensor_of(dtype, {3}, {0, -1, 1});
      const std::vector<double> xs = values_of(x);
      const int64_t pixels = count_of(dims) / dims[0] / 3;
      std::vector<double> y(xs.size());
      for (int64_t plane = 0; plane < dims[0] * 3; ++plane) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < pixels; ++i) mean += xs[size_t(plane * pixels + i)] / double(pixels);
        for (int64_t i = 0; i < pixels; ++i)
          variance += std::pow(xs[size_t(plane * pixels + i)] - mean, 2) / double(pixels);
        for (int64_t i = 0; i < pixels; ++i)
          y[size_t(plane * pixels + i)] = (xs[size_t(plane * pixels + i)] - mean) /
                                              std::sqrt(variance + double(1e-5f)) *
                                              values_of(s)[size_t(plane % 3)] +
                                          values_of(b)[size_t(plane % 3)];
      }
      EXPECT_TRUE(close(result(Node("InstanceNormalization", 6).in(x).in(s).in(b)), tensor_of(dtype, dims, y),
                        tolerance(dtype) * 5, tolerance(dtype) * 5));
    }
}

TEST(LayerNormalizationTest, EachAxisMatchesTheDefinition) {
  for (const uint32_t dtype : kFloatTypes)
    for (const int64_t axis : {-1, 1, 0})
      for (const bool bias : {false, true})
        for (const bool broadcast : {false, true}) {
          const std::vector<int64_t> dims{2, 3, 40};
          const int64_t first = axis < 0 ? 2 : axis;
          std::vector<int64_t> row(dims.begin() + first, dims.end()), stats{2, 3, 1};
          for (int64_t d = first; d < 3; ++d) stats[size_t(d)] = 1;
          if (broadcast) row.assign(1, 40);
          const int64_t n = count_of(std::vector<int64_t>(dims.begin() + first, dims.end()));
          const Tensor x = tensor_of(dtype, dims, numbers(240, 3, 5)),
                       s = tensor_of(dtype, row, numbers(count_of(row), 0.5, 2, 2)),
                       b = tensor_of(dtype, row, numbers(count_of(row), -1, 1, 3));
          const std::vector<double> xs = values_of(x), ss = values_of(s), bs = values_of(b);
          std::vector<double> y, means, inverses;
          for (int64_t r = 0; r < 240 / n; ++r) {
            double mean = 0, variance = 0;
            for (int64_t i = 0; i < n; ++i) mean += xs[size_t(r * n + i)] / double(n);
            for (int64_t i = 0; i < n; ++i) variance += std::pow(xs[size_t(r * n + i)] - mean, 2) / double(n);
            means.push_back(mean), inverses.push_back(1 / std::sqrt(variance + 0.25));
            for (int64_t i = 0; i < n; ++i)
              y.push_back((xs[size_t(r * n + i)] - mean) * inverses.back() * ss[size_t(i) % ss.size()] +
                          (bias ? bs[size_t(i) % bs.size()] : 0));
          }
          Node node("LayerNormalization", 17);
          node.in(x).in(s);
          if (bias) node.in(b);
          node.attr("axis", axis)
              .attr("epsilon", 0.25f)
              .out(dtype)
              .out(BELAY_DT_FLOAT32)
              .out(BELAY_DT_FLOAT32);
          const Outcome outcome = node.run();
          ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
          EXPECT_TRUE(
              close(outcome.outputs[0], tensor_of(dtype, dims, y), tolerance(dtype) * 2, tolerance(dtype)));
          EXPECT_TRUE(close(outcome.outputs[1], tensor_of(BELAY_DT_FLOAT32, stats, means), 1e-6));
          EXPECT_TRUE(close(outcome.outputs[2], tensor_of(BELAY_DT_FLOAT32, stats, inverses), 1e-5));
        }
}

TEST(LayerNormalizationTest, MeanFarFromZeroDoesNotCancel) {
  // Differences of 1 around a million: squares of the values themselves would lose them.
  const Tensor x = floats({1, 4}, {1000000, 1000001, 1000002, 1000003}), one = floats({4}, {1, 1, 1, 1});
  EXPECT_TRUE(close(result(Node("LayerNormalization", 17).in(x).in(one).attr("epsilon", 0.0f)),
                    floats({1, 4}, {-1.3416408f, -0.4472136f, 0.4472136f, 1.3416408f}), 1e-5));
}

TEST(MeanVarianceNormalizationTest, AnyAxes) {
  for (const uint32_t dtype : kFloatTypes)
    for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0, 2, 3}, {1}, {-1}, {0, 1, 2, 3}}) {
      const std::vector<int64_t> dims{2, 3, 4, 5};
      const Tensor x = tensor_of(dtype, dims, numbers(120, -2, 5));
      const std::vector<double> xs = values_of(x);
      const auto group = [&](int64_t at) {  // elements with one number share their moments
        const int64_t index[] = {at / 60, at / 20 % 3, at / 5 % 4, at % 5};
        int64_t out = 0;
        for (int64_t d = 0; d < 4; ++d)
          out = out * dims[size_t(d)] +
                (std::ranges::count(axes, d) || std::ranges::count(axes, d - 4) ? 0 : index[d]);
        return out;
      };
      std::vector<double> y;
      for (int64_t i = 0; i < 120; ++i) {
        double sum = 0, squares = 0, count = 0;
        for (int64_t j = 0; j < 120; ++j)
          if (group(j) == group(i)) sum += xs[size_t(j)], squares += xs[size_t(j)] * xs[size_t(j)], ++count;
        const double mean = sum / count;
        y.push_back((xs[size_t(i)] - mean) / (std::sqrt(squares / count - mean * mean) + 1e-9));
      }
      EXPECT_TRUE(close(result(Node("MeanVarianceNormalization", 13).in(x).attr("axes", axes)),
                        tensor_of(dtype, dims, y), tolerance(dtype), 1e-6));
    }
}

TEST(LpNormalizationTest, EachPowerAndAxisAndARunOfZeros) {
  const Tensor x = floats({2, 2}, {3, 0, -4, 0});
  EXPECT_TRUE(close(result(Node("LpNormalization", 1).in(x).attr("axis", 0)),
                    floats({2, 2}, {0.6f, 0, -0.8f, 0}), 1e-6));
  EXPECT_TRUE(close(result(Node("LpNormalization", 1).in(x).attr("axis", 0).attr("p", 1)),
                    floats({2, 2}, {3 / 7.0f, 0, -4 / 7.0f, 0}), 1e-6));
  EXPECT_EQ(result(Node("LpNormalization", 1).in(x)), floats({2, 2}, {1, 0, -1, 0}));
}

TEST(LrnTest, MatchesTheDefinitionForEvenAndOddSizes) {
  for (const uint32_t dtype : kFloatTypes)
    for (const int64_t size : {1, 3, 4, 9})
      for (const int64_t width : {3, 300}) {
        const Tensor x = tensor_of(dtype, {2, 5, width}, numbers(10 * width, -3, 3));
        const std::vector<double> xs = values_of(x);
        std::vector<double> y;
        for (int64_t i = 0; i < x.count(); ++i) {
          const int64_t c = i / width % 5;
          double sum = 0;
          for (int64_t k = 0; k < 5; ++k)
            if (k >= c - (size - 1) / 2 && k <= c + size / 2)
              sum += std::pow(xs[size_t(i + (k - c) * width)], 2);
          y.push_back(xs[size_t(i)] / std::pow(2 + double(0.1f) / double(size) * sum, 0.75));
        }
        EXPECT_TRUE(
            close(result(Node("LRN", 13).in(x).attr("size", size).attr("alpha", 0.1f).attr("bias", 2.0f)),
                  tensor_of(dtype, {2, 5, width}, y), tolerance(dtype), 1e-6));
      }
}

}  // namespace
}  // namespace belay::cpu::testing
