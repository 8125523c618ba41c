#include "hal/timelines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace belay::hal {
namespace {

Stream* at(uintptr_t address) { return reinterpret_cast<Stream*>(address); }  // never looked at

TEST(TimelinesTest, AnIdLeadsToItsStreamUntilItEnds) {
  Timelines timelines(5);
  const uint64_t id = timelines.add(3);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(Timelines::device_of(id), 3u);
  EXPECT_TRUE(timelines.ours(id));
  EXPECT_FALSE(Timelines::Pin(timelines, id));  // not published
  timelines.publish(id, at(0x100));
  {
    Timelines::Pin pin(timelines, id);
    ASSERT_TRUE(pin);
    EXPECT_EQ(pin.operator->(), at(0x100));
  }
  timelines.remove(id);
  EXPECT_FALSE(Timelines::Pin(timelines, id));
  EXPECT_EQ(timelines.state(id), Timelines::State::kEnded);
}

TEST(TimelinesTest, NoIdIsGivenTwiceAlthoughSlotsAre) {
  Timelines timelines(0);
  std::set<uint64_t> ids;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t id = timelines.add(0);
    EXPECT_TRUE(ids.insert(id).second);
    timelines.publish(id, at(8));
    if (i % 3) timelines.remove(id);
  }
  EXPECT_FALSE(ids.contains(0));
}

TEST(TimelinesTest, IdsOfAnotherRuntimeAreUnknown) {
  Timelines one(1), two(2);
  const uint64_t id = one.add(0);
  one.publish(id, at(8));
  EXPECT_FALSE(two.ours(id));
  EXPECT_FALSE(Timelines::Pin(two, id));
  EXPECT_EQ(two.state(id), Timelines::State::kUnknown);
  EXPECT_EQ(one.state(id + 1), Timelines::State::kUnknown);  // the next slot, never given
  EXPECT_EQ(one.state(id), Timelines::State::kLive);
}

TEST(TimelinesTest, RemoveWaitsForThoseWhoUseTheStream) {
  Timelines timelines(7);
  const uint64_t id = timelines.add(0);
  timelines.publish(id, at(8));
  std::atomic<bool> removed{false};
  std::thread remover;
  {
    Timelines::Pin pin(timelines, id);
    ASSERT_TRUE(pin);
    remover = std::thread([&] {
      timelines.remove(id);
      removed = true;
    });
    while (timelines.state(id) == Timelines::State::kLive) std::this_thread::yield();
    EXPECT_FALSE(removed);
    EXPECT_FALSE(Timelines::Pin(timelines, id));  // nobody new gets in
  }
  remover.join();
  EXPECT_TRUE(removed);
}

TEST(TimelinesTest, LookupsRunBesideCreationAndEnd) {
  Timelines timelines(9);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> last{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t)
    readers.emplace_back([&] {
      while (!stop) {
        Timelines::Pin pin(timelines, last.load());
        if (pin) {
          EXPECT_EQ(pin.operator->(), at(16));
        }
      }
    });
  for (int i = 0; i < 2000; ++i) {
    const uint64_t id = timelines.add(0);
    timelines.publish(id, at(16));
    last = id;
    timelines.remove(id);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace belay::hal
