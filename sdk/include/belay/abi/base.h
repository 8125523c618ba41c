/* belay/abi/base.h: what every header of the C ABI uses: status, strings, spans, objects, struct headers.
 *
 * Rules of the whole ABI
 *  - C11 with <stdint.h> and <stddef.h> only; structs have no padding; lengths and sizes are bytes in uint64_t;
 *    times are monotonic nanoseconds.
 *  - Every struct that may grow begins with belay_hdr. Fields and slots are appended, never moved or changed.
 *    An array of growing structs crosses as an array of pointers.
 *  - A request (`_req`) is filled by the caller. A result (`_info`, `_stats`, `_created`) is filled by the slot,
 *    at most up to the struct_size that the caller set.
 *  - In-arguments are borrowed until the call returns. A call that fails takes nothing and gives nothing.
 *  - Nothing is freed by the other side's free(). Objects are destroyed by the `destroy` of the table that made them.
 *  - Tags at a slot: [pure] any thread, any time, no side effect; [init] one thread, no other call into the plugin;
 *    [serial] never two at once on one object; [any] may be concurrent; [io] a thread of the executor; [nolock] hot
 *    path: no allocation, lock, log or system call. r = required, o = optional (may be null).
 */
#ifndef BELAY_ABI_BASE_H
#define BELAY_ABI_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define BELAY_EXTERN_C extern "C"
#define BELAY_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define BELAY_EXTERN_C
#define BELAY_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* Slots are noexcept where an author compiles them. A host calls through the plain type, so that it can still
 * catch what a broken plugin throws. */
#if defined(__cplusplus) && defined(BELAY_PLUGIN_BUILD)
#define BELAY_NOEXCEPT noexcept
#else
#define BELAY_NOEXCEPT
#endif

#define BELAY_EXPORT BELAY_EXTERN_C __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_ABI_MAJOR 0u
#define BELAY_ABI_MINOR 1u

/* First member of every struct that may grow. */
typedef struct belay_hdr {
  uint32_t struct_size; /* sizeof of the struct as its writer knew it */
  uint32_t flags;       /* as the struct says; 0 otherwise */
  const void* next;     /* an extension struct, which begins with belay_hdr; NULL when none */
} belay_hdr;

/* True when the table or struct `p` of type `type` has the member `member` and (for a slot) it is not null. */
#define BELAY_HAS_FIELD(p, type, member) \
  ((p)->hdr.struct_size >= offsetof(type, member) + sizeof(((const type*)0)->member))
#define BELAY_HAS(p, type, member) (BELAY_HAS_FIELD(p, type, member) && (p)->member != 0)

/* 0 is success. Bits 0-7: one of the codes below. Bits 8-15: 0. Bits 16-63: handle of a detail that the host issued
 * (message, plugin, cause); 0 when there is none. A plugin may return a bare code. Whoever receives a status gives its
 * detail back with status_release of the host table; releasing twice is harmless. */
typedef uint64_t belay_status;

#define BELAY_OK 0u
#define BELAY_CANCELLED 1u
#define BELAY_UNKNOWN 2u
#define BELAY_INVALID_ARGUMENT 3u
#define BELAY_DEADLINE_EXCEEDED 4u
#define BELAY_NOT_FOUND 5u
#define BELAY_ALREADY_EXISTS 6u
#define BELAY_PERMISSION_DENIED 7u
#define BELAY_RESOURCE_EXHAUSTED 8u
#define BELAY_FAILED_PRECONDITION 9u
#define BELAY_ABORTED 10u
#define BELAY_OUT_OF_RANGE 11u
#define BELAY_UNIMPLEMENTED 12u
#define BELAY_INTERNAL 13u
#define BELAY_UNAVAILABLE 14u
#define BELAY_DATA_LOSS 15u
#define BELAY_UNAUTHENTICATED 16u
#define BELAY_DEFERRED 17u     /* accepted; the completion tells the outcome */
#define BELAY_QUEUE_FULL 18u   /* nothing was queued: make room, call again */
#define BELAY_DEVICE_LOST 19u  /* the device is unusable until it is reset */
#define BELAY_NEED_SEGMENT 20u /* a memory policy wants another segment before it can place */
#define BELAY_DECLINED 21u     /* not mine: ask the next one */
#define BELAY_CODE_COUNT 22u

#define BELAY_STATUS_CODE(status) ((uint32_t)((status)&0xffu))

/* UTF-8, not NUL-terminated, borrowed for the call unless the slot says otherwise. */
typedef struct belay_str {
  const char* ptr;
  uint64_t len;
} belay_str;

typedef struct belay_span { /* bytes to read, borrowed */
  const void* ptr;
  uint64_t len;
} belay_span;

typedef struct belay_mspan { /* bytes to write, borrowed */
  void* ptr;
  uint64_t len;
} belay_mspan;

/* How a callee returns text or bytes of unknown size: it calls write any number of times before it returns. */
typedef struct belay_sink {
  void* user;
  void (*write)(void* user, const void* bytes, uint64_t len) BELAY_NOEXCEPT;
} belay_sink;

/* Called exactly once, on any thread unless the slot says otherwise. `done` owns the detail of `status`. */
typedef struct belay_completion {
  void* user;
  void (*done)(void* user, belay_status status) BELAY_NOEXCEPT;
} belay_completion;

/* An object made by a plugin. The host builds it around {impl, table}; every slot of the table receives it, so a
 * slot's first act is to read `impl`. The same pointer travels through all layers. */
typedef struct belay_obj {
  uint32_t magic;      /* BELAY_OBJ_MAGIC while alive */
  uint32_t kind;       /* BELAY_OBJ_... */
  uint64_t generation; /* distinguishes objects that reuse an address */
  const void* table;   /* belay_<kind>_vt */
  void* impl;          /* the plugin's own */
  uint64_t layer_word[16];
} belay_obj;

#define BELAY_OBJ_MAGIC 0x4a424f42u
#define BELAY_OBJ_DEAD 0x44414544u

#define BELAY_OBJ_DRIVER 1u
#define BELAY_OBJ_DEVICE 2u
#define BELAY_OBJ_STREAM 3u
#define BELAY_OBJ_BUFFER 4u
#define BELAY_OBJ_PROGRAM 5u
#define BELAY_OBJ_MEMORY_POLICY 6u
#define BELAY_OBJ_MODEL_FORMAT 7u
#define BELAY_OBJ_KERNEL_PROVIDER 8u
#define BELAY_OBJ_ENGINE 9u
#define BELAY_OBJ_EXECUTABLE 10u
#define BELAY_OBJ_DIAGNOSTICS 11u

/* What a `create` slot gives. `table` has static storage in the plugin. */
typedef struct belay_created {
  belay_hdr hdr;
  void* impl;
  const void* table;
} belay_created;

BELAY_STATIC_ASSERT(sizeof(belay_hdr) == 16, "two words and a pointer");
BELAY_STATIC_ASSERT(sizeof(belay_obj) == 160, "five words and sixteen layer words");

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_BASE_H */
