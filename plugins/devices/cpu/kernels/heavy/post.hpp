// What follows a product in the same kernel: an activation, applied while the result is still in the cache.
#pragma once

#include "../simd/simd.hpp"
#include "micro.hpp"

#include <limits>

namespace belay::cpu {

struct Post {
  Unary act = Unary::kIdentity;
  float a = 0, b = 0;
  const float* slopes = nullptr;  // by row (channel): kLeakyRelu with a slope each

  bool none() const { return act == Unary::kIdentity; }
  // The tile kernel clamps by itself.
  bool clamps() const { return act == Unary::kRelu || act == Unary::kClip; }
  void clamp_into(TileEnd<float>& end) const {
    end.clamp = clamps();
    end.low = act == Unary::kRelu ? 0.0f : a;
    end.high = act == Unary::kRelu ? std::numeric_limits<float>::infinity() : b;
  }
  // Values of one row from x to y.
  void apply_to(const float* x, float* y, int64_t n, int64_t row) const {
    simd().unary[size_t(act)](x, y, n, slopes ? slopes[row] : a, b);
  }
  // Values of one row in place.
  void apply(float* y, int64_t n, int64_t row) const {
    if (none()) return;
    simd().unary[size_t(act)](y, y, n, slopes ? slopes[row] : a, b);
  }
};

}  // namespace belay::cpu
