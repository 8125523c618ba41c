// Types by the operators' definitions: one line a case.
#include "engine_fixture.hpp"

#include <ir/evaluate.hpp>
#include <ir/infer.hpp>
#include <passes/passes.hpp>

namespace belay::testing {
namespace {

using Ints = std::vector<int64_t>;
using ::testing::HasSubstr;

struct Case {
  const char* op;
  uint32_t version;
  std::vector<Ints> inputs;                        // shapes of float32 inputs
  std::vector<std::pair<const char*, Ints>> ints;  // attributes
  std::vector<Ints> constants;                     // further inputs: lists of int64
  Ints want;
};

Result<ir::Type> infer_case(const Case& c) {
  GraphMaker g;
  std::vector<uint32_t> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    GraphMaker::Shape shape;
    for (const int64_t dim : c.inputs[i])
      shape.push_back(dim < 0 ? belay::graph::Dim{-1, "s" + std::to_string(-dim)} : D::dim(dim));
    inputs.push_back(g.input("x" + std::to_string(i), shape));
  }
  for (const Ints& values : c.constants)
    inputs.push_back(g.constant<int64_t>(values, {int64_t(values.size())}));
  g.output(g.node(c.op, c.version, inputs));
  for (const auto& [name, values] : c.ints) {
    if (values.size() == 1 && std::string_view(name) != "kernel_shape" && std::string_view(name) != "axes")
      g.b.set_int(g.last, name, values[0]);
    else
      g.b.set_ints(g.last, name, values);
  }
  ir::Model model = import(g.freeze());
  BELAY_ASSIGN(const ir::Env env, passes::infer_model(model));
  return env.type(model.graphs[0].outputs[0]);
}

TEST(InferTest, Shapes) {
  const Case cases[] = {
      {"Add", 14, {{2, 1, 4}, {3, 1}}, {}, {}, {2, 3, 4}},
      {"Add", 14, {{-2, 4}, {1}}, {}, {}, {-2, 4}},
      {"MatMul", 13, {{5, 2, 3}, {3, 4}}, {}, {}, {5, 2, 4}},
      {"MatMul", 13, {{3}, {3}}, {}, {}, {}},
      {"Gemm", 13, {{3, 2}, {4, 3}}, {{"transA", {1}}, {"transB", {1}}}, {}, {2, 4}},
      {"Conv",
       11,
       {{1, 3, 8, 9}, {6, 3, 3, 3}},
       {{"strides", {2, 2}}, {"pads", {1, 1, 1, 1}}},
       {},
       {1, 6, 4, 5}},
      {"Conv", 11, {{-2, 4, 8}, {6, 2, 3}}, {{"group", {2}}}, {}, {-2, 6, 6}},
      {"ConvTranspose", 11, {{1, 3, 4, 4}, {3, 2, 3, 3}}, {{"strides", {2, 2}}}, {}, {1, 2, 9, 9}},
      {"MaxPool",
       12,
       {{1, 1, 5, 5}},
       {{"kernel_shape", {2, 2}}, {"strides", {2, 2}}, {"ceil_mode", {1}}},
       {},
       {1, 1, 3, 3}},
      {"MaxPool", 12, {{1, 1, 5, 5}}, {{"kernel_shape", {2, 2}}, {"strides", {2, 2}}}, {}, {1, 1, 2, 2}},
      {"GlobalAveragePool", 1, {{1, 7, 5, 5}}, {}, {}, {1, 7, 1, 1}},
      {"Transpose", 13, {{2, 3, 4}}, {{"perm", {2, 0, 1}}}, {}, {4, 2, 3}},
      {"Reshape", 14, {{2, 3, 4}}, {}, {{0, -1}}, {2, 12}},
      {"Reshape", 14, {{-2, 3, 4}}, {}, {{-1, 12}}, {-2, 12}},
      {"Flatten", 13, {{2, 3, 4}}, {{"axis", {2}}}, {}, {6, 4}},
      {"Concat", 13, {{2, 3}, {2, 5}}, {{"axis", {-1}}}, {}, {2, 8}},
      {"Slice", 13, {{10, 6}}, {}, {{-3, 5}, {INT64_MAX, INT64_MIN}, {0, 1}, {1, -2}}, {3, 3}},
      {"Squeeze", 13, {{1, 3, 1}}, {}, {{-1}}, {1, 3}},
      {"Unsqueeze", 13, {{3, 4}}, {}, {{0, -1}}, {1, 3, 4, 1}},
      {"Pad", 13, {{2, 3}}, {}, {{0, 1, 2, -1}}, {4, 3}},
      {"Expand", 13, {{3, 1}}, {}, {{2, 1, 6}}, {2, 3, 6}},
      {"Tile", 13, {{2, 3}}, {}, {{2, 0}}, {4, 0}},
      {"Gather", 13, {{5, 6}}, {{"axis", {1}}}, {{0, 2}}, {5, 2}},
      {"ReduceMean", 13, {{2, 3, 4}}, {{"axes", {1}}, {"keepdims", {0}}}, {}, {2, 4}},
      {"ReduceSum", 13, {{2, 3, 4}}, {}, {{0, -1}}, {1, 3, 1}},
      {"ArgMax", 13, {{2, 3}}, {{"axis", {1}}}, {}, {2, 1}},
      {"TopK", 11, {{2, 9}}, {}, {{4}}, {2, 4}},
      {"DepthToSpace", 13, {{1, 8, 2, 3}}, {{"blocksize", {2}}}, {}, {1, 2, 4, 6}},
      {"NonZero", 13, {{2, 3}}, {}, {}, {2, -1}},
      {"Shape", 15, {{2, -3, 4}}, {}, {}, {3}},
      {"LSTM", 14, {{7, 2, 5}, {1, 12, 5}, {1, 12, 3}}, {{"hidden_size", {3}}}, {}, {7, 1, 2, 3}},
      {"Softmax", 13, {{2, -2}}, {}, {}, {2, -2}},
  };
  for (const Case& c : cases) {
    const auto type = infer_case(c);
    ASSERT_TRUE(type.ok()) << c.op << ": " << type.status().message();
    ir::Dims dims = type->dims;
    EXPECT_TRUE(type->ranked) << c.op;
    EXPECT_EQ(dims.size(), c.want.size()) << c.op;
    for (size_t i = 0; i < std::min(dims.size(), c.want.size()); ++i) {
      if (c.want[i] >= -1) {
        EXPECT_EQ(dims[i], c.want[i]) << c.op << " dim " << i;
      } else {
        EXPECT_LE(dims[i], ir::kFirstSymbol) << c.op << " keeps its symbol in dim " << i;
      }
    }
  }
}

TEST(InferTest, WhatIsAgainstADefinitionIsNamed) {
  const std::pair<Case, const char*> cases[] = {
      {{"Add", 14, {{2}, {3}}, {}, {}, {}},
       "Node 'Add1' (Add): dims [2] and [3] do not broadcast (inputs: float32[2], float32[3])."},
      {{"MatMul", 13, {{2, 3}, {4, 5}}, {}, {}, {}}, "inner dims 3 and 4 differ"},
      {{"Conv", 11, {{1, 1, 2, 2}, {1, 1, 3, 3}}, {}, {}, {}}, "a window of 3 does not fit"},
      {{"Conv", 11, {{1, 4, 8}, {6, 3, 3}}, {}, {}, {}}, "the input has 4 channels, the weights take 3"},
      {{"Reshape", 14, {{2, 3}}, {}, {{4, -1}}, {}}, "6 elements do not fill the shape [4,?]"},
      {{"Reshape", 14, {{2, 3}}, {}, {{-1, -1}}, {}}, "more than one -1"},
      {{"Transpose", 13, {{2, 3}}, {{"perm", {0, 0}}}, {}, {}}, "is no permutation"},
      {{"Softmax", 13, {{2}}, {{"axis", {3}}}, {}, {}}, "axis 3 is not in [-1, 0]"},
      {{"Concat", 13, {{2, 3}, {3, 3}}, {{"axis", {1}}}, {}, {}}, "dim 0 differs"},
  };
  for (const auto& [c, text] : cases) {
    const auto type = infer_case(c);
    ASSERT_FALSE(type.ok()) << c.op;
    EXPECT_THAT(type.status().message(), HasSubstr(text));
  }
}

TEST(InferTest, ShapeArithmeticKeepsSymbols) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim("batch"), D::dim(3), D::dim(4)});
  const uint32_t batch = g.node("Gather", 13, {g.node("Shape", 15, {x}), g.constant<int64_t>({0}, {1})});
  const uint32_t shape = g.node("Concat", 13, {batch, g.constant<int64_t>({12}, {1})});
  g.b.set_int(g.last, "axis", 0);
  g.output(g.node("Reshape", 14, {x, shape}));
  ir::Model model = import(g.freeze());
  const auto env = passes::infer_model(model);
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->type(model.graphs[0].outputs[0]).dims, (Ints{ir::kFirstSymbol, 12}));
}

TEST(EvaluateTest, SmallIntegerNodes) {
  const std::tuple<const char*, Ints, Ints, Ints> cases[] = {
      {"Add", {1, 2}, {10}, {11, 12}}, {"Sub", {1, 2}, {3, 3}, {-2, -1}},
      {"Div", {7, -7}, {2}, {3, -3}},  {"Mod", {7, -7}, {3}, {1, 2}},
      {"Max", {1, 5}, {3}, {3, 5}},    {"Gather", {4, 5, 6}, {-1, 0}, {6, 4}},
  };
  for (const auto& [op, a, b, want] : cases) {
    GraphMaker g;
    g.output(g.node(
        op, 13, {g.constant<int64_t>(a, {int64_t(a.size())}), g.constant<int64_t>(b, {int64_t(b.size())})}));
    ir::Model model = import(g.freeze());
    const auto env = passes::infer_model(model);
    ASSERT_TRUE(env.ok()) << op;
    const auto made = ir::evaluate_small(*env, model.nodes[0]);
    ASSERT_TRUE(made) << op;
    EXPECT_EQ(*ir::as_int64s(*(*made)[0]), want) << op;
  }
}

TEST(EvaluateTest, DivisionByZeroIsLeftToTheKernel) {
  GraphMaker g;
  g.output(g.node("Div", 14, {g.constant<int64_t>({1}, {1}), g.constant<int64_t>({0}, {1})}));
  ir::Model model = import(g.freeze());
  const auto env = passes::infer_model(model);
  EXPECT_FALSE(ir::evaluate_small(*env, model.nodes[0]));
}

TEST(TypesTest, HalvesRoundToNearestEven) {
  EXPECT_EQ(ir::float_to_half(1.0f), 0x3c00);
  EXPECT_EQ(ir::float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(ir::float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(ir::float_to_half(5.9604645e-8f), 0x0001);
  EXPECT_EQ(ir::float_to_half(2.9802322e-8f), 0x0000);  // a tie goes to even
  EXPECT_EQ(ir::float_to_half(1.00048828125f), 0x3c00);
  for (uint32_t bits = 0; bits < 0x7c00; ++bits)
    EXPECT_EQ(ir::float_to_half(ir::half_to_float(uint16_t(bits))), bits);
  EXPECT_EQ(ir::float_to_bfloat(1.00390625f), 0x3f80);
}

}  // namespace
}  // namespace belay::testing
