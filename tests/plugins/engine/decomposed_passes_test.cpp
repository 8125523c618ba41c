// LayerNormalization and Gelu from their parts.
#include "engine_fixture.hpp"

#include <passes/passes.hpp>

namespace belay::testing {
namespace {

using Names = std::vector<std::string>;

struct NormOptions {
  std::vector<int64_t> axes = {-1}, variance_axes = {-1};
  int64_t keepdims = 1;
  bool square_by_mul = false, swapped = false, bias = true, other_mean = false;
  std::vector<int64_t> scale_dims = {4}, exponent_dims = {}, epsilon_dims = {};
};

struct NormGraph : GraphMaker {
  explicit NormGraph(const NormOptions& o) {
    const uint32_t x = input("x", {dim("n"), dim(3), dim(4)}), y = input("y", {dim("n"), dim(3), dim(4)});
    const uint32_t mean = node("ReduceMean", 13, {o.other_mean ? y : x});
    b.set_ints(last, "axes", o.axes);
    b.set_int(last, "keepdims", o.keepdims);
    const uint32_t d = node("Sub", 14, {x, mean});
    const uint32_t square =
        o.square_by_mul ? node("Mul", 14, {d, d}) : node("Pow", 15, {d, constant<float>({2}, o.exponent_dims)});
    const uint32_t variance = node("ReduceMean", 13, {square});
    b.set_ints(last, "axes", o.variance_axes);
    const uint32_t epsilon = constant<float>({.25f}, o.epsilon_dims);
    const uint32_t sum = o.swapped ? node("Add", 14, {epsilon, variance}) : node("Add", 14, {variance, epsilon});
    const uint32_t divided = node("Div", 14, {d, node("Sqrt", 13, {sum})});
    int64_t count = 1;
    for (const int64_t n : o.scale_dims) count *= n;
    const uint32_t scale = constant<float>(std::vector<float>(size_t(count), 2), o.scale_dims);
    uint32_t out = o.swapped ? node("Mul", 14, {scale, divided}) : node("Mul", 14, {divided, scale});
    if (o.bias) out = node("Add", 14, {out, constant<float>(std::vector<float>(size_t(count), 3), o.scale_dims)});
    output(out);
  }
  ir::Model after(uint64_t changes) {
    ir::Model model = import(freeze());
    EXPECT_EQ(*passes::join_layer_norms(model, {}), changes);
    EXPECT_TRUE(passes::remove_dead_code(model, {}).ok());
    return model;
  }
};

TEST(LayerNormPassTest, PartsBecomeOneNode) {
  for (const bool square_by_mul : {false, true})
    for (const bool swapped : {false, true}) {
      NormOptions o;
      o.square_by_mul = square_by_mul, o.swapped = swapped;
      const ir::Model model = NormGraph(o).after(1);
      ASSERT_EQ(ops_of(model), Names{"LayerNormalization"});
      const ir::Node& norm = model.nodes[model.graphs[0].nodes[0]];
      EXPECT_EQ(norm.inputs.size(), 3u);
      EXPECT_EQ(norm.int_or("axis", 0), 2);
      EXPECT_EQ(norm.float_or("epsilon", 0), .25f);
    }
}

TEST(LayerNormPassTest, OverTwoAxesAndWithoutBias) {
  NormOptions o;
  o.axes = o.variance_axes = {2, 1};
  o.scale_dims = {3, 4};
  o.bias = false;
  const ir::Model model = NormGraph(o).after(1);
  ASSERT_EQ(ops_of(model), Names{"LayerNormalization"});
  EXPECT_EQ(model.nodes[model.graphs[0].nodes[0]].int_or("axis", 0), 1);
}

TEST(LayerNormPassTest, NotWhereThePartsAreNoNormalisation) {
  NormOptions o[8];
  o[0].axes = o[0].variance_axes = {1};      // no last axes
  o[1].variance_axes = {1, 2};               // two different means
  o[2].scale_dims = {1};                     // one scale for all
  o[3].scale_dims = {3, 4};                  // a scale for each of two axes
  o[4].other_mean = true;                    // the mean of something else
  o[5].axes = {0, 2};                        // with a gap
  o[6].epsilon_dims = {1, 1, 1, 1};          // a constant that adds a dim
  o[7].axes = o[7].variance_axes = {1, 2};   // of rank 4 these are other axes
  o[7].exponent_dims = {1, 1, 1, 1};
  o[7].scale_dims = {3, 4};
  for (const NormOptions& one : o) NormGraph(one).after(0);
}

enum class Half { kFirst, kLast, kInput };
struct GeluGraph : GraphMaker {
  GeluGraph(Half half, bool by_mul, float root, float one, bool vector = false) {
    const uint32_t x = input("x", {dim("n"), dim(4)});
    const uint32_t c = constant<float>({by_mul ? 1 / root : root}, vector ? std::vector<int64_t>{1, 1, 1} : std::vector<int64_t>{});
    const uint32_t erf = node("Erf", 13, {by_mul ? node("Mul", 14, {c, x}) : node("Div", 14, {x, c})});
    const uint32_t sum = node("Add", 14, {erf, constant<float>({one}, {})});
    const uint32_t h = constant<float>({.5f}, {});
    if (half == Half::kLast) output(node("Mul", 14, {node("Mul", 14, {x, sum}), h}));
    if (half == Half::kFirst) output(node("Mul", 14, {x, node("Mul", 14, {h, sum})}));
    if (half == Half::kInput) output(node("Mul", 14, {node("Mul", 14, {x, h}), sum}));
  }
  ir::Model after(uint64_t changes) {
    ir::Model model = import(freeze());
    EXPECT_EQ(*passes::join_gelus(model, {}), changes);
    EXPECT_TRUE(passes::remove_dead_code(model, {}).ok());
    return model;
  }
};

TEST(GeluPassTest, PartsInAnyOrderBecomeOneNode) {
  for (const Half half : {Half::kFirst, Half::kLast, Half::kInput})
    for (const bool by_mul : {false, true})
      EXPECT_EQ(ops_of(GeluGraph(half, by_mul, 1.41421356f, 1).after(1)), Names{"Gelu"});
}

TEST(GeluPassTest, NotWhereANumberOrAShapeIsAnother) {
  GeluGraph(Half::kLast, false, 1.5f, 1).after(0);
  GeluGraph(Half::kLast, false, 1.41421356f, 2).after(0);
  GeluGraph(Half::kLast, false, 1.41421356f, 1, true).after(0);  // a constant that adds a dim
}

}  // namespace
}  // namespace belay::testing
