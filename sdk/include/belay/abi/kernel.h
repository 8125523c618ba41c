/* belay/abi/kernel.h: what a device runs: a function with arguments, and what it finds around it while it runs. */
#ifndef BELAY_ABI_KERNEL_H
#define BELAY_ABI_KERNEL_H

#include <belay/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The surroundings of a running kernel, filled by whoever runs it (the driver). Valid during the call. */
typedef struct belay_exec belay_exec;
struct belay_exec {
  belay_hdr hdr;
  void* user;       /* of the driver */
  uint32_t threads; /* threads that parallel_for may use, the calling one included; >= 1 */
  uint32_t stream;  /* for traces */

  /* Runs body(arg, i) for each i in [0, count), on this thread and on idle workers of the device; returns when all
   * are done. May be nested (runs serially then). The calling thread can always finish alone. [any] r */
  void (*parallel_for)(const belay_exec*, uint64_t count, void (*body)(void* arg, uint64_t index), void* arg)
      BELAY_NOEXCEPT;

  /* Scratch memory of this thread for the duration of the kernel, at least 64-byte aligned; NULL: none left. Do not
   * use it for what is known at prepare: ask for workspace there. [any] r */
  void* (*scratch)(const belay_exec*, uint64_t bytes) BELAY_NOEXCEPT;

  /* For kernels with BELAY_KERNEL_WRITES_SHAPE only: sets the dims of output `index` and gives its memory, dense, for
   * the element type fixed at prepare. Once for each wanted output. NULL: none left. [serial] o */
  void* (*output)(const belay_exec*, uint64_t index, const int64_t* dims, uint32_t rank) BELAY_NOEXCEPT;

  /* Makes a status that carries a sentence. [any] r */
  belay_status (*fail)(const belay_exec*, uint32_t code, belay_str message) BELAY_NOEXCEPT;

  const uint32_t* cancelled; /* becomes non-zero when nobody wants the result; long kernels look now and then */
};

/* `args`: one word for each argument in the order agreed at prepare: the address of a buffer's first byte (host-
 * visible on this device; NULL for an absent optional operand), a scalar's 8 bytes, or the address of copied bytes. */
typedef belay_status (*belay_kernel_fn)(const belay_exec* exec, const void* state, const uint64_t* args) BELAY_NOEXCEPT;

#define BELAY_KERNEL_BLOCKING 1u     /* may wait for something outside: runs on workers only */
#define BELAY_KERNEL_USER 2u         /* foreign code (a callback): runs on workers only */
#define BELAY_KERNEL_WRITES_SHAPE 4u /* calls exec->output for its outputs; their argument words are NULL */

/* Immutable; may run on many threads at once with different arguments. */
typedef struct belay_kernel {
  belay_hdr hdr; /* flags: BELAY_KERNEL_... */
  belay_kernel_fn fn;
  const void* state;
  uint64_t cost_ns; /* estimate; 0: not known */
  belay_str name;   /* for traces and errors; lives as long as the kernel */
} belay_kernel;

#define BELAY_ACCESS_READ 1u
#define BELAY_ACCESS_WRITE 2u

/* A range that an operation touches. */
typedef struct belay_access {
  belay_hdr hdr;
  belay_obj* buffer;
  uint64_t offset, bytes;
  uint64_t mode; /* BELAY_ACCESS_... */
} belay_access;

#define BELAY_ARG_BUFFER 1u
#define BELAY_ARG_SCALAR 2u
#define BELAY_ARG_BYTES 3u

/* One argument of a node of a program. An array of these crosses with the stride of its request. */
typedef struct belay_arg {
  uint32_t kind;    /* BELAY_ARG_... */
  uint32_t binding; /* BUFFER: index into the bindings of the launch; BELAY_NO_BINDING: NULL */
  uint64_t value;   /* BUFFER: offset; SCALAR: the word; BYTES: address of `bytes` bytes, copied by the callee */
  uint64_t bytes;   /* BUFFER, BYTES: length */
  uint32_t access;  /* BUFFER: BELAY_ACCESS_... */
  uint32_t reserved;
} belay_arg;
#define BELAY_NO_BINDING 0xffffffffu

BELAY_STATIC_ASSERT(sizeof(belay_arg) == 32, "no padding");

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_KERNEL_H */
