// Knows whether this process is the one that made it. A child made by fork without exec has none of the parent's
// threads and perhaps locks that nobody will open: in it every slot refuses.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace belay::cpu {

class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // One load: the kernel clears the page of the word in a child (MADV_WIPEONFORK).
  bool in_child() const {
    if (wiped_) [[likely]]
      return word_->load(std::memory_order_relaxed) == 0;
    return by_pid();
  }
  // 0: this is a child, or asking takes more (in_child()). For hot paths, which keep the pointer.
  const std::atomic<uint64_t>* sure_word() const { return word_; }
  pid_t creator() const { return creator_; }
  // "made by process 123 and used in its child 124 ..."
  std::string sentence(const std::string& device) const;

 private:
  bool by_pid() const;

  std::atomic<uint64_t>* word_ = nullptr;
  bool wiped_ = false;
  const pid_t creator_;
};

}  // namespace belay::cpu
