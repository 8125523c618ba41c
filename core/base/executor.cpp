#include "core/base/executor.h"

#include "core/base/signals_blocked.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace belay::core {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
constexpr size_t kShortThreads = 2, kLongThreads = 8;

Clock::duration at_most_years(
    std::chrono::nanoseconds time) {  // a timer's time is added to now and must not overflow
  return std::min<std::chrono::nanoseconds>(time, std::chrono::hours(24 * 365 * 50));
}

}  // namespace

struct Executor::State {
  // What has an id: a timer, the watch of a descriptor, or a strand. A timer and a watch count as a task of
  // their owner as long as they are there, a strand while it runs.
  struct Waiter {
    explicit Waiter(TaskCount& owner_) : owner(owner_) {}
    TaskCount& owner;
    Task task;
    bool cancelled = false;
    std::thread::id runner;  // of the thread that runs a task of it at this moment
    std::optional<asio::steady_timer> timer;
    std::chrono::nanoseconds period{0};
    std::optional<asio::posix::stream_descriptor> descriptor;
    asio::posix::stream_descriptor::wait_type event{};
    bool is_strand = false, running = false;
    std::deque<Task> queue;  // of a strand

    // Lets go of the descriptor, which stays its owner's.
    void release() {
      if (descriptor && descriptor->is_open()) descriptor->release();
    }
  };
  struct Pool {
    explicit Pool(size_t most_) : most(most_) {}
    const size_t most;
    asio::io_context loop;
    asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(loop);
    std::vector<std::thread> threads;
    size_t pending = 0;  // tasks queued or running
  };

  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  Pool shorts{kShortThreads}, longs{kLongThreads};
  std::map<uint64_t, std::shared_ptr<Waiter>> waiters;
  uint64_t next_id = 0;

  Status admit(TaskCount& owner) {
    if (stopping) return {Code::kFailedPrecondition, "The executor has been stopped."};
    if (owner.closed)
      return {Code::kFailedPrecondition, "This plugin is being closed and may start no task."};
    return {};
  }
  // A thread for each pending task, up to the most; with the lock held.
  Status grow(Pool& pool, size_t wanted) {
    if (pool.threads.size() >= std::min(wanted, pool.most)) return {};
    const SignalsBlocked blocked;  // signals are the application's
    try {
      pool.threads.emplace_back([&pool] {
        pthread_setname_np(pthread_self(), "belay-executor");
        pool.loop.run();
      });
    } catch (const std::exception& error) {
      if (pool.threads.empty())
        return {Code::kResourceExhausted,
                std::string("No thread can be made for the executor: ") + error.what()};
    }
    return {};
  }
  static void run(const Task& task) noexcept {
    task();  // a task that throws ends the process here, where the stack still shows it
  }
  void end(TaskCount& owner) {
    --owner.tasks;
    changed.notify_all();
  }

  Status post(Pool& pool, TaskCount& owner, Task task) {
    std::lock_guard lock(mutex);
    if (Status status = admit(owner); !status.ok()) return status;
    if (Status status = grow(pool, pool.pending + 1); !status.ok()) return status;
    ++pool.pending;
    ++owner.tasks;
    asio::post(pool.loop, [this, &pool, &owner, task = std::move(task)]() mutable {
      run(task);
      task = nullptr;  // what it captured ends before it counts as ended
      std::lock_guard relock(mutex);
      --pool.pending;
      end(owner);
    });
    return {};
  }

  // Runs a task of the waiter without the lock, which is held before and after.
  void run_of(std::unique_lock<std::mutex>& lock, Waiter& waiter, const Task& task) {
    waiter.runner = std::this_thread::get_id();
    lock.unlock();
    run(task);
    lock.lock();
    waiter.runner = {};
    changed.notify_all();
  }
  void finish(std::unique_lock<std::mutex>& lock, uint64_t id, const std::shared_ptr<Waiter>& waiter) {
    waiters.erase(id);
    waiter->release();
    Task task = std::exchange(waiter->task, nullptr);
    lock.unlock();
    task = nullptr;  // what it captured ends before it counts as ended
    lock.lock();
    end(waiter->owner);
  }

  // With the lock held.
  void arm(uint64_t id, const std::shared_ptr<Waiter>& waiter, Clock::time_point when) {
    waiter->timer->expires_at(when);
    waiter->timer->async_wait([this, id, waiter, when](const boost::system::error_code&) {
      std::unique_lock lock(mutex);
      if (!waiter->cancelled) run_of(lock, *waiter, waiter->task);
      if (waiter->cancelled || waiter->period.count() == 0) return finish(lock, id, waiter);
      Clock::time_point next = when + at_most_years(waiter->period);
      if (const auto late = Clock::now() - next; late.count() > 0)
        next += late / waiter->period * waiter->period;
      arm(id, waiter, next);
    });
  }
  void await(uint64_t id, const std::shared_ptr<Waiter>& waiter) {
    waiter->descriptor->async_wait(waiter->event, [this, id, waiter](const boost::system::error_code& error) {
      std::unique_lock lock(mutex);
      if (!waiter->cancelled && !error) run_of(lock, *waiter, waiter->task);
      if (waiter->cancelled || error) return finish(lock, id, waiter);
      await(id, waiter);
    });
  }
  // Runs what is queued, a task at a time, so that others get their turn.
  void advance(const std::shared_ptr<Waiter>& strand) {
    asio::post(shorts.loop, [this, strand] {
      std::unique_lock lock(mutex);
      std::deque<Task> dropped;
      if (!strand->cancelled && !strand->queue.empty()) {
        Task task = std::move(strand->queue.front());
        strand->queue.pop_front();
        run_of(lock, *strand, task);
        lock.unlock();
        task = nullptr;
        lock.lock();
      }
      if (strand->cancelled) dropped.swap(strand->queue);
      if (!strand->queue.empty()) return advance(strand);
      strand->running = false;
      lock.unlock();
      dropped.clear();
      lock.lock();
      --shorts.pending;
      end(strand->owner);
    });
  }
  void cancel(const std::shared_ptr<Waiter>& waiter) {
    waiter->cancelled = true;
    if (waiter->timer) waiter->timer->cancel();
    // At once: its owner may close it next, and another file get its number.
    waiter->release();
  }
  // Cancels and forgets: a strand has nothing that would come back to do so.
  void cancel(uint64_t id, const std::shared_ptr<Waiter>& waiter) {
    cancel(waiter);
    if (waiter->is_strand) waiters.erase(id);
  }
  Result<uint64_t> add(const std::shared_ptr<Waiter>& waiter) {
    if (Status status = admit(waiter->owner); !status.ok()) return status;
    if (Status status = grow(shorts, shorts.pending + 1); !status.ok()) return status;
    waiters.emplace(++next_id, waiter);
    if (!waiter->is_strand) ++waiter->owner.tasks;
    return next_id;
  }
};

Executor::Executor() : state_(std::make_unique<State>()) {}

Executor::~Executor() {
  if (process_.forked() || abandoned_) {
    static_cast<void>(state_.release());  // the threads are the parent's, or still at work
    return;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    for (auto& [id, waiter] : state_->waiters) state_->cancel(waiter);
  }
  for (State::Pool* pool : {&state_->shorts, &state_->longs}) {
    pool->work.reset();
    pool->loop.stop();
    for (std::thread& thread : pool->threads) thread.join();
  }
}

Status Executor::post(TaskCount& owner, Task task) {
  BELAY_TRY(process_.check("The executor"));
  return state_->post(state_->shorts, owner, std::move(task));
}

Status Executor::post_blocking(TaskCount& owner, Task task) {
  BELAY_TRY(process_.check("The executor"));
  return state_->post(state_->longs, owner, std::move(task));
}

Result<uint64_t> Executor::timer(TaskCount& owner, std::chrono::nanoseconds delay,
                                 std::chrono::nanoseconds period, Task task) {
  BELAY_TRY(process_.check("The executor"));
  const auto waiter = std::make_shared<State::Waiter>(owner);
  waiter->timer.emplace(state_->shorts.loop);
  waiter->task = std::move(task), waiter->period = period;
  std::lock_guard lock(state_->mutex);
  BELAY_ASSIGN(const uint64_t id, state_->add(waiter));
  state_->arm(id, waiter, Clock::now() + at_most_years(delay));
  return id;
}

Result<uint64_t> Executor::watch(TaskCount& owner, int fd, bool write, Task ready) {
  BELAY_TRY(process_.check("The executor"));
  const auto waiter = std::make_shared<State::Waiter>(owner);
  waiter->task = std::move(ready);
  waiter->event =
      write ? asio::posix::stream_descriptor::wait_write : asio::posix::stream_descriptor::wait_read;
  waiter->descriptor.emplace(state_->shorts.loop);
  boost::system::error_code error;
  waiter->descriptor->assign(fd, error);
  if (error)
    return Status(Code::kInvalidArgument,
                  "Descriptor " + std::to_string(fd) + " cannot be watched: " + error.message() + ".");
  std::lock_guard lock(state_->mutex);
  auto id = state_->add(waiter);
  if (id.ok())
    state_->await(*id, waiter);
  else
    waiter->release();
  return id;
}

Result<uint64_t> Executor::strand(TaskCount& owner) {
  BELAY_TRY(process_.check("The executor"));
  const auto waiter = std::make_shared<State::Waiter>(owner);
  waiter->is_strand = true;
  std::lock_guard lock(state_->mutex);
  return state_->add(waiter);
}

Status Executor::post(TaskCount& owner, uint64_t strand, Task task) {
  BELAY_TRY(process_.check("The executor"));
  std::lock_guard lock(state_->mutex);
  BELAY_TRY(state_->admit(owner));
  const auto at = state_->waiters.find(strand);
  if (at == state_->waiters.end() || !at->second->is_strand || &at->second->owner != &owner)
    return {Code::kNotFound, "There is no strand " + std::to_string(strand) + "."};
  State::Waiter& waiter = *at->second;
  waiter.queue.push_back(std::move(task));
  if (std::exchange(waiter.running, true)) return {};
  if (Status status = state_->grow(state_->shorts, state_->shorts.pending + 1); !status.ok()) {
    waiter.queue.pop_back(), waiter.running = false;
    return status;
  }
  ++state_->shorts.pending;
  ++owner.tasks;
  state_->advance(at->second);
  return {};
}

void Executor::cancel(uint64_t id) {
  if (process_.forked()) return;
  std::unique_lock lock(state_->mutex);
  const auto at = state_->waiters.find(id);
  if (at == state_->waiters.end()) return;
  const std::shared_ptr<State::Waiter> waiter = at->second;
  state_->cancel(id, waiter);
  state_->changed.wait(lock, [&] {
    return waiter->runner == std::thread::id() || waiter->runner == std::this_thread::get_id();
  });
}

bool Executor::drain(TaskCount& owner, std::chrono::nanoseconds deadline) {
  if (process_.forked()) return false;
  std::unique_lock lock(state_->mutex);
  owner.closed = true;
  for (auto at = state_->waiters.begin(); at != state_->waiters.end();) {
    const auto here = at++;
    if (&here->second->owner != &owner) continue;
    if (here->second->is_strand)
      state_->waiters.erase(here);  // what it has queued still runs
    else
      state_->cancel(here->second);
  }
  return state_->changed.wait_until(lock, Clock::now() + at_most_years(deadline),
                                    [&] { return owner.tasks == 0; });
}

void Executor::abandon() {
  if (process_.forked() || std::exchange(abandoned_, true)) return;
  std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  for (auto& [id, waiter] : state_->waiters) state_->cancel(waiter);
  for (State::Pool* pool : {&state_->shorts, &state_->longs}) {
    pool->loop.stop();
    for (std::thread& thread : pool->threads) thread.detach();
  }
}

uint64_t Executor::threads() const {
  if (process_.forked()) return 0;
  std::lock_guard lock(state_->mutex);
  return state_->shorts.threads.size() + state_->longs.threads.size();
}

}  // namespace belay::core
