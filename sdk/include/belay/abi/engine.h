/* belay/abi/engine.h: kind belay.engine/1: a frozen graph to an executable, and its runs. */
#ifndef BELAY_ABI_ENGINE_H
#define BELAY_ABI_ENGINE_H

#include <belay/abi/base.h>
#include <belay/abi/driver.h>
#include <belay/abi/graph.h>
#include <belay/abi/tensor.h>
#include <belay/abi/value.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_ENGINE_KIND "belay.engine/1"

#define BELAY_OBJ_CONTEXT 14u /* continues the kinds of objects of base.h */

typedef struct belay_load_req {
  belay_hdr hdr;
  belay_span image;            /* a frozen graph, verified by the host; borrowed */
  const belay_span* sources;   /* bytes of the image's sources, in order; stay valid and unchanged until the executable is
                                * destroyed */
  uint64_t source_count;
  belay_obj* device;           /* of the HAL */
  const belay_value* options;  /* the table [engine] of the configuration */
  belay_str name;              /* for messages and traces: the file's name */
} belay_load_req;

typedef struct belay_executable_stats {
  belay_hdr hdr;
  uint64_t nodes;             /* of the source graph, subgraphs included */
  uint64_t kernels;           /* launched by one run of the latest plan */
  uint64_t fallback_kernels;  /* of these: not on the model's device */
  uint64_t plans, plan_hits, plan_misses;
  uint64_t contexts;
  uint64_t arena_bytes;       /* activations of the latest plan: what was placed */
  uint64_t live_bytes;        /* activations of the latest plan: the maximum alive at one step */
  uint64_t weight_bytes;      /* constants in all */
  uint64_t borrowed_bytes;    /* of these: used where they lie in the file */
  uint64_t copied_bytes;      /* of these: copied once for alignment or a device */
  uint64_t packed_bytes;      /* in kernels' own layouts */
  uint64_t create_ns, runs;
  uint64_t input_bytes_copied, output_bytes_copied; /* over all runs */
  uint64_t input_bytes_shared, output_bytes_shared; /* the same, of what was used where it lies; see belay_io_memory */
} belay_executable_stats;

typedef struct belay_io_memory { /* of one input or output in a run */
  belay_hdr hdr;
  uint64_t shared_bytes; /* that caller and kernels have in the same memory: lent, or, of an output without memory of the
                          * caller's, the context's that the caller reads */
  uint64_t copied_bytes; /* that were copied between the two */
  belay_str reason;      /* why there were copies, as what follows "because"; empty: there were none. Until the next call
                          * on the context */
} belay_io_memory;

typedef struct belay_io_info { /* of one input or output; strings and arrays live as long as the executable */
  belay_hdr hdr;
  belay_str name;
  uint32_t kind;  /* BELAY_TYPE_... */
  uint32_t dtype; /* of a tensor, or of the tensors in a sequence or optional */
  uint32_t rank;  /* BELAY_NONE: not known */
  uint32_t optional; /* 1: an input with a default value */
  const int64_t* dims;     /* [rank], -1: not fixed */
  const belay_str* symbols; /* [rank], empty: none */
} belay_io_info;

typedef struct belay_executable_vt belay_executable_vt;
typedef struct belay_context_vt belay_context_vt;

typedef struct belay_engine_vt {
  belay_hdr hdr;
  /* Makes an executable (belay_executable_vt). Where all input shapes are known the plan is made now; else at the first
   * run. Errors: UNIMPLEMENTED (an operator that no provider claims: names node, operator, domain, version, types),
   * INVALID_ARGUMENT (names the node and what is against the standard), RESOURCE_EXHAUSTED, DEVICE_LOST. [any] r */
  belay_status (*load)(belay_obj*, const belay_load_req*, belay_created* out) BELAY_NOEXCEPT;
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT; /* [serial] r */
} belay_engine_vt;

/* Immutable but for its caches; every slot is [any]. */
struct belay_executable_vt {
  belay_hdr hdr;
  uint64_t (*input_count)(belay_obj*) BELAY_NOEXCEPT;
  uint64_t (*output_count)(belay_obj*) BELAY_NOEXCEPT;
  belay_status (*input_info)(belay_obj*, uint64_t index, belay_io_info* inout) BELAY_NOEXCEPT;
  belay_status (*output_info)(belay_obj*, uint64_t index, belay_io_info* inout) BELAY_NOEXCEPT;
  /* An execution context (belay_context_vt) from a pool of at most `max_contexts`; beyond it the caller gets
   * RESOURCE_EXHAUSTED, or waits where the options say so. */
  belay_status (*context)(belay_obj*, belay_created* out) BELAY_NOEXCEPT;
  belay_status (*stats)(belay_obj*, belay_executable_stats* inout) BELAY_NOEXCEPT;
  /* JSON: passes, kernels with implementation and reason, fallbacks, memory. */
  belay_status (*describe)(belay_obj*, belay_sink) BELAY_NOEXCEPT;
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT; /* all contexts are destroyed. [serial] */
};

/* One run at a time: the slots are [serial]. */
struct belay_context_vt {
  belay_hdr hdr;
  /* Lends the data to the context: it stays alive and in place until another datum is set or the context is destroyed, but
   * for a run that is queued or goes on, which has it until its end. Each run reads what is there then. NULL: back to the
   * default. Dense memory that is aligned for its element type and that the device addresses is used where it lies, unless
   * a memory policy says otherwise; other memory is copied once in each run (see input_memory). Errors: INVALID_ARGUMENT
   * (names the input, what came and what is expected), OUT_OF_RANGE. r */
  belay_status (*set_input)(belay_obj*, uint64_t index, const belay_datum*) BELAY_NOEXCEPT;
  /* Where output `index` shall be written; its type and dims must be those of the result. Lent as in set_input, and
   * written by every run; kernels write there themselves where they can, else the result is copied once. NULL: the
   * context's own memory. r */
  belay_status (*set_output)(belay_obj*, uint64_t index, const belay_tensor*) BELAY_NOEXCEPT;
  /* Runs to the end. Errors: FAILED_PRECONDITION (an input was not set: names it), INVALID_ARGUMENT (shapes do not fit:
   * names node and shapes), the failure of a kernel with its node. r */
  belay_status (*run)(belay_obj*) BELAY_NOEXCEPT;
  /* Starts a run; the completion is called on a thread of the device or the executor. Until then no other slot may be
   * called. Gives DEFERRED, or an error without a completion. r */
  belay_status (*run_async)(belay_obj*, belay_completion) BELAY_NOEXCEPT;
  /* The result of the last run, valid until the next run or destroy. Where the host sees the memory it is given as `data`,
   * also of an output that set_output gave a buffer for. r */
  belay_status (*output)(belay_obj*, uint64_t index, const belay_datum** out) BELAY_NOEXCEPT;
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT; /* gives the context back to the pool. r */
  /* Queues a run on `stream`, of the executable's device, and returns: it takes its turn there, and a failure is the
   * stream's. Inputs are read and results written when its turn comes, until *out, so their memory stays until then;
   * every slot may be called before it (one that cannot do its work meanwhile waits for it), and a run queued on another
   * stream waits for the one before. Errors: those of run that are known before it; UNIMPLEMENTED (the plan needs the
   * host between its kernels, or something is no tensor of numbers in memory that the host sees: says what; nothing was
   * queued). o */
  belay_status (*enqueue)(belay_obj*, belay_obj* stream, belay_event* out) BELAY_NOEXCEPT;
  /* What the last run (or, of one that is queued, that run) shared and copied of an input or output. Errors:
   * OUT_OF_RANGE. o */
  belay_status (*input_memory)(belay_obj*, uint64_t index, belay_io_memory* inout) BELAY_NOEXCEPT;
  belay_status (*output_memory)(belay_obj*, uint64_t index, belay_io_memory* inout) BELAY_NOEXCEPT;
};

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_ENGINE_H */
