#include "hal/stream.h"

#include "hal/hal.h"

#include <algorithm>
#include <condition_variable>

namespace belay::hal {
namespace {

std::string range(uint64_t offset, uint64_t bytes) {
  return "bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " + std::to_string(bytes);
}

}  // namespace

Stream::Stream(Device& device, uint64_t timeline, uint64_t depth, uint32_t flags)
    : device_(&device), any_reserved_(device.hal->ledger().any_reserved()), timeline_(timeline), flags_(flags), depth_(depth) {}

Stream::~Stream() = default;

// ---- queueing
// --------------------------------------------------------------------------------------------------------

belay_status Stream::not_queued(const char* what, belay_status status, bool always_room) {
  if (BELAY_STATUS_CODE(status) != BELAY_QUEUE_FULL) return hal->pass(status, *this, what);
  const QueueFull policy = hal->options().queue_full;
  const bool block = always_room || (flags() & kBlock);
  if (!block && policy == QueueFull::kReport) return hal->pass(status, *this, what);
  const belay_status room = make_room(policy != QueueFull::kBlock);
  if (room != BELAY_OK) {
    // No room can be made from here, as when the caller is itself a step of this stream.
    const belay_host& host = hal->host().table();
    host.status_release(&host, room);
    return hal->pass(status, *this, what);
  }
  hal->release(status);
  return BELAY_OK;
}

belay_status Stream::make_room(bool help) {
  // Half a queue at once, so that a producer that is faster than the device does not come back for every
  // operation.
  const uint64_t last = last_value(), half = std::max<uint64_t>(depth_ / 2, 1);
  const uint64_t wanted = last > half ? last - half : last;
  const belay_host& host = hal->host().table();
  if (help) {
    const belay_status status = vt().synchronize(this, wanted, BELAY_FOREVER);
    if (BELAY_STATUS_CODE(status) == BELAY_FAILED_PRECONDITION) {
      // Either the caller cannot wait here, or this is the failure that the timeline carries: that has made
      // room.
      const belay_status now = vt().query(this, wanted);
      host.status_release(&host, now);
      if (BELAY_STATUS_CODE(now) == BELAY_UNAVAILABLE) return status;
    }
    host.status_release(&host, status);
    return BELAY_OK;
  }
  struct Parked {
    std::mutex mutex;
    std::condition_variable woken;
    bool done = false;
    belay_status status = BELAY_OK;
  } parked;
  const belay_completion completion{&parked, [](void* user, belay_status status) {
                                      Parked& waiting = *static_cast<Parked*>(user);
                                      std::lock_guard lock(waiting.mutex);
                                      waiting.status = status, waiting.done = true;
                                      waiting.woken.notify_one();
                                    }};
  if (const belay_status status = vt().on_reached(this, wanted, completion); status != BELAY_OK)
    return status;
  std::unique_lock lock(parked.mutex);
  parked.woken.wait(lock, [&] { return parked.done; });
  host.status_release(&host, parked.status);
  return BELAY_OK;
}

template <class Step>
belay_status Stream::record_step(Step&& step, belay_event* out) {
  std::lock_guard lock(lock_);
  if (!recording_) return BELAY_ABORTED;  // the capture ended meanwhile
  recording_->add(std::forward<Step>(step));
  if (out) *out = {0, 0};  // nothing runs, so there is nothing to wait for
  return BELAY_OK;
}

void Stream::note(const ReservedPart& part) {
  std::lock_guard lock(lock_);
  if (std::none_of(captured_.begin(), captured_.end(), [&](const ReservedPart& each) {
        return each.ranges == part.ranges && each.offset == part.offset && each.bytes == part.bytes;
      }))
    captured_.push_back(part);
}

belay_status Stream::copy_otherwise(belay_copy_req req, belay_event* out) {
  const auto wrong = [&](Code code, std::string text) {
    return hal->make({code, "Copy of " + std::to_string(req.bytes) + " bytes on a stream of '" +
                                device_->name() + "': " + text});
  };
  // Each end: a buffer of this device, or a host address. A buffer of another device is reached through the
  // host where its bytes are visible there.
  const auto settle = [&](belay_obj*& handle, uint64_t& offset, auto*& address,
                          const char* name) -> belay_status {
    if (!handle && req.bytes == 0) return BELAY_OK;
    if (!handle) {
      if (!address)
        return wrong(Code::kInvalidArgument,
                     std::string(name) + " is NULL and so is host_" + name + "; set one of them.");
      const std::optional<ReservedPart> part = hal->ledger().reserved(address, req.bytes);
      if (!part) return BELAY_OK;
      if (!part->has_memory())
        return wrong(Code::kOutOfRange, "host_" + std::string(name) + " lies in " + part->text() + ".");
      if (capturing()) note(*part);
      return BELAY_OK;
    }
    Buffer* buffer = alive<Buffer>(handle);
    if (!buffer) return hal->make(hal->bad_handle(handle, BELAY_OBJ_BUFFER, "copy", name));
    if (!buffer->holds(offset, req.bytes))
      return wrong(Code::kOutOfRange, std::string(name) + ": " + range(offset, req.bytes) +
                                          " are not inside the buffer, " + buffer->extent() + ".");
    if (buffer->mapped && capturing()) note(buffer->part(offset, req.bytes));
    if (buffer->device == device_) return BELAY_OK;
    if (buffer->hal != hal)
      return wrong(Code::kInvalidArgument, std::string(name) + " is a buffer of another runtime.");
    if (!buffer->host)
      return wrong(Code::kUnimplemented,
                   std::string(name) + " is a buffer of '" + buffer->device->name() +
                       "', whose memory the host does not see; copy through host memory.");
    address = static_cast<char*>(buffer->host) + offset;
    handle = nullptr;
    offset = 0;
    return BELAY_OK;
  };
  if (const belay_status status = settle(req.dst, req.dst_offset, req.host_dst, "dst"); status != BELAY_OK)
    return status;
  if (const belay_status status = settle(req.src, req.src_offset, req.host_src, "src"); status != BELAY_OK)
    return status;
  if (req.dst && req.dst == req.src && req.bytes && req.dst_offset < req.src_offset + req.bytes &&
      req.src_offset < req.dst_offset + req.bytes)
    return wrong(Code::kInvalidArgument,
                 "source and destination overlap: " + range(req.src_offset, req.bytes) + " and " +
                     range(req.dst_offset, req.bytes) + " of one buffer.");
  if (req.access_count && !req.accesses)
    return wrong(Code::kInvalidArgument,
                 "accesses is NULL and access_count is " + std::to_string(req.access_count) + ".");
  if (flags() & kRecording) {
    req.accesses = nullptr, req.access_count = 0;
    return record_step(req, out);
  }
  return queue("copy", out, [&](uint64_t* value) { return vt().copy(this, &req, value); });
}

belay_status Stream::fill(const belay_fill_req& req, belay_event* out) {
  const auto wrong = [&](Code code, const std::string& text) {
    return hal->make({code, "Fill of " + std::to_string(req.bytes) + " bytes on a stream of '" +
                                device_->name() + "': " + text});
  };
  const Buffer* dst = alive<Buffer>(req.dst);
  if (!dst) return hal->make(hal->bad_handle(req.dst, BELAY_OBJ_BUFFER, "fill", "dst"));
  if (dst->device != device_)
    return wrong(Code::kInvalidArgument,
                 "dst is a buffer of '" + dst->device->name() + "'; use a stream of that device.");
  if (!dst->holds(req.dst_offset, req.bytes))
    return wrong(Code::kOutOfRange,
                 range(req.dst_offset, req.bytes) + " are not inside the buffer, " + dst->extent() + ".");
  const uint64_t unit = req.pattern_bytes;
  if (unit != 1 && unit != 2 && unit != 4 && unit != 8)
    return wrong(Code::kInvalidArgument, "pattern_bytes is " + std::to_string(unit) + ", want 1, 2, 4 or 8.");
  if (req.bytes % unit)
    return wrong(Code::kInvalidArgument,
                 "its length is no multiple of pattern_bytes, " + std::to_string(unit) + ".");
  if (dst->mapped && capturing()) note(dst->part(req.dst_offset, req.bytes));
  if (flags() & kRecording) return record_step(req, out);
  return queue("fill", out, [&](uint64_t* value) { return vt().fill(this, &req, value); });
}

belay_status Stream::launch_otherwise(const belay_launch_req& req, belay_event* out) {
  const auto wrong = [&](Code code, const std::string& text) {
    return hal->make({code, "Launch on a stream of '" + device_->name() + "': " + text});
  };
  if (!req.kernel) return wrong(Code::kInvalidArgument, "kernel is NULL.");
  if (!req.kernel->fn)
    return wrong(Code::kInvalidArgument, "kernel '" + to_string(req.kernel->name) + "' has no function.");
  if (req.arg_count && !req.args)
    return wrong(Code::kInvalidArgument,
                 "args is NULL and arg_count is " + std::to_string(req.arg_count) + ".");
  if (req.access_count && !req.accesses)
    return wrong(Code::kInvalidArgument,
                 "accesses is NULL and access_count is " + std::to_string(req.access_count) + ".");
  if (flags() & kNoLaunch)
    return wrong(Code::kUnimplemented, "the driver '" + device_->driver() + "' launches no kernels.");
  if (flags() & kRecording) {
    Recording::Launch step{req, {req.args, req.args + req.arg_count}};
    step.req.args = nullptr, step.req.accesses = nullptr, step.req.access_count = 0;
    return record_step(std::move(step), out);
  }
  return queue("launch", out, [&](uint64_t* value) { return vt().launch(this, &req, value); });
}

belay_status Stream::host_call(void (*fn)(void*), void* user, belay_event* out) {
  if (!fn)
    return hal->make(
        {Code::kInvalidArgument, "Host call on a stream of '" + device_->name() + "': fn is NULL."});
  if (flags() & kRecording) return record_step(Recording::Call{fn, user}, out);
  return queue("host_call", out, [&](uint64_t* value) { return vt().host_call(this, fn, user, value); });
}

belay_status Stream::wait(belay_event event) {
  if (event.timeline == 0) return BELAY_OK;
  Timelines& timelines = hal->timelines();
  if (!timelines.ours(event.timeline))
    return hal->make({Code::kNotFound, "Wait on a stream of '" + device_->name() +
                                           "': the event's timeline " + std::to_string(event.timeline) +
                                           " is none of this runtime."});
  if (flags() & kRecording) return wait_recorded(event);
  belay_event at{};  // of the wait itself
  const belay_status status = queue_wait(event, &at);
  if (status == BELAY_OK && at.value && hal->options().checked) hal->uses().waited(at, event);
  return status;
}

belay_status Stream::queue_wait(belay_event event, belay_event* at) {
  Timelines& timelines = hal->timelines();
  if (Timelines::device_of(event.timeline) == device_->index()) [[likely]] {
    return queue("wait", at, [&](uint64_t* value) {
      const belay_status queued = vt().wait(this, event, value);
      if (BELAY_STATUS_CODE(queued) != BELAY_NOT_FOUND ||
          timelines.state(event.timeline) != Timelines::State::kEnded)
        return queued;
      // A stream finishes its work before it ends, so its events are reached.
      hal->release(queued);
      return belay_status(BELAY_OK);
    });
  }
  Timelines::Pin source(timelines, event.timeline);
  if (!source) {
    if (timelines.state(event.timeline) == Timelines::State::kEnded) return BELAY_OK;
    return hal->make({Code::kNotFound, "Wait on a stream of '" + device_->name() +
                                           "': the event's timeline " + std::to_string(event.timeline) +
                                           " was never made."});
  }
  Result<std::optional<belay_event>> instead = device_->mirrors().join(*device_, *source, event);
  if (!instead.ok()) return hal->make(instead.status());
  if (!*instead) return BELAY_OK;
  return queue("wait", at, [&](uint64_t* value) { return vt().wait(this, **instead, value); });
}

// What comes before in this stream is in the recording, or has been queued before any replay of it; of others
// only what is reached already can be left out.
belay_status Stream::wait_recorded(belay_event event) {
  if (event.timeline == timeline_) return BELAY_OK;
  const Timelines::Pin source(hal->timelines(), event.timeline);
  if (!source) {
    if (hal->timelines().state(event.timeline) == Timelines::State::kEnded) return BELAY_OK;
    return hal->make({Code::kNotFound, "Wait on a stream of '" + device_->name() +
                                           "': the event's timeline " + std::to_string(event.timeline) +
                                           " was never made."});
  }
  const belay_status status = source->query(event.value);
  if (BELAY_STATUS_CODE(status) != BELAY_UNAVAILABLE) return status;
  hal->release(status);
  return hal->make({Code::kFailedPrecondition,
                    "A stream of '" + device_->name() +
                        "' is recording and cannot record a wait for operation " +
                        std::to_string(event.value) + " of timeline " + std::to_string(event.timeline) +
                        ": wait for it before the recording, or let the stream that replays wait."});
}

// ---- the rest
// --------------------------------------------------------------------------------------------------------

belay_status Stream::flush() {
  if (!BELAY_HAS(&vt(), belay_stream_vt, flush)) return BELAY_OK;
  const belay_status status = vt().flush(this);
  return status == BELAY_OK ? status : hal->pass(status, *this, "flush");
}

belay_status Stream::record(belay_event* out) {
  *out = {timeline_, vt().last_value(this)};
  return BELAY_OK;
}

belay_status Stream::query(uint64_t value) {
  const belay_status status = vt().query(this, value);
  return status == BELAY_OK || status == BELAY_UNAVAILABLE ? status : hal->pass(status, *this, "query");
}

uint64_t Stream::pending() {
  // A driver tells of one value whether it is reached, so the border is searched: in growing steps from the
  // last value back, as a stream has a short queue and a long past, then by halves.
  const belay_host& host = hal->host().table();
  const auto is_reached = [&](uint64_t value) {
    const belay_status status = vt().query(this, value);
    host.status_release(&host, status);
    return BELAY_STATUS_CODE(status) != BELAY_UNAVAILABLE;  // a failure has ended too
  };
  const uint64_t last = last_value();
  uint64_t reached = last, open = last + 1;  // the border is after `reached`, before `open`
  for (uint64_t step = 1; reached > 0 && !is_reached(reached); step *= 2) {
    open = reached;
    reached = reached > step ? reached - step : 0;
  }
  while (open - reached > 1) {
    const uint64_t middle = reached + (open - reached) / 2;
    (is_reached(middle) ? reached : open) = middle;
  }
  return last - reached;
}

belay_status Stream::synchronize(uint64_t value, uint64_t timeout_ns) {
  const belay_status status = vt().synchronize(this, value, timeout_ns);
  return status == BELAY_OK ? status : hal->pass(status, *this, "synchronize");
}

belay_status Stream::on_reached(uint64_t value, belay_completion completion) {
  const belay_status status = vt().on_reached(this, value, completion);
  return status == BELAY_OK ? status : hal->pass(status, *this, "on_reached");
}

belay_status Stream::recover() {
  std::lock_guard lock(lock_);
  const belay_status status = vt().recover(this);
  return status == BELAY_OK ? status : hal->pass(status, *this, "recover");
}

belay_status Stream::capture_begin() {
  std::lock_guard lock(lock_);
  if (flags() & (kRecording | kCapturing))
    return hal->make({Code::kFailedPrecondition, "A capture on this stream of '" + device_->name() +
                                                     "' has begun already; end it before the next."});
  if (const belay_driver_program_vt* programs = device_->programs()) {
    if (const belay_status status = programs->capture_begin(this); status != BELAY_OK)
      return hal->pass(status, *this, "capture_begin");
    flags_.store(flags() | kCapturing, std::memory_order_relaxed);
    return BELAY_OK;
  }
  recording_ = std::make_unique<Recording>();
  flags_.store(flags() | kRecording, std::memory_order_relaxed);
  return BELAY_OK;
}

Result<Program*> Stream::capture_end() {
  std::unique_ptr<Recording> recorded;
  std::vector<ReservedPart> uses;
  belay_created made{};
  {
    std::lock_guard lock(lock_);
    if (!(flags() & (kRecording | kCapturing)))
      return Status(Code::kFailedPrecondition, "No capture has begun on this stream of '" + device_->name() +
                                                   "'; call capture_begin first.");
    const bool of_driver = flags() & kCapturing;
    uses = std::move(captured_);
    captured_.clear();
    flags_.store(flags() & ~uint32_t(kRecording | kCapturing), std::memory_order_relaxed);
    if (of_driver) {
      made.hdr.struct_size = sizeof made;
      if (const belay_status raw = device_->programs()->capture_end(this, &made); raw != BELAY_OK)
        return hal->take(raw, device_->driver(), "capture_end");
    } else {
      recorded = std::move(recording_);
    }
  }
  BELAY_ASSIGN(Program* const program, recorded ? device_->adopt_program(std::move(recorded), 0)
                                                : device_->adopt_program(made, 0));
  program->set_uses(std::move(uses));
  return program;
}

}  // namespace belay::hal
