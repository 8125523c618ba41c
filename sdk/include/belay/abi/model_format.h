/* belay/abi/model_format.h: kind belay.model-format/1: bytes of a model file to a frozen graph. */
#ifndef BELAY_ABI_MODEL_FORMAT_H
#define BELAY_ABI_MODEL_FORMAT_H

#include <belay/abi/base.h>
#include <belay/abi/graph.h>
#include <belay/abi/value.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_MODEL_FORMAT_KIND "belay.model-format/1"

/* The host's view of the model's files: a format opens no file itself. Source 0 is the model. [serial] */
typedef struct belay_model_reader belay_model_reader;
struct belay_model_reader {
  belay_hdr hdr;
  belay_str path; /* for messages; empty: the model came from memory */
  /* All bytes of a source, read-only, valid until the executable made from them is gone. Errors: OUT_OF_RANGE. r */
  belay_status (*map)(belay_model_reader*, uint32_t source, belay_span* out) BELAY_NOEXCEPT;
  /* Opens a side file by the name in the model, relative to the model's folder, and gives its source number (the same
   * for the same name). Errors: NOT_FOUND, PERMISSION_DENIED (absolute, leaves the folder, a link, not a regular file),
   * FAILED_PRECONDITION (from memory, and no folder was given). r */
  belay_status (*open)(belay_model_reader*, belay_str name, uint32_t* out_source) BELAY_NOEXCEPT;
};

/* Where a result goes: exactly one of the two is called, once, before parse returns OK. A graph may also be given before
 * UNIMPLEMENTED, with nodes of operators that are not known: to be shown. */
typedef struct belay_model_sink {
  belay_hdr hdr;
  void* user;
  /* A frozen graph; `sources` of the image are source numbers of the reader, in order. The image is copied. */
  belay_status (*graph)(void* user, belay_span image) BELAY_NOEXCEPT;
  /* A device-native package for the drivers that know `package_kind` ("ascend.om"), with its signature as an image
   * with inputs and outputs but no nodes. */
  belay_status (*package)(void* user, belay_str package_kind, belay_span signature_image) BELAY_NOEXCEPT;
  void (*warning)(void* user, belay_str text) BELAY_NOEXCEPT;
} belay_model_sink;

typedef struct belay_sniff_req {
  belay_hdr hdr;
  belay_str file_name; /* may be empty; contents decide, the name breaks ties */
  belay_span head;     /* the first 4096 bytes, or all */
  uint64_t file_bytes;
} belay_sniff_req;

typedef struct belay_model_format_vt {
  belay_hdr hdr;
  /* 0: not this format; up to 1000: certain. [any] r */
  uint32_t (*sniff)(belay_obj*, const belay_sniff_req*) BELAY_NOEXCEPT;
  /* Errors: DATA_LOSS (damaged: says where and what was expected), INVALID_ARGUMENT (well-formed but against the
   * format's rules: names the object), UNIMPLEMENTED (names what), and the reader's. [any] r */
  belay_status (*parse)(belay_obj*, belay_model_reader*, const belay_value* options, const belay_model_sink*) BELAY_NOEXCEPT;
  void (*destroy)(belay_obj*) BELAY_NOEXCEPT; /* [serial] r */
} belay_model_format_vt;

#ifdef __cplusplus
}
#endif
#endif /* BELAY_ABI_MODEL_FORMAT_H */
