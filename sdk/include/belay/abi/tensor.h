/* belay/abi/tensor.h: run-time data: tensors and what is made of them. */
#ifndef BELAY_ABI_TENSOR_H
#define BELAY_ABI_TENSOR_H

#include <belay/abi/base.h>
#include <belay/abi/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_MAX_RANK 32u

/* A tensor in host memory (`data`) or in a device buffer (`buffer` + `offset`); exactly one of the two, unless it has
 * no elements. Dense row-major where `strides` is NULL. A string tensor is host memory: `data` points to belay_str. */
typedef struct belay_tensor {
  belay_hdr hdr;
  uint32_t dtype; /* BELAY_DT_... */
  uint32_t rank;
  const int64_t* dims;
  const int64_t* strides; /* in elements; NULL: dense */
  void* data;
  belay_obj* buffer;
  uint64_t offset; /* bytes into `buffer` */
  uint64_t bytes;  /* of the storage from the first element on */
} belay_tensor;

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
