#include "fork_guard.h"

#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace belay::cpu {
namespace {
constexpr size_t kPageBytes = 4096;
}

ForkGuard::ForkGuard() : creator_(getpid()) {
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  word_ = new (page) std::atomic<uint64_t>(1);
  wiped_ = madvise(page, kPageBytes, MADV_WIPEONFORK) == 0;
  if (!wiped_) word_->store(0, std::memory_order_relaxed);
}

ForkGuard::~ForkGuard() { munmap(word_, kPageBytes); }

bool ForkGuard::by_pid() const { return getpid() != creator_; }

std::string ForkGuard::sentence(const std::string& device) const {
  return "Device " + device + " was opened by process " + std::to_string(creator_) + " and is used in its child " +
         std::to_string(getpid()) + ", which has none of its threads: make a runtime of its own after fork.";
}

}  // namespace belay::cpu
