// core/base/last_error.h: the last failure that a thread was told, kept for who asks later.
#pragma once

#include <belay/abi/base.h>

namespace belay::core {

// One for each thread, as errno is: a success leaves it, the next failure replaces it. Nothing is allocated
// before the first failure of a thread.

// Copies the sentence; the status stays its owner's. OK, DEFERRED and answers, which are UNAVAILABLE and
// NOT_FOUND without a sentence, are not failures and keep nothing.
void keep_last_error(belay_status status) noexcept;
// A status of the caller's own, and the thread has none any more; OK: there was none.
belay_status take_last_error() noexcept;

}  // namespace belay::core
