// belay/testing/mock_stream.hpp: Google Mock classes for belay_stream_vt and belay_driver_program_vt. Without
// expectations (NiceMock) a stream accepts everything and all of it is reached at once.
#pragma once

#include <belay/abi/driver.h>
#include <belay/testing/table.hpp>
#include <gmock/gmock.h>

#include <memory>

namespace belay::testing {

class MockProgram {
 public:
  explicit MockProgram(const belay_host* host = nullptr) : host(host) {
    ON_CALL(*this, launch).WillByDefault([](belay_obj*, const belay_binding*, uint64_t) { return uint64_t(1); });
  }
  virtual ~MockProgram() { died(); }

  MOCK_METHOD(Result<uint64_t>, launch, (belay_obj * stream, const belay_binding* bindings, uint64_t count));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL
};

class MockStream {
 public:
  explicit MockStream(const belay_host* host = nullptr) : host(host) {
    const auto next = [this] { return Result<uint64_t>(++value); };
    ON_CALL(*this, copy).WillByDefault([next](const belay_copy_req&) { return next(); });
    ON_CALL(*this, fill).WillByDefault([next](const belay_fill_req&) { return next(); });
    ON_CALL(*this, launch).WillByDefault([next](const belay_launch_req&) { return next(); });
    ON_CALL(*this, wait).WillByDefault([next](belay_event) { return next(); });
    ON_CALL(*this, host_call).WillByDefault([next](void (*fn)(void*), void* user) {
      fn(user);
      return next();
    });
    ON_CALL(*this, on_reached).WillByDefault([](uint64_t, belay_completion completion) {
      completion.done(completion.user, BELAY_OK);
      return Status();
    });
    ON_CALL(*this, last_value).WillByDefault([this] { return value; });
    ON_CALL(*this, capture_end).WillByDefault([this]() -> Result<std::unique_ptr<MockProgram>> {
      return std::unique_ptr<MockProgram>(new ::testing::NiceMock<MockProgram>(this->host));
    });
  }
  virtual ~MockStream() { died(); }

  MOCK_METHOD(Result<uint64_t>, copy, (const belay_copy_req&));
  MOCK_METHOD(Result<uint64_t>, fill, (const belay_fill_req&));
  MOCK_METHOD(Result<uint64_t>, launch, (const belay_launch_req&));
  MOCK_METHOD(Result<uint64_t>, wait, (belay_event));
  MOCK_METHOD(Result<uint64_t>, host_call, (void (*fn)(void*), void* user));
  MOCK_METHOD(Status, flush, ());
  MOCK_METHOD(Status, query, (uint64_t value));
  MOCK_METHOD(Status, synchronize, (uint64_t value, uint64_t timeout_ns));
  MOCK_METHOD(Status, on_reached, (uint64_t value, belay_completion));
  MOCK_METHOD(uint64_t, last_value, ());
  MOCK_METHOD(Status, recover, ());
  MOCK_METHOD(Status, capture_begin, ());
  MOCK_METHOD(Result<std::unique_ptr<MockProgram>>, capture_end, ());
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL
  uint64_t value = 0;            // last value given by the default actions

  static const belay_stream_vt& table();
};

// The program extension over MockStream (capture) and MockProgram; `create` is MockDevice::program_create.
struct MockProgramThunks {
  static MockProgram& program(belay_obj* object) { return *static_cast<MockProgram*>(object->impl); }
  static MockStream& stream(belay_obj* object) { return *static_cast<MockStream*>(object->impl); }
  static belay_status launch(belay_obj* object, belay_obj* on, const belay_binding* bindings, uint64_t count,
                             uint64_t* out) BELAY_NOEXCEPT {
    return result_of(program(object).host, program(object).launch(on, bindings, count), out);
  }
  static belay_status capture_begin(belay_obj* object) BELAY_NOEXCEPT {
    return status_of(stream(object).host, stream(object).capture_begin());
  }
  static belay_status capture_end(belay_obj* object, belay_created* out) BELAY_NOEXCEPT {
    auto made = stream(object).capture_end();
    if (!made.ok()) return status_of(stream(object).host, made.status());
    out->impl = std::move(made).value().release();
    return BELAY_OK;
  }
  static void destroy(belay_obj* object) BELAY_NOEXCEPT { delete &program(object); }
};

inline const belay_stream_vt& MockStream::table() {
  struct T {
    static MockStream& of(belay_obj* object) { return *static_cast<MockStream*>(object->impl); }
    static belay_status copy(belay_obj* o, const belay_copy_req* req, uint64_t* out) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).copy(*req), out);
    }
    static belay_status fill(belay_obj* o, const belay_fill_req* req, uint64_t* out) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).fill(*req), out);
    }
    static belay_status launch(belay_obj* o, const belay_launch_req* req, uint64_t* out) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).launch(*req), out);
    }
    static belay_status wait(belay_obj* o, belay_event event, uint64_t* out) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).wait(event), out);
    }
    static belay_status host_call(belay_obj* o, void (*fn)(void*), void* user, uint64_t* out) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).host_call(fn, user), out);
    }
    static belay_status flush(belay_obj* o) BELAY_NOEXCEPT { return status_of(of(o).host, of(o).flush()); }
    static belay_status query(belay_obj* o, uint64_t value) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).query(value));
    }
    static belay_status synchronize(belay_obj* o, uint64_t value, uint64_t timeout) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).synchronize(value, timeout));
    }
    static belay_status on_reached(belay_obj* o, uint64_t value, belay_completion completion) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).on_reached(value, completion));
    }
    static uint64_t last_value(belay_obj* o) BELAY_NOEXCEPT { return of(o).last_value(); }
    static belay_status recover(belay_obj* o) BELAY_NOEXCEPT { return status_of(of(o).host, of(o).recover()); }
    static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
  };
  static constexpr belay_stream_vt table{
      .hdr = {sizeof(belay_stream_vt), 0, nullptr},
      .copy = T::copy,
      .fill = T::fill,
      .launch = T::launch,
      .wait = T::wait,
      .host_call = T::host_call,
      .flush = T::flush,
      .query = T::query,
      .synchronize = T::synchronize,
      .on_reached = T::on_reached,
      .last_value = T::last_value,
      .recover = T::recover,
      .destroy = T::destroy};
  return table;
}

}  // namespace belay::testing
