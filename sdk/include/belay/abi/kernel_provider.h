/* belay/abi/kernel_provider.h: kind belay.kernel-provider/1: kernels for the operators of a frozen graph on the devices
 * of one driver. */
#ifndef BELAY_ABI_KERNEL_PROVIDER_H
#define BELAY_ABI_KERNEL_PROVIDER_H

#include <belay/abi/base.h>
#include <belay/abi/driver.h>
#include <belay/abi/graph.h>
#include <belay/abi/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_KERNEL_PROVIDER_KIND "belay.kernel-provider/1"

/* A graph whose nodes are to be run, specialised to one set of shapes: types of values are as complete as they are
 * known before the run (a dim that depends on data is -1). */
typedef struct belay_claim_req {
  belay_hdr hdr;
  belay_span image; /* verified; borrowed for the call */
  uint32_t graph;   /* index of the graph whose nodes may be claimed */
  uint32_t reserved;
  const belay_device_info* device;
  /* [values of the image]: bytes of constants, dense, aligned for their element type; NULL where the value is not
   * constant. Constants of values are read here only: their records in the image name a source that need not be there.
   * Constants of attributes are inline in the image. */
  const void* const* constants;
} belay_claim_req;

/* In-place: output `output` may use the memory of input `input` if nothing else needs that any more. */
typedef struct belay_in_place {
  uint32_t input, output; /* positions in the claim's lists */
} belay_in_place;

/* Nodes of the image are in canonical form: attributes that newer definitions take as inputs are inputs, since_version is
 * that of the newest definition at or below opset 17 (a definition that appeared later keeps its number), and what only
 * old definitions had (broadcast and axis of arithmetic, softmax over a flattened tail, is_test ...) is gone. */

/* One unit that the provider can run: a node, or nodes that together form one kernel: then values between them are used
 * by nothing else (the engine refuses the claim otherwise). */
typedef struct belay_claim {
  belay_hdr hdr;
  const uint32_t* nodes; /* of the image, in topological order */
  uint64_t node_count;
  const uint32_t* inputs; /* values in the order of the kernel's arguments, BELAY_NONE: absent */
  uint64_t input_count;
  const uint32_t* outputs; /* follow the inputs; then one word for the workspace, if any */
  uint64_t output_count;
  uint64_t score;       /* higher wins where claims overlap; 500 is usual for a single node */
  uint64_t cost_ns;     /* estimate on one thread; 0: not known */
  const belay_in_place* in_place;
  uint64_t in_place_count;
  uint64_t host_inputs; /* bit i: input i must be known (its bytes) before prepare is called; the engine runs up to
                         * there first, then asks again with the value as a constant */
} belay_claim;

typedef struct belay_claim_sink {
  void* user;
  void (*claim)(void* user, const belay_claim*) BELAY_NOEXCEPT; /* copied by the callee */
  void (*refuse)(void* user, uint32_t node, belay_str reason) BELAY_NOEXCEPT; /* why a node is not claimed */
} belay_claim_sink;

typedef struct belay_prepare_req {
  belay_hdr hdr;
  belay_span image; /* as in the claim */
  uint32_t graph;
  uint32_t threads; /* that the kernel may use at once */
  const belay_claim* claim;
  const belay_device_info* device;
  const void* const* constants;      /* [values of the image], as in the claim request */
  const uint64_t* constant_keys;     /* [values of the image]: equal keys in one process mean equal bytes, so what is
                                      * packed from them can be shared over shapes and instances; 0: do not share */
  uint64_t precision;                /* bits BELAY_PRECISION_... */
} belay_prepare_req;
#define BELAY_PRECISION_FLOAT32 0u /* every result as exact as its type allows */
#define BELAY_PRECISION_FAST 1u    /* bf16 inside matrix products where the device has it */
/* Convolutions may be computed tile by tile: about twice the error of a sum over all terms, and an infinity or NaN of
 * the input may reach all outputs of a tile (of 4 x 4). */
#define BELAY_PRECISION_WINOGRAD 2u

/* What prepare gives; strings and kernel live until release(handle). */
typedef struct belay_prepared {
  belay_hdr hdr;
  void* handle;
  belay_kernel kernel;       /* by value: hdr.struct_size tells its length */
  uint64_t workspace_bytes;  /* 0: no workspace word */
  uint64_t packed_bytes;     /* memory that packed constants of this claim take (shared ones count once) */
  uint64_t unused_inputs;    /* bit i: constant input i was packed, its argument word may be NULL */
  belay_str implementation;  /* "products:avx512", "loops" */
  belay_str reason;          /* why this one; may be empty */
} belay_prepared;

typedef struct belay_kernel_provider_vt {
  belay_hdr hdr;
  /* 0: not for this device; else higher is better. [any] r */
  uint32_t (*serves)(belay_obj*, const belay_device_info*) BELAY_NOEXCEPT;
  /* Emits claims, which may overlap: the engine chooses. Every node that is not covered is refused with a reason that
   * names operator, version, types. [any] r */
  belay_status (*claim)(belay_obj*, const belay_claim_req*, const belay_claim_sink*) BELAY_NOEXCEPT;
  /* Errors: INVALID_ARGUMENT (attributes or shapes against the operator's definition: names them), UNIMPLEMENTED,
   * RESOURCE_EXHAUSTED. [any] r */
  belay_status (*prepare)(belay_obj*, const belay_prepare_req*, belay_prepared* out) BELAY_NOEXCEPT;
  void (*release)(belay_obj*, void* handle) BELAY_NOEXCEPT; /* no launch of the kernel is queued. [any] r */
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT;               /* [serial] r */
} belay_kernel_provider_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_KERNEL_PROVIDER_H */
