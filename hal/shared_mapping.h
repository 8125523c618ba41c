// hal/shared_mapping.h: files mapped once in a process, however many models read them.
#pragma once

#include <belay/status.hpp>
#include "hal/mapped_fault.h"

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>

namespace belay::hal {

// All bytes of a file, read-only, watched for the file's loss of them. Two of one file would be two sets of pages to the
// kernel's accounting and to the TLB; so who maps the same file, not changed since, gets the same one. Thread-safe.
class SharedMapping {
 public:
  // `now` is fstat of `fd`, which may be closed afterwards; the file is not empty. RESOURCE_EXHAUSTED names `path`.
  static Result<std::shared_ptr<const SharedMapping>> of(int fd, const struct stat& now, const std::string& path);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  void* address() const { return address_; }
  bool damaged() const { return watch_.damaged(); }

 private:
  SharedMapping(void* address, uint64_t bytes) : address_(address), bytes_(bytes), watch_(address, bytes) {}
  void* const address_;
  const uint64_t bytes_;
  FaultWatch watch_;
};

}  // namespace belay::hal
