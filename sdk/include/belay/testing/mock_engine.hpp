// belay/testing/mock_engine.hpp: Google Mock classes for the tables of belay/abi/engine.h. Without
// expectations (NiceMock) an engine loads a model without inputs and outputs that runs and does nothing.
#pragma once

#include <belay/abi/engine.h>
#include <gmock/gmock.h>
#include <belay/testing/table.hpp>

#include <memory>

namespace belay::testing {

class MockContext {
 public:
  explicit MockContext(const belay_host* host = nullptr) : host(host) {
    ON_CALL(*this, run_async).WillByDefault([](belay_completion completion) {
      completion.done(completion.user, BELAY_OK);
      return Status(Code::kDeferred, "");
    });
    ON_CALL(*this, enqueue).WillByDefault(::testing::Return(Result<belay_event>(belay_event{})));
  }
  virtual ~MockContext() { died(); }

  MOCK_METHOD(Status, set_input, (uint64_t index, const belay_datum* datum));
  MOCK_METHOD(Status, set_output, (uint64_t index, const belay_tensor* tensor));
  MOCK_METHOD(Status, run, ());
  MOCK_METHOD(Status, run_async, (belay_completion));
  MOCK_METHOD(Status, output, (uint64_t index, const belay_datum** out));
  MOCK_METHOD(Result<belay_event>, enqueue, (belay_obj * stream));
  MOCK_METHOD(Status, input_memory, (uint64_t index, belay_io_memory* inout));
  MOCK_METHOD(Status, output_memory, (uint64_t index, belay_io_memory* inout));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL

  static const belay_context_vt& table() {
    struct T {
      static MockContext& of(belay_obj* o) { return *static_cast<MockContext*>(o->impl); }
      static belay_status give(belay_obj* o, const Status& status) {
        return status.code() == Code::kDeferred ? belay_status(BELAY_DEFERRED)
                                                : status_of(of(o).host, status);
      }
      static belay_status set_input(belay_obj* o, uint64_t i, const belay_datum* datum) BELAY_NOEXCEPT {
        return give(o, of(o).set_input(i, datum));
      }
      static belay_status set_output(belay_obj* o, uint64_t i, const belay_tensor* tensor) BELAY_NOEXCEPT {
        return give(o, of(o).set_output(i, tensor));
      }
      static belay_status run(belay_obj* o) BELAY_NOEXCEPT { return give(o, of(o).run()); }
      static belay_status run_async(belay_obj* o, belay_completion completion) BELAY_NOEXCEPT {
        return give(o, of(o).run_async(completion));
      }
      static belay_status output(belay_obj* o, uint64_t i, const belay_datum** out) BELAY_NOEXCEPT {
        return give(o, of(o).output(i, out));
      }
      static belay_status enqueue(belay_obj* o, belay_obj* stream, belay_event* out) BELAY_NOEXCEPT {
        auto event = of(o).enqueue(stream);
        if (!event.ok()) return give(o, event.status());
        *out = *event;
        return BELAY_OK;
      }
      static belay_status input_memory(belay_obj* o, uint64_t i, belay_io_memory* inout) BELAY_NOEXCEPT {
        return give(o, of(o).input_memory(i, inout));
      }
      static belay_status output_memory(belay_obj* o, uint64_t i, belay_io_memory* inout) BELAY_NOEXCEPT {
        return give(o, of(o).output_memory(i, inout));
      }
      static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
    };
    static constexpr belay_context_vt table{.hdr = {sizeof(belay_context_vt), 0, nullptr},
                                            .set_input = T::set_input,
                                            .set_output = T::set_output,
                                            .run = T::run,
                                            .run_async = T::run_async,
                                            .output = T::output,
                                            .destroy = T::destroy,
                                            .enqueue = T::enqueue,
                                            .input_memory = T::input_memory,
                                            .output_memory = T::output_memory};
    return table;
  }
};

class MockExecutable {
 public:
  explicit MockExecutable(const belay_host* host = nullptr) : host(host) {
    ON_CALL(*this, context).WillByDefault([this]() -> Result<std::unique_ptr<MockContext>> {
      return std::unique_ptr<MockContext>(new ::testing::NiceMock<MockContext>(this->host));
    });
  }
  virtual ~MockExecutable() { died(); }

  MOCK_METHOD(uint64_t, input_count, ());
  MOCK_METHOD(uint64_t, output_count, ());
  MOCK_METHOD(Status, input_info, (uint64_t index, belay_io_info* inout));
  MOCK_METHOD(Status, output_info, (uint64_t index, belay_io_info* inout));
  MOCK_METHOD(Result<std::unique_ptr<MockContext>>, context, ());
  MOCK_METHOD(Status, stats, (belay_executable_stats * inout));
  MOCK_METHOD(Status, describe, (belay_sink));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL

  static const belay_executable_vt& table() {
    struct T {
      static MockExecutable& of(belay_obj* o) { return *static_cast<MockExecutable*>(o->impl); }
      static uint64_t input_count(belay_obj* o) BELAY_NOEXCEPT { return of(o).input_count(); }
      static uint64_t output_count(belay_obj* o) BELAY_NOEXCEPT { return of(o).output_count(); }
      static belay_status input_info(belay_obj* o, uint64_t i, belay_io_info* inout) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).input_info(i, inout));
      }
      static belay_status output_info(belay_obj* o, uint64_t i, belay_io_info* inout) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).output_info(i, inout));
      }
      static belay_status context(belay_obj* o, belay_created* out) BELAY_NOEXCEPT {
        auto made = of(o).context();
        if (!made.ok()) return status_of(of(o).host, made.status());
        out->impl = std::move(made).value().release();
        out->table = &MockContext::table();
        return BELAY_OK;
      }
      static belay_status stats(belay_obj* o, belay_executable_stats* inout) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).stats(inout));
      }
      static belay_status describe(belay_obj* o, belay_sink sink) BELAY_NOEXCEPT {
        return status_of(of(o).host, of(o).describe(sink));
      }
      static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
    };
    static constexpr belay_executable_vt table{.hdr = {sizeof(belay_executable_vt), 0, nullptr},
                                               .input_count = T::input_count,
                                               .output_count = T::output_count,
                                               .input_info = T::input_info,
                                               .output_info = T::output_info,
                                               .context = T::context,
                                               .stats = T::stats,
                                               .describe = T::describe,
                                               .destroy = T::destroy};
    return table;
  }
};

class MockEngine {
 public:
  explicit MockEngine(const belay_host* host = nullptr) : host(host) {
    ON_CALL(*this, load)
        .WillByDefault([this](const belay_load_req&) -> Result<std::unique_ptr<MockExecutable>> {
          return std::unique_ptr<MockExecutable>(new ::testing::NiceMock<MockExecutable>(this->host));
        });
  }
  virtual ~MockEngine() { died(); }

  MOCK_METHOD(Result<std::unique_ptr<MockExecutable>>, load, (const belay_load_req&));
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL

  static const belay_engine_vt& table() {
    struct T {
      static MockEngine& of(belay_obj* o) { return *static_cast<MockEngine*>(o->impl); }
      static belay_status load(belay_obj* o, const belay_load_req* req, belay_created* out) BELAY_NOEXCEPT {
        auto made = of(o).load(*req);
        if (!made.ok()) return status_of(of(o).host, made.status());
        out->impl = std::move(made).value().release();
        out->table = &MockExecutable::table();
        return BELAY_OK;
      }
      static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
    };
    static constexpr belay_engine_vt table{
        .hdr = {sizeof(belay_engine_vt), 0, nullptr}, .load = T::load, .destroy = T::destroy};
    return table;
  }
};

}  // namespace belay::testing
