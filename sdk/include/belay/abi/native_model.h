/* belay/abi/native_model.h: extension belay.driver.native-model/1 of a device: models that were compiled for it. */
#ifndef BELAY_ABI_NATIVE_MODEL_H
#define BELAY_ABI_NATIVE_MODEL_H

#include <belay/abi/base.h>
#include <belay/abi/driver.h>
#include <belay/abi/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_DRIVER_NATIVE_MODEL "belay.driver.native-model/1"

#define BELAY_OBJ_PACKAGE 12u /* continues the kinds of objects of base.h */

typedef struct belay_package_req { /* the caller fills */
  belay_hdr hdr;
  belay_str kind;   /* as the model format names it: "om" */
  belay_span bytes; /* borrowed for the call */
  belay_str name;   /* for messages and traces: the file's name */
} belay_package_req;

typedef struct belay_package_info { /* the slot fills */
  belay_hdr hdr;
  uint64_t inputs, outputs;
  uint64_t weight_bytes; /* on the device, shared by all runs */
  uint64_t work_bytes;   /* of each run that is under way */
} belay_package_info;

typedef struct belay_driver_native_model_vt {
  belay_hdr hdr;
  /* 1: packages of this kind can be loaded; 0: not. [pure] r */
  uint64_t (*accepts)(belay_obj* device, belay_str kind) BELAY_NOEXCEPT;
  /* Gives a package (this table). Errors: UNIMPLEMENTED (the kind, or what is in it: names it), DATA_LOSS (damaged),
   * FAILED_PRECONDITION (compiled for another device: names both), RESOURCE_EXHAUSTED. [any] r */
  belay_status (*load)(belay_obj* device, const belay_package_req*, belay_created* out) BELAY_NOEXCEPT;
  belay_status (*info)(belay_obj* package, belay_package_info* inout) BELAY_NOEXCEPT; /* [any] r */
  /* The signature: tensors, in the order of the bindings of a launch; strings and arrays live as long as the package.
   * Errors: OUT_OF_RANGE. [any] r */
  belay_status (*input_info)(belay_obj* package, uint64_t index, belay_io_info* inout) BELAY_NOEXCEPT;
  belay_status (*output_info)(belay_obj* package, uint64_t index, belay_io_info* inout) BELAY_NOEXCEPT;
  /* Queues a run as one operation. Bindings, inputs and then outputs, are copied. Launches may overlap. Errors: those of a
   * stream's slots, INVALID_ARGUMENT and OUT_OF_RANGE (a binding does not fit the signature: names it). [serial on the
   * stream] r */
  belay_status (*launch)(belay_obj* package, belay_obj* stream, const belay_binding* bindings, uint64_t count,
                         uint64_t* out_value) BELAY_NOEXCEPT;
  /* No launch of it is queued any more. [any] r */
  void (*destroy)(belay_obj* package) BELAY_NOEXCEPT;
} belay_driver_native_model_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_NATIVE_MODEL_H */
