// The plugin @ID@ as its file is built, called as a host calls it.
#include <belay/graph/verify.hpp>
#include <belay/graph/view.hpp>
#include <belay/testing/mock_model_format.hpp>
#include <belay/testing/plugin_file.hpp>

#include <gmock/gmock.h>

namespace {

using belay::Code;
using belay::Status;
using belay::testing::FakeHost;
using belay::testing::FakeReader;
using belay::testing::FakeSink;
using belay::testing::PluginFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ModelFormat : public ::testing::Test {
 protected:
  Status parse(std::string_view text) {
    FakeReader reader(text, &host);
    return host.take(format->parse(format, &reader, nullptr, &sink));
  }
  uint32_t sniff(std::string_view text) {
    belay_sniff_req req{};
    req.hdr.struct_size = sizeof req;
    req.head = {text.data(), text.size()}, req.file_bytes = text.size();
    return format->sniff(format, &req);
  }
  FakeHost host;
  PluginFile plugin{host, BELAY_PLUGIN_FILE};
  belay::testing::Adopted<belay_model_format_vt> format =
      plugin.make<belay_model_format_vt>(BELAY_MODEL_FORMAT_KIND);
  FakeSink sink;
};

TEST_F(ModelFormat, KnowsItsFilesByTheirFirstWords) {
  EXPECT_EQ(sniff("@ID@ 1\n"), 1000u);
  EXPECT_EQ(sniff("@ID@"), 0u);
  EXPECT_EQ(sniff(""), 0u);
  EXPECT_EQ(sniff("something else"), 0u);
}

TEST_F(ModelFormat, ReadsAGraph) {
  ASSERT_TRUE(
      parse(
          "@ID@ 1\ninput x float32 Nx2\nconstant c float32 2 = 1.5 -2\nnode y = Add x c  # a sum\noutput y\n")
          .ok());
  ASSERT_EQ(sink.images.size(), 1u);
  std::vector<uint64_t> words((sink.images[0].size() + 7) / 8);  // an image is aligned to 8 bytes
  std::memcpy(words.data(), sink.images[0].data(), sink.images[0].size());
  const belay_span image{words.data(), sink.images[0].size()};
  ASSERT_TRUE(belay::graph::verify(image).ok());
  const belay::graph::View view(image);
  ASSERT_EQ(view.nodes().size(), 1u);
  EXPECT_EQ(view.node(0).op(), "Add");
  EXPECT_EQ(view.node(0).version(), 14u);
  EXPECT_EQ(view.shape(view.node(0).input(0)), (std::vector<int64_t>{-1, 2}));
  const belay_span bytes = view.constant_bytes(view.constants()[0], {});
  ASSERT_EQ(bytes.len, 8u);
  EXPECT_EQ(static_cast<const float*>(bytes.ptr)[1], -2);
}

TEST_F(ModelFormat, SaysWhichLineIsWrongAndWhatIsWanted) {
  const auto says = [&](std::string_view text, Code code, const char* what, const char* where) {
    const Status status = parse(text);
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(what), HasSubstr(where)));
  };
  says("@ID@ 2\n", Code::kUnimplemented, "'@ID@ 2'", "Line 1");
  says("@ID@ 1\n", Code::kInvalidArgument, "no output", "output NAME");
  says("@ID@ 1\n\nfoo bar\n", Code::kDataLoss, "'foo'", "line 3");
  says("@ID@ 1\ninput x float32 2x-1\n", Code::kDataLoss, "'-1'", "line 2");
  says("@ID@ 1\ninput x int8 2\n", Code::kUnimplemented, "'int8'", "line 2");
  says("@ID@ 1\nconstant c float32 2 = 1\n", Code::kInvalidArgument, "1 numbers, want 2", "line 2");
  says("@ID@ 1\nconstant c float32 1 = 1z\n", Code::kDataLoss, "'1z'", "line 2");
  says("@ID@ 1\nnode y = Conv x\n", Code::kUnimplemented, "'Conv'", "Relu");
  says("@ID@ 1\nnode y = Relu x\n", Code::kInvalidArgument, "no value 'x'", "line 2");
  says("@ID@ 1\ninput x float32 2\ninput x float32 2\n", Code::kInvalidArgument, "'x' is taken", "line 3");
  says("@ID@ 1\ninput x float32 2\nnode y = Add x\n", Code::kInvalidArgument, "takes 2 inputs", "line 3");
  EXPECT_TRUE(sink.images.empty());
  EXPECT_EQ(host.live_details(), 0u);
}

TEST_F(ModelFormat, PassesOnWhatTheHostSays) {
  sink.answer = host.make(Code::kInternal, "The graph is refused.");
  EXPECT_THAT(parse("@ID@ 1\ninput x float32 1\noutput x\n").message(), HasSubstr("refused"));
}

}  // namespace
