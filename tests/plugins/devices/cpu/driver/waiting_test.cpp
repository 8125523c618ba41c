// Who runs what, and when: workers, timeouts, circles, full queues, priorities, lanes.
#include "fixture.h"

#include <thread>

namespace belay::cpu::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WaitingTest : public CpuDevice {
 protected:
  TestKernel nothing{"nothing", [](auto, auto) -> belay_status { return BELAY_OK; }};
};

TEST_F(WaitingTest, FlushLetsAWorkerRunTheWork) {
  TestStream s = stream();
  Gate gate;
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return gate.pass(), BELAY_OK; });
  ASSERT_TRUE(s.launch(kernel).ok());
  ASSERT_TRUE(s.flush().ok());
  gate.wait_reached();
  EXPECT_EQ(s.query(1).code(), Code::kUnavailable);
  gate.open();
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_TRUE(s.query(1).ok());
}

TEST_F(WaitingTest, AFlushReachesStreamsThatWereNotFlushed) {
  TestStream a = stream(), b = stream(), c = stream();
  ASSERT_TRUE(a.launch(nothing).ok());
  ASSERT_TRUE(b.wait(a.event()).ok());
  ASSERT_TRUE(c.wait(b.event()).ok());
  Done done;
  ASSERT_TRUE(c.on_reached(c.last(), done.completion()).ok());
  done.wait();
  EXPECT_EQ(done.status, BELAY_OK);
  EXPECT_NE(done.thread, std::this_thread::get_id());
}

TEST_F(WaitingTest, ACompletionIsCalledOnceAtOnceOrLaterOrWithTheFailure) {
  TestStream s = stream();
  ASSERT_TRUE(s.launch(nothing).ok());
  ASSERT_TRUE(s.synchronize().ok());
  Done now;
  ASSERT_TRUE(s.on_reached(1, now.completion()).ok());
  EXPECT_EQ(now.calls, 1);
  EXPECT_EQ(now.thread, std::this_thread::get_id());
  TestKernel bad("bad", [](const belay_exec* e, auto) { return e->fail(e, BELAY_INTERNAL, to_str("No.")); });
  Done later;
  ASSERT_TRUE(s.on_reached(2, later.completion()).ok());  // not queued yet
  ASSERT_TRUE(s.launch(bad).ok());
  later.wait();
  const Status status = host.take(later.status);
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("'bad'"));
  EXPECT_EQ(s.synchronize().code(), Code::kInternal);
}

TEST_F(WaitingTest, TheTickTakesUpWhatNobodyWaitsFor) {
  config.set("tick_us", 1000);
  TestStream s = stream();
  Gate gate;
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return gate.open(), BELAY_OK; });
  ASSERT_TRUE(s.launch(kernel).ok());
  host.advance(1'000'000);  // sees it
  host.advance(1'000'000);  // it stood still
  gate.pass();
  ASSERT_TRUE(s.synchronize().ok());
  host.advance(1'000'000'000);  // the tick goes to rest
  Gate second;
  TestKernel again("again", [&](auto, auto) -> belay_status { return second.open(), BELAY_OK; });
  ASSERT_TRUE(s.launch(again).ok());
  host.advance(1'000'000);
  host.advance(1'000'000);
  second.pass();
  s.destroy();
  device.reset();
  host.advance(1'000'000'000);  // a tick that is still to come finds no device
}

TEST_F(WaitingTest, WithoutAnExecutorWorkStartsAtOnce) {
  config.set("tick_us", 1000);
  host.offer(BELAY_HOST_EXECUTOR, nullptr);
  TestStream s = stream();
  Gate gate;
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return gate.open(), BELAY_OK; });
  ASSERT_TRUE(s.launch(kernel).ok());
  gate.pass();
}

TEST_F(WaitingTest, ABacklogWorthItWakesAWorker) {
  config.set("wake_backlog_us", 100);
  TestStream s = stream();
  std::atomic<int> ran{0};
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return ++ran, ran.notify_all(), BELAY_OK; }, 60'000);
  ASSERT_TRUE(s.launch(kernel).ok());
  ASSERT_TRUE(s.launch(kernel).ok());
  ran.wait(0);
  ASSERT_TRUE(s.synchronize().ok());
}

TEST_F(WaitingTest, WithATimeoutOnlyWhatIsSurelyShortRunsOnTheWaitersThread) {
  TestStream s = stream();
  std::vector<std::thread::id> threads;
  const auto note = [&](auto, auto) -> belay_status { return threads.push_back(std::this_thread::get_id()), BELAY_OK; };
  TestKernel brief("brief", note, 100), heavy("heavy", note, 500'000'000), unknown("unknown", note);
  ASSERT_TRUE(s.launch(brief).ok());
  ASSERT_TRUE(s.synchronize(1, 1'000'000'000).ok());
  EXPECT_EQ(threads.back(), std::this_thread::get_id());
  ASSERT_TRUE(s.launch(heavy).ok());
  ASSERT_TRUE(s.synchronize(2, 1'000'000'000).ok());
  EXPECT_NE(threads.back(), std::this_thread::get_id()) << "half of the time there is more than a quarter";
  ASSERT_TRUE(s.launch(unknown).ok());
  ASSERT_TRUE(s.synchronize(3, 1'000'000'000).ok());
  EXPECT_NE(threads.back(), std::this_thread::get_id());
}

TEST_F(WaitingTest, ATimeoutEndsTheWaitAndNotTheWork) {
  TestStream s = stream();
  Gate gate;
  TestKernel kernel("slow", [&](auto, auto) -> belay_status { return gate.pass(), BELAY_OK; });
  ASSERT_TRUE(s.launch(kernel).ok());
  std::thread clock([&] {
    gate.wait_reached();
    host.advance(2'000'000);
  });
  const Status status = s.synchronize(1, 1'000'000);
  clock.join();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("Operation 1 of stream 1 on cpu:0"), HasSubstr("stands at operation 0")));
  EXPECT_EQ(s.synchronize(1, 0).code(), Code::kDeadlineExceeded);
  gate.open();
  EXPECT_TRUE(s.synchronize().ok());
}

TEST_F(WaitingTest, WaitingForItselfIsAnError) {
  TestStream s = stream(), other = stream();
  EXPECT_THAT(s.wait({s.id(), 5}).status().message(), HasSubstr("would wait for itself"));
  struct State {
    TestStream *s, *other;
    Status direct, around;
  } state{&s, &other, {}, {}};
  ASSERT_TRUE(s.call([](void* user) {
                 auto& st = *static_cast<State*>(user);
                 st.direct = st.s->synchronize(2);
                 st.around = st.other->synchronize(1);
               }, &state).ok());
  // The callback may run before these are queued: then it waits until they are.
  ASSERT_TRUE(s.launch(nothing).ok());
  ASSERT_TRUE(other.wait({s.id(), 2}).ok());
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(state.direct.code(), Code::kFailedPrecondition);
  EXPECT_EQ(state.around.code(), Code::kFailedPrecondition);
  EXPECT_THAT(state.around.message(), HasSubstr("would wait for itself"));
  ASSERT_TRUE(other.synchronize().ok());
}

TEST_F(WaitingTest, ACircleOfWaitsIsAnErrorAndCanBeBroken) {
  TestStream a = stream(), b = stream();
  ASSERT_TRUE(host.take(device->timeline_signal(device, 99, 0, BELAY_OK)).ok());
  ASSERT_TRUE(a.wait({b.id(), 1}).ok());  // not queued yet: allowed
  ASSERT_TRUE(b.wait({a.id(), 1}).ok());
  EXPECT_THAT(a.synchronize().message(), HasSubstr("would wait for itself"));
  EXPECT_THAT(b.synchronize().message(), HasSubstr("would wait for itself"));
  // Nothing but the process's end or the end of a timeline resolves it; destroy must not hang in this test.
  device->timeline_destroy(device, 99);
}

TEST_F(WaitingTest, AFullQueueSaysSoAndRoomComesBack) {
  TestStream s = stream(8);
  uint64_t queued = 0;
  for (; queued < 100; ++queued) {
    const Result<uint64_t> value = s.launch(nothing);
    if (value.ok()) continue;
    EXPECT_EQ(value.status().code(), Code::kQueueFull);
    break;
  }
  EXPECT_EQ(queued, 8u);
  ASSERT_TRUE(s.synchronize(1).ok());
  EXPECT_TRUE(s.launch(nothing).ok());
  EXPECT_EQ(s.launch(nothing).status().code(), Code::kQueueFull);
  ASSERT_TRUE(s.synchronize().ok());
}

TEST_F(WaitingTest, BehindACallbackTheQueueGrowsUpToTheHardLimit) {
  config.set("backlog_hard", 2000).set("queue_depth", 8);
  TestStream s = stream(), other = stream();
  Gate gate;
  ASSERT_TRUE(s.call([](void* user) { static_cast<Gate*>(user)->pass(); }, &gate).ok());
  std::vector<uint64_t> seen;
  TestKernel note("note", [&](auto, const uint64_t* args) -> belay_status { return seen.push_back(args[0]), BELAY_OK; });
  uint64_t queued = 0;
  std::vector<uint64_t> args(20);
  while (queued < 5000) {
    args[0] = queued;
    args.resize(1 + queued % 20);
    if (!s.launch(note, args).ok()) break;
    ++queued;
  }
  EXPECT_EQ(queued, 1999u);
  ASSERT_TRUE(other.wait(s.event()).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(other.launch(nothing).ok()) << "it waits for the callback too";
  gate.open();
  ASSERT_TRUE(s.synchronize().ok());
  for (uint64_t round = 0; round < 3; ++round) {  // back in the ring
    for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(s.launch(note, {queued++}).ok());
    ASSERT_TRUE(s.synchronize().ok());
  }
  ASSERT_EQ(seen.size(), queued);
  for (uint64_t i = 0; i < queued; ++i) ASSERT_EQ(seen[i], i);
  ASSERT_TRUE(other.synchronize().ok());
}

TEST_F(WaitingTest, OperationsWithManyArgumentsWrapAroundTheRing) {
  TestStream s = stream(64);
  uint64_t sum = 0, expected = 0;
  size_t count = 0;
  TestKernel add("add", [&](auto, const uint64_t* args) -> belay_status {
    for (size_t i = 0; i < args[0]; ++i) sum += args[i];
    return BELAY_OK;
  });
  for (int round = 0; round < 500; ++round) {
    count = 1 + size_t(round * 7 % 60);
    std::vector<uint64_t> args(count);
    for (size_t i = 0; i < count; ++i) args[i] = i ? uint64_t(round) * i : count;
    for (const uint64_t a : args) expected += a;
    ASSERT_TRUE(s.launch(add, args).ok());
    if (round % 3 == 2) {
      ASSERT_TRUE(s.synchronize().ok());
    }
  }
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(sum, expected);
  EXPECT_THAT(s.launch(add, std::vector<uint64_t>(100'000)).status().message(), HasSubstr("100000 arguments"));
}

TEST_F(WaitingTest, HigherPrioritiesComeFirstOnAWorker) {
  config.set("threads", 1);
  TestStream low = stream(0, -3), high = stream(0, 5), middle = stream(0, 0), first = stream();
  std::string order;
  const auto kernel = [&](char name) {
    return std::make_unique<TestKernel>(std::string(1, name), [&order, name](auto, auto) -> belay_status {
      return order += name, BELAY_OK;
    }, 50'000);
  };
  const auto l = kernel('l'), h = kernel('h'), m = kernel('m');
  Gate gate;
  TestKernel hold("hold", [&](auto, auto) -> belay_status { return gate.pass(), BELAY_OK; });
  ASSERT_TRUE(first.launch(hold).ok());
  ASSERT_TRUE(first.flush().ok());
  gate.wait_reached();  // the only lane is taken
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(low.launch(*l).ok());
    ASSERT_TRUE(middle.launch(*m).ok());
    ASSERT_TRUE(high.launch(*h).ok());
  }
  for (TestStream* s : {&low, &middle, &high}) ASSERT_TRUE(s->flush().ok());
  gate.open();
  // No callbacks: beside one of them a second worker may start, and two race for the lane.
  for (TestStream* s : {&low, &middle, &high})
    while (!s->query(2).ok()) std::this_thread::yield();
  EXPECT_EQ(order, "hhmmll");
  for (TestStream* s : {&low, &high, &middle, &first}) ASSERT_TRUE(s->synchronize().ok());
}

TEST_F(WaitingTest, WhoWaitsLongIsServedBeforeAHigherPriority) {
  config.set("threads", 1);
  TestStream low = stream(0, -3), high = stream(0, 5), first = stream();
  std::string order;
  TestKernel l("l", [&](auto, auto) -> belay_status { return order += 'l', BELAY_OK; }, 50'000);
  TestKernel h("h", [&](auto, auto) -> belay_status { return order += 'h', BELAY_OK; }, 50'000);
  Gate gate;
  TestKernel hold("hold", [&](auto, auto) -> belay_status { return gate.pass(), BELAY_OK; });
  ASSERT_TRUE(first.launch(hold).ok());
  ASSERT_TRUE(first.flush().ok());
  gate.wait_reached();
  ASSERT_TRUE(low.launch(l).ok());
  Done done[2];
  ASSERT_TRUE(low.on_reached(1, done[0].completion()).ok());
  std::thread probe([&] { EXPECT_EQ(low.synchronize(1, 100).code(), Code::kDeadlineExceeded); });
  for (int i = 0; i < 100; ++i) {  // ten levels of age, once it waits
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    host.advance(10'000'000);
  }
  probe.join();
  ASSERT_TRUE(high.launch(h).ok());
  ASSERT_TRUE(high.on_reached(1, done[1].completion()).ok());
  gate.open();
  for (Done& d : done) d.wait();
  EXPECT_EQ(order, "lh");
  for (TestStream* s : {&low, &high, &first}) ASSERT_TRUE(s->synchronize().ok());
}

TEST_F(WaitingTest, ThreadsBoundTheSumOverWorkersAndCallers) {
  config.set("threads", 2);
  std::vector<TestStream> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(stream());
  std::atomic<int> now{0}, most{0};
  TestKernel kernel("k", [&](const belay_exec* exec, auto) -> belay_status {
    const int running = ++now;
    for (int seen = most; running > seen && !most.compare_exchange_weak(seen, running);) {
    }
    std::atomic<int> tiles{0};
    exec->parallel_for(exec, 8, [](void* arg, uint64_t) { ++*static_cast<std::atomic<int>*>(arg); }, &tiles);
    EXPECT_EQ(tiles, 8);
    std::this_thread::yield();
    --now;
    return BELAY_OK;
  });
  std::vector<std::thread> callers;
  for (TestStream& s : streams)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(s.launch(kernel).ok());
        if (i % 7 == 0) { ASSERT_TRUE(s.flush().ok()); }
        ASSERT_TRUE(s.synchronize().ok());
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_LE(most, 2);
}

}  // namespace
}  // namespace belay::cpu::testing
