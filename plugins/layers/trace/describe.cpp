#include "describe.hpp"

#include "trace.hpp"

namespace belay::trace {
namespace {

std::string side(const char* name, const belay_obj* buffer, const void* host, uint64_t offset) {
  return std::string(name) + "=" +
         (buffer ? name_of(buffer)
          : host ? "host"
                 : "NULL") +
         (offset ? "+" + std::to_string(offset) : "");
}

}  // namespace

std::string name_of(const belay_obj* object) {
  if (!object) return "NULL";
  const Trace::On* on = Trace::of(object);
  return std::string(kind_name(object->kind)) + (on ? " " + std::to_string(on->number) : "");
}

std::string describe(const belay_obj* object) { return name_of(object); }
std::string describe(belay_str text) { return "'" + to_string(text) + "'"; }
std::string describe(belay_event event) {
  return "event " + std::to_string(event.timeline) + ":" + std::to_string(event.value);
}
std::string describe(const belay_copy_req* req) {
  return side("dst", req->dst, req->host_dst, req->dst_offset) + " " +
         side("src", req->src, req->host_src, req->src_offset) + " bytes=" + std::to_string(req->bytes);
}
std::string describe(const belay_fill_req* req) {
  return side("dst", req->dst, nullptr, req->dst_offset) + " bytes=" + std::to_string(req->bytes) +
         " pattern=" + std::to_string(req->pattern) + " of " + std::to_string(req->pattern_bytes);
}
std::string describe(const belay_launch_req* req) { return "args=" + std::to_string(req->arg_count); }
std::string describe(const belay_alloc_req* req) {
  return "bytes=" + std::to_string(req->bytes) + " align=" + std::to_string(req->align) +
         " heap=" + std::to_string(req->heap) + (req->host ? " of the host's" : "") +
         (req->hdr.struct_size >= sizeof *req && req->within
              ? " within " + name_of(req->within) + "+" + std::to_string(req->within_offset)
              : "");
}
std::string describe(const belay_stream_req* req) {
  return "timeline=" + std::to_string(req->timeline) + " priority=" + std::to_string(req->priority);
}
std::string describe(const belay_program_req* req) {
  return "nodes=" + std::to_string(req->node_count) + " bindings=" + std::to_string(req->binding_count);
}
std::string describe(const belay_place_req* req) {
  return "bytes=" + std::to_string(req->bytes) + " align=" + std::to_string(req->align) +
         " heap=" + std::to_string(req->heap) + " timeline=" + std::to_string(req->timeline);
}
std::string describe(const belay_plan_req* req) { return "buffers=" + std::to_string(req->count); }
std::string describe(const belay_bind_req* req) { return "bytes=" + std::to_string(req->bytes); }
std::string describe(const belay_load_req* req) { return describe(req->name); }
std::string describe(const belay_tensor* tensor) {
  if (!tensor) return "NULL";
  std::string text = "type " + std::to_string(tensor->dtype) + " [";
  for (uint32_t i = 0; i < tensor->rank; ++i) text += (i ? "," : "") + std::to_string(tensor->dims[i]);
  return text + "] " + (tensor->buffer ? "in " + name_of(tensor->buffer) : "of the host's");
}
std::string describe(const belay_datum* datum) {
  return !datum          ? "NULL"
         : datum->tensor ? describe(datum->tensor)
                         : std::to_string(datum->item_count) + " items";
}

}  // namespace belay::trace
