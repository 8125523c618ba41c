// Operators of opsets 18 to 24 at sizes that fill blocks and threads, and what they refuse.
#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

double allowed(uint32_t dtype) {
  return dtype == BELAY_DT_FLOAT64 ? 1e-11 : dtype == BELAY_DT_FLOAT32 ? 1e-5 : dtype == BELAY_DT_FLOAT16 ? 2e-3 : 2e-2;
}

struct Heads {
  int64_t batch, q_heads, kv_heads, queries, past, fresh, size, v_size;
  int64_t keys() const { return past + fresh; }
};

// Attention query by query; a key is seen up to `query + past` where it is causal.
std::vector<double> attend(const Heads& h, const std::vector<double>& q, const std::vector<double>& k,
                           const std::vector<double>& v, bool causal) {
  std::vector<double> y;
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t head = 0; head < h.q_heads; ++head)
      for (int64_t i = 0; i < h.queries; ++i) {
        const int64_t shared = b * h.kv_heads + head / (h.q_heads / h.kv_heads);
        const int64_t seen = causal ? std::min(h.keys(), i + h.past + 1) : h.keys();
        std::vector<double> weights;
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (int64_t d = 0; d < h.size; ++d)
            score += q[size_t(((b * h.q_heads + head) * h.queries + i) * h.size + d)] *
                     k[size_t((shared * h.keys() + j) * h.size + d)];
          weights.push_back(score / std::sqrt(double(h.size)));
          most = std::max(most, weights.back());
        }
        for (double& weight : weights) sum += weight = std::exp(weight - most);
        for (int64_t d = 0; d < h.v_size; ++d) {
          double value = 0;
          for (int64_t j = 0; j < seen; ++j)
            value += weights[size_t(j)] / sum * v[size_t((shared * h.keys() + j) * h.v_size + d)];
          y.push_back(value);
        }
      }
  return y;
}

// Past and fresh rows one behind the other.
std::vector<double> joined(const Heads& h, int64_t size, const Tensor& past, const Tensor& fresh) {
  const std::vector<double> old = values_of(past), now = values_of(fresh);
  std::vector<double> out;
  for (int64_t i = 0; i < h.batch * h.kv_heads; ++i) {
    out.insert(out.end(), old.begin() + i * h.past * size, old.begin() + (i + 1) * h.past * size);
    out.insert(out.end(), now.begin() + i * h.fresh * size, now.begin() + (i + 1) * h.fresh * size);
  }
  return out;
}

TEST(AttentionTest, MatchesTheDefinitionInEachTypeWithAndWithoutPast) {
  for (const uint32_t dtype : kFloatTypes)
    for (const Heads& h : {Heads{1, 4, 2, 150, 0, 170, 33, 20}, Heads{2, 6, 2, 1, 90, 1, 32, 32},
                           Heads{1, 2, 2, 40, 25, 40, 8, 48}, Heads{1, 1, 1, 3, 0, 5, 1, 1}})
      for (const bool causal : {false, true}) {
        const auto make = [&](int64_t heads, int64_t rows, int64_t size, uint32_t seed) {
          const std::vector<int64_t> dims{h.batch, heads, rows, size};
          return tensor_of(dtype, dims, numbers(count_of(dims), -1, 1, seed));
        };
        const Tensor q = make(h.q_heads, h.queries, h.size, 1), k = make(h.kv_heads, h.fresh, h.size, 2),
                     v = make(h.kv_heads, h.fresh, h.v_size, 3), past_k = make(h.kv_heads, h.past, h.size, 4),
                     past_v = make(h.kv_heads, h.past, h.v_size, 5);
        Node node("Attention", 23);
        node.in(q).in(k).in(v).attr("is_causal", causal ? 1 : 0);
        if (h.past) node.absent().in(past_k).in(past_v);
        node.out(dtype).no_out().out(dtype);  // the joined values, not the keys
        const Outcome outcome = node.run();
        ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
        const std::vector<double> keys = joined(h, h.size, past_k, k), values = joined(h, h.v_size, past_v, v);
        EXPECT_TRUE(close(outcome.outputs[0],
                          tensor_of(dtype, {h.batch, h.q_heads, h.queries, h.v_size}, attend(h, values_of(q), keys, values, causal)),
                          allowed(dtype), allowed(dtype)))
            << dtype_name(dtype) << " queries " << h.queries << " causal " << causal;
        EXPECT_EQ(outcome.outputs.back(), tensor_of(dtype, {h.batch, h.kv_heads, h.keys(), h.v_size}, values));
      }
}

TEST(AttentionTest, HeadsAndMasksThatDoNotFitAreRefused) {
  const auto zeros = [](std::vector<int64_t> dims) {
    return tensor_of(BELAY_DT_FLOAT32, dims, std::vector<double>(size_t(count_of(dims))));
  };
  const auto refused = [&](Node& node) { return node.run_once().status.message(); };
  EXPECT_THAT(refused(Node("Attention", 23).in(zeros({1, 3, 2, 4})).in(zeros({1, 2, 2, 4})).in(zeros({1, 2, 2, 4}))),
              HasSubstr("3 heads of Q and 2"));
  EXPECT_THAT(refused(Node("Attention", 23).in(zeros({1, 2, 2, 4})).in(zeros({1, 2, 2, 5})).in(zeros({1, 2, 2, 4}))),
              HasSubstr("differ in size"));
  EXPECT_THAT(refused(Node("Attention", 23).in(zeros({1, 2, 4})).in(zeros({1, 2, 4})).in(zeros({1, 2, 4}))),
              HasSubstr("q_num_heads is 0"));
  EXPECT_THAT(refused(Node("Attention", 23)
                          .in(zeros({1, 2, 2, 4}))
                          .in(zeros({1, 2, 3, 4}))
                          .in(zeros({1, 2, 3, 4}))
                          .in(zeros({2, 2}))),
              HasSubstr("attn_mask has the shape [2,2]"));
}

TEST(RmsNormTest, EachRowIsDividedByItsRootMeanSquareInEachType) {
  for (const uint32_t dtype : kFloatTypes)
    for (const int64_t n : {1, 37, 1000}) {
      const Tensor x = tensor_of(dtype, {90, n}, numbers(90 * n, -2, 2)), scale = tensor_of(dtype, {n}, numbers(n, -1, 1, 2));
      const std::vector<double> v = values_of(x), s = values_of(scale);
      std::vector<double> y(v.size());
      for (size_t row = 0; row < 90; ++row) {
        double squares = 0;
        for (size_t i = 0; i < size_t(n); ++i) squares += v[row * size_t(n) + i] * v[row * size_t(n) + i];
        for (size_t i = 0; i < size_t(n); ++i)
          y[row * size_t(n) + i] = v[row * size_t(n) + i] / std::sqrt(squares / double(n) + 1e-5) * s[i];
      }
      EXPECT_TRUE(close(result(Node("RMSNormalization", 23).in(x).in(scale)), tensor_of(dtype, x.dims, y), allowed(dtype),
                        allowed(dtype)))
          << dtype_name(dtype) << " " << n;
    }
}

TEST(GroupNormTest, ValuesFarFromZeroKeepTheirDigits) {
  // The variance of numbers around 1000 is lost where squares are summed before the mean is taken off.
  const int64_t n = 5000;
  std::vector<double> v = numbers(4 * n, 999, 1001);
  const Tensor x = tensor_of(BELAY_DT_FLOAT32, {1, 4, n}, v), ones = floats({4}, {1, 1, 1, 1}), none = floats({4}, {0, 0, 0, 0});
  v = values_of(x);
  std::vector<double> y(v.size());
  for (size_t g = 0; g < 2; ++g) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < size_t(2 * n); ++i) mean += v[g * size_t(2 * n) + i] / double(2 * n);
    for (size_t i = 0; i < size_t(2 * n); ++i) variance += std::pow(v[g * size_t(2 * n) + i] - mean, 2) / double(2 * n);
    for (size_t i = 0; i < size_t(2 * n); ++i)
      y[g * size_t(2 * n) + i] = (v[g * size_t(2 * n) + i] - mean) / std::sqrt(variance + 1e-5);
  }
  EXPECT_TRUE(close(result(Node("GroupNormalization", 21).in(x).in(ones).in(none).attr("num_groups", 2)),
                    tensor_of(x.dtype, x.dims, y), 1e-3, 1e-3));
}

TEST(RotaryTest, APositionOutsideTheCachesIsRefused) {
  const Tensor x = floats({1, 1, 2, 4}, std::vector<float>(8, 1)), cache = floats({3, 2}, std::vector<float>(6, 1));
  const Outcome outcome = Node("RotaryEmbedding", 23).in(x).in(cache).in(cache).in(ints({1, 2}, {0, 3})).run_once();
  EXPECT_EQ(outcome.status.code(), Code::kOutOfRange);
  EXPECT_THAT(outcome.status.message(), HasSubstr("position 3 of row 1"));
}

TEST(QuantizeTest, BlocksGiveTheSameOnAnyNumberOfThreads) {
  const int64_t rows = 301, columns = 403, block = 32, blocks = (columns + block - 1) / block;
  const Tensor x = tensor_of(BELAY_DT_FLOAT32, {rows, columns}, numbers(rows * columns, -4, 4));
  const Tensor scale = tensor_of(BELAY_DT_FLOAT32, {rows, blocks}, numbers(rows * blocks, 0.25, 1, 2));
  const std::vector<double> v = values_of(x), s = values_of(scale);
  std::string packed;
  std::vector<double> back;
  for (size_t i = 0; i < v.size(); ++i) {
    const double by = s[i / size_t(columns) * size_t(blocks) + i % size_t(columns) / size_t(block)];
    const int q = std::clamp(int(std::nearbyint(float(v[i]) / float(by))), -8, 7);
    if (i % 2) packed.back() = char(uint8_t(packed.back()) | uint8_t(q & 15) << 4);
    else packed.push_back(char(q & 15));
    back.push_back(q * by);
  }
  const Tensor small{BELAY_DT_INT4, {rows, columns}, packed};
  EXPECT_EQ(result(Node("QuantizeLinear", 21).in(x).in(scale).attr("axis", 1).attr("block_size", block)
                       .attr("output_dtype", int64_t{BELAY_DT_INT4}).out(BELAY_DT_INT4)), small);
  EXPECT_TRUE(close(result(Node("DequantizeLinear", 21).in(small).in(scale).attr("axis", 1).attr("block_size", block)
                               .out(BELAY_DT_FLOAT32)), tensor_of(x.dtype, x.dims, back), 1e-6, 1e-6));
  const Tensor wrong = tensor_of(BELAY_DT_FLOAT32, {rows, 2}, numbers(rows * 2, 1, 2));
  EXPECT_THAT(Node("QuantizeLinear", 21).in(x).in(wrong).attr("block_size", block).out(BELAY_DT_UINT8).run_once().status.message(),
              HasSubstr("want [301,13]"));
}

}  // namespace
}  // namespace belay::cpu::testing
