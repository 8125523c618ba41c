// belay_model_* and belay_context_*.
#include "c_api.h"

using namespace belay;
using namespace belay::c_api;

namespace {

// A call of a slot of the executable that gives a status.
template <class Body>
belay_status on_model(belay_model* handle, const char* call, Body&& body) noexcept {
  return guarded_raw(call, [&]() -> belay_status {
    if (Status usable = check(handle, call); !usable.ok()) return make(usable);
    hal::Model& model = *as_model(handle);
    return model.hal->pass(body(model), model.runtime().engine()->plugin, call);
  });
}

uint64_t count_of(belay_model* handle, const char* call,
                  uint64_t (*belay_executable_vt::*slot)(belay_obj*)) noexcept {
  uint64_t count = 0;
  succeeds(call, [&]() -> Status {
    BELAY_TRY(check(handle, call));
    hal::Model& model = *as_model(handle);
    count = (model.vt().*slot)(&model);
    return {};
  });
  return count;
}

}  // namespace

belay_status belay_model_load(belay_runtime* handle, const belay_model_req* req, belay_model** out) {
  return guarded("belay_model_load", [&]() -> Status {
    if (!out) return null_argument("belay_model_load", "out");
    BELAY_TRY(check(handle, "belay_model_load"));
    BELAY_ASSIGN(const hal::ModelRequest request, read(req, "belay_model_load"));
    BELAY_ASSIGN(hal::Model * model, as_runtime(handle)->load(request));
    *out = reinterpret_cast<belay_model*>(static_cast<belay_obj*>(model));
    return {};
  });
}

void belay_model_destroy(belay_model* handle) {
  if (!handle) return;
  succeeds("belay_model_destroy", [&]() -> Status {
    BELAY_TRY(check(handle, "belay_model_destroy"));
    return as_model(handle)->destroy();
  });
}

uint64_t belay_model_input_count(belay_model* handle) {
  return count_of(handle, "belay_model_input_count", &belay_executable_vt::input_count);
}
uint64_t belay_model_output_count(belay_model* handle) {
  return count_of(handle, "belay_model_output_count", &belay_executable_vt::output_count);
}

belay_status belay_model_input_info(belay_model* handle, uint64_t index, belay_io_info* inout) {
  return on_model(handle, "belay_model_input_info", [&](hal::Model& model) {
    if (Status good = check_answer(inout, "belay_model_input_info"); !good.ok()) return make(good);
    return model.vt().input_info(&model, index, inout);
  });
}

belay_status belay_model_output_info(belay_model* handle, uint64_t index, belay_io_info* inout) {
  return on_model(handle, "belay_model_output_info", [&](hal::Model& model) {
    if (Status good = check_answer(inout, "belay_model_output_info"); !good.ok()) return make(good);
    return model.vt().output_info(&model, index, inout);
  });
}

belay_status belay_model_stats(belay_model* handle, belay_executable_stats* inout) {
  return on_model(handle, "belay_model_stats", [&](hal::Model& model) {
    if (Status good = check_answer(inout, "belay_model_stats"); !good.ok()) return make(good);
    return model.vt().stats(&model, inout);
  });
}

belay_status belay_model_describe(belay_model* handle, belay_sink json) {
  return on_model(handle, "belay_model_describe",
                  [&](hal::Model& model) { return model.vt().describe(&model, json); });
}

belay_status belay_model_print(belay_runtime* handle, const belay_model_req* req, belay_sink text) {
  return guarded("belay_model_print", [&]() -> Status {
    BELAY_TRY(check(handle, "belay_model_print"));
    BELAY_ASSIGN(const hal::ModelRequest request, read(req, "belay_model_print"));
    return as_runtime(handle)->print(request, text);
  });
}

belay_status belay_model_freeze(belay_runtime* handle, const belay_model_req* req, belay_sink image) {
  return guarded("belay_model_freeze", [&]() -> Status {
    BELAY_TRY(check(handle, "belay_model_freeze"));
    if (!image.write) return null_argument("belay_model_freeze", "image.write");
    BELAY_ASSIGN(const hal::ModelRequest request, read(req, "belay_model_freeze"));
    return as_runtime(handle)->freeze(request, image);
  });
}

// ---- contexts
// --------------------------------------------------------------------------------------------------------

belay_status belay_context_create(belay_model* handle, belay_context** out) {
  return guarded("belay_context_create", [&]() -> Status {
    if (!out) return null_argument("belay_context_create", "out");
    BELAY_TRY(check(handle, "belay_context_create"));
    BELAY_ASSIGN(hal::Context * context, hal::Context::create(*as_model(handle)));
    *out = reinterpret_cast<belay_context*>(static_cast<belay_obj*>(context));
    return {};
  });
}

void belay_context_destroy(belay_context* handle) {
  if (!handle) return;
  belay_status status = BELAY_OK;
  hal::Context* context = context_of(handle, "belay_context_destroy", &status);
  if (context)
    status = guarded("belay_context_destroy", [&]() -> Status {
      context->destroy();
      return {};
    });
  belay_status_release(status);
}

belay_status belay_context_set_input(belay_context* handle, uint64_t index, const belay_datum* datum) {
  belay_status status;
  hal::Context* context = context_of(handle, "belay_context_set_input", &status);
  return context ? guarded_raw("belay_context_set_input", [&] { return context->set_input(index, datum); })
                 : status;
}

belay_status belay_context_set_output(belay_context* handle, uint64_t index, const belay_tensor* tensor) {
  belay_status status;
  hal::Context* context = context_of(handle, "belay_context_set_output", &status);
  return context ? guarded_raw("belay_context_set_output", [&] { return context->set_output(index, tensor); })
                 : status;
}

belay_status belay_context_run(belay_context* handle) {
  belay_status status;
  hal::Context* context = context_of(handle, "belay_context_run", &status);
  return context ? guarded_raw("belay_context_run", [&] { return context->run(); }) : status;
}

belay_status belay_context_run_async(belay_context* handle, belay_completion completion) {
  belay_status status;
  hal::Context* context = context_of(handle, "belay_context_run_async", &status);
  return context ? guarded_raw("belay_context_run_async", [&] { return context->run_async(completion); })
                 : status;
}

belay_status belay_context_output(belay_context* handle, uint64_t index, const belay_datum** out) {
  belay_status status;
  hal::Context* context = context_of(handle, "belay_context_output", &status);
  if (!context) return status;
  return guarded_raw("belay_context_output", [&]() -> belay_status {
    if (!out) return make(null_argument("belay_context_output", "out"));
    return context->output(index, out);
  });
}

belay_status belay_context_enqueue(belay_context* handle, belay_obj* on, belay_event* out) {
  belay_status status;
  hal::Context* context = context_of(handle, "belay_context_enqueue", &status);
  if (!context) return status;
  return guarded_raw("belay_context_enqueue", [&]() -> belay_status {
    hal::Stream* stream = hal::alive<hal::Stream>(on);
    if (!stream) return make(context->hal->bad_handle(on, BELAY_OBJ_STREAM, "belay_context_enqueue", "stream"));
    return context->enqueue(*stream, out);
  });
}

belay_status belay_context_input_memory(belay_context* handle, uint64_t index, belay_io_memory* inout) {
  belay_status status;
  hal::Context* context = context_of(handle, "belay_context_input_memory", &status);
  if (!context) return status;
  return guarded_raw("belay_context_input_memory", [&]() -> belay_status {
    if (Status good = check_answer(inout, "belay_context_input_memory"); !good.ok()) return make(good);
    return context->input_memory(index, inout);
  });
}

belay_status belay_context_output_memory(belay_context* handle, uint64_t index, belay_io_memory* inout) {
  belay_status status;
  hal::Context* context = context_of(handle, "belay_context_output_memory", &status);
  if (!context) return status;
  return guarded_raw("belay_context_output_memory", [&]() -> belay_status {
    if (Status good = check_answer(inout, "belay_context_output_memory"); !good.ok()) return make(good);
    return context->output_memory(index, inout);
  });
}
