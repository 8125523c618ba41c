// A stream: a bounded ring of operations in order, and the timeline they advance. One thread at a time queues (the
// producer), one thread at a time runs (whoever holds the token: a worker, or a thread that waits).
#pragma once

#include "lanes.h"
#include "packet.h"
#include "spill.h"
#include "thread_state.h"
#include "timeline.h"

#include <belay/status.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace belay::cpu {

class Device;
class Recorder;

enum class Stop {
  kReached,    // the timeline stands at the limit
  kEmpty,      // nothing more is queued
  kBlocked,    // the next operation waits for another timeline
  kForWorker,  // the next operation may run on a worker only
  kForTime,    // the next operation may take longer than the caller has
  kNoLane,     // the next operation is heavy and as many threads are running as may
  kPreempted,  // somebody of a higher priority wants to run
};

// What a thread that runs a stream must look at.
struct RunRules {
  bool worker = false;     // may run foreign code; gives way to higher priorities
  int64_t urgency = Lanes::kLowest;  // of who runs it, where age has raised it above the stream's priority
  bool timed = false;      // has until `deadline`, by the host's clock
  uint64_t deadline = 0;
};

class Stream final : public Timeline {
 public:
  static Result<Stream*> create(Device& device, const belay_stream_req& req);

  Device& device() const { return device_; }
  int64_t priority() const { return priority_; }

  // ---- the producer: one thread at a time --------------------------------------------------------------------------
  // Room for an operation of one slot where nothing out of the ordinary is to be done; null: take the long way.
  Packet* begin_fast() {
    if ((sure_->load(std::memory_order_relaxed) == 0) | special_ | (tail_position_ - head_seen_ >= capacity_) |
        (last_ - reached_seen_ >= depth_)) [[unlikely]]
      return nullptr;
    return &ring_[tail_position_ & mask_];
  }
  // Room for an operation; fill it and commit it. Null: the queue is full.
  Packet* begin(uint64_t slots);
  // Publishes it. Gives its value.
  void commit(uint64_t slots, uint32_t cost_ns, uint64_t* out_value) {
    ++last_;
    if (special_) [[unlikely]] {
      spill_.publish(slots);
    } else {
      tail_position_ += slots;
      tail_.store(tail_position_, std::memory_order_release);
    }
    last_value_.store(last_, std::memory_order_release);
    *out_value = last_;
    backlog_ns_ += cost_ns == kUnknownCost ? kAssumedCost : cost_ns;
    // Pairs with the heavy fence in Timeline::add: a thread that is about to sleep sees our value, or we see it.
    AsymmetricFence::light();
    if (attention() != 0 || backlog_ns_ >= wake_backlog_ns_) [[unlikely]]
      after_commit();
  }
  uint64_t queued() const { return last_; }
  uint64_t most_slots() const { return most_slots_; }

  // The timeline with this id, or null; remembered, so that the next call is cheap. Kept alive by the stream until the
  // waits queued so far have run.
  Timeline* find_timeline(uint64_t id);

  // While there is a recorder, what is queued is recorded instead.
  Recorder* recorder() const { return recorder_.get(); }
  void set_recorder(std::unique_ptr<Recorder> recorder);
  std::unique_ptr<Recorder> take_recorder();

  // ---- any thread --------------------------------------------------------------------------------------------------
  uint64_t last_value() const { return last_value_.load(std::memory_order_acquire); }
  // Lets a worker run what is queued up to `value`.
  void flush(uint64_t value);
  uint64_t flushed() const { return flush_to_.load(std::memory_order_acquire); }

  // The token: who has it runs the stream.
  bool try_acquire(ThreadState& me) {
    const ThreadState* free = nullptr;
    return owner_.load(std::memory_order_relaxed) == nullptr &&
           owner_.compare_exchange_strong(free, &me, std::memory_order_acquire, std::memory_order_relaxed);
  }
  // A full barrier stands between giving the token back and looking for those who want it (want_release).
  void release() {
    owner_.exchange(nullptr, std::memory_order_seq_cst);
    if (release_wanted_.load(std::memory_order_seq_cst)) [[unlikely]]
      after_release();
  }
  const ThreadState* owner() const { return owner_.load(std::memory_order_seq_cst); }
  // Asks to be told of the next release; look at owner() again afterwards.
  void want_release() { release_wanted_.store(true, std::memory_order_seq_cst); }
  void want_worker() {
    worker_wanted_.store(true, std::memory_order_seq_cst);
    want_release();
  }

  // ---- the owner of the token --------------------------------------------------------------------------------------
  // Runs operations in order until the timeline stands at `limit`.
  Stop run(Exec& exec, uint64_t limit, const RunRules& rules);
  // After kBlocked: what the next operation waits for.
  Timeline& blocked_on() const { return *blocked_on_; }
  uint64_t blocked_value() const { return blocked_value_; }
  // After kBlocked: lets a worker go on once that is reached. False: it is reached already.
  bool park_blocked();
  // Forgets the failure: operations run again.
  void clear_failure() { failure_ = nullptr; }

  // Links of a helper's chain (waiting.cpp): who waits for this stream, and for which value.
  Stream* chain_below = nullptr;
  uint64_t chain_target = 0;

  // For a worker that found no lane for this stream.
  struct LaneWait : LaneWaiter {
    Stream* stream = nullptr;
  } lane_wait;

  std::atomic<bool> in_line{false};
  // A worker runs it, or will: otherwise whoever waits must look at it again.
  bool with_worker() const {
    return in_line.load(std::memory_order_acquire) || in_ready_list.load(std::memory_order_acquire) || owner();
  }

  // Of the workers' list of streams that are ready; guarded by its lock but for the flag.
  std::atomic<bool> in_ready_list{false};
  uint64_t ready_since = 0;

  // Where it stood with work left at the last progress tick; the device's, guarded by its lock.
  uint64_t stood_at = kForever;

  // Index of the node that runs, for whoever looks at a stopped process: one relaxed store for each node.
  std::atomic<uint32_t>* flight_word() { return &flight_word_; }

  // What the operation is called in messages: "kernel 'conv1'".
  static std::string describe(const Packet& packet);

  // Gives back what the stream holds of others. All operations have ended and nobody queues any more.
  void retire();

 private:
  // Cost of an operation that does not say: such work waits for a synchronize, a flush or the tick.
  static constexpr uint32_t kAssumedCost = 50;

  struct BlockedWaiter : TimelineWaiter {
    Stream* stream = nullptr;
    Timeline* on = nullptr;  // referenced; the owner's
  };
  struct Remembered {
    uint64_t id = 0;
    Timeline* timeline = nullptr;  // referenced
  };
  struct Retired {
    Timeline* timeline;  // referenced
    uint64_t value;      // of the last wait that may use it
  };

  Stream(Device& device, const belay_stream_req& req, uint64_t depth);
  ~Stream() override;

  Packet* at_tail(uint64_t slots, uint64_t room);
  Packet* make_room(uint64_t slots, uint64_t need);
  void after_commit();
  void after_release();
  const Packet* next_packet();
  bool affordable(const Packet& packet, const RunRules& rules);
  void fail(const Packet& packet, uint64_t value, belay_status status);
  void fail_with(uint64_t value, FailurePtr failure);

  Device& device_;
  const int64_t priority_;
  const bool continue_on_failure_;
  const uint64_t wake_backlog_ns_;
  std::atomic<uint32_t> flight_word_{0};

  // What does not change, and what the producer alone writes: two lines for the hot path.
  alignas(64) const std::atomic<uint64_t>* const sure_;
  const uint64_t depth_, capacity_, mask_, most_slots_;
  Packet* const ring_;
  alignas(64) uint64_t tail_position_ = 0;
  uint64_t last_ = 0;
  uint64_t head_seen_ = 0, reached_seen_ = 0;
  uint64_t backlog_ns_ = 0;
  bool special_ = false;  // spilling or recording
  bool spilling_ = false;
  std::unique_ptr<Recorder> recorder_;
  Remembered remembered_[8];
  std::vector<Retired> retired_;

  // Written by the producer, read by the owner of the token.
  alignas(64) std::atomic<uint64_t> tail_{0};
  std::atomic<uint64_t> last_value_{0};

  // The token, and what belongs to its owner.
  alignas(64) std::atomic<const ThreadState*> owner_{nullptr};
  std::atomic<bool> release_wanted_{false}, worker_wanted_{false};
  std::atomic<uint64_t> head_{0};  // written by the owner; the producer reads it when the ring seems full
  uint64_t head_position_ = 0, tail_seen_ = 0;
  bool in_spill_ = false;  // the packet at hand is in the spill
  FailurePtr failure_;     // in force
  Timeline* blocked_on_ = nullptr;
  uint64_t blocked_value_ = 0;
  BlockedWaiter blocked_waiter_;

  std::atomic<uint64_t> flush_to_{0};
  Spill spill_;
};

}  // namespace belay::cpu
