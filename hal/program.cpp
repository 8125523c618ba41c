#include "hal/program.h"

#include "hal/hal.h"
#include "hal/requests.h"

#include <cstring>

namespace belay::hal {
namespace {

std::string node_name(const belay_program_req& req, uint64_t index) {
  const belay_node* node = req.nodes[index];
  std::string name = "node " + std::to_string(index);
  if (node && BELAY_HAS_FIELD(node, belay_node, name) && node->name.len)
    name += " '" + to_string(node->name) + "'";
  return name;
}

// The first byte of a binding as the host sees it; bindings were checked.
char* address_of(const belay_binding& binding) {
  char* base = static_cast<char*>(binding.buffer ? static_cast<Buffer*>(binding.buffer)->host : binding.host);
  return base ? base + binding.offset : nullptr;
}

// The part of a reserved buffer that a checked binding is.
std::optional<ReservedPart> reserved_part(const Hal& hal, const belay_binding& binding) {
  if (!binding.buffer) return hal.ledger().reserved(address_of(binding), binding.bytes);
  const Buffer& buffer = *static_cast<const Buffer*>(binding.buffer);
  return buffer.mapped ? std::optional(buffer.part(binding.offset, binding.bytes)) : std::nullopt;
}

}  // namespace

Status Program::check(const belay_program_req& req) {
  const auto wrong = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  if (req.node_count && !req.nodes)
    return wrong("nodes is NULL and node_count is " + std::to_string(req.node_count) + ".");
  for (uint64_t i = 0; i < req.node_count; ++i) {
    const belay_node* node = req.nodes[i];
    const auto at = [&](const std::string& text) { return wrong(node_name(req, i) + ": " + text); };
    if (!node) return at("it is NULL.");
    if (node->hdr.struct_size < LeastSize<belay_node>::value)
      return at("its struct_size is " + std::to_string(node->hdr.struct_size) + ", want " +
                std::to_string(LeastSize<belay_node>::value) + " or more.");
    if (BELAY_HAS_FIELD(node, belay_node, name) && node->name.len && !node->name.ptr)
      return at("its name is NULL, but has the length " + std::to_string(node->name.len) + ".");
    if (node->kernel && !node->kernel->fn) return at("its kernel has no function.");
    if (node->arg_count && !node->args)
      return at("args is NULL and arg_count is " + std::to_string(node->arg_count) + ".");
    for (uint64_t k = 0; k < node->arg_count; ++k) {
      const belay_arg& arg = node->args[k];
      const auto of = [&](const std::string& text) {
        return at("argument " + std::to_string(k) + " " + text);
      };
      switch (arg.kind) {
        case BELAY_ARG_BUFFER:
          if (arg.binding != BELAY_NO_BINDING && arg.binding >= req.binding_count)
            return of("is of binding " + std::to_string(arg.binding) + "; there are " +
                      std::to_string(req.binding_count) + ".");
          if (arg.value + arg.bytes < arg.value) return of("ends past 2^64.");
          break;
        case BELAY_ARG_SCALAR:
          break;
        case BELAY_ARG_BYTES:
          if (arg.bytes && !arg.value) return of("has " + std::to_string(arg.bytes) + " bytes at NULL.");
          break;
        default:
          return of("is of kind " + std::to_string(arg.kind) + ", want BUFFER, SCALAR or BYTES.");
      }
    }
  }
  if (req.dependency_count && !req.dependencies)
    return wrong("dependencies is NULL and dependency_count is " + std::to_string(req.dependency_count) +
                 ".");
  for (uint64_t i = 0; i < req.dependency_count; ++i) {
    const uint32_t before = req.dependencies[2 * i], after = req.dependencies[2 * i + 1];
    if (before >= after || after >= req.node_count)
      return wrong("dependency " + std::to_string(i) + " is (" + std::to_string(before) + ", " +
                   std::to_string(after) + "), want the earlier node first and both less than " +
                   std::to_string(req.node_count) + ".");
  }
  return {};
}

Status check_bindings(Device& device, const char* call, const belay_binding* bindings, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const belay_binding& binding = bindings[i];
    const auto of = [&](Code code, const std::string& text) {
      return Status(
          code, std::string(call) + " on '" + device.name() + "': binding " + std::to_string(i) + " " + text);
    };
    if (!binding.buffer) {
      if (binding.host && !device.host_visible())
        return of(Code::kInvalidArgument, "is host memory, which this device does not see; use a buffer.");
      if (!binding.host && binding.bytes)
        return of(Code::kInvalidArgument, "has neither a buffer nor host memory.");
      if (const auto part = reserved_part(*device.hal, binding); part && !part->has_memory())
        return of(Code::kOutOfRange, "lies in " + part->text() + ".");
      continue;
    }
    const Buffer* buffer = alive<Buffer>(binding.buffer);
    if (!buffer) return device.hal->bad_handle(binding.buffer, BELAY_OBJ_BUFFER, call, "a binding");
    if (buffer->device != &device)
      return of(Code::kInvalidArgument, "is a buffer of '" + buffer->device->name() + "'.");
    if (!buffer->holds(binding.offset, binding.bytes))
      return of(Code::kOutOfRange, "is bytes " + std::to_string(binding.offset) + " + " +
                                       std::to_string(binding.bytes) + " of a buffer, " + buffer->extent() +
                                       ".");
  }
  return {};
}

Status Program::check_launch(const belay_binding* bindings, uint64_t count) const {
  const auto wrong = [&](const std::string& text) {
    return Status(Code::kInvalidArgument, "Launch of a program on '" + device_.name() + "': " + text);
  };
  if (count != binding_count_)
    return wrong(std::to_string(count) + " bindings were given, want " + std::to_string(binding_count_) +
                 ".");
  if (count && !bindings) return wrong("bindings is NULL.");
  BELAY_TRY(check_bindings(device_, "program_launch", bindings, count));
  for (const ReservedPart& part : uses_)
    if (!part.has_memory())
      return {Code::kOutOfRange, "Launch of a program on '" + device_.name() + "': what it was captured from uses " +
                                     part.text() + "."};
  return recording_ ? recording_->check(bindings, count) : Status();
}

belay_status Program::launch(Stream& stream, const belay_binding* bindings, uint64_t count,
                             belay_event* out) {
  if (&stream.device() != &device_)
    return hal->make({Code::kInvalidArgument, "Launch of a program of '" + device_.name() +
                                                  "' on a stream of '" + stream.device().name() +
                                                  "'; use a stream of the program's device."});
  bool good = count == binding_count_ && (count == 0 || bindings) && !recording_ && uses_.empty() &&
              !stream.capturing();
  const bool any_reserved = hal->ledger().any_reserved().load(std::memory_order_relaxed);
  for (uint64_t i = 0; good && i < count; ++i) {
    const Buffer* buffer = alive<Buffer>(bindings[i].buffer);
    good = buffer ? buffer->device == &device_ && buffer->holds(bindings[i].offset, bindings[i].bytes)
                  : !bindings[i].buffer && bindings[i].host && device_.host_visible() && !any_reserved;
  }
  if (!good) [[unlikely]] {
    if (Status status = check_launch(bindings, count); !status.ok()) return hal->make(status);
    if (stream.capturing()) {
      for (const ReservedPart& part : uses_) stream.note(part);
      for (uint64_t i = 0; i < count; ++i)
        if (const auto part = reserved_part(*hal, bindings[i])) stream.note(*part);
    }
    if (recording_) return recording_->play(stream, bindings, count, out);
  }
  const auto& vt = *static_cast<const belay_driver_program_vt*>(table);
  return stream.queue("program.launch", out,
                      [&](uint64_t* value) { return vt.launch(this, &stream, bindings, count, value); });
}

// ---- recordings
// ------------------------------------------------------------------------------------------------------

std::unique_ptr<Recording> Recording::of(const belay_program_req& req) {
  auto made = std::make_unique<Recording>();
  for (uint64_t i = 0; i < req.node_count; ++i) {
    const belay_node& node = *req.nodes[i];
    if (!node.kernel) continue;  // keeps order, which a stream does anyway
    Node step{node.kernel, {node.args, node.args + node.arg_count}, {}, to_string(node.name)};
    for (const belay_arg& arg : step.args) {
      if (arg.kind != BELAY_ARG_BYTES) continue;
      std::vector<uint64_t>& copy = step.bytes.emplace_back((arg.bytes + 7) / 8);
      if (arg.bytes) std::memcpy(copy.data(), reinterpret_cast<const void*>(arg.value), arg.bytes);
    }
    made->add(std::move(step));
  }
  return made;
}

Status Recording::check(const belay_binding* bindings, uint64_t) const {
  for (const Step& step : steps_) {
    const Node* node = std::get_if<Node>(&step);
    if (!node) continue;
    for (size_t k = 0; k < node->args.size(); ++k) {
      const belay_arg& arg = node->args[k];
      if (arg.kind != BELAY_ARG_BUFFER || arg.binding == BELAY_NO_BINDING) continue;
      if (arg.value + arg.bytes > bindings[arg.binding].bytes)
        return {Code::kOutOfRange, "Node '" + node->name + "' uses bytes " + std::to_string(arg.value) +
                                       " + " + std::to_string(arg.bytes) + " of binding " +
                                       std::to_string(arg.binding) + ", which has " +
                                       std::to_string(bindings[arg.binding].bytes) + "."};
    }
  }
  return {};
}

belay_status Recording::play(Stream& stream, const Node& node, const belay_binding* bindings, bool begun,
                             belay_event* out) const {
  std::vector<uint64_t> words;
  words.reserve(node.args.size());
  size_t bytes = 0;
  for (const belay_arg& arg : node.args) {
    switch (arg.kind) {
      case BELAY_ARG_BUFFER: {
        char* base = arg.binding == BELAY_NO_BINDING ? nullptr : address_of(bindings[arg.binding]);
        words.push_back(base ? reinterpret_cast<uint64_t>(base + arg.value) : 0);
        break;
      }
      case BELAY_ARG_BYTES:
        words.push_back(reinterpret_cast<uint64_t>(node.bytes[bytes++].data()));
        break;
      default:
        words.push_back(arg.value);
    }
  }
  belay_launch_req req{};
  req.hdr.struct_size = sizeof req;
  req.kernel = node.kernel;
  req.args = words.data();
  req.arg_count = words.size();
  return stream.queue(
      "launch", out, [&](uint64_t* value) { return stream.vt().launch(&stream, &req, value); }, begun);
}

belay_status Recording::play(Stream& stream, const belay_binding* bindings, uint64_t,
                             belay_event* out) const {
  belay_event event{};
  bool begun = false;
  for (const Step& step : steps_) {
    const belay_status status = std::visit(
        [&](const auto& what) -> belay_status {
          using T = std::decay_t<decltype(what)>;
          if constexpr (std::is_same_v<T, Node>) {
            return play(stream, what, bindings, begun, &event);
          } else if constexpr (std::is_same_v<T, Launch>) {
            belay_launch_req req = what.req;
            req.args = what.args.data();
            return stream.queue(
                "launch", &event, [&](uint64_t* v) { return stream.vt().launch(&stream, &req, v); }, begun);
          } else if constexpr (std::is_same_v<T, Call>) {
            return stream.queue(
                "host_call", &event,
                [&](uint64_t* v) { return stream.vt().host_call(&stream, what.fn, what.user, v); }, begun);
          } else if constexpr (std::is_same_v<T, belay_copy_req>) {
            return stream.queue(
                "copy", &event, [&](uint64_t* v) { return stream.vt().copy(&stream, &what, v); }, begun);
          } else {
            return stream.queue(
                "fill", &event, [&](uint64_t* v) { return stream.vt().fill(&stream, &what, v); }, begun);
          }
        },
        step);
    if (status != BELAY_OK) return status;
    begun = true;
  }
  if (!event.timeline)
    if (const belay_status status = stream.record(&event); status != BELAY_OK) return status;
  if (out) *out = event;
  return BELAY_OK;
}

}  // namespace belay::hal
