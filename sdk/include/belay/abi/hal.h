/* belay/abi/hal.h: service belay.host.hal/1: devices as a plugin sees them (the engine above all), checked:
 * wrong handles, sizes and order of calls are errors here and never reach a driver. Every handle is a
 * belay_obj made by the host; using a destroyed one gives NOT_FOUND as long as its memory has not been
 * reused. Structs may be those of an older header: a request goes at least to the last field that must be
 * said, an answer has at least its header and gets what it knows. All slots are [any] unless noted; slots
 * that queue take a lock of the stream unless it has SINGLE_PRODUCER. */
#ifndef BELAY_ABI_HAL_H
#define BELAY_ABI_HAL_H

#include <belay/abi/base.h>
#include <belay/abi/driver.h>
#include <belay/abi/host.h>
#include <belay/abi/memory_policy.h>
#include <belay/abi/native_model.h>
#include <belay/abi/tensor.h>
#include <belay/abi/virtual_memory.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_HOST_HAL "belay.host.hal/1"

#define BELAY_HAL_STREAM_CONTINUE_ON_FAILURE 1u
#define BELAY_HAL_STREAM_SINGLE_PRODUCER 2u /* the caller promises never to queue from two threads at once */
#define BELAY_HAL_STREAM_BLOCK 4u           /* a full queue blocks the caller (it helps) instead of QUEUE_FULL */

typedef struct belay_hal_stream_req {
  belay_hdr hdr; /* flags: BELAY_HAL_STREAM_... */
  int64_t priority;
  uint64_t queue_depth; /* 0: the device's */
} belay_hal_stream_req;

typedef struct belay_hal_buffer_info {
  belay_hdr hdr;
  belay_obj* device;
  uint64_t bytes;
  void* host; /* address of the bytes where the host sees them, else NULL */
  uint64_t mapped_bytes; /* that have memory: all of them, but for a reserved buffer */
  uint64_t granularity;  /* of a reserved buffer: what map and unmap take are multiples of it; else 0 */
} belay_hal_buffer_info;

typedef struct belay_hal_memory_info { /* of one device; the slot fills */
  belay_hdr hdr;
  uint64_t bytes, peak_bytes; /* taken of the device, now and at most: buffers with memory of their own, segments */
  uint64_t buffers;           /* now, those over lent host memory included */
  uint64_t allocations;       /* since the device was opened */
  uint64_t limit;             /* [memory] limit; 0: none */
  belay_sink usage;           /* set by the caller: who has what, for people; may be empty */
  uint64_t damaged;           /* with [memory] checked: destroyed buffers beside which something was written */
} belay_hal_memory_info;

/* Slots that queue fill *out (may be NULL) with the operation's event. A failed operation is seen by whoever waits for
 * its event or a later one of the stream; `recover` ends that. What a full queue means says [runtime] queue_full: the
 * call helps or blocks until there is room, or gives QUEUE_FULL ("report"); BELAY_HAL_STREAM_BLOCK always makes room. */
typedef struct belay_hal_vt {
  belay_hdr hdr;
  uint64_t (*device_count)(const belay_host*) BELAY_NOEXCEPT;
  /* A device, opened at the first call; owned by the host. Errors: OUT_OF_RANGE, UNAVAILABLE. */
  belay_status (*device)(const belay_host*, uint64_t index, belay_obj** out) BELAY_NOEXCEPT;
  belay_status (*device_info)(const belay_host*, belay_obj* device, belay_device_info* inout) BELAY_NOEXCEPT;
  belay_status (*heap_info)(const belay_host*, belay_obj* device, uint64_t heap, belay_heap_info* inout) BELAY_NOEXCEPT;

  /* On a device that takes host addresses as buffers, memory comes from the policies of class PLACE in [memory] policies,
   * in their order, and from the driver where all decline. Memory that is lent (`req->host`) is asked of those of class
   * BIND: where one says to copy, a buffer of access READ holds a copy made now, and any other gives FAILED_PRECONDITION
   * with the reason. Errors: RESOURCE_EXHAUSTED (says who has what), INVALID_ARGUMENT, INTERNAL (a wrong place: names the
   * policy). */
  belay_status (*buffer_create)(const belay_host*, belay_obj* device, const belay_alloc_req*, belay_obj** out)
      BELAY_NOEXCEPT;
  belay_status (*buffer_info)(const belay_host*, belay_obj* buffer, belay_hal_buffer_info* inout) BELAY_NOEXCEPT;
  /* Whoever made the buffer keeps it, and the memory it lent to it, until what is queued and uses it has ended and no
   * context has a tensor in it as an input or output. With [memory] checked = true breaking this is an error that names the
   * buffer and who uses it, told by belay_last_error and in the log: the call waits for the queued work, and contexts
   * refuse to run until they are given other memory. NULL is ignored; a handle that is none is logged. */
  void (*buffer_destroy)(const belay_host*, belay_obj* buffer) BELAY_NOEXCEPT;

  belay_status (*stream_create)(const belay_host*, belay_obj* device, const belay_hal_stream_req*, belay_obj** out)
      BELAY_NOEXCEPT;
  void (*stream_destroy)(const belay_host*, belay_obj* stream) BELAY_NOEXCEPT; /* finishes the queued work */
  /* Buffers may be of other devices of this host where the host sees their bytes; ranges are checked. */
  belay_status (*copy)(const belay_host*, belay_obj* stream, const belay_copy_req*, belay_event* out) BELAY_NOEXCEPT;
  belay_status (*fill)(const belay_host*, belay_obj* stream, const belay_fill_req*, belay_event* out) BELAY_NOEXCEPT;
  belay_status (*launch)(const belay_host*, belay_obj* stream, const belay_launch_req*, belay_event* out) BELAY_NOEXCEPT;
  /* `event` may belong to any device of this host. The events of a destroyed stream are reached: its work was finished.
   * Errors: NOT_FOUND (a timeline that was never made), OUT_OF_RANGE (of another device, and not queued yet). */
  belay_status (*wait)(const belay_host*, belay_obj* stream, belay_event event) BELAY_NOEXCEPT;
  belay_status (*host_call)(const belay_host*, belay_obj* stream, void (*fn)(void* user), void* user, belay_event* out)
      BELAY_NOEXCEPT;
  belay_status (*flush)(const belay_host*, belay_obj* stream) BELAY_NOEXCEPT;
  belay_status (*query)(const belay_host*, belay_event) BELAY_NOEXCEPT; /* UNAVAILABLE: not yet */
  /* query, synchronize and on_reached give NOT_FOUND for a timeline that was never made, OUT_OF_RANGE for a value that
   * is not queued yet: nobody waits for ever. */
  /* The event of all that is queued so far. */
  belay_status (*record)(const belay_host*, belay_obj* stream, belay_event* out) BELAY_NOEXCEPT;
  belay_status (*synchronize)(const belay_host*, belay_event, uint64_t timeout_ns) BELAY_NOEXCEPT;
  belay_status (*on_reached)(const belay_host*, belay_event, belay_completion) BELAY_NOEXCEPT;
  belay_status (*recover)(const belay_host*, belay_obj* stream) BELAY_NOEXCEPT;

  /* Works on every driver: where one has no programs, the nodes are launched one by one. */
  belay_status (*program_create)(const belay_host*, belay_obj* device, const belay_program_req*, belay_obj** out)
      BELAY_NOEXCEPT;
  belay_status (*program_launch)(const belay_host*, belay_obj* program, belay_obj* stream, const belay_binding* bindings,
                                 uint64_t count, belay_event* out) BELAY_NOEXCEPT;
  void (*program_destroy)(const belay_host*, belay_obj* program) BELAY_NOEXCEPT;
  /* From now on what is queued on the stream is recorded, not run: its events are reached at once, its memory is that of
   * every launch. A stream records alone: a wait for an event of another stream that is not reached yet gives
   * FAILED_PRECONDITION, because a replay could not tell the event of that time from one of its own; let the stream that
   * launches the program wait. Errors: FAILED_PRECONDITION (it records already). */
  belay_status (*capture_begin)(const belay_host*, belay_obj* stream) BELAY_NOEXCEPT;
  /* Gives what was recorded, as a program without bindings. Errors: FAILED_PRECONDITION (nothing is recorded). */
  belay_status (*capture_end)(const belay_host*, belay_obj* stream, belay_obj** out_program) BELAY_NOEXCEPT;

  /* Asks the configured policies in their order; the answer is checked (no two buffers that live at once overlap,
   * alignment, bounds): a wrong one is INTERNAL and names policy and buffers. Without a policy of class PLAN every
   * buffer gets a place of its own. */
  belay_status (*plan)(const belay_host*, const belay_plan_req*, belay_plan_result*) BELAY_NOEXCEPT;

  belay_status (*memory_info)(const belay_host*, belay_obj* device, belay_hal_memory_info* inout) BELAY_NOEXCEPT;
  /* The buffer that holds the byte at a host address, and where in it in bytes: of buffers over lent memory that overlap
   * there, the one that begins last; a buffer with memory of its own goes before those. Takes no lock and never waits,
   * whatever other threads create and destroy meanwhile; the caller keeps the buffer it asks for from being destroyed
   * until it is done with the answer. Errors: NOT_FOUND (a bare code), INVALID_ARGUMENT (nowhere to put the answer). */
  belay_status (*find)(const belay_host*, const void* address, belay_obj** out_buffer, uint64_t* out_offset)
      BELAY_NOEXCEPT;
  /* How many operations of the stream have not ended yet, at some moment during the call; those that failed, or did not run
   * for a failure before them, have ended. It asks the driver a few times, so it is for watching, not for waiting. */
  belay_status (*pending)(const belay_host*, belay_obj* stream, uint64_t* out_operations) BELAY_NOEXCEPT;
  belay_status (*health)(const belay_host*, belay_obj* device, belay_health* inout) BELAY_NOEXCEPT;
  /* Errors: UNIMPLEMENTED (the driver cannot). No other call on the device meanwhile. */
  belay_status (*reset)(const belay_host*, belay_obj* device) BELAY_NOEXCEPT;

  /* A buffer of addresses without memory, `req->bytes` rounded up to the granularity (see buffer_info; req->host is NULL).
   * Memory comes with map and counts against [memory] limit from then on; operations and runs may use mapped bytes only,
   * which is checked when they are queued, for host addresses too (but not for those in the words of a launch); `find`
   * knows all of its addresses. buffer_destroy ends it and what is mapped. Errors: UNIMPLEMENTED (the device has no virtual
   * memory: names it), INVALID_ARGUMENT (0 bytes, a bad alignment), RESOURCE_EXHAUSTED. */
  belay_status (*reserve)(const belay_host*, belay_obj* device, const belay_alloc_req*, belay_obj** out) BELAY_NOEXCEPT;
  /* Puts memory, all 0, behind bytes [offset, offset + bytes) of a reserved buffer. Errors: FAILED_PRECONDITION (not
   * reserved; some of it is mapped already: says where), INVALID_ARGUMENT (0 bytes, no multiples of the granularity),
   * OUT_OF_RANGE, RESOURCE_EXHAUSTED (nothing was mapped). */
  belay_status (*map)(const belay_host*, belay_obj* buffer, uint64_t offset, uint64_t bytes) BELAY_NOEXCEPT;
  /* Takes it away; what is queued and uses it must have ended. Errors: as of map (some of it is not mapped). */
  belay_status (*unmap)(const belay_host*, belay_obj* buffer, uint64_t offset, uint64_t bytes) BELAY_NOEXCEPT;

  /* A model that was compiled for the device, see native_model.h. Errors: UNIMPLEMENTED (the device takes no packages, or
   * none of this kind: names both), INVALID_ARGUMENT, and what the driver says. */
  belay_status (*package_load)(const belay_host*, belay_obj* device, const belay_package_req*, belay_obj** out)
      BELAY_NOEXCEPT;
  belay_status (*package_info)(const belay_host*, belay_obj* package, belay_package_info* inout) BELAY_NOEXCEPT;
  /* Errors: OUT_OF_RANGE. */
  belay_status (*package_input_info)(const belay_host*, belay_obj* package, uint64_t index, belay_io_info* inout)
      BELAY_NOEXCEPT;
  belay_status (*package_output_info)(const belay_host*, belay_obj* package, uint64_t index, belay_io_info* inout)
      BELAY_NOEXCEPT;
  /* Queues a run on a stream of the package's device. Bindings: one for each input, then one for each output; checked to
   * be inside their buffers. Errors: INVALID_ARGUMENT (their number, their device), OUT_OF_RANGE, FAILED_PRECONDITION (the
   * stream is capturing), those of the driver. */
  belay_status (*package_launch)(const belay_host*, belay_obj* package, belay_obj* stream, const belay_binding* bindings,
                                 uint64_t count, belay_event* out) BELAY_NOEXCEPT;
  /* What is queued of it must have ended. NULL is ignored. */
  void (*package_destroy)(const belay_host*, belay_obj* package) BELAY_NOEXCEPT;

  /* Whether host memory can be used by the device where it lies (`device_flags` is filled in here): the policies of class
   * BIND in [memory] policies are asked in their order; what the device does not address, or what is not aligned as its
   * user wants, is a copy whatever they say, with the reason. Nothing is bound: the caller gives the address to what it
   * launches, and keeps the memory until that has ended. Errors: INVALID_ARGUMENT, those of the policies. */
  belay_status (*bind)(const belay_host*, belay_obj* device, const belay_bind_req*, belay_bound* inout) BELAY_NOEXCEPT;
  /* As belay_tensor_copy of runtime.h: queues a copy of all elements between tensors of one type and dims, each with its
   * own strides and any alignment. */
  belay_status (*tensor_copy)(const belay_host*, belay_obj* stream, const belay_tensor* to, const belay_tensor* from,
                              belay_event* out) BELAY_NOEXCEPT;
  /* ---- memory in the order of streams ----
   * As buffer_create, for a buffer that operations of `stream` use first: where its memory may still be used by what was
   * queued elsewhere the stream waits for that, not the caller. Other streams wait for an event of this one first, as for
   * any data. Errors: those of buffer_create and of the stream; FAILED_PRECONDITION (it is capturing). */
  belay_status (*buffer_create_on)(const belay_host*, belay_obj* stream, const belay_alloc_req*, belay_obj** out)
      BELAY_NOEXCEPT;
  /* As buffer_destroy, while queued work still uses it: the handle ends now, nobody waits, and others get the memory when
   * all events are reached, on the stream of the only one at once. An event is of any stream of this host; of timeline 0
   * is none. With an error nothing is changed. Errors: those of query, RESOURCE_EXHAUSTED; with [memory] checked = true
   * FAILED_PRECONDITION: queued work uses the buffer and may go on when they are reached, by the order in streams and by
   * their waits for one another (names it). */
  belay_status (*buffer_destroy_after)(const belay_host*, belay_obj* buffer, const belay_event* uses, uint64_t count)
      BELAY_NOEXCEPT;
} belay_hal_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_HAL_H */
