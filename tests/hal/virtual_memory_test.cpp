#include "hal_fixture.h"

#include <belay/testing/mock_driver.hpp>
#include <belay/testing/mock_package.hpp>

#include <array>
#include <thread>

namespace belay::hal {
namespace {

using ::testing::ByMove;

class VirtualMemoryTest : public HalTest {
 protected:
  NiceDevice& add_virtual(const std::string& name) {
    NiceDevice& on = add_device(name);
    ON_CALL(on, extension).WillByDefault([](std::string_view id) -> const void* {
      return id == BELAY_DRIVER_VIRTUAL_MEMORY ? &MockDevice::virtual_memory_table() : nullptr;
    });
    return on;
  }
  Status try_reserve(uint64_t bytes, belay_obj** out, uint64_t align = 0) {
    auto req = request<belay_alloc_req>();
    req.bytes = bytes, req.align = align;
    return take(vt().reserve(host(), device(), &req, out));
  }
  belay_obj* reserve(uint64_t bytes) {
    belay_obj* out = nullptr;
    const Status status = try_reserve(bytes, &out);
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  Status map(belay_obj* buffer, uint64_t offset, uint64_t bytes) {
    return take(vt().map(host(), buffer, offset, bytes));
  }
  Status unmap(belay_obj* buffer, uint64_t offset, uint64_t bytes) {
    return take(vt().unmap(host(), buffer, offset, bytes));
  }
  belay_hal_buffer_info info(belay_obj* buffer) {
    auto info = request<belay_hal_buffer_info>();
    EXPECT_TRUE(take(vt().buffer_info(host(), buffer, &info)).ok());
    return info;
  }
  uint64_t in_use() {
    auto info = request<belay_hal_memory_info>();
    EXPECT_TRUE(take(vt().memory_info(host(), device(), &info)).ok());
    return info.bytes;
  }
};

TEST_F(VirtualMemoryTest, MemoryComesAndGoesBehindAddressesThatStay) {
  NiceDevice& on = add_virtual("mock");
  start();
  belay_obj* buffer = reserve(10000);  // rounded up
  EXPECT_EQ(info(buffer).bytes, 12288u);
  EXPECT_EQ(info(buffer).mapped_bytes, 0u);
  EXPECT_EQ(info(buffer).granularity, 4096u);
  EXPECT_EQ(in_use(), 0u);
  EXPECT_CALL(on, map_range(buffer, 4096, 8192));
  EXPECT_CALL(on, unmap_range(buffer, 4096, 4096));
  EXPECT_TRUE(map(buffer, 4096, 8192).ok());
  EXPECT_EQ(in_use(), 8192u);
  EXPECT_TRUE(unmap(buffer, 4096, 4096).ok());
  EXPECT_EQ(info(buffer).mapped_bytes, 4096u);
  EXPECT_EQ(in_use(), 4096u);
  belay_obj* found = nullptr;
  uint64_t offset = 0;
  EXPECT_EQ(vt().find(host(), static_cast<char*>(info(buffer).host) + 5, &found, &offset), BELAY_OK);
  EXPECT_EQ(found, buffer);
  vt().buffer_destroy(host(), buffer);
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(VirtualMemoryTest, BadRangesAreNamedAndNeverReachTheDriver) {
  NiceDevice& on = add_virtual("mock");
  start();
  belay_obj* buffer = reserve(16384);
  EXPECT_CALL(on, map_range).Times(1);
  EXPECT_CALL(on, unmap_range).Times(0);
  EXPECT_TRUE(map(buffer, 4096, 4096).ok());
  EXPECT_THAT(map(buffer, 0, 8192).message(), HasSubstr("byte 4096 is mapped already"));
  EXPECT_EQ(map(buffer, 0, 8192).code(), Code::kFailedPrecondition);
  EXPECT_THAT(unmap(buffer, 4096, 8192).message(), HasSubstr("byte 8192 is not mapped"));
  EXPECT_THAT(map(buffer, 1, 4096).message(), HasSubstr("want multiples of 4096"));
  EXPECT_THAT(map(buffer, 0, 0).message(), HasSubstr("at least one"));
  EXPECT_EQ(map(buffer, 8192, 12288).code(), Code::kOutOfRange);
  EXPECT_EQ(map(buffer, UINT64_MAX - 4095, 8192).code(), Code::kOutOfRange);
  belay_obj* plain = this->buffer(device(), 4096);
  EXPECT_THAT(map(plain, 0, 4096).message(), HasSubstr("it was not reserved"));
  vt().buffer_destroy(host(), plain);
  vt().buffer_destroy(host(), buffer);
  EXPECT_EQ(map(buffer, 0, 4096).code(), Code::kNotFound);
  belay_obj* out = nullptr;
  EXPECT_EQ(try_reserve(0, &out).code(), Code::kInvalidArgument);
  EXPECT_EQ(try_reserve(UINT64_MAX - 5, &out).code(), Code::kResourceExhausted);
  EXPECT_EQ(try_reserve(4096, &out, 3).code(), Code::kInvalidArgument);
}

TEST_F(VirtualMemoryTest, OperationsMayUseMappedBytesOnly) {
  add_virtual("mock");
  start();
  belay_obj* buffer = reserve(16384);
  belay_obj* on = stream(device());
  ASSERT_TRUE(map(buffer, 4096, 4096).ok());
  ASSERT_TRUE(map(buffer, 8192, 4096).ok());  // beside it: one range
  auto req = request<belay_copy_req>();
  char bytes[64] = {};
  req.dst = buffer, req.host_src = bytes, req.bytes = 64;
  const auto copy = [&](uint64_t offset) {
    req.dst_offset = offset;
    return take(vt().copy(host(), on, &req, nullptr));
  };
  EXPECT_TRUE(copy(8160).ok());
  EXPECT_EQ(copy(4064).code(), Code::kOutOfRange);
  EXPECT_THAT(copy(12256).message(), HasSubstr("which has 16384 bytes reserved, 8192 of them mapped"));
  ASSERT_TRUE(unmap(buffer, 8192, 4096).ok());
  EXPECT_EQ(copy(8160).code(), Code::kOutOfRange);
  vt().stream_destroy(host(), on);
  vt().buffer_destroy(host(), buffer);
}

TEST_F(VirtualMemoryTest, BindingsOfPackagesAndProgramsAreMapped) {
  NiceDevice& on = add_virtual("mock");
  NiceMock<belay::testing::MockNativeModels> models(host());
  ON_CALL(on, extension).WillByDefault([](std::string_view id) -> const void* {
    return id == BELAY_DRIVER_VIRTUAL_MEMORY ? &MockDevice::virtual_memory_table()
                                             : belay::testing::MockNativeModels::extension(id);
  });
  EXPECT_CALL(models, load)
      .WillOnce(Return(ByMove(give<belay::testing::MockPackage>(
          std::make_unique<NiceMock<belay::testing::MockPackage>>(host())))));
  start();
  auto load = request<belay_package_req>();
  load.kind = to_str("om"), load.bytes = {"compiled", 8}, load.name = to_str("net.om");
  belay_obj* package = nullptr;
  ASSERT_TRUE(take(vt().package_load(host(), device(), &load, &package)).ok());
  auto make = request<belay_program_req>();
  make.binding_count = 1;
  belay_obj* program = nullptr;
  ASSERT_TRUE(take(vt().program_create(host(), device(), &make, &program)).ok());
  belay_obj* const queue = stream(device());
  belay_obj* const memory = reserve(16384);
  char* const base = static_cast<char*>(info(memory).host);
  std::array<char, 64> plain{};
  const auto launch = [&](belay_binding binding) {
    const belay_binding both[] = {{nullptr, plain.data(), 0, 64}, binding};
    const Status as_program = take(vt().program_launch(host(), program, queue, &binding, 1, nullptr));
    const Status as_package = take(vt().package_launch(host(), package, queue, both, 2, nullptr));
    EXPECT_EQ(as_program.code(), as_package.code());
    return as_program.message() + as_package.message();
  };
  const std::string none = "which has 16384 bytes reserved, 0 of them mapped";
  EXPECT_THAT(launch({memory, nullptr, 4096, 64}), AllOf(HasSubstr("binding 0"), HasSubstr("binding 1"), HasSubstr(none)));
  EXPECT_THAT(launch({nullptr, base, 4096, 64}), AllOf(HasSubstr("binding 0"), HasSubstr("binding 1"), HasSubstr(none)));
  ASSERT_TRUE(map(memory, 4096, 4096).ok());
  EXPECT_EQ(launch({memory, nullptr, 4096, 64}), "");
  EXPECT_EQ(launch({nullptr, base, 4096, 64}), "");
  EXPECT_EQ(launch({nullptr, plain.data(), 0, 64}), "");
  vt().buffer_destroy(host(), memory);
  vt().program_destroy(host(), program);
  vt().package_destroy(host(), package);
  vt().stream_destroy(host(), queue);
}

TEST_F(VirtualMemoryTest, ADeviceWithoutItSaysSo) {
  start();
  belay_obj* out = nullptr;
  const Status status = try_reserve(4096, &out);
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'mock:0'"), HasSubstr("has no virtual memory")));
}

TEST_F(VirtualMemoryTest, WhatTheDriverRefusesIsNotCounted) {
  NiceDevice& on = add_virtual("mock");
  start({.memory_limit = 8192});
  belay_obj* buffer = reserve(16384);
  EXPECT_CALL(on, map_range)
      .WillOnce(Return(Status(Code::kResourceExhausted, "No room.")))
      .WillRepeatedly(Return(Status()));
  EXPECT_THAT(map(buffer, 0, 4096).message(), HasSubstr("No room."));
  EXPECT_EQ(in_use(), 0u);
  EXPECT_TRUE(map(buffer, 0, 8192).ok());
  EXPECT_THAT(map(buffer, 8192, 4096).message(), HasSubstr("passes the limit of 8.0 KiB"));
  EXPECT_EQ(in_use(), 8192u);
  vt().buffer_destroy(host(), buffer);
}

TEST_F(VirtualMemoryTest, AnIncompleteExtensionIsRefusedWhenTheDeviceOpens) {
  NiceDevice& on = add_device("mock");
  static TableBuilder<belay_driver_virtual_memory_vt> old(MockDevice::virtual_memory_table());
  old.null(&belay_driver_virtual_memory_vt::unmap);
  ON_CALL(on, extension).WillByDefault([](std::string_view id) -> const void* {
    return id == BELAY_DRIVER_VIRTUAL_MEMORY ? &old.table() : nullptr;
  });
  start();
  belay_obj* out = nullptr;
  EXPECT_THAT(take(vt().device(host(), 0, &out)).message(),
              HasSubstr("belay.driver.virtual-memory/1 null: unmap"));
}

TEST_F(VirtualMemoryTest, ThreadsMapPartsOfOneReservation) {
  add_virtual("mock");
  start();
  belay_obj* buffer = reserve(64 * 4096);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round)
        for (uint64_t i = 0; i < 16; ++i) {
          EXPECT_TRUE(map(buffer, (i * 4 + t) * 4096, 4096).ok());
          if (round == 19) continue;
          EXPECT_TRUE(unmap(buffer, (i * 4 + t) * 4096, 4096).ok());
        }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(info(buffer).mapped_bytes, 64u * 4096);
  EXPECT_EQ(in_use(), 64u * 4096);
  vt().buffer_destroy(host(), buffer);
}

}  // namespace
}  // namespace belay::hal
