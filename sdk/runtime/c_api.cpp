#include "c_api.h"

#include <algorithm>

namespace belay::c_api {
namespace {

Status no_handle(const char* call, const char* name, const char* want) {
  return {Code::kInvalidArgument,
          std::string(call) + ": the " + name + " is NULL, want one that " + want + " gave."};
}

std::vector<std::string> strings(const belay_str* list, uint64_t count) {
  std::vector<std::string> all;
  for (uint64_t i = 0; i < count; ++i) all.push_back(to_string(list[i]));
  return all;
}

}  // namespace

Status check_alive(belay_runtime* handle, const char* call) {
  if (!handle) return no_handle(call, "runtime", "belay_runtime_create");
  if (!as_runtime(handle)->alive())
    return {Code::kNotFound, std::string(call) + ": the runtime was destroyed."};
  return {};
}

Status check(belay_runtime* handle, const char* call) {
  BELAY_TRY(check_alive(handle, call));
  if (as_runtime(handle)->forked()) return as_runtime(handle)->hal().forked_status();
  return {};
}

Status check(belay_model* handle, const char* call) {
  if (!handle) return no_handle(call, "model", "belay_model_load");
  belay_obj* object = reinterpret_cast<belay_obj*>(handle);
  hal::Model* model = hal::alive<hal::Model>(object);
  if (!model) {
    if (object->magic == BELAY_OBJ_DEAD)
      return {Code::kNotFound, std::string(call) + ": the model was destroyed."};
    return {Code::kInvalidArgument, std::string(call) + ": the handle is no model."};
  }
  if (model->runtime().forked()) return model->runtime().hal().forked_status();
  return {};
}

Status bad_context(belay_context* handle, const char* call) {
  if (!handle) return no_handle(call, "context", "belay_context_create");
  belay_obj* object = reinterpret_cast<belay_obj*>(handle);
  if (hal::Context* context = hal::alive<hal::Context>(object))
    return context->model().runtime().hal().forked_status();
  if (object->magic == BELAY_OBJ_DEAD)
    return {Code::kNotFound, std::string(call) + ": the context was destroyed."};
  return {Code::kInvalidArgument, std::string(call) + ": the handle is no context."};
}

Status check(const belay_runtime_req* req, const char* call) {
  if (!req) return {};  // all defaults
  if (req->hdr.struct_size < sizeof *req)
    return {Code::kInvalidArgument, std::string(call) + ": struct_size of the request is " +
                                        std::to_string(req->hdr.struct_size) + ", want " +
                                        std::to_string(sizeof *req) + "."};
  const auto list = [&](const belay_str* items, uint64_t count, const char* name) -> Status {
    if (count && !items)
      return {Code::kInvalidArgument,
              std::string(call) + ": " + name + " is NULL, but its count is " + std::to_string(count) + "."};
    return {};
  };
  BELAY_TRY(list(req->files, req->file_count, "files"));
  BELAY_TRY(list(req->sets, req->set_count, "sets"));
  return list(req->plugin_dirs, req->plugin_dir_count, "plugin_dirs");
}

hal::RuntimeRequest request_of(const belay_runtime_req* req) {
  if (!req) return {};
  return {strings(req->files, req->file_count), to_string(req->text), strings(req->sets, req->set_count),
          strings(req->plugin_dirs, req->plugin_dir_count)};
}

Status check(const belay_model_req* req, const char* call) {
  if (!req) return {Code::kInvalidArgument, std::string(call) + ": the request is NULL."};
  if (req->hdr.struct_size < sizeof *req)
    return {Code::kInvalidArgument, std::string(call) + ": struct_size of the request is " +
                                        std::to_string(req->hdr.struct_size) + ", want " +
                                        std::to_string(sizeof *req) + "."};
  if (req->path.len == 0 && req->bytes.len == 0)
    return {Code::kInvalidArgument,
            std::string(call) + ": the request has neither a path nor bytes of a model."};
  if (req->path.len && req->bytes.ptr)
    return {Code::kInvalidArgument,
            std::string(call) + ": the request has a path and bytes of a model; give one of them."};
  return {};
}

hal::ModelRequest request_of(const belay_model_req& req) {
  return {to_string(req.path), req.bytes, to_string(req.folder), to_string(req.format),
          to_string(req.device), strings(req.extra_outputs, req.extra_output_count)};
}

}  // namespace belay::c_api
