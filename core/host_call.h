// core/host_call.h: the frame of every slot of the tables that plugins call.
#pragma once

#include "core/base/slot_call.h"
#include "core/base/status_table.h"
#include "core/host.h"

#include <exception>
#include <type_traits>

namespace belay::core {

// While one lives the host does not end under the call of a plugin that could not be closed.
struct InsideHost {
  explicit InsideHost(const belay_host* host) : table(table_of(host)) { ++table.inside; }
  ~InsideHost() { --table.inside; }
  InsideHost(const InsideHost&) = delete;
  HostTable& table;
};

// Why a plugin may not call now; ok when it may.
Status check_call(const HostTable& table);

inline belay_status give(const belay_host* host, const Status& status) {
  return status.ok() ? BELAY_OK
                     : make_status(uint32_t(status.code()), status.message(), table_of(host).plugin);
}

// Runs `body` with the caller's table, if the caller may call. It gives what the slot does, or for a slot
// that gives a belay_status a Status. Nothing that it throws leaves the host: no memory is
// RESOURCE_EXHAUSTED.
template <class R, class Body>
R host_call(const belay_host* host, Body&& body) noexcept {
  try {
    const InsideHost inside(host);
    const Status allowed = check_call(inside.table);
    if constexpr (std::is_same_v<R, belay_status>) {
      return give(host, allowed.ok() ? Status(body(inside.table)) : allowed);
    } else if constexpr (std::is_void_v<R>) {
      if (allowed.ok()) body(inside.table);
      return;
    } else {
      if (allowed.ok()) return body(inside.table);
    }
  } catch (const std::exception&) {
    if constexpr (std::is_same_v<R, belay_status>) return BELAY_RESOURCE_EXHAUSTED;
  }
  if constexpr (!std::is_void_v<R>) return R{};
}

}  // namespace belay::core
