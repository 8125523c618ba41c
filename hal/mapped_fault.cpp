#include "hal/mapped_fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace belay::hal {
namespace {

constexpr int kRanges = 1024;
constexpr uintptr_t kTaken = 1;  // in `begin`: being filled in

struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};  // begin 0: free
  std::atomic<bool> damaged{false};
};

// Constant-initialised, never destroyed.
struct Slot {
  Range ranges[kRanges];
  std::atomic<int> installed{0};  // 0: no, 1: being done, 2: yes
  struct sigaction before {};
};
constinit Slot g_slot;

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Range& range : g_slot.ranges) {
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin <= kTaken || address < begin || address >= range.end.load(std::memory_order_acquire)) continue;
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t from = address & ~(page - 1);
    const uintptr_t to = (range.end.load(std::memory_order_relaxed) + page - 1) & ~(page - 1);
    if (mmap(reinterpret_cast<void*>(from), to - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED)
      break;
    range.damaged.store(true, std::memory_order_release);
    errno = saved;
    return;  // the access is tried again and reads zeros
  }
  errno = saved;
  const struct sigaction& before = g_slot.before;
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    // Not ours: end as without a handler. A fault comes again at the access itself, a sent signal has to be
    // sent again.
    signal(number, SIG_DFL);
    if (info->si_code <= 0) raise(number);
  }
}

void install() {
  int no = 0;
  if (!g_slot.installed.compare_exchange_strong(no, 1)) {
    while (g_slot.installed.load(std::memory_order_acquire) != 2) {
    }
    return;
  }
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, nullptr, &g_slot.before);
  sigaction(SIGBUS, &action, nullptr);
  g_slot.installed.store(2, std::memory_order_release);
}

}  // namespace

FaultWatch::FaultWatch(const void* address, size_t bytes) {
  if (bytes == 0) return;
  install();
  for (int i = 0; i < kRanges; ++i) {
    Range& range = g_slot.ranges[i];
    uintptr_t free = 0;
    if (range.begin.load(std::memory_order_relaxed) != 0 ||
        !range.begin.compare_exchange_strong(free, kTaken))
      continue;
    range.damaged.store(false, std::memory_order_relaxed);
    range.end.store(reinterpret_cast<uintptr_t>(address) + bytes, std::memory_order_relaxed);
    range.begin.store(reinterpret_cast<uintptr_t>(address), std::memory_order_release);
    slot_ = i;
    return;
  }
}

FaultWatch& FaultWatch::operator=(FaultWatch&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

FaultWatch::~FaultWatch() {
  if (slot_ < 0) return;
  Range& range = g_slot.ranges[slot_];
  range.begin.store(kTaken);
  range.end.store(0);
  range.begin.store(0, std::memory_order_release);
}

bool FaultWatch::damaged() const {
  return slot_ >= 0 && g_slot.ranges[slot_].damaged.load(std::memory_order_acquire);
}

}  // namespace belay::hal
