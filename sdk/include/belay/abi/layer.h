/* belay/abi/layer.h: kind belay.layer/1: stands between those who call objects and the plugins that made them. */
#ifndef BELAY_ABI_LAYER_H
#define BELAY_ABI_LAYER_H

#include <belay/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_LAYER_KIND "belay.layer/1"

#define BELAY_OBJ_LAYER 13u /* continues the kinds of objects of base.h */

/* An object that was just made, before anybody calls it. Its `kind` says which table it has; a buffer has none. */
typedef struct belay_attach_req {
  belay_hdr hdr;
  belay_obj* object;
  const void* next; /* the table below: what the layer calls; valid until `detach` has returned; NULL for a buffer */
  belay_obj* parent; /* from which it was made: the driver of a device, the device of a stream; NULL for a component */
  belay_str plugin; /* whose object it is: id, lives as long as the object */
  uint64_t key;     /* layer_word[key] of every object is this layer's own; the same in all hosts of the process */
} belay_attach_req;

/* A layer that stands before the devices, streams or programs of a driver sees the slots of an extension through the
 * table that its own `extension` slot gives. Where a slot of an extension makes an object and leaves out->table NULL, the
 * layer sets it to the extension's table below itself. */
typedef struct belay_layer_vt {
  belay_hdr hdr;
  /* *out is `next`, and stays so where the layer has nothing to do; else it becomes the layer's own table: the bytes of
   * `next`, its struct_size included, with some slots replaced, valid until `detach` has returned. Slots that the layer
   * does not know reach the one below so. On failure the object is destroyed and its maker's caller gets the status.
   * [any] r */
  belay_status (*attach)(belay_obj*, const belay_attach_req*, const void** out) BELAY_NOEXCEPT;
  /* The object is destroyed, its memory still there: what the layer keeps of it can go. Also for those that attach had
   * nothing to do with. [any] r */
  void (*detach)(belay_obj*, belay_obj* object, uint64_t key) BELAY_NOEXCEPT;
  /* Writes what the layer has found or gathered so far, a line each; nothing where there is nothing. [any] r */
  belay_status (*report)(belay_obj*, belay_sink) BELAY_NOEXCEPT;
  /* It stands before no object any more. [serial] r */
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT;
} belay_layer_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_LAYER_H */
