// What the slots that queue have in common.
#pragma once

#include "capture.h"
#include "device.h"
#include "stream.h"

#include <belay/plugin.hpp>

#include <string>
#include <utility>

namespace belay::cpu {

// For messages.
inline std::string where(const Stream& stream) {
  return "stream " + std::to_string(stream.id()) + " of " + stream.device().name();
}

// Null as well where the overflow of a full queue finds no memory.
[[gnu::noinline]] inline Packet* begin_or_null(Stream& stream, uint64_t slots) noexcept try {
  return stream.begin(slots);
} catch (const std::bad_alloc&) {
  return nullptr;
}

// While the stream records: adds what would have been queued, by record(recorder).
template <class Record>
belay_status record(Stream& stream, Record&& add, uint64_t* out_value) {
  return guard(stream.device().host(), [&]() -> Status {
    add(*stream.recorder());
    *out_value = stream.queued();
    return {};
  });
}

// Queues an operation of one slot with up to four words; the common checks are behind the caller.
inline belay_status queue(Stream& stream, Kind kind, RunFn run, uint8_t flags, uint32_t cost, uint64_t a, uint64_t b,
                          uint64_t c, uint64_t d, uint64_t* out_value) {
  Packet* packet = stream.begin_fast();
  if (!packet) [[unlikely]] {
    packet = begin_or_null(stream, 1);
    if (!packet) return BELAY_QUEUE_FULL;
  }
  packet->run = run;
  packet->cost_ns = cost;
  packet->slots = 1;
  packet->kind = kind;
  packet->flags = flags;
  packet->words[0] = a;
  packet->words[1] = b;
  packet->words[2] = c;
  packet->words[3] = d;
  stream.commit(1, cost, out_value);
  return BELAY_OK;
}

// Around foreign code on a worker, which has no lane meanwhile: it may block.
template <class Call>
belay_status run_foreign(Exec& exec, Call&& call) {
  exec.device->give_lane_back(*exec.thread);
  exec.device->workers().enter_foreign();
  const belay_status status = call();
  exec.device->workers().leave_foreign();
  exec.device->foreign_ended();
  return status;
}

}  // namespace belay::cpu
