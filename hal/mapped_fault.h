// hal/mapped_fault.h: what happens when a mapped file shrinks while it is read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace belay::hal {

// Watches a range of a mapped file. Reading behind the end of a file that shrank raises SIGBUS; where the
// address is in a watched range, the pages from there on are replaced by zeros, the range is marked and the
// thread goes on, so that whoever runs the model can say which file was damaged instead of the process dying.
// Other faults go to the handler that was there before.
//
// The handler and its list are one of the globals of this library (a signal handler has nothing else); the
// handler is installed at the first watch and stays. At most 1024 ranges are watched; further ones are not,
// which watched() tells.
class FaultWatch {
 public:
  FaultWatch() = default;
  FaultWatch(const void* address, size_t bytes);
  FaultWatch(FaultWatch&& other) noexcept : slot_(other.slot_) { other.slot_ = -1; }
  FaultWatch& operator=(FaultWatch&& other) noexcept;
  ~FaultWatch();  // before the range is unmapped

  bool watched() const { return slot_ >= 0; }
  bool damaged() const;

 private:
  int slot_ = -1;
};

}  // namespace belay::hal
