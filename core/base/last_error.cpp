#include "core/base/last_error.h"

#include "core/base/status_table.h"
#include "core/base/thread_owned.h"

#include <utility>

namespace belay::core {
namespace {

// The code stands apart from its sentence: a thread without failures allocates nothing, and one that is ending or has
// no memory still has codes.
constinit thread_local uint32_t last_code = BELAY_OK;

}  // namespace

void keep_last_error(belay_status status) noexcept {
  const uint32_t code = BELAY_STATUS_CODE(status);
  const bool bare = status >> 16 == 0;
  if (code == BELAY_OK || code == BELAY_DEFERRED) return;
  if (bare && (code == BELAY_UNAVAILABLE || code == BELAY_NOT_FOUND)) return;
  last_code = code;
  StatusDetail* const kept = ThreadOwned<StatusDetail>::get();
  if (!kept) return;
  try {
    *kept = {};
    if (bare) return;
    if (Result<StatusDetail> detail = status_detail(status); detail.ok()) *kept = std::move(detail).value();
  } catch (...) {  // no memory: the code alone
  }
}

belay_status take_last_error() noexcept {
  if (last_code == BELAY_OK) return BELAY_OK;
  const uint32_t code = std::exchange(last_code, BELAY_OK);
  StatusDetail* const kept = ThreadOwned<StatusDetail>::get();
  if (!kept || kept->message.empty()) return code;
  const StatusDetail detail = std::exchange(*kept, {});
  return make_status(code, detail.message, detail.plugin, detail.vendor_code);
}

}  // namespace belay::core
