#include "core/base/bounded_call.h"

#include "core/base/signals_blocked.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace belay::core {
namespace {

using Clock = std::chrono::steady_clock;

struct Call {
  std::function<void()> body;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;

  struct End {  // also when the body ends its thread
    Call& call;
    ~End() {
      std::lock_guard lock(call.mutex);
      call.done = true;
      call.changed.notify_all();
    }
  };
};

}  // namespace

bool call_bounded(std::function<void()> body, std::chrono::nanoseconds deadline,
                  const std::function<void(std::chrono::seconds)>& late) {
  std::shared_ptr<Call> call;
  std::thread thread;
  try {
    call = std::make_shared<Call>();
    call->body = body;
    const SignalsBlocked blocked;
    thread = std::thread([call] {
      const Call::End end{*call};
      call->body();
    });
  } catch (const std::exception&) {
    body();
    return true;
  }
  body = nullptr;
  const auto begin = Clock::now();
  // A condition variable's clock must not overflow.
  const auto until = begin + std::min<std::chrono::nanoseconds>(deadline, std::chrono::hours(24 * 365));
  std::chrono::seconds next(1);
  std::unique_lock lock(call->mutex);
  while (!call->changed.wait_until(lock, std::min<Clock::time_point>(until, begin + next),
                                   [&] { return call->done; })) {
    if (Clock::now() >= until) {
      thread.detach();
      return false;
    }
    lock.unlock();
    late(next);
    lock.lock();
    next += next == std::chrono::seconds(1) ? std::chrono::seconds(4)
                                            : std::chrono::seconds(next.count() < 10 ? 5 : 10);
  }
  lock.unlock();
  thread.join();
  return true;
}

}  // namespace belay::core
