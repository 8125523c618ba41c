// belay/testing/mock_driver.hpp: Google Mock classes for belay_driver_vt and belay_device_vt. Without expectations
// (NiceMock) a driver has one device, which has 1 GiB of host-visible memory in one heap, opens once at a time and makes
// NiceMock streams.
#pragma once

#include <belay/abi/driver.h>
#include <belay/abi/virtual_memory.h>
#include <belay/testing/mock_stream.hpp>
#include <belay/testing/table.hpp>
#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>

namespace belay::testing {

class MockDevice {
 public:
  explicit MockDevice(const belay_host* host = nullptr);
  virtual ~MockDevice() { died(); }

  MOCK_METHOD(Status, info, (belay_device_info*));
  MOCK_METHOD(Status, heap, (uint64_t index, belay_heap_info*));
  MOCK_METHOD(Result<void*>, alloc, (const belay_alloc_req&));  // the buffer's impl
  MOCK_METHOD(void, free, (belay_obj * buffer));
  MOCK_METHOD(Result<void*>, map, (belay_obj * buffer));
  MOCK_METHOD(Result<std::unique_ptr<MockStream>>, stream_create, (const belay_stream_req&));
  MOCK_METHOD(Status, timeline_signal, (uint64_t timeline, uint64_t value, belay_status failure));
  MOCK_METHOD(void, timeline_destroy, (uint64_t timeline));
  MOCK_METHOD(Status, health, (belay_health*));
  MOCK_METHOD(Status, reset, ());
  MOCK_METHOD(const void*, extension, (std::string_view id));
  MOCK_METHOD(Result<std::unique_ptr<MockProgram>>, program_create, (const belay_program_req&));
  // The virtual-memory extension; by default 4 KiB granules of plain memory.
  MOCK_METHOD(uint64_t, granularity, ());
  MOCK_METHOD(Result<void*>, reserve, (const belay_alloc_req&));  // the buffer's impl
  MOCK_METHOD(Status, map_range, (belay_obj * buffer, uint64_t offset, uint64_t bytes));
  MOCK_METHOD(Status, unmap_range, (belay_obj * buffer, uint64_t offset, uint64_t bytes));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;                                  // keeps the sentences of failures; may be NULL
  const belay_stream_vt* stream_table = &table_for<MockStream>();  // of the streams it gives

  static const belay_device_vt& table();
  // What extension() may return.
  static const belay_driver_program_vt& program_table();
  static const belay_driver_virtual_memory_vt& virtual_memory_table();
};

class MockDriver {
 public:
  explicit MockDriver(const belay_host* host = nullptr);
  virtual ~MockDriver() { died(); }

  MOCK_METHOD(uint64_t, device_count, ());
  MOCK_METHOD(Status, device_info, (uint64_t index, belay_device_info*));
  MOCK_METHOD(Result<std::unique_ptr<MockDevice>>, open_device, (uint64_t index));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;
  const belay_device_vt* device_table = &table_for<MockDevice>();  // of the devices it gives

  static const belay_driver_vt& table();
};

// Fills `info` as a plain device would.
inline Status plain_device_info(belay_device_info* info, uint64_t index = 0) {
  const belay_hdr hdr = info->hdr;
  *info = {};
  info->hdr = {hdr.struct_size, BELAY_DEVICE_HOST_VISIBLE | BELAY_DEVICE_BINDS_HOST | BELAY_DEVICE_SUBDIVIDES, nullptr};
  info->driver = to_str("mock");
  info->name = to_str("mock device");
  info->arch = to_str("mock");
  info->index = index;
  info->threads = 1;
  info->memory_bytes = uint64_t(1) << 30;
  info->heap_count = 1;
  info->queue_depth = 1024;
  return {};
}

inline MockDevice::MockDevice(const belay_host* host) : host(host) {
  ON_CALL(*this, info).WillByDefault([](belay_device_info* info) { return plain_device_info(info); });
  ON_CALL(*this, heap).WillByDefault([](uint64_t, belay_heap_info* heap) {
    heap->heap_class = BELAY_HEAP_SHARED;
    heap->bytes = heap->free_bytes = uint64_t(1) << 30;
    heap->alignment = 64;
    heap->cache_bytes = 0;
    return Status();
  });
  // A buffer's impl is its memory; memory of the host is not owned, which the lowest bit tells.
  ON_CALL(*this, alloc).WillByDefault([](const belay_alloc_req& req) -> Result<void*> {
    if (req.host) return static_cast<void*>(static_cast<char*>(req.host) + 1);
    if (req.within) return static_cast<void*>(static_cast<char*>(req.within->impl) + req.within_offset + 1);
    return std::aligned_alloc(64, (req.bytes + 127) / 64 * 64);
  });
  ON_CALL(*this, granularity).WillByDefault(::testing::Return(4096));
  ON_CALL(*this, reserve).WillByDefault([](const belay_alloc_req& req) -> Result<void*> {
    return std::aligned_alloc(4096, req.bytes);
  });
  ON_CALL(*this, free).WillByDefault([](belay_obj* buffer) {
    if (!(reinterpret_cast<uintptr_t>(buffer->impl) & 1)) std::free(buffer->impl);
  });
  ON_CALL(*this, map).WillByDefault([](belay_obj* buffer) -> Result<void*> {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(buffer->impl) & ~uintptr_t(1));
  });
  ON_CALL(*this, stream_create).WillByDefault([this](const belay_stream_req&) -> Result<std::unique_ptr<MockStream>> {
    return std::unique_ptr<MockStream>(new ::testing::NiceMock<MockStream>(this->host));
  });
  ON_CALL(*this, program_create).WillByDefault([this](const belay_program_req&) -> Result<std::unique_ptr<MockProgram>> {
    return std::unique_ptr<MockProgram>(new ::testing::NiceMock<MockProgram>(this->host));
  });
}

inline MockDriver::MockDriver(const belay_host* host) : host(host) {
  ON_CALL(*this, device_count).WillByDefault(::testing::Return(1));
  ON_CALL(*this, device_info).WillByDefault([](uint64_t index, belay_device_info* info) {
    return plain_device_info(info, index);
  });
  ON_CALL(*this, open_device).WillByDefault([this](uint64_t) -> Result<std::unique_ptr<MockDevice>> {
    return std::unique_ptr<MockDevice>(new ::testing::NiceMock<MockDevice>(this->host));
  });
}

inline const belay_device_vt& MockDevice::table() {
  struct T {
    static MockDevice& of(belay_obj* object) { return *static_cast<MockDevice*>(object->impl); }
    static belay_status info(belay_obj* o, belay_device_info* info) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).info(info));
    }
    static belay_status heap(belay_obj* o, uint64_t index, belay_heap_info* heap) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).heap(index, heap));
    }
    static belay_status alloc(belay_obj* o, const belay_alloc_req* req, belay_created* out) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).alloc(*req), &out->impl);
    }
    static void free(belay_obj* o, belay_obj* buffer) BELAY_NOEXCEPT { of(o).free(buffer); }
    static belay_status map(belay_obj* o, belay_obj* buffer, void** out) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).map(buffer), out);
    }
    static belay_status stream_create(belay_obj* o, const belay_stream_req* req, belay_created* out) BELAY_NOEXCEPT {
      auto made = of(o).stream_create(*req);
      if (!made.ok()) return status_of(of(o).host, made.status());
      out->impl = std::move(made).value().release();
      out->table = of(o).stream_table;
      return BELAY_OK;
    }
    static belay_status timeline_signal(belay_obj* o, uint64_t timeline, uint64_t value, belay_status failure)
        BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).timeline_signal(timeline, value, failure));
    }
    static void timeline_destroy(belay_obj* o, uint64_t timeline) BELAY_NOEXCEPT { of(o).timeline_destroy(timeline); }
    static belay_status health(belay_obj* o, belay_health* health) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).health(health));
    }
    static belay_status reset(belay_obj* o) BELAY_NOEXCEPT { return status_of(of(o).host, of(o).reset()); }
    static const void* extension(belay_obj* o, belay_str id) BELAY_NOEXCEPT { return of(o).extension(to_view(id)); }
    static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
  };
  static constexpr belay_device_vt table{
      .hdr = {sizeof(belay_device_vt), 0, nullptr},
      .info = T::info,
      .heap = T::heap,
      .alloc = T::alloc,
      .free = T::free,
      .map = T::map,
      .stream_create = T::stream_create,
      .timeline_signal = T::timeline_signal,
      .timeline_destroy = T::timeline_destroy,
      .health = T::health,
      .reset = T::reset,
      .extension = T::extension,
      .destroy = T::destroy};
  return table;
}

inline const belay_driver_program_vt& MockDevice::program_table() {
  struct T {
    static belay_status create(belay_obj* o, const belay_program_req* req, belay_created* out) BELAY_NOEXCEPT {
      MockDevice& device = *static_cast<MockDevice*>(o->impl);
      auto made = device.program_create(*req);
      if (!made.ok()) return status_of(device.host, made.status());
      out->impl = std::move(made).value().release();
      return BELAY_OK;
    }
  };
  static constexpr belay_driver_program_vt table{
      .hdr = {sizeof(belay_driver_program_vt), 0, nullptr},
      .create = T::create,
      .launch = MockProgramThunks::launch,
      .capture_begin = MockProgramThunks::capture_begin,
      .capture_end = MockProgramThunks::capture_end,
      .destroy = MockProgramThunks::destroy};
  return table;
}

inline const belay_driver_virtual_memory_vt& MockDevice::virtual_memory_table() {
  struct T {
    static MockDevice& of(belay_obj* object) { return *static_cast<MockDevice*>(object->impl); }
    static uint64_t granularity(belay_obj* o) BELAY_NOEXCEPT { return of(o).granularity(); }
    static belay_status reserve(belay_obj* o, const belay_alloc_req* req, belay_created* out) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).reserve(*req), &out->impl);
    }
    static belay_status map(belay_obj* o, belay_obj* buffer, uint64_t offset, uint64_t bytes) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).map_range(buffer, offset, bytes));
    }
    static belay_status unmap(belay_obj* o, belay_obj* buffer, uint64_t offset, uint64_t bytes) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).unmap_range(buffer, offset, bytes));
    }
  };
  static constexpr belay_driver_virtual_memory_vt table{.hdr = {sizeof(belay_driver_virtual_memory_vt), 0, nullptr},
                                                        .granularity = T::granularity,
                                                        .reserve = T::reserve,
                                                        .map = T::map,
                                                        .unmap = T::unmap};
  return table;
}

inline const belay_driver_vt& MockDriver::table() {
  struct T {
    static MockDriver& of(belay_obj* object) { return *static_cast<MockDriver*>(object->impl); }
    static uint64_t device_count(belay_obj* o) BELAY_NOEXCEPT { return of(o).device_count(); }
    static belay_status device_info(belay_obj* o, uint64_t index, belay_device_info* info) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).device_info(index, info));
    }
    static belay_status open_device(belay_obj* o, uint64_t index, belay_created* out) BELAY_NOEXCEPT {
      auto made = of(o).open_device(index);
      if (!made.ok()) return status_of(of(o).host, made.status());
      out->impl = std::move(made).value().release();
      out->table = of(o).device_table;
      return BELAY_OK;
    }
    static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
  };
  static constexpr belay_driver_vt table{.hdr = {sizeof(belay_driver_vt), 0, nullptr},
                                         .device_count = T::device_count,
                                         .device_info = T::device_info,
                                         .open_device = T::open_device,
                                         .destroy = T::destroy};
  return table;
}

}  // namespace belay::testing
