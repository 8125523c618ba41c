// A row over the root of the mean of its squares: what all norms without a mean have inside.
#pragma once

#include "../simd/simd.hpp"

#include <cmath>

namespace belay::cpu {

// y = x / sqrt(mean of squares + epsilon) * scale, gives what x is multiplied by; x and y may be the same.
inline float normalise_by_root(const float* x, float* y, int64_t n, float epsilon, const float* scale) {
  const Simd& loops = simd();
  const float inverse = 1.0f / std::sqrt(loops.fold[size_t(Fold::kSumSquare)](x, n) / float(n) + epsilon);
  loops.unary[size_t(Unary::kAffine)](x, y, n, inverse, 0);
  loops.binary[size_t(Binary::kMul)](y, 1, scale, 1, y, n);
  return inverse;
}
inline double normalise_by_root(const double* x, double* y, int64_t n, double epsilon, const double* scale) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const double inverse = 1 / std::sqrt(squares / double(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse * scale[i];
  return inverse;
}

}  // namespace belay::cpu
