// Where a stream's operations go when its ring is full and waiting for room could wait for ever (a host callback would
// have to run first): a chain of segments between one producer and one consumer.
#pragma once

#include "packet.h"

#include <atomic>
#include <cstdint>

namespace belay::cpu {

class Spill {
 public:
  Spill() = default;
  ~Spill() {
    while (front_) {
      Segment* const next = front_->next.load(std::memory_order_relaxed);
      delete front_;
      front_ = next;
    }
  }
  Spill(const Spill&) = delete;
  Spill& operator=(const Spill&) = delete;

  // Producer: room for an operation of so many slots. Throws std::bad_alloc. Then publish it.
  Packet* reserve(uint64_t slots);
  void publish(uint64_t slots) {
    back_->used.store(back_->used.load(std::memory_order_relaxed) + slots, std::memory_order_relaxed);
    pushed_.store(++pushed_count_, std::memory_order_release);
  }
  bool drained() const { return popped_.load(std::memory_order_acquire) == pushed_count_; }

  // Consumer: true when there is an operation; everything published before it is visible then.
  bool pending() const { return pushed_.load(std::memory_order_acquire) != popped_count_; }
  const Packet* front();
  void pop(uint64_t slots) {
    read_ += slots;
    popped_.store(++popped_count_, std::memory_order_release);
  }

 private:
  static constexpr uint64_t kSlots = 512;
  struct Segment {
    Packet packets[kSlots];
    std::atomic<uint64_t> used{0};        // slots that are published; final once there is a next one
    std::atomic<Segment*> next{nullptr};  // set before anything is published in it
  };

  Segment* front_ = nullptr;  // consumer's; set by the producer while nothing is published yet
  Segment* back_ = nullptr;   // producer's
  uint64_t read_ = 0;         // slots of front_ that are done
  uint64_t pushed_count_ = 0, popped_count_ = 0;
  std::atomic<uint64_t> pushed_{0}, popped_{0};

 public:
  static constexpr uint64_t kMostSlots = kSlots;  // of one operation
};

inline Packet* Spill::reserve(uint64_t slots) {
  if (!back_) {
    back_ = new Segment;
    front_ = back_;
  } else if (back_->used.load(std::memory_order_relaxed) + slots > kSlots) {
    Segment* const next = new Segment;
    back_->next.store(next, std::memory_order_release);
    back_ = next;
  }
  return &back_->packets[back_->used.load(std::memory_order_relaxed)];
}

inline const Packet* Spill::front() {
  // pending() was true, so what is next is published: in this segment, or in a later one that is linked already.
  while (Segment* const next = front_->next.load(std::memory_order_acquire)) {
    if (read_ != front_->used.load(std::memory_order_relaxed)) break;
    delete front_;
    front_ = next;
    read_ = 0;
  }
  return &front_->packets[read_];
}

}  // namespace belay::cpu
