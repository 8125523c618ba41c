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

class FaultPointsTest : public ServicesTest {
 protected:
  Status at(const belay_host* of, const char* point) {
    return take(service<belay_fault_vt>(BELAY_HOST_FAULT).at(of, to_str(point)));
  }
};

TEST_F(FaultPointsTest, NothingFailsThatNobodyOrders) {
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(at(a, "submit").ok());
}

TEST_F(FaultPointsTest, TheOrderedPassesFailAndSayWhoOrderedIt) {
  make("[[fault.points]]\npoint = \"a.submit\"\ncode = \"DEVICE_LOST\"\nskip = 2\ntimes = 2\n");
  std::vector<bool> went_well;
  for (int i = 0; i < 6; ++i) went_well.push_back(at(a, "submit").ok());
  EXPECT_THAT(went_well, ElementsAre(true, true, false, false, true, true));
  EXPECT_TRUE(at(b, "submit").ok());
  EXPECT_TRUE(at(a, "submit2").ok());
  make("[[fault.points]]\npoint = \"a.submit\"\ncode = \"DEVICE_LOST\"\n");
  const Status status = at(a, "submit");
  EXPECT_EQ(status.code(), Code::kDeviceLost);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("ordered at 'a.submit', pass 1"), HasSubstr("config test.toml:6:")));
}

TEST_F(FaultPointsTest, AStarStandsForAnythingAndADelayWaits) {
  make(
      "[[fault.points]]\npoint = \"a.*\"\ntimes = 0\n[[fault.points]]\npoint = \"b.x\"\ncode = \"OK\"\ndelay "
      "= \"30ms\"\n");
  EXPECT_EQ(at(a, "one").code(), Code::kUnavailable);
  EXPECT_EQ(at(a, "two").code(), Code::kUnavailable);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(at(b, "x").ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 30ms);
}

TEST_F(FaultPointsTest, TheHostsOwnAllocationsFailOnOrder) {
  make("[[fault.points]]\npoint = \"a.alloc\"\ncode = \"RESOURCE_EXHAUSTED\"\nskip = 1\ntimes = 2\n");
  void* const first = a->alloc(a, 8, 8);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(a->alloc(a, 8, 8), nullptr);
  auto req = sized<belay_memory_req>();
  req.bytes = 1;
  void* block = nullptr;
  const Status status = take(service<belay_memory_vt>(BELAY_HOST_MEMORY).alloc(a, &req, &block));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  a->free(a, first);
  EXPECT_EQ(table_of(a).memory.blocks, 0u);
}

TEST_F(FaultPointsTest, ExactlyTheOrderedNumberFailsOnManyThreads) {
  make("[[fault.points]]\npoint = \"a.x\"\nskip = 100\ntimes = 50\n");
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) failed += !at(a, "x").ok();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 50);
}

TEST_F(FaultPointsTest, AWrongOrderIsAMistakeOfTheConfiguration) {
  Config config;
  ASSERT_TRUE(
      config.add_text("t", "[[fault.points]]\npoint = \"x\"\ncode = \"DEVICE_LOTS\"\n[[fault.points]]\n")
          .ok());
  const Status status = config.check(core_schema());
  EXPECT_THAT(status.message(), AllOf(HasSubstr("did you mean 'DEVICE_LOST'?"),
                                      HasSubstr("key 'point' of [[points]] is missing")));
}

}  // namespace
}  // namespace belay::core
