// Kernels of two operands that broadcast against each other.
#pragma once

#include "blocks.hpp"
#include "registry.hpp"

namespace belay::cpu {

// y[i] = a[i * sa] op b[i * sb] for i in [0, n), strides 0 or 1, in the types in which the operands are
// computed. Gives the first i at which there is no answer (division of integers by zero), or n.
using BinaryLoop = int64_t (*)(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n);

template <class A, class B, class Y, class F>
int64_t binary_loop(const void* pa, int64_t sa, const void* pb, int64_t sb, void* py, int64_t n, F f) {
  const A* a = static_cast<const A*>(pa);
  const B* b = static_cast<const B*>(pb);
  Y* y = static_cast<Y*>(py);
  if (sa == 1 && sb == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  } else if (sa == 1) {
    const B right = *b;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], right);
  } else if (sb == 1) {
    const A left = *a;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = f(left, b[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = f(*a, *b);
  }
  return n;
}

struct BinaryForm {
  BinaryLoop loop;
  uint32_t out_dtype;
  double ns = 0.3;                // of one element
  std::string_view trouble = {};  // what it means that there is no answer
};

// Declares the output (both inputs broadcast to it) and makes the kernel.
Status prepare_broadcast(OpContext& op, const BinaryForm& form);

}  // namespace belay::cpu
