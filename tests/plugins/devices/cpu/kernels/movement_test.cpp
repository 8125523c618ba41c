#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <numeric>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

Tensor counting(uint32_t dtype, std::vector<int64_t> dims) {
  std::vector<double> values(size_t(Tensor{dtype, dims, {}}.count()));
  std::iota(values.begin(), values.end(), 0);
  for (double& v : values) v = double(int64_t(v) % 113);
  return tensor_of(dtype, std::move(dims), values);
}

// The output whose element at each index is the input's at map(index).
template <class Map>
Tensor mapped(const Tensor& in, std::vector<int64_t> dims, Map map) {
  const std::vector<double> values = values_of(in);
  std::vector<double> out;
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t i = 0; i < Tensor{in.dtype, dims, {}}.count(); ++i) {
    int64_t rest = i;
    for (size_t d = dims.size(); d-- > 0; rest /= dims[d]) index[d] = rest % dims[d];
    const std::vector<int64_t> from = map(index);
    int64_t at = 0;
    for (size_t d = 0; d < from.size(); ++d) at = at * in.dims[d] + from[d];
    out.push_back(values[size_t(at)]);
  }
  return tensor_of(in.dtype, dims, out);
}

TEST(TransposeTest, EveryPermutationOfEverySizeOfElement) {
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {5}, {3, 4}, {0, 3}, {70, 130}, {1, 7, 1}, {2, 9, 33}, {3, 17, 5, 6}, {2, 3, 64, 8}};
  for (const uint32_t dtype :
       {BELAY_DT_UINT8, BELAY_DT_FLOAT16, BELAY_DT_FLOAT32, BELAY_DT_INT64, BELAY_DT_BOOL})
    for (const auto& dims : shapes) {
      std::vector<int64_t> perm(dims.size());
      std::iota(perm.begin(), perm.end(), 0);
      do {
        const Tensor x = counting(dtype, dims);
        std::vector<int64_t> out;
        for (const int64_t p : perm) out.push_back(dims[size_t(p)]);
        const Tensor expected = mapped(x, out, [&](const std::vector<int64_t>& index) {
          std::vector<int64_t> from(index.size());
          for (size_t d = 0; d < index.size(); ++d) from[size_t(perm[d])] = index[d];
          return from;
        });
        ASSERT_TRUE(close(result(Node("Transpose").in(x).attr("perm", perm)), expected))
            << text_of(dims) << text_of(perm);
      } while (std::next_permutation(perm.begin(), perm.end()));
    }
  EXPECT_THAT(failure(Node("Transpose").in(floats({1, 1}, {1})).attr("perm", std::vector<int64_t>{0, 0})),
              HasSubstr("perm is [0,0], want each axis of [1,1] once"));
}

TEST(SliceTest, StartsEndsAndStepsOfEverySign) {
  const Tensor x = counting(BELAY_DT_FLOAT32, {7, 5});
  for (const int64_t start : {INT64_MIN, int64_t{-8}, int64_t{-7}, int64_t{-3}, int64_t{0}, int64_t{2},
                              int64_t{6}, int64_t{7}, int64_t{100}, INT64_MAX})
    for (const int64_t end :
         {INT64_MIN, int64_t{-8}, int64_t{-4}, int64_t{0}, int64_t{3}, int64_t{7}, INT64_MAX})
      for (const int64_t step :
           {INT64_MIN, int64_t{-3}, int64_t{-1}, int64_t{1}, int64_t{2}, int64_t{50}, INT64_MAX}) {
        // Python's rule, element by element.
        std::vector<int64_t> rows;
        const auto wide = [](int64_t v) { return static_cast<__int128>(v); };
        const auto place = [&](int64_t at) {
          __int128 v = at < 0 ? wide(at) + 7 : wide(at);
          const __int128 low = step > 0 ? 0 : -1, high = step > 0 ? 7 : 6;
          return v < low ? low : v > high ? high : v;
        };
        for (__int128 i = place(start); step > 0 ? i < place(end) : i > place(end); i += step)
          rows.push_back(int64_t(i));
        const Tensor expected = mapped(x, {int64_t(rows.size()), 5}, [&](const std::vector<int64_t>& index) {
          return std::vector<int64_t>{rows[size_t(index[0])], index[1]};
        });
        ASSERT_TRUE(close(result(Node("Slice")
                                     .in(x)
                                     .in(ints({1}, {start}))
                                     .in(ints({1}, {end}))
                                     .in(ints({1}, {-2}))
                                     .in(ints({1}, {step}))),
                          expected))
            << start << ":" << end << ":" << step;
      }
  EXPECT_THAT(
      failure(
          Node("Slice").in(x).in(ints({1}, {0})).in(ints({1}, {1})).in(ints({1}, {0})).in(ints({1}, {0}))),
      HasSubstr("the step of axis 0 is 0"));
  EXPECT_THAT(failure(Node("Slice").in(x).in(ints({1}, {0})).in(ints({1}, {1})).in(ints({1}, {2}))),
              HasSubstr("an axis is 2, want -2 to 1"));
}

TEST(ReshapeTest, ZeroCopiesMinusOneFillsAndTheRestIsChecked) {
  const Tensor x = counting(BELAY_DT_INT16, {2, 3, 4});
  const auto dims = [&](const std::vector<int64_t>& shape) {
    return result(Node("Reshape").in(x).in(ints({int64_t(shape.size())}, shape))).dims;
  };
  EXPECT_EQ(dims({0, -1}), (std::vector<int64_t>{2, 12}));
  EXPECT_EQ(dims({4, 0, -1}), (std::vector<int64_t>{4, 3, 2}));
  EXPECT_EQ(
      result(Node("Reshape").in(counting(BELAY_DT_BOOL, {0, 3})).in(ints({2}, {3, 0})).attr("allowzero", 1))
          .dims,
      (std::vector<int64_t>{3, 0}));
  EXPECT_THAT(failure(Node("Reshape").in(x).in(ints({2}, {-1, -1}))), HasSubstr("has -1 twice"));
  EXPECT_THAT(failure(Node("Reshape").in(x).in(ints({2}, {5, -1}))),
              HasSubstr("does not divide the 24 elements"));
  EXPECT_THAT(failure(Node("Reshape").in(x).in(ints({1}, {23}))),
              HasSubstr("has 24 elements, the output's shape [23] has 23"));
  EXPECT_THAT(failure(Node("Reshape").in(x).in(ints({2}, {INT64_MAX, 4}))), HasSubstr("too large"));
}

TEST(ReshapeTest, FlattenSqueezeAndUnsqueezeTakeNegativeAxes) {
  const Tensor x = counting(BELAY_DT_FLOAT64, {1, 3, 1, 2});
  EXPECT_EQ(result(Node("Flatten").in(x).attr("axis", -1)).dims, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(result(Node("Flatten").in(x).attr("axis", 0)).dims, (std::vector<int64_t>{1, 6}));
  EXPECT_EQ(result(Node("Flatten").in(counting(BELAY_DT_INT8, {})).attr("axis", 0)).dims,
            (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(result(Node("Squeeze").in(x)).dims, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(result(Node("Squeeze").in(x).in(ints({1}, {-2}))).dims, (std::vector<int64_t>{1, 3, 2}));
  EXPECT_EQ(result(Node("Unsqueeze").in(x).in(ints({2}, {-1, 0}))).dims,
            (std::vector<int64_t>{1, 1, 3, 1, 2, 1}));
  EXPECT_THAT(failure(Node("Squeeze").in(x).in(ints({1}, {1}))),
              HasSubstr("dim 1 of the input's shape [1,3,1,2] is not 1"));
  EXPECT_THAT(failure(Node("Unsqueeze").in(x).in(ints({2}, {0, 0}))), HasSubstr("name axis 0 twice"));
}

TEST(ConcatTest, JoinsAlongAnyAxisAndNamesTheInputThatDoesNotFit) {
  const Tensor a = counting(BELAY_DT_FLOAT16, {2, 3, 4}), b = counting(BELAY_DT_FLOAT16, {2, 0, 4}),
               c = counting(BELAY_DT_FLOAT16, {2, 5, 4});
  const Tensor y = result(Node("Concat").in(a).in(b).in(c).attr("axis", -2));
  EXPECT_EQ(y.dims, (std::vector<int64_t>{2, 8, 4}));
  EXPECT_EQ(values_of(y)[32], values_of(a)[12]);
  EXPECT_EQ(values_of(y)[44], values_of(c)[20]);
  EXPECT_THAT(
      failure(Node("Concat").in(a).in(c).attr("axis", 0)),
      HasSubstr("input 1 has the shape [2,5,4], input 0 has [2,3,4]; they may differ along axis 0 only"));
}

TEST(SplitTest, PartsMustSumUpAndUnwantedOnesAreLeftOut) {
  const Tensor x = counting(BELAY_DT_FLOAT32, {3, 7});
  const Outcome outcome = Node("Split")
                              .in(x)
                              .in(ints({3}, {2, 0, 5}))
                              .attr("axis", 1)
                              .out(BELAY_DT_FLOAT32)
                              .no_out()
                              .out(BELAY_DT_FLOAT32)
                              .run();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.outputs[0].dims, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(values_of(outcome.outputs[2])[5], 9);
  EXPECT_THAT(failure(Node("Split")
                          .in(x)
                          .in(ints({2}, {2, 4}))
                          .attr("axis", 1)
                          .out(BELAY_DT_FLOAT32)
                          .out(BELAY_DT_FLOAT32)),
              HasSubstr("want 2 sizes that sum to 7"));
}

TEST(PadTest, ModesCropsAndTypes) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_INT8, BELAY_DT_FLOAT16, BELAY_DT_UINT64}) {
    const Tensor x = tensor_of(dtype, {3}, {1, 2, 3});
    EXPECT_TRUE(
        close(result(Node("Pad").in(x).in(ints({2}, {2, 1}))), tensor_of(dtype, {6}, {0, 0, 1, 2, 3, 0})));
    EXPECT_TRUE(close(result(Node("Pad").in(x).in(ints({2}, {-1, 2})).in(tensor_of(dtype, {}, {9}))),
                      tensor_of(dtype, {4}, {2, 3, 9, 9})));
    EXPECT_TRUE(close(result(Node("Pad").in(x).in(ints({2}, {2, 4})).attr("mode", "reflect")),
                      tensor_of(dtype, {9}, {3, 2, 1, 2, 3, 2, 1, 2, 3})));
    EXPECT_TRUE(close(result(Node("Pad").in(x).in(ints({2}, {2, -1})).attr("mode", "edge")),
                      tensor_of(dtype, {4}, {1, 1, 1, 2})));
  }
  EXPECT_THAT(failure(Node("Pad").in(floats({3}, {1, 2, 3})).in(ints({2}, {-2, -2}))),
              HasSubstr("leave no dim 0"));
  EXPECT_THAT(failure(Node("Pad").in(floats({0}, {})).in(ints({2}, {1, 1})).attr("mode", "edge")),
              HasSubstr("has nothing to take from"));
}

TEST(ExpandAndTileTest, RepeatOverZeroOneAndManyDims) {
  const Tensor x = counting(BELAY_DT_INT32, {3, 1});
  EXPECT_TRUE(close(result(Node("Expand").in(x).in(ints({3}, {2, 1, 4}))),
                    mapped(x, {2, 3, 4}, [](const std::vector<int64_t>& i) {
                      return std::vector<int64_t>{i[1], 0};
                    })));
  EXPECT_EQ(result(Node("Expand").in(x).in(ints({2}, {3, 0}))).dims, (std::vector<int64_t>{3, 0}));
  EXPECT_TRUE(close(result(Node("Tile").in(counting(BELAY_DT_FLOAT32, {2, 3})).in(ints({2}, {2, 3}))),
                    mapped(counting(BELAY_DT_FLOAT32, {2, 3}), {4, 9}, [](const std::vector<int64_t>& i) {
                      return std::vector<int64_t>{i[0] % 2, i[1] % 3};
                    })));
  EXPECT_EQ(result(Node("Tile").in(x).in(ints({2}, {0, 2}))).dims, (std::vector<int64_t>{0, 2}));
  EXPECT_THAT(failure(Node("Expand").in(x).in(ints({2}, {2, 2}))),
              HasSubstr("does not broadcast with [2,2]"));
}

TEST(ShapingTest, ShapesRangesAndFills) {
  EXPECT_TRUE(close(
      result(Node("Shape").in(counting(BELAY_DT_FLOAT32, {2, 0, 3})).attr("start", -2).out(BELAY_DT_INT64)),
      ints({2}, {0, 3})));
  EXPECT_TRUE(
      close(result(Node("Size").in(counting(BELAY_DT_FLOAT32, {2, 4})).out(BELAY_DT_INT64)), ints({}, {8})));
  EXPECT_TRUE(close(result(Node("Range").in(ints({}, {5})).in(ints({}, {-4})).in(ints({}, {-3}))),
                    ints({3}, {5, 2, -1})));
  EXPECT_EQ(result(Node("Range").in(ints({}, {5})).in(ints({}, {5})).in(ints({}, {1}))).dims,
            (std::vector<int64_t>{0}));
  EXPECT_TRUE(close(result(Node("Range").in(floats({}, {0})).in(floats({}, {1})).in(floats({}, {0.4f}))),
                    floats({3}, {0, 0.4f, 0.8f}), 1e-6));
  EXPECT_THAT(failure(Node("Range").in(ints({}, {1})).in(ints({}, {2})).in(ints({}, {0}))),
              HasSubstr("delta is 0"));
  EXPECT_TRUE(close(result(Node("ConstantOfShape")
                               .in(ints({2}, {2, 3}))
                               .attr("value", tensor<int32_t>({1}, {7}))
                               .out(BELAY_DT_INT32)),
                    tensor<int32_t>({2, 3}, {7, 7, 7, 7, 7, 7})));
  EXPECT_TRUE(
      close(result(Node("ConstantOfShape").in(ints({0}, {})).out(BELAY_DT_FLOAT32)), floats({}, {0})));
  EXPECT_THAT(failure(Node("ConstantOfShape").in(ints({1}, {-1})).out(BELAY_DT_FLOAT32)),
              HasSubstr("negative dim"));
  EXPECT_TRUE(close(result(Node("Trilu").in(counting(BELAY_DT_INT8, {2, 3})).in(ints({}, {INT64_MAX}))),
                    tensor<int8_t>({2, 3}, {0, 0, 0, 0, 0, 0})));
  EXPECT_TRUE(close(result(Node("EyeLike")
                               .in(counting(BELAY_DT_FLOAT32, {2, 3}))
                               .attr("k", 1)
                               .attr("dtype", int(BELAY_DT_INT64))
                               .out(BELAY_DT_INT64)),
                    ints({2, 3}, {0, 1, 0, 0, 0, 1})));
}

}  // namespace
}  // namespace belay::cpu::testing
