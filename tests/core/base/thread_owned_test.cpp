#include "core/base/thread_owned.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace belay::core {
namespace {

struct Counted {
  static inline std::atomic<int> alive{0};
  static inline std::atomic<int> seen_at_end{0};
  int value = 0;
  Counted() noexcept { ++alive; }
  ~Counted() {
    if (ThreadOwned<Counted>::get()) ++seen_at_end;
    --alive;
  }
};

TEST(ThreadOwnedTest, EachThreadHasItsOwnUntilItEnds) {
  ThreadOwned<Counted>::get()->value = 7;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t] {
      EXPECT_EQ(ThreadOwned<Counted>::get()->value, 0);
      ThreadOwned<Counted>::get()->value = t;
      EXPECT_EQ(ThreadOwned<Counted>::get()->value, t);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Counted::alive, 1);        // this thread's
  EXPECT_EQ(Counted::seen_at_end, 0);  // a thread that ends has none any more
  EXPECT_EQ(ThreadOwned<Counted>::get()->value, 7);
}

struct Large {
  void* operator new(size_t, const std::nothrow_t&) noexcept { return nullptr; }
  void operator delete(void*) noexcept {}
};

TEST(ThreadOwnedTest, WithoutMemoryThereIsNone) {
  EXPECT_EQ(ThreadOwned<Large>::get(), nullptr);
  EXPECT_EQ(ThreadOwned<Large>::get(), nullptr);
}

}  // namespace
}  // namespace belay::core
