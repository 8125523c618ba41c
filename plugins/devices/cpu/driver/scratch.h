// Scratch memory of a thread while it runs kernels: blocks lent by the device, cut from the front.
#pragma once

#include "thread_state.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace belay::cpu {

class ScratchPool;

// One thread's; never shared while lent.
class Scratch {
 public:
  explicit Scratch(ScratchPool& owner) : owner_(owner) {}
  ScratchPool& owner() const { return owner_; }

  struct Position {
    size_t block = 0;
    uint64_t used = 0;
  };

  // 64-byte aligned memory, good until the position before it is restored; null when the system has none.
  void* take(uint64_t bytes) {
    if (bytes > uint64_t{1} << 40) return nullptr;
    bytes = (bytes + 63) & ~uint64_t{63};
    for (; at_.block < blocks_.size(); ++at_.block, at_.used = 0) {
      Block& block = blocks_[at_.block];
      if (bytes > block.bytes - at_.used) continue;
      void* const memory = static_cast<char*>(block.memory.get()) + at_.used;
      at_.used += bytes;
      return memory;
    }
    const uint64_t size = bytes > kBlock ? bytes : kBlock;
    std::unique_ptr<void, Free> memory(std::aligned_alloc(64, size));
    if (!memory) return nullptr;
    void* const start = memory.get();
    try {
      blocks_.push_back({std::move(memory), size});
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    at_ = {blocks_.size() - 1, bytes};
    return start;
  }
  Position position() const { return at_; }
  void restore(Position position) { at_ = position; }

 private:
  static constexpr uint64_t kBlock = 256 * 1024;
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  struct Block {
    std::unique_ptr<void, Free> memory;
    uint64_t bytes;
  };
  ScratchPool& owner_;
  std::vector<Block> blocks_;
  Position at_;
};

// Gives back at its end what the thread has taken since.
class ScratchMark {
 public:
  explicit ScratchMark(ThreadState& thread)
      : thread_(thread), position_(thread.scratch ? thread.scratch->position() : Scratch::Position{}) {}
  ~ScratchMark() { restore(); }
  void restore() const {
    if (thread_.scratch) thread_.scratch->restore(position_);
  }
  ScratchMark(const ScratchMark&) = delete;
  ScratchMark& operator=(const ScratchMark&) = delete;

 private:
  ThreadState& thread_;
  const Scratch::Position position_;
};

// Lends one to each thread that runs kernels; as many exist as threads used one at the same time.
class ScratchPool {
 public:
  Scratch* lend() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) {
      all_.push_back(std::make_unique<Scratch>(*this));
      free_.reserve(all_.size());
      return all_.back().get();
    }
    Scratch* const scratch = free_.back();
    free_.pop_back();
    return scratch;
  }
  void give_back(Scratch* scratch) {
    scratch->restore({});
    std::lock_guard lock(mutex_);
    free_.push_back(scratch);  // has room
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> all_;
  std::vector<Scratch*> free_;
};

}  // namespace belay::cpu
