// Rewrites: what they may do, and where they must keep away.
#include "engine_fixture.hpp"

#include <passes/passes.hpp>

namespace belay::testing {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

const ir::Node& node_of(const ir::Model& model, size_t i) { return model.nodes[model.graphs[0].nodes[i]]; }
Floats floats(const ir::Model& model, ir::ValueId value) {
  const auto values = ir::as_doubles(*model.constant_of(value));
  return Floats(values->begin(), values->end());
}
using Names = std::vector<std::string>;

struct ConvGraph : GraphMaker {
  uint32_t x = input("x", {dim(1), dim(1), dim(4), dim(4)});
  uint32_t w = constant<float>({1, 2}, {2, 1, 1, 1});
  uint32_t conv = node("Conv", 11, {x, w});
};

TEST(AffineFoldingTest, ScaleAndShiftGoIntoTheWeights) {
  ConvGraph g;
  const uint32_t scaled = g.node("Mul", 14, {g.conv, g.constant<float>({3, 5}, {1, 2, 1, 1})});
  g.output(g.node("Add", 14, {scaled, g.constant<float>({7}, {1})}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_affine(model, {}), 2u);
  EXPECT_EQ(ops_of(model), Names{"Conv"});
  EXPECT_EQ(floats(model, node_of(model, 0).inputs[1]), (Floats{3, 10}));
  EXPECT_EQ(floats(model, node_of(model, 0).inputs[2]), (Floats{7, 7}));
}

TEST(AffineFoldingTest, NotWhereTheProductHasAnotherReader) {
  ConvGraph g;
  g.output(g.node("Mul", 14, {g.conv, g.constant<float>({3}, {1})}));
  g.output(g.node("Relu", 14, {g.conv}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_affine(model, {}), 0u);
}

TEST(AffineFoldingTest, NotWhereTheProductIsAnOutput) {
  ConvGraph g;
  g.output(g.node("Mul", 14, {g.conv, g.constant<float>({3}, {1})}));
  g.output(g.conv);
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_affine(model, {}), 0u);
}

TEST(AffineFoldingTest, NotWhereTheFactorWouldAddADim) {
  ConvGraph g;
  g.output(g.node("Mul", 14, {g.conv, g.constant<float>({3}, {1, 1, 1, 1, 1})}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_affine(model, {}), 0u);
}

TEST(AffineFoldingTest, NotWhereTheFactorDiffersAlongTheWidth) {
  ConvGraph g;
  g.output(g.node("Mul", 14, {g.conv, g.constant<float>({1, 2, 3, 4}, {4})}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_affine(model, {}), 0u);
}

TEST(AffineFoldingTest, NotWhereTheConvolutionIsSubtractedFromAConstant) {
  ConvGraph g;
  g.output(g.node("Sub", 14, {g.constant<float>({3}, {1}), g.conv}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_affine(model, {}), 0u);
}

TEST(AffineFoldingTest, BatchNormalizationFolds) {
  ConvGraph g;
  g.output(g.node("BatchNormalization", 15,
                  {g.conv, g.constant<float>({2, 4}, {2}), g.constant<float>({1, 1}, {2}),
                   g.constant<float>({3, 0}, {2}), g.constant<float>({1, 4}, {2})}));
  g.b.set_float(g.last, "epsilon", 0);
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_affine(model, {}), 1u);
  EXPECT_EQ(floats(model, node_of(model, 0).inputs[1]), (Floats{2, 4}));
  EXPECT_EQ(floats(model, node_of(model, 0).inputs[2]), (Floats{-5, 1}));
}

TEST(VersionLiftTest, AttributesBecomeInputs) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(1), D::dim(3)});
  const uint32_t y = g.node("Squeeze", 11, {x});
  g.b.set_ints(g.last, "axes", Ints{0});
  g.output(g.node("Clip", 6, {y}));
  g.b.set_float(g.last, "min", -1);
  ir::Model model = import(g.freeze());
  ASSERT_TRUE(passes::lift_versions(model, {}).ok());
  EXPECT_EQ(node_of(model, 0).version, 13u);
  EXPECT_EQ(*ir::as_int64s(*model.constant_of(node_of(model, 0).inputs[1])), Ints{0});
  EXPECT_EQ(node_of(model, 1).version, 13u);
  EXPECT_EQ(floats(model, node_of(model, 1).inputs[1]), Floats{-1});
  EXPECT_EQ(node_of(model, 1).inputs.size(), 2u);
}

TEST(VersionLiftTest, OldSoftmaxOverSeveralDimsWorksOnAMatrix) {
  GraphMaker g;
  g.output(g.node("Softmax", 11, {g.input("x", {D::dim(2), D::dim(3), D::dim(4)})}));
  ir::Model model = import(g.freeze());
  ASSERT_TRUE(passes::lift_versions(model, {}).ok());
  EXPECT_EQ(ops_of(model), (Names{"Shape", "Flatten", "Softmax", "Reshape"}));
}

TEST(VersionLiftTest, OldSoftmaxOverOneDimKeepsItsShape) {
  GraphMaker g;
  g.output(g.node("Softmax", 11, {g.input("x", {D::dim(2), D::dim(3), D::dim(1)})}));
  ir::Model model = import(g.freeze());
  ASSERT_TRUE(passes::lift_versions(model, {}).ok());
  EXPECT_EQ(ops_of(model), Names{"Softmax"});
  EXPECT_EQ(node_of(model, 0).int_or("axis", 9), 1);
}

TEST(VersionLiftTest, OldBroadcastFromAnAxisGetsTrailingDims) {
  GraphMaker g;
  const uint32_t a = g.input("a", {D::dim(2), D::dim(3), D::dim(4)}), b = g.input("b", {D::dim(3)});
  g.output(g.node("Add", 6, {a, b}));
  g.b.set_int(g.last, "broadcast", 1);
  g.b.set_int(g.last, "axis", 1);
  ir::Model model = import(g.freeze());
  ASSERT_TRUE(passes::lift_versions(model, {}).ok());
  EXPECT_EQ(ops_of(model), (Names{"Unsqueeze", "Add"}));
  const auto env = passes::infer_model(model);
  ASSERT_TRUE(env.ok()) << env.status().message();
  EXPECT_EQ(env->type(model.graphs[0].outputs[0]).dims, (Ints{2, 3, 4}));
}

struct PaddedGraph : GraphMaker {
  uint32_t x = input("x", {dim(1), dim(1), dim(4), dim(4)});
  uint32_t padded(Ints pads, float value) {
    return node("Pad", 13, {x, constant<int64_t>(pads, {8}), constant<float>({value}, {})});
  }
  uint32_t conv(uint32_t of) { return node("Conv", 11, {of, constant<float>({1, 2}, {2, 1, 1, 1})}); }
};

TEST(PadFoldingTest, ConvolutionsAndAveragesPadByThemselves) {
  PaddedGraph g;
  const uint32_t y = g.padded({0, 0, 1, 0, 0, 0, 2, 3}, 0);
  g.output(g.conv(y));
  g.b.set_ints(g.last, "pads", Ints{1, 1, 1, 1});
  g.output(g.node("AveragePool", 11, {y}));
  g.b.set_ints(g.last, "kernel_shape", Ints{2, 2});
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_padding(model, {}), 2u);
  const ir::Node &conv = node_of(model, 1), &pool = node_of(model, 2);
  EXPECT_EQ(*conv.ints("pads"), (Ints{2, 1, 3, 4}));
  EXPECT_EQ(*pool.ints("pads"), (Ints{1, 0, 2, 3}));
  EXPECT_EQ(pool.int_or("count_include_pad", 0), 1);
  EXPECT_EQ(conv.inputs[0], model.graphs[0].inputs[0]);
}

TEST(PadFoldingTest, NotWhereThePaddingIsOfOtherNumbersOrCutsOrAddsImages) {
  for (const auto& [pads, value] : {std::pair{Ints{0, 0, 1, 1, 0, 0, 1, 1}, 2.0f}, std::pair{Ints{0, 0, 1, -1, 0, 0, 1, 1}, 0.0f},
                                    std::pair{Ints{1, 0, 1, 1, 0, 0, 1, 1}, 0.0f}}) {
    PaddedGraph g;
    g.output(g.conv(g.padded(pads, value)));
    ir::Model model = import(g.freeze());
    EXPECT_EQ(*passes::fold_padding(model, {}), 0u);
  }
}

TEST(PadFoldingTest, NotWhereTheAverageDoesNotCountItsOwnPadding) {
  PaddedGraph g;
  g.output(g.node("AveragePool", 11, {g.padded({0, 0, 1, 1, 0, 0, 1, 1}, 0)}));
  g.b.set_ints(g.last, "kernel_shape", Ints{2, 2});
  g.b.set_ints(g.last, "pads", Ints{1, 1, 1, 1});
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_padding(model, {}), 0u);
}

TEST(SimplifyTest, ConstantsFoldButDefaultsOfInputsDoNot) {
  GraphMaker g;
  const uint32_t c = g.constant<int64_t>({2, 3}, {2});
  g.output(g.node("Mul", 14, {c, c}));
  const std::vector<int64_t> raw{1, 1};
  const uint32_t at = g.b.add_constant("d", BELAY_DT_INT64, Ints{2}, {raw.data(), 16});
  const uint32_t d = g.b.add_value(0, "d", g.b.tensor_type(BELAY_DT_INT64, Ints{2}), at);
  g.b.add_input(0, d);
  g.output(g.node("Mul", 14, {d, c}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::fold_constants(model, {}), 1u);
  EXPECT_EQ(ops_of(model), Names{"Mul"});
  EXPECT_EQ(*ir::as_int64s(*model.constant_of(model.graphs[0].outputs[0])), (Ints{4, 9}));
}

TEST(SimplifyTest, IdentitiesGoAndOutputsKeepTheirNames) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  g.output(g.node("Identity", 16, {g.node("Relu", 14, {x})}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::drop_identities(model, {}), 1u);
  EXPECT_EQ(ops_of(model), Names{"Relu"});
  EXPECT_EQ(model.output_names, Names{"Identity2_0"});
}

TEST(SimplifyTest, WhatGivesItsInputGoesAndWhatChangesItStays) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2), D::dim(3)});
  const auto cast = [&](uint32_t value, uint32_t to) {
    const uint32_t out = g.node("Cast", 13, {value});
    g.b.set_int(g.last, "to", to);
    return out;
  };
  const auto transpose = [&](uint32_t value, Ints perm) {
    const uint32_t out = g.node("Transpose", 13, {value});
    g.b.set_ints(g.last, "perm", perm);
    return out;
  };
  uint32_t y = transpose(cast(x, BELAY_DT_FLOAT32), {0, 1});
  y = g.node("Pad", 13, {y, g.constant<int64_t>({0, 0, 0, 0}, {4})});
  y = g.node("Concat", 13, {y});
  g.b.set_int(g.last, "axis", 1);
  y = transpose(g.node("Max", 13, {y}), {1, 0});
  y = g.node("Pad", 13, {y, g.constant<int64_t>({0, 0, 1, 0}, {4})});
  g.output(cast(y, BELAY_DT_FLOAT64));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::drop_identities(model, {}), 5u);
  EXPECT_EQ(ops_of(model), (Names{"Transpose", "Pad", "Cast"}));
}

TEST(SimplifyTest, ADropoutWhoseMaskIsReadStays) {
  GraphMaker g;
  const auto out = g.nodes("Dropout", 13, {g.input("x", {D::dim(2)})}, 2);
  g.output(out[0]);
  g.output(out[1]);
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::drop_identities(model, {}), 0u);
}

TEST(SimplifyTest, DeadCodeGoesAndADisabledPassDoesNotRun) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  g.node("Neg", 13, {g.node("Relu", 14, {x})});
  g.output(g.node("Abs", 13, {x}));
  ir::Model model = import(g.freeze()), other = import(g.freeze());
  const auto clock = [] { return uint64_t{0}; };
  ASSERT_TRUE(passes::run_passes(model, {}, {}, clock).ok());
  EXPECT_EQ(ops_of(model), Names{"Abs"});
  ASSERT_TRUE(passes::run_passes(other, {}, {"dead-code"}, clock).ok());
  EXPECT_EQ(ops_of(other).size(), 3u);
}

}  // namespace
}  // namespace belay::testing
