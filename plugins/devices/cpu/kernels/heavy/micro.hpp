// The innermost loops of the heavy operators, compiled for three levels of the instruction set and chosen
// once, by what this CPU has.
#pragma once

#include <cstdint>

namespace belay::cpu {

// What happens to a tile of a product after its last term.
template <class T>
struct TileEnd {
  bool add = false;             // the product is added to what C holds
  const T* row_bias = nullptr;  // [row], added
  const T* col_bias = nullptr;  // [column], added
  const T* residual = nullptr;  // [row * residual_step + column], added
  int64_t residual_step = 0;
  bool clamp = false;  // to [low, high]; NaN stays
  T low{}, high{};
  const void* ahead = nullptr;  // will be read soon: a cache line is fetched from there with each term
};

// C[m x n] = A B, where A is packed as [k][rows] (the packing is `rows` wide even where m is less) and row p
// of B begins at b + p * b_step. m <= rows, n <= columns. Of each row of B, n rounded up to `lanes` elements
// are read; of C exactly n are written. Pointers in `end` are those of the tile's first row and column.
template <class T>
struct TileKernel {
  int64_t rows = 0, lanes = 0, columns = 0;
  void (*run)(int64_t k, const T* a, const T* b, int64_t b_step, T* c, int64_t c_step, int64_t m, int64_t n,
              const TileEnd<T>& end) = nullptr;
  // The same where row p of B begins at b + rows[p]; only of float.
  void (*run_rows)(int64_t k, const T* a, const T* b, const int64_t* rows, T* c, int64_t c_step, int64_t m,
                   int64_t n, const TileEnd<T>& end) = nullptr;
};

// Floats that loops over windows may read behind what they need.
constexpr int64_t kWindowSlack = 64;

// Rows of a convolution of one channel: y[r * columns + i] = start + sum over t of w[t] * x[r * x_step +
// offsets[t] + i], to which the residual is added, and that is then clamped.
struct DepthwiseRows {
  const float* x = nullptr;  // readable for kWindowSlack places behind what is needed
  int64_t x_step = 0;
  float* y = nullptr;
  int64_t rows = 0, columns = 0;
  const float* w = nullptr;
  const int64_t* offsets = nullptr;
  int64_t taps = 0;
  int64_t side = 0;  // 3 or 5: the offsets are those of a square, offsets[a * side + b] = a * x_step + b; 0: any
  float start = 0;
  const float* residual = nullptr;  // as y, or null
  bool clamp = false;
  float low = 0, high = 0;
};

struct WinogradLoops;  // winograd.hpp

struct Micro {
  const char* name;  // "avx512", "avx2", "sse2"
  const WinogradLoops* winograd;
  TileKernel<float> f32;
  TileKernel<double> f64;
  TileKernel<uint32_t> u32;  // integers wrap around, so one kernel serves both signs
  TileKernel<uint64_t> u64;

  // to[i] = x[i * step].
  void (*copy_row)(float* to, const float* x, int64_t n, int64_t step);
  // pack_patches() of patches.inc, for float.
  void (*pack_patches)(const void* source, int64_t k0, int64_t kc, int64_t n0, int64_t nc, float* to,
                       int64_t step);
  // y[i] += x[i * step].
  void (*add_row)(float* y, const float* x, int64_t n, int64_t step);
  // Copies rows of n; behind each, up to kWindowSlack places are set to zero. Rows may be closer to each other
  // than that: they are written in their order.
  void (*pad_rows)(float* to, int64_t to_step, const float* x, int64_t x_step, int64_t rows, int64_t n);
  // The same, even places to one row and odd ones to another.
  void (*pad_halves)(float* even, float* odd, int64_t to_step, const float* x, int64_t x_step, int64_t rows,
                     int64_t n);
  void (*depthwise)(const DepthwiseRows& rows);
  // to[i] = the largest of x[offsets[r] + i] over `rows` (at least one); NaN wins.
  void (*max_rows)(float* to, int64_t n, const float* x, const int64_t* offsets, int64_t rows);
  // y[i] = the largest of x[i * stride + t * dilation] over `taps` (at least one); NaN wins. A window may be read
  // for up to kWindowSlack places behind the last.
  void (*max_window)(float* y, int64_t n, const float* x, int64_t taps, int64_t stride, int64_t dilation);
};

extern const Micro kMicroSse2, kMicroAvx2, kMicroAvx512;

// The best that this CPU runs, or what use_micro() was given.
const Micro& micro();
// For tests, which try each level that this CPU runs. What was packed for one level is of no use to another.
void use_micro(const Micro& level);

template <class T>
const TileKernel<T>& tile_kernel();
template <>
inline const TileKernel<float>& tile_kernel<float>() {
  return micro().f32;
}
template <>
inline const TileKernel<double>& tile_kernel<double>() {
  return micro().f64;
}
template <>
inline const TileKernel<uint32_t>& tile_kernel<uint32_t>() {
  return micro().u32;
}
template <>
inline const TileKernel<uint64_t>& tile_kernel<uint64_t>() {
  return micro().u64;
}

}  // namespace belay::cpu
