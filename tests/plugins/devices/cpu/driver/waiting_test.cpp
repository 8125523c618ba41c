// Who runs what, and when: workers, timeouts, priorities, full queues, threads of every kind.
#include "fixture.h"

#include <cfenv>
#include <thread>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace belay::cpu::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WaitingTest : public CpuDevice {
 protected:
  TestKernel nothing{"nothing", [](auto, auto) -> belay_status { return BELAY_OK; }};
};

struct Done {  // a completion that tests wait for
  std::atomic<int> calls{0};
  std::atomic<belay_status> status{0};
  std::thread::id thread;
  belay_completion completion() {
    return {this, [](void* user, belay_status s) {
              auto& d = *static_cast<Done*>(user);
              d.status = s;
              d.thread = std::this_thread::get_id();
              ++d.calls;
              d.calls.notify_all();
            }};
  }
  void wait() { calls.wait(0); }
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
  Done done[3];
  ASSERT_TRUE(low.on_reached(2, done[0].completion()).ok());
  ASSERT_TRUE(middle.on_reached(2, done[1].completion()).ok());
  ASSERT_TRUE(high.on_reached(2, done[2].completion()).ok());
  gate.open();
  for (Done& d : done) d.wait();
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

TEST_F(WaitingTest, AThreadWithLittleStackLeavesTheWorkToAWorker) {
  TestStream s = stream();
  std::thread::id ran_on;
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return ran_on = std::this_thread::get_id(), BELAY_OK; });
  ASSERT_TRUE(s.launch(kernel).ok());
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 192 * 1024);
  pthread_t thread;
  const auto wait = [](void* stream) -> void* {
    EXPECT_TRUE(static_cast<TestStream*>(stream)->synchronize().ok());
    return nullptr;
  };
  const std::thread::id me = std::this_thread::get_id();
  ASSERT_EQ(pthread_create(&thread, &attributes, wait, &s), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_NE(ran_on, std::thread::id());
  EXPECT_NE(ran_on, me);
}

TEST_F(WaitingTest, KernelsRunWithTheUsualRoundingAndTheCallerGetsItsOwnBack) {
  TestStream s = stream();
  const auto third = [] {
    volatile double one = 1, three = 3;
    return one / three;
  };
  double in_kernel = 0;
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return in_kernel = third(), BELAY_OK; });
  ASSERT_TRUE(s.launch(kernel).ok());
  const double nearest = third();
  std::fesetround(FE_UPWARD);
  const double upward = third();
  const Status status = s.synchronize();
  const double after = third();
  std::fesetround(FE_TONEAREST);
  EXPECT_TRUE(status.ok());
  ASSERT_NE(nearest, upward);
  EXPECT_EQ(in_kernel, nearest);
  EXPECT_EQ(after, upward);
}

TEST_F(WaitingTest, KernelsCannotBeCancelled) {
  TestStream s = stream();
  int state = -1;
  TestKernel kernel("k", [&](auto, auto) -> belay_status {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return BELAY_OK;
  });
  ASSERT_TRUE(s.launch(kernel).ok());
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(state, PTHREAD_CANCEL_DISABLE);
  int after = -1;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &after);
  EXPECT_EQ(after, PTHREAD_CANCEL_ENABLE) << "and the waiting thread is as it was";
}

TEST_F(WaitingTest, ScratchIsAThreadsOwnAndFreeAfterwards) {
  TestStream s = stream();
  void* first = nullptr;
  TestKernel kernel("k", [&](const belay_exec* exec, auto) -> belay_status {
    char* const a = static_cast<char*>(exec->scratch(exec, 100));
    char* const b = static_cast<char*>(exec->scratch(exec, 1 << 20));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0u);
    std::memset(a, 1, 100);
    std::memset(b, 2, 1 << 20);
    EXPECT_EQ(a[99], 1);
    if (first) {
      EXPECT_EQ(a, first);
    }
    first = a;
    EXPECT_EQ(exec->scratch(exec, ~uint64_t{0} - 10), nullptr);
    struct Tiles {
      const belay_exec* exec;
      std::atomic<int> wrong{0};
    } tiles{exec, {}};
    exec->parallel_for(exec, 64, [](void* arg, uint64_t i) {
      auto& t = *static_cast<Tiles*>(arg);
      char* const mine = static_cast<char*>(t.exec->scratch(t.exec, 50'000));
      std::memset(mine, int(i), 50'000);
      for (int at = 0; at < 50'000; at += 1000) t.wrong += mine[at] != char(i);
    }, &tiles);
    EXPECT_EQ(tiles.wrong, 0);
    EXPECT_EQ(a[99], 1);
    return BELAY_OK;
  });
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(s.launch(kernel).ok());
  ASSERT_TRUE(s.synchronize().ok());
}

TEST_F(WaitingTest, AKernelThatChoosesItsShapesAsksTheLaunch) {
  TestStream s = stream();
  struct Output {
    std::vector<int64_t> dims;
    float memory[6];
  } output;
  TestKernel kernel("unique", [](const belay_exec* exec, const uint64_t* args) -> belay_status {
    const int64_t dims[] = {2, 3};
    auto* const out = static_cast<float*>(exec->output(exec, 0, dims, 2));
    if (!out) return exec->fail(exec, BELAY_RESOURCE_EXHAUSTED, to_str("No memory."));
    for (int i = 0; i < 6; ++i) out[i] = float(args[0]);
    return BELAY_OK;
  }, 0, BELAY_KERNEL_WRITES_SHAPE);
  EXPECT_THAT(s.launch(kernel, {7}).status().message(), AllOf(HasSubstr("'unique'"), HasSubstr("`output`")));
  const uint64_t args[] = {7};
  belay_launch_req req{};
  req.hdr.struct_size = sizeof req;
  req.kernel = &kernel;
  req.args = args;
  req.arg_count = 1;
  req.output = [](void* user, uint64_t, const int64_t* dims, uint32_t rank) -> void* {
    auto& o = *static_cast<Output*>(user);
    o.dims.assign(dims, dims + rank);
    return o.memory;
  };
  req.output_user = &output;
  const auto* vt = static_cast<const belay_stream_vt*>(s.get()->table);
  uint64_t value = 0;
  ASSERT_TRUE(host.take(vt->launch(s.get(), &req, &value)).ok());
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(output.dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(output.memory[5], 7.0f);
}

TEST_F(WaitingTest, UserKernelsRunOnWorkersAndMayWaitForOtherStreams) {
  config.set("threads", 1).set("blocking_threads", 2);
  TestStream a = stream(), b = stream();
  struct State {
    TestStream* b;
    std::thread::id thread;
    Status status;
  } state{&b, {}, {}};
  TestKernel blocking("blocking", [&](auto, auto) -> belay_status {
    state.thread = std::this_thread::get_id();
    state.status = state.b->synchronize();
    return BELAY_OK;
  }, 0, BELAY_KERNEL_BLOCKING);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(b.launch(nothing).ok());
  ASSERT_TRUE(b.call([](void*) {}, nullptr).ok());
  ASSERT_TRUE(a.launch(blocking).ok());
  ASSERT_TRUE(a.synchronize().ok());
  EXPECT_TRUE(state.status.ok()) << state.status.message();
  EXPECT_NE(state.thread, std::this_thread::get_id());
}

TEST_F(WaitingTest, DestroyFinishesTheWorkAndLaterWaitsForItAreErrors) {
  TestStream a = stream();
  int ran = 0;
  TestKernel kernel("k", [&](auto, auto) -> belay_status { return ++ran, BELAY_OK; });
  TestStream b = stream();
  ASSERT_TRUE(a.launch(kernel).ok());
  const belay_event event = a.event();
  ASSERT_TRUE(b.wait(event).ok());
  ASSERT_TRUE(b.launch(kernel).ok());
  ASSERT_TRUE(b.wait({event.timeline, 100}).ok());
  a.destroy();
  EXPECT_EQ(ran, 1);
  ASSERT_TRUE(b.synchronize(2).ok());
  EXPECT_EQ(ran, 2);
  EXPECT_THAT(b.synchronize().message(), HasSubstr("was destroyed before"));
  EXPECT_EQ(b.wait(event).status().code(), Code::kNotFound);
}

TEST_F(WaitingTest, StreamsThatComeAndGoLeaveNothingBehind) {
  TestStream keeper = stream();
  for (int i = 0; i < 300; ++i) {
    TestStream s = stream(8);
    ASSERT_TRUE(s.launch(nothing).ok());
    ASSERT_TRUE(keeper.wait(s.event()).ok());
    if (i % 3 == 0) { ASSERT_TRUE(keeper.synchronize().ok()); }
  }
  ASSERT_TRUE(keeper.synchronize().ok());
}

TEST_F(WaitingTest, AChildAfterForkIsRefusedAndTheParentGoesOn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends a child that makes threads after a fork of many threads.";
#endif
  TestStream s = stream();
  ASSERT_TRUE(s.launch(nothing).ok());
  ASSERT_TRUE(s.flush().ok());  // there are threads
  const pid_t parent = getpid();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto refused = [&](const Status& status) {
      return status.code() == Code::kFailedPrecondition &&
             status.message().find("process " + std::to_string(parent)) != std::string::npos;
    };
    bool ok = refused(s.launch(nothing).status()) && refused(s.synchronize()) && refused(s.flush()) &&
              refused(s.query(1)) && refused(s.wait({1, 1}).status()) && refused(s.copy(nullptr, nullptr, 0).status());
    belay_device_info info{};
    info.hdr.struct_size = sizeof info;
    ok = ok && refused(host.take(driver->device_info(driver, 0, &info))) && refused(host.take(device->reset(device)));
    s.destroy();  // does nothing
    device.reset();
    driver.reset();
    open();  // of its own
    TestStream mine = stream();
    int ran = 0;
    TestKernel kernel("k", [&](auto, auto) -> belay_status { return ++ran, BELAY_OK; });
    ok = ok && mine.launch(kernel).ok() && mine.call([](void*) {}, nullptr).ok() && mine.synchronize().ok() && ran == 1;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_TRUE(s.launch(nothing).ok());
  EXPECT_TRUE(s.synchronize().ok());
}

}  // namespace
}  // namespace belay::cpu::testing
