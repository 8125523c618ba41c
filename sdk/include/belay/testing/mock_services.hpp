// belay/testing/mock_services.hpp: Google Mock classes for the tables of belay/abi/services.h. A mock answers for a
// FakeHost once it is offered there:
//
//   StrictMock<MockMetrics> metrics(host);   // host: a FakeHost; offered until it dies
//   EXPECT_CALL(metrics, define(Field(&belay_metric_req::kind, BELAY_METRIC_GAUGE))).WillOnce(Return(uint64_t{1}));
#pragma once

#include <belay/abi/services.h>
#include <gmock/gmock.h>
#include <belay/testing/fake_host.hpp>
#include <belay/testing/table.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace belay::testing {

// What all of them share: the place in the host, and the mock found from the belay_host of a call.
template <class Mock>
class MockService {
 public:
  explicit MockService(FakeHost& host) : host(host) {
    host.offer(Mock::kId, &Mock::table(), static_cast<Mock*>(this));
  }
  MockService(const MockService&) = delete;
  MockService& operator=(const MockService&) = delete;

  FakeHost& host;  // keeps the sentences of failures

 protected:
  ~MockService() { host.offer(Mock::kId, nullptr); }
  static Mock& of(const belay_host* host) { return *static_cast<Mock*>(FakeHost::state_of(host, Mock::kId)); }
  static belay_status give(const belay_host* host, const Status& status) { return status_of(host, status); }
};

class MockLog : public MockService<MockLog> {
 public:
  static constexpr const char* kId = BELAY_HOST_LOG;
  using MockService::MockService;
  MOCK_METHOD(bool, enabled, (uint32_t level, std::string_view part));
  MOCK_METHOD(void, write, (const belay_log_req&));
  MOCK_METHOD(void, flush, ());

  static const belay_log_vt& table() {
    static constexpr belay_log_vt table{
        {sizeof(belay_log_vt), 0, nullptr},
        [](const belay_host* h, uint32_t level, belay_str part) BELAY_NOEXCEPT {
          return uint32_t(of(h).enabled(level, to_view(part)));
        },
        [](const belay_host* h, const belay_log_req* req) BELAY_NOEXCEPT { of(h).write(*req); },
        [](const belay_host* h) BELAY_NOEXCEPT { of(h).flush(); }};
    return table;
  }
};

class MockMetrics : public MockService<MockMetrics> {
 public:
  static constexpr const char* kId = BELAY_HOST_METRICS;
  using Each = std::function<void(const belay_metric_info&)>;
  using MockService::MockService;
  MOCK_METHOD(Result<uint64_t>, define, (const belay_metric_req&));
  MOCK_METHOD(void, add, (uint64_t metric, int64_t by));
  MOCK_METHOD(void, set, (uint64_t metric, int64_t value));
  MOCK_METHOD(void, observe, (uint64_t metric, uint64_t value));
  MOCK_METHOD(Status, each, (const Each&));

  static const belay_metrics_vt& table() {
    static constexpr belay_metrics_vt table{
        {sizeof(belay_metrics_vt), 0, nullptr},
        [](const belay_host* h, const belay_metric_req* req, uint64_t* out) BELAY_NOEXCEPT {
          return result_of(h, of(h).define(*req), out);
        },
        [](const belay_host* h, uint64_t metric, int64_t by) BELAY_NOEXCEPT { of(h).add(metric, by); },
        [](const belay_host* h, uint64_t metric, int64_t value) BELAY_NOEXCEPT { of(h).set(metric, value); },
        [](const belay_host* h, uint64_t metric, uint64_t value) BELAY_NOEXCEPT { of(h).observe(metric, value); },
        [](const belay_host* h, void (*each)(void*, const belay_metric_info*), void* user) BELAY_NOEXCEPT {
          return give(h, of(h).each([&](const belay_metric_info& info) { each(user, &info); }));
        }};
    return table;
  }
};

class MockTrace : public MockService<MockTrace> {
 public:
  static constexpr const char* kId = BELAY_HOST_TRACE;
  using MockService::MockService;
  MOCK_METHOD(const uint32_t*, enabled, ());
  MOCK_METHOD(Result<uint32_t>, name, (std::string_view text));
  MOCK_METHOD(std::string, name_text, (uint32_t name));
  MOCK_METHOD(belay_trace_ring*, ring, ());

  static const belay_trace_vt& table() {
    static constexpr belay_trace_vt table{
        {sizeof(belay_trace_vt), 0, nullptr},
        [](const belay_host* h) BELAY_NOEXCEPT { return of(h).enabled(); },
        [](const belay_host* h, belay_str text, uint32_t* out) BELAY_NOEXCEPT {
          return result_of(h, of(h).name(to_view(text)), out);
        },
        [](const belay_host* h, uint32_t name, belay_sink sink) BELAY_NOEXCEPT { write(sink, of(h).name_text(name)); },
        [](const belay_host* h) BELAY_NOEXCEPT { return of(h).ring(); }};
    return table;
  }
};

class MockFs : public MockService<MockFs> {
 public:
  static constexpr const char* kId = BELAY_HOST_FS;
  using MockService::MockService;
  MOCK_METHOD(Result<std::string>, path, (uint32_t place));
  MOCK_METHOD(Result<int32_t>, open, (uint32_t place, std::string_view name, bool write));
  MOCK_METHOD(Result<std::string>, read, (uint32_t place, std::string_view name));
  MOCK_METHOD(Status, write_file, (std::string_view name, std::string_view bytes));
  MOCK_METHOD(Status, remove, (std::string_view name));

  static const belay_fs_vt& table() {
    static constexpr belay_fs_vt table{
        {sizeof(belay_fs_vt), 0, nullptr},
        [](const belay_host* h, uint32_t place, belay_sink sink) BELAY_NOEXCEPT {
          return pass(h, of(h).path(place), sink);
        },
        [](const belay_host* h, uint32_t place, belay_str name, uint32_t write, int32_t* out) BELAY_NOEXCEPT {
          return result_of(h, of(h).open(place, to_view(name), write != 0), out);
        },
        [](const belay_host* h, uint32_t place, belay_str name, belay_sink sink) BELAY_NOEXCEPT {
          return pass(h, of(h).read(place, to_view(name)), sink);
        },
        [](const belay_host* h, belay_str name, belay_span bytes) BELAY_NOEXCEPT {
          return give(h, of(h).write_file(to_view(name), {static_cast<const char*>(bytes.ptr), bytes.len}));
        },
        [](const belay_host* h, belay_str name) BELAY_NOEXCEPT { return give(h, of(h).remove(to_view(name))); }};
    return table;
  }

 private:
  static belay_status pass(const belay_host* h, const Result<std::string>& text, belay_sink sink) {
    if (text.ok()) belay::write(sink, *text);
    return give(h, text.status());
  }
};

class MockMemory : public MockService<MockMemory> {
 public:
  static constexpr const char* kId = BELAY_HOST_MEMORY;
  using MockService::MockService;
  MOCK_METHOD(Result<void*>, alloc, (const belay_memory_req&));
  MOCK_METHOD(void, free, (void* block));
  MOCK_METHOD(Status, usage, (belay_memory_usage * inout));

  static const belay_memory_vt& table() {
    static constexpr belay_memory_vt table{
        {sizeof(belay_memory_vt), 0, nullptr},
        [](const belay_host* h, const belay_memory_req* req, void** out) BELAY_NOEXCEPT {
          return result_of(h, of(h).alloc(*req), out);
        },
        [](const belay_host* h, void* block) BELAY_NOEXCEPT { of(h).free(block); },
        [](const belay_host* h, belay_memory_usage* inout) BELAY_NOEXCEPT { return give(h, of(h).usage(inout)); }};
    return table;
  }
};

class MockThreadCheck : public MockService<MockThreadCheck> {
 public:
  static constexpr const char* kId = BELAY_HOST_THREAD_CHECK;
  using MockService::MockService;
  MOCK_METHOD(uint32_t, domain, ());
  MOCK_METHOD(Status, info, (belay_thread_info * inout));
  MOCK_METHOD(Status, check, (uint32_t allowed, std::string_view what));

  static const belay_thread_check_vt& table() {
    static constexpr belay_thread_check_vt table{
        {sizeof(belay_thread_check_vt), 0, nullptr},
        [](const belay_host* h) BELAY_NOEXCEPT { return of(h).domain(); },
        [](const belay_host* h, belay_thread_info* inout) BELAY_NOEXCEPT { return give(h, of(h).info(inout)); },
        [](const belay_host* h, uint32_t allowed, belay_str what) BELAY_NOEXCEPT {
          return give(h, of(h).check(allowed, to_view(what)));
        }};
    return table;
  }
};

class MockFault : public MockService<MockFault> {
 public:
  static constexpr const char* kId = BELAY_HOST_FAULT;
  using MockService::MockService;
  MOCK_METHOD(Status, at, (std::string_view point));

  static const belay_fault_vt& table() {
    static constexpr belay_fault_vt table{
        {sizeof(belay_fault_vt), 0, nullptr},
        [](const belay_host* h, belay_str point) BELAY_NOEXCEPT { return give(h, of(h).at(to_view(point))); }};
    return table;
  }
};

}  // namespace belay::testing
