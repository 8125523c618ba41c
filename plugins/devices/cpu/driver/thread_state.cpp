#include "thread_state.h"

#include <pthread.h>
#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

// Present where a library in this process brings an OpenMP runtime; this driver needs none.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int);
}

namespace belay::cpu {
namespace {

constinit thread_local ThreadState g_thread;

#if defined(__x86_64__) || defined(__i386__)
constexpr uint32_t kDefaultControl = 0x1f80;  // round to nearest, all exceptions masked, no FTZ, no DAZ
constexpr uint32_t kFlags = 0x3f;             // sticky exception flags
uint32_t read_control() { return _mm_getcsr(); }
void write_control(uint32_t control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
constexpr uint32_t kDefaultControl = 0;
constexpr uint32_t kFlags = 0;
uint32_t read_control() {
  uint64_t fpcr = 0;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return uint32_t(fpcr);
}
void write_control(uint32_t control) { asm volatile("msr fpcr, %0" ::"r"(uint64_t(control))); }
#else
constexpr uint32_t kDefaultControl = 0, kFlags = 0;
uint32_t read_control() { return 0; }
void write_control(uint32_t) {}
#endif

}  // namespace

ThreadState& this_thread() { return g_thread; }

bool has_stack(ThreadState& thread) {
  if (thread.stack_high == 0) [[unlikely]] {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
    void* low = nullptr;
    size_t bytes = 0;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    thread.stack_low = reinterpret_cast<uintptr_t>(low);
    thread.stack_high = thread.stack_low + bytes;
  }
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return here >= thread.stack_low + kMinStack && here < thread.stack_high;
}

void OperationScope::enter() {
  control_ = read_control();
  if ((control_ & ~kFlags) != kDefaultControl) write_control(kDefaultControl);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
  if (omp_set_num_threads && omp_get_max_threads) {
    omp_threads_ = omp_get_max_threads();
    if (omp_threads_ != 1) omp_set_num_threads(1);
  }
}

void OperationScope::leave() {
  if (omp_threads_ > 1) omp_set_num_threads(omp_threads_);
  pthread_setcancelstate(cancel_, nullptr);
  if (read_control() != control_) write_control(control_);  // the flags too: they are the user's
}

}  // namespace belay::cpu
