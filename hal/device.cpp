#include "hal/device.h"

#include "hal/hal.h"

#include <belay/kinds.hpp>

#include <bit>

namespace belay::hal {

Status Device::prepare() {
  info_.hdr.struct_size = sizeof info_;
  BELAY_TRY(hal->take(vt().info(this, &info_), driver_, "info"));
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
  return {};
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------

Status Device::check_alloc(const belay_alloc_req& req) const {
  const auto wrong = [&](std::string text) {
    return Status(Code::kInvalidArgument,
                  "Buffer of " + std::to_string(req.bytes) + " bytes on '" + name_ + "': " + text);
  };
  if (req.hdr.struct_size < sizeof req)
    return wrong("struct_size is " + std::to_string(req.hdr.struct_size) + ", want " +
                 std::to_string(sizeof req) + ".");
  if (req.align && !std::has_single_bit(req.align))
    return wrong("align is " + std::to_string(req.align) + ", want a power of two.");
  if (req.heap >= heaps_.size())
    return wrong("heap is " + std::to_string(req.heap) + ", want less than " + std::to_string(heaps_.size()) +
                 ".");
  if (req.access & ~uint64_t(BELAY_ACCESS_READ | BELAY_ACCESS_WRITE))
    return wrong("access is " + std::to_string(req.access) + ", want READ, WRITE, both or 0.");
  if (req.host && !(info_.hdr.flags & BELAY_DEVICE_BINDS_HOST))
    return wrong("host memory cannot be lent to this device; make a buffer and copy.");
  if (req.host && req.align && reinterpret_cast<uintptr_t>(req.host) % req.align)
    return wrong("the host memory lent to it is not aligned to " + std::to_string(req.align) + " bytes.");
  return {};
}

Result<Buffer*> Device::alloc(const belay_alloc_req& req, std::string_view owner) {
  BELAY_TRY(check_alloc(req));
  const auto full = [&](const std::string& text) {
    return Status(Code::kResourceExhausted,
                  text + " On '" + name_ + "' are in use: " + hal->ledger().describe(index_) + ".");
  };
  const uint64_t counted = req.host ? 0 : req.bytes;
  const uint64_t limit = hal->options().memory_limit;
  const uint64_t before = in_use_.fetch_add(counted, std::memory_order_relaxed);
  const auto give_back = [&] { in_use_.fetch_sub(counted, std::memory_order_relaxed); };
  if (limit && (before > limit || counted > limit - before)) {
    give_back();
    return full("A buffer of " + print_bytes(req.bytes) + " passes the limit of " + print_bytes(limit) +
                " ([memory] limit).");
  }

  Buffer* buffer = nullptr;
  bool made_impl = false;
  try {
    buffer = hal->buffers().make(hal);
    if (!buffer) {
      give_back();
      return full("There is no memory for one more handle.");
    }
    belay_created made{};
    made.hdr.struct_size = sizeof made;
    const belay_status raw = vt().alloc(this, &req, &made);
    if (raw != BELAY_OK) {
      hal->buffers().drop(buffer);
      give_back();
      Status failed = hal->take(raw, driver_, "alloc");
      if (failed.code() == Code::kResourceExhausted) return full(failed.message());
      return failed;
    }
    buffer->impl = made.impl;
    made_impl = true;
    buffer->device = this;
    buffer->bytes = req.bytes;
    buffer->borrowed = req.host != nullptr;
    buffer->magic = BELAY_OBJ_MAGIC;  // the driver's `map` may check it
    if (BELAY_HAS(&vt(), belay_device_vt, map)) {
      void* address = nullptr;
      if (const belay_status mapped = vt().map(this, buffer, &address); mapped == BELAY_OK)
        buffer->host = address;
      else
        hal->host().table().status_release(&hal->host().table(),
                                           mapped);  // memory that the host does not see
    }
    hal->ledger().add(buffer, index_, owner.empty() ? "application" : owner);
  } catch (...) {
    if (buffer) {
      Slots<Buffer>::retire(buffer);
      if (made_impl) vt().free(this, buffer);
      hal->buffers().drop(buffer);
    }
    give_back();
    throw;
  }
  for (uint64_t now = before + counted, peak = peak_.load(std::memory_order_relaxed);
       now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed);) {
  }
  allocations_.fetch_add(1, std::memory_order_relaxed);
  live_buffers_.fetch_add(1, std::memory_order_relaxed);
  return buffer;
}

void Device::free(Buffer* buffer) {
  hal->ledger().remove(buffer, index_);
  Slots<Buffer>::retire(buffer);
  vt().free(this, buffer);
  if (!buffer->borrowed) in_use_.fetch_sub(buffer->bytes, std::memory_order_relaxed);
  live_buffers_.fetch_sub(1, std::memory_order_relaxed);
  hal->buffers().drop(buffer);
}

std::string Device::usage() const { return hal->ledger().describe(index_); }

// ---- streams
// ---------------------------------------------------------------------------------------------------------

Result<Stream*> Device::make_stream(const belay_hal_stream_req& req) {
  const auto wrong = [&](std::string text) {
    return Status(Code::kInvalidArgument, "Stream on '" + name_ + "': " + text);
  };
  if (req.hdr.struct_size < sizeof req)
    return wrong("struct_size is " + std::to_string(req.hdr.struct_size) + ", want " +
                 std::to_string(sizeof req) + ".");
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
  belay_created made{};
  made.hdr.struct_size = sizeof made;
  if (const belay_status raw = vt().stream_create(this, &wanted, &made); raw != BELAY_OK) {
    hal->timelines().remove(timeline);
    return hal->take(raw, driver_, "stream_create").while_doing("making a stream on '" + name_ + "'");
  }
  if (Status whole = check_table(shape::kStream, made.table, "plugin '" + driver_ + "'"); !whole.ok()) {
    hal->timelines().remove(timeline);
    return whole;
  }
  const auto* table_of_stream = static_cast<const belay_stream_vt*>(made.table);
  uint32_t flags = 0;
  if (req.hdr.flags & BELAY_HAL_STREAM_SINGLE_PRODUCER) flags |= Stream::kSingleProducer;
  if (req.hdr.flags & BELAY_HAL_STREAM_BLOCK) flags |= Stream::kBlock;
  if (!BELAY_HAS(table_of_stream, belay_stream_vt, launch)) flags |= Stream::kNoLaunch;
  Stream* stream =
      hal->streams().make(hal, *this, timeline, req.queue_depth ? req.queue_depth : info_.queue_depth, flags);
  if (!stream) {
    belay_obj orphan{BELAY_OBJ_MAGIC, BELAY_OBJ_STREAM, 0, made.table, made.impl, {}};
    table_of_stream->destroy(&orphan);
    hal->timelines().remove(timeline);
    return Status(Code::kResourceExhausted, "There is no memory for one more stream.");
  }
  stream->table = made.table;
  stream->impl = made.impl;
  Slots<Stream>::publish(stream);
  hal->timelines().publish(timeline, stream);
  live_streams_.fetch_add(1, std::memory_order_relaxed);
  return stream;
}

void Device::end_stream(Stream* stream) {
  const uint64_t timeline = stream->timeline(), last = stream->last_value();
  // Those who wait for it by an event are let go first: the work they wait for runs on.
  stream->flush();
  hal->timelines().remove(timeline);
  const belay_status left = stream->query(last);
  Slots<Stream>::retire(stream);
  stream->vt().destroy(stream);
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
}

// ---- programs
// --------------------------------------------------------------------------------------------------------

Result<Program*> Device::make_program(const belay_program_req& req) {
  BELAY_TRY(Program::check(req).while_doing("making a program on '" + name_ + "'"));
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
  const belay_driver_program_vt* vt =
      made.table ? static_cast<const belay_driver_program_vt*>(made.table) : programs_;
  Program* program = hal->programs().make(hal, *this, binding_count);
  if (!program) {
    belay_obj orphan{BELAY_OBJ_MAGIC, BELAY_OBJ_PROGRAM, 0, vt, made.impl, {}};
    vt->destroy(&orphan);
    return Status(Code::kResourceExhausted, "There is no memory for one more program.");
  }
  program->table = vt;
  program->impl = made.impl;
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
  if (!program->recording()) static_cast<const belay_driver_program_vt*>(program->table)->destroy(program);
  hal->programs().drop(program);
  live_programs_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace belay::hal
