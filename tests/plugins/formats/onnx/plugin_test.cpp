// The plugin as a host sees it: by its entry symbol and C tables.
#include "plugins/formats/onnx/sniff.hpp"
#include "proto_text.hpp"

#include <belay/abi/plugin.h>
#include <belay/graph/verify.hpp>
#include <belay/kinds.hpp>
#include <belay/testing/fake_host.hpp>
#include <belay/testing/mock_model_format.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

namespace belay::onnx {
namespace {

using belay::testing::Adopted;
using belay::testing::FakeHost;
using belay::testing::FakeReader;
using belay::testing::FakeSink;
using belay::testing::MockModelFormat;
using belay::testing::table_for;
using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Return;
using ::testing::StrictMock;
using text::Graph;
using text::node;

std::string sample() { return text::model(Graph().input("x").output("y").node(node("Relu", {"x"}, {"y"}))); }

class OnnxPluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(BELAY_TEST_PLUGIN_DIR "/libbelay_onnx.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library_) << dlerror();
    const auto entry = reinterpret_cast<belay_entry_fn>(dlsym(library_, BELAY_ENTRY_NAME));
    ASSERT_TRUE(entry);
    belay_handshake handshake{.hdr = {sizeof(belay_handshake), 0, nullptr},
                              .host_minor = BELAY_ABI_MINOR,
                              .plugin_minor = 0,
                              .needs = 0,
                              .uses = 0,
                              .layout = 0};
    plugin_ = entry(&host_, &handshake);
    ASSERT_TRUE(plugin_);
    ASSERT_EQ(plugin_->open(&host_, nullptr, &ctx_), BELAY_OK);
    belay_created created{.hdr = {sizeof(belay_created), 0, nullptr}, .impl = nullptr, .table = nullptr};
    ASSERT_EQ(plugin_->components[0]->create(ctx_, nullptr, &created), BELAY_OK);
    format_ = {BELAY_OBJ_MODEL_FORMAT, static_cast<const belay_model_format_vt*>(created.table),
               created.impl};
  }
  void TearDown() override {
    format_.reset();
    if (plugin_) plugin_->close(ctx_);
    EXPECT_EQ(host_.live_details(), 0u);
    EXPECT_THAT(host_.misbehaviour(), ElementsAre());
    // The library stays: what a sanitizer reports later must find its symbols.
  }
  Status parse(FakeReader& reader, FakeSink& sink) {
    return host_.take(format_->parse(format_, &reader, nullptr, &sink));
  }

  FakeHost host_;
  void* library_ = nullptr;
  const belay_plugin* plugin_ = nullptr;
  belay_ctx* ctx_ = nullptr;
  Adopted<belay_model_format_vt> format_;
};

TEST_F(OnnxPluginTest, OffersOneModelFormat) {
  ASSERT_EQ(plugin_->component_count, 1u);
  EXPECT_EQ(to_view(plugin_->components[0]->kind), BELAY_MODEL_FORMAT_KIND);
  EXPECT_EQ(to_view(plugin_->components[0]->name), "onnx");
}

TEST_F(OnnxPluginTest, GivesAFrozenGraphOnce) {
  const std::string file = sample();
  FakeReader reader(file, &host_);
  FakeSink sink;
  const Status status = parse(reader, sink);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(sink.images.size(), 1u);
  EXPECT_TRUE(graph::verify({sink.images[0].data(), sink.images[0].size()}).ok());
  EXPECT_THAT(sink.warnings, ElementsAre());
}

TEST_F(OnnxPluginTest, ErrorsKeepTheirSentence) {
  FakeReader empty("", &host_);
  FakeSink sink;
  EXPECT_THAT(parse(empty, sink).message(), HasSubstr("empty"));
  const std::string file = sample();
  FakeReader cut(std::string_view(file).substr(0, file.size() / 2), &host_);
  EXPECT_EQ(parse(cut, sink).code(), Code::kDataLoss);
  EXPECT_THAT(sink.images, ElementsAre());
}

TEST_F(OnnxPluginTest, ReadersAndSinksErrorsPassThrough) {
  Graph g = Graph().input("x").output("y").node(node("Add", {"x", "w"}, {"y"}));
  g.initializer(text::tensor(
      "w", 1, {2},
      text::bytes(13, text::bytes(1, "location") + text::bytes(2, "w.bin")) + text::number(14, 1)));
  const std::string file = text::model(g), weights(8, 'x');
  FakeSink sink;
  {
    FakeReader reader(file, &host_);
    const Status status = parse(reader, sink);
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("There is no file 'w.bin'"), HasSubstr("tensor 'w'")));
  }
  FakeReader reader(file, &host_);
  reader.add_file("w.bin", weights);
  sink.answer = host_.make(Code::kResourceExhausted, "The sink is full.");
  const Status status = parse(reader, sink);
  EXPECT_EQ(status.message(), "The sink is full.");
  EXPECT_THAT(reader.opened(), ElementsAre("w.bin"));
}

TEST(SniffTest, ContentsDecideAndTheNameBreaksTies) {
  const std::string file = sample();
  EXPECT_GE(sniff("", file, file.size()), 900u);
  EXPECT_GT(sniff("m.onnx", file, file.size()), sniff("m.pb", file, file.size()));
  EXPECT_GT(sniff("m.onnx", std::string_view(file).substr(0, 20), 20), 0u);       // cut off
  EXPECT_GE(sniff("", std::string_view(file).substr(0, 20), file.size()), 900u);  // only the head is seen
  EXPECT_EQ(sniff("a.onnx", "\x01no model at all", 16), 1u);
  EXPECT_EQ(sniff("a.onnx", "<!DOCTYPE html>\n", 16), 0u);  // what a server says instead
  EXPECT_EQ(sniff("a.txt", "no model at all", 15), 0u);
  EXPECT_EQ(sniff("graph.pb", std::string("\x0a\x0c\x0a\x01x\x12\x0bPlaceholder", 17), 17),
            0u);  // a TensorFlow graph
  EXPECT_EQ(sniff("m.om", std::string("IMOD\0\1\0\0", 8), 300), 0u);
  EXPECT_EQ(sniff("", "", 0), 0u);
}

TEST(MockModelFormatTest, TheTableCallsTheMockAndDestroysItOnce) {
  FakeHost host;
  auto mock = std::make_unique<StrictMock<MockModelFormat>>(&host);
  EXPECT_CALL(*mock, sniff(_)).WillOnce(Return(700u));
  EXPECT_CALL(*mock, parse(_, nullptr, _)).WillOnce(Return(Status(Code::kDataLoss, "Byte 3 is wrong.")));
  EXPECT_CALL(*mock, died()).Times(1);
  EXPECT_TRUE(check_table(shape::kModelFormat, &table_for<MockModelFormat>(), "mock").ok());
  auto format = host.adopt(table_for<MockModelFormat>(), std::move(mock), BELAY_OBJ_MODEL_FORMAT);
  belay_sniff_req req{};
  FakeReader reader("");
  FakeSink sink;
  EXPECT_EQ(format->sniff(format, &req), 700u);
  EXPECT_EQ(host.take(format->parse(format, &reader, nullptr, &sink)).message(), "Byte 3 is wrong.");
}

}  // namespace
}  // namespace belay::onnx
