// schedule/value.hpp: what a graph's values hold while it runs, and the memory behind them.
#pragma once

#include "ir/types.hpp"
#include "plan/hal.hpp"

#include <belay/abi/tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace belay::schedule {

class StoragePool;

// A block of memory of a context. Not thread-safe: it never leaves its context.
struct Storage {
  StoragePool* pool = nullptr;
  uint32_t refs = 0;
  plan::Buffer buffer;  // of the device, or
  std::unique_ptr<void, void (*)(void*)> plain{
      nullptr, nullptr};  // host memory beside a device that the host cannot see
  void* host = nullptr;
  uint64_t capacity = 0;
  uint64_t last_use = 0;  // run in which it was last taken
};

class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(Storage* storage) : at_(storage) { ++at_->refs; }
  StorageRef(const StorageRef& other) : at_(other.at_) {
    if (at_) ++at_->refs;
  }
  StorageRef(StorageRef&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
  StorageRef& operator=(StorageRef other) noexcept {
    std::swap(at_, other.at_);
    return *this;
  }
  ~StorageRef();
  Storage* operator->() const { return at_; }
  explicit operator bool() const { return at_ != nullptr; }

 private:
  Storage* at_ = nullptr;
};

// Recycles the blocks of one context, so that a repeated run allocates nothing.
class StoragePool {
 public:
  StoragePool(const plan::Hal& hal, belay_obj* device, bool host_visible)
      : hal_(hal), device_(device), host_visible_(host_visible) {}
  StoragePool(const StoragePool&) = delete;

  Result<StorageRef> take_device(uint64_t bytes) { return take(device_free_, bytes, false); }
  Result<StorageRef> take_host(uint64_t bytes) {
    return host_visible_ ? take(device_free_, bytes, false) : take(host_free_, bytes, true);
  }
  // A run has ended: frees what the last runs did not use.
  void end_run();
  uint64_t bytes() const { return bytes_; }

 private:
  friend class StorageRef;
  Result<StorageRef> take(std::vector<std::unique_ptr<Storage>>& free, uint64_t bytes, bool plain);
  void give_back(Storage* storage);

  const plan::Hal hal_;
  belay_obj* const device_;
  const bool host_visible_;
  std::vector<std::unique_ptr<Storage>> device_free_, host_free_;
  uint64_t run_ = 0, bytes_ = 0;
};

struct Value {
  uint32_t kind = 0;  // BELAY_TYPE_..., 0: nothing
  uint32_t dtype = BELAY_DT_UNDEFINED;
  ir::Dims dims;
  void* host = nullptr;         // first byte, where the host sees it
  belay_obj* buffer = nullptr;  // else device memory
  uint64_t offset = 0, bytes = 0;
  StorageRef storage;                         // keeps the memory; empty: borrowed
  std::shared_ptr<const void> keeper;         // the same for other memory
  std::shared_ptr<std::vector<Value>> items;  // of a sequence; of an optional: none or one

  bool is_tensor() const { return kind == BELAY_TYPE_TENSOR; }
  ir::Type type() const;
  uint64_t count() const { return element_count(dims).value_or(0); }
};

// The constant's bytes as a value; strings become belay_str.
Value value_of(const ir::ConstantPtr& constant);
// A dense tensor of the host with undefined contents; of strings: its elements are empty.
Result<Value> make_tensor(StoragePool& pool, uint32_t dtype, ir::Dims dims);
Value make_sequence(std::vector<Value> items);
// Gives string tensors (of a sequence, too) a copy of their text: it may lie in an input of the user or in a
// constant of a plan, and the value is to outlive both.
void own_text(Value& value);

}  // namespace belay::schedule
