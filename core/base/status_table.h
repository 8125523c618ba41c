// core/base/status_table.h: the details behind a belay_status.
#pragma once

#include <belay/abi/base.h>
#include <belay/status.hpp>

#include <string_view>

namespace belay::core {

// One table for the process, constant-initialised and bounded (4096 details): a status survives every host
// and every plugin. Thread-safe without locks that a fork could leave taken.

struct StatusDetail {
  std::string message, plugin;
  int64_t vendor_code = 0;
};

// A status with a detail; the bare code when the table is full or `code` is OK. Messages are cut at 16 KiB.
belay_status make_status(uint32_t code, std::string_view message, std::string_view plugin = {},
                         int64_t vendor_code = 0) noexcept;
// The detail. OK: message is the code's title for a bare code. NOT_FOUND: no detail of this table, or
// released. INVALID_ARGUMENT: no code of the ABI.
Result<StatusDetail> status_detail(belay_status status);
// The message; the code's title for a bare code or an unknown handle.
void status_text(belay_status status, belay_sink sink) noexcept;
void release_status(belay_status status) noexcept;  // twice is harmless
uint64_t live_details() noexcept;

}  // namespace belay::core
