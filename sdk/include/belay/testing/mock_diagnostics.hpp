// belay/testing/mock_diagnostics.hpp: a Google Mock class for belay_diagnostics_vt. Without expectations
// (NiceMock) it has no checks and every slot succeeds without an answer; slots that a plugin lacks are left
// out of the table with TableBuilder.
#pragma once

#include <belay/abi/diagnostics.h>
#include <gmock/gmock.h>
#include <belay/testing/table.hpp>

#include <span>
#include <string_view>

namespace belay::testing {

class MockDiagnostics {
 public:
  explicit MockDiagnostics(const belay_host* host = nullptr) : host(host) {}
  virtual ~MockDiagnostics() { died(); }

  MOCK_METHOD(void, on_records, (std::span<const belay_trace_record> records));
  MOCK_METHOD(uint64_t, check_count, ());
  MOCK_METHOD(Status, check_info, (uint64_t index, belay_check_info* inout));
  MOCK_METHOD(Result<uint64_t>, run_check, (uint64_t index, belay_sink text));
  MOCK_METHOD(Status, dump, (std::string_view format, belay_sink));
  MOCK_METHOD(Status, flush, ());
  MOCK_METHOD(void, died, ());

  const belay_host* const host;  // keeps the sentences of failures; may be NULL

  static const belay_diagnostics_vt& table();
};

inline const belay_diagnostics_vt& MockDiagnostics::table() {
  struct T {
    static MockDiagnostics& of(belay_obj* o) { return *static_cast<MockDiagnostics*>(o->impl); }
    static void on_records(belay_obj* o, const belay_trace_record* records, uint64_t count) BELAY_NOEXCEPT {
      of(o).on_records({records, count});
    }
    static uint64_t check_count(belay_obj* o) BELAY_NOEXCEPT { return of(o).check_count(); }
    static belay_status check_info(belay_obj* o, uint64_t index, belay_check_info* inout) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).check_info(index, inout));
    }
    static belay_status run_check(belay_obj* o, uint64_t index, uint64_t* outcome,
                                  belay_sink text) BELAY_NOEXCEPT {
      return result_of(of(o).host, of(o).run_check(index, text), outcome);
    }
    static belay_status dump(belay_obj* o, belay_str format, belay_sink sink) BELAY_NOEXCEPT {
      return status_of(of(o).host, of(o).dump(to_view(format), sink));
    }
    static belay_status flush(belay_obj* o) BELAY_NOEXCEPT { return status_of(of(o).host, of(o).flush()); }
    static void destroy(belay_obj* o) BELAY_NOEXCEPT { delete &of(o); }
  };
  static constexpr belay_diagnostics_vt table{.hdr = {sizeof(belay_diagnostics_vt), 0, nullptr},
                                              .on_records = T::on_records,
                                              .check_count = T::check_count,
                                              .check_info = T::check_info,
                                              .run_check = T::run_check,
                                              .dump = T::dump,
                                              .flush = T::flush,
                                              .destroy = T::destroy};
  return table;
}

}  // namespace belay::testing
