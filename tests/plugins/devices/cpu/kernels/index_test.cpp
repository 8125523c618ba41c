#include "node_runner.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace belay::cpu::testing {
namespace {

using ::testing::HasSubstr;

TEST(GatherTest, PicksRunsAndSaysWhichIndexIsOutOfBounds) {
  const Tensor x = floats({3, 2}, {0, 1, 2, 3, 4, 5});
  EXPECT_TRUE(close(result(Node("Gather").in(x).in(ints({2, 1}, {-1, 0}))), floats({2, 1, 2}, {4, 5, 0, 1})));
  EXPECT_TRUE(close(result(Node("Gather").in(x).in(tensor<int32_t>({}, {1})).attr("axis", -1)),
                    floats({3}, {1, 3, 5})));
  EXPECT_EQ(result(Node("Gather").in(x).in(ints({0}, {}))).dims, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(failure(Node("Gather").in(x).in(ints({3}, {0, -4, 3}))),
            "Gather: element 1 of indices is -4, out of bounds for axis 0 with 3 elements.");
  EXPECT_THAT(failure(Node("Gather").in(floats({0, 2}, {})).in(ints({1}, {0}))),
              HasSubstr("out of bounds for axis 0 with 0 elements"));
  EXPECT_THAT(failure(Node("Gather").in(floats({}, {1})).in(ints({1}, {0}))), HasSubstr("axis is 0"));
}

TEST(GatherTest, ElementsAndTuplesAreChecked) {
  const Tensor x = tensor<int16_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(close(result(Node("GatherElements").in(x).in(ints({2, 2}, {2, -3, 0, 1})).attr("axis", 1)),
                    tensor<int16_t>({2, 2}, {3, 1, 4, 5})));
  EXPECT_THAT(failure(Node("GatherElements").in(x).in(ints({1, 1}, {3})).attr("axis", 1)),
              HasSubstr("element 0 of indices is 3, out of bounds for axis 1 with 3"));
  EXPECT_THAT(failure(Node("GatherElements").in(x).in(ints({3, 1}, {0, 0, 0})).attr("axis", 1)),
              HasSubstr("reach beyond data"));
  EXPECT_TRUE(
      close(result(Node("GatherND").in(x).in(ints({2, 2}, {0, -1, 1, 0}))), tensor<int16_t>({2}, {3, 4})));
  EXPECT_TRUE(close(result(Node("GatherND").in(x).in(ints({2, 1}, {1, 2})).attr("batch_dims", 1)),
                    tensor<int16_t>({2}, {2, 6})));
  EXPECT_THAT(failure(Node("GatherND").in(x).in(ints({1, 2}, {0, 7}))),
              HasSubstr("element 1 of indices is 7, out of bounds for axis 1"));
  EXPECT_THAT(failure(Node("GatherND").in(x).in(ints({1, 3}, {0, 0, 0}))),
              HasSubstr("tuples of 3 positions, want at most 2"));
}

TEST(ScatterTest, ReducesInEveryTypeAndLeavesNothingOutOfBounds) {
  for (const uint32_t dtype :
       {BELAY_DT_FLOAT32, BELAY_DT_FLOAT16, BELAY_DT_FLOAT64, BELAY_DT_INT8, BELAY_DT_UINT32}) {
    const Tensor x = tensor_of(dtype, {4}, {1, 2, 3, 4}), updates = tensor_of(dtype, {3}, {5, 2, 6});
    const Tensor at = ints({3}, {1, 1, -1});
    const auto scatter = [&](const char* how) {
      return result(Node("ScatterElements").in(x).in(at).in(updates).attr("reduction", how));
    };
    EXPECT_TRUE(close(scatter("none"), tensor_of(dtype, {4}, {1, 2, 3, 6})));
    EXPECT_TRUE(close(scatter("add"), tensor_of(dtype, {4}, {1, 9, 3, 10})));
    EXPECT_TRUE(close(scatter("mul"), tensor_of(dtype, {4}, {1, 20, 3, 24})));
    EXPECT_TRUE(close(scatter("max"), tensor_of(dtype, {4}, {1, 5, 3, 6})));
    EXPECT_TRUE(close(result(Node("ScatterND")
                                 .in(tensor_of(dtype, {2, 2}, {1, 2, 3, 4}))
                                 .in(ints({1, 1}, {-1}))
                                 .in(tensor_of(dtype, {1, 2}, {7, 8}))
                                 .attr("reduction", "add")),
                      tensor_of(dtype, {2, 2}, {1, 2, 10, 12})));
  }
  EXPECT_THAT(failure(Node("ScatterND").in(floats({2}, {1, 2})).in(ints({1, 1}, {2})).in(floats({1}, {1}))),
              HasSubstr("element 0 of indices is 2"));
  EXPECT_THAT(
      failure(Node("ScatterElements").in(floats({2}, {1, 2})).in(ints({1}, {-3})).in(floats({1}, {1}))),
      HasSubstr("element 0 of indices is -3"));
  EXPECT_THAT(
      failure(Node("ScatterElements").in(floats({2}, {1, 2})).in(ints({1}, {0})).in(floats({2}, {1, 1}))),
      HasSubstr("want that of indices"));
}

TEST(SelectTest, WhereBroadcastsThreeWaysInEverySize) {
  for (const uint32_t dtype :
       {BELAY_DT_UINT8, BELAY_DT_BFLOAT16, BELAY_DT_FLOAT32, BELAY_DT_FLOAT64, BELAY_DT_BOOL})
    EXPECT_TRUE(close(result(Node("Where")
                                 .in(tensor_of(BELAY_DT_BOOL, {2, 1}, {1, 0}))
                                 .in(tensor_of(dtype, {3}, {1, 0, 1}))
                                 .in(tensor_of(dtype, {}, {0}))
                                 .out(dtype)),
                      tensor_of(dtype, {2, 3}, {1, 0, 1, 0, 0, 0})));
}

TEST(SelectTest, MaxMinSumAndMeanOfManyKeepNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = floats({3}, {1, nan, 3}), b = floats({1}, {2}), c = floats({2, 1}, {0, 5});
  EXPECT_TRUE(close(result(Node("Max").in(a).in(b).in(c)), floats({2, 3}, {2, nan, 3, 5, nan, 5})));
  EXPECT_TRUE(close(result(Node("Min").in(a).in(b)), floats({3}, {1, nan, 2})));
  EXPECT_TRUE(close(result(Node("Mean").in(b).in(c)), floats({2, 1}, {1, 3.5f})));
  EXPECT_TRUE(close(
      result(
          Node("Sum").in(tensor_of(BELAY_DT_FLOAT16, {2}, {1, 2})).in(tensor_of(BELAY_DT_FLOAT16, {}, {3}))),
      tensor_of(BELAY_DT_FLOAT16, {2}, {4, 5})));
  EXPECT_TRUE(close(result(Node("Max").in(tensor<uint8_t>({2}, {1, 200})).in(tensor<uint8_t>({2}, {100, 3}))),
                    tensor<uint8_t>({2}, {100, 200})));
}

TEST(SortTest, TopKOrdersEveryTypeWithTiesByIndex) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT16, BELAY_DT_BFLOAT16, BELAY_DT_FLOAT64,
                               BELAY_DT_INT8, BELAY_DT_UINT64, BELAY_DT_INT32}) {
    const Tensor x = tensor_of(dtype, {2, 4}, {3, 1, 3, 2, 0, 7, 5, 7});
    Outcome top = Node("TopK").in(x).in(ints({1}, {3})).out(dtype).out(BELAY_DT_INT64).run();
    ASSERT_TRUE(top.status.ok()) << top.status.message();
    EXPECT_TRUE(close(top.outputs[0], tensor_of(dtype, {2, 3}, {3, 3, 2, 7, 7, 5})));
    EXPECT_TRUE(close(top.outputs[1], ints({2, 3}, {0, 2, 3, 1, 3, 2})));
    top = Node("TopK")
              .in(x)
              .in(ints({1}, {1}))
              .attr("largest", 0)
              .attr("axis", 0)
              .out(dtype)
              .out(BELAY_DT_INT64)
              .run();
    EXPECT_TRUE(close(top.outputs[1], ints({1, 4}, {1, 0, 0, 0})));
  }
  EXPECT_THAT(
      failure(
          Node("TopK").in(floats({2}, {1, 2})).in(ints({1}, {3})).out(BELAY_DT_FLOAT32).out(BELAY_DT_INT64)),
      HasSubstr("K is 3, want 0 to 2"));
  EXPECT_TRUE(close(result(Node("TopK")
                               .in(floats({4}, {-1, std::numeric_limits<float>::quiet_NaN(), -0.0f, 0}))
                               .in(ints({1}, {4}))
                               .out(BELAY_DT_FLOAT32)
                               .out(BELAY_DT_INT64)),
                    floats({4}, {std::numeric_limits<float>::quiet_NaN(), 0, 0, -1})));
}

TEST(SortTest, ArgMaxTakesTheFirstOrTheLast) {
  const Tensor x = floats({2, 3}, {1, 5, 5, 7, 7, 0});
  EXPECT_TRUE(close(result(Node("ArgMax").in(x).attr("axis", 1).out(BELAY_DT_INT64)), ints({2, 1}, {1, 0})));
  EXPECT_TRUE(close(result(Node("ArgMax")
                               .in(x)
                               .attr("axis", -1)
                               .attr("keepdims", 0)
                               .attr("select_last_index", 1)
                               .out(BELAY_DT_INT64)),
                    ints({2}, {2, 1})));
  EXPECT_TRUE(close(result(Node("ArgMin").in(x).out(BELAY_DT_INT64)), ints({1, 3}, {0, 0, 1})));
  EXPECT_THAT(failure(Node("ArgMax").in(floats({0}, {})).out(BELAY_DT_INT64)),
              HasSubstr("no element along axis 0"));
}

TEST(SortTest, DataDependentShapes) {
  EXPECT_TRUE(close(result(Node("NonZero").in(tensor<int8_t>({2, 2}, {1, 0, -1, 3})).out(BELAY_DT_INT64)),
                    ints({2, 3}, {0, 1, 1, 0, 0, 1})));
  EXPECT_EQ(result(Node("NonZero").in(floats({0, 3}, {})).out(BELAY_DT_INT64)).dims,
            (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(result(Node("NonZero").in(floats({}, {2})).out(BELAY_DT_INT64)).dims, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(close(result(Node("Compress")
                               .in(floats({3, 2}, {1, 2, 3, 4, 5, 6}))
                               .in(tensor_of(BELAY_DT_BOOL, {2}, {0, 1}))
                               .attr("axis", 0)),
                    floats({1, 2}, {3, 4})));
  Outcome unique = Node("Unique")
                       .in(tensor<uint16_t>({5}, {3, 1, 3, 2, 1}))
                       .attr("sorted", 0)
                       .out(BELAY_DT_UINT16)
                       .out(BELAY_DT_INT64)
                       .out(BELAY_DT_INT64)
                       .out(BELAY_DT_INT64)
                       .run();
  ASSERT_TRUE(unique.status.ok()) << unique.status.message();
  EXPECT_TRUE(close(unique.outputs[0], tensor<uint16_t>({3}, {3, 1, 2})));
  EXPECT_TRUE(close(unique.outputs[1], ints({3}, {0, 1, 3})));
  EXPECT_TRUE(close(unique.outputs[2], ints({5}, {0, 1, 0, 2, 1})));
  EXPECT_TRUE(close(unique.outputs[3], ints({3}, {2, 2, 1})));
}

TEST(SortTest, CumSumRunsForwardsBackwardsAndExclusive) {
  for (const uint32_t dtype : {BELAY_DT_FLOAT32, BELAY_DT_FLOAT16, BELAY_DT_INT32, BELAY_DT_UINT64}) {
    const Tensor x = tensor_of(dtype, {2, 3}, {1, 2, 3, 4, 5, 6});
    EXPECT_TRUE(close(result(Node("CumSum").in(x).in(ints({}, {-1}))),
                      tensor_of(dtype, {2, 3}, {1, 3, 6, 4, 9, 15})));
    EXPECT_TRUE(close(
        result(Node("CumSum").in(x).in(tensor<int32_t>({}, {0})).attr("exclusive", 1).attr("reverse", 1)),
        tensor_of(dtype, {2, 3}, {4, 5, 6, 0, 0, 0})));
  }
}

TEST(OneHotTest, MarksPlacesAndIgnoresThoseOutside) {
  EXPECT_TRUE(close(result(Node("OneHot")
                               .in(ints({3}, {1, -1, 9}))
                               .in(ints({}, {3}))
                               .in(floats({2}, {-1, 2}))
                               .attr("axis", 0)
                               .out(BELAY_DT_FLOAT32)),
                    floats({3, 3}, {-1, -1, -1, 2, -1, -1, -1, 2, -1})));
}

}  // namespace
}  // namespace belay::cpu::testing
