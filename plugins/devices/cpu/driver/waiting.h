// Whoever waits, works: how a thread waits for a value of a timeline.
#pragma once

#include <belay/abi/base.h>

#include <cstdint>

namespace belay::cpu {

class Stream;

// Returns when the stream's timeline stands at `value`, after `timeout_ns` by the host's clock at most. Meanwhile the
// calling thread runs what is queued, on this stream and on those it waits for, no further than the awaited values.
// It leaves to a worker: foreign code; with a finite timeout what may take more than a quarter of the time left; all
// of it on a thread with little stack. It sleeps only where it cannot help. Gives OK when the value is reached,
// failed or not; DEADLINE_EXCEEDED; FAILED_PRECONDITION where the stream would wait for itself.
belay_status wait_for(Stream& stream, uint64_t value, uint64_t timeout_ns);

}  // namespace belay::cpu
