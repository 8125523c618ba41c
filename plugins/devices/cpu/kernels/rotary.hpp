// Rotation of pairs of values by angles that depend on their position.
#pragma once

#include "context.hpp"
#include "heavy/attention.hpp"
#include "simd/simd.hpp"

#include <cstring>

namespace belay::cpu {

struct RotaryForm {
  int64_t batch = 0, heads = 0, rows = 0, size = 0;
  int64_t rotated = 0;  // the first values of a head, an even number; the others stay
  bool interleaved = false;  // pairs are neighbours; else one of each half
  HeadSteps steps;           // of input and output
  float scale = 1;           // of what is rotated
  // The row of the caches of cosines and sines, [cache_rows, rotated / 2], that belongs to a row: one of each row of
  // each batch in order, or what input `positions` says: for each row, or for the first with the others behind it.
  enum class Positions : uint8_t { kInOrder, kGiven, kFirst } how = Positions::kInOrder;
  int64_t cache_rows = 0;
  size_t x = 0, cos = 1, sin = 2, positions = 3;  // inputs
};

// One head's row; cos and sin are those of its position. x and y may be the same.
template <class T>
void rotate_row(const RotaryForm& f, const T* x, const T* cos, const T* sin, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    if (!f.interleaved) {
      const int64_t half = f.rotated / 2;
      simd().rotate(x, x + half, cos, sin, y, y + half, half, f.scale);
      if (x != y && f.size > f.rotated) std::memcpy(y + f.rotated, x + f.rotated, size_t(f.size - f.rotated) * sizeof(T));
      return;
    }
  }
  const int64_t half = f.rotated / 2, step = f.interleaved ? 2 : 1, other = f.interleaved ? 1 : half;
  for (int64_t i = 0; i < half; ++i) {
    const auto a = Compute<T>::load(x[i * step]), b = Compute<T>::load(x[i * step + other]);
    const auto c = Compute<T>::load(cos[i]), s = Compute<T>::load(sin[i]);
    y[i * step] = Compute<T>::store((a * c - b * s) * compute_t<T>(f.scale));
    y[i * step + other] = Compute<T>::store((b * c + a * s) * compute_t<T>(f.scale));
  }
  if (x != y && f.size > f.rotated)
    std::memcpy(y + f.rotated, x + f.rotated, size_t(f.size - f.rotated) * sizeof(T));
}

// Declares nothing; x, cos and sin are of one float type, positions are int64.
void make_rotary(OpContext& op, const RotaryForm& form);

}  // namespace belay::cpu
