// sdk/runtime/c_api.h: what the C functions share: nothing that is thrown leaves them, and handles are looked
// at first.
#pragma once

#include <belay/fill.hpp>
#include <belay/runtime.h>
#include <belay/status.hpp>
#include "core/base/last_error.h"
#include "core/base/status_table.h"
#include "hal/runtime.h"

#include <new>
#include <string>

namespace belay::c_api {

inline belay_status make(const Status& status) noexcept {
  return status.ok() ? BELAY_OK : core::make_status(uint32_t(status.code()), status.message());
}

inline belay_status thrown(const char* call) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return core::make_status(BELAY_RESOURCE_EXHAUSTED, "There is no memory left.");
  } catch (const std::exception& error) {
    try {
      return core::make_status(BELAY_INTERNAL, std::string(call) + ": an exception: " + error.what());
    } catch (...) {
      return BELAY_INTERNAL;
    }
  } catch (...) {
    return BELAY_INTERNAL;
  }
}

// Runs a body that gives a belay_status as a plugin gave it; the thread keeps a failure.
template <class Body>
belay_status guarded_raw(const char* call, Body&& body) noexcept {
  belay_status status;
  try {
    status = body();
  } catch (...) {
    status = thrown(call);
  }
  if (status != BELAY_OK) [[unlikely]]
    core::keep_last_error(status);
  return status;
}

// Runs a body that gives a Status.
template <class Body>
belay_status guarded(const char* call, Body&& body) noexcept {
  return guarded_raw(call, [&] { return make(body()); });
}

// For functions that return no status: the thread keeps a failure, and that is where it is told.
template <class Body>
bool succeeds(const char* call, Body&& body) noexcept {
  const belay_status status = guarded(call, body);
  core::release_status(status);
  return status == BELAY_OK;
}

inline hal::Runtime* as_runtime(belay_runtime* handle) { return reinterpret_cast<hal::Runtime*>(handle); }
inline hal::Model* as_model(belay_model* handle) {
  return static_cast<hal::Model*>(reinterpret_cast<belay_obj*>(handle));
}
inline hal::Context* as_context(belay_context* handle) {
  return static_cast<hal::Context*>(reinterpret_cast<belay_obj*>(handle));
}

Status check_alive(belay_runtime* handle, const char* call);  // also in a forked child
Status check(belay_runtime* handle, const char* call);
Status check(belay_model* handle, const char* call);
Status bad_context(belay_context* handle, const char* call);

// The context, or nullptr where `*out` says why not.
inline hal::Context* context_of(belay_context* handle, const char* call, belay_status* out) noexcept {
  hal::Context* context = hal::alive<hal::Context>(reinterpret_cast<belay_obj*>(handle));
  if (context && !context->model().runtime().forked()) [[likely]]
    return context;
  *out = guarded(call, [&] { return bad_context(handle, call); });
  return nullptr;
}

// Text of some length has an address.
Status check_text(belay_str text, const char* call, const std::string& name);
// Requests with all that they hold, checked and copied. Of a runtime: NULL means all defaults.
Result<hal::RuntimeRequest> read(const belay_runtime_req* req, const char* call);
Result<hal::ModelRequest> read(const belay_model_req* req, const char* call);

// A struct to fill has its header at least.
template <class T>
Status check_answer(const T* inout, const char* call) {
  if (inout && inout->hdr.struct_size >= sizeof(belay_hdr)) return {};
  return bad_size(inout, sizeof(belay_hdr), call, "inout");
}

}  // namespace belay::c_api

template <>
struct belay::LeastSize<belay_runtime_req> : UpTo<BELAY_SIZE_TO(belay_runtime_req, hdr)> {};
template <>
struct belay::LeastSize<belay_model_req> : UpTo<BELAY_SIZE_TO(belay_model_req, bytes)> {};
template <>
struct belay::LeastSize<belay_op_req> : UpTo<BELAY_SIZE_TO(belay_op_req, output_count)> {};
