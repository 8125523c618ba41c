#include "onnx_files.hpp"
#include "proto_text.hpp"

#include <belay/graph/string_table.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belay::onnx {
namespace {

using graph::NodeView;
using graph::View;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using text::Graph;
using text::model;
using text::node;

struct Imported {
  std::string file, image;
  std::vector<std::string> warnings, opened;
  Status status;

  View view() const { return View({image.data(), image.size()}); }
  std::string_view name(uint32_t v) const {
    return v == BELAY_NONE ? "" : view().string(view().values()[v].name);
  }
  std::vector<std::string> names(std::span<const uint32_t> values) const {
    std::vector<std::string> out;
    for (const uint32_t v : values) out.emplace_back(name(v));
    return out;
  }
  std::vector<std::string> inputs() const { return names(view().indices(view().graphs()[0].inputs)); }
  std::vector<std::string> ops() const {
    std::vector<std::string> out;
    for (uint32_t n = 0; n < view().nodes().size(); ++n) out.emplace_back(view().node(n).op());
    return out;
  }
  const belay_graph_value& value(std::string_view wanted) const {
    for (const auto& v : view().values())
      if (view().string(v.name) == wanted) return v;
    ADD_FAILURE() << "no value " << wanted;
    return view().values()[0];
  }
  template <class T>
  std::vector<T> constant(std::string_view wanted) const {
    const uint32_t at = value(wanted).constant;
    if (at == BELAY_NONE) return {};
    const auto& c = view().constants()[at];
    const belay_span source{file.data(), file.size()};
    const belay_span bytes = view().constant_bytes(c, {&source, 1});
    std::vector<T> out(bytes.len / sizeof(T));
    std::memcpy(out.data(), bytes.ptr, bytes.len);
    return out;
  }
};

Imported load(std::string file, std::map<std::string, std::string> sides = {}) {
  Imported out;
  out.file = std::move(file);
  MemoryFiles files(out.file);
  files.sides = std::move(sides);
  auto image = import(files);
  out.status = image.status();
  if (image.ok()) out.image = *image;
  out.warnings = files.warnings;
  out.opened = files.opened;
  return out;
}
Imported good(std::string file) {
  Imported out = load(std::move(file));
  EXPECT_TRUE(out.status.ok()) << out.status.message();
  return out;
}
std::string failure(std::string file) { return load(std::move(file)).status.message(); }

Graph relu() { return Graph().input("x").output("y").node(node("Relu", {"x"}, {"y"})); }

TEST(ImporterTest, EachNodeGetsTheNewestDefinitionAtOrBelowTheImport) {
  const auto version = [](int64_t opset) { return good(model(relu(), opset)).view().node(0).version(); };
  EXPECT_EQ(version(1), 1u);
  EXPECT_EQ(version(6), 6u);
  EXPECT_EQ(version(12), 6u);
  EXPECT_EQ(version(13), 13u);
  EXPECT_EQ(version(27), 14u);
}

TEST(ImporterTest, InitializersStayInTheFileWhateverTheirAlignment) {
  for (size_t shift = 0; shift < 4; ++shift) {
    Graph g =
        Graph().name(std::string(shift, 'g')).input("x").output("y").node(node("Add", {"x", "w"}, {"y"}));
    g.initializer(text::tensor("w", 1, {2}, text::raw<float>({1.5f, -2})));
    const Imported loaded = good(model(g));
    const auto& c = loaded.view().constants()[loaded.value("w").constant];
    EXPECT_EQ(c.source, 0u);
    EXPECT_THAT(loaded.constant<float>("w"), ElementsAre(1.5f, -2));
  }
}

TEST(ImporterTest, InitializersThatAreInputsAreConstantsBeforeIr4AndDefaultsAfter) {
  Graph g = Graph().input("x").input("w").output("y").node(node("Add", {"x", "w"}, {"y"}));
  g.initializer(text::tensor("w", 1, {2}, text::raw<float>({1, 2})));
  const Imported old = good(model(g, 8, 3)), now = good(model(g, 13, 8));
  EXPECT_THAT(old.inputs(), ElementsAre("x"));
  EXPECT_THAT(now.inputs(), ElementsAre("x", "w"));
  EXPECT_EQ(now.value("w").flags, BELAY_VALUE_IS_INPUT);
  EXPECT_THAT(old.constant<float>("w"), ElementsAre(1, 2));
  EXPECT_THAT(now.constant<float>("w"), ElementsAre(1, 2));
}

TEST(ImporterTest, ConstantNodesBecomeConstants) {
  Graph g = Graph().output("t").output("f").output("is").output("ss");
  g.node(
      node("Constant", {}, {"t"},
           text::attribute("value", 4, text::bytes(5, text::tensor("", 7, {1}, text::raw<int64_t>({9}))))));
  g.node(node("Constant", {}, {"f"}, text::attribute("value_float", 1, text::fixed32(2, 0.5f))));
  g.node(node("Constant", {}, {"is"},
              text::attribute("value_ints", 7, text::number(8, 3) + text::number(8, -4))));
  g.node(node("Constant", {}, {"ss"},
              text::attribute("value_strings", 8, text::bytes(9, "a") + text::bytes(9, "bc"))));
  const Imported loaded = good(model(g));
  EXPECT_THAT(loaded.ops(), IsEmpty());
  EXPECT_THAT(loaded.constant<int64_t>("t"), ElementsAre(9));
  EXPECT_THAT(loaded.constant<float>("f"), ElementsAre(0.5f));
  EXPECT_THAT(loaded.constant<int64_t>("is"), ElementsAre(3, -4));
  const View view = loaded.view();
  const belay_span table = view.constant_bytes(view.constants()[loaded.value("ss").constant], {});
  EXPECT_EQ(graph::string_element(table, 2, 1), "bc");
}

TEST(ImporterTest, ShapesKeepTheirSymbols) {
  Graph g = relu();
  g = Graph()
          .input("x", 1, {"N", "3", ""})
          .output("y")
          .node(node("Relu", {"x"}, {"y"}))
          .info("y", text::tensor_type(1, {"N", "3", "?"}));
  const Imported loaded = good(model(g));
  const View view = loaded.view();
  const auto& type = view.types()[loaded.value("x").type];
  const auto dims = view.dims(view.section<belay_graph_shape>(view.header().shapes)[type.shape].dims);
  ASSERT_EQ(dims.size(), 3u);
  EXPECT_EQ(view.string(dims[0].symbol), "N");
  EXPECT_EQ(dims[1].value, 3);
  EXPECT_EQ(dims[2].value, -1);
  EXPECT_EQ(dims[2].symbol, BELAY_NONE);
  EXPECT_NE(loaded.value("y").type, BELAY_NONE);
}

TEST(ImporterTest, NodesOutOfOrderAreSortedWithAWarning) {
  Graph g = Graph().input("x").output("z").node(node("Neg", {"y"}, {"z"})).node(node("Relu", {"x"}, {"y"}));
  const Imported loaded = good(model(g));
  EXPECT_THAT(loaded.ops(), ElementsAre("Relu", "Neg"));
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr("sorted")));
  EXPECT_THAT(good(model(relu())).warnings, IsEmpty());
}

TEST(ImporterTest, AbsentInputsKeepTheirPlace) {
  Graph g = Graph().input("x").input("hi").output("y").node(node("Clip", {"x", "", "hi"}, {"y"}));
  const Imported loaded = good(model(g));
  EXPECT_THAT(loaded.names(loaded.view().node(0).inputs()), ElementsAre("x", "", "hi"));
}

TEST(ImporterTest, BranchesCaptureOuterValues) {
  const Graph then = Graph().name("then").output("t").node(node("Neg", {"x"}, {"t"}));
  const Graph other = Graph().name("else").output("e").node(node("Abs", {"x"}, {"e"}));
  Graph g = Graph().input("c", 9, {}).input("x").output("y");
  g.node(node(
      "If", {"c"}, {"y"},
      text::graph_attribute("then_branch", then.text) + text::graph_attribute("else_branch", other.text)));
  const Imported loaded = good(model(g));
  const View view = loaded.view();
  const uint32_t branch = view.node(0).graph("then_branch");
  ASSERT_NE(branch, BELAY_NONE);
  EXPECT_EQ(view.string(view.graphs()[branch].name), "then");
  EXPECT_THAT(loaded.names(view.indices(view.graphs()[branch].captures)), ElementsAre("x"));
}

// A function Scaled(X) -> Y with attribute alpha, default 2: Y = LeakyRelu(alpha)(Neg(X)).
std::string scaled() {
  return text::bytes(
      25, text::bytes(1, "Scaled") + text::bytes(4, "X") + text::bytes(5, "Y") +
              text::attribute("alpha", 1, text::fixed32(2, 2), 11) +
              text::bytes(7, node("Neg", {"X"}, {"h"})) +
              text::bytes(7, node("LeakyRelu", {"h"}, {"Y"}, text::reference("alpha", 1, "alpha"))) +
              text::opset("", 16, 9) + text::bytes(10, "my"));
}

TEST(ImporterTest, FunctionsAreInlinedWithTheirOwnOpsetAttributesAndDefaults) {
  Graph g = Graph().input("x").output("b");
  g.node(node("Scaled", {"x"}, {"a"},
              text::domain("my") + text::attribute("alpha", 1, text::fixed32(2, 0.25f)), "first"));
  g.node(node("Scaled", {"a"}, {"b"}, text::domain("my"), "second"));
  const Imported loaded = good(model(g, 13, 8, text::opset("my", 1) + scaled()));
  EXPECT_THAT(loaded.ops(), ElementsAre("Neg", "LeakyRelu", "Neg", "LeakyRelu"));
  const View view = loaded.view();
  EXPECT_EQ(view.node(1).float_or("alpha", 0), 0.25f);
  EXPECT_EQ(view.node(3).float_or("alpha", 0), 2);
  EXPECT_EQ(view.node(1).version(), 16u);  // by the function's import, not the model's
  EXPECT_THAT(loaded.names(view.node(1).outputs()), ElementsAre("a"));
  EXPECT_THAT(loaded.names(view.node(2).inputs()), ElementsAre("a"));
}

TEST(ImporterTest, FunctionsThatPassAnInputThroughGetAnIdentity) {
  const std::string pass =
      text::bytes(25, text::bytes(1, "Pass") + text::bytes(4, "X") + text::bytes(5, "X") +
                          text::opset("", 13, 9) + text::bytes(10, "my"));
  Graph g = Graph().input("x").output("y").node(node("Pass", {"x"}, {"y"}, text::domain("my")));
  EXPECT_THAT(good(model(g, 13, 8, text::opset("my", 1) + pass)).ops(), ElementsAre("Identity"));
}

TEST(ImporterTest, ExternalDataIsReferredToByItsSource) {
  const auto external = [](std::string_view location, const std::string& more = {}) {
    Graph g = Graph().input("x").output("y").node(node("Add", {"x", "w"}, {"y"}));
    const std::string entry = text::bytes(13, text::bytes(1, "location") + text::bytes(2, location));
    g.initializer(text::tensor("w", 1, {2}, entry + more + text::number(14, 1)));
    return model(g);
  };
  const std::string offset = text::bytes(13, text::bytes(1, "offset") + text::bytes(2, "4")) +
                             text::bytes(13, text::bytes(1, "length") + text::bytes(2, "8"));
  const Imported loaded =
      load(external("sub/../data/./w.bin", offset), {{"data/w.bin", std::string(16, 'x')}});
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.message();
  const View view = loaded.view();
  const auto& c = view.constants()[loaded.value("w").constant];
  EXPECT_EQ(c.source, 1u);
  EXPECT_EQ(c.offset, 4u);
  EXPECT_EQ(view.string(view.sources()[1].name), "data/w.bin");
  EXPECT_EQ(view.sources()[1].bytes, 16u);

  for (const std::string_view bad :
       {"../w.bin", "a/../../w.bin", "/w.bin", "C:w.bin", "..\\w.bin", "", ".", "a/.."}) {
    const Imported refused = load(external(bad), {{"w.bin", std::string(8, 'x')}});
    EXPECT_EQ(refused.status.code(), bad.empty() ? Code::kInvalidArgument : Code::kPermissionDenied) << bad;
    EXPECT_THAT(refused.opened, IsEmpty()) << "looked for " << bad;  // whether it exists must not show
    EXPECT_THAT(refused.status.message(), HasSubstr("'w'"));
  }
  EXPECT_THAT(load(external("gone.bin")).status.message(), AllOf(HasSubstr("'w'"), HasSubstr("gone.bin")));
  EXPECT_THAT(load(external("w.bin"), {{"w.bin", std::string(9, 'x')}}).status.message(),
              HasSubstr("9 bytes; want 8"));
}

TEST(ImporterTest, MetadataTellsWhereTheModelIsFrom) {
  const std::string entry = text::bytes(14, text::bytes(1, "author") + text::bytes(2, "line 1\nline 2"));
  const Imported loaded =
      good(model(relu(), 13, 8, text::bytes(2, "maker") + entry + text::opset("ai.onnx.ml", 2)));
  const View view = loaded.view();
  std::map<std::string, std::string> pairs;
  for (const auto& pair : view.section<belay_graph_pair>(view.header().metadata))
    pairs[std::string(view.string(pair.key))] = view.string(pair.value);
  EXPECT_EQ(pairs["onnx.ir_version"], "8");
  EXPECT_EQ(pairs["onnx.opset.ai.onnx"], "13");
  EXPECT_EQ(pairs["onnx.opset.ai.onnx.ml"], "2");
  EXPECT_EQ(pairs["onnx.producer_name"], "maker");
  EXPECT_EQ(pairs["onnx.metadata.author"], "line 1\nline 2");
}

TEST(ImporterTest, SequenceOptionalAndMapTypesAreKept) {
  const std::string tensor = text::tensor_type(1, {"2"});
  const std::string sequence = text::bytes(4, text::bytes(1, tensor)),
                    optional = text::bytes(9, text::bytes(1, sequence));
  const std::string map = text::bytes(5, text::number(1, 8) + text::bytes(2, tensor));
  Graph g = Graph().output("y").node(node("Identity", {"s"}, {"y"}));
  g.add(11, text::value("s", sequence)).add(11, text::value("o", optional)).add(11, text::value("m", map));
  const Imported loaded = good(model(g, 16));
  const View view = loaded.view();
  EXPECT_EQ(view.types()[loaded.value("s").type].kind, BELAY_TYPE_SEQUENCE);
  const auto& o = view.types()[loaded.value("o").type];
  EXPECT_EQ(o.kind, BELAY_TYPE_OPTIONAL);
  EXPECT_EQ(view.types()[o.element].kind, BELAY_TYPE_SEQUENCE);
  EXPECT_EQ(view.types()[loaded.value("m").type].dtype, BELAY_DT_STRING);
}

TEST(ImporterTest, UnknownOperatorsAreAllNamedAtOnce) {
  Graph g =
      Graph().input("x").output("b").node(node("Foo", {"x"}, {"a"})).node(node("HardSwish", {"a"}, {"b"}));
  const Imported loaded = load(model(g, 13));
  EXPECT_EQ(loaded.status.code(), Code::kUnimplemented);
  EXPECT_THAT(loaded.status.message(),
              AllOf(HasSubstr("'Foo' of domain ai.onnx, version 13, is not known (node 'Foo_node'"),
                    HasSubstr("'HardSwish'"), HasSubstr("came with version 14")));
}

TEST(ImporterTest, OperatorsOfMicrosoftHaveVersion1) {
  Graph g =
      Graph().input("x").output("y").node(node("FusedGelu", {"x"}, {"y"}, text::domain("com.microsoft")));
  const Imported loaded = good(model(g, 13, 8, text::opset("com.microsoft", 1)));
  EXPECT_EQ(loaded.view().node(0).domain(), "com.microsoft");
  EXPECT_EQ(loaded.view().node(0).version(), 1u);
}

TEST(ImporterTest, UseOfKnownOperatorsOfMicrosoftIsChecked) {
  const auto of = [](const char* op) {
    Graph g = Graph().input("x").output("y").node(node(op, {"x"}, {"y"}, text::domain("com.microsoft")));
    return failure(model(g, 13, 8, text::opset("com.microsoft", 1)));
  };
  EXPECT_THAT(of("BiasGelu"), HasSubstr("has 1 inputs, want 2"));
  EXPECT_THAT(of("MultiHeadAttention"), HasSubstr("lacks the attribute 'num_heads'"));
}

TEST(ImporterTest, NamesThatAreNotUtf8AreEscaped) {
  Graph g = Graph().input("x\xff").output("y").node(node("Relu", {"x\xff"}, {"y"}));
  EXPECT_THAT(good(model(g)).inputs(), ElementsAre("x\\xff"));
  EXPECT_THAT(failure(model(Graph().input("x").output("a\x1b[31m"))), HasSubstr("'a\\x1b[31m'"));
}

TEST(ImporterTest, ASmallFileOfManyCallsDoesNotGrowWithoutEnd) {
  std::string functions;
  for (int i = 0; i < 60; ++i) {
    const std::string next = "F" + std::to_string(i + 1);
    functions +=
        text::bytes(25, text::bytes(1, "F" + std::to_string(i)) + text::bytes(4, "X") + text::bytes(5, "Y") +
                            text::bytes(7, node(next, {"X"}, {"h"}, text::domain("my"))) +
                            text::bytes(7, node(next, {"h"}, {"Y"}, text::domain("my"))) +
                            text::opset("my", 1, 9) + text::bytes(10, "my"));
  }
  functions += text::bytes(25, text::bytes(1, "F60") + text::bytes(4, "X") + text::bytes(5, "Y") +
                                   text::bytes(7, node("Neg", {"X"}, {"Y"})) + text::opset("", 13, 9) +
                                   text::bytes(10, "my"));
  Graph g = Graph().input("x").output("y").node(node("F0", {"x"}, {"y"}, text::domain("my")));
  EXPECT_EQ(load(model(g, 13, 8, text::opset("my", 1) + functions)).status.code(), Code::kResourceExhausted);
}

TEST(ImporterTest, ManyNodesTakeLinearTime) {
  Graph g = Graph().input("v0").output("v20000");
  for (int i = 20000; i-- > 0;) {  // in reverse: the worst order for sorting
    const std::string from = "v" + std::to_string(i), to = "v" + std::to_string(i + 1);
    g.node(node("Relu", {from}, {to}));
  }
  EXPECT_EQ(good(model(g)).view().nodes().size(), 20000u);
}

// Libraries of protobuf refuse messages above 64 MiB unless told otherwise.
TEST(ImporterTest, AFileOf65MiBIsReadInPlace) {
  constexpr int64_t kCount = 65 << 18;  // floats
  Graph g = Graph().input("x").output("y").node(node("Add", {"x", "w"}, {"y"}));
  g.initializer(text::tensor("w", 1, {kCount}, text::bytes(9, std::string(4 * kCount, '\0'))));
  const Imported loaded = good(model(g));
  EXPECT_LT(loaded.image.size(), 4096u);  // the weights are where they were
  EXPECT_FALSE(load(loaded.file.substr(0, loaded.file.size() - 1000)).status.ok());
}

TEST(ImporterTest, EveryTruncationIsRefused) {
  Graph g = Graph().input("x").output("y").node(node("Add", {"x", "w"}, {"y"}));
  g.initializer(text::tensor("w", 1, {2}, text::raw<float>({1, 2})));
  const std::string file = model(g);
  for (size_t length = 0; length < file.size(); ++length)
    EXPECT_FALSE(load(file.substr(0, length)).status.ok()) << length;
}

}  // namespace
}  // namespace belay::onnx
