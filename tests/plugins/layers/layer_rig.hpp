// tests/plugins/layers/layer_rig.hpp: a layer's plugin, compiled into the test, before a mock driver: what a host
// does of it, without one.
#pragma once

#include "core/config/value.h"

#include <belay/abi/layer.h>
#include <belay/abi/native_model.h>
#include <belay/abi/plugin.h>
#include <belay/plugin.hpp>
#include <belay/testing/fake_services.hpp>
#include <belay/testing/mock_driver.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

BELAY_EXPORT const belay_plugin* BELAY_ENTRY(const belay_host*, belay_handshake*) BELAY_NOEXCEPT;

namespace belay::testing {

template <class T>
T sized() {
  T value{};
  value.hdr.struct_size = sizeof value;
  return value;
}

class LayerTest : public ::testing::Test {
 protected:
  // The layer with this configuration, in TOML; what its create says.
  Status begin(const std::string& toml = "") {
    auto parsed = core::parse_toml("test.toml", toml);
    if (!parsed.ok()) return parsed.status();
    config_ = std::move(*parsed);
    belay_handshake handshake = sized<belay_handshake>();
    plugin_ = BELAY_ENTRY(&host, &handshake);
    belay_created made = sized<belay_created>();
    BELAY_TRY(host.take(plugin_->open(&host, config_.get(), &ctx_)));
    BELAY_TRY(host.take(plugin_->components[0]->create(ctx_, config_.get(), &made)));
    layer_ = {BELAY_OBJ_MAGIC, BELAY_OBJ_LAYER, 1, made.table, made.impl, {}};
    return {};
  }
  // Ends the layer; all objects were destroyed or are left.
  void end() {
    for (auto object = objects_.rbegin(); object != objects_.rend(); ++object)
      if (object->magic == BELAY_OBJ_MAGIC) end_unseen(*object);
    if (layer_.impl) vt().destroy(&layer_);
    layer_.impl = nullptr;
    if (ctx_) plugin_->close(ctx_);
    ctx_ = nullptr;
  }
  void TearDown() override {
    end();
    EXPECT_EQ(host.live_details(), 0u);
    EXPECT_EQ(host.live_blocks(), 0u);
  }

  // An object around what a slot gave, with the layer before it.
  belay_obj* adopt(uint32_t kind, const belay_created& made, belay_obj* parent, const char* plugin = "mock") {
    belay_obj& object = objects_.emplace_back(belay_obj{BELAY_OBJ_MAGIC, kind, 1, made.table, made.impl, {}});
    belay_attach_req req{{sizeof req, 0, nullptr}, &object, made.table, parent, to_str(plugin), kKey};
    const void* table = req.next;
    const Status attached = host.take(vt().attach(&layer_, &req, &table));
    EXPECT_TRUE(attached.ok()) << attached.message();
    object.table = table;
    return &object;
  }
  template <class Table>
  static const Table& table_of(belay_obj* object) {
    return *static_cast<const Table*>(object->table);
  }
  static const belay_driver_vt& driver_vt(belay_obj* o) { return table_of<belay_driver_vt>(o); }
  static const belay_device_vt& device_vt(belay_obj* o) { return table_of<belay_device_vt>(o); }
  static const belay_stream_vt& stream_vt(belay_obj* o) { return table_of<belay_stream_vt>(o); }

  belay_obj* make_driver(const char* plugin = "mock") {
    auto mock = std::make_unique<::testing::NiceMock<MockDriver>>(&host);
    driver_mock = mock.get();
    ON_CALL(*mock, open_device).WillByDefault([this](uint64_t) -> Result<std::unique_ptr<MockDevice>> {
      auto made = std::make_unique<::testing::NiceMock<MockDevice>>(&host);
      device_mock = made.get();
      ON_CALL(*made, extension).WillByDefault([](std::string_view id) -> const void* {
        return id == BELAY_DRIVER_PROGRAM          ? static_cast<const void*>(&MockDevice::program_table())
               : id == BELAY_DRIVER_VIRTUAL_MEMORY ? &MockDevice::virtual_memory_table()
                                                   : nullptr;
      });
      ON_CALL(*made, stream_create)
          .WillByDefault([this](const belay_stream_req&) -> Result<std::unique_ptr<MockStream>> {
            auto stream = std::make_unique<::testing::NiceMock<MockStream>>(&host);
            stream_mock = stream.get();
            return std::unique_ptr<MockStream>(std::move(stream));
          });
      return std::unique_ptr<MockDevice>(std::move(made));
    });
    belay_created made = sized<belay_created>();
    made.table = &table_for<MockDriver>(), made.impl = static_cast<MockDriver*>(mock.release());
    return adopt(BELAY_OBJ_DRIVER, made, nullptr, plugin);
  }
  belay_obj* open_device(belay_obj* driver, uint64_t index = 0, const char* plugin = "mock") {
    belay_created made = sized<belay_created>();
    const Status status = host.take(driver_vt(driver).open_device(driver, index, &made));
    EXPECT_TRUE(status.ok()) << status.message();
    return adopt(BELAY_OBJ_DEVICE, made, driver, plugin);
  }
  belay_obj* make_stream(belay_obj* device) {
    belay_stream_req req = sized<belay_stream_req>();
    req.timeline = ++timelines_;
    belay_created made = sized<belay_created>();
    const Status status = host.take(device_vt(device).stream_create(device, &req, &made));
    EXPECT_TRUE(status.ok()) << status.message();
    return adopt(BELAY_OBJ_STREAM, made, device);
  }
  belay_obj* make_buffer(belay_obj* device, uint64_t bytes) {
    belay_alloc_req req = sized<belay_alloc_req>();
    req.bytes = bytes;
    belay_created made = sized<belay_created>();
    const Status status = host.take(device_vt(device).alloc(device, &req, &made));
    EXPECT_TRUE(status.ok()) << status.message();
    return adopt(BELAY_OBJ_BUFFER, made, device);
  }
  // Destroys it through its table; a stale handle keeps its memory, as that of a host does.
  template <class Table>
  void destroy(belay_obj* object) {
    table_of<Table>(object).destroy(object);
    gone(object);
  }
  void free_buffer(belay_obj* device, belay_obj* buffer) {
    device_vt(device).free(device, buffer);
    gone(buffer);
  }
  void gone(belay_obj* object) {
    object->magic = BELAY_OBJ_DEAD;
    vt().detach(&layer_, object, kKey);
    object->layer_word[kKey] = 0;
  }

  std::string report() {
    StringSink text;
    EXPECT_TRUE(host.take(vt().report(&layer_, text.sink())).ok());
    return text.text();
  }

  FakeHost host;
  FakeServices services{host};
  MockDriver* driver_mock = nullptr;
  MockDevice* device_mock = nullptr;  // the last one opened
  MockStream* stream_mock = nullptr;  // the last one made

 private:
  static constexpr uint64_t kKey = 3;
  const belay_layer_vt& vt() { return *static_cast<const belay_layer_vt*>(layer_.table); }
  // What a test has left, without the layer's seeing its end.
  void end_unseen(belay_obj& object) {
    object.magic = BELAY_OBJ_DEAD;
    switch (object.kind) {
      case BELAY_OBJ_DRIVER:
        delete static_cast<MockDriver*>(object.impl);
        break;
      case BELAY_OBJ_DEVICE:
        delete static_cast<MockDevice*>(object.impl);
        break;
      case BELAY_OBJ_STREAM:
        delete static_cast<MockStream*>(object.impl);
        break;
      case BELAY_OBJ_PROGRAM:
        delete static_cast<MockProgram*>(object.impl);
        break;
      case BELAY_OBJ_BUFFER:
        if (!(reinterpret_cast<uintptr_t>(object.impl) & 1)) std::free(object.impl);
    }
    vt().detach(&layer_, &object, kKey);
  }

  std::unique_ptr<core::Node> config_;
  const belay_plugin* plugin_ = nullptr;
  belay_ctx* ctx_ = nullptr;
  belay_obj layer_{};
  std::deque<belay_obj> objects_;
  uint64_t timelines_ = 0;
};

}  // namespace belay::testing
