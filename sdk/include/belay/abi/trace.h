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

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_TRACE_H */
