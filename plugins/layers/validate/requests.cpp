// What requests ask for, and what they will touch.
#include "validate.hpp"

namespace belay::validate {

void Validate::before_alloc(On& on, Look& look, const belay_alloc_req* req, const char* how) {
  if (!req || look.fatal) return;
  look.made = {.how = std::string(how) + " of " + std::to_string(req->bytes) + " bytes", .bytes = req->bytes};
  if (req->hdr.struct_size < sizeof *req || !req->within) return;
  if (const On* whole = buffer_of(on, look, req->within, "within"))
    range(on, look, *whole, "within", req->within_offset, req->bytes);
}

void Validate::before_free(On& on, Look& look, const belay_obj* handle) {
  if (handle && !find(handle)) {  // made, and then refused by a layer: nobody else has seen it
    const std::lock_guard lock(mutex_);
    if (made_.erase(handle->impl)) return;
  }
  On* const buffer = buffer_of(on, look, handle, "buffer");
  if (!buffer) return;
  if (races_)
    for (const Order::Pending& use : order_.pending(buffer->number)) {
      // Whether it is reached the host may know in ways that no call tells: the stream is asked.
      belay_status now = BELAY_OK;
      std::shared_lock<std::shared_mutex> asked;
      const On* stream = nullptr;
      {
        const std::lock_guard lock(mutex_);
        const auto at = streams_.find(use.timeline);
        if (at == streams_.end()) continue;
        stream = at->second;
        asked = std::shared_lock(at->second->state.ending, std::try_to_lock);
      }
      if (!asked || stream->state.ended.load()) continue;
      now = static_cast<const belay_stream_vt*>(stream->next)->query(stream->object, use.value);
      host().status_release(&host(), now);
      if (BELAY_STATUS_CODE(now) == BELAY_UNAVAILABLE)
        wrong(look, on, "in_use", buffer->state.name,
              buffer->state.name + " is freed while " + use.text + " has not ended; wait for event " +
                  std::to_string(use.timeline) + ":" + std::to_string(use.value) + " before");
    }
  if (strict_ && !look.first.empty()) return;
  buffer->state.ended = true;
}

void Validate::access(Look& look, const On& buffer, uint64_t offset, uint64_t bytes, bool write) {
  if (races_ && bytes)
    look.accesses.push_back({buffer.object, buffer.number, buffer.state.name, offset, offset + bytes, write, look.slot});
}

void Validate::accesses(On& on, Look& look, const belay_access* const* list, uint64_t count) {
  if (count && !required(on, look, list, "accesses")) return;
  for (uint64_t i = 0; i < count; ++i) {
    if (!required(on, look, list[i], "an access")) return;
    const belay_access& each = *list[i];
    const On* buffer = buffer_of(on, look, each.buffer, "the buffer of an access");
    if (!buffer || !range(on, look, *buffer, "an access", each.offset, each.bytes)) continue;
    access(look, *buffer, each.offset, each.bytes, each.mode & BELAY_ACCESS_WRITE);
  }
}

void Validate::before_copy(On& on, Look& look, const belay_copy_req* req) {
  look.stream = &on;
  if (!req || look.fatal) return;
  const auto side = [&](const belay_obj* handle, const void* address, uint64_t offset, const char* name, bool write) {
    if (!handle) {
      if (req->bytes) required(on, look, address, name);
      return;
    }
    const On* buffer = buffer_of(on, look, handle, name);
    if (buffer && range(on, look, *buffer, name, offset, req->bytes)) access(look, *buffer, offset, req->bytes, write);
  };
  side(req->src, req->host_src, req->src_offset, "src", false);
  side(req->dst, req->host_dst, req->dst_offset, "dst", true);
  if (req->dst && req->dst == req->src && req->bytes && req->dst_offset < req->src_offset + req->bytes &&
      req->src_offset < req->dst_offset + req->bytes)
    wrong(look, on, "range", "overlap",
          "source and destination overlap in one buffer: bytes " + std::to_string(req->src_offset) + " and " +
              std::to_string(req->dst_offset) + " + " + std::to_string(req->bytes));
}

void Validate::before_fill(On& on, Look& look, const belay_fill_req* req) {
  look.stream = &on;
  if (!req || look.fatal) return;
  const uint64_t unit = req->pattern_bytes;
  if ((unit != 1 && unit != 2 && unit != 4 && unit != 8) || req->bytes % unit)
    wrong(look, on, "range", "pattern",
          "pattern_bytes is " + std::to_string(unit) + " for " + std::to_string(req->bytes) +
              " bytes, want 1, 2, 4 or 8, which divides them");
  const On* buffer = buffer_of(on, look, req->dst, "dst");
  if (buffer && range(on, look, *buffer, "dst", req->dst_offset, req->bytes))
    access(look, *buffer, req->dst_offset, req->bytes, true);
}

void Validate::before_launch(On& on, Look& look, const belay_launch_req* req) {
  look.stream = &on;
  if (!req || look.fatal) return;
  if (!required(on, look, req->kernel, "kernel")) return;
  if (!req->kernel->fn)
    wrong(look, on, "null", "fn", "kernel '" + to_string(req->kernel->name) + "' has no function", true);
  if (req->arg_count) required(on, look, req->args, "args");
  if (!req->access_count && races_)
    findings_.note("Launches without a list of accesses, such as that of kernel '" + to_string(req->kernel->name) +
                   "' on " + on.state.name + ", are not looked at for races.");
  accesses(on, look, req->accesses, req->access_count);
}

void Validate::before_wait(On& on, Look& look, belay_event event) {
  look.stream = &on;
  if (!races_ || on.state.capturing) return;
  order_.wait(on.state.made.timeline, event);  // before others may know of the wait
}

void Validate::before_host_call(On& on, Look& look, void (*&fn)(void*), void*& user) {
  look.stream = &on;
  if (!fn) return void(required(on, look, static_cast<void*>(nullptr), "fn"));
  if (!races_ || on.state.capturing) return;
  const std::lock_guard lock(mutex_);
  auto& list = on.state.host_calls;
  list.push_back(nullptr);
  list.back().reset(new HostCall{*this, on.state.made.timeline, on.state.last, fn, user, list, std::prev(list.end())});
  fn = &Validate::run_host_call, user = list.back().get();
}

void Validate::before_program(On& on, Look& look, const belay_program_req* req) {
  if (!req || look.fatal) return;
  if (req->node_count && !required(on, look, req->nodes, "nodes")) return;
  auto recorded = std::make_shared<Recorded>();
  for (uint64_t i = 0; i < req->node_count; ++i) {
    if (!required(on, look, req->nodes[i], "a node")) return;
    const belay_node& node = *req->nodes[i];
    recorded->nodes.push_back(to_string(node.name));
    if (node.arg_count && !required(on, look, node.args, "the arguments of a node")) return;
    for (uint64_t k = 0; k < node.arg_count; ++k) {
      const belay_arg& arg = node.args[k];
      if (arg.kind != BELAY_ARG_BUFFER || arg.binding == BELAY_NO_BINDING) continue;
      if (arg.binding >= req->binding_count) {
        wrong(look, on, "range", "binding",
              "node '" + recorded->nodes.back() + "', argument " + std::to_string(k) + ": binding " +
                  std::to_string(arg.binding) + ", want less than " + std::to_string(req->binding_count));
        continue;
      }
      if (!arg.bytes) continue;
      for (const uint32_t mode : {BELAY_ACCESS_READ, BELAY_ACCESS_WRITE})
        if (arg.access & mode)
          recorded->uses.push_back({arg.binding, arg.value, arg.value + arg.bytes, mode == BELAY_ACCESS_WRITE, uint32_t(i)});
    }
  }
  recorded->finish();
  look.made = {.how = "program.create of " + std::to_string(req->node_count) + " nodes", .bindings = req->binding_count};
  look.made.recorded = std::move(recorded);
}

Validate::On* Validate::launch_stream(On& on, Look& look, const belay_obj* handle) {
  On* const stream = object_of(on, look, handle, BELAY_OBJ_STREAM, "stream");
  if (!stream) return nullptr;
  if (stream->state.device != on.state.device) {
    wrong(look, on, "foreign", "stream", "the stream is " + stream->state.name + ", of another device", true);
    return nullptr;
  }
  look.stream = stream;
  return stream;
}

Validate::On* Validate::binding(On& on, Look& look, const belay_binding& each, uint64_t index) {
  if (!each.buffer) return nullptr;
  const std::string name = "binding " + std::to_string(index);
  On* const buffer = buffer_of(on, look, each.buffer, name.c_str());
  return buffer && range(on, look, *buffer, name.c_str(), each.offset, each.bytes) ? buffer : nullptr;
}

void Validate::before_program_launch(On& on, Look& look, const belay_obj* stream, const belay_binding* bindings,
                                     uint64_t count) {
  if (!launch_stream(on, look, stream)) return;
  if (count && !required(on, look, bindings, "bindings")) return;
  std::vector<const On*> buffers(count);
  for (uint64_t i = 0; i < count; ++i) buffers[i] = binding(on, look, bindings[i], i);
  if (look.fatal) return;
  if (const auto& recorded = on.state.made.recorded) {
    if (count != on.state.made.bindings)
      return wrong(look, on, "range", "count",
                   std::to_string(count) + " bindings were given, want " + std::to_string(on.state.made.bindings));
    for (uint64_t i = 0; i < count && i < recorded->need.size(); ++i)
      if (bindings[i].bytes < recorded->need[i])
        wrong(look, on, "range", "need " + std::to_string(i),
              "binding " + std::to_string(i) + " has " + std::to_string(bindings[i].bytes) +
                  " bytes, and the nodes use " + std::to_string(recorded->need[i]));
    if (!races_ || !look.first.empty()) return;
    for (const Recorded::Use& use : recorded->coarse) {
      const On* const buffer = buffers[use.binding];
      if (!buffer) continue;
      const uint64_t at = bindings[use.binding].offset;
      look.accesses.push_back({buffer->object, buffer->number, buffer->state.name, at + use.begin, at + use.end, use.write, look.slot,
                               recorded, on.state.name, use.binding, at});
    }
  }
  for (const Captured& each : on.state.made.captured) {
    const On* const buffer = find(each.buffer);
    if (!buffer || buffer->number != each.number || buffer->state.ended.load())
      wrong(look, on, "handle", each.name, "what it was captured from uses " + each.name + ", which was freed", true);
    else
      access(look, *buffer, each.begin, each.end - each.begin, each.write);
  }
}

void Validate::before_package_launch(On& on, Look& look, const belay_obj* stream, const belay_binding* bindings,
                                     uint64_t count) {
  if (!launch_stream(on, look, stream)) return;
  if (count && !required(on, look, bindings, "bindings")) return;
  for (uint64_t i = 0; i < count; ++i) binding(on, look, bindings[i], i);
  if (races_) findings_.note("Launches of packages, such as that of " + on.state.name + ", are not looked at for races.");
}

}  // namespace belay::validate
