#include "sync.h"

#include <ctime>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace belay::cpu {

uint64_t clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000u + uint64_t(now.tv_nsec);
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_ns) {
  timespec relative{};
  if (timeout_ns != kForever) {
    relative.tv_sec = time_t(timeout_ns / 1'000'000'000u);
    relative.tv_nsec = long(timeout_ns % 1'000'000'000u);
  }
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, timeout_ns == kForever ? nullptr : &relative, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void AsymmetricFence::prepare() {
  const bool works = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
                     syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  expedited_.store(works, std::memory_order_seq_cst);
}

void AsymmetricFence::heavy() {
  if (!expedited_.load(std::memory_order_relaxed) ||
      syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
    __sync_synchronize();
}

}  // namespace belay::cpu
