#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <optional>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

struct PoolCase {
  std::vector<int64_t> x, kernel, strides = {}, pads = {}, dilations = {};
  int64_t ceil_mode = 0;
};
int64_t at_or(const std::vector<int64_t>& list, size_t i, int64_t otherwise) {
  return list.empty() ? otherwise : list[i];
}

std::vector<int64_t> out_dims(const PoolCase& c) {
  std::vector<int64_t> out{c.x[0], c.x[1]};
  for (size_t i = 0; i < c.kernel.size(); ++i) {
    const double stride = double(at_or(c.strides, i, 1)), before = double(at_or(c.pads, i, 0));
    const double room = double(c.x[i + 2]) + before + double(at_or(c.pads, i + c.kernel.size(), 0)) -
                        double((c.kernel[i] - 1) * at_or(c.dilations, i, 1) + 1);
    double size = (c.ceil_mode ? std::ceil(room / stride) : std::floor(room / stride)) + 1;
    while (c.ceil_mode && (size - 1) * stride >= double(c.x[i + 2]) + before) --size;
    out.push_back(int64_t(size));
  }
  return out;
}

// All places that a window sees: (flat place in the input or nothing for padding); what is beyond the padding
// is no place.
std::vector<std::optional<int64_t>> places(const PoolCase& c, const std::vector<int64_t>& o) {
  std::vector<std::optional<int64_t>> out;
  const size_t rank = c.kernel.size();
  for (int64_t k = 0; k < count_of(c.kernel); ++k) {
    const std::vector<int64_t> at = unravel(k, c.kernel);
    int64_t flat = o[0] * c.x[1] + o[1];
    bool inside = true, padded = true;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t i =
          o[d + 2] * at_or(c.strides, d, 1) + at[d] * at_or(c.dilations, d, 1) - at_or(c.pads, d, 0);
      inside = inside && i >= 0 && i < c.x[d + 2];
      padded = padded && i < c.x[d + 2] + at_or(c.pads, d + rank, 0);
      flat = flat * c.x[d + 2] + i;
    }
    if (inside) out.push_back(flat);
    if (!inside && padded) out.push_back(std::nullopt);
  }
  return out;
}

const std::vector<PoolCase>& pool_cases() {
  static const std::vector<PoolCase> all = {
      {{1, 2, 6, 7}, {2, 2}, {2, 2}},
      {{2, 3, 9, 33}, {3, 3}, {1, 1}, {1, 1, 1, 1}},
      {{1, 2, 9, 35}, {3, 3}, {2, 2}, {1, 1, 1, 1}},
      {{1, 2, 10, 12}, {3, 2}, {3, 3}, {0, 1, 2, 0}, {2, 3}},
      {{1, 1, 6, 6}, {3, 3}, {2, 2}, {}, {}, 1},
      {{1, 1, 7, 8}, {3, 3}, {2, 2}, {0, 0, 1, 1}, {}, 1},
      {{1, 1, 5, 5}, {1, 1}, {2, 2}, {0, 0, 1, 1}, {}, 1},  // the last window would begin behind the input
      {{2, 2, 11}, {4}, {3}, {1, 2}},
      {{1, 2, 5, 6, 7}, {2, 3, 2}, {2, 1, 1}, {1, 0, 1, 0, 1, 0}},
      {{0, 2, 5, 5}, {2, 2}},
      {{1, 2, 12, 70}, {2, 2}, {2, 2}},
      {{1, 1, 9, 40}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {}, 1},
      {{1, 1, 8, 90}, {2, 5}, {1, 2}, {0, 3, 1, 2}, {1, 2}},
  };
  return all;
}
Node pool(const char* op, uint32_t version, const PoolCase& c, const Tensor& x) {
  Node node(op, version);
  node.in(x).attr("kernel_shape", c.kernel).attr("ceil_mode", c.ceil_mode);
  if (!c.strides.empty()) node.attr("strides", c.strides);
  if (!c.pads.empty()) node.attr("pads", c.pads);
  if (!c.dilations.empty()) node.attr("dilations", c.dilations);
  return node;
}

void check_max_pool() {
  for (const uint32_t dtype :
       {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16, BELAY_DT_INT8, BELAY_DT_UINT8})
    for (const PoolCase& c : pool_cases())
      for (const int64_t order : {0, 1}) {
        const Tensor x = tensor_of(dtype, c.x, numbers(count_of(c.x), dtype == BELAY_DT_UINT8 ? 0 : -99, 99));
        const std::vector<double> values = values_of(x);
        std::vector<double> y;
        std::vector<int64_t> indices;
        const std::vector<int64_t> out = out_dims(c), spatial(c.x.begin() + 2, c.x.end());
        for (int64_t at = 0; at < count_of(out); ++at) {
          std::optional<int64_t> best;
          for (const auto place : places(c, unravel(at, out)))
            if (place && (!best || values[size_t(*place)] > values[size_t(*best)])) best = place;
          y.push_back(values[size_t(*best)]);
          int64_t index = *best;
          if (order == 1) {  // the first spatial dim runs fastest
            const int64_t plane = count_of(spatial);
            const std::vector<int64_t> i = unravel(*best % plane, spatial);
            index = 0;
            for (size_t d = spatial.size(); d-- > 0;) index = index * spatial[d] + i[d];
            index += *best / plane * plane;
          }
          indices.push_back(index);
        }
        const Tensor expected = tensor_of(dtype, out, y);
        EXPECT_EQ(result(pool("MaxPool", 12, c, x)), expected) << text_of(c.x) << " " << dtype_name(dtype);
        Node both = pool("MaxPool", 12, c, x);
        both.attr("storage_order", order).out(dtype).out(BELAY_DT_INT64);
        const Outcome outcome = both.run();
        ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
        EXPECT_EQ(outcome.outputs[0], expected) << text_of(c.x) << " " << dtype_name(dtype);
        EXPECT_EQ(outcome.outputs[1], ints(out, indices)) << text_of(c.x) << " order " << order;
      }
}
TEST(MaxPoolTest, ValuesAndPlacesMatchTheDefinition) { each_micro(check_max_pool); }

TEST(MaxPoolTest, NotANumberWinsWhereverItStands) {
  each_micro([] {
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t at : {0, 1, 17, 40, 76, 77 * 3 + 5}) {
        std::vector<float> x(77 * 4);
        for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 13) - 20;
        x[size_t(at)] = NAN;
        Node node("MaxPool", 12);
        node.in(floats({1, 1, 4, 77}, x)).attr("kernel_shape", std::vector<int64_t>{2, 3});
        node.attr("strides", std::vector<int64_t>{1, stride});
        const std::vector<double> y = values_of(result(node));
        const int64_t columns = (77 - 3) / stride + 1;
        for (int64_t i = 0; i < int64_t(y.size()); ++i) {
          const int64_t row = i / columns, column = i % columns * stride;
          const bool seen = at / 77 >= row && at / 77 < row + 2 && at % 77 >= column && at % 77 < column + 3;
          EXPECT_EQ(std::isnan(y[size_t(i)]), seen) << "stride " << stride << " at " << at << " output " << i;
        }
      }
  });
}

TEST(AveragePoolTest, PaddingCountsOnlyWhenAskedFor) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16})
    for (const PoolCase& c : pool_cases())
      for (const int64_t count_pads : {0, 1}) {
        const Tensor x = tensor_of(dtype, c.x, numbers(count_of(c.x), -9, 9));
        const std::vector<double> values = values_of(x);
        std::vector<double> y;
        const std::vector<int64_t> out = out_dims(c);
        for (int64_t at = 0; at < count_of(out); ++at) {
          double sum = 0, count = 0;
          for (const auto place : places(c, unravel(at, out))) {
            if (place) sum += values[size_t(*place)];
            if (place || count_pads) ++count;
          }
          y.push_back(sum / count);
        }
        Node node = pool("AveragePool", 19, c, x);
        node.attr("count_include_pad", count_pads);
        EXPECT_TRUE(
            close(result(node), tensor_of(dtype, out, y), dtype == BELAY_DT_FLOAT16 ? 1e-3 : 1e-5, 1e-5))
            << text_of(c.x) << " count_include_pad " << count_pads << " " << dtype_name(dtype);
      }
}

TEST(LpPoolTest, MatchesTheDefinitionForEachPower) {
  for (const PoolCase& c : pool_cases())
    for (const int64_t p : {1, 2, 3}) {
      const Tensor x = tensor_of(BELAY_DT_FLOAT32, c.x, numbers(count_of(c.x), -2, 2));
      const std::vector<double> values = values_of(x);
      std::vector<double> y;
      const std::vector<int64_t> out = out_dims(c);
      for (int64_t at = 0; at < count_of(out); ++at) {
        double sum = 0;
        for (const auto place : places(c, unravel(at, out)))
          if (place) sum += std::pow(std::fabs(values[size_t(*place)]), double(p));
        y.push_back(std::pow(sum, 1.0 / double(p)));
      }
      EXPECT_TRUE(
          close(result(pool("LpPool", 18, c, x).attr("p", p)), tensor_of(x.dtype, out, y), 1e-5, 1e-6))
          << text_of(c.x);
    }
}

TEST(GlobalPoolTest, EachPoolMatchesTheDefinitionInEachType) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16})
    for (const std::vector<int64_t>& dims :
         {std::vector<int64_t>{2, 3, 7, 9}, {1, 2, 100}, {1, 40, 2, 3, 4}, {2, 3}}) {
      const Tensor x = tensor_of(dtype, dims, numbers(count_of(dims), -2, 2));
      const std::vector<double> values = values_of(x);
      const int64_t planes = dims[0] * dims[1], pixels = count_of(dims) / planes;
      std::vector<double> average, most, lp;
      for (int64_t i = 0; i < planes; ++i) {
        double sum = 0, squares = 0, best = -1e9;
        for (int64_t j = 0; j < pixels; ++j) {
          const double v = values[size_t(i * pixels + j)];
          sum += v, squares += v * v, best = std::max(best, v);
        }
        average.push_back(sum / double(pixels)), most.push_back(best), lp.push_back(std::sqrt(squares));
      }
      std::vector<int64_t> out = dims;
      std::fill(out.begin() + 2, out.end(), 1);
      const double tol = dtype == BELAY_DT_FLOAT64   ? 1e-12
                         : dtype == BELAY_DT_FLOAT32 ? 1e-5
                         : dtype == BELAY_DT_FLOAT16 ? 1e-3
                                                     : 8e-3;
      EXPECT_TRUE(
          close(result(Node("GlobalAveragePool", 1).in(x)), tensor_of(dtype, out, average), tol, tol));
      EXPECT_EQ(result(Node("GlobalMaxPool", 1).in(x)), tensor_of(dtype, out, most));
      EXPECT_TRUE(close(result(Node("GlobalLpPool", 2).in(x)), tensor_of(dtype, out, lp), tol, tol));
    }
}

// Only what a window meets is looked at, however far it extends.
TEST(PoolTest, AKernelFarLargerThanTheInputIsNoWork) {
  const Tensor x = floats({1, 1, 1, 3}, {1, 5, 3});
  for (const char* op : {"MaxPool", "AveragePool", "LpPool"}) {
    Node node(op, 11);
    node.in(x)
        .attr("kernel_shape", std::vector<int64_t>{INT32_MAX, INT32_MAX})
        .attr("auto_pad", "SAME_UPPER");
    const float all = op == std::string("MaxPool")       ? 5
                      : op == std::string("AveragePool") ? 3
                                                         : std::sqrt(35.0f);
    EXPECT_TRUE(close(result(node), floats({1, 1, 1, 3}, {all, all, all}), 1e-6, 1e-6)) << op;
  }
}

TEST(PoolTest, FailuresNameTheAttribute) {
  const Tensor x = floats({1, 1, 3, 3}, std::vector<float>(9));
  EXPECT_THAT(failure(Node("MaxPool", 12).in(x)), HasSubstr("kernel_shape is missing"));
  EXPECT_THAT(failure(Node("MaxPool", 12).in(x).attr("kernel_shape", std::vector<int64_t>{4, 4})),
              HasSubstr("reaches over 4"));
  EXPECT_THAT(failure(Node("MaxPool", 12).in(x).attr("kernel_shape", std::vector<int64_t>{0, 1})),
              HasSubstr("[0,1]"));
  EXPECT_THAT(failure(Node("LpPool", 12).in(x).attr("kernel_shape", std::vector<int64_t>{1, 1}).attr("p", 0)),
              HasSubstr("p is 0"));
}

}  // namespace
}  // namespace belay::cpu::testing
