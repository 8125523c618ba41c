#include "hal/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace belay::hal {
namespace {

struct Thing : Object {
  static constexpr uint32_t kKind = BELAY_OBJ_BUFFER;
  explicit Thing(std::string text) : text(std::move(text)) {
    if (this->text == "throw") throw std::runtime_error("asked to");
  }
  std::string text;
};
struct Other : Object {
  static constexpr uint32_t kKind = BELAY_OBJ_STREAM;
};

TEST(SlotsTest, AnObjectIsAliveFromPublishToRetireAndNoLonger) {
  Slots<Thing> slots;
  Thing* thing = slots.make(nullptr, "a text that is too long for the small string");
  EXPECT_EQ(alive<Thing>(thing), nullptr);
  Slots<Thing>::publish(thing);
  EXPECT_EQ(alive<Thing>(thing), thing);
  EXPECT_EQ(alive<Other>(thing), nullptr);  // another kind
  slots.drop(thing);
  EXPECT_EQ(alive<Thing>(thing), nullptr);  // its memory is still there
  EXPECT_EQ(static_cast<belay_obj*>(thing)->magic, BELAY_OBJ_DEAD);
}

TEST(SlotsTest, AFreedSlotRestsBeforeItIsUsedAgainAndThenHasANewGeneration) {
  Slots<Thing> slots;
  Thing* first = slots.make(nullptr, "");
  const uint64_t generation = first->generation;
  slots.drop(first);
  for (int i = 0; i < 64; ++i) {
    Thing* next = slots.make(nullptr, "");
    EXPECT_NE(next, first);
    slots.drop(next);
  }
  Thing* again = slots.make(nullptr, "");
  EXPECT_EQ(again, first);
  EXPECT_GT(again->generation, generation);
  slots.drop(again);
}

TEST(SlotsTest, ThousandsOfObjectsHaveAddressesThatStay) {
  Slots<Thing> slots;
  std::set<Thing*> all;
  for (int i = 0; i < 5000; ++i) {
    Thing* thing = slots.make(nullptr, std::to_string(i));
    Slots<Thing>::publish(thing);
    EXPECT_EQ(uintptr_t(thing) % 64, 0u);
    all.insert(thing);
  }
  EXPECT_EQ(all.size(), 5000u);
  size_t seen = 0;
  slots.each([&](Thing&) { ++seen; });
  EXPECT_EQ(seen, 5000u);
  for (Thing* thing : all) slots.drop(thing);
  seen = 0;
  slots.each([&](Thing&) { ++seen; });
  EXPECT_EQ(seen, 0u);
}

TEST(SlotsTest, AConstructorThatThrowsLeavesNothing) {
  Slots<Thing> slots;
  EXPECT_THROW(slots.make(nullptr, "throw"), std::runtime_error);
  Thing* thing = slots.make(nullptr, "fine");
  ASSERT_NE(thing, nullptr);
  slots.drop(thing);
}

TEST(SlotsTest, InAForkedChildEveryHandleIsDead) {
  Slots<Thing> slots;
  Slots<Thing> kept(Keep::kInChild);
  Thing* thing = slots.make(nullptr, "");
  Thing* other = kept.make(nullptr, "");
  Slots<Thing>::publish(thing);
  Slots<Thing>::publish(other);
  const pid_t child = fork();
  if (child == 0) _exit(alive<Thing>(thing) == nullptr && alive<Thing>(other) == other ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(alive<Thing>(thing), thing);  // the parent goes on
  slots.drop(thing);
  kept.drop(other);
}

TEST(SlotsTest, ThreadsMakeAndDropAtOnce) {
  Slots<Thing> slots;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        Thing* thing = slots.make(nullptr, "x");
        Slots<Thing>::publish(thing);
        EXPECT_EQ(thing->text, "x");
        slots.drop(thing);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace belay::hal
