// hal/timelines.h: from the id of a timeline to its stream.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace belay::hal {

class Stream;

// Gives ids to timelines and finds the stream of one without a lock. An id is never given twice by one
// Timelines; ids of another one (of a second runtime in the process) are told apart by their salt.
// Thread-safe.
//
// An id from its low end: slot 20 bits, device 8, generation 24, salt 12; never 0.
class Timelines {
  struct Entry;

 public:
  static constexpr uint32_t kNoDevice = 255;  // of timelines that the host advances itself
  enum class State { kLive, kEnded, kUnknown };

  explicit Timelines(uint64_t salt) : salt_(salt & 0xfff) {}
  Timelines(const Timelines&) = delete;
  Timelines& operator=(const Timelines&) = delete;
  ~Timelines();

  // 0: all slots are taken. The stream becomes visible with publish().
  uint64_t add(uint32_t device);
  void publish(uint64_t id, Stream* stream);
  // Ends an id; waits until no Pin holds it.
  void remove(uint64_t id);
  State state(uint64_t id) const;

  static uint32_t device_of(uint64_t id) { return uint32_t(id >> 20) & 0xff; }
  bool ours(uint64_t id) const { return id >> 52 == salt_; }

  // Keeps a stream from ending while it is used by a timeline's id; empty when the id is not that of a live
  // stream.
  class Pin {
   public:
    Pin(Timelines& timelines, uint64_t id);
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin();
    explicit operator bool() const { return entry_ != nullptr; }
    Stream* operator->() const;
    Stream& operator*() const { return *operator->(); }

   private:
    Entry* entry_ = nullptr;
  };

 private:
  friend class Pin;
  struct Entry {
    std::atomic<uint64_t> id{0};
    std::atomic<Stream*> stream{nullptr};
    std::atomic<uint32_t> pins{0};
    std::atomic<uint32_t> generation{0};  // of the last id given
  };
  static constexpr uint32_t kChunk = 1024, kChunks = 1024, kLastGeneration = 0xffffff;

  Entry* entry(uint64_t id) const {
    const uint32_t slot = uint32_t(id) & 0xfffff;
    Entry* chunk = chunks_[slot / kChunk].load(std::memory_order_acquire);
    return chunk ? &chunk[slot % kChunk] : nullptr;
  }

  const uint64_t salt_;
  std::array<std::atomic<Entry*>, kChunks> chunks_{};
  std::mutex mutex_;  // of the two below
  uint32_t used_ = 0;
  std::deque<uint32_t> free_;
};

inline Timelines::Pin::Pin(Timelines& timelines, uint64_t id) {
  Entry* entry = timelines.entry(id);
  if (!entry) return;
  entry->pins.fetch_add(1);  // sequentially consistent, as is remove(): one of the two sees the other
  if (entry->id.load() == id && entry->stream.load(std::memory_order_acquire)) [[likely]]
    entry_ = entry;
  else
    entry->pins.fetch_sub(1, std::memory_order_release);
}

inline Timelines::Pin::~Pin() {
  if (entry_) entry_->pins.fetch_sub(1, std::memory_order_release);
}

inline Stream* Timelines::Pin::operator->() const { return entry_->stream.load(std::memory_order_relaxed); }

}  // namespace belay::hal
