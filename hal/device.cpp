#include "hal/device.h"

#include "hal/hal.h"
#include "hal/policy_view.h"

#include <belay/fill.hpp>
#include <belay/kinds.hpp>

#include <bit>
#include <chrono>
#include <cstring>

namespace belay::hal {
namespace {

constexpr uint64_t kPatience = 10'000'000'000;  // ns, for work that uses memory which has ended

}  // namespace

Status Device::prepare() {
  info_.hdr.struct_size = sizeof info_;
  BELAY_TRY(hal->take(vt().info(this, &info_), driver_, "info"));
  hal->host().log().info("hal", "Device '" + name() + "' is open: " + to_string(info_.name));
  if (info_.heap_count == 0 || info_.heap_count > 64)
    return {Code::kInternal, "Plugin '" + driver_ + "' says that '" + name_ + "' has " +
                                 std::to_string(info_.heap_count) + " heaps, want 1 to 64."};
  heaps_.resize(info_.heap_count);
  for (uint64_t i = 0; i < info_.heap_count; ++i) {
    heaps_[i].hdr.struct_size = sizeof heaps_[i];
    BELAY_TRY(hal->take(vt().heap(this, i, &heaps_[i]), driver_, "heap"));
  }
  if (const void* found = vt().extension(this, to_str(BELAY_DRIVER_PROGRAM))) {
    BELAY_TRY(check_table(shape::kProgram, found, "plugin '" + driver_ + "'"));
    programs_ = static_cast<const belay_driver_program_vt*>(found);
  }
  if (const void* found = vt().extension(this, to_str(BELAY_DRIVER_VIRTUAL_MEMORY))) {
    BELAY_TRY(check_table(shape::kVirtualMemory, found, "plugin '" + driver_ + "'"));
    virtual_memory_ = static_cast<const belay_driver_virtual_memory_vt*>(found);
    if (!std::has_single_bit(granularity()))
      return {Code::kInternal, "Plugin '" + driver_ + "' says that memory of '" + name_ +
                                   "' is mapped in units of " + std::to_string(granularity()) +
                                   " bytes, want a power of two."};
  }
  if (const void* found = vt().extension(this, to_str(BELAY_DRIVER_NATIVE_MODEL))) {
    BELAY_TRY(check_table(shape::kPackage, found, "plugin '" + driver_ + "'"));
    packages_ = static_cast<const belay_driver_native_model_vt*>(found);
  }
  return {};
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------

Status Device::check_alloc(const belay_alloc_req& req) const {
  const auto wrong = [&](std::string text) {
    return Status(Code::kInvalidArgument,
                  "Buffer of " + std::to_string(req.bytes) + " bytes on '" + name_ + "': " + text);
  };
  if (req.align && !std::has_single_bit(req.align))
    return wrong("align is " + std::to_string(req.align) + ", want a power of two.");
  if (req.heap >= heaps_.size())
    return wrong("heap is " + std::to_string(req.heap) + ", want less than " + std::to_string(heaps_.size()) +
                 ".");
  if (req.access & ~uint64_t(BELAY_ACCESS_READ | BELAY_ACCESS_WRITE))
    return wrong("access is " + std::to_string(req.access) + ", want READ, WRITE, both or 0.");
  if (req.within) return wrong("within is for drivers; use a part of a buffer by its offset.");
  if (reinterpret_cast<uintptr_t>(req.host) + req.bytes < req.bytes)
    return wrong("the host memory lent to it ends past 2^64.");
  if (req.host && req.align && reinterpret_cast<uintptr_t>(req.host) % req.align)
    return wrong("the host memory lent to it is not aligned to " + std::to_string(req.align) + " bytes.");
  return {};
}

Status Device::full(const std::string& text) const {
  const size_t retired = retired_.count();
  const std::string late =
      retired ? " The memory of " + std::to_string(retired) + " more that have ended waits for queued work: synchronize its stream first."
              : "";
  return {Code::kResourceExhausted,
          text + " On '" + name_ + "' are in use: " + hal->ledger().describe(index_) + "." + late};
}

Status Device::take_room(const char* what, uint64_t bytes) {
  const uint64_t limit = hal->options().memory_limit;
  // Added where it fits only: what fails must not make what fits fail beside it.
  for (uint64_t before = room_.load(std::memory_order_relaxed);;) {
    if (limit && (before > limit || bytes > limit - before))
      return full(std::string(what) + " of " + print_bytes(bytes) + " passes the limit of " +
                  print_bytes(limit) + " ([memory] limit).");
    if (room_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed)) return {};
  }
}

void Device::use_room(uint64_t bytes) {
  const uint64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  for (uint64_t peak = peak_.load(std::memory_order_relaxed);
       now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed);) {
  }
}

template <class Make>
Result<Buffer*> Device::make_buffer(const belay_alloc_req& req, std::string_view owner, const Bytes& bytes,
                                    Make&& make) {
  BELAY_TRY(take_room("A buffer", bytes.charged));
  Buffer* buffer = nullptr;
  bool made_impl = false;
  const auto undo = [&] {
    if (buffer) {
      Slots<Buffer>::retire(buffer);
      if (made_impl) free_of_driver(*buffer);
      hal->buffers().drop(buffer);
    }
    leave_room(bytes.charged);
  };
  Status failed;
  try {
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    buffer = hal->buffers().make(hal);
    if (!buffer) {
      failed = full("There is no memory for one more handle.");
    } else if (const belay_status raw = make(&made); raw != BELAY_OK) {
      failed = hal->take(raw, driver_, "alloc");
      if (failed.code() == Code::kResourceExhausted) failed = full(failed.message());
    } else if (failed = adopt_buffer(*buffer, made.impl); failed.ok()) {
      made_impl = true;
      buffer->device = this;
      buffer->bytes = req.bytes;
      buffer->counted = bytes.counted;
      buffer->charged = bytes.charged;
      buffer->borrowed = bytes.lent;
      if (bytes.reserved) buffer->mapped = bytes.reserved->ranges, buffer->mapped_from = bytes.reserved->offset;
      buffer->magic = BELAY_OBJ_MAGIC;  // the driver's `map` may check it
      if (BELAY_HAS(&vt(), belay_device_vt, map)) {
        void* address = nullptr;
        if (const belay_status mapped = vt().map(this, buffer, &address); mapped == BELAY_OK)
          buffer->host = address;
        else
          hal->release(mapped);  // memory that the host does not see
      }
      hal->ledger().add(buffer, index_, owner.empty() ? "application" : owner);
      allocations_.fetch_add(1, std::memory_order_relaxed);
      live_buffers_.fetch_add(1, std::memory_order_relaxed);
      use_room(bytes.charged);
      return buffer;
    }
  } catch (...) {
    undo();
    throw;
  }
  undo();
  return failed;
}

Result<Buffer*> Device::alloc(const belay_alloc_req& req, std::string_view owner, Stream* first) {
  BELAY_TRY(check_alloc(req));
  retired_.sweep();
  if (req.host) return alloc_lent(req, owner);
  uint64_t given = given_.load();
  Result<Buffer*> buffer = alloc_own(req, owner, first);
  if (buffer.ok() || buffer.status().code() != Code::kResourceExhausted) return buffer;
  // What comes back may be taken by another thread before this one asks again, so not the number of tries is bounded;
  // and it may have come back on another thread.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatience);
  while ((make_room(req.bytes) || retired_.wait(kPatience) || given_.load() != given) &&
         std::chrono::steady_clock::now() < deadline) {
    given = given_.load();
    buffer = alloc_own(req, owner, first);
    if (buffer.ok() || buffer.status().code() != Code::kResourceExhausted) return buffer;
  }
  return buffer;
}

// Whether there is more memory than before: of what was retired, and of segments that hold nothing.
bool Device::make_room(uint64_t bytes) {
  const bool ended = retired_.sweep(SIZE_MAX);
  return allocator_.trim(bytes) > 0 || ended;
}

Result<Buffer*> Device::alloc_own(const belay_alloc_req& req, std::string_view owner, Stream* first) {
  std::unique_ptr<Guard> guard;
  belay_alloc_req whole = req;  // with zones
  if (hal->options().checked) {
    guard = std::make_unique<Guard>();
    guard->made = CallSite::here();
    if (subdivides() && host_visible()) {
      guard->front = std::max({Guard::kZone, req.align, alignment(req.heap)});
      guard->back = Guard::kZone;
      if (__builtin_add_overflow(req.bytes, guard->front + guard->back, &whole.bytes))
        return full("There are not so many addresses.");
    }
  }
  BELAY_ASSIGN(const std::optional<Place> place, allocator_.place(whole, first));
  const uint64_t charged = place ? 0 : whole.bytes;
  belay_alloc_req inside = req;
  if (place) {
    inside.within = place->within, inside.within_offset = place->offset + (guard ? guard->front : 0);
  } else if (guard && guard->front) {
    BELAY_TRY(make_whole(whole, *guard));
    inside.within = &*guard->whole, inside.within_offset = guard->front;
  }
  const auto undo = [&] {
    if (place) allocator_.end(*place);
    if (guard && guard->whole) free_of_driver(*guard->whole);
  };
  try {
    Result<Buffer*> buffer = make_buffer(inside, owner, {req.bytes, charged}, [&](belay_created* made) {
      return vt().alloc(this, &inside, made);
    });
    if (!buffer.ok()) {
      undo();
      return buffer;
    }
    (*buffer)->place = place;
    if (guard && guard->front) guard->fill(static_cast<char*>((*buffer)->host), req.bytes);
    (*buffer)->guard = std::move(guard);
    return buffer;
  } catch (...) {
    undo();
    throw;
  }
}

// Where a layer refuses it the driver has it back.
Status Device::adopt_buffer(belay_obj& object, void* impl) {
  Status status = hal->adopt_buffer(object, impl, driver_, this);
  if (!status.ok()) vt().free(this, &object);
  return status;
}

void Device::free_of_driver(belay_obj& object) {
  vt().free(this, &object);
  hal->forget(object);
}

Status Device::make_whole(const belay_alloc_req& req, Guard& guard) {
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  BELAY_TRY(hal->take(vt().alloc(this, &req, &made), driver_, "alloc"));
  guard.whole = belay_obj{BELAY_OBJ_MAGIC, BELAY_OBJ_BUFFER, 1, nullptr, nullptr, {}};
  Status status = adopt_buffer(*guard.whole, made.impl);
  if (!status.ok()) guard.whole.reset();
  return status;
}

void Device::check_guard(Buffer& buffer) {
  if (!buffer.guard || !buffer.guard->front) return;
  const std::string damage = buffer.guard->damage(static_cast<char*>(buffer.host), buffer.bytes);
  if (damage.empty()) return;
  damaged_.fetch_add(1, std::memory_order_relaxed);
  hal->host().log().error("hal", "Written beside a buffer of " + std::to_string(buffer.bytes) +
                                     " bytes on '" + name_ + "': " + damage + ". The buffer was made by " +
                                     buffer.guard->made.text() + ".");
}

// Memory of the caller's as a buffer; where a policy says so a copy, which stands for it as long as nothing
// is written.
Result<Buffer*> Device::alloc_lent(const belay_alloc_req& req, std::string_view owner) {
  const auto wrong = [&](Code code, const std::string& text) {
    return Status(code, "Buffer of " + std::to_string(req.bytes) + " bytes on '" + name_ + "': " + text);
  };
  belay_bind_req wanted{};
  wanted.hdr.struct_size = sizeof wanted;
  wanted.address = reinterpret_cast<uint64_t>(req.host);
  wanted.bytes = req.bytes;
  wanted.access = req.access ? req.access : BELAY_ACCESS_READ | BELAY_ACCESS_WRITE;
  wanted.alignment = req.align;
  BELAY_ASSIGN(const std::optional<std::string> copy, allocator_.copy_reason(wanted));
  if (!copy) {
    if (!(info_.hdr.flags & BELAY_DEVICE_BINDS_HOST))
      return wrong(Code::kInvalidArgument,
                   "host memory cannot be lent to this device; make a buffer and copy.");
    return make_buffer(req, owner, {0, 0, true, hal->ledger().reserved(req.host, req.bytes)},
                       [&](belay_created* made) { return vt().alloc(this, &req, made); });
  }
  if (req.access != BELAY_ACCESS_READ)
    return wrong(Code::kFailedPrecondition,
                 "host memory is not lent, because " + *copy +
                     ", and what is written to a copy would not arrive there; make a "
                     "buffer and copy, or ask for access READ.");
  BELAY_TRY(hal->ledger().check_mapped("The host memory to bind", req.host, req.bytes));
  belay_alloc_req own = req;
  own.host = nullptr;
  BELAY_ASSIGN(Buffer* const buffer, alloc(own, owner));
  if (!buffer->host && req.bytes) {
    free(buffer);
    return wrong(Code::kUnimplemented,
                 "host memory is not lent, because " + *copy +
                     ", and the host does not see this device's memory; copy on a stream.");
  }
  if (req.bytes) std::memcpy(buffer->host, req.host, req.bytes);
  return buffer;
}

Result<std::optional<std::string>> Device::copy_reason(const belay_bind_req& req) {
  BELAY_TRY(check_bind_request(req));
  BELAY_ASSIGN(std::optional<std::string> copy, allocator_.copy_reason(req));
  if (copy) return copy;
  if (!(info_.hdr.flags & BELAY_DEVICE_BINDS_HOST))
    copy = "device '" + name_ + "' does not address host memory";
  else if (req.alignment && req.address % req.alignment)
    copy = "its address is not aligned to " + std::to_string(req.alignment) + " bytes";
  return copy;
}

void Device::free(Buffer* buffer) {
  if (hal->options().checked) hal->uses().forget(*buffer);
  hal->ledger().remove(buffer, index_);
  Slots<Buffer>::retire(buffer);
  bury(buffer);
  retired_.sweep();
}

Status Device::free_after(Buffer* buffer, std::vector<belay_event> uses) {
  std::erase_if(uses, [&](const belay_event& use) { return hal->reached(use); });
  if (uses.empty()) {
    free(buffer);
    return {};
  }
  Retired::List entry = Retired::entry(buffer, uses);
  if (buffer->place && !buffer->guard) {  // zones are looked at before anyone else has the memory
    BELAY_TRY(allocator_.release(*buffer->place, uses));
    buffer->place->released = true;
  }
  if (hal->options().checked) hal->uses().forget(*buffer);
  hal->ledger().remove(buffer, index_);
  Slots<Buffer>::retire(buffer);
  retired_.add(std::move(entry));
  return {};
}

void Device::bury(Buffer* buffer) {
  check_guard(*buffer);
  free_of_driver(*buffer);
  if (buffer->guard && buffer->guard->whole) free_of_driver(*buffer->guard->whole);
  give_room(buffer->charged);
  live_buffers_.fetch_sub(1, std::memory_order_relaxed);
  const std::optional<Place> place = buffer->place;
  hal->buffers().drop(buffer);
  if (place) allocator_.end(*place);
  given_.fetch_add(1);  // also of what lay in a segment
}

Result<Buffer*> Device::reserve(const belay_alloc_req& req, std::string_view owner) {
  BELAY_TRY(check_alloc(req));
  const auto wrong = [&](Code code, const std::string& text) {
    return Status(code, "Reservation of " + std::to_string(req.bytes) + " bytes on '" + name_ + "': " + text);
  };
  if (!virtual_memory_)
    return wrong(
        Code::kUnimplemented,
        "the driver '" + driver_ + "' has no virtual memory; make a buffer of the whole size instead.");
  if (req.host) return wrong(Code::kInvalidArgument, "host memory cannot be part of it.");
  if (req.bytes == 0) return wrong(Code::kInvalidArgument, "want at least one byte.");
  const uint64_t unit = granularity();
  belay_alloc_req whole = req;
  if (__builtin_add_overflow(req.bytes, unit - 1, &whole.bytes))
    return wrong(Code::kResourceExhausted, "there are not so many addresses.");
  whole.bytes &= ~(unit - 1);
  Bytes bytes;
  bytes.reserved = {std::make_shared<MappedRanges>(whole.bytes), 0, whole.bytes};
  return make_buffer(whole, owner, bytes,
                     [&](belay_created* made) { return virtual_memory_->reserve(this, &whole, made); });
}

Status Device::check_range(const Buffer& buffer, const char* call, uint64_t offset, uint64_t bytes) {
  const auto wrong = [&](Code code, const std::string& text) {
    return Status(code, std::string(call) + " of bytes " + std::to_string(offset) + " + " +
                            std::to_string(bytes) + " of a buffer of '" + name_ + "': " + text);
  };
  if (!buffer.reserved())
    return wrong(Code::kFailedPrecondition, "it was not reserved, so it has its memory as long as it lives.");
  const uint64_t unit = granularity();
  if (bytes == 0 || offset % unit || bytes % unit)
    return wrong(Code::kInvalidArgument, "want multiples of " + std::to_string(unit) + ", and at least one.");
  if (offset > buffer.bytes || bytes > buffer.bytes - offset)
    return wrong(Code::kOutOfRange, "it has " + std::to_string(buffer.bytes) + ".");
  return {};
}

Status Device::map(Buffer& buffer, uint64_t offset, uint64_t bytes) {
  BELAY_TRY(check_range(buffer, "Mapping", offset, bytes));
  std::lock_guard lock(buffer.mapped->mutex());
  if (const uint64_t at = buffer.mapped->first(true, offset, bytes); at != offset + bytes)
    return {Code::kFailedPrecondition, "Mapping of bytes " + std::to_string(offset) + " + " +
                                           std::to_string(bytes) + " of a buffer of '" + name_ + "': byte " +
                                           std::to_string(at) + " is mapped already."};
  BELAY_TRY(take_room("A mapping", bytes));
  try {
    buffer.mapped->add(offset, bytes);
  } catch (...) {
    leave_room(bytes);
    throw;
  }
  if (const belay_status raw = virtual_memory_->map(this, &buffer, offset, bytes); raw != BELAY_OK) {
    buffer.mapped->remove(offset, bytes);
    leave_room(bytes);
    Status failed = hal->take(raw, driver_, "virtual_memory.map");
    return failed.code() == Code::kResourceExhausted ? full(failed.message()) : failed;
  }
  use_room(bytes);
  buffer.counted += bytes, buffer.charged += bytes;
  hal->ledger().change(&buffer, int64_t(bytes));
  return {};
}

Status Device::unmap(Buffer& buffer, uint64_t offset, uint64_t bytes) {
  BELAY_TRY(check_range(buffer, "Unmapping", offset, bytes));
  std::lock_guard lock(buffer.mapped->mutex());
  if (const uint64_t at = buffer.mapped->first(false, offset, bytes); at != offset + bytes)
    return {Code::kFailedPrecondition, "Unmapping of bytes " + std::to_string(offset) + " + " +
                                           std::to_string(bytes) + " of a buffer of '" + name_ + "': byte " +
                                           std::to_string(at) + " is not mapped."};
  BELAY_TRY(hal->take(virtual_memory_->unmap(this, &buffer, offset, bytes), driver_, "virtual_memory.unmap"));
  buffer.mapped->remove(offset, bytes);
  give_room(bytes);
  buffer.counted -= bytes, buffer.charged -= bytes;
  hal->ledger().change(&buffer, -int64_t(bytes));
  return {};
}

std::string Device::usage() const { return hal->ledger().describe(index_); }

// ---- streams
// ---------------------------------------------------------------------------------------------------------

Result<Stream*> Device::make_stream(const belay_hal_stream_req& req) {
  const auto wrong = [&](std::string text) {
    return Status(Code::kInvalidArgument, "Stream on '" + name_ + "': " + text);
  };
  constexpr uint32_t kKnown =
      BELAY_HAL_STREAM_CONTINUE_ON_FAILURE | BELAY_HAL_STREAM_SINGLE_PRODUCER | BELAY_HAL_STREAM_BLOCK;
  if (req.hdr.flags & ~kKnown)
    return wrong("flags are " + std::to_string(req.hdr.flags) + ", known are " + std::to_string(kKnown) +
                 ".");
  if (req.priority < -8 || req.priority > 7)
    return wrong("priority is " + std::to_string(req.priority) + ", want -8 to 7.");

  const uint64_t timeline = hal->timelines().add(index_);
  if (!timeline)
    return Status(Code::kResourceExhausted, "There are as many streams as there can be: 1048576.");
  belay_stream_req wanted{};
  wanted.hdr = {sizeof wanted, 0, nullptr};
  if (req.hdr.flags & BELAY_HAL_STREAM_CONTINUE_ON_FAILURE)
    wanted.hdr.flags |= BELAY_STREAM_CONTINUE_ON_FAILURE;
  wanted.timeline = timeline;
  wanted.priority = req.priority;
  wanted.queue_depth = req.queue_depth;
  uint32_t flags = 0;
  if (req.hdr.flags & BELAY_HAL_STREAM_SINGLE_PRODUCER) flags |= Stream::kSingleProducer;
  if (req.hdr.flags & BELAY_HAL_STREAM_BLOCK) flags |= Stream::kBlock;
  Stream* stream =
      hal->streams().make(hal, *this, timeline, req.queue_depth ? req.queue_depth : info_.queue_depth, flags);
  if (!stream) {
    hal->timelines().remove(timeline);
    return Status(Code::kResourceExhausted, "There is no memory for one more stream.");
  }
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  Status status = hal->take(vt().stream_create(this, &wanted, &made), driver_, "stream_create");
  if (status.ok()) status = hal->adopt(*stream, shape::kStream, made, driver_, this);
  if (!status.ok()) {
    hal->streams().drop(stream);
    hal->timelines().remove(timeline);
    return std::move(status).while_doing("making a stream on '" + name_ + "'");
  }
  stream->prepare();
  Slots<Stream>::publish(stream);
  hal->timelines().publish(timeline, stream);
  live_streams_.fetch_add(1, std::memory_order_relaxed);
  return stream;
}

void Device::end_stream(Stream* stream) {
  const uint64_t timeline = stream->timeline(), last = stream->last_value();
  stream->flush();
  // Memory that its work uses counts as free once its timeline is gone.
  if (!hal->reached({timeline, last})) hal->release(stream->synchronize(last, BELAY_FOREVER));
  hal->timelines().remove(timeline);
  if (hal->options().checked) hal->uses().ended(timeline);
  const belay_status left = stream->query(last);
  Slots<Stream>::retire(stream);
  hal->end(*stream, shape::kStream);
  if (left != BELAY_OK) {
    const Status status = hal->take(left, driver_, "query");
    if (status.code() != Code::kUnavailable)
      hal->host().log().warning("hal",
                                "A stream of '" + name_ + "' ended with a failure: " + status.message());
  }
  for (uint64_t i = 0; i < hal->devices().count(); ++i)
    if (Device* other = i == index_ ? nullptr : hal->devices().opened(i))
      other->mirrors().source_ended(timeline, last);
  hal->streams().drop(stream);
  live_streams_.fetch_sub(1, std::memory_order_relaxed);
  retired_.sweep(SIZE_MAX);
}

// ---- programs
// --------------------------------------------------------------------------------------------------------

Result<Program*> Device::make_program(const belay_program_req& given) {
  BELAY_TRY(Program::check(given).while_doing("making a program on '" + name_ + "'"));
  belay_program_req req = given;
  std::vector<belay_node> whole;  // of a caller that knows fewer fields of them
  std::vector<const belay_node*> nodes(req.nodes, req.nodes + req.node_count);
  if (std::any_of(nodes.begin(), nodes.end(),
                  [](const belay_node* node) { return node->hdr.struct_size < sizeof *node; })) {
    whole.reserve(nodes.size());
    for (const belay_node*& node : nodes) node = &whole.emplace_back(complete(*node));
    req.nodes = nodes.data();
  }
  if (!programs_) {
    if (!host_visible())
      return Status(Code::kUnimplemented, "Device '" + name_ +
                                              "' has neither programs nor memory that the host sees, so "
                                              "nodes cannot be launched on it.");
    return adopt_program(Recording::of(req), req.binding_count);
  }
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  const belay_status raw = programs_->create(this, &req, &made);
  if (raw != BELAY_OK)
    return hal->take(raw, driver_, "program.create").while_doing("making a program on '" + name_ + "'");
  return adopt_program(made, req.binding_count);
}

Result<Program*> Device::adopt_program(const belay_created& made, uint64_t binding_count) {
  belay_created whole = made;
  if (!whole.table) whole.table = programs_;
  Program* program = hal->programs().make(hal, *this, binding_count);
  if (!program) {
    belay_obj orphan{BELAY_OBJ_MAGIC, BELAY_OBJ_PROGRAM, 0, whole.table, whole.impl, {}};
    destroy_object(shape::kProgram, &orphan);
    return Status(Code::kResourceExhausted, "There is no memory for one more program.");
  }
  if (Status status = hal->adopt(*program, shape::kProgram, whole, driver_, this); !status.ok()) {
    hal->programs().drop(program);
    return std::move(status).while_doing("making a program on '" + name_ + "'");
  }
  Slots<Program>::publish(program);
  live_programs_.fetch_add(1, std::memory_order_relaxed);
  return program;
}

Result<Program*> Device::adopt_program(std::unique_ptr<Recording> recording, uint64_t binding_count) {
  Program* program = hal->programs().make(hal, *this, binding_count, std::move(recording));
  if (!program) return Status(Code::kResourceExhausted, "There is no memory for one more program.");
  Slots<Program>::publish(program);
  live_programs_.fetch_add(1, std::memory_order_relaxed);
  return program;
}

void Device::end_program(Program* program) {
  Slots<Program>::retire(program);
  if (!program->recording()) hal->end(*program, shape::kProgram);
  hal->programs().drop(program);
  live_programs_.fetch_sub(1, std::memory_order_relaxed);
}

// ---- packages
// --------------------------------------------------------------------------------------------------------

Result<Package*> Device::load_package(const belay_package_req& req) {
  const std::string name = to_string(req.name), kind = to_string(req.kind);
  const auto wrong = [&](Code code, const std::string& text) {
    return Status(code, "Package '" + name + "' of kind '" + kind + "' on '" + name_ + "': " + text);
  };
  for (const auto& [ptr, len, what] :
       {std::tuple{static_cast<const void*>(req.kind.ptr), req.kind.len, "kind"},
        {static_cast<const void*>(req.name.ptr), req.name.len, "name"},
        {req.bytes.ptr, req.bytes.len, "bytes"}})
    if (len && !ptr)
      return wrong(Code::kInvalidArgument,
                   std::string(what) + " is NULL, but its length is " + std::to_string(len) + ".");
  if (kind.empty()) return wrong(Code::kInvalidArgument, "kind is empty, want one such as 'om'.");
  if (!req.bytes.len) return wrong(Code::kInvalidArgument, "it has no bytes.");
  if (!packages_)
    return wrong(Code::kUnimplemented, "the driver '" + driver_ + "' takes no compiled models.");
  if (!packages_->accepts(this, req.kind))
    return wrong(Code::kUnimplemented, "the driver '" + driver_ + "' takes no packages of this kind.");
  Package* package = hal->packages().make(hal, *this, name);
  if (!package) return wrong(Code::kResourceExhausted, "there is no memory for one more handle.");
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  Status status = hal->take(packages_->load(this, &req, &made), driver_, "native_model.load");
  if (status.ok()) {
    if (!made.table) made.table = packages_;
    status = hal->adopt(*package, shape::kPackage, made, driver_, this);
    if (status.ok()) {
      status = package->prepare();
      if (!status.ok()) hal->end(*package, shape::kPackage);
    }
  }
  if (!status.ok()) {
    hal->packages().drop(package);
    return std::move(status).while_doing("loading package '" + name + "' on '" + name_ + "'");
  }
  Slots<Package>::publish(package);
  live_packages_.fetch_add(1, std::memory_order_relaxed);
  return package;
}

void Device::end_package(Package* package) {
  Slots<Package>::retire(package);
  hal->end(*package, shape::kPackage);
  hal->packages().drop(package);
  live_packages_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace belay::hal
