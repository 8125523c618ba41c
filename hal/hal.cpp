#include "hal/hal.h"

#include <cstdlib>
#include <map>
#include <new>
#include <random>
#include <tuple>

namespace belay::hal {
namespace {

uint64_t* make_alive_word() {
  void* page = map_pages(4096, Keep::kNot);
  if (!page) throw std::bad_alloc();
  return new (page) uint64_t(1);
}

const char* kind_name(uint32_t kind) {
  switch (kind) {
    case BELAY_OBJ_DRIVER:
      return "driver";
    case BELAY_OBJ_DEVICE:
      return "device";
    case BELAY_OBJ_STREAM:
      return "stream";
    case BELAY_OBJ_BUFFER:
      return "buffer";
    case BELAY_OBJ_PROGRAM:
      return "program";
    case BELAY_OBJ_MEMORY_POLICY:
      return "memory policy";
    case BELAY_OBJ_MODEL_FORMAT:
      return "model format";
    case BELAY_OBJ_KERNEL_PROVIDER:
      return "kernel provider";
    case BELAY_OBJ_ENGINE:
      return "engine";
    case BELAY_OBJ_EXECUTABLE:
      return "executable";
    case BELAY_OBJ_DIAGNOSTICS:
      return "diagnostics object";
    case BELAY_OBJ_PACKAGE:
      return "package";
    default:
      return "object of an unknown kind";
  }
}

}  // namespace

Hal::Hal(core::Host& host, HalOptions options)
    : host_(host),
      options_(options),
      alive_(make_alive_word()),
      timelines_(std::random_device{}()),
      devices_(*this),
      planner_(*this) {}

void Hal::attach(std::vector<NamedObject> drivers, std::vector<NamedObject> policies) {
  devices_.attach(std::move(drivers));
  policies_.attach(*this, policies);
  planner_.attach(std::move(policies));
}

Hal::~Hal() {
  if (!forked()) {
    const auto left = [&](const char* what, const Device& device) {
      host_.log().warning("hal", std::string("A ") + what + " of '" + device.name() +
                                     "' was not destroyed before its runtime; it is ended now.");
    };
    streams_.each([&](Stream& stream) {
      left("stream", stream.device());
      stream.device().end_stream(&stream);
    });
    packages_.each([&](Package& package) {
      left("package", package.device());
      package.device().end_package(&package);
    });
    programs_.each([&](Program& program) {
      left("program", program.device());
      program.device().end_program(&program);
    });
    report_leaks("freed now");
    buffers_.each([&](Buffer& buffer) { buffer.device->free(&buffer); });
    devices_.close_all();
  }
  unmap(alive_, 4096);
}

bool Hal::reached(const belay_event& event) {
  const Timelines::Pin stream(timelines_, event.timeline);
  if (!stream) return true;
  const belay_status status = stream->query(event.value);
  if (status == BELAY_OK) return true;
  release(status);  // a failure has ended too
  return BELAY_STATUS_CODE(status) != BELAY_UNAVAILABLE;
}

void Hal::report_leaks(const char* then) {
  std::map<std::tuple<std::string, std::string, CallSite>, std::pair<uint64_t, uint64_t>> leaks;
  buffers_.each([&](Buffer& buffer) {
    auto& [count, bytes] =
        leaks[{buffer.device->name(), ledger_.owner(buffer), buffer.guard ? buffer.guard->made : CallSite()}];
    ++count, bytes += buffer.bytes;
  });
  for (const auto& [where, sum] : leaks) {
    const auto& [device, owner, site] = where;
    const auto& [count, bytes] = sum;
    const bool one = count == 1;
    std::string made = site.text();
    host_.log().warning("hal", (one ? "A buffer" : std::to_string(count) + " buffers") + " of " +
                                   print_bytes(bytes) + (one ? "" : " together") + " on '" + device +
                                   "' of owner '" + owner + (one ? "' was" : "' were") +
                                   " not destroyed before the runtime; " + (one ? "it is " : "they are ") +
                                   then + "." + (made.empty() ? "" : " Made by " + made + "."));
  }
}

belay_status Hal::pass(belay_status raw, const Object& object, const char* slot) {
  if (raw >> 8 == 0 && raw < BELAY_CODE_COUNT) [[likely]]
    return raw;  // a bare code
  const Device* device = object.kind == BELAY_OBJ_STREAM    ? &static_cast<const Stream&>(object).device()
                         : object.kind == BELAY_OBJ_PROGRAM ? &static_cast<const Program&>(object).device()
                                                            : nullptr;
  return pass(raw, device ? std::string_view(device->driver()) : std::string_view(), slot);
}

belay_status Hal::pass(belay_status raw, std::string_view plugin, const char* slot) {
  if (raw >> 8 == 0 && raw < BELAY_CODE_COUNT) return raw;
  return make(host_.take(raw, plugin, slot));
}

Status Hal::adopt(belay_obj& object, const TableShape& shape, const belay_created& made,
                  const std::string& plugin, belay_obj* parent) {
  BELAY_TRY(check_table(shape, made.table, "plugin '" + plugin + "'"));
  object.table = made.table, object.impl = made.impl;
  Status status = host_.attach(object, shape, plugin, parent);
  if (!status.ok()) object.table = nullptr;
  return status;
}

Status Hal::adopt_buffer(belay_obj& object, void* impl, const std::string& driver, belay_obj* device) {
  constexpr TableShape kBuffer{"belay.driver/1 buffer", BELAY_OBJ_BUFFER, {nullptr, 0}, {}};
  object.impl = impl;
  return host_.attach(object, kBuffer, driver, device);
}

void Hal::end(belay_obj& object, const TableShape& shape) {
  destroy_object(shape, &object);
  forget(object);
}

Status Hal::bad_handle(belay_obj* handle, uint32_t kind, const char* call, const char* name) const {
  if (forked()) return forked_status();
  const std::string who = std::string(call) + ": " + name;
  const std::string wanted = kind_name(kind);
  if (!handle) return {Code::kInvalidArgument, who + " is NULL, want a " + wanted + "."};
  if (handle->magic == BELAY_OBJ_DEAD)
    return {Code::kNotFound, who + " was destroyed (it was a " + std::string(kind_name(handle->kind)) + ")."};
  if (handle->magic == BELAY_OBJ_MAGIC)
    return {Code::kInvalidArgument, who + " is a " + kind_name(handle->kind) + ", want a " + wanted + "."};
  return {Code::kInvalidArgument, who + " is no object of Belay, want a " + wanted + "."};
}

}  // namespace belay::hal
