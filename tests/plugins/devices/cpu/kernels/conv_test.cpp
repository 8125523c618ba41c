#include "heavy/micro.hpp"
#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <array>
#include <set>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

// A convolution as its definition reads: for each output, over all terms, each looked up by its index.
struct ConvCase {
  std::vector<int64_t> x, w;
  std::vector<int64_t> strides = {}, pads = {}, dilations = {};
  int64_t group = 1;
  bool bias = true;
  const char* auto_pad = nullptr;
};

struct Geometry {
  std::vector<int64_t> out, begin, stride, dilation;
};
Geometry geometry(const ConvCase& c) {
  const size_t rank = c.x.size() - 2;
  Geometry g;
  for (size_t i = 0; i < rank; ++i) {
    g.stride.push_back(c.strides.empty() ? 1 : c.strides[i]);
    g.dilation.push_back(c.dilations.empty() ? 1 : c.dilations[i]);
    const int64_t reach = (c.w[i + 2] - 1) * g.dilation[i] + 1, in = c.x[i + 2];
    const std::string mode = c.auto_pad ? c.auto_pad : "NOTSET";
    int64_t before = 0, after = 0;
    if (mode == "NOTSET" && !c.pads.empty()) before = c.pads[i], after = c.pads[i + rank];
    if (mode.starts_with("SAME")) {
      const int64_t out = in / g.stride[i] + (in % g.stride[i] != 0);
      const int64_t all = std::max<int64_t>(0, (out - 1) * g.stride[i] + reach - in);
      before = mode == "SAME_LOWER" ? all - all / 2 : all / 2;
      after = all - before;
    }
    g.begin.push_back(before);
    g.out.push_back((in + before + after - reach) / g.stride[i] + 1);
  }
  return g;
}

Tensor expected(const ConvCase& c, const Tensor& x, const Tensor& w, const Tensor* bias) {
  const Geometry g = geometry(c);
  const std::vector<double> xs = values_of(x), ws = values_of(w),
                            bs = bias ? values_of(*bias) : std::vector<double>();
  std::vector<int64_t> dims{c.x[0], c.w[0]};
  dims.insert(dims.end(), g.out.begin(), g.out.end());
  const std::vector<int64_t> kernel(c.w.begin() + 1, c.w.end());
  std::vector<double> ys;
  const int64_t terms = count_of(kernel);
  for (int64_t at = 0; at < count_of(dims); ++at) {
    const auto o = unravel(at, dims);
    double sum = bias ? bs[size_t(o[1])] : 0;
    for (int64_t t = 0; t < terms; ++t) {
      const auto k = unravel(t, kernel);
      int64_t from = o[0] * c.x[1] + o[1] / (c.w[0] / c.group) * c.w[1] + k[0];
      bool inside = true;
      for (size_t d = 0; d < g.out.size(); ++d) {
        const int64_t i = o[d + 2] * g.stride[d] + k[d + 1] * g.dilation[d] - g.begin[d];
        inside = inside && i >= 0 && i < c.x[d + 2];
        from = from * c.x[d + 2] + i;
      }
      if (inside) sum += xs[size_t(from)] * ws[size_t(o[1] * terms + t)];
    }
    ys.push_back(sum);
  }
  return tensor_of(x.dtype, dims, ys);
}

void check(const ConvCase& c, uint32_t dtype, double rtol, double atol) {
  const Tensor x = tensor_of(dtype, c.x, numbers(count_of(c.x), -1, 1, 1));
  const Tensor w = tensor_of(dtype, c.w, numbers(count_of(c.w), -1, 1, 2));
  const Tensor b = tensor_of(dtype, {c.w[0]}, numbers(c.w[0], -1, 1, 3));
  Node node("Conv", 11);
  node.in(x).in(w);
  if (c.bias) node.in(b);
  if (!c.strides.empty()) node.attr("strides", c.strides);
  if (!c.pads.empty()) node.attr("pads", c.pads);
  if (!c.dilations.empty()) node.attr("dilations", c.dilations);
  if (c.auto_pad) node.attr("auto_pad", c.auto_pad);
  node.attr("group", c.group);
  const Tensor wanted = expected(c, x, w, c.bias ? &b : nullptr);
  each_micro([&] {
    EXPECT_TRUE(close(result(node), wanted, rtol, atol))
        << "x " << text_of(c.x) << " w " << text_of(c.w) << " group " << c.group << " " << dtype_name(dtype);
  });
}

const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> all = {
      {{1, 3, 9, 11}, {5, 3, 3, 3}, {}, {1, 1, 1, 1}},
      {{2, 4, 7, 7}, {9, 4, 1, 1}},
      {{2, 4, 7, 8}, {9, 4, 1, 1}, {2, 2}},
      {{1, 6, 12, 13}, {8, 3, 3, 2}, {2, 1}, {1, 0, 2, 1}, {1, 2}, 2},
      {{1, 20, 14, 14}, {70, 20, 3, 3}, {}, {1, 1, 1, 1}},  // several blocks of k, of rows and of columns
      {{2, 20, 7, 7}, {96, 20, 3, 3}, {}, {1, 1, 1, 1}},    // fewer pixels than channels
      {{1, 40, 7, 7}, {300, 40, 1, 1}},
      {{1, 8, 13, 9}, {96, 4, 3, 3}, {2, 2}, {1, 0, 0, 1}, {}, 2},
      {{1, 3, 37, 64}, {9, 3, 3, 3}, {2, 2}, {1, 1, 1, 1}},  // few terms: planes of the input
      {{2, 5, 90, 48}, {11, 5, 5, 5}, {}, {2, 2, 2, 2}},
      {{1, 12, 31, 8}, {20, 12, 3, 1}},  // rows one behind the other
      {{1, 6, 40, 16}, {20, 3, 1, 3}, {}, {0, 1, 0, 1}, {}, 2},
      {{1, 4, 24, 32}, {8, 4, 3, 3}, {3, 1}, {3, 2, 0, 2}, {1, 2}},
      {{1, 3, 6, 16}, {8, 3, 3, 3}, {}, {9, 1, 0, 1}, {}, 1, false},
      {{1, 3, 40, 40}, {17, 3, 7, 7}, {2, 2}, {3, 3, 3, 3}},
      {{3, 2, 17}, {4, 2, 5}, {3}, {2, 1}},  // one spatial dim
      {{2, 2, 5, 6, 7}, {3, 2, 3, 2, 3}, {2, 1, 2}, {1, 0, 1, 0, 1, 1}},
      {{1, 2, 4, 5, 6}, {4, 1, 2, 3, 2}, {}, {}, {2, 1, 1}, 2},
      {{2, 8, 15, 13}, {8, 1, 3, 3}, {}, {1, 1, 1, 1}, {}, 8},  // each channel on its own
      {{1, 8, 15, 14}, {8, 1, 3, 3}, {2, 2}, {0, 0, 1, 1}, {}, 8},
      {{1, 5, 16, 9}, {15, 1, 5, 5}, {}, {2, 2, 2, 2}, {}, 5},
      {{1, 4, 9, 9}, {4, 1, 5, 5}, {2, 2}, {2, 2, 2, 2}, {}, 4},
      {{1, 4, 9, 20}, {8, 1, 1, 3}, {1, 3}, {0, 1, 0, 4}, {1, 2}, 4},
      {{1, 4, 33}, {4, 1, 3}, {}, {1, 1}, {}, 4},
      {{1, 2, 70, 75}, {2, 1, 3, 3}, {}, {1, 1, 1, 1}, {}, 2},  // several bands of rows
      {{1, 2, 71, 130}, {2, 1, 3, 3}, {2, 2}, {0, 0, 1, 1}, {}, 2},
      {{2, 3, 41, 90}, {3, 1, 5, 5}, {}, {2, 1, 3, 2}, {}, 3},
      {{1, 2, 50, 81}, {4, 1, 5, 5}, {2, 2}, {2, 2, 2, 2}, {}, 2},
      {{1, 2, 40, 95}, {2, 1, 3, 3}, {}, {5, 5, 5, 5}, {5, 5}, 2},
      {{1, 2, 45, 70}, {2, 1, 7, 3}, {3, 3}, {3, 1, 2, 0}, {}, 2},
      {{1, 3, 7, 7}, {3, 1, 3, 3}, {}, {1, 1, 1, 1}, {}, 3},  // rows of half a vector
      {{1, 3, 7, 5}, {3, 1, 5, 5}, {}, {2, 2, 2, 2}, {}, 3},
      {{1, 3, 14, 14}, {3, 1, 3, 3}, {2, 2}, {1, 1, 1, 1}, {}, 3},
      {{1, 2, 3, 60, 33}, {2, 1, 2, 3, 3}, {1, 2, 1}, {1, 1, 1, 0, 1, 1}, {}, 2},
      {{1, 2, 30, 30}, {2, 1, 3, 3}, {}, {40, 2, 0, 35}, {}, 2},  // bands and columns wholly in the padding
      {{1, 3, 4, 5, 6}, {3, 1, 2, 2, 2}, {}, {1, 1, 1, 0, 0, 0}, {}, 3},
      {{1, 3, 10, 9}, {4, 3, 3, 4}, {2, 3}, {}, {}, 1, false, "SAME_UPPER"},
      {{1, 3, 10, 9}, {4, 3, 4, 2}, {1, 2}, {}, {}, 1, true, "SAME_LOWER"},
      {{1, 3, 10, 9}, {4, 3, 3, 3}, {2, 2}, {}, {2, 2}, 1, true, "SAME_UPPER"},
      {{1, 3, 10, 9}, {4, 3, 3, 3}, {}, {9, 9, 9, 9}, {}, 1, true, "VALID"},
      {{1, 1, 3, 3}, {1, 1, 3, 3}, {}, {3, 3, 3, 3}},  // windows wholly in the padding
      {{1, 2, 3, 3}, {2, 1, 3, 3}, {}, {4, 4, 4, 4}, {}, 2},
      {{1, 1, 1, 300}, {2, 1, 1, 1}},
      {{0, 3, 5, 5}, {2, 3, 3, 3}},                        // an empty batch
      {{2, 3, 5, 5}, {0, 3, 3, 3}, {}, {}, {}, 1, false},  // no output channel
  };
  return all;
}

TEST(ConvTest, Float32MatchesTheDefinitionInAllGeometries) {
  for (const ConvCase& c : conv_cases()) check(c, BELAY_DT_FLOAT32, 1e-5, 1e-4);
}
TEST(ConvTest, Float64MatchesTheDefinitionInAllGeometries) {
  for (const ConvCase& c : conv_cases()) check(c, BELAY_DT_FLOAT64, 1e-12, 1e-12);
}
TEST(ConvTest, SixteenBitFloatsAreSummedAsFloat) {
  // With sums in 16 bits the error would grow with the number of terms.
  for (const ConvCase& c : conv_cases()) check(c, BELAY_DT_FLOAT16, 1e-3, 1e-3);
  for (const ConvCase& c : conv_cases()) check(c, BELAY_DT_BFLOAT16, 8e-3, 8e-3);
}

TEST(ConvTest, TilesMatchTheDefinitionInAllGeometries) {
  // Of 4 x 4, of 2 x 2 where that fills the vectors as well; several blocks of tiles, some not whole. Where
  // tiles would not be faster there are none.
  std::set<std::string> used, wanted_of;
  for (const ConvCase& c : std::vector<ConvCase>{
           {{1, 24, 14, 14}, {24, 24, 3, 3}, {}, {1, 1, 1, 1}},
           {{2, 17, 9, 33}, {40, 17, 3, 3}, {}, {0, 2, 1, 0}},
           {{1, 16, 25, 38}, {21, 16, 3, 3}, {}, {1, 1, 1, 1}, {}, 1, false},
           {{1, 40, 18, 18}, {56, 20, 3, 3}, {}, {}, {}, 2},
           {{1, 128, 4, 8}, {160, 128, 3, 3}, {}, {1, 1, 1, 1}},  // weights of 4 x 4 would be large
           {{1, 64, 7, 7}, {72, 64, 3, 3}, {}, {1, 1, 1, 1}},
           {{1, 64, 8, 8}, {64, 64, 3, 3}, {}, {1, 1, 1, 1}, {}, 1, true, "SAME_UPPER"},
           {{1, 33, 12, 17}, {32, 33, 3, 3}, {}, {7, 0, 3, 6}},
           {{1, 20, 3, 130}, {24, 20, 3, 3}, {}, {0, 1, 0, 1}},
       }) {
    const Tensor x = tensor_of(BELAY_DT_FLOAT32, c.x, numbers(count_of(c.x), -1, 1, 1));
    const Tensor w = tensor_of(BELAY_DT_FLOAT32, c.w, numbers(count_of(c.w), -1, 1, 2));
    const Tensor b = tensor_of(BELAY_DT_FLOAT32, {c.w[0]}, numbers(c.w[0], -1, 1, 3));
    Node node("Conv", 11);
    node.in(x).in(w).precision(BELAY_PRECISION_WINOGRAD).attr("group", c.group);
    if (c.bias) node.in(b);
    if (c.auto_pad)
      node.attr("auto_pad", c.auto_pad);
    else if (!c.pads.empty())
      node.attr("pads", c.pads);
    const Tensor wanted = expected(c, x, w, c.bias ? &b : nullptr);
    each_micro([&] {
      const Outcome outcome = node.run();
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      used.insert(outcome.implementation);
      for (const char* side : {"winograd of 2:", "winograd of 4:"})
        wanted_of.insert(side + std::string(micro().name));
      EXPECT_TRUE(close(outcome.outputs.at(0), wanted, 1e-5, 1e-4))
          << outcome.implementation << " x " << text_of(c.x) << " w " << text_of(c.w);
    });
  }
  EXPECT_THAT(used, ::testing::IsSupersetOf(wanted_of));
}

TEST(ConvTest, FailuresNameTheAttributeOrShape) {
  const Tensor x = tensor_of(BELAY_DT_FLOAT32, {1, 4, 5, 5}, numbers(100, -1, 1));
  const Tensor w = tensor_of(BELAY_DT_FLOAT32, {2, 4, 3, 3}, numbers(72, -1, 1));
  EXPECT_THAT(failure(Node("Conv").in(x).in(w).attr("group", 3)), HasSubstr("group = 3"));
  EXPECT_THAT(failure(Node("Conv").in(x).in(w).attr("group", 0)), HasSubstr("group = 0"));
  EXPECT_THAT(failure(Node("Conv").in(x).in(w).attr("pads", std::vector<int64_t>{1, 1})),
              HasSubstr("pads has 2 values, want 4"));
  EXPECT_THAT(failure(Node("Conv").in(x).in(w).attr("strides", std::vector<int64_t>{0, 1})),
              HasSubstr("strides is [0,1]"));
  EXPECT_THAT(failure(Node("Conv").in(x).in(w).attr("dilations", std::vector<int64_t>{4, 4})),
              HasSubstr("reaches over 9"));
  EXPECT_THAT(failure(Node("Conv").in(x).in(w).attr("auto_pad", "SAME")), HasSubstr("auto_pad is 'SAME'"));
  EXPECT_THAT(failure(Node("Conv").in(x).in(w).attr("kernel_shape", std::vector<int64_t>{3, 2})),
              HasSubstr("kernel_shape is [3,2]"));
  EXPECT_THAT(failure(Node("Conv").in(x).in(w).in(floats({3}, {1, 2, 3}))),
              HasSubstr("the bias has the shape [3], want [2]"));
  EXPECT_THAT(failure(Node("Conv").in(floats({4, 5}, std::vector<float>(20))).in(w)),
              HasSubstr("want equal ranks"));
}

}  // namespace
}  // namespace belay::cpu::testing
