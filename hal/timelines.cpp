#include "hal/timelines.h"

#include <sched.h>

namespace belay::hal {

Timelines::~Timelines() {
  for (auto& chunk : chunks_) delete[] chunk.load();
}

uint64_t Timelines::add(uint32_t device) {
  uint32_t slot;
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      slot = free_.front();
      free_.pop_front();
    } else {
      if (used_ == kChunk * kChunks) return 0;
      slot = used_;
      auto& chunk = chunks_[slot / kChunk];
      if (!chunk.load(std::memory_order_relaxed)) chunk.store(new Entry[kChunk], std::memory_order_release);
      ++used_;
    }
  }
  Entry& place = chunks_[slot / kChunk].load(std::memory_order_relaxed)[slot % kChunk];
  const uint64_t generation = place.generation.load(std::memory_order_relaxed) + 1;
  place.generation.store(uint32_t(generation), std::memory_order_relaxed);
  const uint64_t id = salt_ << 52 | generation << 28 | uint64_t(device & 0xff) << 20 | slot;
  place.stream.store(nullptr, std::memory_order_relaxed);
  place.id.store(id);
  return id;
}

void Timelines::publish(uint64_t id, Stream* stream) {
  entry(id)->stream.store(stream, std::memory_order_release);
}

void Timelines::remove(uint64_t id) {
  Entry* place = entry(id);
  place->id.store(0);
  while (place->pins.load() != 0) sched_yield();
  place->stream.store(nullptr, std::memory_order_relaxed);
  if (place->generation.load(std::memory_order_relaxed) == kLastGeneration) return;  // used up
  std::lock_guard lock(mutex_);
  free_.push_back(uint32_t(id) & 0xfffff);
}

Timelines::State Timelines::state(uint64_t id) const {
  const Entry* place = ours(id) ? entry(id) : nullptr;
  if (!place) return State::kUnknown;
  if (place->id.load(std::memory_order_relaxed) == id) return State::kLive;
  const uint64_t generation = id >> 28 & 0xffffff;
  return generation != 0 && generation <= place->generation.load(std::memory_order_relaxed) ? State::kEnded
                                                                                            : State::kUnknown;
}

}  // namespace belay::hal
