// What stands around operations while they run: the thread's stack, rounding and cancellation, scratch, outputs; and the
// ends of streams and processes.
#include "fakes/fork.h"
#include "fixture.h"

#include <cfenv>
#include <csignal>
#include <thread>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace belay::cpu::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SurroundingsTest : public CpuDevice {
 protected:
  TestKernel nothing{"nothing", [](auto, auto) -> belay_status { return BELAY_OK; }};
};

TEST_F(SurroundingsTest, AThreadWithLittleStackLeavesTheWorkToAWorker) {
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

// A model file that shrinks while it is read is SIGBUS: blocked in a worker, it would end the process past its handler.
TEST_F(SurroundingsTest, AWorkerTakesItsOwnFaultsAndNoOtherSignals) {
  TestStream s = stream();
  sigset_t set;
  sigemptyset(&set);
  const auto look = [](void* user) { pthread_sigmask(SIG_SETMASK, nullptr, static_cast<sigset_t*>(user)); };
  ASSERT_TRUE(s.call(look, &set).ok());
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(sigismember(&set, SIGTERM), 1);
  EXPECT_EQ(sigismember(&set, SIGBUS), 0);
}

TEST_F(SurroundingsTest, KernelsRunWithTheUsualRoundingAndTheCallerGetsItsOwnBack) {
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

TEST_F(SurroundingsTest, KernelsCannotBeCancelled) {
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

TEST_F(SurroundingsTest, ScratchIsAThreadsOwnAndFreeAfterwards) {
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

TEST_F(SurroundingsTest, AKernelThatChoosesItsShapesAsksTheLaunch) {
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

TEST_F(SurroundingsTest, UserKernelsRunOnWorkersAndMayWaitForOtherStreams) {
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

TEST_F(SurroundingsTest, DestroyFinishesTheWorkAndLaterWaitsForItAreErrors) {
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

TEST_F(SurroundingsTest, StreamsThatComeAndGoLeaveNothingBehind) {
  TestStream keeper = stream();
  for (int i = 0; i < 300; ++i) {
    TestStream s = stream(8);
    ASSERT_TRUE(s.launch(nothing).ok());
    ASSERT_TRUE(keeper.wait(s.event()).ok());
    if (i % 3 == 0) { ASSERT_TRUE(keeper.synchronize().ok()); }
  }
  ASSERT_TRUE(keeper.synchronize().ok());
}

TEST_F(SurroundingsTest, AChildAfterForkIsRefusedAndTheParentGoesOn) {
#if BELAY_SANITIZER == BELAY_SANITIZER_THREAD
  GTEST_SKIP() << "ThreadSanitizer ends a child that makes threads after a fork of many threads.";
#endif
  TestStream s = stream();
  ASSERT_TRUE(s.launch(nothing).ok());
  ASSERT_TRUE(s.flush().ok());  // there are threads
  const pid_t parent = getpid();
  const pid_t child = belay::testing::fork_at_rest();
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
