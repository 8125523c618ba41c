// belay/services.hpp: the services of a host in C++: found by the type of their table, with an error that names the one
// that is missing; and spans for the trace. Header-only.
//
//   BELAY_ASSIGN(const belay_metrics_vt* metrics, belay::service<belay_metrics_vt>(host));
#pragma once

#include <belay/abi/services.h>
#include <belay/status.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace belay {

// The id of the service whose table `Table` is; specialise it for a service of your own.
template <class Table>
inline constexpr std::string_view kServiceId = "";
template <>
inline constexpr std::string_view kServiceId<belay_executor_vt> = BELAY_HOST_EXECUTOR;
template <>
inline constexpr std::string_view kServiceId<belay_registry_vt> = BELAY_HOST_REGISTRY;
template <>
inline constexpr std::string_view kServiceId<belay_log_vt> = BELAY_HOST_LOG;
template <>
inline constexpr std::string_view kServiceId<belay_metrics_vt> = BELAY_HOST_METRICS;
template <>
inline constexpr std::string_view kServiceId<belay_trace_vt> = BELAY_HOST_TRACE;
template <>
inline constexpr std::string_view kServiceId<belay_fs_vt> = BELAY_HOST_FS;
template <>
inline constexpr std::string_view kServiceId<belay_memory_vt> = BELAY_HOST_MEMORY;
template <>
inline constexpr std::string_view kServiceId<belay_thread_check_vt> = BELAY_HOST_THREAD_CHECK;
template <>
inline constexpr std::string_view kServiceId<belay_fault_vt> = BELAY_HOST_FAULT;

// UNIMPLEMENTED names the service and the host.
template <class Table>
Result<const Table*> service(const belay_host& host) {
  static_assert(!kServiceId<Table>.empty(), "no service has this table");
  if (const void* table = host.get_service(&host, to_str(kServiceId<Table>))) return static_cast<const Table*>(table);
  return Status(Code::kUnimplemented, "This host (" + to_string(host.product) + " " + to_string(host.version) +
                                          ") has no service '" + std::string(kServiceId<Table>) +
                                          "'; list it under 'requires' in the manifest, or do without it.");
}

// A range of time in the trace, from where it is made to the end of its scope. `ring` is that of this thread; without one
// nothing is done.
class Span {
 public:
  Span(const belay_host& host, belay_trace_ring* ring, uint32_t name, uint64_t value = 0)
      : host_(host), ring_(ring && __atomic_load_n(ring->enabled, __ATOMIC_RELAXED) ? ring : nullptr) {
    if (!ring_) return;
    record_.kind = BELAY_TRACE_RANGE, record_.name = name, record_.value = value;
    record_.begin_ns = host.now_ns(&host);
  }
  ~Span() {
    if (!ring_) return;
    const uint64_t duration = host_.now_ns(&host_) - record_.begin_ns;
    record_.duration_ns = duration < UINT32_MAX ? uint32_t(duration) : UINT32_MAX;
    belay_trace_write(ring_, &record_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const belay_host& host_;
  belay_trace_ring* const ring_;
  belay_trace_record record_{};
};

}  // namespace belay
