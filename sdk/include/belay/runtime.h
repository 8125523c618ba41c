/* belay/runtime.h: the hosting API in C: a runtime made from a configuration, its devices, models and runs. C++ is in
 * belay/runtime.hpp, header-only over this. Exported by libbelay.so.
 *
 * Two runtimes with different configurations can live in one process. Every function may be called from any thread; a
 * context is for one thread at a time. Functions that can fail return a status; its text stays readable until it is
 * released, also after the runtime is gone. After fork without exec every call on an object made before the fork gives
 * FAILED_PRECONDITION in the child, and destroy does nothing; a runtime made in the child works. */
#ifndef BELAY_RUNTIME_H
#define BELAY_RUNTIME_H

#include <belay/abi/base.h>
#include <belay/abi/diagnostics.h>
#include <belay/abi/driver.h>
#include <belay/abi/engine.h>
#include <belay/abi/hal.h>
#include <belay/abi/host.h>
#include <belay/abi/memory_policy.h>
#include <belay/abi/tensor.h>

struct DLManagedTensor; /* of dlpack/dlpack.h, which who includes this need not have */

#define BELAY_API BELAY_EXTERN_C __attribute__((visibility("default")))

typedef struct belay_runtime belay_runtime;
typedef struct belay_model belay_model;
typedef struct belay_context belay_context;

/* ---- statuses and versions ---------------------------------------------------------------------------------------------- */
BELAY_API belay_str belay_version(void); /* "0.1.0" */
BELAY_API void belay_status_text(belay_status, belay_sink);
BELAY_API void belay_status_release(belay_status);
/* The last failure on the calling thread of a function of this header or of a slot of belay_runtime_hal's table, whatever
 * its runtime; OK: none since it was last asked for. As with errno a success leaves it, the next failure replaces it.
 * It is given once, and its text with it, though the status that the call returned be released: the caller releases this
 * one. Functions that return no status tell their failure here alone. DEFERRED and answers (UNAVAILABLE of query,
 * NOT_FOUND of find) are no failures; what a plugin calls, or a completion brings, is not kept. A load of a word where
 * there is none. */
BELAY_API belay_status belay_last_error(void);

typedef struct belay_code_info { /* static strings */
  belay_hdr hdr;
  belay_str name;   /* "NOT_FOUND" */
  belay_str title;  /* "Not found" */
  belay_str cause;
  belay_str remedy;
} belay_code_info;
/* The catalogue of codes. Errors: OUT_OF_RANGE. */
BELAY_API belay_status belay_code_describe(uint32_t code, belay_code_info* inout);

/* ---- runtime --------------------------------------------------------------------------------------------------------------- */
typedef struct belay_runtime_req {
  belay_hdr hdr;
  const belay_str* files; /* TOML files, later ones win over earlier; none: the embedded CPU configuration */
  uint64_t file_count;
  belay_str text;         /* TOML that wins over the files; may be empty */
  const belay_str* sets;  /* "key.path=value", win over all */
  uint64_t set_count;
  const belay_str* plugin_dirs; /* searched before the configured ones; absolute */
  uint64_t plugin_dir_count;
} belay_runtime_req;

/* Reads the configuration, loads and starts the plugins it names. Errors: INVALID_ARGUMENT (the
 * configuration: file:line:column, or the file that cannot be read), NOT_FOUND (a plugin: names it and where it was looked
 * for), and what plugins say. */
BELAY_API belay_status belay_runtime_create(const belay_runtime_req*, belay_runtime** out);
/* Ends it: models, contexts and buffers made from it must be gone; those that are not are named in the log, and what
 * they need stays. NULL is ignored. */
BELAY_API void belay_runtime_destroy(belay_runtime*);
/* Checks a configuration without loading a plugin; writes the effective one as TOML with the origin of each value. What is
 * allowed but hardly meant is told in comments before it, "# note: ..." each. */
BELAY_API belay_status belay_config_check(const belay_runtime_req*, belay_sink effective);
/* A commented example of every key: of the runtime and of the plugins found. */
BELAY_API belay_status belay_config_example(const belay_runtime_req*, belay_sink);

/* One line of `plugins list`. Found without loading anything. Strings are borrowed during the call of `each`. */
typedef struct belay_plugin_info {
  belay_hdr hdr;
  belay_str id, version, file, abi;
  belay_str kinds;  /* "belay.driver/1:cpu belay.kernel-provider/1:cpu" */
  belay_str state;  /* "found", "active", "failed", ... */
  belay_str reason; /* of a failure or refusal; else empty */
  belay_str manifest; /* its text */
} belay_plugin_info;
BELAY_API belay_status belay_plugins_find(const belay_runtime_req*, void (*each)(void* user, const belay_plugin_info*),
                                          void* user);
/* Lets a plugin that ended a process be tried again ("quarantined" in the list). Errors: NOT_FOUND (names those that
 * are). */
BELAY_API belay_status belay_plugins_release(const belay_runtime_req*, belay_str id);
/* Loads, opens, starts and ends one plugin and what it requires, and nothing else of the configuration but
 * plugin_dirs and sets. Errors: NOT_FOUND, and what the plugin says. */
BELAY_API belay_status belay_plugins_probe(const belay_runtime_req*, belay_str id);
/* The plugins of a runtime, with their states. */
BELAY_API belay_status belay_runtime_plugins(belay_runtime*, void (*each)(void* user, const belay_plugin_info*),
                                             void* user);
/* Why a component of `kind` was chosen: all candidates with score and reason, as text. */
BELAY_API belay_status belay_runtime_explain(belay_runtime*, belay_str kind, belay_sink);
/* Runs the checks of all parts: one call of `each` per check. outcome: BELAY_CHECK_... of diagnostics.h. */
BELAY_API belay_status belay_runtime_doctor(belay_runtime*,
                                            void (*each)(void* user, belay_str name, uint64_t outcome, belay_str text),
                                            void* user);

/* What each layer of [runtime] layers has found or gathered so far: one call of `each` per layer, in their order; `text`
 * has a line for each thing and is empty where there is nothing. */
BELAY_API belay_status belay_runtime_report(belay_runtime*, void (*each)(void* user, belay_str layer, belay_str text),
                                            void* user);

/* The device functions: the same table that plugins get, and the host to call it with. Valid until destroy. */
BELAY_API const belay_hal_vt* belay_runtime_hal(belay_runtime*, const belay_host** out_host);
/* The index of the device that models use by default ([runtime] device). */
BELAY_API uint64_t belay_runtime_default_device(belay_runtime*);

/* A memory policy of [memory] policies by its name, to compute with: what it places for the caller is numbers
 * alone, in segments that the caller adds, with ids from BELAY_SEGMENT_CALLER on and in heaps from
 * BELAY_HEAP_CALLER on, and removes before the runtime ends. Its slots check what they get before the policy
 * sees it, and `destroy` does nothing: the policy is the runtime's. Valid until belay_runtime_destroy.
 * Errors: NOT_FOUND (says which there are). */
#define BELAY_SEGMENT_CALLER 0x8000000000000000u
#define BELAY_HEAP_CALLER 0x100000000u
BELAY_API belay_status belay_runtime_policy(belay_runtime*, belay_str name, const belay_memory_policy_vt** out_table,
                                            belay_obj** out_policy);
/* Those there are, in the order of [memory] policies: of each class, BELAY_POLICY_... in `serves`, the first is asked
 * first. */
BELAY_API belay_status belay_runtime_policies(belay_runtime*, void (*each)(void* user, belay_str name, uint64_t serves),
                                              void* user);

/* ---- models ------------------------------------------------------------------------------------------------------------------ */
typedef struct belay_model_req {
  belay_hdr hdr;
  belay_str path;       /* of the file; empty: `bytes` */
  belay_span bytes;     /* a model in memory; borrowed until the model is destroyed */
  belay_str folder;     /* where side files of a model in memory lie; may be empty */
  belay_str format;     /* "onnx"; empty: found by contents */
  belay_str device;     /* "cpu:0"; empty: the runtime's default */
  const belay_str* extra_outputs; /* values that each run gives as well: of the main graph by name, of graphs inside by
                                   * address (belay/graph/outputs.hpp, which says what is given); behind the graph's own
                                   * outputs; what makes them is run as written, so that what was fused with it is not.
                                   * NOT_FOUND: there is no such value. */
  uint64_t extra_output_count;
} belay_model_req;

/* Errors: NOT_FOUND, DATA_LOSS (damaged), INVALID_ARGUMENT, UNIMPLEMENTED; each names file and object. */
BELAY_API belay_status belay_model_load(belay_runtime*, const belay_model_req*, belay_model** out);
/* Its contexts must be gone, and until then what it borrows (`bytes` of the request) stays. With [memory] checked = true
 * breaking this is an error, told by belay_last_error: the call waits for what they run, and they do not run any more. NULL
 * is ignored. */
BELAY_API void belay_model_destroy(belay_model*);
BELAY_API uint64_t belay_model_input_count(belay_model*);
BELAY_API uint64_t belay_model_output_count(belay_model*);
BELAY_API belay_status belay_model_input_info(belay_model*, uint64_t index, belay_io_info* inout);
BELAY_API belay_status belay_model_output_info(belay_model*, uint64_t index, belay_io_info* inout);
BELAY_API belay_status belay_model_stats(belay_model*, belay_executable_stats* inout);
BELAY_API belay_status belay_model_describe(belay_model*, belay_sink json);
/* Reads a model and writes its frozen graph as text, without running or claiming anything. A graph with operators that
 * are not known is written too, and they are named: UNIMPLEMENTED. */
BELAY_API belay_status belay_model_print(belay_runtime*, const belay_model_req*, belay_sink text);
/* The same as the image itself (graph.h, read by belay/graph/view.hpp): verified, in one call of the sink. */
BELAY_API belay_status belay_model_freeze(belay_runtime*, const belay_model_req*, belay_sink image);

/* The slots of belay_context_vt, see engine.h: what is set is lent until other memory is set or the context is destroyed,
 * and a run that is queued has it until its event. With [memory] checked = true setting other memory before that, and running
 * on memory of a buffer that was destroyed, gives FAILED_PRECONDITION. Errors of create: RESOURCE_EXHAUSTED (as many are
 * alive as [engine] max_contexts says, or no memory). */
BELAY_API belay_status belay_context_create(belay_model*, belay_context** out);
BELAY_API void belay_context_destroy(belay_context*); /* NULL is ignored */
BELAY_API belay_status belay_context_set_input(belay_context*, uint64_t index, const belay_datum*);
BELAY_API belay_status belay_context_set_output(belay_context*, uint64_t index, const belay_tensor*);
BELAY_API belay_status belay_context_run(belay_context*);
BELAY_API belay_status belay_context_run_async(belay_context*, belay_completion);
BELAY_API belay_status belay_context_output(belay_context*, uint64_t index, const belay_datum** out);

/* Queues a run on a stream of the model's device, in its order; `out` (may be NULL): the event of its end. A stream that is
 * capturing gives FAILED_PRECONDITION. */
BELAY_API belay_status belay_context_enqueue(belay_context*, belay_obj* stream, belay_event* out);

/* What the last run shared and copied of an input or output, and why it copied. Errors: OUT_OF_RANGE, UNIMPLEMENTED (the
 * engine does not tell). */
BELAY_API belay_status belay_context_input_memory(belay_context*, uint64_t index, belay_io_memory* inout);
BELAY_API belay_status belay_context_output_memory(belay_context*, uint64_t index, belay_io_memory* inout);

/* ---- tensors ----------------------------------------------------------------------------------------------------------------- */
/* Whether the numbers of a tensor fit together: element type, dims, strides, storage, quantisation. Errors:
 * INVALID_ARGUMENT, OUT_OF_RANGE (strides that reach past the storage or further than 63 bits count), UNIMPLEMENTED. */
BELAY_API belay_status belay_tensor_check(const belay_tensor*);
/* Queues a copy of all elements between tensors of one type and shape, each with its own strides, in memory that the host
 * sees; `out` (may be NULL): the event of its end. The memory stays until then; dims and strides are read now. Errors: those
 * of belay_tensor_check, INVALID_ARGUMENT (they overlap; elements of `to` lie at one place; no memory), OUT_OF_RANGE (past a
 * buffer's end), UNIMPLEMENTED (a device whose memory the host does not see), those of a stream. */
BELAY_API belay_status belay_tensor_copy(belay_runtime*, belay_obj* stream, const belay_tensor* to,
                                         const belay_tensor* from, belay_event* out);

/* DLPack: one struct in which array libraries lend each other tensors (dlpack/dlpack.h, without versions).
 * Lends a tensor in memory of the host: *out has dims and strides of its own, the elements stay those of the tensor and
 * must stay until its deleter is called, which calls release(user) once (NULL: nobody is told). Memory that the host sees
 * is given as kDLCPU. A call that fails takes nothing and calls nothing. Errors: those of belay_tensor_check, UNIMPLEMENTED
 * (a type that DLPack lacks, quantisation, memory that the host does not see), OUT_OF_RANGE. */
BELAY_API belay_status belay_tensor_to_dlpack(const belay_tensor*, void (*release)(void* user), void* user,
                                              struct DLManagedTensor** out);
/* Looks at a tensor of somebody else: *inout refers to its dims, strides and elements, so the DLPack tensor must stay until
 * nothing reads *inout any more; then its deleter is the caller's to call, once, also where this failed. Errors:
 * INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED (no memory of the host; a type that Belay lacks; lanes); each names the
 * field and its value. */
BELAY_API belay_status belay_tensor_from_dlpack(const struct DLManagedTensor*, belay_tensor* inout);
/* Calls the deleter, if there is one. NULL is ignored. */
BELAY_API void belay_dlpack_delete(struct DLManagedTensor*);

/* ---- single operators ---------------------------------------------------------------------------------------------------------- */
typedef struct belay_op_attribute {
  belay_hdr hdr;
  belay_str name;
  uint32_t kind;      /* BELAY_ATTR_...: FLOAT, INT, STRING, TENSOR (count 1), FLOATS, INTS, STRINGS */
  uint32_t reserved;  /* 0 */
  const void* values; /* [count] of float, int64_t or belay_str; TENSOR: a dense belay_tensor in host memory */
  uint64_t count;
} belay_op_attribute;

/* One operator with its operands. All is borrowed for the call; the operands' memory stays until the event. */
typedef struct belay_op_req {
  belay_hdr hdr;
  belay_str op;     /* "MatMul" */
  belay_str domain; /* "" or "ai.onnx", "com.microsoft", "belay" */
  uint64_t version; /* of the operator set: the definition that is in force there; 0: 17 */
  const belay_op_attribute* const* attributes;
  uint64_t attribute_count;
  const belay_tensor* const* inputs; /* NULL: an optional input that is absent */
  uint64_t input_count;
  const belay_tensor* const* outputs; /* what the results are written to, of their type and shape; NULL: not wanted */
  uint64_t output_count;
  /* Bit i: input i is read during the call, dense in host memory and in no buffer, and is part of what is
   * prepared: operands that shapes depend on (the shape of Reshape, the axes of ReduceSum) must be, and a kernel may
   * pack what does not change. At most 64 KiB each. */
  uint64_t constant_inputs;
} belay_op_req;

typedef struct belay_op_cache_stats {
  belay_hdr hdr;
  uint64_t entries; /* signatures that are prepared now */
  uint64_t capacity;
  uint64_t hits, misses, evictions, runs;
} belay_op_cache_stats;

/* Queues an operator on a stream of this runtime and returns; `out` (may be NULL): the event of its end. What is prepared
 * for a signature (operator, version, attributes, element types, shapes, constant inputs, device) is kept and found again
 * whatever memory the operands are in; of more than [engine] op_cache signatures the one used longest ago goes. An output
 * may be an input's memory. Any thread. Errors: INVALID_ARGUMENT (names the operator, the operand and what the standard
 * wants, also of outputs of another type or shape than the result), UNIMPLEMENTED (no kernel for it; the shape of a result
 * depends on operands that are not constant), FAILED_PRECONDITION (no engine is configured), RESOURCE_EXHAUSTED, and those
 * of a stream (one that is capturing gives FAILED_PRECONDITION). A failure of the operator itself is the stream's. */
BELAY_API belay_status belay_op_run(belay_runtime*, belay_obj* stream, const belay_op_req*, belay_event* out);
/* Prepares without running: `data` and `buffer` of operands may be NULL where they are not constant. */
BELAY_API belay_status belay_op_prepare(belay_runtime*, belay_obj* device, const belay_op_req*);
BELAY_API belay_status belay_op_stats(belay_runtime*, belay_op_cache_stats* inout);

#endif /* BELAY_RUNTIME_H */
