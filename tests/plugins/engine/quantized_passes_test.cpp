// Passes over quantised models: what they put in place of what, and where they must keep away.
#include "engine_fixture.hpp"

#include <passes/passes.hpp>

namespace belay::testing {
namespace {

using Names = std::vector<std::string>;

const ir::Node& find(const ir::Model& model, std::string_view op) {
  for (const ir::NodeId id : model.graphs[0].nodes)
    if (model.nodes[id].op == op) return model.nodes[id];
  throw std::runtime_error("no " + std::string(op));
}
std::vector<double> numbers(const ir::Model& model, ir::ValueId value) {
  return *ir::as_doubles(*model.constant_of(value));
}

// Quantised graphs; scales are 1 / 2 unless given.
struct QuantizedGraph : GraphMaker {
  template <class T>
  uint32_t bytes(uint32_t dtype, std::vector<T> values, std::vector<int64_t> dims) {
    const uint32_t at = b.add_constant("", dtype, dims, {values.data(), values.size() * sizeof(T)});
    return b.add_value(0, "b" + std::to_string(at), b.tensor_type(dtype, dims), at);
  }
  uint32_t u8(uint8_t value) { return bytes<uint8_t>(BELAY_DT_UINT8, {value}, {}); }
  uint32_t scale(float value) { return constant<float>({value}, {}); }
  uint32_t q(uint32_t x, float s = .5f, uint8_t zero = 128) { return node("QuantizeLinear", 13, {x, scale(s), u8(zero)}); }
  uint32_t dq(uint32_t x, float s = .5f, uint8_t zero = 128) {
    return node("DequantizeLinear", 13, {x, scale(s), u8(zero)});
  }
  uint32_t quantized_input(Shape shape = {dim(1), dim(1), dim(4), dim(4)}) {
    return input("x", std::move(shape), BELAY_DT_UINT8);
  }
  // Two output channels with a scale each.
  uint32_t weights(int64_t axis = 0) {
    const uint32_t w = node("DequantizeLinear", 13,
                            {bytes<int8_t>(BELAY_DT_INT8, {1, -2}, {2, 1, 1, 1}), constant<float>({.25f, .5f}, {2}),
                             bytes<int8_t>(BELAY_DT_INT8, {0, 0}, {2})});
    b.set_int(last, "axis", axis);
    return w;
  }
  // Runs `pass`, then drops what nobody reads.
  ir::Model after(Result<uint64_t> (*pass)(ir::Model&, const passes::Evaluator&), uint64_t changes) {
    ir::Model model = import(freeze());
    const Result<uint64_t> made = pass(model, {});
    EXPECT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(*made, changes);
    EXPECT_TRUE(passes::remove_dead_code(model, {}).ok());
    return model;
  }
};

TEST(QuantizedProductsTest, ConvBetweenDequantizeAndQuantizeWorksOnBytes) {
  QuantizedGraph g;
  const uint32_t bias = g.constant<float>({1, -3}, {2});
  g.output(g.q(g.node("Conv", 11, {g.dq(g.quantized_input(), .5f, 7), g.weights(), bias}), .125f, 9));
  const ir::Model model = g.after(passes::quantize_products, 1);
  EXPECT_EQ(ops_of(model), Names{"QLinearConv"});
  const ir::Node& conv = find(model, "QLinearConv");
  ASSERT_EQ(conv.inputs.size(), 9u);
  EXPECT_EQ(numbers(model, conv.inputs[1]), std::vector<double>{.5});
  EXPECT_EQ(numbers(model, conv.inputs[2]), std::vector<double>{7});
  EXPECT_EQ(numbers(model, conv.inputs[4]), (std::vector<double>{.25, .5}));
  EXPECT_EQ(numbers(model, conv.inputs[6]), std::vector<double>{.125});
  EXPECT_EQ(numbers(model, conv.inputs[7]), std::vector<double>{9});
  // In units of 0.5 * 0.25 and 0.5 * 0.5.
  EXPECT_EQ(numbers(model, conv.inputs[8]), (std::vector<double>{8, -12}));
}

TEST(QuantizedProductsTest, ReluBecomesATableOfClampedBytes) {
  QuantizedGraph g;
  g.output(g.q(g.node("Relu", 14, {g.node("Conv", 11, {g.dq(g.quantized_input()), g.weights()})}), .5f, 100));
  const ir::Model model = g.after(passes::quantize_products, 1);
  EXPECT_EQ(ops_of(model), (Names{"QLinearConv", "ByteTable"}));
  const std::vector<double> table = numbers(model, find(model, "ByteTable").inputs[1]);
  ASSERT_EQ(table.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(table[size_t(i)], std::max(i, 100));
}

TEST(QuantizedProductsTest, ReluIsGoneWhereQuantizationClampsAlready) {
  QuantizedGraph g;
  g.output(g.q(g.node("Relu", 14, {g.node("Conv", 11, {g.dq(g.quantized_input()), g.weights()})}), .5f, 0));
  EXPECT_EQ(ops_of(g.after(passes::quantize_products, 1)), (Names{"QLinearConv", "Identity"}));
}

TEST(QuantizedProductsTest, NotWhereTheProductHasAnotherReader) {
  QuantizedGraph g;
  const uint32_t conv = g.node("Conv", 11, {g.dq(g.quantized_input()), g.weights()});
  g.output(g.q(conv));
  g.output(conv);
  g.after(passes::quantize_products, 0);
}

TEST(QuantizedProductsTest, NotWhereTheWeightsHaveScalesAlongAnotherAxis) {
  QuantizedGraph g;
  const uint32_t w = g.node("DequantizeLinear", 13,
                            {g.bytes<int8_t>(BELAY_DT_INT8, {1, 2, 3, 4}, {2, 2, 1, 1}), g.constant<float>({1, 2}, {2})});
  g.b.set_int(g.last, "axis", 1);
  const uint32_t x = g.quantized_input({g.dim(1), g.dim(2), g.dim(4), g.dim(4)});
  g.output(g.q(g.node("Conv", 11, {g.dq(x), w})));
  g.after(passes::quantize_products, 0);
}

TEST(QuantizedProductsTest, NotWhereAScaleIsNotKnown) {
  QuantizedGraph g;
  const uint32_t scale = g.input("s", {});
  const uint32_t x = g.node("DequantizeLinear", 13, {g.quantized_input(), scale, g.u8(0)});
  g.output(g.q(g.node("Conv", 11, {x, g.weights()})));
  g.after(passes::quantize_products, 0);
}

TEST(QuantizedProductsTest, NotWhereAScaleIsZeroOrNegative) {
  for (const float scale : {0.0f, -1.0f}) {
    QuantizedGraph g;
    g.output(g.q(g.node("Conv", 11, {g.dq(g.quantized_input()), g.weights()}), scale));
    g.after(passes::quantize_products, 0);
  }
}

TEST(QuantizedProductsTest, NotWhereTheSumsMayNotFit) {
  QuantizedGraph g;
  // 1e9 in units of 0.5 * 0.25 is beyond 32 bits.
  g.output(g.q(g.node("Conv", 11, {g.dq(g.quantized_input()), g.weights(), g.constant<float>({1e9f, 0}, {2})})));
  g.after(passes::quantize_products, 0);
  QuantizedGraph deep;
  const int64_t terms = 40000;
  const uint32_t w = deep.dq(deep.bytes<uint8_t>(BELAY_DT_UINT8, std::vector<uint8_t>(size_t(terms), 255), {terms, 1}));
  deep.output(deep.q(deep.node("MatMul", 13, {deep.dq(deep.quantized_input({deep.dim(1), deep.dim(terms)})), w})));
  deep.after(passes::quantize_products, 0);
}

TEST(QuantizedProductsTest, NotWhereTheUnitsOfTheProductsAreTooCoarseForTheBias) {
  for (const bool dequantized : {false, true}) {
    // 20 in units of 100 * 0.25 and 100 * 0.5 would be 25 and 0; the result's steps are 4.
    QuantizedGraph g;
    const uint32_t bias =
        dequantized ? g.node("DequantizeLinear", 13, {g.bytes<int32_t>(BELAY_DT_INT32, {20, 20}, {2}), g.scale(1)})
                    : g.constant<float>({20, 20}, {2});
    g.output(g.q(g.node("Conv", 11, {g.dq(g.quantized_input(), 100), g.weights(), bias}), 4));
    g.after(passes::quantize_products, 0);
  }
  QuantizedGraph g;  // beside steps of 400 that is nothing
  const uint32_t bias = g.constant<float>({20, 20}, {2});
  g.output(g.q(g.node("Conv", 11, {g.dq(g.quantized_input(), 100), g.weights(), bias}), 400));
  g.after(passes::quantize_products, 1);
}

TEST(QuantizedProductsTest, MatMulWithoutQuantizeGivesFloats) {
  QuantizedGraph g;
  const uint32_t w = g.dq(g.bytes<uint8_t>(BELAY_DT_UINT8, {1, 2, 3, 4, 5, 6}, {2, 3}), .25f, 3);
  g.output(g.node("MatMul", 13, {g.dq(g.quantized_input({g.dim("n"), g.dim(2)})), w}));
  const ir::Model model = g.after(passes::quantize_products, 1);
  EXPECT_EQ(ops_of(model), Names{"MatMulIntegerToFloat"});
  EXPECT_EQ(find(model, "MatMulIntegerToFloat").domain, "com.microsoft");
}

TEST(QuantizedProductsTest, GemmWithoutQuantizeNeedsABiasThatIsExact) {
  for (const bool exact : {true, false}) {
    QuantizedGraph g;
    const uint32_t w = g.dq(g.bytes<uint8_t>(BELAY_DT_UINT8, {1, 2, 3, 4, 5, 6}, {3, 2}), .25f, 3);
    const uint32_t bias =
        exact ? g.node("DequantizeLinear", 13,
                       {g.bytes<int32_t>(BELAY_DT_INT32, {1, 2, 3}, {3}), g.scale(.125f)})
              : g.constant<float>({.1f, .2f, .3f}, {3});
    g.output(g.node("Gemm", 13, {g.dq(g.quantized_input({g.dim("n"), g.dim(2)})), w, bias}));
    g.b.set_int(g.last, "transB", 1);
    const ir::Model model = g.after(passes::quantize_products, exact ? 1 : 0);
    if (!exact) continue;
    EXPECT_EQ(ops_of(model), Names{"QGemm"});
    EXPECT_EQ(find(model, "QGemm").int_or("transB", 0), 1);
    EXPECT_EQ(numbers(model, find(model, "QGemm").inputs[6]), (std::vector<double>{1, 2, 3}));
  }
}

TEST(QuantizedElementwiseTest, OtherScalesAreATable) {
  QuantizedGraph g;
  g.output(g.q(g.dq(g.quantized_input(), .5f, 10), 1.0f, 20));
  const ir::Model model = g.after(passes::quantize_elementwise, 1);
  EXPECT_EQ(ops_of(model), Names{"ByteTable"});
  const std::vector<double> table = numbers(model, find(model, "ByteTable").inputs[1]);
  for (int i = 0; i < 256; ++i)
    EXPECT_EQ(table[size_t(i)], std::clamp(std::nearbyint((i - 10) * .5) + 20, 0.0, 255.0));  // ties to even
}

TEST(QuantizedElementwiseTest, TheSameScalesAreNothing) {
  QuantizedGraph g;
  g.output(g.q(g.dq(g.quantized_input())));
  EXPECT_EQ(ops_of(g.after(passes::quantize_elementwise, 1)), Names{"Identity"});
}

TEST(QuantizedElementwiseTest, AddOfTwoIsOneNodeAndReluAfterItATable) {
  QuantizedGraph g;
  const uint32_t x = g.quantized_input(), y = g.input("y", {g.dim(4)}, BELAY_DT_UINT8);
  g.output(g.q(g.node("Relu", 14, {g.node("Add", 14, {g.dq(x), g.dq(y, .25f)})}), 1, 3));
  EXPECT_EQ(ops_of(g.after(passes::quantize_elementwise, 1)), (Names{"QLinearAdd", "ByteTable"}));
}

TEST(QuantizedElementwiseTest, BytesMoveAsBytes) {
  QuantizedGraph g;
  const uint32_t shape = g.constant<int64_t>({4, 4}, {2});
  const uint32_t y = g.node("Transpose", 13, {g.node("Reshape", 14, {g.dq(g.quantized_input()), shape})});
  g.output(g.q(y));
  const ir::Model model = g.after(passes::quantize_elementwise, 1);
  EXPECT_EQ(ops_of(model), (Names{"Reshape", "Transpose", "Identity"}));
  const auto env = passes::infer_model(model);
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->type(find(model, "Transpose").outputs[0]).dtype, uint32_t(BELAY_DT_UINT8));
}

TEST(QuantizedElementwiseTest, NotWhereSomeoneReadsTheFloats) {
  QuantizedGraph g;
  const uint32_t y = g.node("Transpose", 13, {g.dq(g.quantized_input())});
  g.output(g.q(y));
  g.output(y);
  g.after(passes::quantize_elementwise, 0);
}

TEST(QuantizedElementwiseTest, ConcatLooksUpWhatHasOtherScales) {
  QuantizedGraph g;
  const uint32_t x = g.quantized_input(), y = g.input("y", {g.dim(1), g.dim(1), g.dim(4), g.dim(4)}, BELAY_DT_UINT8);
  const uint32_t joined = g.node("Concat", 13, {g.dq(x), g.dq(y, .25f)});
  g.b.set_int(g.last, "axis", 1);
  g.output(g.q(joined));
  EXPECT_EQ(ops_of(g.after(passes::quantize_elementwise, 1)), (Names{"ByteTable", "Concat", "Identity"}));
}

TEST(DynamicProductsTest, CastAndScaleAndShiftAreOneProduct) {
  QuantizedGraph g;
  const uint32_t x = g.input("x", {g.dim("n"), g.dim(2)});
  const std::vector<uint32_t> parts = g.nodes("DynamicQuantizeLinear", 11, {x}, 3);
  const uint32_t w = g.bytes<int8_t>(BELAY_DT_INT8, {1, 2, 3, 4, 5, 6}, {2, 3}), s = g.constant<float>({1, 2, 3}, {3});
  const uint32_t sums = g.node("MatMulInteger", 10, {parts[0], w, parts[2]});
  const uint32_t floats = g.node("Cast", 13, {sums});
  g.b.set_int(g.last, "to", BELAY_DT_FLOAT32);
  const uint32_t scaled = g.node("Mul", 14, {floats, g.node("Mul", 14, {parts[1], s})});
  g.output(g.node("Add", 14, {scaled, g.constant<float>({7, 8, 9}, {3})}));
  const ir::Model model = g.after(passes::join_dynamic_products, 2);
  EXPECT_EQ(ops_of(model), (Names{"DynamicQuantizeLinear", "MatMulIntegerToFloat"}));
  const ir::Node& product = find(model, "MatMulIntegerToFloat");
  ASSERT_EQ(product.inputs.size(), 7u);
  EXPECT_EQ(product.inputs[5], BELAY_NONE);
  EXPECT_EQ(numbers(model, product.inputs[6]), (std::vector<double>{7, 8, 9}));
}

TEST(DynamicProductsTest, NotWhereTheSumsHaveAnotherReaderOrTheScaleIsAMatrix) {
  for (const bool reader : {true, false}) {
    QuantizedGraph g;
    const uint32_t x = g.input("x", {g.dim("n"), g.dim(2)}, BELAY_DT_UINT8);
    const uint32_t sums = g.node("MatMulInteger", 10, {x, g.bytes<int8_t>(BELAY_DT_INT8, {1, 2, 3, 4}, {2, 2})});
    const uint32_t floats = g.node("Cast", 13, {sums});
    g.b.set_int(g.last, "to", BELAY_DT_FLOAT32);
    const uint32_t one = g.input("one", {});
    const uint32_t many = g.input("many", reader ? GraphMaker::Shape{g.dim(2)} : GraphMaker::Shape{g.dim(1), g.dim(2)});
    g.output(g.node("Mul", 14, {floats, g.node("Mul", 14, {one, many})}));
    if (reader) g.output(g.node("Neg", 13, {sums}));
    g.after(passes::join_dynamic_products, 0);
  }
}

TEST(CommonNodesTest, EqualNodesBecomeOneAndThoseThatDifferStay) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2), D::dim(3)});
  const uint32_t a = g.node("Softmax", 13, {x}), b = g.node("Softmax", 13, {x}), c = g.node("Softmax", 13, {x});
  g.b.set_int(g.last, "axis", 0);
  const uint32_t r = g.node("RandomNormalLike", 1, {x}), s = g.node("RandomNormalLike", 1, {x});
  const uint32_t two = g.node("Add", 14, {a, b});
  g.output(g.node("Sum", 13, {two, c, r, s}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::join_common(model, {}), 1u);
  EXPECT_EQ(ops_of(model), (Names{"Softmax", "Softmax", "RandomNormalLike", "RandomNormalLike", "Add", "Sum"}));
  const ir::Node& add = find(model, "Add");
  EXPECT_EQ(add.inputs[0], add.inputs[1]);
}

TEST(CommonNodesTest, TwoOutputsOfTheModelStayTwo) {
  GraphMaker g;
  const uint32_t x = g.input("x", {D::dim(2)});
  g.output(g.node("Neg", 13, {x}));
  g.output(g.node("Neg", 13, {x}));
  ir::Model model = import(g.freeze());
  EXPECT_EQ(*passes::join_common(model, {}), 0u);
}

}  // namespace
}  // namespace belay::testing
