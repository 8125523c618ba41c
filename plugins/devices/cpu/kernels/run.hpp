// What a kernel sees while it runs: its operands, the device's threads, a way to fail.
#pragma once

#include "shape.hpp"

#include <belay/abi/kernel.h>
#include <belay/status.hpp>

#include <algorithm>
#include <new>
#include <type_traits>

namespace belay::cpu {

class Run {
 public:
  // The word of the workspace is there only where one was asked for at prepare.
  Run(const belay_exec* exec, const uint64_t* args, uint32_t inputs, uint32_t outputs, void* const* resized,
      bool has_workspace)
      : exec_(exec),
        args_(args),
        inputs_(inputs),
        outputs_(outputs),
        resized_(resized),
        has_workspace_(has_workspace) {}

  // Null: the input is absent, was said to be unused, or the node does not have it.
  template <class T>
  const T* in(size_t i) const {
    return i < inputs_ ? reinterpret_cast<const T*>(args_[i]) : nullptr;
  }
  // Null: the output is not wanted, or the node does not have it.
  template <class T>
  T* out(size_t i) const {
    if (i >= outputs_) return nullptr;
    return static_cast<T*>(resized_ ? resized_[i] : reinterpret_cast<void*>(args_[inputs_ + i]));
  }
  // Null: none was asked for.
  template <class T>
  T* workspace() const {
    return has_workspace_ ? reinterpret_cast<T*>(args_[inputs_ + outputs_]) : nullptr;
  }
  const uint64_t* args() const { return args_; }
  const belay_exec* exec() const { return exec_; }
  uint32_t threads() const { return exec_->threads; }
  bool cancelled() const { return exec_->cancelled && *exec_->cancelled; }

  // For kernels that choose their outputs' shapes: memory for output `i`, or null when there is none left.
  void* resize(size_t i, const Dims& dims) const {
    return exec_->output(exec_, i, dims.data(), uint32_t(dims.size()));
  }
  // Memory of this thread until the kernel ends, aligned to 64 bytes; throws bad_alloc when there is none.
  template <class T>
  T* scratch(size_t count) const {
    void* at = exec_->scratch(exec_, count * sizeof(T));
    if (!at) throw std::bad_alloc();
    return static_cast<T*>(at);
  }
  belay_status fail(Code code, std::string_view sentence) const {
    return exec_->fail(exec_, uint32_t(code), to_str(sentence));
  }

  // Splits [0, count) into ranges of at least `grain` items and calls f(begin, end) for each, on the threads
  // of the device; f(begin, end, part) where it takes three, with part < max_parts(). `grain` is what is
  // worth a thread: grain_of() computes it from the cost of an item. f may throw nothing.
  template <class F>
  void parallel(int64_t count, int64_t grain, F&& f) const {
    if (count <= 0) return;
    grain = std::max<int64_t>(grain, 1);
    if (count <= grain || exec_->threads <= 1) return call(f, int64_t{0}, count, int64_t{0});
    // Four ranges for a thread even out threads that start late; the results do not depend on the split.
    const int64_t parts = std::min((count + grain - 1) / grain, max_parts());
    struct Split {
      std::remove_reference_t<F>* f;
      int64_t count, parts;
    } split{&f, count, parts};
    exec_->parallel_for(
        exec_, uint64_t(parts),
        [](void* arg, uint64_t i) BELAY_NOEXCEPT {
          const Split& s = *static_cast<Split*>(arg);
          const int64_t each = s.count / s.parts, more = s.count % s.parts, at = int64_t(i);
          const int64_t begin = at * each + std::min(at, more);
          call(*s.f, begin, begin + each + (at < more ? 1 : 0), at);
        },
        &split);
  }
  int64_t max_parts() const { return int64_t{exec_->threads} * 4; }

 private:
  template <class F>
  static void call(F& f, int64_t begin, int64_t end, int64_t part) {
    if constexpr (std::is_invocable_v<F&, int64_t, int64_t, int64_t>)
      f(begin, end, part);
    else
      f(begin, end);
  }

  const belay_exec* exec_;
  const uint64_t* args_;
  uint32_t inputs_, outputs_;
  void* const* resized_;
  bool has_workspace_;
};

// Items that take about 16 us on one thread, below which a second thread does not pay (waking one takes 7-9
// us).
inline int64_t grain_of(double ns_per_item) {
  return std::max<int64_t>(1, int64_t(16000.0 / std::max(ns_per_item, 1e-3)));
}

}  // namespace belay::cpu
