// Random work on many streams from many threads, with a checker: every operation looks whether all that it must come
// after has come.
#include "fixture.h"

#include <mutex>
#include <random>
#include <thread>

namespace belay::cpu::testing {
namespace {

constexpr int kStreams = 6;

struct Checked {  // what a stream has done
  std::atomic<uint64_t> done{0};
};

struct Operation {
  Checked* all;
  int stream;
  uint64_t value;                                 // of this operation
  std::vector<std::pair<int, uint64_t>> awaited;  // (stream, value) that come before
  std::atomic<int>* wrong;
  std::atomic<int> runs{0};

  void run() {
    ++runs;
    Checked& mine = all[stream];
    // Waits take values too, so between two operations there may be a gap, but never a step back.
    if (mine.done.load() >= value) ++*wrong;
    for (const auto& [other, least] : awaited)
      if (all[other].done.load() < least) ++*wrong;
    mine.done.store(value);
  }
};

class StressTest : public CpuDevice, public ::testing::WithParamInterface<int> {};

TEST_P(StressTest, EveryOperationRunsOnceAndAfterAllThatItWaitsFor) {
  config.set("threads", 1 + GetParam() % 3).set("queue_depth", 64).set("backlog_hard", 512).set("wake_backlog_us", 20);
  if (GetParam() % 2) config.set("tick_us", 100);
  std::vector<TestStream> streams;
  std::mutex locks[kStreams];  // as the HAL: one thread queues at a time
  for (int i = 0; i < kStreams; ++i) streams.push_back(stream(0, i - 3));
  Checked all[kStreams];
  std::atomic<int> wrong{0}, completions{0};
  std::atomic<int> due{0};
  const auto run = [](auto, const uint64_t* args) -> belay_status {
    reinterpret_cast<Operation*>(args[0])->run();
    return BELAY_OK;
  };
  TestKernel light("light", run, 100), heavy("heavy", run, 30'000), unknown("unknown", run),
      blocking("blocking", run, 0, BELAY_KERNEL_BLOCKING);
  TestKernel tiled("tiled", [&](const belay_exec* exec, const uint64_t* args) -> belay_status {
    std::atomic<int> tiles{0};
    exec->parallel_for(exec, 16, [](void* arg, uint64_t) { ++*static_cast<std::atomic<int>*>(arg); }, &tiles);
    if (tiles != 16) ++wrong;
    return run(exec, args);
  }, 200'000);
  const belay_kernel* const kernels[] = {&light, &heavy, &unknown, &blocking, &tiled};

  std::mutex keep_lock;
  std::vector<std::unique_ptr<Operation>> keep;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int step = 0; step < 800; ++step) {
      const int at = int(random() % kStreams);
      TestStream& s = streams[size_t(at)];
      const unsigned what = random() % 100;
      if (what < 70) {
        auto op = std::make_unique<Operation>();
        op->all = all;
        op->stream = at;
        op->wrong = &wrong;
        std::unique_lock lock(locks[at]);
        for (unsigned waits = random() % 3; waits > 0; --waits) {
          const int other = int(random() % kStreams);
          const uint64_t done_before = all[other].done.load();
          // A value of an operation is queued already if it has run; the newest one is only known to its queue.
          const belay_event event = other == at ? belay_event{s.id(), s.last()} : streams[size_t(other)].event();
          if (!s.wait(event).ok()) break;
          if (other != at) op->awaited.emplace_back(other, done_before);
        }
        for (;;) {
          op->value = s.last() + 1;
          const Result<uint64_t> value =
              what < 65 ? s.launch(*kernels[random() % 5], {reinterpret_cast<uint64_t>(op.get())})
                        : s.call([](void* user) { static_cast<Operation*>(user)->run(); }, op.get());
          if (value.ok()) {
            if (*value != op->value) ++wrong;
            break;
          }
          if (value.status().code() != Code::kQueueFull) {
            ++wrong;
            break;
          }
          const uint64_t until = s.last();  // as the HAL: drop the lock, help, try again
          lock.unlock();
          if (!s.synchronize(until > 32 ? until - 32 : until).ok()) ++wrong;
          lock.lock();
        }
        lock.unlock();
        std::lock_guard guard(keep_lock);
        keep.push_back(std::move(op));
      } else if (what < 80) {
        if (!s.synchronize(s.last()).ok()) ++wrong;
      } else if (what < 84) {
        const Status status = s.synchronize(s.last(), 1);
        if (!status.ok() && status.code() != Code::kDeadlineExceeded) ++wrong;
      } else if (what < 90) {
        if (!s.flush().ok()) ++wrong;
      } else if (what < 95) {
        const uint64_t value = s.last();
        const Status status = s.query(value);
        if (!status.ok() && status.code() != Code::kUnavailable) ++wrong;
      } else {
        ++due;
        const belay_completion completion = {&completions,
                                             [](void* user, belay_status) { ++*static_cast<std::atomic<int>*>(user); }};
        if (!s.on_reached(s.last() + random() % 2, completion).ok()) ++wrong;
      }
      if (GetParam() % 2 && step % 50 == 0 && seed % 3 == 0) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) threads.emplace_back(work, unsigned(GetParam()) * 100 + t);
  for (std::thread& thread : threads) thread.join();
  // Completions may wait for one value more than was queued.
  Operation last[kStreams];
  for (int i = 0; i < kStreams; ++i) {
    last[i].all = all;
    last[i].stream = i;
    last[i].wrong = &wrong;
    last[i].value = streams[size_t(i)].last() + 1;
    ASSERT_TRUE(streams[size_t(i)].launch(light, {reinterpret_cast<uint64_t>(&last[i])}).ok() ||
                (streams[size_t(i)].synchronize().ok() &&
                 streams[size_t(i)].launch(light, {reinterpret_cast<uint64_t>(&last[i])}).ok()));
  }
  for (TestStream& s : streams) ASSERT_TRUE(s.synchronize().ok());
  for (const auto& op : keep) ASSERT_EQ(op->runs, 1);
  for (const Operation& op : last) ASSERT_EQ(op.runs, 1);
  EXPECT_EQ(wrong, 0);
  streams.clear();
  device.reset();  // workers have called what was due
  EXPECT_EQ(completions, due);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StressTest, ::testing::Range(1, 9));

}  // namespace
}  // namespace belay::cpu::testing
