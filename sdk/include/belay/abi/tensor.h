/* belay/abi/tensor.h: run-time data: tensors and what is made of them. */
#ifndef BELAY_ABI_TENSOR_H
#define BELAY_ABI_TENSOR_H

#include <belay/abi/base.h>
#include <belay/abi/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_MAX_RANK 32u

typedef struct belay_quant belay_quant;

/* A tensor in host memory (`data`) or in a device buffer (`buffer` + `offset`); exactly one of the two, unless it has
 * no elements. Dense row-major where `strides` is NULL. A string tensor is host memory: `data` points to belay_str. */
typedef struct belay_tensor {
  belay_hdr hdr;
  uint32_t dtype; /* BELAY_DT_... */
  uint32_t rank;
  const int64_t* dims;
  const int64_t* strides; /* in elements, of whole bytes; negative and 0 are possible; NULL: dense */
  void* data;             /* of the element at index 0, ..., 0 */
  belay_obj* buffer;
  uint64_t offset; /* bytes into `buffer`, of that element */
  uint64_t bytes;  /* of the storage from that element on; 0: not known */
  const belay_quant* quant; /* what the stored numbers stand for; NULL: themselves */
} belay_tensor;

/* Real number = (stored - zero_point) * scale. `scale` and `zero_point` are dense host tensors: one element (TENSOR), one
 * for each index of `axis` (AXIS), or of the tensor's dims with that of `axis` divided by `block`, rounded up (BLOCK).
 * Operators that take quantised operands (belay_op_run) compute with real numbers; models see the stored ones. */
struct belay_quant {
  belay_hdr hdr;
  uint64_t kind; /* BELAY_QUANT_TENSOR, _AXIS, _BLOCK */
  int64_t axis;  /* AXIS, BLOCK: 0 to rank - 1 */
  int64_t block; /* BLOCK: elements along the axis that share a scale */
  const belay_tensor* scale;      /* float32, float16 or bfloat16, of no zeros, NaN or infinities */
  const belay_tensor* zero_point; /* of the stored type and the dims of `scale`; NULL: 0 */
};

/* What a graph's value holds: a tensor; a sequence or map of items; an optional with zero or one item. A map's items
 * are alternately key and value. */
typedef struct belay_datum {
  belay_hdr hdr;
  uint32_t kind; /* BELAY_TYPE_... */
  uint32_t reserved;
  const belay_tensor* tensor;       /* of a tensor, else NULL */
  const struct belay_datum* const* items;
  uint64_t item_count;
} belay_datum;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_TENSOR_H */
