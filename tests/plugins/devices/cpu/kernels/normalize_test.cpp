#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kFloatTypes[] = {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16};
double tolerance(uint32_t dtype) {
  return dtype == BELAY_DT_FLOAT64 ? 1e-11 : dtype == BELAY_DT_FLOAT32 ? 2e-6 : dtype == BELAY_DT_FLOAT16 ? 1e-3 : 8e-3;
}
int64_t count_of(const std::vector<int64_t>& dims) { return Tensor{0, dims, {}}.count(); }

// softmax etc. over [outer][n][inner] of x.
std::vector<double> soft(const std::string& op, const std::vector<double>& x, int64_t outer, int64_t n, int64_t inner) {
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
        y[at(k)] = op == "Hardmax" ? double(k == best) : op == "Softmax" ? std::exp(x[at(k)] - x[at(best)]) / sum
                                                                         : x[at(k)] - x[at(best)] - std::log(sum);
    }
  return y;
}

TEST(SoftmaxTest, EachAxisMatchesTheDefinitionInEachType) {
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"})
    for (const uint32_t dtype : kFloatTypes)
      for (const std::vector<int64_t>& dims : {std::vector<int64_t>{5}, {3, 7}, {2, 3, 300}, {2, 20, 3, 5}, {1, 0, 4}, {3, 1000}})
        for (int64_t axis = -int64_t(dims.size()); axis < int64_t(dims.size()); ++axis) {
          const size_t a = size_t(axis < 0 ? axis + int64_t(dims.size()) : axis);
          int64_t outer = 1, inner = 1;
          for (size_t d = 0; d < dims.size(); ++d) (d < a ? outer : inner) *= d == a ? 1 : dims[d];
          const Tensor x = tensor_of(dtype, dims, numbers(count_of(dims), -5, 5));
          const std::vector<double> y = soft(op, values_of(x), outer, dims[a], inner);
          EXPECT_TRUE(close(result(Node(op, 13).in(x).attr("axis", axis)), tensor_of(dtype, dims, y), tolerance(dtype), 1e-6))
              << op << " " << dtype_name(dtype) << " " << text_of(dims) << " axis " << axis;
        }
}

TEST(SoftmaxTest, OlderDefinitionsFlattenFromTheAxisOn) {
  const std::vector<int64_t> dims{2, 3, 4};
  const Tensor x = tensor_of(BELAY_DT_FLOAT32, dims, numbers(24, -5, 5));
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) {
    EXPECT_TRUE(close(result(Node(op, 11).in(x)), tensor_of(x.dtype, dims, soft(op, values_of(x), 2, 12, 1)), 1e-6, 1e-6));
    EXPECT_TRUE(close(result(Node(op, 1).in(x).attr("axis", 0)), tensor_of(x.dtype, dims, soft(op, values_of(x), 1, 24, 1)), 1e-6, 1e-6));
  }
}

TEST(SoftmaxTest, LargeValuesDoNotOverflow) {
  const Tensor x = floats({1, 3}, {10000, 10001, 9990});
  EXPECT_TRUE(close(result(Node("Softmax", 13).in(x)), floats({1, 3}, {0.26893523f, 0.7310525f, 1.2209e-5f}), 1e-4));
  EXPECT_TRUE(close(result(Node("LogSoftmax", 13).in(x)), floats({1, 3}, {-1.3132739f, -0.3132739f, -11.3132739f}), 1e-5));
  EXPECT_THAT(failure(Node("Softmax", 13).in(x).attr("axis", 2)), HasSubstr("axis is 2, want -2 to 1"));
}

TEST(BatchNormalizationTest, InferenceMatchesTheDefinition) {
  for (const uint32_t dtype : kFloatTypes)
    for (const std::vector<int64_t>& dims : {std::vector<int64_t>{2, 3, 4, 50}, {4, 3}, {1, 3, 7}, {0, 3, 2}}) {
      const Tensor x = tensor_of(dtype, dims, numbers(count_of(dims), -2, 2));
      const Tensor s = tensor_of(dtype, {3}, {1, 2, 0.5}), b = tensor_of(dtype, {3}, {0, -1, 1});
      const Tensor m = tensor_of(dtype, {3}, {0.5, 0, -0.5}), v = tensor_of(dtype, {3}, {1, 4, 0.25});
      std::vector<double> y;
      const int64_t pixels = count_of(std::vector<int64_t>(dims.begin() + 2, dims.end()));
      for (int64_t i = 0; i < x.count(); ++i) {
        const size_t c = size_t(i / pixels % 3);
        y.push_back((values_of(x)[size_t(i)] - values_of(m)[c]) / std::sqrt(values_of(v)[c] + double(0.01f)) * values_of(s)[c] + values_of(b)[c]);
      }
      EXPECT_TRUE(close(result(Node("BatchNormalization", 15).in(x).in(s).in(b).in(m).in(v).attr("epsilon", 0.01f)),
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
  EXPECT_TRUE(close(outcome.outputs[0], floats({2, 1, 2}, {-1.3416408f, -0.4472136f, 0.4472136f, 1.3416408f}), 1e-6));
  EXPECT_TRUE(close(outcome.outputs[1], floats({1}, {10 * 0.75f + 2.5f * 0.25f}), 1e-6));
  EXPECT_TRUE(close(outcome.outputs[2], floats({1}, {20 * 0.75f + 1.25f * 0.25f}), 1e-6));
}

TEST(BatchNormalizationTest, FailuresNameTheOperand) {
  const Tensor x = floats({1, 2, 2}, {1, 2, 3, 4}), two = floats({2}, {1, 1}), three = floats({3}, {1, 1, 1});
  EXPECT_THAT(failure(Node("BatchNormalization", 15).in(x).in(two).in(two).in(three).in(two)),
              HasSubstr("the mean has the shape [3], want [2]"));
}

}  // namespace
}  // namespace belay::cpu::testing
