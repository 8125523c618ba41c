#include <belay/graph/builder.hpp>
#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace belay::graph {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// One graph with a bit of everything.
std::string sample() {
  Builder b;
  b.set_source_bytes(0, 1000);
  b.add_source("weights.bin", 500);
  const std::vector<Dim> shape{{-1, "N"}, {2, ""}};
  const uint32_t type = b.tensor_type(BELAY_DT_FLOAT32, shape);
  const uint32_t cond = b.add_value(0, "cond", b.tensor_type(BELAY_DT_BOOL, std::vector<Dim>{}));
  const uint32_t x = b.add_value(0, "x", type);
  b.add_input(0, cond);
  b.add_input(0, x);
  const std::array<int64_t, 1> two{2};
  const std::array<std::string_view, 2> texts{"ab", ""};
  const uint32_t w = b.add_value(0, "w", BELAY_NONE, b.add_constant_at("w", BELAY_DT_FLOAT32, two, 1, 8, 8));
  b.add_value(0, "s", BELAY_NONE, b.add_string_constant("s", two, texts));
  b.set_value_quant(x, {BELAY_QUANT_AXIS, w, BELAY_NONE, 0, 1, 0});
  const uint32_t a = b.add_value(0, "a", type),
                 y = b.add_value(0, "y", b.optional_type(b.sequence_type(type)));
  const std::array<uint32_t, 3> ins{x, w, BELAY_NONE};
  const uint32_t add = b.add_node(0, "", "Add", 14, "add", ins, std::array{a});
  b.set_int(add, "i", 1);
  b.set_float(add, "f", 1);
  const uint32_t branch = b.add_graph("then", 0);
  const uint32_t n = b.add_node(0, "", "If", 16, "if", std::array{cond}, std::array{y});
  b.set_graph(n, "then_branch", branch);
  b.add_control_input(n, add);
  const uint32_t inner = b.add_value(branch, "inner", BELAY_NONE);
  b.add_node(branch, "com.microsoft", "Gelu", 1, "", std::array{a}, std::array{inner});
  b.add_output(branch, inner);
  b.add_output(0, y);
  b.add_metadata("k", "v");
  return b.freeze().value();
}

Status check(const std::string& image) {
  // A copy of exactly this size, so that a sanitizer sees a read past the end.
  const auto copy = std::make_unique<uint64_t[]>((image.size() + 7) / 8);
  std::memcpy(copy.get(), image.data(), image.size());
  const belay_span span{copy.get(), image.size()};
  const Status status = verify(span);
  if (status.ok()) {  // what is accepted can be read
    StringSink text;
    print(span, text.sink());
  }
  return status;
}

// The image with one record changed by `change`.
template <class T, class Change>
Status with(belay_section belay_graph_image::*section, size_t index, Change&& change) {
  std::string image = sample();
  belay_graph_image header;
  std::memcpy(&header, image.data(), sizeof header);
  char* at = image.data() + (header.*section).offset + index * sizeof(T);
  T record;
  std::memcpy(&record, at, sizeof record);
  change(record);
  std::memcpy(at, &record, sizeof record);
  return check(image);
}

TEST(VerifyTest, AcceptsWhatTheBuilderMakes) {
  const Status status = check(sample());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(VerifyTest, EveryTruncationIsRefused) {
  const std::string image = sample();
  for (size_t length = 0; length < image.size(); ++length)
    EXPECT_EQ(check(image.substr(0, length)).code(), Code::kDataLoss) << length;
}

TEST(VerifyTest, NamesSectionIndexAndValue) {
  using Image = belay_graph_image;
  const auto has = [](const Status& status, std::initializer_list<const char*> parts) {
    EXPECT_EQ(status.code(), Code::kDataLoss);
    for (const char* part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
  };
  has(with<belay_graph_node>(&Image::nodes, 0, [](auto& n) { n.op = 999; }),
      {"nodes[0].op is 999", "less than"});
  has(with<belay_graph_value>(&Image::values, 1, [](auto& v) { v.type = 77; }), {"values[1].type is 77"});
  has(with<belay_graph_value>(&Image::values, 2, [](auto& v) { v.graph = 9; }), {"values[2].graph is 9"});
  has(with<belay_graph_value>(&Image::values, 4, [](auto& v) { v.output = 1; }), {"nodes[0].outputs"});
  has(with<belay_graph_value>(&Image::values, 0, [](auto& v) { v.flags = 0; }), {"graphs[0].inputs"});
  has(with<belay_graph_value>(&Image::values, 5, [](auto& v) { v.flags = 2; }), {"values[5].flags is 2"});
  has(with<belay_graph_constant>(&Image::constants, 0, [](auto& c) { c.offset = 493; }),
      {"constants[0].bytes"});
  has(with<belay_graph_constant>(&Image::constants, 0, [](auto& c) { c.offset = UINT64_MAX - 3; }),
      {"constants[0].bytes"});
  has(with<belay_graph_constant>(&Image::constants, 0, [](auto& c) { c.dtype = 50; }),
      {"constants[0].dtype is 50"});
  has(with<belay_graph_constant>(&Image::constants, 0, [](auto& c) { c.source = 2; }),
      {"constants[0].source is 2"});
  has(with<belay_graph_constant>(&Image::constants, 1, [](auto& c) { c.offset = 4; }),
      {"constants[1].offset is 4"});
  has(with<belay_graph_constant>(&Image::constants, 1, [](auto& c) { c.bytes = 16; }),
      {"constants[1].bytes is 16", "2 strings"});
  has(with<belay_graph_type>(&Image::types, 0, [](auto& t) { t.kind = 5; }), {"types[0].kind is 5"});
  has(with<belay_graph_type>(&Image::types, 2, [](auto& t) { t.element = 2; }), {"types[2].element is 2"});
  has(with<belay_graph_graph>(&Image::graphs, 1, [](auto& g) { g.parent = 1; }),
      {"nodes[1].attributes is 1"});
  has(with<belay_graph_graph>(&Image::graphs, 1, [](auto& g) { g.captures.count = 0; }),
      {"nodes[2].inputs", "captures"});
  has(with<belay_graph_graph>(&Image::graphs, 0, [](auto& g) { g.nodes.count = 1; }), {"nodes"});
  has(with<belay_graph_dim>(&Image::dims, 0, [](auto& d) { d.value = -2; }), {"dims[0].value"});
  has(with<belay_graph_quant>(&Image::quants, 0, [](auto& q) { q.scale = 99; }), {"quants[0].scale is 99"});
  has(with<belay_graph_attribute>(&Image::attributes, 0, [](auto& a) { a.kind = 11; }),
      {"attributes[0].kind is 11"});
  has(with<belay_graph_attribute>(&Image::attributes, 0, [](auto& a) { a.values.count = 2; }),
      {"attributes[0].values"});
  has(with<belay_graph_pair>(&Image::metadata, 0, [](auto& p) { p.value = BELAY_NONE; }),
      {"metadata[0].value is none"});
  has(with<belay_graph_string>(&Image::strings, 1, [](auto& s) { s.len = UINT64_MAX; }), {"strings[1].len"});
}

TEST(VerifyTest, AUseBeforeItsProducerIsRefused) {
  const Status status =
      with<belay_graph_node>(&belay_graph_image::nodes, 0, [](auto& n) { n.inputs = n.outputs; });
  EXPECT_THAT(status.message(), AllOf(HasSubstr("nodes[0].inputs"), HasSubstr("an earlier node makes")));
}

TEST(VerifyTest, ListsThatOverlapAreRefusedBeforeTheyCostTime) {
  // Two nodes whose input lists are the whole pool each.
  const Status status = with<belay_graph_node>(&belay_graph_image::nodes, 0, [](auto& n) {
    n.inputs = {0, n.inputs.first + n.inputs.count + 4};
  });
  EXPECT_EQ(status.code(), Code::kDataLoss);
}

TEST(VerifyTest, AMisalignedOrMissingImageIsRefused) {
  const std::string image = sample();
  std::string shifted = "x" + image;
  while (reinterpret_cast<uintptr_t>(shifted.data()) % 8 != 0) shifted.reserve(shifted.capacity() + 64);
  EXPECT_THAT(verify({shifted.data() + 1, image.size()}).message(), HasSubstr("aligned"));
  EXPECT_FALSE(verify({nullptr, 0}).ok());
}

TEST(VerifyTest, RandomDamageNeverCrashes) {
  const std::string image = sample();
  std::mt19937_64 random(11);
  constexpr uint32_t kWords[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  for (int round = 0; round < 20000; ++round) {
    std::string bad = image;
    for (uint64_t k = 0; k < 1 + random() % 3; ++k) {
      const size_t at = random() % (bad.size() / 4) * 4;
      const uint32_t word = random() % 2 ? kWords[random() % std::size(kWords)] : uint32_t(random() % 64);
      std::memcpy(bad.data() + at, &word, sizeof word);
    }
    (void)check(bad);
  }
}

}  // namespace
}  // namespace belay::graph
