/* belay/abi/driver.h: kind belay.driver/1: devices, their memory, streams and events, copies and launches.
 *
 * Order: what is queued on one stream runs in the order of the calls; nothing else orders work but `wait`. A stream
 * owns a timeline, a 64-bit counter that only grows: each queued operation has a value, and the timeline reaches it
 * when that operation and all before it have ended.
 * Failure: an operation that fails fails its value, and the values after it until `recover` is called; operations in
 * between do not run (unless the stream has CONTINUE_ON_FAILURE: they run, and the first failure is kept). Waiting for
 * such a value returns the failure: its message names the operation it came from, also across streams. */
#ifndef BELAY_ABI_DRIVER_H
#define BELAY_ABI_DRIVER_H

#include <belay/abi/base.h>
#include <belay/abi/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_DRIVER_KIND "belay.driver/1"

/* ---- events -------------------------------------------------------------------------------------------------------- */
typedef struct belay_event { /* a point of a timeline: no object, nothing to free, copied at the call */
  uint64_t timeline;         /* id of the timeline, unique over all drivers of a host; 0: no event, always reached */
  uint64_t value;            /* reached when the timeline stands at this or a later value */
} belay_event;
BELAY_STATIC_ASSERT(sizeof(belay_event) == 16, "an event is a pair of 64-bit numbers");

#define BELAY_FOREVER 0xffffffffffffffffu /* as a timeout */

/* ---- devices and memory -------------------------------------------------------------------------------------------- */
#define BELAY_HEAP_DEVICE 1u
#define BELAY_HEAP_CONSTANT 2u
#define BELAY_HEAP_SHARED 3u      /* device memory that the host sees at the same address */
#define BELAY_HEAP_PINNED_HOST 4u

typedef struct belay_heap_info { /* the slot fills */
  belay_hdr hdr;
  uint64_t heap_class;   /* BELAY_HEAP_... */
  uint64_t bytes;        /* capacity */
  uint64_t free_bytes;   /* now */
  uint64_t alignment;    /* of every allocation, at least */
  uint64_t cache_bytes;  /* the largest cache in front of it; 0: not known */
} belay_heap_info;

#define BELAY_DEVICE_HOST_VISIBLE 1u /* kernels' argument words are host addresses; buffers can be mapped */
#define BELAY_DEVICE_BINDS_HOST 2u   /* host memory can be used as a buffer without a copy (belay_alloc_req.host) */
#define BELAY_DEVICE_SUBDIVIDES 4u   /* a buffer can be a part of another one (belay_alloc_req.within) */

typedef struct belay_device_info { /* the slot fills; strings live as long as the device (or driver) */
  belay_hdr hdr;      /* flags: BELAY_DEVICE_... */
  belay_str driver;   /* "cpu" */
  belay_str name;     /* "AMD EPYC 9654" */
  belay_str arch;     /* what kernels are chosen by: "x86_64" */
  belay_str features; /* separated by spaces: "avx2 fma avx512f" */
  uint64_t index;     /* among the driver's devices */
  uint64_t threads;   /* hardware lanes that kernels may use at once */
  uint64_t memory_bytes;
  uint64_t heap_count;
  uint64_t queue_depth; /* operations a stream holds before QUEUE_FULL */
} belay_device_info;

typedef struct belay_alloc_req {
  belay_hdr hdr;
  uint64_t bytes;   /* 0 is allowed: a valid buffer without bytes */
  uint64_t align;   /* power of two; 0: the heap's */
  uint64_t heap;    /* index */
  void* host;       /* not NULL: no new memory, use this host range (needs BELAY_DEVICE_BINDS_HOST); the caller keeps it
                     * alive and in place until the buffer is freed */
  uint64_t access;  /* BELAY_ACCESS_... of kernels; 0: both */
  /* Not NULL: no new memory, the bytes from `within_offset` on of this buffer of the device (needs
   * BELAY_DEVICE_SUBDIVIDES), which is freed later. Set by the host alone. */
  belay_obj* within;
  uint64_t within_offset;
} belay_alloc_req;

typedef struct belay_stream_req {
  belay_hdr hdr;        /* flags: BELAY_STREAM_... */
  uint64_t timeline;    /* id that the host gives to the stream's timeline */
  int64_t priority;     /* higher first, -8 to 7; looked at between operations, with ageing */
  uint64_t queue_depth; /* 0: the device's */
} belay_stream_req;
#define BELAY_STREAM_CONTINUE_ON_FAILURE 1u
#define BELAY_STREAM_WANTS_ACCESSES 2u /* a layer needs the access lists */

typedef struct belay_health {
  belay_hdr hdr;
  uint64_t state;      /* 0: works; 1: lost (sticky until reset) */
  belay_sink reason;   /* set by the host */
} belay_health;

typedef struct belay_device_vt belay_device_vt;
typedef struct belay_stream_vt belay_stream_vt;

typedef struct belay_driver_vt {
  belay_hdr hdr; /* since 0.1 unless noted */
  /* How many devices there are. [any] r */
  uint64_t (*device_count)(belay_obj*) BELAY_NOEXCEPT;
  /* The properties of a device without opening it. Errors: OUT_OF_RANGE. [any] r */
  belay_status (*device_info)(belay_obj*, uint64_t index, belay_device_info* inout) BELAY_NOEXCEPT;
  /* Gives a device (belay_device_vt); each may be opened once at a time. Errors: OUT_OF_RANGE, ALREADY_EXISTS,
   * UNAVAILABLE. [serial] r */
  belay_status (*open_device)(belay_obj*, uint64_t index, belay_created* out) BELAY_NOEXCEPT;
  /* All devices were destroyed before. [serial] r */
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT;
} belay_driver_vt;

struct belay_device_vt {
  belay_hdr hdr;
  belay_status (*info)(belay_obj*, belay_device_info* inout) BELAY_NOEXCEPT;                  /* [any] r */
  /* Errors: OUT_OF_RANGE. [any] r */
  belay_status (*heap)(belay_obj*, uint64_t index, belay_heap_info* inout) BELAY_NOEXCEPT;
  /* Gives out->impl: the buffer (out->table stays NULL: a buffer has no slots). Contents are undefined. Errors:
   * RESOURCE_EXHAUSTED (the message says how much was asked, in use and there), INVALID_ARGUMENT. [any] r */
  belay_status (*alloc)(belay_obj*, const belay_alloc_req*, belay_created* out) BELAY_NOEXCEPT;
  /* No queued operation uses the buffer any more. Cannot fail. [any] r */
  void (*free)(belay_obj*, belay_obj* buffer) BELAY_NOEXCEPT;
  /* The host address of a buffer, the same each time, valid until it is freed. Null slot: the device's memory cannot
   * be seen by the host. [any] o */
  belay_status (*map)(belay_obj*, belay_obj* buffer, void** out) BELAY_NOEXCEPT;
  /* Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT. [any] r */
  belay_status (*stream_create)(belay_obj*, const belay_stream_req*, belay_created* out) BELAY_NOEXCEPT;
  /* A timeline without a stream, advanced by the host: how the host joins waits between drivers. `value` only grows;
   * `failure` other than 0 fails what waits; the status stays the caller's, its text is taken. timeline_signal on an
   * unknown id makes it. Null slots: the host blocks a thread instead. [any] o */
  belay_status (*timeline_signal)(belay_obj*, uint64_t timeline, uint64_t value, belay_status failure) BELAY_NOEXCEPT;
  void (*timeline_destroy)(belay_obj*, uint64_t timeline) BELAY_NOEXCEPT;
  belay_status (*health)(belay_obj*, belay_health* inout) BELAY_NOEXCEPT; /* [any] r */
  /* Waits for the queued work (it fails where the device is lost), then works again. [serial] o */
  belay_status (*reset)(belay_obj*) BELAY_NOEXCEPT;
  /* An optional interface by id, or NULL. [pure] r */
  const void* (*extension)(belay_obj*, belay_str id) BELAY_NOEXCEPT;
  /* Streams, buffers and programs were destroyed before. [serial] r */
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT;
};

/* ---- streams ------------------------------------------------------------------------------------------------------- */
typedef struct belay_copy_req {
  belay_hdr hdr;
  belay_obj* dst; /* buffers of this device, alive until the copy's event; NULL: `host_dst` */
  belay_obj* src; /* NULL: `host_src` */
  void* host_dst;
  const void* host_src;
  uint64_t dst_offset, src_offset;
  uint64_t bytes;                      /* 0 is allowed and still takes its place in the order */
  const belay_access* const* accesses; /* pointers, so that belay_access may grow; NULL when none */
  uint64_t access_count;               /* may be 0 unless the stream has WANTS_ACCESSES */
} belay_copy_req;

typedef struct belay_fill_req {
  belay_hdr hdr;
  belay_obj* dst;
  uint64_t dst_offset, bytes;
  uint64_t pattern;       /* its low pattern_bytes are repeated */
  uint64_t pattern_bytes; /* 1, 2, 4 or 8; divides `bytes` */
} belay_fill_req;

typedef struct belay_launch_req {
  belay_hdr hdr;
  const belay_kernel* kernel; /* alive until the launch's event */
  const uint64_t* args;       /* resolved argument words, copied by the slot; host addresses on this device */
  uint64_t arg_count;
  const belay_access* const* accesses;
  uint64_t access_count;
  /* For a kernel with BELAY_KERNEL_WRITES_SHAPE, which calls it through exec->output, on the thread that runs the
   * kernel, before the launch's event: gives the memory for output `index`, dense, of these dims; NULL when there is
   * none. `dims` is borrowed for the call. NULL for other kernels. */
  void* (*output)(void* output_user, uint64_t index, const int64_t* dims, uint32_t rank) BELAY_NOEXCEPT;
  void* output_user;
} belay_launch_req;

/* Every slot that queues gives the operation's value in *out_value, never blocks and never runs queued work. Errors of
 * all of them: QUEUE_FULL (nothing was queued), DEVICE_LOST, FAILED_PRECONDITION (after fork; names the process). */
struct belay_stream_vt {
  belay_hdr hdr;
  /* Errors: INVALID_ARGUMENT (the ranges overlap), OUT_OF_RANGE (past a buffer's end). [serial] r */
  belay_status (*copy)(belay_obj*, const belay_copy_req*, uint64_t* out_value) BELAY_NOEXCEPT;
  belay_status (*fill)(belay_obj*, const belay_fill_req*, uint64_t* out_value) BELAY_NOEXCEPT; /* [serial] r */
  belay_status (*launch)(belay_obj*, const belay_launch_req*, uint64_t* out_value) BELAY_NOEXCEPT; /* [serial] o */
  /* What is queued later starts after `event`; a failure of its timeline passes to this one, with its origin.
   * Errors: NOT_FOUND (no timeline of this device: the host joins waits between drivers). [serial] r */
  belay_status (*wait)(belay_obj*, belay_event event, uint64_t* out_value) BELAY_NOEXCEPT;
  /* Runs fn(user) on a worker, in order. It may call the host, but not wait for this stream. [serial] r */
  belay_status (*host_call)(belay_obj*, void (*fn)(void* user), void* user, uint64_t* out_value) BELAY_NOEXCEPT;
  /* Wakes a worker for what is queued. Null: the driver starts work at once by itself. [any] o */
  belay_status (*flush)(belay_obj*) BELAY_NOEXCEPT;
  /* OK: `value` is reached; UNAVAILABLE: not yet (and a worker has been woken); or the failure. [any] r */
  belay_status (*query)(belay_obj*, uint64_t value) BELAY_NOEXCEPT;
  /* Returns when `value` is reached, after `timeout_ns` at most; meanwhile the calling thread may run queued
   * operations. Errors: DEADLINE_EXCEEDED (the work goes on: call again), FAILED_PRECONDITION (the stream would wait
   * for itself), or the failure. [any] r */
  belay_status (*synchronize)(belay_obj*, uint64_t value, uint64_t timeout_ns) BELAY_NOEXCEPT;
  /* Calls the completion when `value` is reached or fails; at once if it is already. Wakes a worker. [any] r */
  belay_status (*on_reached)(belay_obj*, uint64_t value, belay_completion) BELAY_NOEXCEPT;
  /* The last value queued. [any] r */
  uint64_t (*last_value)(belay_obj*) BELAY_NOEXCEPT;
  /* Ends a failure: values queued from now on are good again. Waits for what is queued. [serial] r */
  belay_status (*recover)(belay_obj*) BELAY_NOEXCEPT;
  /* Finishes the queued work, then frees impl. Cannot fail; makes no call to the host. [serial] r */
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT;
};

/* ---- extension belay.driver.program/1: recorded work ----------------------------------------------------------------- */
#define BELAY_DRIVER_PROGRAM "belay.driver.program/1"

typedef struct belay_node { /* one operation of a program */
  belay_hdr hdr;
  const belay_kernel* kernel; /* alive as long as the program; NULL: does nothing but keep order */
  const belay_arg* args;
  uint64_t arg_count;
  belay_str name; /* for traces and errors: the source node's name; copied */
} belay_node;

typedef struct belay_program_req {
  belay_hdr hdr;
  const belay_node* const* nodes; /* run in this order where `dependencies` is NULL */
  uint64_t node_count;
  const uint32_t* dependencies; /* pairs (before, after) with before < after; nodes without a path between them may run
                                 * at once. NULL: each after the one before */
  uint64_t dependency_count;    /* pairs */
  uint64_t binding_count;
} belay_program_req;

typedef struct belay_binding { /* a buffer (or host memory, on a HOST_VISIBLE device) for one launch */
  belay_obj* buffer;           /* NULL: `host` */
  void* host;
  uint64_t offset; /* of binding-relative offset 0 */
  uint64_t bytes;  /* from there on */
} belay_binding;
BELAY_STATIC_ASSERT(sizeof(belay_binding) == 32, "no padding");

typedef struct belay_driver_program_vt {
  belay_hdr hdr;
  /* Copies what it needs but the kernels. The program is immutable: launches may overlap. Errors: INVALID_ARGUMENT
   * names the node and the argument. [any] r */
  belay_status (*create)(belay_obj* device, const belay_program_req*, belay_created* out) BELAY_NOEXCEPT;
  /* Queues all nodes as one operation. Bindings are copied; each must cover what the arguments use (checked). Errors:
   * those of a stream's slots, OUT_OF_RANGE. [serial on the stream] r */
  belay_status (*launch)(belay_obj* program, belay_obj* stream, const belay_binding* bindings, uint64_t count,
                         uint64_t* out_value) BELAY_NOEXCEPT;
  /* From now on what is queued on the stream is recorded, not run; addresses in it are fixed. [serial] r */
  belay_status (*capture_begin)(belay_obj* stream) BELAY_NOEXCEPT;
  /* Ends recording; the result is a program without bindings. Errors: FAILED_PRECONDITION (not capturing). [serial] r */
  belay_status (*capture_end)(belay_obj* stream, belay_created* out) BELAY_NOEXCEPT;
  /* No launch of it is queued any more. [any] r */
  void (*destroy)(belay_obj* program) BELAY_NOEXCEPT;
} belay_driver_program_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_DRIVER_H */
