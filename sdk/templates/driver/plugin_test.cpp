// The plugin @ID@ as its file is built, called as a host calls it.
#include <belay/abi/driver.h>
#include <belay/testing/plugin_file.hpp>

#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <vector>

namespace {

using belay::Code;
using belay::Status;
using belay::testing::Adopted;
using belay::testing::FakeHost;
using belay::testing::PluginFile;

class Driver : public testing::Test {
 protected:
  Driver() {
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    EXPECT_EQ(driver->open_device(driver, 0, &made), BELAY_OK);
    device = plugin.adopt<belay_device_vt>(belay::shape::kDevice, made);
  }
  Adopted<belay_stream_vt> make_stream(uint64_t timeline) {
    belay_stream_req req{};
    req.hdr.struct_size = sizeof req;
    req.timeline = timeline;
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    EXPECT_EQ(device->stream_create(device, &req, &made), BELAY_OK);
    return plugin.adopt<belay_stream_vt>(belay::shape::kStream, made);
  }
  belay_obj make_buffer(uint64_t bytes) {
    belay_alloc_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = bytes;
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    EXPECT_EQ(device->alloc(device, &req, &made), BELAY_OK);
    return {BELAY_OBJ_MAGIC, BELAY_OBJ_BUFFER, 1, nullptr, made.impl, {}};
  }
  static uint64_t copy(const Adopted<belay_stream_vt>& stream, belay_obj* to, const void* from,
                       uint64_t bytes) {
    belay_copy_req req{};
    req.hdr.struct_size = sizeof req;
    req.dst = to, req.host_src = from, req.bytes = bytes;
    uint64_t value = 0;
    EXPECT_EQ(stream->copy(stream, &req, &value), BELAY_OK);
    return value;
  }

  FakeHost host;  // its executor runs what the test says, on this thread
  PluginFile plugin{host, BELAY_PLUGIN_FILE};
  Adopted<belay_driver_vt> driver = plugin.make<belay_driver_vt>(BELAY_DRIVER_KIND);
  Adopted<belay_device_vt> device;
};

TEST_F(Driver, OpensItsDeviceOnce) {
  EXPECT_EQ(driver->device_count(driver), 1u);
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  EXPECT_EQ(host.take(driver->open_device(driver, 0, &made)).code(), Code::kAlreadyExists);
  EXPECT_EQ(host.take(driver->open_device(driver, 1, &made)).code(), Code::kOutOfRange);
  belay_device_info info{};
  info.hdr.struct_size = sizeof info;
  EXPECT_EQ(device->info(device, &info), BELAY_OK);
  EXPECT_EQ(belay::to_view(info.driver), "@ID@");
  device.reset();
  EXPECT_EQ(driver->open_device(driver, 0, &made), BELAY_OK);
  device = plugin.adopt<belay_device_vt>(belay::shape::kDevice, made);
}

TEST_F(Driver, RunsWhatIsQueuedInItsOrder) {
  const auto stream = make_stream(1);
  belay_obj buffer = make_buffer(16);
  void* memory = nullptr;
  ASSERT_EQ(device->map(device, &buffer, &memory), BELAY_OK);
  const auto* bytes = static_cast<const unsigned char*>(memory);
  std::vector<unsigned char> source(16);
  std::iota(source.begin(), source.end(), 1);
  copy(stream, &buffer, source.data(), 16);
  belay_fill_req fill{};
  fill.hdr.struct_size = sizeof fill;
  fill.dst = &buffer, fill.dst_offset = 4, fill.bytes = 4, fill.pattern = 0x2211, fill.pattern_bytes = 2;
  uint64_t value = 0;
  ASSERT_EQ(stream->fill(stream, &fill, &value), BELAY_OK);
  belay_kernel kernel{};
  kernel.hdr.struct_size = sizeof kernel;
  kernel.name = belay::to_str("double");
  kernel.fn = [](const belay_exec* exec, const void*, const uint64_t* args) noexcept -> belay_status {
    exec->parallel_for(
        exec, 16, [](void* arg, uint64_t i) noexcept { static_cast<unsigned char*>(arg)[i] *= 2; },
        reinterpret_cast<void*>(args[0]));
    return BELAY_OK;
  };
  const uint64_t args[]{reinterpret_cast<uint64_t>(memory)};
  belay_launch_req launch{};
  launch.hdr.struct_size = sizeof launch;
  launch.kernel = &kernel, launch.args = args, launch.arg_count = 1;
  ASSERT_EQ(stream->launch(stream, &launch, &value), BELAY_OK);
  EXPECT_EQ(value, 3u);
  EXPECT_EQ(stream->last_value(stream), 3u);
  EXPECT_EQ(host.take(stream->query(stream, 3)).code(), Code::kUnavailable);  // queueing runs nothing
  EXPECT_EQ(stream->synchronize(stream, 3, BELAY_FOREVER), BELAY_OK);         // this thread does the work
  EXPECT_EQ(stream->query(stream, 3), BELAY_OK);
  const unsigned char expected[]{2, 4, 6, 8, 0x22, 0x44, 0x22, 0x44, 18, 20, 22, 24, 26, 28, 30, 32};
  for (int i = 0; i < 16; ++i) EXPECT_EQ(bytes[i], expected[i]) << i;
  host.run_all();  // the worker that was asked for finds nothing to do
  device->free(device, &buffer);
}

TEST_F(Driver, WaitsForTimelinesAndForWorkers) {
  const auto first = make_stream(1), second = make_stream(2);
  std::string order;
  const auto say_a = [](void* user) { *static_cast<std::string*>(user) += 'a'; };
  const auto say_b = [](void* user) { *static_cast<std::string*>(user) += 'b'; };
  uint64_t value = 0;
  ASSERT_EQ(device->timeline_signal(device, 9, 1, BELAY_OK), BELAY_OK);  // the host's own
  ASSERT_EQ(second->wait(second, {1, 2}, &value), BELAY_OK);
  ASSERT_EQ(second->host_call(second, say_b, &order, &value), BELAY_OK);
  ASSERT_EQ(first->wait(first, {9, 2}, &value), BELAY_OK);
  ASSERT_EQ(first->host_call(first, say_a, &order, &value), BELAY_OK);
  host.run_all();
  EXPECT_EQ(order, "");
  belay_status ended = BELAY_UNKNOWN;
  const belay_completion done{
      &ended, [](void* user, belay_status status) noexcept { *static_cast<belay_status*>(user) = status; }};
  ASSERT_EQ(second->on_reached(second, 2, done), BELAY_OK);
  ASSERT_EQ(device->timeline_signal(device, 9, 2, BELAY_OK), BELAY_OK);
  EXPECT_EQ(host.take(first->synchronize(first, 2, 0)).code(),
            Code::kDeadlineExceeded);  // a host_call is for workers
  host.run_all();
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(ended, BELAY_OK);
  EXPECT_EQ(host.take(first->wait(first, {77, 1}, &value)).code(), Code::kNotFound);
  device->timeline_destroy(device, 9);
}

TEST_F(Driver, AFailureFailsWhatFollowsUntilItIsRecoveredFrom) {
  const auto stream = make_stream(1), other = make_stream(2);
  belay_obj buffer = make_buffer(4);
  belay_kernel kernel{};
  kernel.hdr.struct_size = sizeof kernel;
  kernel.name = belay::to_str("broken");
  kernel.fn = [](const belay_exec* exec, const void*, const uint64_t*) noexcept {
    return exec->fail(exec, BELAY_DATA_LOSS, belay::to_str("It broke."));
  };
  belay_launch_req launch{};
  launch.hdr.struct_size = sizeof launch;
  launch.kernel = &kernel;
  uint64_t value = 0;
  ASSERT_EQ(stream->launch(stream, &launch, &value), BELAY_OK);
  const int number = 7;
  const uint64_t after = copy(stream, &buffer, &number, 4);
  const Status failed = host.take(stream->synchronize(stream, after, BELAY_FOREVER));
  EXPECT_EQ(failed.code(), Code::kDataLoss);
  EXPECT_NE(failed.message().find("broken"), std::string::npos) << failed.message();
  ASSERT_EQ(other->wait(other, {1, after}, &value), BELAY_OK);  // a failure passes on, with its origin
  EXPECT_EQ(host.take(other->synchronize(other, value, BELAY_FOREVER)).message(), failed.message());
  ASSERT_EQ(stream->recover(stream), BELAY_OK);
  const uint64_t good = copy(stream, &buffer, &number, 4);
  EXPECT_EQ(stream->synchronize(stream, good, BELAY_FOREVER), BELAY_OK);
  host.run_all();
  device->free(device, &buffer);
  EXPECT_EQ(host.live_details(), 0u);
}

TEST_F(Driver, RefusesWhatIsOutOfBounds) {
  const auto stream = make_stream(1);
  belay_obj buffer = make_buffer(4);
  belay_copy_req req{};
  req.hdr.struct_size = sizeof req;
  const int number = 1;
  req.dst = &buffer, req.host_src = &number, req.dst_offset = 1, req.bytes = 4;
  uint64_t value = 0;
  const Status status = host.take(stream->copy(stream, &req, &value));
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_NE(status.message().find("4 bytes"), std::string::npos) << status.message();
  belay_alloc_req huge{};
  huge.hdr.struct_size = sizeof huge;
  huge.bytes = uint64_t(1) << 60;
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  EXPECT_EQ(host.take(device->alloc(device, &huge, &made)).code(), Code::kResourceExhausted);
  device->free(device, &buffer);
}

}  // namespace
