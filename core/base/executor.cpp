#include "core/base/executor.h"

#include "core/base/signals_blocked.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <condition_variable>
#include <map>
#include <mutex>
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
  struct Timer {
    Timer(asio::io_context& loop, TaskCount& owner_) : timer(loop), owner(owner_) {}
    asio::steady_timer timer;
    TaskCount& owner;
    Task task;
    std::chrono::nanoseconds period{0};
    bool cancelled = false;
    std::thread::id runner;  // of the thread that runs the task at this moment
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
  std::map<uint64_t, std::shared_ptr<Timer>> timers;
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

  // With the lock held.
  void arm(uint64_t id, const std::shared_ptr<Timer>& timer, Clock::time_point when) {
    timer->timer.expires_at(when);
    timer->timer.async_wait([this, id, timer, when](const boost::system::error_code&) {
      std::unique_lock lock(mutex);
      if (!timer->cancelled) {
        timer->runner = std::this_thread::get_id();
        lock.unlock();
        run(timer->task);
        lock.lock();
        timer->runner = {};
      }
      if (!timer->cancelled && timer->period.count() > 0) {
        Clock::time_point next = when + at_most_years(timer->period);
        if (const auto late = Clock::now() - next; late.count() > 0)
          next += late / timer->period * timer->period;
        arm(id, timer, next);
      } else {
        timers.erase(id);
        Task task = std::exchange(timer->task, nullptr);
        lock.unlock();
        task = nullptr;
        lock.lock();
        end(timer->owner);
      }
      changed.notify_all();
    });
  }
  void cancel(const std::shared_ptr<Timer>& timer) {
    timer->cancelled = true;
    timer->timer.cancel();
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
    for (auto& [id, timer] : state_->timers) state_->cancel(timer);
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
  std::lock_guard lock(state_->mutex);
  if (Status status = state_->admit(owner); !status.ok()) return status;
  if (Status status = state_->grow(state_->shorts, state_->shorts.pending + 1); !status.ok()) return status;
  const uint64_t id = ++state_->next_id;
  auto timer = std::make_shared<State::Timer>(state_->shorts.loop, owner);
  timer->task = std::move(task), timer->period = period;
  state_->timers.emplace(id, timer);
  ++owner.tasks;
  state_->arm(id, timer, Clock::now() + at_most_years(delay));
  return id;
}

void Executor::cancel(uint64_t id) {
  if (process_.forked()) return;
  std::unique_lock lock(state_->mutex);
  const auto at = state_->timers.find(id);
  if (at == state_->timers.end()) return;
  const std::shared_ptr<State::Timer> timer = at->second;
  state_->cancel(timer);
  state_->changed.wait(lock, [&] {
    return timer->runner == std::thread::id() || timer->runner == std::this_thread::get_id();
  });
}

bool Executor::drain(TaskCount& owner, std::chrono::nanoseconds deadline) {
  if (process_.forked()) return false;
  std::unique_lock lock(state_->mutex);
  owner.closed = true;
  for (auto& [id, timer] : state_->timers)
    if (&timer->owner == &owner) state_->cancel(timer);
  return state_->changed.wait_until(lock, Clock::now() + at_most_years(deadline),
                                    [&] { return owner.tasks == 0; });
}

void Executor::abandon() {
  if (process_.forked() || std::exchange(abandoned_, true)) return;
  std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  for (auto& [id, timer] : state_->timers) state_->cancel(timer);
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
