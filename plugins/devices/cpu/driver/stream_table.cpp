// The slots of a stream: each checks its request and queues one operation.
#include "capture.h"
#include "copy.h"
#include "device.h"
#include "queueing.h"
#include "stream.h"
#include "waiting.h"

#include <belay/plugin.hpp>

#include <cstring>
#include <string>

namespace belay::cpu {
namespace {

// ---- operations as they run --------------------------------------------------------------------------------------------
belay_status run_launch(Exec& exec, const Packet& packet) {
  const auto& kernel = *pointer<const belay_kernel>(packet.words[0]);
  const ScratchMark mark(*exec.thread);
  return kernel.fn(&exec.api, kernel.state, packet.words + 1);
}

belay_status run_shaped_launch(Exec& exec, const Packet& packet) {
  const auto& kernel = *pointer<const belay_kernel>(packet.words[0]);
  const ScratchMark mark(*exec.thread);
  exec.output = reinterpret_cast<decltype(exec.output)>(packet.words[1]);
  exec.output_user = pointer<void>(packet.words[2]);
  const belay_status status = kernel.fn(&exec.api, kernel.state, packet.words + 3);
  exec.output = nullptr;
  return status;
}

belay_status run_foreign_launch(Exec& exec, const Packet& packet) {
  return run_foreign(exec, [&] { return run_launch(exec, packet); });
}
belay_status run_foreign_shaped_launch(Exec& exec, const Packet& packet) {
  return run_foreign(exec, [&] { return run_shaped_launch(exec, packet); });
}

belay_status run_host_call(Exec& exec, const Packet& packet) {
  return run_foreign(exec, [&] {
    reinterpret_cast<void (*)(void*)>(packet.words[0])(pointer<void>(packet.words[1]));
    return belay_status{BELAY_OK};
  });
}

belay_status run_copy(Exec& exec, const Packet& packet) {
  copy_bytes(exec, pointer<void>(packet.words[0]), pointer<const void>(packet.words[1]), packet.words[2]);
  return BELAY_OK;
}

belay_status run_fill(Exec& exec, const Packet& packet) {
  fill_bytes(exec, pointer<void>(packet.words[0]), packet.words[1], packet.words[2], packet.words[3]);
  return BELAY_OK;
}

belay_status run_wait(Exec&, const Packet&) { return BELAY_OK; }  // the stream has seen to it

uint32_t launch_cost(const belay_kernel& kernel) {
  return kernel.cost_ns == 0 || kernel.cost_ns >= kUnknownCost ? kUnknownCost : uint32_t(kernel.cost_ns);
}

// ---- queueing ----------------------------------------------------------------------------------------------------------
belay_status past_the_end(const Stream& stream, const char* what, uint64_t offset, uint64_t bytes, uint64_t size) {
  return stream.device().fail(BELAY_OUT_OF_RANGE, std::string(what) + " on " + where(stream) + ": bytes " +
                                                      std::to_string(offset) + " to " + std::to_string(offset + bytes) +
                                                      " of a buffer of " + std::to_string(size) + " bytes.");
}

// The address of a range of a buffer; null where it is not inside.
char* inside(const belay_obj* buffer, uint64_t offset, uint64_t bytes) {
  const Buffer& b = self<Buffer>(buffer);
  return offset <= b.bytes && bytes <= b.bytes - offset ? b.data + offset : nullptr;
}

belay_status copy(belay_obj* object, const belay_copy_req* req, uint64_t* out_value) noexcept {
  Stream& stream = self<Stream>(object);
  if (stream.device().in_child()) [[unlikely]]
    return stream.device().refuse_in_child();
  char* to = static_cast<char*>(req->host_dst);
  const char* from = static_cast<const char*>(req->host_src);
  if (req->dst && !(to = inside(req->dst, req->dst_offset, req->bytes))) [[unlikely]]
    return past_the_end(stream, "Copy", req->dst_offset, req->bytes, self<Buffer>(req->dst).bytes);
  if (req->src && !(from = inside(req->src, req->src_offset, req->bytes))) [[unlikely]]
    return past_the_end(stream, "Copy", req->src_offset, req->bytes, self<Buffer>(req->src).bytes);
  if (req->bytes && (!to || !from)) [[unlikely]]
    return stream.device().fail(BELAY_INVALID_ARGUMENT,
                                "Copy on " + where(stream) + " has neither a buffer nor host memory as its " +
                                    (to ? "source." : "destination."));
  // Compared as numbers: the ranges may belong to different objects.
  const auto a = reinterpret_cast<uintptr_t>(to), b = reinterpret_cast<uintptr_t>(from);
  if (a < b + req->bytes && b < a + req->bytes) [[unlikely]]
    return stream.device().fail(BELAY_INVALID_ARGUMENT, "Copy on " + where(stream) + ": source and destination, " +
                                                            std::to_string(req->bytes) + " bytes each, overlap.");
  if (stream.recorder()) [[unlikely]]
    return record(stream, [&](Recorder& r) { r.add_copy(to, from, req->bytes); }, out_value);
  return queue(stream, Kind::kCopy, run_copy, 0, copy_cost(req->bytes), word(to), word(from), req->bytes, 0, out_value);
}

belay_status fill(belay_obj* object, const belay_fill_req* req, uint64_t* out_value) noexcept {
  Stream& stream = self<Stream>(object);
  if (stream.device().in_child()) [[unlikely]]
    return stream.device().refuse_in_child();
  const uint64_t width = req->pattern_bytes;
  if ((width != 1 && width != 2 && width != 4 && width != 8) || req->bytes % width != 0) [[unlikely]]
    return stream.device().fail(BELAY_INVALID_ARGUMENT, "Fill on " + where(stream) + ": a pattern of " +
                                                            std::to_string(width) + " bytes over " +
                                                            std::to_string(req->bytes) +
                                                            "; want 1, 2, 4 or 8 bytes that divide the length.");
  char* const to = inside(req->dst, req->dst_offset, req->bytes);
  if (!to) [[unlikely]]
    return past_the_end(stream, "Fill", req->dst_offset, req->bytes, self<Buffer>(req->dst).bytes);
  if (stream.recorder()) [[unlikely]]
    return record(stream, [&](Recorder& r) { r.add_fill(to, req->bytes, req->pattern, width); }, out_value);
  return queue(stream, Kind::kFill, run_fill, 0, copy_cost(req->bytes), word(to), req->bytes, req->pattern, width,
               out_value);
}

// What is not for a plain kernel with few arguments on a stream with room.
[[gnu::noinline]] belay_status launch_slowly(Stream& stream, const belay_launch_req& req, uint64_t* out_value) {
  Device& device = stream.device();
  if (device.in_child()) return device.refuse_in_child();
  const belay_kernel& kernel = *req.kernel;
  const bool shaped = kernel.hdr.flags & BELAY_KERNEL_WRITES_SHAPE;
  const bool foreign = kernel.hdr.flags & (BELAY_KERNEL_BLOCKING | BELAY_KERNEL_USER);
  const uint64_t head = shaped ? 3 : 1, words = head + req.arg_count;
  const uint64_t slots = words <= kWordsInFirst ? 1 : 1 + (words - kWordsInFirst + kWordsInNext - 1) / kWordsInNext;
  if (slots > stream.most_slots())
    return device.fail(BELAY_INVALID_ARGUMENT,
                       "Kernel '" + to_string(kernel.name) + "' on " + where(stream) + " has " +
                           std::to_string(req.arg_count) + " arguments; this stream takes " +
                           std::to_string(kWordsInNext * stream.most_slots() - kWordsInNext) +
                           " (a larger queue_depth takes more).");
  if (shaped && !BELAY_HAS(&req, belay_launch_req, output))
    return device.fail(BELAY_INVALID_ARGUMENT,
                       "Kernel '" + to_string(kernel.name) + "' on " + where(stream) +
                           " chooses the shapes of its outputs (WRITES_SHAPE), so the launch needs `output`.");
  if (foreign) {
    if (Status status = device.workers().ensure_one(); !status.ok()) return to_c(device.host(), status);
  }
  if (stream.recorder())
    return record(
        stream, [&](Recorder& r) { shaped ? r.add_shaped(req) : r.add(kernel, req.args, req.arg_count); }, out_value);
  Packet* const packet = begin_or_null(stream, slots);
  if (!packet) return BELAY_QUEUE_FULL;
  packet->run = foreign ? (shaped ? run_foreign_shaped_launch : run_foreign_launch)
                        : (shaped ? run_shaped_launch : run_launch);
  packet->cost_ns = launch_cost(kernel);
  packet->slots = uint16_t(slots);
  packet->kind = Kind::kLaunch;
  packet->flags = foreign ? kWorkerOnly : 0;
  packet->words[0] = word(&kernel);
  if (shaped) {
    packet->words[1] = reinterpret_cast<uint64_t>(req.output);
    packet->words[2] = word(req.output_user);
  }
  uint64_t* const args = packet->words + head;
  for (uint64_t i = 0; i < req.arg_count; ++i) args[i] = req.args[i];
  if (foreign) device.foreign_queued();
  stream.commit(slots, packet->cost_ns, out_value);
  return BELAY_OK;
}

belay_status launch(belay_obj* object, const belay_launch_req* req, uint64_t* out_value) noexcept {
  constexpr uint32_t kUnusual = BELAY_KERNEL_WRITES_SHAPE | BELAY_KERNEL_BLOCKING | BELAY_KERNEL_USER;
  Stream& stream = self<Stream>(object);
  const belay_kernel& kernel = *req->kernel;
  const uint64_t count = req->arg_count;
  Packet* const packet = stream.begin_fast();
  if (!packet || count > kWordsInFirst - 1 || kernel.hdr.flags & kUnusual) [[unlikely]]
    return launch_slowly(stream, *req, out_value);
  packet->run = run_launch;
  packet->cost_ns = launch_cost(kernel);
  packet->slots = 1;
  packet->kind = Kind::kLaunch;
  packet->flags = 0;
  packet->words[0] = word(&kernel);
  for (uint64_t i = 0; i < count; ++i) packet->words[1 + i] = req->args[i];
  stream.commit(1, packet->cost_ns, out_value);
  return BELAY_OK;
}

belay_status wait(belay_obj* object, belay_event event, uint64_t* out_value) noexcept {
  Stream& stream = self<Stream>(object);
  Device& device = stream.device();
  if (device.in_child()) [[unlikely]]
    return device.refuse_in_child();
  Timeline* timeline = &stream;
  if (event.timeline == 0) {
    event.value = 0;
  } else if (event.timeline == stream.id()) {
    if (event.value > stream.queued()) [[unlikely]]
      return device.fail(BELAY_FAILED_PRECONDITION, "The " + where(stream) + " would wait for itself: for operation " +
                                                        std::to_string(event.value) + " of its own, and " +
                                                        std::to_string(stream.queued()) + " are queued.");
  } else {
    try {
      timeline = stream.find_timeline(event.timeline);
    } catch (const std::bad_alloc&) {
      return BELAY_RESOURCE_EXHAUSTED;
    }
    if (!timeline) [[unlikely]]
      return device.fail(BELAY_NOT_FOUND, "The " + where(stream) + " cannot wait for timeline " +
                                              std::to_string(event.timeline) + ": the device has none with this id.");
  }
  if (stream.recorder()) [[unlikely]] {
    // What comes before in this stream is in the recording, or has been queued before any replay of it.
    if (timeline == &stream || timeline->reached() >= event.value) {
      *out_value = stream.queued();
      return BELAY_OK;
    }
    return device.fail(BELAY_FAILED_PRECONDITION,
                       "The " + where(stream) + " is recording and cannot record a wait for operation " +
                           std::to_string(event.value) + " of timeline " + std::to_string(event.timeline) +
                           ": wait for it before the recording, or let the stream that replays wait.");
  }
  return queue(stream, Kind::kWait, run_wait, kSpecial, 0, word(timeline), event.value, 0, 0, out_value);
}

belay_status host_call(belay_obj* object, void (*fn)(void*), void* user, uint64_t* out_value) noexcept {
  Stream& stream = self<Stream>(object);
  Device& device = stream.device();
  if (device.in_child()) [[unlikely]]
    return device.refuse_in_child();
  if (Status status = device.workers().ensure_one(); !status.ok()) return to_c(device.host(), status);
  if (stream.recorder()) [[unlikely]]
    return record(stream, [&](Recorder& r) { r.add_host_call(fn, user); }, out_value);
  device.foreign_queued();
  const belay_status status = queue(stream, Kind::kHostCall, run_host_call, kWorkerOnly, kUnknownCost,
                                    reinterpret_cast<uint64_t>(fn), word(user), 0, 0, out_value);
  if (status == BELAY_OK)
    stream.flush(*out_value);  // whoever wants a callback wants it soon
  else
    device.foreign_ended();
  return status;
}

belay_status flush(belay_obj* object) noexcept {
  Stream& stream = self<Stream>(object);
  if (stream.device().in_child()) [[unlikely]]
    return stream.device().refuse_in_child();
  stream.flush(stream.last_value());
  return BELAY_OK;
}

// ---- waiting -----------------------------------------------------------------------------------------------------------
belay_status outcome(Stream& stream, uint64_t value) {
  const FailurePtr failure = stream.failure_of(value);
  return failure ? stream.device().fail(*failure) : BELAY_OK;
}

belay_status query(belay_obj* object, uint64_t value) noexcept {
  Stream& stream = self<Stream>(object);
  if (stream.device().in_child()) [[unlikely]]
    return stream.device().refuse_in_child();
  if (stream.reached() >= value) return outcome(stream, value);
  stream.flush(std::min(value, stream.last_value()));
  return BELAY_UNAVAILABLE;
}

belay_status synchronize(belay_obj* object, uint64_t value, uint64_t timeout_ns) noexcept {
  Stream& stream = self<Stream>(object);
  if (stream.device().in_child()) [[unlikely]]
    return stream.device().refuse_in_child();
  if (stream.reached() < value)
    if (const belay_status status = wait_for(stream, value, timeout_ns); status != BELAY_OK) return status;
  return outcome(stream, value);
}

// A completion that waits for its value, and then for a worker.
struct Waiting : TimelineWaiter {
  Stream* stream = nullptr;
  DueCompletion* due = nullptr;
};

belay_status on_reached(belay_obj* object, uint64_t value, belay_completion completion) noexcept {
  Stream& stream = self<Stream>(object);
  Device& device = stream.device();
  if (device.in_child()) [[unlikely]]
    return device.refuse_in_child();
  return guard(device.host(), [&]() -> Status {
    if (stream.reached() < value) {
      BELAY_TRY(device.workers().ensure_one());
      auto due = std::make_unique<DueCompletion>();
      due->completion = completion;
      auto waiting = std::make_unique<Waiting>();
      waiting->value = value;
      waiting->stream = &stream;
      waiting->wants_flush = true;
      waiting->fire = [](TimelineWaiter& waiter) noexcept {
        const std::unique_ptr<Waiting> mine(&static_cast<Waiting&>(waiter));
        mine->stream->device().workers().complete(mine->due);
      };
      due->stream = &stream;
      due->value = value;
      waiting->due = due.get();
      stream.ref();  // given back by the worker, which asks for the outcome
      if (stream.add(*waiting)) {
        (void)waiting.release();
        (void)due.release();
        stream.flush(std::min(value, stream.last_value()));
        return {};
      }
      stream.unref();
    }
    completion.done(completion.user, outcome(stream, value));
    return {};
  });
}

uint64_t last_value(belay_obj* object) noexcept { return self<Stream>(object).last_value(); }

belay_status recover(belay_obj* object) noexcept {
  Stream& stream = self<Stream>(object);
  if (stream.device().in_child()) [[unlikely]]
    return stream.device().refuse_in_child();
  const uint64_t last = stream.last_value();
  if (const belay_status status = wait_for(stream, last, kForever); status != BELAY_OK) return status;
  // All has run, but a worker may still hold the token for a moment; nothing else is queued meanwhile.
  while (!stream.try_acquire(this_thread())) relax();
  stream.clear_failure();
  stream.end_failure(last);
  stream.release();
  return BELAY_OK;
}

void destroy(belay_obj* object) noexcept {
  Stream& stream = self<Stream>(object);
  Device& device = stream.device();
  if (device.in_child()) return;
  // From inside an operation of its own it cannot be finished: it stays until the device goes.
  if (stream.owner() == &this_thread()) return;
  if (const belay_status status = wait_for(stream, stream.last_value(), kForever); status != BELAY_OK)
    device.host().status_release(&device.host(), status);
  while (!stream.try_acquire(this_thread())) relax();  // for good: nobody runs it again
  stream.retire();
  device.remove_timeline(&stream);
}

}  // namespace

const belay_stream_vt kStreamTable = {.hdr = {sizeof(belay_stream_vt), 0, nullptr},
                                      .copy = copy,
                                      .fill = fill,
                                      .launch = launch,
                                      .wait = wait,
                                      .host_call = host_call,
                                      .flush = flush,
                                      .query = query,
                                      .synchronize = synchronize,
                                      .on_reached = on_reached,
                                      .last_value = last_value,
                                      .recover = recover,
                                      .destroy = destroy};

}  // namespace belay::cpu
