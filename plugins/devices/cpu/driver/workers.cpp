#include "workers.h"

#include "device.h"
#include "stream.h"
#include "thread_state.h"

#include <algorithm>
#include <csignal>
#include <limits>
#include <system_error>

#include <pthread.h>

namespace belay::cpu {
namespace {

// A stream gains one level of priority for each such time that it waits for a worker.
constexpr uint64_t kAgeingStep = 10'000'000;  // ns

int64_t aged_priority(const Stream& stream, uint64_t now) {
  const uint64_t waited = now > stream.ready_since ? now - stream.ready_since : 0;
  return stream.priority() + int64_t(std::min<uint64_t>(waited / kAgeingStep, 1000));
}

}  // namespace

Workers::Workers(Device& device, uint64_t threads, uint64_t blocking)
    : device_(device), threads_(threads), most_(threads + std::max<uint64_t>(blocking, 1)) {
  workers_.reserve(most_);
}

void Workers::stream_begins() {
  std::lock_guard lock(mutex_);
  if (streams_ == ready_.capacity()) ready_.reserve(std::max<size_t>(16, 2 * streams_));
  ++streams_;
}

void Workers::stream_ended() noexcept {
  std::lock_guard lock(mutex_);
  --streams_;
}

void Workers::ready(Stream& stream) {
  // Whoever finds the flag set leaves it to the worker, which clears it before it looks at what is flushed.
  if (stream.in_ready_list.exchange(true, std::memory_order_acq_rel)) return;
  stream.ref();
  {
    std::lock_guard lock(mutex_);
    stream.ready_since = device_.now_ns();
    ready_.push_back(&stream);
    if (stream.priority() > top_priority_.load(std::memory_order_relaxed))
      top_priority_.store(stream.priority(), std::memory_order_relaxed);
  }
  announce(1, true);
}

void Workers::complete(DueCompletion* due) {
  {
    std::lock_guard lock(mutex_);
    due->next = nullptr;
    (due_last_ ? due_last_->next : due_first_) = due;
    due_last_ = due;
  }
  announce(1, true);
}

void Workers::announce(uint64_t count, bool wake) {
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t polling = spinners_.load(std::memory_order_seq_cst);
  if (!wake || polling >= count) return;
  const uint64_t missing = count - polling;
  const uint64_t asleep = sleepers_.load(std::memory_order_seq_cst);
  if (asleep > 0) futex_wake(&epoch_, int(std::min(missing, asleep)));
  if (asleep >= missing || count_.load(std::memory_order_relaxed) >= most_) return;
  std::lock_guard lock(mutex_);
  // Workers inside foreign code do not count: they may stay there.
  for (uint64_t i = asleep; i < missing; ++i) {
    if (workers_.size() >= std::min(most_, threads_ + foreign_.load(std::memory_order_relaxed)) || !spawn()) break;
  }
}

bool Workers::spawn() {
  if (stopping_) return false;
  sigset_t all, before;
  sigfillset(&all);
  // Its own faults a worker does take: reading a file that shrank is SIGBUS, which has a handler; blocked, it would end
  // the process.
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a worker takes no other signals: it inherits this
  bool made = true;
  try {
    workers_.emplace_back(&Workers::main, this, workers_.size());
  } catch (const std::exception&) {  // no thread, or no memory for one
    made = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  count_.store(workers_.size(), std::memory_order_relaxed);
  return made;
}

Status Workers::ensure_one() {
  if (count_.load(std::memory_order_relaxed) > 0) return {};
  std::lock_guard lock(mutex_);
  if (!workers_.empty() || spawn()) return {};
  return {Code::kResourceExhausted, "Device " + device_.name() +
                                        " needs a thread for host callbacks and the system gives none; raise the "
                                        "limit of processes (ulimit -u)."};
}

void Workers::enter_foreign() {
  foreign_.fetch_add(1, std::memory_order_relaxed);
  bool more = false;
  {
    std::lock_guard lock(mutex_);
    more = !ready_.empty() || due_first_;
  }
  if (more) announce(1, true);
}

void Workers::leave_foreign() { foreign_.fetch_sub(1, std::memory_order_relaxed); }

Stream* Workers::take_ready(int64_t* urgency) {
  if (ready_.empty()) return nullptr;
  const uint64_t now = device_.now_ns();
  size_t best = 0;
  for (size_t i = 1; i < ready_.size(); ++i)
    if (aged_priority(*ready_[i], now) > aged_priority(*ready_[best], now)) best = i;  // equal ones: first come
  Stream* const stream = ready_[best];
  *urgency = aged_priority(*stream, now);
  ready_.erase(ready_.begin() + ptrdiff_t(best));
  int64_t top = std::numeric_limits<int64_t>::min();
  for (const Stream* s : ready_) top = std::max(top, s->priority());
  top_priority_.store(top, std::memory_order_relaxed);
  return stream;
}

bool Workers::run_something(Exec& exec) {
  Stream* stream = nullptr;
  int64_t urgency = 0;
  DueCompletion* due = nullptr;
  bool more = false;
  {
    std::lock_guard lock(mutex_);
    if (due_first_) {
      due = due_first_;
      due_first_ = due->next;
      if (!due_first_) due_last_ = nullptr;
    } else {
      stream = take_ready(&urgency);
    }
    more = due_first_ || !ready_.empty();
  }
  // Who announced the rest may have counted on this thread, which was polling then and is busy now.
  if (more && (due || stream)) announce(1, true);
  if (due) {
    enter_foreign();
    const FailurePtr failure = due->stream->failure_of(due->value);
    due->completion.done(due->completion.user, failure ? device_.fail(*failure) : BELAY_OK);
    leave_foreign();
    due->stream->unref();
    delete due;
    return true;
  }
  if (stream) {
    run_stream(exec, *stream, urgency);
    device_.give_lane_back(*exec.thread);
    stream->unref();
    return true;
  }
  return device_.sharing().help(exec);
}

void Workers::run_stream(Exec& exec, Stream& stream, int64_t urgency) {
  stream.in_ready_list.exchange(false, std::memory_order_acq_rel);
  if (stream.reached() >= stream.flushed()) {
    leave_line(exec, stream, true);
    return;
  }
  if (!stream.try_acquire(*exec.thread)) {
    stream.want_worker();  // its owner hands it back to us at release ...
    if (stream.owner() || !stream.try_acquire(*exec.thread)) {  // ... unless it did so in this moment
      leave_line(exec, stream, false);
      return;
    }
  }
  RunRules rules{.worker = true, .urgency = std::max(urgency, leave_line(exec, stream, false))};
  exec.stream = &stream;
  exec.api.stream = uint32_t(stream.id());
  for (;;) {
    const Stop stop = stream.run(exec, stream.flushed(), rules);
    if (stop == Stop::kBlocked) {
      Timeline& on = stream.blocked_on();
      const uint64_t value = stream.blocked_value();
      on.ref();  // the stream may go on and forget it as soon as it is released
      const bool parked = stream.park_blocked();
      if (parked) {
        stream.release();
        if (Stream* const other = on.stream()) other->flush(value);  // what it waits for may not have been flushed
      }
      on.unref();
      if (parked) return;
      continue;
    }
    if (stop == Stop::kNoLane) {
      stream.ref();  // the line's
      stream.in_line.store(true, std::memory_order_release);
      if (device_.lanes().wait(stream.lane_wait)) return stream.release();
      stream.in_line.store(false, std::memory_order_release);
      stream.unref();
      continue;  // there is one now
    }
    stream.release();
    if (stop == Stop::kPreempted) {
      if (exec.thread->lane == &device_ && device_.lanes().top_priority() > rules.urgency) {
        exec.thread->lane = nullptr;
        device_.lanes().hand_over();
      }
      return ready(stream);
    }
    if (stop == Stop::kEmpty) return;  // who queues the rest of what was flushed flushes again
    if (stream.reached() >= stream.flushed()) return;
    if (!stream.try_acquire(*exec.thread)) return ready(stream);
    // Whoever had it in the meantime may have put it in line.
    rules.urgency = std::max(rules.urgency, leave_line(exec, stream, false));
  }
}

// The stream is in hand, so it waits for a lane no more; the owner of its token may put it in line again.
int64_t Workers::leave_line(Exec& exec, Stream& stream, bool done) {
  const auto [was, urgency] = device_.lanes().arrive(stream.lane_wait, done);
  if (was == LaneWaiter::State::kWaiting) {
    stream.in_line.store(false, std::memory_order_release);
    stream.unref();  // the line's reference; firing would have given it back
  }
  if (was != LaneWaiter::State::kGranted) return urgency;
  if (exec.thread->lane == &device_)
    device_.lanes().release();  // one is enough
  else
    exec.thread->lane = &device_;
  return urgency;
}

void Workers::idle(uint32_t seen) {
  spinners_.fetch_add(1, std::memory_order_seq_cst);
  bool moved = false;
  const uint64_t until = clock_ns() + device_.options().spin_ns;
  do {
    for (int i = 0; i < 16 && !moved; ++i) {
      moved = epoch_.load(std::memory_order_seq_cst) != seen;
      if (!moved) relax();
    }
  } while (!moved && clock_ns() < until);
  if (moved) {
    spinners_.fetch_sub(1, std::memory_order_seq_cst);
    return;
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  spinners_.fetch_sub(1, std::memory_order_seq_cst);
  futex_wait(epoch_, seen, kForever);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Workers::main(uint64_t index) {
  const std::string name = "belay-" + device_.short_name() + "-" + std::to_string(index);
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  ThreadState& me = this_thread();
  me.worker = true;
  OperationScope scope(me);  // for good: nothing else runs on this thread
  Exec exec = device_.make_exec(me);
  for (;;) {
    const uint32_t seen = epoch_.load(std::memory_order_seq_cst);
    if (run_something(exec)) continue;
    {
      std::lock_guard lock(mutex_);
      if (stopping_ && ready_.empty() && !due_first_) break;
    }
    idle(seen);
  }
  device_.return_scratch(me);
}

void Workers::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&epoch_, std::numeric_limits<int>::max());
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

}  // namespace belay::cpu
