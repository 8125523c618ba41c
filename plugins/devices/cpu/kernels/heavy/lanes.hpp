// Work cut into tasks that threads take one after the other, each thread with memory of its own in the
// workspace.
#pragma once

#include "../run.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace belay::cpu {

// Threads worth having for work that takes `ns` on one: below 16 us a second one does not pay.
inline uint32_t worthwhile_threads(uint32_t threads, double ns) {
  return uint32_t(std::clamp<double>(ns / 8000.0, 1.0, std::max<uint32_t>(threads, 1)));
}

// Calls f(task, lane) for each task in [0, tasks) on `lanes` lanes at most. A lane is one thread from its
// first task to its last, so what belongs to a lane needs no lock. Tasks are claimed one by one: late threads
// find fewer left.
template <class F>
void run_lanes(const Run& run, int64_t tasks, uint32_t lanes, F&& f) {
  const int64_t most = std::min<int64_t>({int64_t(lanes), int64_t(run.threads()), tasks});
  if (most <= 1) {
    for (int64_t task = 0; task < tasks; ++task) f(task, int64_t{0});
    return;
  }
  struct Shared {
    std::remove_reference_t<F>* f;
    int64_t tasks;
    std::atomic<int64_t> next{0};
  } shared{&f, tasks};
  run.exec()->parallel_for(
      run.exec(), uint64_t(most),
      [](void* arg, uint64_t lane) BELAY_NOEXCEPT {
        Shared& s = *static_cast<Shared*>(arg);
        for (int64_t task; (task = s.next.fetch_add(1, std::memory_order_relaxed)) < s.tasks;)
          (*s.f)(task, int64_t(lane));
      },
      &shared);
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace belay::cpu
