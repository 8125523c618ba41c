/* belay/abi/trace.h: the one record that all diagnostics are made of. */
#ifndef BELAY_ABI_TRACE_H
#define BELAY_ABI_TRACE_H

#include <belay/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_TRACE_OPERATION 1u /* id: name; value: correlation */
#define BELAY_TRACE_COPY 2u      /* value: bytes */
#define BELAY_TRACE_ALLOC 3u     /* value: bytes */
#define BELAY_TRACE_FREE 4u      /* value: bytes */
#define BELAY_TRACE_WAIT 5u      /* value: timeline */
#define BELAY_TRACE_LOAD 6u
#define BELAY_TRACE_ERROR 7u     /* value: status code */
#define BELAY_TRACE_RANGE 8u     /* a user's range */

typedef struct belay_trace_record {
  uint64_t begin_ns;
  uint32_t duration_ns; /* capped at 2^32 - 1 */
  uint16_t kind;        /* BELAY_TRACE_... */
  uint16_t stream;      /* 0: a host thread */
  uint32_t name;        /* id of an interned name */
  uint32_t thread;
  uint64_t value;
} belay_trace_record;
BELAY_STATIC_ASSERT(sizeof(belay_trace_record) == 32, "a fixed-size record");

/* The records of one thread on their way to the host (belay.host.trace/1). That thread writes, the host reads. */
typedef struct belay_trace_ring {
  belay_hdr hdr;
  const uint32_t* enabled; /* not 0 while somebody listens */
  belay_trace_record* records;
  uint64_t capacity; /* a power of two */
  uint64_t written;  /* records so far; of the writer */
  uint64_t read;     /* of the host */
  uint64_t dropped;  /* records that found no room; of the writer */
  uint64_t thread;   /* what the host calls this thread, 1 and up */
} belay_trace_ring;

/* Writes a record on the ring's own thread; its `thread` is filled in. Nobody listens, or no ring (NULL): nothing is
 * done. A full ring: the record is counted and dropped. [nolock] */
static inline void belay_trace_write(belay_trace_ring* ring, const belay_trace_record* record) {
  uint64_t at, slot;
  if (!ring || !__atomic_load_n(ring->enabled, __ATOMIC_RELAXED)) return;
  at = __atomic_load_n(&ring->written, __ATOMIC_RELAXED);
  if (at - __atomic_load_n(&ring->read, __ATOMIC_ACQUIRE) >= ring->capacity) {
    __atomic_store_n(&ring->dropped, __atomic_load_n(&ring->dropped, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
    return;
  }
  slot = at & (ring->capacity - 1);
  ring->records[slot] = *record;
  ring->records[slot].thread = (uint32_t)ring->thread;
  __atomic_store_n(&ring->written, at + 1, __ATOMIC_RELEASE);
}

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_TRACE_H */
