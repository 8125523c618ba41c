// The first thing that went wrong in a loop that runs on several threads.
#pragma once

#include <atomic>
#include <cstdint>

namespace belay::cpu {

class Trouble {
 public:
  void note(int64_t at) {
    int64_t seen = first_.load(std::memory_order_relaxed);
    while (at < seen && !first_.compare_exchange_weak(seen, at, std::memory_order_relaxed)) {
    }
  }
  explicit operator bool() const { return first_ != INT64_MAX; }
  int64_t first() const { return first_; }

 private:
  std::atomic<int64_t> first_{INT64_MAX};
};

}  // namespace belay::cpu
