// hal/slots.h: where the objects live whose handles leave the HAL.
#pragma once

#include <belay/abi/base.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

namespace belay::hal {

class Hal;

// What every handle begins with: the object that the driver sees, then what the HAL keeps of all of them.
struct Object : belay_obj {
  Hal* hal = nullptr;
  uint32_t slot = 0;
  uint32_t held = 0;  // 1: made by the application, so it holds the runtime

 protected:
  Object() : belay_obj{} {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() = default;
};

enum class Keep : uint8_t {
  kNot,      // a forked child finds zeros: there every handle is dead without a test for it on the hot path
  kInChild,  // it finds what its parent had, for handles that lead to the name of the process that made them
};

// Anonymous memory, zeroed; nullptr when there is none.
void* map_pages(size_t bytes, Keep keep) noexcept;
void unmap(void* address, size_t bytes) noexcept;

// A slab of objects of type T, derived from Object. Its memory is given back with the slab only, so that a
// handle used after its object's end is found dead by its magic; a slot rests until kRest others were freed
// after it, which keeps a stale handle from meeting a new object for a while. Thread-safe.
template <class T>
class Slots {
 public:
  explicit Slots(Keep keep = Keep::kNot) : keep_(keep) {}
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  // The objects are gone already: what is left is not destroyed.
  ~Slots() {
    for (size_t i = 0; i < chunks_.size(); ++i)
      if (chunks_[i]) unmap(chunks_[i], sizeof(Slot) * chunk_slots(i));
  }

  // An object that no handle check accepts before publish(); nullptr when there is no memory. What the
  // constructor throws passes through.
  template <class... Args>
  T* make(Hal* hal, Args&&... args) {
    uint32_t index;
    {
      std::lock_guard lock(mutex_);
      if (free_.size() > kRest) {
        index = free_.front();
        free_.pop_front();
      } else {
        if (!grow(used_)) return nullptr;
        index = used_++;
      }
    }
    Slot& place = at(index);
    const uint64_t generation = reinterpret_cast<belay_obj*>(&place)->generation + 1;
    T* object;
    try {
      object = new (&place) T(std::forward<Args>(args)...);
    } catch (...) {
      bury(index, generation);
      throw;
    }
    object->generation = generation;
    object->kind = T::kKind;
    object->hal = hal;
    object->slot = index;
    return object;
  }
  static void publish(T* object) { object->magic = BELAY_OBJ_MAGIC; }
  // Marks the handle dead; the object itself still stands.
  static void retire(T* object) { object->magic = BELAY_OBJ_DEAD; }
  void drop(T* object) {
    const uint32_t index = object->slot;
    const uint64_t generation = object->generation;
    object->~T();
    bury(index, generation);
  }

  // Calls fn(T&) for each published object, in no order. The caller sees to it that none is made or dropped
  // meanwhile.
  template <class Fn>
  void each(Fn&& fn) {
    for (uint32_t i = 0; i < used_; ++i) {
      auto* object = reinterpret_cast<belay_obj*>(&at(i));
      if (object->magic == BELAY_OBJ_MAGIC) fn(*static_cast<T*>(object));
    }
  }

 private:
  static constexpr size_t kRest = 64, kFirst = 64;
  struct alignas(64) Slot {
    std::byte bytes[sizeof(T)];
  };
  static_assert(alignof(T) <= 64);
  static size_t chunk_slots(size_t chunk) { return kFirst << chunk; }
  static size_t chunk_of(uint32_t index) { return size_t(std::bit_width(index / kFirst + 1)) - 1; }

  Slot& at(uint32_t index) const {
    const size_t chunk = chunk_of(index);
    return chunks_[chunk][index - kFirst * ((size_t(1) << chunk) - 1)];
  }
  bool grow(uint32_t index) {
    const size_t chunk = chunk_of(index);
    if (chunk >= chunks_.size()) return false;
    if (!chunks_[chunk])
      chunks_[chunk] = static_cast<Slot*>(map_pages(sizeof(Slot) * chunk_slots(chunk), keep_));
    return chunks_[chunk] != nullptr;
  }
  void bury(uint32_t index, uint64_t generation) {
    new (&at(index)) belay_obj{BELAY_OBJ_DEAD, T::kKind, generation, nullptr, nullptr, {}};
    std::lock_guard lock(mutex_);
    free_.push_back(index);
  }

  const Keep keep_;
  std::mutex mutex_;
  std::array<Slot*, 20> chunks_{};
  uint32_t used_ = 0;
  std::deque<uint32_t> free_;
};

// The object of a handle, or nullptr when it is none of this kind. Reads the handle's memory.
template <class T>
T* alive(belay_obj* handle) {
  if (handle && handle->magic == BELAY_OBJ_MAGIC && handle->kind == T::kKind) [[likely]]
    return static_cast<T*>(handle);
  return nullptr;
}

}  // namespace belay::hal
