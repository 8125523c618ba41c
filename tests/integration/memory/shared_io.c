/* A run of the digit model from C: inputs and outputs in memory of the caller's, aligned or not; see zerocopy_test.cpp. */
#include <belay/runtime.h>

/* Runs `model` on 64 floats at `pixels` into 10 floats at `answer`; 0: all went well. */
int run_from_c(belay_model* model, void* pixels, void* answer, belay_io_memory* in, belay_io_memory* out);
int run_from_c(belay_model* model, void* pixels, void* answer, belay_io_memory* in, belay_io_memory* out) {
  const int64_t image[4] = {1, 1, 8, 8}, classes[2] = {1, 10};
  belay_tensor input = {.hdr = {.struct_size = sizeof input}, .dtype = BELAY_DT_FLOAT32, .rank = 4, .dims = image,
                        .data = pixels, .bytes = 256};
  belay_tensor output = {.hdr = {.struct_size = sizeof output}, .dtype = BELAY_DT_FLOAT32, .rank = 2, .dims = classes,
                         .data = answer, .bytes = 40};
  belay_datum datum = {.hdr = {.struct_size = sizeof datum}, .kind = BELAY_TYPE_TENSOR, .tensor = &input};
  belay_context* context = NULL;
  belay_status status = belay_context_create(model, &context);
  if (status == BELAY_OK) status = belay_context_set_input(context, 0, &datum);
  if (status == BELAY_OK) status = belay_context_set_output(context, 0, &output);
  if (status == BELAY_OK) status = belay_context_run(context);
  in->hdr.struct_size = sizeof *in;
  out->hdr.struct_size = sizeof *out;
  if (status == BELAY_OK) status = belay_context_input_memory(context, 0, in);
  if (status == BELAY_OK) status = belay_context_output_memory(context, 0, out);
  in->reason.ptr = out->reason.ptr = NULL; /* they end with the context */
  belay_context_destroy(context);
  belay_status_release(status);
  return status == BELAY_OK ? 0 : 1;
}
