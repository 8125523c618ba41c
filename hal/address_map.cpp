#include "hal/address_map.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace belay::hal {
namespace {

// A thread's descriptor lies at the end of its stack mapping, so low bits are equal for many threads.
uint32_t stripe_of_this_thread(uint32_t stripes) {
  const auto self = uint64_t(pthread_self());
  return uint32_t((self >> 12) * 0x9e3779b97f4a7c15u >> 32) % stripes;
}

}  // namespace

AddressMap::Found AddressMap::find(const Copy& copy, uintptr_t address) noexcept {
  for (const Ranges* ranges : {&copy.owned, &copy.borrowed}) {
    for (auto at = ranges->upper_bound(address); at != ranges->begin();) {
      --at;
      if (address - at->first < at->second.bytes) return {at->second.buffer, address - at->first};
      // Memory that is owned does not overlap: only the last range before the address can hold it.
      if (ranges == &copy.owned || address - at->first >= copy.longest_borrowed) break;
    }
  }
  return {};
}

AddressMap::Found AddressMap::find(const void* address) const noexcept {
  // All of this is sequentially consistent: a reader that a writer did not see in its count reads the new
  // `front_`.
  std::atomic<uint32_t>& readers = stripes_[stripe_of_this_thread(kStripes)].readers[turn_.load()];
  readers.fetch_add(1);
  const Found found = find(copies_[front_.load()], reinterpret_cast<uintptr_t>(address));
  readers.fetch_sub(1);
  return found;
}

void AddressMap::wait_for_readers(uint32_t turn) const noexcept {
  for (const Stripe& stripe : stripes_)
    while (stripe.readers[turn].load() != 0) sched_yield();
}

template <class Change>
void AddressMap::change(Change&& change) noexcept {
  const uint32_t front = front_.load(), turn = turn_.load();
  change(copies_[1 - front]);
  front_.store(1 - front);
  // Readers of the old front are counted under either turn: those of the other one are waited for first, so
  // that the turn can change and no newcomer keeps the count of this one from ending.
  wait_for_readers(1 - turn);
  turn_.store(1 - turn);
  wait_for_readers(turn);
  change(copies_[front]);
}

void AddressMap::add(Buffer* buffer) {
  if (!buffer->host || !buffer->bytes) return;
  // What can fail is done before anything changes: nodes move into the copies without allocating.
  std::array<Ranges, 2> nodes;
  for (Ranges& node : nodes)
    node.emplace(reinterpret_cast<uintptr_t>(buffer->host), Range{buffer->bytes, buffer});
  std::lock_guard lock(mutex_);
  size_t next = 0;
  change([&](Copy& copy) {
    (buffer->borrowed ? copy.borrowed : copy.owned).merge(nodes[next++]);
    if (buffer->borrowed) copy.longest_borrowed = std::max(copy.longest_borrowed, buffer->bytes);
  });
}

void AddressMap::remove(Buffer* buffer) noexcept {
  if (!buffer->host || !buffer->bytes) return;
  std::lock_guard lock(mutex_);
  change([&](Copy& copy) {
    Ranges& ranges = buffer->borrowed ? copy.borrowed : copy.owned;
    auto [at, end] = ranges.equal_range(reinterpret_cast<uintptr_t>(buffer->host));
    while (at != end && at->second.buffer != buffer) ++at;
    if (at != end) ranges.erase(at);
  });
}

}  // namespace belay::hal
