// The device itself: what it says of itself, its memory and its limits.
#include "fixture.h"

#include <thread>

namespace belay::cpu::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceTest : public CpuDevice {
 protected:
  Result<belay_obj> alloc(uint64_t bytes, uint64_t align = 0, void* from = nullptr, uint64_t heap = 0) {
    if (!device.get()) open();
    belay_alloc_req req{};
    req.hdr.struct_size = sizeof req;
    req.bytes = bytes;
    req.align = align;
    req.host = from;
    req.heap = heap;
    belay_created out{};
    out.hdr.struct_size = sizeof out;
    if (const belay_status status = device->alloc(device, &req, &out); status != BELAY_OK) return host.take(status);
    return belay_obj{BELAY_OBJ_MAGIC, BELAY_OBJ_BUFFER, 1, nullptr, out.impl, {}};
  }
  void* address(belay_obj& buffer) {
    void* at = nullptr;
    EXPECT_TRUE(host.take(device->map(device, &buffer, &at)).ok());
    return at;
  }
  uint64_t free_bytes() {
    belay_heap_info info{};
    info.hdr.struct_size = sizeof info;
    EXPECT_TRUE(host.take(device->heap(device, 0, &info)).ok());
    return info.free_bytes;
  }
};

TEST_F(DeviceTest, SaysWhatItIs) {
  config.set("devices", 3).set("memory_size", 64 << 20);
  open();
  EXPECT_EQ(driver->device_count(driver), 3u);
  belay_device_info info{};
  info.hdr.struct_size = sizeof info;
  ASSERT_TRUE(host.take(driver->device_info(driver, 2, &info)).ok());
  EXPECT_EQ(to_view(info.driver), "cpu");
  EXPECT_EQ(info.index, 2u);
  EXPECT_EQ(info.threads, 2u);
  EXPECT_EQ(info.memory_bytes, uint64_t{64} << 20);
  EXPECT_FALSE(to_view(info.name).empty());
  EXPECT_TRUE(info.hdr.flags & BELAY_DEVICE_HOST_VISIBLE);
  EXPECT_TRUE(info.hdr.flags & BELAY_DEVICE_BINDS_HOST);
#if defined(__x86_64__)
  EXPECT_EQ(to_view(info.arch), "x86_64");
  EXPECT_THAT(to_string(info.features), HasSubstr("sse2"));
#endif
  EXPECT_EQ(host.take(driver->device_info(driver, 3, &info)).code(), Code::kOutOfRange);
}

TEST_F(DeviceTest, FillsNoMoreThanTheCallerKnows) {
  open();
  belay_device_info info{};
  std::memset(static_cast<void*>(&info), 0xee, sizeof info);
  info.hdr.struct_size = offsetof(belay_device_info, threads);
  ASSERT_TRUE(host.take(device->info(device, &info)).ok());
  EXPECT_EQ(info.hdr.struct_size, offsetof(belay_device_info, threads));
  EXPECT_EQ(info.index, 0u);
  EXPECT_EQ(info.threads, 0xeeeeeeeeeeeeeeeeu);
}

TEST_F(DeviceTest, OpensOnceAtATime) {
  open();
  belay_created out{};
  const Status status = host.take(driver->open_device(driver, 0, &out));
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("cpu:0"));
  device.reset();
  open();
}

TEST_F(DeviceTest, AllocationsAreAlignedAndCounted) {
  config.set("memory_size", 100 << 20);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{100}, uint64_t{1} << 20, uint64_t{5} << 20}) {
    for (const uint64_t align : {uint64_t{0}, uint64_t{64}, uint64_t{4096}, uint64_t{1} << 21}) {
      Result<belay_obj> buffer = alloc(bytes, align);
      ASSERT_TRUE(buffer.ok()) << buffer.status().message();
      EXPECT_EQ(free_bytes(), (uint64_t{100} << 20) - bytes);
      char* const at = static_cast<char*>(address(*buffer));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % std::max<uint64_t>(align, 64), 0u);
      std::memset(at, 1, bytes);
      device->free(device, &*buffer);
    }
  }
  EXPECT_EQ(free_bytes(), uint64_t{100} << 20);
}

TEST_F(DeviceTest, ALimitSaysWhatWasAskedWhatIsInUseAndWhatThereIs) {
  config.set("memory_size", 10 << 20);
  Result<belay_obj> first = alloc(7 << 20);
  ASSERT_TRUE(first.ok());
  const Result<belay_obj> second = alloc(4 << 20);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(second.status().message(),
              AllOf(HasSubstr("cpu:0"), HasSubstr("4.0 MiB"), HasSubstr("7.0 MiB in use of 10.0 MiB"), HasSubstr("memory_size")));
  EXPECT_EQ(alloc(~uint64_t{0}).status().code(), Code::kResourceExhausted);
  device->free(device, &*first);
  first = alloc(10 << 20);
  ASSERT_TRUE(first.ok());
  device->free(device, &*first);
}

TEST_F(DeviceTest, HostMemoryIsBoundWithoutACopy) {
  config.set("memory_size", 1 << 20);
  alignas(64) static char memory[4096];
  Result<belay_obj> buffer = alloc(sizeof memory, 64, memory);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(address(*buffer), memory);
  EXPECT_EQ(free_bytes(), uint64_t{1} << 20) << "it is not the device's memory";
  device->free(device, &*buffer);
  EXPECT_THAT(alloc(8, 64, memory + 4).status().message(), HasSubstr("multiple of 4"));
  EXPECT_EQ(alloc(8, 3).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(alloc(8, 0, nullptr, 1).status().code(), Code::kInvalidArgument);
}

TEST_F(DeviceTest, CopiesAndFillsStayInsideBuffers) {
  TestStream s = stream();
  Result<belay_obj> a = alloc(100), b = alloc(100);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto* vt = static_cast<const belay_stream_vt*>(s.get()->table);
  belay_fill_req fill{};
  fill.hdr.struct_size = sizeof fill;
  fill.dst = &*a;
  fill.dst_offset = 4;
  fill.bytes = 96;
  fill.pattern = 0x1234;
  fill.pattern_bytes = 2;
  uint64_t value = 0;
  ASSERT_TRUE(host.take(vt->fill(s.get(), &fill, &value)).ok());
  belay_copy_req copy{};
  copy.hdr.struct_size = sizeof copy;
  copy.dst = &*b;
  copy.src = &*a;
  copy.src_offset = 4;
  copy.bytes = 96;
  ASSERT_TRUE(host.take(vt->copy(s.get(), &copy, &value)).ok());
  ASSERT_TRUE(s.synchronize(value).ok());
  for (int i = 0; i < 48; ++i) EXPECT_EQ(static_cast<uint16_t*>(address(*b))[i], 0x1234);

  copy.bytes = 97;
  EXPECT_THAT(host.take(vt->copy(s.get(), &copy, &value)).message(), HasSubstr("bytes 4 to 101 of a buffer of 100"));
  copy.src = &*b;
  copy.src_offset = 10;
  copy.bytes = 50;
  EXPECT_THAT(host.take(vt->copy(s.get(), &copy, &value)).message(), HasSubstr("overlap"));
  copy.src = nullptr;
  EXPECT_EQ(host.take(vt->copy(s.get(), &copy, &value)).code(), Code::kInvalidArgument);
  fill.bytes = 95;
  EXPECT_EQ(host.take(vt->fill(s.get(), &fill, &value)).code(), Code::kInvalidArgument);
  fill.bytes = 98;
  EXPECT_EQ(host.take(vt->fill(s.get(), &fill, &value)).code(), Code::kOutOfRange);
  device->free(device, &*a);
  device->free(device, &*b);
}

TEST_F(DeviceTest, ExternalTimelinesAreAdvancedByTheHost) {
  TestStream s = stream();
  EXPECT_THAT(s.wait({77, 1}).status().message(), AllOf(HasSubstr("timeline 77"), HasSubstr("cpu:0")));
  ASSERT_TRUE(host.take(device->timeline_signal(device, 77, 0, BELAY_OK)).ok());
  ASSERT_TRUE(s.wait({77, 2}).ok());
  int ran = 0;
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return ++ran, BELAY_OK; });
  ASSERT_TRUE(s.launch(kernel).ok());
  EXPECT_EQ(s.query(s.last()).code(), Code::kUnavailable);
  std::thread signaller([&] {
    EXPECT_TRUE(host.take(device->timeline_signal(device, 77, 1, BELAY_OK)).ok());
    EXPECT_TRUE(host.take(device->timeline_signal(device, 77, 2, BELAY_OK)).ok());
  });
  EXPECT_TRUE(s.synchronize().ok());
  EXPECT_EQ(ran, 1);
  signaller.join();

  ASSERT_TRUE(s.wait({77, 3}).ok());
  const belay_status why = host.make(Code::kDeviceLost, "The other device is lost.");
  ASSERT_TRUE(host.take(device->timeline_signal(device, 77, 3, why)).ok());
  host.status_release(&host, why);
  EXPECT_EQ(s.synchronize().message(), "The other device is lost.");
  ASSERT_TRUE(s.recover().ok());
  EXPECT_EQ(host.take(device->timeline_signal(device, s.id(), 3, BELAY_OK)).code(), Code::kAlreadyExists);

  ASSERT_TRUE(host.take(device->timeline_signal(device, 78, 0, BELAY_OK)).ok());
  ASSERT_TRUE(s.wait({78, 5}).ok());
  device->timeline_destroy(device, 78);
  EXPECT_THAT(s.synchronize().message(), HasSubstr("Timeline 78 of cpu:0 was destroyed"));
  device->timeline_destroy(device, 77);
}

TEST_F(DeviceTest, ResetWaitsForAllStreams) {
  TestStream a = stream(), b = stream();
  int ran = 0;
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return ++ran, BELAY_OK; });
  ASSERT_TRUE(a.launch(kernel).ok());
  ASSERT_TRUE(b.launch(kernel).ok());
  ASSERT_TRUE(host.take(device->reset(device)).ok());
  EXPECT_EQ(ran, 2);
  belay_health health{};
  health.hdr.struct_size = sizeof health;
  ASSERT_TRUE(host.take(device->health(device, &health)).ok());
  EXPECT_EQ(health.state, 0u);
}

}  // namespace
}  // namespace belay::cpu::testing
