// One pool, many threads: every block belongs to one of them at a time, as its bytes tell.
#include <belay/abi/plugin.h>
#include <gtest/gtest.h>
#include <placer/pool.hpp>

#include <atomic>
#include <random>
#include <thread>

namespace belay::testing {
namespace {

constexpr uint64_t kBytes = 1 << 20, kBlock = 256;
#if BELAY_SANITIZER == BELAY_SANITIZER_THREAD
constexpr int kSteps = 4000;
#else
constexpr int kSteps = 40'000;
#endif

struct Held {
  uint64_t offset = 0, bytes = 0, cookie = 0;
};

class SharedPool {
 public:
  SharedPool() : pool_({.block_size = kBlock, .alignment = kBlock}), owner_(new std::atomic<uint32_t>[kBytes / kBlock]{}) {
    EXPECT_TRUE(pool_.add_segment(1, kBytes, 1).ok());
  }
  bool place(uint64_t bytes, uint32_t self, Held& out) {
    belay_place_req req{};
    req.bytes = bytes;
    req.heap = 1;
    req.timeline = self;
    belay_placed placed{};
    if (!pool_.place_at_once(req, placed) && !pool_.place(req, placed).ok()) return false;
    out = {placed.offset, bytes, placed.cookie};
    mark(out, 0, self);
    return true;
  }
  void release(const Held& block, uint32_t self) {
    mark(block, self, 0);
    if (!pool_.release_at_once(block.cookie, nullptr, 0) && !pool_.release(block.cookie, nullptr, 0).ok()) ++wrong_;
  }
  void hand_over(const Held& block, uint32_t from, uint32_t to) { mark(block, from, to); }
  pool::Pool& pool() { return pool_; }
  uint64_t wrong() const { return wrong_; }

 private:
  void mark(const Held& block, uint32_t from, uint32_t to) {
    for (uint64_t at = block.offset / kBlock; at * kBlock < block.offset + block.bytes; ++at)
      if (owner_[at].exchange(to, std::memory_order_relaxed) != from) ++wrong_;
  }
  pool::Pool pool_;
  std::unique_ptr<std::atomic<uint32_t>[]> owner_;
  std::atomic<uint64_t> wrong_{0};
};

TEST(PoolThreadsTest, NoBlockHasTwoOwners) {
  SharedPool shared;
  std::mutex exchange;
  std::vector<Held> passing;  // blocks that another thread releases; of owner 99
  const auto work = [&](uint32_t self) {
    std::mt19937 random(self);
    std::vector<Held> mine;
    for (int i = 0; i < kSteps; ++i) {
      Held block;
      if (mine.size() < 40 && random() % 2) {
        if (shared.place(1 + random() % 8 * 777, self, block)) mine.push_back(block);
      } else if (!mine.empty()) {
        const size_t which = random() % mine.size();
        std::swap(mine[which], mine.back());
        if (random() % 4) {
          shared.release(mine.back(), self);
        } else {
          shared.hand_over(mine.back(), self, 99);
          const std::lock_guard lock(exchange);
          passing.push_back(mine.back());
        }
        mine.pop_back();
      }
      if (i % 8 == 0) {
        const std::lock_guard lock(exchange);
        if (!passing.empty()) {
          block = passing.back();
          passing.pop_back();
          shared.release(block, 99);
        }
      }
    }
    for (const Held& block : mine) shared.release(block, self);
  };
  std::atomic<bool> done{false};
  std::thread watcher([&] {
    while (!done) {
      const belay_policy_stats stats = shared.pool().stats();
      if (stats.in_use > stats.reserved || stats.requested > stats.in_use) ADD_FAILURE() << "statistics";
      shared.pool().trim(1, [](void*, uint64_t) {}, nullptr);
      StringSink json;
      shared.pool().snapshot(json.sink());
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (uint32_t self = 1; self <= 3; ++self) threads.emplace_back(work, self);
  for (std::thread& thread : threads) thread.join();
  done = true;
  watcher.join();
  for (const Held& block : passing) shared.release(block, 99);
  EXPECT_EQ(shared.wrong(), 0u);
  EXPECT_EQ(shared.pool().stats().in_use, 0u);
  EXPECT_EQ(shared.pool().check(), "");
}

// The thread that a pool was biased to ends, and another takes its place.
TEST(PoolThreadsTest, OwnersComeAndGo) {
  SharedPool shared;
  for (uint32_t self = 1; self <= 20; ++self)
    std::thread([&] {
      Held block;
      for (int i = 0; i < 300; ++i)
        if (shared.place(1000, self, block)) shared.release(block, self);
    }).join();
  EXPECT_EQ(shared.wrong(), 0u);
  EXPECT_EQ(shared.pool().stats().places, 6000u);
  EXPECT_EQ(shared.pool().check(), "");
}

}  // namespace
}  // namespace belay::testing
