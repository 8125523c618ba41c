// Streams as a caller sees them: order, waiting, failures.
#include "fixture.h"

#include <thread>

namespace belay::cpu::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StreamTest : public CpuDevice {};

TEST_F(StreamTest, OperationsRunInOrderOnTheThreadThatWaits) {
  TestStream s = stream();
  std::vector<uint64_t> seen;
  std::thread::id ran_on;
  TestKernel note("note", [&](const belay_exec*, const uint64_t* args) -> belay_status {
    seen.push_back(args[0]);
    ran_on = std::this_thread::get_id();
    return BELAY_OK;
  });
  for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(s.launch(note, {i}).value(), i + 1);
  EXPECT_TRUE(seen.empty()) << "queueing never runs work";
  ASSERT_TRUE(s.synchronize(40).ok());
  EXPECT_EQ(seen.size(), 40u) << "a waiter works no further than the awaited value";
  ASSERT_TRUE(s.synchronize().ok());
  ASSERT_EQ(seen.size(), 100u);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST_F(StreamTest, AWaiterFollowsTheWaitToAnotherStream) {
  TestStream a = stream(), b = stream();
  std::string order;
  TestKernel on_a("a", [&](auto, auto) -> belay_status { return order += 'a', BELAY_OK; });
  TestKernel on_b("b", [&](auto, auto) -> belay_status { return order += 'b', BELAY_OK; });
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(a.launch(on_a).ok());
    ASSERT_TRUE(b.wait(a.event()).ok());
    ASSERT_TRUE(b.launch(on_b).ok());
    ASSERT_TRUE(a.wait(b.event()).ok());
  }
  ASSERT_TRUE(b.synchronize().ok());
  EXPECT_EQ(order, "ababab");
  ASSERT_TRUE(a.synchronize().ok());
}

TEST_F(StreamTest, AFailureTravelsWithTheNameOfItsOperation) {
  TestStream a = stream(), b = stream(), c = stream();
  int ran = 0;
  TestKernel bad("conv1", [&](const belay_exec* exec, auto) {
    return exec->fail(exec, BELAY_DATA_LOSS, to_str("The weights are gone."));
  });
  TestKernel good("good", [&](auto, auto) -> belay_status { return ++ran, BELAY_OK; });
  const uint64_t before = a.launch(good).value();
  const uint64_t failed = a.launch(bad).value();
  ASSERT_TRUE(a.launch(good).ok());
  ASSERT_TRUE(b.wait(a.event()).ok());
  ASSERT_TRUE(b.launch(good).ok());
  ASSERT_TRUE(c.wait(b.event()).ok());
  const Status status = c.synchronize();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'conv1'"), HasSubstr("operation 2 of stream 1 on cpu:0"),
                                      HasSubstr("The weights are gone.")));
  EXPECT_EQ(ran, 1) << "nothing runs after a failure";
  EXPECT_TRUE(a.synchronize(before).ok());
  EXPECT_EQ(a.synchronize(failed).message(), status.message());

  ASSERT_TRUE(a.recover().ok());
  ASSERT_TRUE(a.launch(good).ok());
  EXPECT_TRUE(a.synchronize().ok());
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(a.synchronize(failed).code(), Code::kDataLoss) << "the old value stays failed";
}

TEST_F(StreamTest, CallbacksRunOnAWorkerInOrder) {
  TestStream s = stream();
  struct State {
    std::atomic<int> value{0};
    std::thread::id thread;
  } state;
  TestKernel five("five", [&](auto, auto) -> belay_status { return state.value = 5, BELAY_OK; });
  ASSERT_TRUE(s.launch(five).ok());
  ASSERT_TRUE(s.call([](void* user) {
                 auto& st = *static_cast<State*>(user);
                 st.value = st.value * 2;
                 st.thread = std::this_thread::get_id();
               }, &state).ok());
  ASSERT_TRUE(s.synchronize().ok());
  EXPECT_EQ(state.value, 10);
  EXPECT_NE(state.thread, std::this_thread::get_id());
}

TEST_F(StreamTest, CopiesOfEverySizeArrive) {
  TestStream s = stream();
  for (const uint64_t bytes : {0u, 1u, 4u, 63u, 4096u, 100'001u, 1u << 20, (5u << 20) + 7, (33u << 20) + 1}) {
    std::vector<unsigned char> from(bytes + 1), to(bytes + 1, 0);
    for (uint64_t i = 0; i < bytes; ++i) from[i] = static_cast<unsigned char>(i * 31 + i / 251);
    from[bytes] = 1;
    ASSERT_TRUE(s.copy(to.data(), from.data(), bytes).ok());
    ASSERT_TRUE(s.synchronize().ok());
    EXPECT_EQ(std::memcmp(from.data(), to.data(), bytes), 0) << bytes;
    EXPECT_EQ(to[bytes], 0) << "no byte more";
  }
}

}  // namespace
}  // namespace belay::cpu::testing
