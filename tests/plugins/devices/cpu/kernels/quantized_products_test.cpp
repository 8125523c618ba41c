// ConvInteger, QLinearConv, MatMulInteger, QLinearMatMul.
#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

bool is_signed(uint32_t dtype) { return dtype == BELAY_DT_INT8; }
double saturate(double x, uint32_t dtype) {
  return std::fmin(std::fmax(x, is_signed(dtype) ? -128 : 0), is_signed(dtype) ? 127 : 255);
}

// Sums of a 2-D convolution with pads of 1 on all sides and one group per `group`.
std::vector<double> conv_sums(const Tensor& x, double x_zero, const Tensor& w,
                              const std::vector<double>& w_zero, int64_t group) {
  const std::vector<double> xs = values_of(x), ws = values_of(w);
  const int64_t n = x.dims[0], ic = x.dims[1], h = x.dims[2], wd = x.dims[3], oc = w.dims[0], wc = w.dims[1];
  std::vector<double> y;
  for (int64_t b = 0; b < n; ++b)
    for (int64_t o = 0; o < oc; ++o)
      for (int64_t r = 0; r < h; ++r)
        for (int64_t q = 0; q < wd; ++q) {
          double sum = 0;
          for (int64_t c = 0; c < wc; ++c)
            for (int64_t i = 0; i < 3; ++i)
              for (int64_t j = 0; j < 3; ++j) {
                const int64_t rr = r + i - 1, qq = q + j - 1;
                if (rr < 0 || rr >= h || qq < 0 || qq >= wd) continue;
                sum +=
                    (xs[size_t(((b * ic + o / (oc / group) * wc + c) * h + rr) * wd + qq)] - x_zero) *
                    (ws[size_t(((o * wc + c) * 3 + i) * 3 + j)] - w_zero[w_zero.size() == 1 ? 0 : size_t(o)]);
              }
          y.push_back(sum);
        }
  return y;
}

TEST(ConvIntegerTest, ZeroPointsAreTakenOffAndPaddingIsZeroAfterThat) {
  const std::vector<int64_t> pads(4, 1);
  for (const uint32_t xt : kByteTypes)
    for (const uint32_t wt : kByteTypes)
      for (const int64_t group : {1, 2})
        for (const int64_t zeros : {0, 1, 6}) {  // none, one, one for each output channel
          const Tensor x = bytes(xt, {2, 4, 9, 8}, 1), w = bytes(wt, {6, 4 / group, 3, 3}, 2);
          const Tensor x_zero = tensor_of(xt, {}, {3});
          const Tensor w_zero = zeros == 1 ? tensor_of(wt, {}, {2}) : tensor_of(wt, {6}, {1, 2, 3, 4, 5, 6});
          Node node("ConvInteger", 10);
          node.in(x).in(w);
          if (zeros) node.in(x_zero).in(w_zero);
          node.attr("pads", pads).attr("group", group).out(BELAY_DT_INT32);
          EXPECT_EQ(result(node),
                    tensor_of(BELAY_DT_INT32, {2, 6, 9, 8},
                              conv_sums(x, zeros ? 3 : 0, w,
                                        zeros ? values_of(w_zero) : std::vector<double>{0}, group)));
        }
}

TEST(QLinearConvTest, SumsAreScaledRoundedAndSaturated) {
  const std::vector<int64_t> pads(4, 1);
  for (const uint32_t xt : kByteTypes)
    for (const uint32_t wt : kByteTypes)
      for (const bool channels : {false, true}) {
        const Tensor x = bytes(xt, {1, 4, 9, 8}, 1), w = bytes(wt, {6, 4, 3, 3}, 2);
        const Tensor w_zero = channels ? tensor_of(wt, {6}, {1, 2, 3, 4, 5, 6}) : tensor_of(wt, {}, {2});
        const Tensor w_scale =
            channels ? floats({6}, {.1f, .2f, .03f, .04f, .05f, .06f}) : floats({}, {.02f});
        const Tensor bias = tensor<int32_t>({6}, {100, -2000, 3, 40, 500, 6});
        Node node("QLinearConv", 10);
        node.in(x).in(floats({}, {.5f})).in(tensor_of(xt, {}, {7})).in(w).in(w_scale).in(w_zero);
        node.in(floats({}, {2.5f})).in(tensor_of(xt, {}, {9})).in(bias).attr("pads", pads).out(xt);
        const std::vector<double> sums = conv_sums(x, 7, w, values_of(w_zero), 1);
        std::vector<double> y;
        for (size_t i = 0; i < sums.size(); ++i) {
          const size_t c = i / 72;
          const float factor = .5f / 2.5f * float(values_of(w_scale)[channels ? c : 0]);
          y.push_back(saturate(std::nearbyint(double(float(sums[i] + values_of(bias)[c]) * factor)) + 9, xt));
        }
        EXPECT_TRUE(
            close(result(node), tensor_of(xt, {1, 6, 9, 8}, y), 0, 1));  // a tie may fall the other way
      }
}

struct Product {
  std::vector<int64_t> a, b, out;
};
const Product kProducts[] = {{{5, 70}, {70, 50}, {5, 50}},
                             {{2, 5, 7}, {7, 3}, {2, 5, 3}},
                             {{2, 5, 7}, {2, 7, 3}, {2, 5, 3}},
                             {{1, 1}, {1, 1}, {1, 1}}};

std::vector<double> sums(const Tensor& a, const std::vector<double>& az, const Tensor& b,
                         const std::vector<double>& bz, const std::vector<int64_t>& out) {
  const std::vector<double> av = values_of(a), bv = values_of(b);
  const int64_t k = a.dims.back(), n = out.back(), m = out[out.size() - 2],
                batch = Tensor{0, out, {}}.count() / (m * n);
  std::vector<double> y;
  for (int64_t s = 0; s < batch; ++s)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += (av[size_t((s * m + i) * k + p)] - az[az.size() == 1 ? 0 : size_t(i)]) *
                 (bv[size_t(((b.dims.size() == 2 ? 0 : s) * k + p) * n + j)] -
                  bz[bz.size() == 1 ? 0 : size_t(j)]);
        y.push_back(sum);
      }
  return y;
}
std::vector<double> ramp(int64_t n) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(double(i + 1));
  return out;
}

TEST(MatMulIntegerTest, ZeroPointsOfRowsAndColumns) {
  for (const uint32_t at : kByteTypes)
    for (const uint32_t bt : kByteTypes)
      for (const Product& p : kProducts)
        for (const bool lines : {false, true}) {
          const Tensor a = bytes(at, p.a, 1), b = bytes(bt, p.b, 2);
          const int64_t m = p.out[p.out.size() - 2], n = p.out.back();
          const Tensor az = lines ? tensor_of(at, {m}, ramp(m)) : tensor_of(at, {}, {3});
          const Tensor bz = lines ? tensor_of(bt, {n}, ramp(n)) : tensor_of(bt, {}, {4});
          EXPECT_EQ(result(Node("MatMulInteger", 10).in(a).in(b).in(az).in(bz).out(BELAY_DT_INT32)),
                    tensor_of(BELAY_DT_INT32, p.out, sums(a, values_of(az), b, values_of(bz), p.out)))
              << text_of(p.a) << lines;
          EXPECT_EQ(result(Node("MatMulInteger", 10).in(a).in(b).out(BELAY_DT_INT32)),
                    tensor_of(BELAY_DT_INT32, p.out, sums(a, {0}, b, {0}, p.out)));
        }
}

TEST(QLinearMatMulTest, SumsAreScaledRoundedAndSaturated) {
  for (const uint32_t at : kByteTypes)
    for (const uint32_t bt : kByteTypes)
      for (const Product& p : kProducts) {
        const Tensor a = bytes(at, p.a, 1), b = bytes(bt, p.b, 2);
        Node node("QLinearMatMul", 10);
        node.in(a)
            .in(floats({}, {.25f}))
            .in(tensor_of(at, {}, {3}))
            .in(b)
            .in(floats({}, {.125f}))
            .in(tensor_of(bt, {}, {4}));
        node.in(floats({}, {4})).in(tensor_of(bt, {}, {5})).out(bt);
        std::vector<double> y;
        for (const double sum : sums(a, {3}, b, {4}, p.out))
          y.push_back(saturate(std::nearbyint(sum * .25 * .125 / 4) + 5, bt));
        EXPECT_EQ(result(node), tensor_of(bt, p.out, y)) << text_of(p.a);
      }
}

TEST(QuantizedProductsTest, FailuresNameTheOperand) {
  const Tensor a = bytes(BELAY_DT_UINT8, {2, 3}, 1), b = bytes(BELAY_DT_INT8, {3, 4}, 2);
  EXPECT_THAT(
      failure(Node("MatMulInteger", 10).in(a).in(b).in(bytes(BELAY_DT_UINT8, {3}, 1)).out(BELAY_DT_INT32)),
      HasSubstr("left zero point has the shape [3], want one value, [2]"));
  EXPECT_THAT(
      failure(Node("MatMulInteger", 10).in(a).in(b).in(bytes(BELAY_DT_INT8, {}, 1)).out(BELAY_DT_INT32)),
      HasSubstr("left zero point is of type int8, want uint8"));
}

}  // namespace
}  // namespace belay::cpu::testing
