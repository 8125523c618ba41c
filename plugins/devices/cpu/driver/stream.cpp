#include "stream.h"

#include "capture.h"
#include "device.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>

namespace belay::cpu {

Result<Stream*> Stream::create(Device& device, const belay_stream_req& req) {
  const uint64_t depth = req.queue_depth ? req.queue_depth : device.options().queue_depth;
  if (depth > 1'000'000)
    return Status(Code::kInvalidArgument, "Stream on " + device.name() + ": queue_depth is " +
                                              std::to_string(depth) + ", want 1 to 1000000.");
  if (req.priority < -8 || req.priority > 7)
    return Status(Code::kInvalidArgument, "Stream on " + device.name() + ": priority is " +
                                              std::to_string(req.priority) + ", want -8 to 7.");
  device.workers().stream_begins();
  try {
    return new Stream(device, req, depth);
  } catch (...) {
    device.workers().stream_ended();
    throw;
  }
}

Stream::Stream(Device& device, const belay_stream_req& req, uint64_t depth)
    : Timeline(req.timeline, this),
      device_(device),
      priority_(req.priority),
      continue_on_failure_(req.hdr.flags & BELAY_STREAM_CONTINUE_ON_FAILURE),
      wake_backlog_ns_(device.options().wake_backlog_ns),
      sure_(device.sure_word()),
      depth_(depth),
      // Twice the depth: operations with many arguments take more than one slot.
      capacity_(std::bit_ceil(std::max<uint64_t>(depth * 2, 64))),
      mask_(capacity_ - 1),
      most_slots_(std::min<uint64_t>(capacity_ / 4, Spill::kMostSlots)),
      ring_(static_cast<Packet*>(std::aligned_alloc(alignof(Packet), capacity_ * sizeof(Packet)))) {
  if (!ring_) throw std::bad_alloc();
  std::memset(static_cast<void*>(ring_), 0, capacity_ * sizeof(Packet));  // page faults now, not while queueing
  lane_wait.stream = this;
  lane_wait.priority = priority_;
  lane_wait.fire = [](LaneWaiter& waiter) noexcept {
    Stream& stream = *static_cast<LaneWait&>(waiter).stream;
    stream.in_line.store(false, std::memory_order_release);
    stream.device_.workers().ready(stream);
    stream.unref();
  };
  blocked_waiter_.stream = this;
  blocked_waiter_.fire = [](TimelineWaiter& waiter) noexcept {
    Stream& stream = *static_cast<BlockedWaiter&>(waiter).stream;
    stream.device_.workers().ready(stream);
    stream.unref();
  };
}

Stream::~Stream() {
  std::free(ring_);
  device_.workers().stream_ended();
}

void Stream::retire() {
  // Left over only where a circle of waits stops the stream for ever.
  while (const Packet* const packet = next_packet()) {
    if (packet->kind != Kind::kFiller) device_.skip(*packet);
    if (in_spill_) {
      spill_.pop(packet->slots);
      in_spill_ = false;
    } else {
      head_position_ += packet->slots;
    }
  }
  if (blocked_waiter_.on) {
    if (blocked_waiter_.on->remove(blocked_waiter_)) unref();
    blocked_waiter_.on->unref();
    blocked_waiter_.on = nullptr;
  }
  for (const Retired& r : retired_) r.timeline->unref();
  retired_.clear();
  for (Remembered& r : remembered_) {
    if (r.timeline) r.timeline->unref();
    r = {};
  }
  set_recorder(nullptr);
}

// ---- the producer ----------------------------------------------------------------------------------------------------
void Stream::set_recorder(std::unique_ptr<Recorder> recorder) {
  recorder_ = std::move(recorder);
  special_ = spilling_ || recorder_;
}

std::unique_ptr<Recorder> Stream::take_recorder() {
  std::unique_ptr<Recorder> recorder = std::move(recorder_);
  special_ = spilling_;
  return recorder;
}

Packet* Stream::begin(uint64_t slots) {
  const uint64_t room = capacity_ - (tail_position_ & mask_);  // up to the end of the ring
  const uint64_t need = slots <= room ? slots : slots + room;
  if (spilling_ || tail_position_ + need - head_seen_ > capacity_ || last_ - reached_seen_ >= depth_)
    return make_room(slots, need);
  return at_tail(slots, room);
}

Packet* Stream::at_tail(uint64_t slots, uint64_t room) {
  if (slots > room) {
    Packet& filler = ring_[tail_position_ & mask_];
    filler.kind = Kind::kFiller;
    filler.flags = kSpecial;
    filler.slots = uint16_t(room);
    tail_position_ += room;  // published with the operation that follows
  }
  return &ring_[tail_position_ & mask_];
}

Packet* Stream::make_room(uint64_t slots, uint64_t need) {
  reached_seen_ = reached();
  const uint64_t pending = last_ - reached_seen_;
  if (spilling_) {
    if (!spill_.drained()) {
      if (pending >= device_.options().backlog_hard) return nullptr;
      return spill_.reserve(slots);
    }
    spilling_ = special_ = false;  // all of it ran: the ring, older and empty by then, is next
  }
  head_seen_ = head_.load(std::memory_order_acquire);
  if (tail_position_ + need - head_seen_ <= capacity_ && pending < depth_)
    return at_tail(slots, capacity_ - (tail_position_ & mask_));
  // To make room, foreign code may have to run first, which may wait for what the caller holds: go on elsewhere.
  if (device_.foreign_pending() == 0 || pending >= device_.options().backlog_hard) return nullptr;
  Packet* const packet = spill_.reserve(slots);
  spilling_ = special_ = true;
  return packet;
}

void Stream::after_commit() {
  const uint32_t flags = attention();
  bool wake = flags & ~kTickOff && fire_submitted(last_);
  if (flags & kTickOff) wake = !device_.start_tick() || wake;
  if (backlog_ns_ >= wake_backlog_ns_) {
    backlog_ns_ = 0;
    // Worth it only if the work is really there still, and not with the first operation after a pause.
    wake = wake || last_ - reached() > 1;
  }
  if (wake) flush(last_);
}

Timeline* Stream::find_timeline(uint64_t id) {
  Remembered& slot = remembered_[id % std::size(remembered_)];
  if (slot.id == id && slot.timeline && !slot.timeline->closed()) return slot.timeline;
  const uint64_t done = reached();
  std::erase_if(retired_, [&](const Retired& r) {
    if (r.value > done) return false;
    r.timeline->unref();
    return true;
  });
  Timeline* const found = device_.find_timeline(id);  // a reference for us
  if (!found) return nullptr;
  if (slot.timeline) retired_.push_back({slot.timeline, last_});
  slot = {id, found};
  return found;
}

// ---- any thread --------------------------------------------------------------------------------------------------------
void Stream::flush(uint64_t value) {
  uint64_t before = flush_to_.load(std::memory_order_relaxed);
  while (before < value && !flush_to_.compare_exchange_weak(before, value, std::memory_order_acq_rel)) {
  }
  if (reached() < value) device_.workers().ready(*this);
}

void Stream::after_release() {
  // Whoever wanted it set its flag before looking at the owner, so either we see the flag or it saw no owner.
  if (!release_wanted_.exchange(false, std::memory_order_seq_cst)) return;
  if (worker_wanted_.exchange(false, std::memory_order_seq_cst)) device_.workers().ready(*this);
  fire_released();
}

// ---- the owner of the token -----------------------------------------------------------------------------------------
const Packet* Stream::next_packet() {
  if (head_position_ != tail_seen_) return &ring_[head_position_ & mask_];
  tail_seen_ = tail_.load(std::memory_order_acquire);
  if (head_position_ != tail_seen_) return &ring_[head_position_ & mask_];
  if (!spill_.pending()) return nullptr;
  // What was published in the ring before the spill is older. While there is a spill the ring does not grow.
  tail_seen_ = tail_.load(std::memory_order_acquire);
  if (head_position_ != tail_seen_) return &ring_[head_position_ & mask_];
  in_spill_ = true;
  return spill_.front();
}

bool Stream::affordable(const Packet& packet, const RunRules& rules) {
  const uint64_t now = device_.now_ns();
  if (now >= rules.deadline || packet.cost_ns == kUnknownCost) return false;
  return packet.cost_ns < (rules.deadline - now) / 4;
}

Stop Stream::run(Exec& exec, uint64_t limit, const RunRules& rules) {
  uint64_t value = reached();
  while (value < limit) {
    const Packet* packet = &ring_[head_position_ & mask_];
    if (head_position_ == tail_seen_) [[unlikely]] {
      packet = next_packet();
      if (!packet) return Stop::kEmpty;
    }
    if (packet->flags != 0) [[unlikely]] {
      if (packet->kind == Kind::kFiller) {
        head_position_ += packet->slots;
        continue;
      }
      if (packet->kind == Kind::kWait) {
        Timeline& on = *pointer<Timeline>(packet->words[0]);
        if (on.reached() < packet->words[1] && (!failure_ || continue_on_failure_)) {
          blocked_on_ = &on;
          blocked_value_ = packet->words[1];
          return Stop::kBlocked;
        }
        if (FailurePtr failure = on.failure_of(packet->words[1])) fail_with(value + 1, std::move(failure));
      }
      if (packet->flags & kWorkerOnly && !rules.worker) return Stop::kForWorker;
    }
    if (packet->cost_ns >= kHeavy && !(packet->flags & kWorkerOnly)) {
      const int64_t urgency = std::max(priority_, rules.urgency);
      if (exec.thread->lane != &device_) {
        if (!device_.lanes().try_acquire(urgency)) [[unlikely]]
          return Stop::kNoLane;
        exec.thread->lane = &device_;
      }
      if (device_.lanes().top_priority() > urgency || (rules.worker && device_.workers().top_priority() > urgency))
          [[unlikely]]
        return Stop::kPreempted;
    }
    if (rules.timed && !affordable(*packet, rules)) return Stop::kForTime;
    if (!failure_ || continue_on_failure_ || packet->kind == Kind::kWait) [[likely]] {
      exec.cost_ns = packet->cost_ns;
      if (const belay_status status = packet->run(exec, *packet); status != BELAY_OK) [[unlikely]]
        fail(*packet, value + 1, status);
    } else {
      device_.skip(*packet);
    }
    const uint16_t slots = packet->slots;
    if (in_spill_) [[unlikely]] {
      spill_.pop(slots);
      in_spill_ = false;
    } else {
      head_position_ += slots;
      head_.store(head_position_, std::memory_order_release);
    }
    advance(++value);
  }
  return Stop::kReached;
}

bool Stream::park_blocked() {
  BlockedWaiter& waiter = blocked_waiter_;
  if (waiter.on) {  // of an earlier wait, if a helper went past it meanwhile
    if (waiter.on->remove(waiter)) unref();
    waiter.on->unref();
  }
  waiter.on = blocked_on_;
  waiter.on->ref();
  waiter.value = blocked_value_;
  Stream* const other = blocked_on_->stream();
  waiter.watches_submit = other && other->last_value() < blocked_value_;
  ref();
  const auto queued_now = [&] { return waiter.watches_submit && other->last_value() >= waiter.value; };
  if (!waiter.on->add(waiter, queued_now)) {
    unref();
    // Queued in this moment: the caller tries again, and then nobody need watch.
    return false;
  }
  return true;
}

void Stream::fail(const Packet& packet, uint64_t value, belay_status status) {
  const Status raw = from_c(device_.host(), status);
  auto failure = std::make_shared<Failure>();
  failure->code = uint32_t(raw.code());
  failure->message = describe(packet) + " failed (operation " + std::to_string(value) + " of stream " + std::to_string(id()) + " on " +
                     device_.name() + "): " + raw.message();
  fail_with(value, std::move(failure));
}

void Stream::fail_with(uint64_t value, FailurePtr failure) {
  if (failure_) return;  // the first one counts
  failure_ = failure;
  begin_failure(value, std::move(failure));
}

std::string Stream::describe(const Packet& packet) {
  switch (packet.kind) {
    case Kind::kLaunch: {
      const auto* kernel = pointer<const belay_kernel>(packet.words[0]);
      return kernel->name.len ? "Kernel '" + to_string(kernel->name) + "'" : "A kernel without a name";
    }
    case Kind::kCopy: return "Copy of " + std::to_string(packet.words[2]) + " bytes";
    case Kind::kFill: return "Fill of " + std::to_string(packet.words[1]) + " bytes";
    case Kind::kHostCall: return "Host callback";
    case Kind::kProgram: return "Program";
    case Kind::kWait: return "Wait for timeline " + std::to_string(pointer<Timeline>(packet.words[0])->id());
    case Kind::kFiller: break;
  }
  return "Operation";
}

}  // namespace belay::cpu
