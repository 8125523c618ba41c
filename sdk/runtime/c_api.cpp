#include "c_api.h"

#include <algorithm>

namespace belay::c_api {
namespace {

Status no_handle(const char* call, const char* name, const char* want) {
  return {Code::kInvalidArgument,
          std::string(call) + ": the " + name + " is NULL, want one that " + want + " gave."};
}

// A list of texts, each with an address, that `into` gets copies of.
Status copy_texts(const belay_str* list, uint64_t count, const char* call, const std::string& name,
                  std::vector<std::string>& into) {
  if (count && !list)
    return {Code::kInvalidArgument,
            std::string(call) + ": " + name + " is NULL, but its count is " + std::to_string(count) + "."};
  for (uint64_t i = 0; i < count; ++i) {
    BELAY_TRY(check_text(list[i], call, name + "[" + std::to_string(i) + "]"));
    into.push_back(to_string(list[i]));
  }
  return {};
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

Status check_text(belay_str text, const char* call, const std::string& name) {
  if (text.ptr || !text.len) return {};
  return {Code::kInvalidArgument,
          std::string(call) + ": " + name + " is NULL, but its length is " + std::to_string(text.len) + "."};
}

Result<hal::RuntimeRequest> read(const belay_runtime_req* given, const char* call) {
  hal::RuntimeRequest out;
  if (!given) return out;
  const Request req(given);
  if (!req) return req.refused(call);
  BELAY_TRY(copy_texts(req->files, req->file_count, call, "files", out.files));
  BELAY_TRY(check_text(req->text, call, "text"));
  out.text = to_string(req->text);
  BELAY_TRY(copy_texts(req->sets, req->set_count, call, "sets", out.sets));
  BELAY_TRY(copy_texts(req->plugin_dirs, req->plugin_dir_count, call, "plugin_dirs", out.plugin_dirs));
  return out;
}

Result<hal::ModelRequest> read(const belay_model_req* given, const char* call) {
  const Request req(given);
  if (!req) return req.refused(call);
  const std::pair<belay_str, const char*> texts[] = {
      {req->path, "path"},
      {{static_cast<const char*>(req->bytes.ptr), req->bytes.len}, "bytes"},
      {req->folder, "folder"},
      {req->format, "format"},
      {req->device, "device"}};
  for (const auto& [text, name] : texts) BELAY_TRY(check_text(text, call, name));
  if (req->path.len == 0 && req->bytes.len == 0)
    return Status(Code::kInvalidArgument,
                  std::string(call) + ": the request has neither a path nor bytes of a model.");
  if (req->path.len && req->bytes.ptr)
    return Status(Code::kInvalidArgument,
                  std::string(call) + ": the request has a path and bytes of a model; give one of them.");
  hal::ModelRequest out{.path = to_string(req->path),
                        .bytes = req->bytes,
                        .folder = to_string(req->folder),
                        .format = to_string(req->format),
                        .device = to_string(req->device)};
  BELAY_TRY(
      copy_texts(req->extra_outputs, req->extra_output_count, call, "extra_outputs", out.extra_outputs));
  return out;
}

}  // namespace belay::c_api
