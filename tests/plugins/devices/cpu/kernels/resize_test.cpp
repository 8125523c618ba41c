#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

// The definition, for two dims: the place in the input for an output place, then a sum over all places of the
// input with the weight that their distance has.
struct ResizeCase {
  int64_t h, w;
  double scale_h, scale_w;
  std::string mode, coordinates, nearest = "round_prefer_floor";
  bool by_sizes = false, exclude = false;
};
double source(const ResizeCase& c, double x, double in, double out, double scale) {
  if (scale == 1) return x;
  if (c.coordinates == "half_pixel") return (x + 0.5) / scale - 0.5;
  if (c.coordinates == "pytorch_half_pixel") return out == 1 ? 0 : (x + 0.5) / scale - 0.5;
  if (c.coordinates == "align_corners") return out == 1 ? 0 : x * (in - 1) / (in * scale - 1);
  if (c.coordinates == "asymmetric") return x / scale;
  return (x + 0.5) / scale;  // tf_half_pixel_for_nn
}
std::map<int64_t, double> weights(const ResizeCase& c, double at, int64_t in) {
  std::map<int64_t, double> out;
  const auto inside = [&](double place) { return int64_t(std::fmin(std::fmax(place, 0), double(in - 1))); };
  if (c.mode == "nearest") {
    const double low = std::floor(at), rest = at - low;
    const bool up = c.nearest == "ceil"                 ? rest > 0
                    : c.nearest == "floor"              ? false
                    : c.nearest == "round_prefer_floor" ? rest > 0.5
                                                        : rest >= 0.5;
    out[inside(low + up)] = 1;
    return out;
  }
  double sum = 0;
  for (double place = std::floor(at) - 1; place <= std::floor(at) + 2; ++place) {
    const double d = std::fabs(place - at), a = -0.75;
    double weight = d < 1 ? 1 - d : 0;
    if (c.mode == "cubic")
      weight = d <= 1  ? (a + 2) * d * d * d - (a + 3) * d * d + 1
               : d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a
                       : 0;
    if (c.exclude && (place < 0 || place > double(in - 1))) weight = 0;
    sum += weight;
    out[inside(place)] += weight;
  }
  if (c.exclude)
    for (auto& [place, weight] : out) weight /= sum;
  return out;
}

TEST(ResizeTest, EachModeAndCoordinateTransformMatchesTheDefinition) {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* coordinates :
         {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"})
      for (const char* nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
        for (const auto& [scale_h, scale_w] :
             {std::pair<double, double>{2, 2}, {1, 2}, {0.5, 0.75}, {3, 0.5}, {1, 1}, {2.25, 1.5}})
          for (const bool by_sizes : {false, true})
            for (const bool exclude : {false, true}) {
              if (std::string(mode) != "nearest" && std::string(nearest) != "floor") continue;
              if (std::string(mode) != "cubic" && exclude) continue;
              ResizeCase c{5, 8, scale_h, scale_w, mode, coordinates, nearest, by_sizes, exclude};
              const int64_t oh = int64_t(std::floor(5 * scale_h)), ow = int64_t(std::floor(8 * scale_w));
              if (by_sizes) c.scale_h = double(oh) / 5, c.scale_w = double(ow) / 8;
              const Tensor x = tensor_of(BELAY_DT_FLOAT32, {2, 3, 5, 8}, numbers(240, -1, 1));
              const std::vector<double> xs = values_of(x);
              std::vector<double> y;
              for (int64_t p = 0; p < 6; ++p)
                for (int64_t i = 0; i < oh; ++i)
                  for (int64_t j = 0; j < ow; ++j) {
                    double sum = 0;
                    for (const auto& [r, wr] : weights(c, source(c, double(i), 5, double(oh), c.scale_h), 5))
                      for (const auto& [q, wq] :
                           weights(c, source(c, double(j), 8, double(ow), c.scale_w), 8))
                        sum += wr * wq * xs[size_t((p * 5 + r) * 8 + q)];
                    y.push_back(sum);
                  }
              Node node("Resize", 13);
              node.in(x).absent();
              if (by_sizes)
                node.absent().in(ints({4}, {2, 3, oh, ow}));
              else
                node.in(floats({4}, {1, 1, float(scale_h), float(scale_w)}));
              node.attr("mode", mode)
                  .attr("coordinate_transformation_mode", coordinates)
                  .attr("nearest_mode", nearest);
              node.attr("exclude_outside", int64_t{exclude});
              ASSERT_TRUE(close(result(node), tensor_of(x.dtype, {2, 3, oh, ow}, y), 1e-5, 1e-5))
                  << mode << " " << coordinates << " " << nearest << " " << scale_h << " x " << scale_w
                  << " sizes " << by_sizes;
            }
}

TEST(ResizeTest, FirstFormTakesFloorUpwardsAndCeilDownwards) {
  const Tensor x = floats({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(result(Node("Resize", 10).in(x).in(floats({4}, {1, 1, 0.6f, 0.6f})).attr("mode", "nearest")),
            floats({1, 1, 1, 2}, {1, 3}));
  EXPECT_EQ(result(Node("Upsample", 9).in(x).in(floats({4}, {1, 1, 1, 1.5f})).attr("mode", "nearest")),
            floats({1, 1, 2, 6}, {1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8}));
  EXPECT_EQ(
      result(Node("Upsample", 7).in(x).attr("scales", std::vector<float>{1, 1, 1, 2}).attr("mode", "linear")),
      floats({1, 1, 2, 8}, {1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 4, 5, 5.5f, 6, 6.5f, 7, 7.5f, 8, 8}));
}

TEST(ResizeTest, CropTakesTheExtrapolationValueOutside) {
  const Tensor x = floats({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  Node node("Resize", 13);
  node.in(x).in(floats({8}, {0, 0, 0, 0.5f, 1, 1, 1, 1.5f})).absent().in(ints({4}, {1, 1, 2, 4}));
  node.attr("mode", "linear")
      .attr("coordinate_transformation_mode", "tf_crop_and_resize")
      .attr("extrapolation_value", 10.0f);
  // Columns at 1.5, 2.5, 3.5 and 4.5 of the input; from 3 on there is nothing.
  EXPECT_EQ(result(node), floats({1, 1, 2, 4}, {2.5f, 3.5f, 10, 10, 6.5f, 7.5f, 10, 10}));
}

TEST(ResizeTest, ScalesThatAreNoWholeMultipleKeepTheirOwnLength) {
  // The resized length is 2.4, not 2: the second column is at 1 * 3 / 1.4.
  const Tensor x = floats({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(close(result(Node("Resize", 13)
                               .in(x)
                               .absent()
                               .in(floats({4}, {1, 1, 0.6f, 0.6f}))
                               .attr("mode", "linear")
                               .attr("coordinate_transformation_mode", "align_corners")),
                    floats({1, 1, 1, 2}, {1, 3.142857f}), 1e-5));
}

TEST(ResizeTest, OtherTypesAndRanks) {
  const Tensor bytes = tensor<uint8_t>({2, 3}, {0, 100, 200, 50, 150, 250});
  EXPECT_EQ(result(Node("Resize", 13).in(bytes).absent().in(floats({2}, {1, 2})).attr("mode", "linear")),
            tensor<uint8_t>({2, 6}, {0, 25, 75, 125, 175, 200, 50, 75, 125, 175, 225, 250}));
  EXPECT_EQ(result(Node("Resize", 13).in(bytes).absent().in(floats({2}, {2, 1})).attr("mode", "nearest")),
            tensor<uint8_t>({4, 3}, {0, 100, 200, 0, 100, 200, 50, 150, 250, 50, 150, 250}));
  const Tensor half = tensor_of(BELAY_DT_FLOAT16, {4}, {1, 2, 3, 4});
  EXPECT_EQ(result(Node("Resize", 13).in(half).absent().in(floats({1}, {0.5f})).attr("mode", "linear")),
            tensor_of(BELAY_DT_FLOAT16, {2}, {1.5, 3.5}));
}

TEST(ResizeTest, FailuresNameTheInput) {
  const Tensor x = floats({2, 3}, std::vector<float>(6));
  EXPECT_THAT(failure(Node("Resize", 13).in(x).absent().in(floats({1}, {2}))),
              HasSubstr("has 1 values, want 2"));
  EXPECT_THAT(failure(Node("Resize", 13).in(x).absent().in(floats({2}, {0, 1}))),
              HasSubstr("scales[0] is 0"));
  EXPECT_THAT(failure(Node("Resize", 13).in(x)), HasSubstr("neither scales nor sizes"));
  EXPECT_THAT(failure(Node("Resize", 13).in(x).absent().in(floats({2}, {1, 1})).attr("mode", "quintic")),
              HasSubstr("mode is 'quintic'"));
}

}  // namespace
}  // namespace belay::cpu::testing
