#include "waiting.h"

#include "device.h"
#include "stream.h"
#include "thread_state.h"

#include <algorithm>
#include <string>
#include <utility>

namespace belay::cpu {
namespace {

// With a finite timeout a sleeper looks at the host's clock at least so often: that clock may be set by a test.
constexpr uint64_t kLongestSleep = 20'000'000;  // ns

// A thread asleep on a timeline.
struct Sleeper : TimelineWaiter {
  std::atomic<uint32_t> awake{0};
  Sleeper() {
    fire = [](TimelineWaiter& waiter) noexcept {
      std::atomic<uint32_t>& word = static_cast<Sleeper&>(waiter).awake;
      word.store(1, std::memory_order_release);
      futex_wake(&word, 1);
    };
  }
};

// The same thread in line for a lane.
struct SleeperLane : LaneWaiter {
  Sleeper* sleeper = nullptr;
};

// What a thread sleeps for, besides the value.
enum class SleepFor {
  kValue,    // the host brings it about
  kWorker,   // a worker brings it about, unless it stops before
  kRelease,  // who runs the stream now may stop earlier: then it is our turn
  kSubmit,   // it is not queued yet
  kLane,     // as many threads are running as may
};

// One call of wait_for that found its value unreached. The streams of the wait chain, from the awaited one (the root)
// to the one that can go on, form a list through chain_below; this thread has the token of each.
class Helper {
 public:
  Helper(Stream& root, uint64_t value, uint64_t timeout_ns)
      : root_(root), value_(value), device_(root.device()), me_(this_thread()), can_run_(has_stack(me_)) {
    sleeper_lane_.fire = [](LaneWaiter& waiter) noexcept {
      std::atomic<uint32_t>& word = static_cast<SleeperLane&>(waiter).sleeper->awake;
      word.store(1, std::memory_order_release);
      futex_wake(&word, 1);
    };
    // Inside an operation of another device, whose lane this thread keeps.
    if (me_.lane != &device_) outer_lane_ = std::exchange(me_.lane, nullptr);
    if (timeout_ns == kForever) return;
    rules_.timed = true;
    const uint64_t now = device_.now_ns();
    rules_.deadline = timeout_ns > kForever - 1 - now ? kForever - 1 : now + timeout_ns;
  }

  belay_status run() {
    belay_status status = BELAY_OK;
    {
      OperationScope scope(me_);
      status = follow();
    }
    if (me_.depth == 0 || outer_lane_) device_.give_lane_back(me_);
    if (outer_lane_) me_.lane = outer_lane_;
    if (me_.depth == 0 && me_.scratch) device_.return_scratch(me_);
    return status;
  }

 private:
  belay_status follow() {
    Exec exec = device_.make_exec(me_);
    Stream* want = &root_;  // next to be put on the chain; null: run the last one of the chain
    uint64_t target = value_;
    belay_status status = BELAY_OK;
    for (;;) {
      if (want) {
        if (want->reached() >= target) {
          if (!top_) return BELAY_OK;
        } else if (want->owner() == &me_) {
          return would_wait_for_itself(*want, target);
        } else if (!can_run_) {
          want->flush(target);
          status = sleep(*want, target, SleepFor::kWorker);
        } else if (!want->try_acquire(me_)) {
          status = sleep(*want, target, SleepFor::kRelease);
        } else {
          want->chain_below = top_;
          want->chain_target = target;
          top_ = want;
        }
        if (status != BELAY_OK) return status;
        if (!top_) {  // it slept, and gave all tokens back before
          want = &root_;
          target = value_;
          continue;
        }
        // Where it only polled, the chain is as it was, and running its last stream leads here again if need be.
        want = nullptr;
      }

      exec.stream = top_;
      exec.api.stream = uint32_t(top_->id());
      const Stop stop = top_->run(exec, top_->chain_target, rules_);
      if (stop == Stop::kReached) {
        pop();
        if (!top_) return BELAY_OK;
      } else if (stop == Stop::kBlocked) {
        target = top_->blocked_value();
        want = top_->blocked_on().stream();
        if (!want) status = sleep(top_->blocked_on(), target, SleepFor::kValue);
      } else {
        Stream& stream = *top_;
        target = stream.chain_target;
        stream.ref();  // without its token and its predecessor's it may be destroyed
        pop();
        if (stop == Stop::kPreempted && me_.lane == &device_) {
          me_.lane = nullptr;
          device_.lanes().hand_over();
        }
        if (stop == Stop::kForWorker || stop == Stop::kForTime) stream.flush(target);
        status = sleep(stream, target, reason(stop));
        stream.unref();
      }
      if (status != BELAY_OK) return status;
      if (!top_ && !want) {
        want = &root_;
        target = value_;
      }
    }
  }

  static SleepFor reason(Stop stop) {
    switch (stop) {
      case Stop::kEmpty: return SleepFor::kSubmit;
      case Stop::kNoLane:
      case Stop::kPreempted: return SleepFor::kLane;
      default: return SleepFor::kWorker;
    }
  }

  void pop() {
    Stream& stream = *top_;
    top_ = stream.chain_below;
    stream.release();
  }
  void release_all() {
    while (top_) pop();
  }

  // Polls for a short while, then gives all tokens back and sleeps. Afterwards look again.
  belay_status sleep(Timeline& timeline, uint64_t value, SleepFor why) {
    Stream* const stream = timeline.stream();
    Lanes& lanes = device_.lanes();
    const auto changed = [&] {
      if (timeline.reached() >= value) return true;
      if (why == SleepFor::kLane) {
        if (!lanes.try_acquire(std::max(stream->priority(), rules_.urgency))) return false;
        me_.lane = &device_;
        return true;
      }
      if (why == SleepFor::kRelease) return stream->owner() == nullptr;
      if (why == SleepFor::kWorker) return !stream->with_worker();
      return why == SleepFor::kSubmit && stream->last_value() >= value;
    };
    for (const uint64_t until = clock_ns() + device_.options().spin_ns; clock_ns() < until;) {
      for (int i = 0; i < 8; ++i) {
        if (changed()) return BELAY_OK;
        relax();
      }
    }

    timeline.ref();  // with our tokens gone its stream may be destroyed
    release_all();
    device_.give_lane_back(me_);
    Sleeper sleeper;
    sleeper.value = value;
    sleeper.on_release = why == SleepFor::kRelease || why == SleepFor::kWorker;
    sleeper.watches_submit = why == SleepFor::kSubmit;
    const bool asleep = timeline.add(sleeper, [&] {
      if (sleeper.on_release) stream->want_release();
      return changed();
    });
    if (asleep && why == SleepFor::kLane) {
      sleeper_lane_.sleeper = &sleeper;
      sleeper_lane_.priority = stream->priority();
      if (!lanes.wait(sleeper_lane_)) sleeper.awake.store(1, std::memory_order_relaxed);
    }
    bool late = false;
    while (asleep && !late && sleeper.awake.load(std::memory_order_acquire) == 0) {
      uint64_t most = kForever;
      if (rules_.timed) {
        const uint64_t now = device_.now_ns();
        late = now >= rules_.deadline;
        most = std::min(late ? 0 : rules_.deadline - now, kLongestSleep);
      }
      if (!late) futex_wait(sleeper.awake, 0, most);
    }
    // Taking the timeline's lock also waits for a firing that has begun and still looks at the sleeper.
    if (asleep) timeline.remove(sleeper);
    if (asleep && why == SleepFor::kLane) {
      const auto [was, urgency] = lanes.arrive(sleeper_lane_, timeline.reached() >= value);
      if (was == LaneWaiter::State::kGranted) me_.lane = &device_;
      rules_.urgency = std::max(rules_.urgency, urgency);
    }
    if (!asleep && rules_.timed) late = device_.now_ns() >= rules_.deadline;
    const bool reached = timeline.reached() >= value;
    timeline.unref();
    if (!late || reached) return BELAY_OK;
    return device_.fail(BELAY_DEADLINE_EXCEEDED,
                        "Operation " + std::to_string(value_) + " of stream " + std::to_string(root_.id()) + " on " +
                            device_.name() + " has not ended in the time given; the stream stands at operation " +
                            std::to_string(root_.reached()) + ". The work goes on: wait again.");
  }

  belay_status would_wait_for_itself(Stream& stream, uint64_t target) {
    const uint64_t stands = stream.reached();
    const std::string name = std::to_string(stream.id());
    release_all();
    return device_.fail(BELAY_FAILED_PRECONDITION,
                        "Operation " + std::to_string(value_) + " of stream " + std::to_string(root_.id()) + " on " +
                            device_.name() + " would wait for itself: it needs operation " + std::to_string(target) +
                            " of stream " + name + ", whose operation " + std::to_string(stands + 1) +
                            " is what is waiting.");
  }

  Stream& root_;
  const uint64_t value_;
  Device& device_;
  ThreadState& me_;
  const bool can_run_;
  RunRules rules_;
  Stream* top_ = nullptr;
  const Device* outer_lane_ = nullptr;
  SleeperLane sleeper_lane_;
};

}  // namespace

belay_status wait_for(Stream& stream, uint64_t value, uint64_t timeout_ns) {
  if (stream.reached() >= value) [[unlikely]]
    return BELAY_OK;
  return Helper(stream, value, timeout_ns).run();
}

}  // namespace belay::cpu
