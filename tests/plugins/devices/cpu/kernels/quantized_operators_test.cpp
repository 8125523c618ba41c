// Operators on bytes beyond those of ONNX: com.microsoft's QGemm, MatMulIntegerToFloat, QLinearAdd,
// QLinearMul and pools, and the engine's ByteTable.
#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

double low_of(uint32_t dtype) { return dtype == BELAY_DT_INT8 ? -128 : 0; }
Tensor one(uint32_t dtype, double value) { return tensor_of(dtype, {}, {value}); }
Tensor scale(float value) { return floats({}, {value}); }
double quantised(double x, double step, double zero, uint32_t dtype) {
  return std::fmin(std::fmax(std::nearbyint(x / step) + zero, low_of(dtype)), low_of(dtype) + 255);
}

TEST(MatMulIntegerTest, NoTermsAreZero) {
  const Tensor y = result(Node("MatMulInteger", 10)
                              .in(bytes(BELAY_DT_UINT8, {2, 0}, 1))
                              .in(bytes(BELAY_DT_INT8, {0, 3}, 1))
                              .in(one(BELAY_DT_UINT8, 7))
                              .in(one(BELAY_DT_INT8, 3))
                              .out(BELAY_DT_INT32));
  EXPECT_EQ(y, tensor<int32_t>({2, 3}, std::vector<int32_t>(6, 0)));
}

TEST(QGemmTest, ScalesBiasAndTransposedOperands) {
  const int64_t m = 5, n = 9, k = 7;
  for (const uint32_t at : kByteTypes)
    for (const uint32_t bt : kByteTypes)
      for (const int trans_a : {0, 1})
        for (const int trans_b : {0, 1})
          for (const bool columns : {false, true})
            for (const bool quantise : {false, true}) {
              const Tensor a = bytes(at, trans_a ? std::vector<int64_t>{k, m} : std::vector<int64_t>{m, k},
                                     1),
                           b = bytes(bt, trans_b ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n},
                                     2);
              std::vector<double> zeros, scales;
              for (int64_t j = 0; j < n; ++j)
                zeros.push_back(double(j)), scales.push_back(.125 * double(j + 1));
              const Tensor b_zero = columns ? tensor_of(bt, {n}, zeros) : one(bt, 4);
              const Tensor b_scale = columns ? tensor_of(BELAY_DT_FLOAT32, {n}, scales) : scale(.5f);
              std::vector<int32_t> c;
              for (int64_t j = 0; j < n; ++j) c.push_back(int32_t(1000 - 300 * j));
              Node node("QGemm", 1, "com.microsoft");
              node.in(a)
                  .in(scale(.25f))
                  .in(one(at, 3))
                  .in(b)
                  .in(b_scale)
                  .in(b_zero)
                  .in(tensor<int32_t>({n}, c));
              if (quantise) node.in(scale(64)).in(one(at, 11));
              node.attr("transA", trans_a).attr("transB", trans_b).attr("alpha", 2.0f);
              node.out(quantise ? at : uint32_t(BELAY_DT_FLOAT32));
              const std::vector<double> av = values_of(a), bv = values_of(b);
              std::vector<double> y;
              for (int64_t i = 0; i < m; ++i)
                for (int64_t j = 0; j < n; ++j) {
                  double sum = c[size_t(j)];
                  for (int64_t p = 0; p < k; ++p)
                    sum += (av[size_t(trans_a ? p * m + i : i * k + p)] - 3) *
                           (bv[size_t(trans_b ? j * k + p : p * n + j)] - (columns ? double(j) : 4));
                  const double x = sum * 2 * .25 * (columns ? scales[size_t(j)] : .5);
                  y.push_back(quantise ? quantised(x, 64, 11, at) : x);
                }
              EXPECT_EQ(result(node), tensor_of(quantise ? at : uint32_t(BELAY_DT_FLOAT32), {m, n}, y))
                  << trans_a << trans_b << columns << quantise;
            }
}

TEST(MatMulIntegerToFloatTest, ScalesZeroPointsAndBias) {
  for (const uint32_t bt : kByteTypes)
    for (const bool batched : {false, true}) {
      const Tensor a = bytes(BELAY_DT_UINT8, {2, 3, 8}, 1),
                   b = bytes(bt, batched ? std::vector<int64_t>{2, 8, 5} : std::vector<int64_t>{8, 5}, 2);
      Node node("MatMulIntegerToFloat", 1, "com.microsoft");
      node.in(a).in(b).in(scale(.5f)).in(floats({5}, {1, 2, 4, 8, 16})).in(one(BELAY_DT_UINT8, 100)).absent();
      node.in(floats({5}, {1, 2, 3, 4, 5})).out(BELAY_DT_FLOAT32);
      const std::vector<double> av = values_of(a), bv = values_of(b);
      std::vector<double> y;
      for (int64_t s = 0; s < 2; ++s)
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t j = 0; j < 5; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < 8; ++p)
              sum +=
                  (av[size_t((s * 3 + i) * 8 + p)] - 100) * bv[size_t(((batched ? s : 0) * 8 + p) * 5 + j)];
            y.push_back(sum * .5 * std::exp2(double(j)) + double(j + 1));
          }
      EXPECT_EQ(result(node), tensor_of(BELAY_DT_FLOAT32, {2, 3, 5}, y));
    }
}

TEST(QLinearBinaryTest, OperandsBroadcast) {
  for (const uint32_t dtype : kByteTypes)
    for (const bool add : {true, false}) {
      const Tensor a = bytes(dtype, {2, 3, 70}, 1), b = bytes(dtype, {3, 1}, 2);
      Node node(add ? "QLinearAdd" : "QLinearMul", 1, "com.microsoft");
      node.in(a).in(scale(.25f)).in(one(dtype, 5)).in(b).in(scale(.5f)).in(one(dtype, 9));
      node.in(scale(add ? .5f : 8)).in(one(dtype, 20)).out(dtype);
      const std::vector<double> av = values_of(a), bv = values_of(b);
      std::vector<double> y;
      for (size_t i = 0; i < av.size(); ++i) {
        const double p = (av[i] - 5) * .25, q = (bv[i / 70 % 3] - 9) * .5;
        y.push_back(quantised(add ? p + q : p * q, add ? .5 : 8, 20, dtype));
      }
      EXPECT_EQ(result(node), tensor_of(dtype, {2, 3, 70}, y));
    }
}

TEST(QLinearPoolTest, MeansOfWindows) {
  for (const uint32_t dtype : kByteTypes)
    for (const int64_t count_pads : {0, 1}) {
      const Tensor x = bytes(dtype, {1, 2, 5, 300}, 1);
      Node node("QLinearAveragePool", 1, "com.microsoft");
      node.in(x).in(scale(.5f)).in(one(dtype, 7)).in(scale(.25f)).in(one(dtype, 1)).out(dtype);
      node.attr("kernel_shape", std::vector<int64_t>{2, 2}).attr("pads", std::vector<int64_t>{1, 1, 0, 0});
      node.attr("count_include_pad", count_pads);
      const std::vector<double> v = values_of(x);
      std::vector<double> y;
      for (int64_t c = 0; c < 2; ++c)
        for (int64_t r = 0; r < 5; ++r)
          for (int64_t q = 0; q < 300; ++q) {
            double sum = 0, count = 0;
            for (int64_t i = r - 1; i <= r; ++i)
              for (int64_t j = q - 1; j <= q; ++j)
                if (i >= 0 && j >= 0) sum += (v[size_t((c * 5 + i) * 300 + j)] - 7) * .5, ++count;
            y.push_back(quantised(sum / (count_pads ? 4 : count), .25, 1, dtype));
          }
      EXPECT_EQ(result(node), tensor_of(dtype, {1, 2, 5, 300}, y));
    }
}

TEST(QLinearPoolTest, MeansOfAllPixelsWhereverTheChannelsStand) {
  for (const uint32_t dtype : kByteTypes)
    for (const int64_t last : {0, 1}) {
      const std::vector<int64_t> dims =
          last ? std::vector<int64_t>{2, 4, 8, 3} : std::vector<int64_t>{2, 3, 4, 8};
      const Tensor x = bytes(dtype, dims, 1);
      Node node("QLinearGlobalAveragePool", 1, "com.microsoft");
      node.in(x)
          .in(scale(.5f))
          .in(one(dtype, 7))
          .in(scale(.25f))
          .in(one(dtype, 1))
          .out(dtype)
          .attr("channels_last", last);
      const std::vector<double> v = values_of(x);
      std::vector<double> y;
      for (int64_t n = 0; n < 2; ++n)
        for (int64_t c = 0; c < 3; ++c) {
          double sum = 0;
          for (int64_t i = 0; i < 32; ++i)
            sum += (v[size_t(last ? (n * 32 + i) * 3 + c : (n * 3 + c) * 32 + i)] - 7) * .5;
          y.push_back(quantised(sum / 32, .25, 1, dtype));
        }
      const std::vector<int64_t> out =
          last ? std::vector<int64_t>{2, 1, 1, 3} : std::vector<int64_t>{2, 3, 1, 1};
      EXPECT_EQ(result(node), tensor_of(dtype, out, y));
    }
}

TEST(ByteTableTest, EntriesAreFoundByTheBitsOfAByte) {
  std::vector<double> table;
  for (int i = 0; i < 256; ++i) table.push_back(i < 128 ? -i : i - 200);
  const Tensor x = bytes(BELAY_DT_INT8, {3, 50}, 1);
  std::vector<double> y;
  for (const double v : values_of(x)) y.push_back(table[size_t(uint8_t(int8_t(v)))]);
  EXPECT_EQ(
      result(
          Node("ByteTable", 1, "belay").in(x).in(tensor_of(BELAY_DT_INT8, {256}, table)).out(BELAY_DT_INT8)),
      tensor_of(BELAY_DT_INT8, {3, 50}, y));
}

TEST(QuantizedOperatorsTest, FailuresNameWhatIsWrong) {
  const Tensor x = bytes(BELAY_DT_UINT8, {2, 3}, 1), zero = one(BELAY_DT_UINT8, 0);
  EXPECT_THAT(
      failure(Node("ByteTable", 1, "belay").in(x).in(bytes(BELAY_DT_UINT8, {255}, 1)).out(BELAY_DT_UINT8)),
      HasSubstr("the table has 255 entries, want 256"));
  EXPECT_THAT(failure(Node("QLinearAdd", 1, "com.microsoft")
                          .in(x)
                          .in(floats({2}, {1, 2}))
                          .in(zero)
                          .in(x)
                          .in(scale(1))
                          .in(zero)
                          .in(scale(1))
                          .in(zero)),
              HasSubstr("input 1 has the shape [2], want one value"));
  EXPECT_THAT(failure(Node("QGemm", 1, "com.microsoft")
                          .in(x)
                          .in(scale(1))
                          .in(zero)
                          .in(x)
                          .in(scale(1))
                          .in(zero)
                          .out(BELAY_DT_FLOAT32)),
              HasSubstr("there are 3 columns on the left and 2 rows on the right"));
}

}  // namespace
}  // namespace belay::cpu::testing
