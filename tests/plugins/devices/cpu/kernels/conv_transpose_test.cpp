#include "node_runner.hpp"

#include <gmock/gmock.h>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

struct ConvTransposeCase {
  std::vector<int64_t> x, w;  // w: inputs, outputs / groups, spatial ...
  std::vector<int64_t> strides = {}, pads = {}, dilations = {}, extra = {}, shape = {};
  int64_t group = 1;
  const char* auto_pad = nullptr;
};

// Each output looks for the inputs and kernel positions that lead to it.
Tensor expected(const ConvTransposeCase& c, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const size_t rank = c.x.size() - 2;
  const auto value = [](const std::vector<int64_t>& list, size_t i, int64_t otherwise) {
    return list.empty() ? otherwise : list[i];
  };
  std::vector<int64_t> out{c.x[0], c.w[1] * c.group}, begin;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t stride = value(c.strides, i, 1), reach = (c.w[i + 2] - 1) * value(c.dilations, i, 1) + 1;
    const int64_t whole = stride * (c.x[i + 2] - 1) + value(c.extra, i, 0) + reach;
    const std::string mode = c.auto_pad ? c.auto_pad : "NOTSET";
    if (c.shape.empty() && mode == "NOTSET") {
      begin.push_back(value(c.pads, i, 0));
      out.push_back(whole - value(c.pads, i, 0) - value(c.pads, i + rank, 0));
    } else {
      out.push_back(c.shape.empty() ? c.x[i + 2] * stride : c.shape[i]);
      const int64_t all = std::max<int64_t>(0, whole - out.back());
      begin.push_back(mode == "SAME_UPPER" ? all / 2 : all - all / 2);
    }
  }
  const std::vector<double> xs = values_of(x), ws = values_of(w), bs = values_of(bias);
  const std::vector<int64_t> kernel(c.w.begin() + 2, c.w.end());
  const int64_t per_group = c.x[1] / c.group;
  std::vector<double> y;
  for (int64_t at = 0; at < count_of(out); ++at) {
    const std::vector<int64_t> o = unravel(at, out);
    double sum = bs[size_t(o[1])];
    const int64_t g = o[1] / c.w[1];
    for (int64_t ic = g * per_group; ic < (g + 1) * per_group; ++ic)
      for (int64_t k = 0; k < count_of(kernel); ++k) {
        const std::vector<int64_t> kk = unravel(k, kernel);
        int64_t from = o[0] * c.x[1] + ic;
        bool inside = true;
        for (size_t d = 0; d < rank; ++d) {
          const int64_t place = o[d + 2] + begin[d] - kk[d] * value(c.dilations, d, 1),
                        stride = value(c.strides, d, 1);
          inside = inside && place >= 0 && place % stride == 0 && place / stride < c.x[d + 2];
          from = from * c.x[d + 2] + place / stride;
        }
        if (inside)
          sum += xs[size_t(from)] * ws[size_t((ic * c.w[1] + o[1] % c.w[1]) * count_of(kernel) + k)];
      }
    y.push_back(sum);
  }
  return tensor_of(x.dtype, out, y);
}

TEST(ConvTransposeTest, MatchesTheDefinitionInAllGeometriesAndTypes) {
  const ConvTransposeCase cases[] = {
      {{1, 3, 5, 6}, {3, 4, 3, 3}},
      {{2, 4, 7, 5}, {4, 3, 2, 2}, {2, 2}},
      {{1, 4, 7, 5}, {4, 6, 4, 4}, {2, 2}, {1, 1, 1, 1}},
      {{1, 2, 3, 3}, {2, 2, 3, 3}, {3, 2}, {1, 2, 1, 2}},
      {{1, 2, 3, 3}, {2, 2, 3, 3}, {3, 2}, {}, {}, {1, 1}},
      {{1, 1, 3, 3}, {1, 2, 3, 3}, {3, 2}, {}, {}, {}, {10, 8}},
      {{1, 1, 3, 3}, {1, 2, 3, 3}, {3, 2}, {}, {}, {1, 1}, {10, 8}},
      {{1, 1, 3, 3}, {1, 2, 2, 2}, {}, {}, {2, 2}},
      {{1, 4, 6, 6}, {4, 2, 3, 3}, {2, 2}, {1, 1, 1, 1}, {}, {1, 1}, {}, 2},
      {{1, 4, 6, 6}, {4, 1, 3, 3}, {2, 2}, {}, {}, {}, {}, 4},
      {{2, 3, 9}, {3, 5, 4}, {3}, {1, 0}},
      {{1, 2, 3, 4, 5}, {2, 3, 2, 3, 2}, {2, 1, 2}, {0, 1, 0, 1, 1, 0}},
      {{1, 2, 4, 5}, {2, 3, 3, 3}, {2, 2}, {}, {}, {}, {}, 1, "SAME_UPPER"},
      {{1, 2, 4, 5}, {2, 3, 3, 3}, {2, 3}, {}, {}, {}, {}, 1, "SAME_LOWER"},
      {{1, 2, 18, 18}, {2, 40, 4, 4}, {2, 2}, {1, 1, 1, 1}},  // several chunks of output channels
      {{0, 3, 5, 6}, {3, 4, 3, 3}},
  };
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16})
    for (const ConvTransposeCase& c : cases) {
      const Tensor x = tensor_of(dtype, c.x, numbers(count_of(c.x), -1, 1, 1)),
                   w = tensor_of(dtype, c.w, numbers(count_of(c.w), -1, 1, 2));
      const Tensor b = tensor_of(dtype, {c.w[1] * c.group}, numbers(c.w[1] * c.group, -1, 1, 3));
      Node node("ConvTranspose", 11);
      node.in(x).in(w).in(b).attr("group", c.group);
      if (!c.strides.empty()) node.attr("strides", c.strides);
      if (!c.pads.empty()) node.attr("pads", c.pads);
      if (!c.dilations.empty()) node.attr("dilations", c.dilations);
      if (!c.extra.empty()) node.attr("output_padding", c.extra);
      if (!c.shape.empty()) node.attr("output_shape", c.shape);
      if (c.auto_pad) node.attr("auto_pad", c.auto_pad);
      const double tol = dtype == BELAY_DT_FLOAT64   ? 1e-12
                         : dtype == BELAY_DT_FLOAT32 ? 1e-5
                         : dtype == BELAY_DT_FLOAT16 ? 1e-3
                                                     : 8e-3;
      EXPECT_TRUE(close(result(node), expected(c, x, w, b), tol, tol))
          << text_of(c.x) << " " << text_of(c.w) << " " << dtype_name(dtype);
    }
}

TEST(ConvTransposeTest, FailuresNameTheAttributeOrShape) {
  const Tensor x = floats({1, 2, 3, 3}, std::vector<float>(18)),
               w = floats({2, 2, 3, 3}, std::vector<float>(36));
  EXPECT_THAT(
      failure(Node("ConvTranspose", 11).in(x).in(w).attr("output_padding", std::vector<int64_t>{1, 1})),
      HasSubstr("output_padding is [1,1]"));
  EXPECT_THAT(failure(Node("ConvTranspose", 11).in(x).in(w).attr("pads", std::vector<int64_t>{3, 3, 3, 3})),
              HasSubstr("larger than the 5"));
  EXPECT_THAT(failure(Node("ConvTranspose", 11).in(x).in(w).attr("output_shape", std::vector<int64_t>{3})),
              HasSubstr("output_shape is [3], want 2"));
  EXPECT_THAT(failure(Node("ConvTranspose", 11).in(x).in(floats({3, 2, 3, 3}, std::vector<float>(54)))),
              HasSubstr("[3,2,3,3]"));
}

}  // namespace
}  // namespace belay::cpu::testing
