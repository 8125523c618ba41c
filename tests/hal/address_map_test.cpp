#include "hal/address_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace belay::hal {
namespace {

struct Made {
  std::unique_ptr<Buffer> buffer = std::make_unique<Buffer>();
  Made(uintptr_t first, uint64_t bytes, bool borrowed = false) {
    buffer->host = reinterpret_cast<void*>(first);
    buffer->bytes = bytes;
    buffer->borrowed = borrowed;
  }
};
const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(AddressMapTest, FindsEveryByteOfARangeAndNoneBesideIt) {
  AddressMap map;
  Made one(0x1000, 16), two(0x1010, 1), empty(0x1011, 0);
  for (Made* made : {&one, &two, &empty}) map.add(made->buffer.get());
  EXPECT_EQ(map.find(at(0xfff)).buffer, nullptr);
  EXPECT_EQ(map.find(at(0x1000)).buffer, one.buffer.get());
  EXPECT_EQ(map.find(at(0x100f)).buffer, one.buffer.get());
  EXPECT_EQ(map.find(at(0x100f)).offset, 15u);
  EXPECT_EQ(map.find(at(0x1010)).buffer, two.buffer.get());
  EXPECT_EQ(map.find(at(0x1011)).buffer, nullptr);
  map.remove(one.buffer.get());
  map.remove(empty.buffer.get());
  EXPECT_EQ(map.find(at(0x1000)).buffer, nullptr);
  EXPECT_EQ(map.find(at(0x1010)).buffer, two.buffer.get());
}

TEST(AddressMapTest, TheHighestAddressIsNoSpecialCase) {
  AddressMap map;
  Made top(UINTPTR_MAX - 15, 16);
  map.add(top.buffer.get());
  EXPECT_EQ(map.find(at(UINTPTR_MAX)).offset, 15u);
  EXPECT_EQ(map.find(nullptr).buffer, nullptr);
}

// Against a plain search: ranges that own their memory lie apart, lent ones overlap as they like.
TEST(AddressMapTest, AgreesWithASearchThroughAllRanges) {
  std::mt19937 random(7);
  AddressMap map;
  std::vector<Made> live;
  for (int step = 0; step < 3000; ++step) {
    if (!live.empty() && random() % 3 == 0) {
      const size_t which = random() % live.size();
      map.remove(live[which].buffer.get());
      live.erase(live.begin() + ptrdiff_t(which));
    } else if (live.size() < 100) {
      const bool borrowed = random() % 2;
      Made made = borrowed ? Made(0x1000 + random() % 0x1000, random() % 600, true)
                           : Made(0x1000 + 0x40 * (random() % 64), 1 + random() % 0x40);
      bool meets = false;
      for (const Made& other : live)
        meets |= !borrowed && !other.buffer->borrowed && other.buffer->host == made.buffer->host;
      if (meets) continue;
      map.add(made.buffer.get());
      live.push_back(std::move(made));
    }
    const uintptr_t address = 0xf00 + random() % 0x1300;
    bool owned = false, lent = false;
    uintptr_t last = 0;
    const Buffer* owner = nullptr;
    for (const Made& made : live) {
      const auto first = reinterpret_cast<uintptr_t>(made.buffer->host);
      if (address < first || address - first >= made.buffer->bytes) continue;
      if (!made.buffer->borrowed)
        owned = true, owner = made.buffer.get();
      else
        lent = true, last = std::max(last, first);
    }
    const AddressMap::Found found = map.find(at(address));
    if (owned) {
      EXPECT_EQ(found.buffer, owner);
    } else if (lent) {
      ASSERT_NE(found.buffer, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(found.buffer->host), last);
      EXPECT_EQ(found.offset, address - last);
    } else {
      EXPECT_EQ(found.buffer, nullptr);
    }
  }
}

TEST(AddressMapTest, ThreadsFindWhatStaysWhileOthersComeAndGo) {
  AddressMap map;
  Made kept(0x100000, 0x1000), lent(0x200000, 0x1000, true);
  map.add(kept.buffer.get());
  map.add(lent.buffer.get());
  std::atomic<bool> over{false};
  std::atomic<uint64_t> lookups{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; !over.load(std::memory_order_relaxed); ++i) {
        const uint64_t offset = (i * 37 + uint64_t(t)) % 0x1000;
        EXPECT_EQ(map.find(at(0x100000 + offset)).buffer, kept.buffer.get());
        EXPECT_EQ(map.find(at(0x200000 + offset)).offset, offset);
        EXPECT_EQ(map.find(at(0x50)).buffer, nullptr);
        lookups.fetch_add(1, std::memory_order_relaxed);
      }
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        Made comes(0x1000 + 0x10000 * uint64_t(t) + i % 7 * 0x100, 0x80, i % 2);
        map.add(comes.buffer.get());
        EXPECT_EQ(map.find(comes.buffer->host).buffer, comes.buffer.get());
        map.remove(comes.buffer.get());
        EXPECT_EQ(map.find(comes.buffer->host).buffer, nullptr);
      }
      while (lookups.load() < 1000) std::this_thread::yield();
    });
  threads[3].join();
  threads[4].join();
  over = true;
  for (int t = 0; t < 3; ++t) threads[size_t(t)].join();
}

}  // namespace
}  // namespace belay::hal
