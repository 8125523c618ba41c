#include "graph_runner.hpp"

#include <belay/abi/plugin.h>

#include <gmock/gmock.h>

#include <cmath>

namespace belay::cpu::testing {
namespace {

using Value = Graph::Value;
Tensor random(std::vector<int64_t> dims, uint32_t seed, double low = -1, double high = 1) {
  const int64_t count = Tensor{0, dims, {}}.count();
  return tensor_of(BELAY_DT_FLOAT32, std::move(dims), numbers(count, low, high, seed));
}

// `end` adds nodes behind a value of shape `dims` and gives the last value.
using End = std::function<Value(Graph&, Value, const std::vector<int64_t>&)>;

Value scalar(Graph& g, float x) { return g.constant(floats({}, {x})); }

std::vector<std::pair<std::string, End>> activations() {
  std::vector<std::pair<std::string, End>> out;
  out.emplace_back("none", [](Graph&, Value x, const auto&) { return x; });
  for (const char* op : {"Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu",
                         "Softplus", "Mish", "Clip"})
    out.emplace_back(op, [op](Graph& g, Value x, const auto& dims) { return g.node(op, {x}, dims); });
  out.emplace_back("LeakyRelu 0.3", [](Graph& g, Value x, const auto& dims) {
    return g.node("LeakyRelu", {x}, dims, {.floats = {{"alpha", 0.3f}}});
  });
  out.emplace_back("LeakyRelu, then Max", [](Graph& g, Value x, const auto& dims) {
    return g.node("Max", {g.node("LeakyRelu", {x}, dims, {.floats = {{"alpha", 0.3f}}}), scalar(g, -0.1f)},
                  dims);
  });
  out.emplace_back("Clip to -0.2, 0.5", [](Graph& g, Value x, const auto& dims) {
    return g.node("Clip", {x, scalar(g, -0.2f), scalar(g, 0.5f)}, dims);
  });
  out.emplace_back("Clip from above", [](Graph& g, Value x, const auto& dims) {
    return g.node("Clip", {x, Graph::kAbsent, scalar(g, 0.5f)}, dims);
  });
  out.emplace_back("x * Sigmoid", [](Graph& g, Value x, const auto& dims) {
    return g.node("Mul", {x, g.node("Sigmoid", {x}, dims)}, dims);
  });
  out.emplace_back("HardSigmoid * x", [](Graph& g, Value x, const auto& dims) {
    const Value gate = g.node("HardSigmoid", {x}, dims, {.floats = {{"alpha", 1.0f / 6}}});
    return g.node("Mul", {gate, x}, dims);
  });
  out.emplace_back("HardSwish in parts", [](Graph& g, Value x, const auto& dims) {
    const Value plus = g.node("Add", {x, scalar(g, 3)}, dims);
    const Value clip = g.node("Clip", {plus, scalar(g, 0), scalar(g, 6)}, dims);
    return g.node("Div", {g.node("Mul", {x, clip}, dims), scalar(g, 6)}, dims);
  });
  out.emplace_back("Gelu, half at the end", [](Graph& g, Value x, const auto& dims) {
    const Value erf = g.node("Erf", {g.node("Div", {x, scalar(g, 1.41421356f)}, dims)}, dims);
    const Value plus = g.node("Add", {erf, scalar(g, 1)}, dims);
    return g.node("Mul", {g.node("Mul", {x, plus}, dims), scalar(g, 0.5f)}, dims);
  });
  out.emplace_back("Gelu, half at the start", [](Graph& g, Value x, const auto& dims) {
    const Value half = g.node("Mul", {x, scalar(g, 0.5f)}, dims);
    const Value erf = g.node("Erf", {g.node("Mul", {x, scalar(g, 0.70710678f)}, dims)}, dims);
    return g.node("Mul", {half, g.node("Add", {scalar(g, 1), erf}, dims)}, dims);
  });
#if BELAY_SANITIZER != BELAY_SANITIZER_NONE  // it looks at memory, which is the same for all: some will do
  for (size_t i = out.size(); i-- > 0;)
    if (i % 4 != 0) out.erase(out.begin() + ptrdiff_t(i));
#endif
  return out;
}

// Runs both ways and compares; `claims`: how many kernels the fused run has.
void compare(const std::function<Value(Graph&)>& make, size_t claims, const std::string& label,
             uint64_t precision = BELAY_PRECISION_FLOAT32) {
  for (const uint32_t threads : {1u, 2u})
    for (const bool in_place : {false, true}) {
      Graph graph;
      const Value out = make(graph);
      graph.output(out);
      graph.precision(precision);
      const Graph::Outcome apart = graph.run(false, threads, false),
                           fused = graph.run(true, threads, in_place);
      ASSERT_EQ(apart.message, "") << label;
      ASSERT_EQ(fused.message, "") << label;
      EXPECT_EQ(fused.claim_sizes.size(), claims) << label;
      EXPECT_TRUE(close(fused.values.at(out), apart.values.at(out), 2e-6, 2e-6))
          << label << " in place " << in_place;
    }
}

struct FusedConvCase {
  const char* name;
  std::vector<int64_t> x, w, y;
  int64_t group;
  uint64_t precision = BELAY_PRECISION_FLOAT32;
};
const FusedConvCase kConvs[] = {
    {"dense", {2, 20, 9, 9}, {10, 20, 3, 3}, {2, 10, 9, 9}, 1},  // 180 terms: more than one block of k
    {"depthwise", {1, 10, 9, 9}, {10, 1, 3, 3}, {1, 10, 9, 9}, 10},
    {"groups", {1, 8, 9, 9}, {10, 4, 3, 3}, {1, 10, 9, 9}, 2},
    {"tiles", {1, 24, 13, 14}, {20, 24, 3, 3}, {1, 20, 13, 14}, 1, BELAY_PRECISION_WINOGRAD},
    {"planes", {2, 3, 9, 16}, {10, 3, 3, 3}, {2, 10, 9, 16}, 1},
    {"few pixels", {1, 20, 7, 7}, {96, 20, 3, 3}, {1, 96, 7, 7}, 1},
};

void check_fused_convs() {
  for (const FusedConvCase& c : kConvs)
    for (const auto& [name, end] : activations())
      for (const bool bias : {false, true})
        for (const bool residual : {false, true}) {
          const std::string label =
              std::string(c.name) + ", " + name + (bias ? ", bias" : "") + (residual ? ", residual" : "");
          compare(
              [&, end = end](Graph& g) {
                const Value x = g.input(random(c.x, 1)), w = g.constant(random(c.w, 2));
                Value y = g.node("Conv", {x, w}, c.y,
                                 {.ints = {{"group", c.group}}, .lists = {{"pads", {1, 1, 1, 1}}}});
                if (bias) y = g.node("Add", {g.constant(random({c.w[0], 1, 1}, 3)), y}, c.y);
                if (residual) y = g.node("Add", {y, g.input(random(c.y, 4))}, c.y);
                return end(g, y, c.y);
              },
              1, label, c.precision);
        }
}

TEST(FusedConvTest, BiasResidualAndActivationGiveWhatSeparateNodesGive) { each_micro(check_fused_convs); }

TEST(FusedConvTest, PReluWithOneSlopeOrOneForEachChannel) {
  for (const FusedConvCase& c : kConvs)
    for (const std::vector<int64_t>& slope : {std::vector<int64_t>{1}, {c.w[0], 1, 1}, {1, c.w[0], 1, 1}})
      compare(
          [&](Graph& g) {
            const Value x = g.input(random(c.x, 1)), w = g.constant(random(c.w, 2)),
                        b = g.constant(random({c.w[0]}, 3));
            const Value y = g.node("Conv", {x, w, b}, c.y,
                                   {.ints = {{"group", c.group}}, .lists = {{"pads", {1, 1, 1, 1}}}});
            return g.node("PRelu", {y, g.constant(random(slope, 5))}, c.y);
          },
          1, std::string(c.name) + text_of(slope), c.precision);
}

TEST(FusedConvTest, WhatHasAnotherUserOrAnotherMeaningStaysApart) {
  const std::vector<int64_t> dims{1, 9, 9, 9};
  const auto conv = [&](Graph& g) {
    return g.node("Conv", {g.input(random(dims, 1)), g.constant(random({9, 9, 1, 1}, 2))}, dims);
  };
  compare(
      [&](Graph& g) {  // a slope along the width
        return g.node("PRelu", {conv(g), g.constant(random({9}, 3))}, dims);
      },
      2, "slope by column");
  compare(
      [&](Graph& g) {  // a bias along the width
        return g.node("Add", {conv(g), g.constant(random({9}, 3))}, dims);
      },
      2, "bias by column");
  compare(
      [&](Graph& g) {
        const Value y = conv(g);
        g.output(y);
        return g.node("Relu", {y}, dims);
      },
      2, "the product is an output");
  compare(
      [&](Graph& g) {
        const Value y = conv(g);
        return g.node("Add", {y, y}, dims);
      },
      2, "added to itself");
  compare(
      [&](Graph& g) {
        const Value y = conv(g);
        return g.node("Mul", {y, g.node("HardSigmoid", {y}, dims)}, dims);  // slope 0.2, not 1/6
      },
      3, "another gate");
  compare(
      [&](Graph& g) {
        return g.node("Clip", {conv(g), g.input(floats({}, {-0.1f})), g.input(floats({}, {0.1f}))}, dims);
      },
      2, "limits known at the run only");
}

TEST(FusedMatMulTest, BiasResidualAndActivationGiveWhatSeparateNodesGive) {
  struct Case {
    std::vector<int64_t> a, b, y, bias;
  };
  for (const Case& c : {Case{{2, 5, 300}, {300, 70}, {2, 5, 70}, {70}},
                        {{3, 4, 5}, {3, 5, 6}, {3, 4, 6}, {1, 6}},
                        {{7, 9}, {9, 1}, {7, 1}, {1}},
                        {{4, 8}, {8, 16}, {4, 16}, {}}})
    for (const auto& [name, end] : activations())
      for (const bool residual : {false, true})
        compare(
            [&, end = end](Graph& g) {
              Value y = g.node("MatMul", {g.input(random(c.a, 1)), g.constant(random(c.b, 2))}, c.y);
              y = g.node("Add", {y, g.constant(random(c.bias, 3))}, c.y);
              if (residual) y = g.node("Add", {g.input(random(c.y, 4)), y}, c.y);
              return end(g, y, c.y);
            },
            1, text_of(c.a) + " " + name + (residual ? ", residual" : ""));
}

TEST(FusedGemmTest, ActivationGivesWhatSeparateNodesGive) {
  for (const auto& [name, end] : activations()) {
    if (name == "none") continue;
    for (const float alpha : {1.0f, 0.5f})
      compare(
          [&, end = end](Graph& g) {
            const std::vector<int64_t> dims{5, 70};
            const Value y = g.node(
                "Gemm",
                {g.input(random({5, 20}, 1)), g.constant(random({70, 20}, 2)), g.constant(random({70}, 3))},
                dims, {.ints = {{"transB", 1}}, .floats = {{"alpha", alpha}}});
            return end(g, y, dims);
          },
          1, name);
  }
}

}  // namespace
}  // namespace belay::cpu::testing
