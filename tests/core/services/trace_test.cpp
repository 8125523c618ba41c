#include "services_fixture.h"

#include <atomic>
#include <thread>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

class TraceTest : public ServicesTest {
 protected:
  const belay_trace_vt& table() { return service<belay_trace_vt>(BELAY_HOST_TRACE); }
  Trace& trace() { return services_of(table_of(a)).trace; }
  static belay_trace_record record(uint64_t value) {
    belay_trace_record made{};
    made.kind = BELAY_TRACE_RANGE, made.value = value;
    return made;
  }
};

TEST_F(TraceTest, WithoutAListenerNothingIsMadeOrWritten) {
  EXPECT_EQ(__atomic_load_n(table().enabled(a), __ATOMIC_RELAXED), 0u);
  EXPECT_EQ(table().ring(a), nullptr);
  const belay_trace_record lost = record(1);
  belay_trace_write(nullptr, &lost);
}

TEST_F(TraceTest, RecordsArriveInOrderWithTheirThread) {
  std::vector<belay_trace_record> seen;
  const auto id = trace().listen([&](std::span<const belay_trace_record> records) {
    seen.insert(seen.end(), records.begin(), records.end());
  });
  ASSERT_TRUE(id.ok());
  const auto write = [&](uint64_t first) {
    belay_trace_ring* ring = table().ring(a);
    ASSERT_NE(ring, nullptr);
    for (uint64_t i = 0; i < 1000; ++i) {
      const belay_trace_record made = record(first + i);
      belay_trace_write(ring, &made);
    }
  };
  write(0);
  std::thread other([&] { write(5000); });
  other.join();  // what a thread wrote before it ended is not lost
  trace().flush();
  trace().unlisten(*id);
  ASSERT_EQ(seen.size(), 2000u);
  EXPECT_NE(seen[0].thread, seen[1999].thread);
  for (uint64_t i = 1; i < 2000; ++i)
    if (seen[i].thread == seen[i - 1].thread) {
      EXPECT_EQ(seen[i].value, seen[i - 1].value + 1);
    }
  EXPECT_EQ(trace().dropped(), 0u);
  const belay_trace_record late = record(1);
  belay_trace_write(table().ring(a), &late);
  trace().flush();
  EXPECT_EQ(seen.size(), 2000u);
}

TEST_F(TraceTest, AFullRingDropsAndCounts) {
  std::atomic<uint64_t> seen{0};
  std::mutex gate;
  gate.lock();
  const auto id = trace().listen([&](std::span<const belay_trace_record> records) {
    std::lock_guard wait(gate);  // a listener that is slow
    seen += records.size();
  });
  belay_trace_ring* const ring = table().ring(a);
  uint64_t written = 0;
  for (; trace().dropped() == 0; ++written) {
    const belay_trace_record made = record(written);
    belay_trace_write(ring, &made);
  }
  gate.unlock();
  trace().flush();
  EXPECT_EQ(seen, written - 1);
  EXPECT_EQ(trace().dropped(), 1u);
  trace().unlisten(*id);
}

TEST_F(TraceTest, TheListenerIsCalledWithoutAFlush) {
  std::atomic<uint64_t> seen{0};
  const auto id =
      trace().listen([&](std::span<const belay_trace_record> records) { seen += records.size(); });
  const belay_trace_record made = record(1);
  belay_trace_write(table().ring(a), &made);
  for (int i = 0; i < 500 && seen == 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(seen, 1u);
  trace().unlisten(*id);
}

TEST_F(TraceTest, ANameIsOneIdAndEveryIdItsName) {
  uint32_t conv = 0, same = 0, relu = 0;
  ASSERT_EQ(table().name(a, to_str("conv"), &conv), BELAY_OK);
  ASSERT_EQ(table().name(b, to_str("conv"), &same), BELAY_OK);
  ASSERT_EQ(table().name(a, to_str("relu\n"), &relu), BELAY_OK);
  EXPECT_EQ(conv, same);
  EXPECT_NE(conv, relu);
  StringSink text;
  table().name_text(a, relu, text.sink());
  EXPECT_EQ(text.text(), "relu\\n");
  StringSink none;
  table().name_text(a, 99, none.sink());
  EXPECT_EQ(none.text(), "");
}

TEST_F(TraceTest, ManyThreadsWriteWhileListenersComeAndGo) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t)
    writers.emplace_back([&, t] {
      for (uint64_t i = 0; !stop; ++i) {
        const belay_trace_record made = record(i);
        belay_trace_write(table().ring(t % 2 ? a : b), &made);
      }
    });
  std::atomic<uint64_t> seen{0};
  for (int i = 0; i < 50; ++i) {
    const auto id =
        trace().listen([&](std::span<const belay_trace_record> records) { seen += records.size(); });
    trace().flush();
    trace().unlisten(*id);
  }
  const auto id =
      trace().listen([&](std::span<const belay_trace_record> records) { seen += records.size(); });
  while (seen == 0) trace().flush();
  stop = true;
  for (auto& writer : writers) writer.join();
  trace().unlisten(*id);
}

TEST(TraceOfTwoHostsTest, AThreadHasARingInEach) {
  Executor executor;
  auto one = std::make_unique<Trace>(executor);
  Trace two(executor);
  uint64_t first = 0, second = 0;
  ASSERT_TRUE(
      one->listen([&](std::span<const belay_trace_record> records) { first += records.size(); }).ok());
  ASSERT_TRUE(
      two.listen([&](std::span<const belay_trace_record> records) { second += records.size(); }).ok());
  belay_trace_record made{};
  belay_trace_write(one->ring(), &made), belay_trace_write(two.ring(), &made),
      belay_trace_write(two.ring(), &made);
  one.reset();
  two.flush();
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(second, 2u);
}

}  // namespace
}  // namespace belay::core
