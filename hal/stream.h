// hal/stream.h: a stream of a device: work in order.
#pragma once

#include <belay/abi/driver.h>
#include <belay/abi/hal.h>
#include <belay/status.hpp>
#include "hal/buffer.h"
#include "hal/slots.h"
#include "hal/spin_lock.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace belay::hal {

class Device;
class Program;
class Recording;

// Checks what is queued and hands it to the driver, under a lock unless one thread queues by contract. A
// status is as the driver gave it, so that the text of a failure is not copied on its way to the caller.
// Calls of the driver may throw what a broken plugin throws; the lock is free by then.
class Stream : public Object {
 public:
  static constexpr uint32_t kKind = BELAY_OBJ_STREAM;
  enum Flag : uint32_t {
    kSingleProducer = 1,
    kBlock = 2,      // a full queue blocks the caller
    kRecording = 4,  // a capture that the HAL makes itself
    kCapturing = 8,  // a capture of the driver's
    kNoLaunch = 16,  // the driver launches no kernels
  };

  Stream(Device& device, uint64_t timeline, uint64_t depth, uint32_t flags);
  ~Stream();
  // Once it has its table, before others use it.
  void prepare() {
    if (!BELAY_HAS(&vt(), belay_stream_vt, launch)) flags_ |= kNoLaunch;
  }

  const belay_stream_vt& vt() const { return *static_cast<const belay_stream_vt*>(table); }
  Device& device() const { return *device_; }
  uint64_t timeline() const { return timeline_; }

  belay_status copy(const belay_copy_req& req, belay_event* out) {
    if (fits(req)) [[likely]]
      return queue("copy", out, [&](uint64_t* value) { return vt().copy(this, &req, value); });
    return copy_otherwise(req, out);
  }
  belay_status fill(const belay_fill_req& req, belay_event* out);
  belay_status launch(const belay_launch_req& req, belay_event* out) {
    if (!req.kernel || !req.kernel->fn || (req.arg_count && !req.args) ||
        (req.access_count && !req.accesses) || (flags() & (kRecording | kNoLaunch))) [[unlikely]]
      return launch_otherwise(req, out);
    return queue("launch", out, [&](uint64_t* value) { return vt().launch(this, &req, value); });
  }
  belay_status wait(belay_event event);
  belay_status host_call(void (*fn)(void*), void* user, belay_event* out);
  belay_status flush();
  belay_status record(belay_event* out);
  belay_status query(uint64_t value);
  belay_status synchronize(uint64_t value, uint64_t timeout_ns);
  belay_status on_reached(uint64_t value, belay_completion completion);
  belay_status recover();
  uint64_t last_value() { return vt().last_value(this); }
  uint64_t pending();  // operations that have not ended

  bool capturing() const { return flags() & (kRecording | kCapturing); }
  belay_status capture_begin();
  void note(const ReservedPart& part);  // while it captures: the program will use this
  Result<Program*> capture_end();

  // Calls slot(&value), a queueing slot of the driver, with the lock held, and again after there is room.
  // `always_room`: a full queue is never reported, for work that has begun.
  template <class Slot>
  belay_status queue(const char* what, belay_event* out, Slot&& slot, bool always_room = false) {
    for (uint64_t value = 0;;) {
      belay_status status;
      if (flags() & kSingleProducer) {
        status = slot(&value);
      } else {
        std::lock_guard lock(lock_);
        status = slot(&value);
      }
      if (status == BELAY_OK) [[likely]] {
        if (out) *out = {timeline_, value};
        return BELAY_OK;
      }
      status = not_queued(what, status, always_room);
      if (status != BELAY_OK) return status;
    }
  }

 private:
  uint32_t flags() const { return flags_.load(std::memory_order_relaxed); }
  // The buffers are this device's and hold the ranges, host addresses lie in no reserved buffer, and nothing is to be
  // recorded.
  bool fits(const belay_copy_req& req) const {
    const Buffer* dst = alive<Buffer>(req.dst);
    const Buffer* src = alive<Buffer>(req.src);
    const bool host_mapped = !any_reserved_.load(std::memory_order_relaxed);
    const bool to = req.dst ? dst && dst->device == device_ && dst->holds(req.dst_offset, req.bytes)
                            : (req.host_dst != nullptr && host_mapped) || req.bytes == 0;
    const bool from = req.src ? src && src->device == device_ && src->holds(req.src_offset, req.bytes)
                              : (req.host_src != nullptr && host_mapped) || req.bytes == 0;
    const bool apart = !dst || dst != src || req.dst_offset + req.bytes <= req.src_offset ||
                       req.src_offset + req.bytes <= req.dst_offset || req.bytes == 0;
    return to && from && apart && (req.accesses || !req.access_count) && !capturing();
  }
  belay_status copy_otherwise(belay_copy_req req, belay_event* out);
  belay_status launch_otherwise(const belay_launch_req& req, belay_event* out);
  // Of a status that a queueing slot gave: OK where there is room now.
  belay_status not_queued(const char* what, belay_status status, bool always_room);
  belay_status make_room(bool help);
  belay_status wait_recorded(belay_event event);
  // `at` is the event of the wait, or left as it is where nothing has to be waited for.
  belay_status queue_wait(belay_event event, belay_event* at);
  template <class Step>
  belay_status record_step(Step&& step, belay_event* out);

  Device* const device_;
  const std::atomic<bool>& any_reserved_;  // of the ledger
  const uint64_t timeline_;
  std::atomic<uint32_t> flags_;
  SpinLock lock_;
  const uint64_t depth_;                  // what the queue holds
  std::unique_ptr<Recording> recording_;  // with kRecording; changed under lock_
  std::vector<ReservedPart> captured_;    // what the capture uses of reserved buffers; changed under lock_
};

}  // namespace belay::hal
