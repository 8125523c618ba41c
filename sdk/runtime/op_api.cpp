// belay_op_* and belay_tensor_*.
#include "c_api.h"

#include "hal/tensor_view.h"

using namespace belay;
using namespace belay::c_api;

namespace {

// The stream of a handle, which is one of the runtime's.
Result<hal::Stream*> stream_of(belay_runtime* handle, belay_obj* on, const char* call) {
  BELAY_TRY(check(handle, call));
  hal::Hal& hal = as_runtime(handle)->hal();
  hal::Stream* stream = hal::alive<hal::Stream>(on);
  if (!stream) return hal.bad_handle(on, BELAY_OBJ_STREAM, call, "stream");
  if (stream->hal != &hal)
    return Status(Code::kInvalidArgument, std::string(call) + ": the stream is one of another runtime.");
  return stream;
}

}  // namespace

belay_status belay_op_run(belay_runtime* handle, belay_obj* on, const belay_op_req* req, belay_event* out) {
  return guarded("belay_op_run", [&]() -> Status {
    BELAY_ASSIGN(hal::Stream * stream, stream_of(handle, on, "belay_op_run"));
    const Request whole(req);
    if (!whole) return whole.refused("belay_op_run");
    return as_runtime(handle)->operators().run(*stream, *whole, out);
  });
}

belay_status belay_op_prepare(belay_runtime* handle, belay_obj* on, const belay_op_req* req) {
  return guarded("belay_op_prepare", [&]() -> Status {
    BELAY_TRY(check(handle, "belay_op_prepare"));
    hal::Hal& hal = as_runtime(handle)->hal();
    hal::Device* device = hal::alive<hal::Device>(on);
    if (!device) return hal.bad_handle(on, BELAY_OBJ_DEVICE, "belay_op_prepare", "device");
    if (device->hal != &hal)
      return {Code::kInvalidArgument, "belay_op_prepare: the device is one of another runtime."};
    const Request whole(req);
    if (!whole) return whole.refused("belay_op_prepare");
    return as_runtime(handle)->operators().prepare(*device, *whole);
  });
}

belay_status belay_op_stats(belay_runtime* handle, belay_op_cache_stats* inout) {
  return guarded("belay_op_stats", [&]() -> Status {
    BELAY_TRY(check(handle, "belay_op_stats"));
    BELAY_TRY(check_answer(inout, "belay_op_stats"));
    fill(inout, as_runtime(handle)->operators().stats());
    return {};
  });
}

belay_status belay_tensor_check(const belay_tensor* tensor) {
  return guarded("belay_tensor_check", [&] { return hal::view_of(tensor, "The tensor").status(); });
}

belay_status belay_tensor_copy(belay_runtime* handle, belay_obj* on, const belay_tensor* to,
                               const belay_tensor* from, belay_event* out) {
  return guarded_raw("belay_tensor_copy", [&]() -> belay_status {
    Result<hal::Stream*> stream = stream_of(handle, on, "belay_tensor_copy");
    return stream.ok() ? hal::copy_tensor(**stream, to, from, out) : make(stream.status());
  });
}
