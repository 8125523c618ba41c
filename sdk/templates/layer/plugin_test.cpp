// The plugin @ID@ as its file is built, called as a host calls it.
#include <belay/testing/mock_model_format.hpp>
#include <belay/testing/plugin_file.hpp>

#include <gmock/gmock.h>

namespace {

using belay::StringSink;
using belay::testing::FakeHost;
using belay::testing::MockModelFormat;
using belay::testing::PluginFile;
using ::testing::_;
using ::testing::NiceMock;
using ::testing::Return;

constexpr uint64_t kKey = 3;  // of the 16 words of an object

TEST(Layer, CountsCallsAndPassesThemOn) {
  FakeHost host;
  PluginFile plugin(host, BELAY_PLUGIN_FILE);
  const auto layer = plugin.make<belay_layer_vt>(BELAY_LAYER_KIND);

  NiceMock<MockModelFormat> format(&host);
  EXPECT_CALL(format, sniff(_)).Times(2).WillRepeatedly(Return(7));
  belay_obj object{BELAY_OBJ_MAGIC, BELAY_OBJ_MODEL_FORMAT, 1, &MockModelFormat::table(), &format, {}};
  belay_attach_req req{};
  req.hdr.struct_size = sizeof req;
  req.object = &object, req.next = object.table, req.plugin = belay::to_str("other"), req.key = kKey;
  const void* table = req.next;
  ASSERT_EQ(layer->attach(layer, &req, &table), BELAY_OK);
  object.table = table;

  const auto& seen = *static_cast<const belay_model_format_vt*>(table);
  const belay_sniff_req sniff{};
  EXPECT_EQ(seen.sniff(&object, &sniff), 7u);
  EXPECT_EQ(seen.sniff(&object, &sniff), 7u);
  StringSink text;
  EXPECT_EQ(layer->report(layer, text.sink()), BELAY_OK);
  EXPECT_EQ(text.text(), "model_format.sniff 2\n");

  layer->detach(layer, &object, kKey);
  EXPECT_EQ(host.live_details(), 0u);
}

TEST(Layer, StaysOutOfWhatItDoesNotKnow) {
  FakeHost host;
  PluginFile plugin(host, BELAY_PLUGIN_FILE);
  const auto layer = plugin.make<belay_layer_vt>(BELAY_LAYER_KIND);
  belay_obj buffer{BELAY_OBJ_MAGIC, BELAY_OBJ_BUFFER, 1, nullptr, nullptr, {}};  // has no table
  belay_attach_req req{};
  req.hdr.struct_size = sizeof req;
  req.object = &buffer, req.plugin = belay::to_str("other"), req.key = kKey;
  const void* table = nullptr;
  EXPECT_EQ(layer->attach(layer, &req, &table), BELAY_OK);
  EXPECT_EQ(table, nullptr);
  layer->detach(layer, &buffer, kKey);
}

}  // namespace
