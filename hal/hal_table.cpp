// The C table of service belay.host.hal/1. Nothing is decided here: handles and sizes are checked, exceptions
// stop.
#include "core/base/last_error.h"
#include "hal/hal.h"
#include "hal/requests.h"
#include "hal/tensor_view.h"

#include <algorithm>
#include <new>

namespace belay::hal {
namespace {

Hal* hal_of(const belay_host* host) { return host ? static_cast<Hal*>(core::user_of(host)) : nullptr; }

// Answers begin with their header at least; of what they hold the caller gets as much as it knows.
template <class T>
bool sized(const T* inout) {
  return inout && inout->hdr.struct_size >= sizeof(belay_hdr);
}
template <class T>
Status bad_answer(const char* call, const T* inout) {
  return bad_size(inout, sizeof(belay_hdr), call, "inout");
}
// What a driver's slot fills: it may know more of the struct than the caller.
template <class T, class Slot>
belay_status ask(T* inout, Slot&& slot) {
  T whole = complete(*inout);
  const belay_status status = slot(&whole);
  if (status != BELAY_OK) return status;
  belay::fill(inout, whole);
  inout->hdr.flags = whole.hdr.flags;
  return BELAY_OK;
}

// What is thrown below, by us or by a plugin, ends here.
[[gnu::cold, gnu::noinline]] belay_status thrown(Hal* hal, const char* call) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return BELAY_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    try {
      return hal->make(
          {Code::kInternal, std::string(call) + ": an exception came out of a plugin: " + error.what()});
    } catch (...) {
      return BELAY_INTERNAL;
    }
  } catch (...) {
    return hal->host().table().status_make(
        &hal->host().table(), BELAY_INTERNAL,
        to_str("something that is no std::exception came out of a plugin"));
  }
}

// What the application is told of its own calls is kept for its thread; what plugins call is theirs.
belay_status told(const belay_host* host, belay_status status) noexcept {
  if (status != BELAY_OK && (!host || core::plugin_of(host).empty())) [[unlikely]]
    core::keep_last_error(status);
  return status;
}

// For calls about the host as a whole.
template <class Body>
belay_status with_hal(const belay_host* host, const char* call, Body&& body) noexcept {
  Hal* hal = hal_of(host);
  if (!hal) return told(host, BELAY_FAILED_PRECONDITION);
  try {
    if (hal->forked()) [[unlikely]]
      return told(host, hal->make(hal->forked_status()));
    return told(host, body(*hal));
  } catch (...) {
    return told(host, thrown(hal, call));
  }
}

// For calls about one object: its own Hal counts, so nothing is read of the host unless the handle is bad.
template <class T, class Body>
belay_status with(const belay_host* host, belay_obj* handle, const char* call, const char* name,
                  Body&& body) noexcept {
  T* object = alive<T>(handle);
  if (!object) [[unlikely]]
    return with_hal(host, call,
                    [&](Hal& hal) { return hal.make(hal.bad_handle(handle, T::kKind, call, name)); });
  try {
    return told(host, body(*object));
  } catch (...) {
    return told(host, thrown(object->hal, call));
  }
}

template <class Body>
belay_status on_stream(const belay_host* host, belay_obj* handle, const char* call, Body&& body) noexcept {
  return with<Stream>(host, handle, call, "stream", body);
}

template <class T, class Body>
void end(const belay_host* host, belay_obj* handle, const char* call, const char* name,
         Body&& body) noexcept {
  if (!handle) return;
  const belay_status status = with<T>(host, handle, call, name, [&](T& object) {
    Hal* const hal = object.hal;
    const bool held = object.held;
    body(object);
    if (held) hal->let_go();
    return belay_status(BELAY_OK);
  });
  if (status == BELAY_OK) return;
  Hal* hal = hal_of(host);
  if (!hal) return;
  try {
    const Status what = from_c(hal->host().table(), status);
    if (!hal->forked()) hal->host().log().error("hal", what.message());
  } catch (...) {  // no memory to say so
  }
}

// Queues with `queue(&event)`; where memory is checked, what `operands(buffers, addresses)` names is in use
// until then.
template <class Queue, class Operands>
belay_status queue_use(Hal& hal, const char* call, belay_event* out, Queue&& queue, Operands&& operands) {
  if (!hal.options().checked) [[likely]]
    return queue(out);
  belay_event event{};
  const belay_status status = queue(&event);
  if (status != BELAY_OK) return status;
  if (out) *out = event;
  std::vector<belay_obj*> buffers;
  std::vector<const void*> addresses;
  operands(buffers, addresses);
  hal.uses().queued(call, event, buffers, addresses);
  return status;
}

void add_bindings(const belay_binding* bindings, uint64_t count, std::vector<belay_obj*>& buffers,
                  std::vector<const void*>& addresses) {
  for (uint64_t i = 0; i < count; ++i) {
    buffers.push_back(bindings[i].buffer);
    if (!bindings[i].buffer) addresses.push_back(bindings[i].host);
  }
}

belay_status created(Hal& hal, const belay_host* host, auto result, belay_obj** out) {
  if (!result.ok()) return hal.make(result.status());
  if (host && core::plugin_of(host).empty()) hal.hold(**result);
  *out = *result;
  return BELAY_OK;
}

// For calls that make what `make(req)` gives.
template <class T, class Make>
belay_status create(Hal& hal, const belay_host* host, const char* call, const T* req, belay_obj** out,
                    Make&& make) {
  const Request whole(req);
  if (!whole) return hal.make(whole.refused(call));
  if (!out) return hal.make(null_argument(call, "out"));
  return created(hal, host, make(*whole), out);
}

// ---- devices
// ---------------------------------------------------------------------------------------------------------

uint64_t device_count(const belay_host* host) {
  Hal* hal = hal_of(host);
  return hal && !hal->forked() ? hal->devices().count() : 0;
}

belay_status device(const belay_host* host, uint64_t index, belay_obj** out) {
  return with_hal(host, "device", [&](Hal& hal) {
    if (!out) return hal.make(null_argument("device", "out"));
    Result<Device*> device = hal.devices().open(index);
    if (!device.ok()) return hal.make(device.status());
    *out = *device;
    return belay_status(BELAY_OK);
  });
}

belay_status device_info(const belay_host* host, belay_obj* handle, belay_device_info* info) {
  return with<Device>(host, handle, "device_info", "device", [&](Device& device) {
    if (!sized(info)) return device.hal->make(bad_answer("device_info", info));
    return device.hal->pass(ask(info, [&](auto* whole) { return device.vt().info(&device, whole); }),
                            device.driver(), "info");
  });
}

belay_status heap_info(const belay_host* host, belay_obj* handle, uint64_t heap, belay_heap_info* info) {
  return with<Device>(host, handle, "heap_info", "device", [&](Device& device) {
    if (!sized(info)) return device.hal->make(bad_answer("heap_info", info));
    if (heap >= device.info().heap_count)
      return device.hal->make({Code::kOutOfRange, "Heap " + std::to_string(heap) + " of '" + device.name() +
                                                      "': there are " +
                                                      std::to_string(device.info().heap_count) + "."});
    return device.hal->pass(ask(info, [&](auto* whole) { return device.vt().heap(&device, heap, whole); }),
                            device.driver(), "heap");
  });
}

belay_status health(const belay_host* host, belay_obj* handle, belay_health* inout) {
  return with<Device>(host, handle, "health", "device", [&](Device& device) {
    if (!sized(inout)) return device.hal->make(bad_answer("health", inout));
    return device.hal->pass(ask(inout, [&](auto* whole) { return device.vt().health(&device, whole); }),
                            device.driver(), "health");
  });
}

belay_status reset(const belay_host* host, belay_obj* handle) {
  return with<Device>(host, handle, "reset", "device", [&](Device& device) {
    if (!BELAY_HAS(&device.vt(), belay_device_vt, reset))
      return device.hal->make(
          {Code::kUnimplemented, "Device '" + device.name() + "' cannot be reset by its driver."});
    return device.hal->pass(device.vt().reset(&device), device.driver(), "reset");
  });
}

belay_status memory_info(const belay_host* host, belay_obj* handle, belay_hal_memory_info* inout) {
  return with<Device>(host, handle, "memory_info", "device", [&](Device& device) {
    if (!sized(inout)) return device.hal->make(bad_answer("memory_info", inout));
    device.retired().sweep(SIZE_MAX);
    belay_hal_memory_info info = complete(*inout);
    info.bytes = device.bytes_in_use();
    info.peak_bytes = device.peak_bytes();
    info.buffers = device.live_buffers();
    info.allocations = device.allocations();
    info.limit = device.hal->options().memory_limit;
    if (info.usage.write) write(info.usage, device.usage());
    info.damaged = device.damaged();
    belay::fill(inout, info);
    return belay_status(BELAY_OK);
  });
}

// ---- buffers
// ---------------------------------------------------------------------------------------------------------

std::string_view owner_of(const belay_host* host) {
  return host ? core::plugin_of(host) : std::string_view();
}

belay_status buffer_create(const belay_host* host, belay_obj* handle, const belay_alloc_req* req,
                           belay_obj** out) {
  return with<Device>(host, handle, "buffer_create", "device", [&](Device& device) {
    return create(*device.hal, host, "buffer_create", req, out,
                  [&](const belay_alloc_req& req) { return device.alloc(req, owner_of(host)); });
  });
}

belay_status buffer_info(const belay_host* host, belay_obj* handle, belay_hal_buffer_info* inout) {
  return with<Buffer>(host, handle, "buffer_info", "buffer", [&](Buffer& buffer) {
    if (!sized(inout)) return buffer.hal->make(bad_answer("buffer_info", inout));
    belay_hal_buffer_info info{};
    info.device = buffer.device;
    info.bytes = buffer.bytes;
    info.host = buffer.host;
    info.mapped_bytes = buffer.bytes;
    if (buffer.reserved()) {
      std::lock_guard lock(buffer.mapped->mutex());
      info.mapped_bytes = buffer.mapped->total();
      info.granularity = buffer.device->granularity();
    }
    belay::fill(inout, info);
    return belay_status(BELAY_OK);
  });
}

void buffer_destroy(const belay_host* host, belay_obj* handle) {
  end<Buffer>(host, handle, "buffer_destroy", "buffer", [host](Buffer& buffer) {
    Hal& hal = *buffer.hal;
    std::vector<belay_event> left;
    if (hal.options().checked) {
      if (const Status wrong = hal.uses().end(buffer, left); !wrong.ok()) {
        hal.host().log().error("hal", wrong.message());
        hal.release(told(host, hal.make(wrong)));
      }
    }
    if (left.empty() || !buffer.device->free_after(&buffer, left).ok()) buffer.device->free(&buffer);
  });
}

belay_status reserve(const belay_host* host, belay_obj* handle, const belay_alloc_req* req, belay_obj** out) {
  return with<Device>(host, handle, "reserve", "device", [&](Device& device) {
    return create(*device.hal, host, "reserve", req, out,
                  [&](const belay_alloc_req& req) { return device.reserve(req, owner_of(host)); });
  });
}

belay_status map(const belay_host* host, belay_obj* handle, uint64_t offset, uint64_t bytes) {
  return with<Buffer>(host, handle, "map", "buffer", [&](Buffer& buffer) {
    return buffer.hal->make(buffer.device->map(buffer, offset, bytes));
  });
}

belay_status unmap(const belay_host* host, belay_obj* handle, uint64_t offset, uint64_t bytes) {
  return with<Buffer>(host, handle, "unmap", "buffer", [&](Buffer& buffer) {
    return buffer.hal->make(buffer.device->unmap(buffer, offset, bytes));
  });
}

belay_status find(const belay_host* host, const void* address, belay_obj** out_buffer, uint64_t* out_offset) {
  return with_hal(host, "find", [&](Hal& hal) {
    if (!out_buffer || !out_offset) return hal.make(null_argument("find", "out_buffer or out_offset"));
    const AddressMap::Found found = hal.ledger().find(address);
    if (!found.buffer) return belay_status(BELAY_NOT_FOUND);  // an answer that is asked for often: no text
    *out_buffer = found.buffer;
    *out_offset = found.offset;
    return belay_status(BELAY_OK);
  });
}

// ---- streams
// ---------------------------------------------------------------------------------------------------------

belay_status stream_create(const belay_host* host, belay_obj* handle, const belay_hal_stream_req* req,
                           belay_obj** out) {
  return with<Device>(host, handle, "stream_create", "device", [&](Device& device) {
    return create(*device.hal, host, "stream_create", req, out,
                  [&](const belay_hal_stream_req& req) { return device.make_stream(req); });
  });
}

void stream_destroy(const belay_host* host, belay_obj* handle) {
  end<Stream>(host, handle, "stream_destroy", "stream",
              [](Stream& stream) { stream.device().end_stream(&stream); });
}

belay_status copy(const belay_host* host, belay_obj* handle, const belay_copy_req* req, belay_event* out) {
  return on_stream(host, handle, "copy", [&](Stream& stream) {
    const Request whole(req);
    if (!whole) [[unlikely]]
      return stream.hal->make(whole.refused("copy"));
    return queue_use(
        *stream.hal, "copy", out, [&](belay_event* event) { return stream.copy(*whole, event); },
        [&](auto& buffers, auto& addresses) {
          buffers = {whole->dst, whole->src};
          addresses = {whole->host_dst, whole->host_src};
        });
  });
}

belay_status fill(const belay_host* host, belay_obj* handle, const belay_fill_req* req, belay_event* out) {
  return on_stream(host, handle, "fill", [&](Stream& stream) {
    const Request whole(req);
    if (!whole) [[unlikely]]
      return stream.hal->make(whole.refused("fill"));
    return queue_use(
        *stream.hal, "fill", out, [&](belay_event* event) { return stream.fill(*whole, event); },
        [&](auto& buffers, auto&) { buffers = {whole->dst}; });
  });
}

belay_status launch(const belay_host* host, belay_obj* handle, const belay_launch_req* req,
                    belay_event* out) {
  return on_stream(host, handle, "launch", [&](Stream& stream) {
    const Request whole(req);
    if (!whole) [[unlikely]]
      return stream.hal->make(whole.refused("launch"));
    return queue_use(
        *stream.hal, "launch", out, [&](belay_event* event) { return stream.launch(*whole, event); },
        [&](auto&, auto& addresses) {  // words that are no addresses lie in no buffer
          for (uint64_t i = 0; i < whole->arg_count; ++i)
            addresses.push_back(reinterpret_cast<const void*>(whole->args[i]));
        });
  });
}

belay_status wait(const belay_host* host, belay_obj* handle, belay_event event) {
  return on_stream(host, handle, "wait", [&](Stream& stream) { return stream.wait(event); });
}

belay_status host_call(const belay_host* host, belay_obj* handle, void (*fn)(void*), void* user,
                       belay_event* out) {
  return on_stream(host, handle, "host_call",
                   [&](Stream& stream) { return stream.host_call(fn, user, out); });
}

belay_status flush(const belay_host* host, belay_obj* handle) {
  return on_stream(host, handle, "flush", [&](Stream& stream) { return stream.flush(); });
}

belay_status record(const belay_host* host, belay_obj* handle, belay_event* out) {
  return on_stream(host, handle, "record", [&](Stream& stream) {
    if (!out) return stream.hal->make(null_argument("record", "out"));
    return stream.record(out);
  });
}

belay_status recover(const belay_host* host, belay_obj* handle) {
  return on_stream(host, handle, "recover", [&](Stream& stream) { return stream.recover(); });
}

belay_status pending(const belay_host* host, belay_obj* handle, uint64_t* out) {
  return on_stream(host, handle, "pending", [&](Stream& stream) {
    if (!out) return stream.hal->make(null_argument("pending", "out_operations"));
    *out = stream.pending();
    return belay_status(BELAY_OK);
  });
}

// ---- events
// ----------------------------------------------------------------------------------------------------------

// Calls body(stream) for the stream of an event; one whose stream has ended is reached.
template <class Body, class Ended>
belay_status on_event(const belay_host* host, belay_event event, const char* call, Body&& body,
                      Ended&& ended) noexcept {
  return with_hal(host, call, [&](Hal& hal) -> belay_status {
    if (event.timeline == 0) return ended();
    if (!hal.timelines().ours(event.timeline)) [[unlikely]]
      return hal.make({Code::kNotFound, std::string(call) + ": the event's timeline " +
                                            std::to_string(event.timeline) + " is none of this runtime."});
    const Timelines::Pin stream(hal.timelines(), event.timeline);
    if (!stream) [[unlikely]] {
      if (hal.timelines().state(event.timeline) == Timelines::State::kEnded) return ended();
      return hal.make({Code::kNotFound, std::string(call) + ": the event's timeline " +
                                            std::to_string(event.timeline) + " is that of no stream."});
    }
    if (event.value > stream->last_value()) [[unlikely]]
      return hal.make({Code::kOutOfRange, std::string(call) + ": value " + std::to_string(event.value) +
                                              " of the event is not queued yet on its stream of '" +
                                              stream->device().name() + "', the last is " +
                                              std::to_string(stream->last_value()) + "."});
    return body(*stream);
  });
}

belay_status reached() { return BELAY_OK; }

belay_status query(const belay_host* host, belay_event event) {
  return on_event(
      host, event, "query", [&](Stream& stream) { return stream.query(event.value); }, reached);
}

belay_status synchronize(const belay_host* host, belay_event event, uint64_t timeout_ns) {
  return on_event(
      host, event, "synchronize",
      [&](Stream& stream) {
        const belay_status status = stream.synchronize(event.value, timeout_ns);
        stream.device().retired().sweep();
        return status;
      },
      reached);
}

belay_status on_reached(const belay_host* host, belay_event event, belay_completion completion) {
  if (!completion.done)
    return with_hal(host, "on_reached",
                    [&](Hal& hal) { return hal.make(null_argument("on_reached", "done")); });
  return on_event(
      host, event, "on_reached", [&](Stream& stream) { return stream.on_reached(event.value, completion); },
      [&]() -> belay_status {
        completion.done(completion.user, BELAY_OK);
        return BELAY_OK;
      });
}

// ---- programs
// --------------------------------------------------------------------------------------------------------

belay_status program_create(const belay_host* host, belay_obj* handle, const belay_program_req* req,
                            belay_obj** out) {
  return with<Device>(host, handle, "program_create", "device", [&](Device& device) {
    return create(*device.hal, host, "program_create", req, out,
                  [&](const belay_program_req& req) { return device.make_program(req); });
  });
}

belay_status program_launch(const belay_host* host, belay_obj* handle, belay_obj* on,
                            const belay_binding* bindings, uint64_t count, belay_event* out) {
  return with<Program>(host, handle, "program_launch", "program", [&](Program& program) {
    Stream* stream = alive<Stream>(on);
    if (!stream) [[unlikely]]
      return program.hal->make(program.hal->bad_handle(on, BELAY_OBJ_STREAM, "program_launch", "stream"));
    return queue_use(
        *program.hal, "program_launch", out,
        [&](belay_event* event) { return program.launch(*stream, bindings, count, event); },
        [&](auto& buffers, auto& addresses) { add_bindings(bindings, count, buffers, addresses); });
  });
}

void program_destroy(const belay_host* host, belay_obj* handle) {
  end<Program>(host, handle, "program_destroy", "program",
               [](Program& program) { program.device().end_program(&program); });
}

belay_status capture_begin(const belay_host* host, belay_obj* handle) {
  return on_stream(host, handle, "capture_begin", [&](Stream& stream) { return stream.capture_begin(); });
}

belay_status capture_end(const belay_host* host, belay_obj* handle, belay_obj** out) {
  return on_stream(host, handle, "capture_end", [&](Stream& stream) {
    if (!out) return stream.hal->make(null_argument("capture_end", "out_program"));
    return created(*stream.hal, host, stream.capture_end(), out);
  });
}

// ---- packages
// --------------------------------------------------------------------------------------------------------

belay_status package_load(const belay_host* host, belay_obj* handle, const belay_package_req* req,
                          belay_obj** out) {
  return with<Device>(host, handle, "package_load", "device", [&](Device& device) {
    return create(*device.hal, host, "package_load", req, out,
                  [&](const belay_package_req& req) { return device.load_package(req); });
  });
}

belay_status package_info(const belay_host* host, belay_obj* handle, belay_package_info* inout) {
  return with<Package>(host, handle, "package_info", "package", [&](Package& package) {
    if (!sized(inout)) return package.hal->make(bad_answer("package_info", inout));
    belay::fill(inout, package.info());
    return belay_status(BELAY_OK);
  });
}

belay_status package_io(const belay_host* host, belay_obj* handle, const char* call, bool output,
                        uint64_t index, belay_io_info* inout) {
  return with<Package>(host, handle, call, "package", [&](Package& package) {
    if (!sized(inout)) return package.hal->make(bad_answer(call, inout));
    return ask(inout, [&](belay_io_info* whole) { return package.io(output, index, whole); });
  });
}

belay_status package_input_info(const belay_host* host, belay_obj* handle, uint64_t index,
                                belay_io_info* inout) {
  return package_io(host, handle, "package_input_info", false, index, inout);
}

belay_status package_output_info(const belay_host* host, belay_obj* handle, uint64_t index,
                                 belay_io_info* inout) {
  return package_io(host, handle, "package_output_info", true, index, inout);
}

belay_status package_launch(const belay_host* host, belay_obj* handle, belay_obj* on,
                            const belay_binding* bindings, uint64_t count, belay_event* out) {
  return with<Package>(host, handle, "package_launch", "package", [&](Package& package) {
    Stream* stream = alive<Stream>(on);
    if (!stream)
      return package.hal->make(package.hal->bad_handle(on, BELAY_OBJ_STREAM, "package_launch", "stream"));
    return queue_use(
        *package.hal, "package_launch", out,
        [&](belay_event* event) { return package.launch(*stream, bindings, count, event); },
        [&](auto& buffers, auto& addresses) { add_bindings(bindings, count, buffers, addresses); });
  });
}

void package_destroy(const belay_host* host, belay_obj* handle) {
  end<Package>(host, handle, "package_destroy", "package",
               [](Package& package) { package.device().end_package(&package); });
}

// ---- memory in the order of streams
// --------------------------------------------------------------------------------------

belay_status buffer_create_on(const belay_host* host, belay_obj* handle, const belay_alloc_req* req,
                              belay_obj** out) {
  return on_stream(host, handle, "buffer_create_on", [&](Stream& stream) {
    if (stream.capturing())
      return stream.hal->make(
          {Code::kFailedPrecondition,
           "buffer_create_on: the stream of '" + stream.device().name() +
               "' is capturing, and memory of a recording is that of every launch; make the "
               "buffer with buffer_create and keep it as long as the program."});
    return create(*stream.hal, host, "buffer_create_on", req, out, [&](const belay_alloc_req& req) {
      return stream.device().alloc(req, owner_of(host), &stream);
    });
  });
}

// The last of each timeline.
std::vector<belay_event> last_of_each(std::span<const belay_event> events) {
  std::vector<belay_event> last;
  for (const belay_event& event : events) {
    const auto at = std::find_if(last.begin(), last.end(),
                                 [&](const belay_event& known) { return known.timeline == event.timeline; });
    if (at == last.end())
      last.push_back(event);
    else
      at->value = std::max(at->value, event.value);
  }
  return last;
}

belay_status buffer_destroy_after(const belay_host* host, belay_obj* handle, const belay_event* uses,
                                  uint64_t count) {
  return with<Buffer>(host, handle, "buffer_destroy_after", "buffer", [&](Buffer& buffer) {
    Hal* const hal = buffer.hal;
    if (count && !uses) return hal->make(null_argument("buffer_destroy_after", "uses"));
    const std::vector<belay_event> events = last_of_each({uses, count});
    for (const belay_event& event : events)
      if (const belay_status bad = on_event(
              &hal->host().table(), event, "buffer_destroy_after", [](Stream&) { return BELAY_OK; }, reached);
          bad != BELAY_OK)
        return bad;
    if (hal->options().checked)
      if (const Status wrong = hal->uses().end_after(buffer, events); !wrong.ok()) return hal->make(wrong);
    const bool held = buffer.held;
    Status status = buffer.device->free_after(&buffer, events);
    if (!status.ok()) return hal->make(status);
    if (held) hal->let_go();
    return belay_status(BELAY_OK);
  });
}

// ---- policies
// --------------------------------------------------------------------------------------------------------

belay_status plan(const belay_host* host, const belay_plan_req* req, belay_plan_result* result) {
  return with_hal(host, "plan", [&](Hal& hal) {
    const Request whole(req);
    if (!whole) return hal.make(whole.refused("plan"));
    const Request given(static_cast<const belay_plan_result*>(result));
    if (!given) return hal.make(given.refused("plan", "the result"));
    belay_plan_result answer = complete(*given);
    const Status planned = hal.planner().plan(*whole, answer);
    if (!planned.ok()) return hal.make(planned);
    belay::fill(result, answer);
    return belay_status(BELAY_OK);
  });
}

belay_status bind(const belay_host* host, belay_obj* handle, const belay_bind_req* req, belay_bound* inout) {
  return with<Device>(host, handle, "bind", "device", [&](Device& device) {
    const Request whole(req);
    if (!whole) return device.hal->make(whole.refused("bind"));
    if (!sized(inout)) return device.hal->make(bad_answer("bind", inout));
    const Result<std::optional<std::string>> copy = device.copy_reason(*whole);
    if (!copy.ok()) return device.hal->make(copy.status());
    belay_bound bound = complete(*inout);
    bound.mode = *copy ? BELAY_BIND_COPY : BELAY_BIND_SHARE;
    if (*copy && bound.reason.write) write(bound.reason, **copy);
    belay::fill(inout, bound);
    return belay_status(BELAY_OK);
  });
}

belay_status tensor_copy(const belay_host* host, belay_obj* handle, const belay_tensor* to,
                         const belay_tensor* from, belay_event* out) {
  return on_stream(host, handle, "tensor_copy", [&](Stream& stream) {
    return queue_use(
        *stream.hal, "tensor_copy", out,
        [&](belay_event* event) { return copy_tensor(stream, to, from, event); },
        [&](auto& buffers, auto& addresses) {
          buffers = {to->buffer, from->buffer};
          addresses = {to->data, from->data};
        });
  });
}

constexpr belay_hal_vt kTable{.hdr = {sizeof(belay_hal_vt), 0, nullptr},
                              .device_count = device_count,
                              .device = device,
                              .device_info = device_info,
                              .heap_info = heap_info,
                              .buffer_create = buffer_create,
                              .buffer_info = buffer_info,
                              .buffer_destroy = buffer_destroy,
                              .stream_create = stream_create,
                              .stream_destroy = stream_destroy,
                              .copy = copy,
                              .fill = fill,
                              .launch = launch,
                              .wait = wait,
                              .host_call = host_call,
                              .flush = flush,
                              .query = query,
                              .record = record,
                              .synchronize = synchronize,
                              .on_reached = on_reached,
                              .recover = recover,
                              .program_create = program_create,
                              .program_launch = program_launch,
                              .program_destroy = program_destroy,
                              .capture_begin = capture_begin,
                              .capture_end = capture_end,
                              .plan = plan,
                              .memory_info = memory_info,
                              .find = find,
                              .pending = pending,
                              .health = health,
                              .reset = reset,
                              .reserve = reserve,
                              .map = map,
                              .unmap = unmap,
                              .package_load = package_load,
                              .package_info = package_info,
                              .package_input_info = package_input_info,
                              .package_output_info = package_output_info,
                              .package_launch = package_launch,
                              .package_destroy = package_destroy,
                              .bind = bind,
                              .tensor_copy = tensor_copy,
                              .buffer_create_on = buffer_create_on,
                              .buffer_destroy_after = buffer_destroy_after};

}  // namespace

const belay_hal_vt& hal_table() { return kTable; }

}  // namespace belay::hal
