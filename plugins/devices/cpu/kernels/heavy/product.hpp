// Matrix products: C[m x n] = A[m x k] B[k x n], cut into blocks that stay in the caches and into tasks for
// threads. Operands come packed (constants, once) or are packed block by block by a function, which may
// convert types, subtract zero points or gather a convolution's pixels. A finished block may be taken through
// a function too.
#pragma once

#include "../simd/simd.hpp"
#include "lanes.hpp"
#include "micro.hpp"

#include <cstring>
#include <type_traits>

namespace belay::cpu {

template <class T>
struct Product {
  int64_t m = 0, n = 0, k = 0;

  // A: packed as pack_rows() does for the whole matrix, or by pack_a(a, m0, mc, k0, kc, to) in the same form.
  const T* a_packed = nullptr;
  void (*pack_a)(const void* a, int64_t m0, int64_t mc, int64_t k0, int64_t kc, T* to) = nullptr;
  const void* a = nullptr;

  // B: packed as pack_columns() does for the whole matrix; or read as it is, rows `b_step` apart; or packed
  // by pack_b(b, k0, kc, n0, nc, to, step): to[p * step + j] = B[k0 + p, n0 + j], what is beyond nc up to a
  // vector is of no importance but must be readable. pack_b is also needed where B is read as it is: for its
  // right edge.
  const T* b_packed = nullptr;
  const T* b_direct = nullptr;
  int64_t b_step = 0;
  void (*pack_b)(const void* b, int64_t k0, int64_t kc, int64_t n0, int64_t nc, T* to,
                 int64_t step) = nullptr;
  const void* b = nullptr;

  // C: written with `end` (whose pointers are those of row 0, column 0), then seen by finish, if there is
  // one: finish(context, block, step, m0, mc, n0, nc), block[i * step + j] = C[m0 + i, n0 + j]. With c null
  // the block is in scratch memory and finish has to take it from there. A residual may lie in the memory of
  // C, at the same places: the product is then added to it block by block.
  T* c = nullptr;
  int64_t c_step = 0;
  TileEnd<T> end;
  void (*finish)(const void* context, T* block, int64_t step, int64_t m0, int64_t mc, int64_t n0,
                 int64_t nc) = nullptr;
  const void* finish_context = nullptr;
};

// How products of one size are cut.
struct Blocks {
  int64_t mc = 0, nc = 0, kc = 0;                       // of a block
  int64_t m_blocks = 1, n_blocks = 1;                   // tasks of one product
  int64_t b_step = 0;                                   // of a packed block of B
  int64_t a_scratch = 0, b_scratch = 0, c_scratch = 0;  // elements that a lane needs
  uint32_t lanes = 1;
  int64_t tasks() const { return m_blocks * n_blocks; }
  int64_t scratch() const { return a_scratch + b_scratch + c_scratch; }
};

struct ProductForm {
  bool a_packed = false, b_packed = false, b_direct = false, c_scratch = false;
  bool b_near = false;     // B is packed panel by panel into the first-level cache: worth it where A comes packed
  double b_pack_cost = 1;  // of an element of B, in units of a store
};

// `rows`, `lanes`, `columns`, `element_bytes` are those of the tile kernel.
Blocks plan_blocks(int64_t rows, int64_t lanes, int64_t columns, int64_t element_bytes, int64_t m, int64_t n,
                   int64_t k, int64_t products, uint32_t threads, const ProductForm& form);
template <class T>
Blocks plan_blocks(int64_t m, int64_t n, int64_t k, int64_t products, uint32_t threads,
                   const ProductForm& form) {
  const TileKernel<T>& kernel = tile_kernel<T>();
  return plan_blocks(kernel.rows, kernel.lanes, kernel.columns, sizeof(T), m, n, k, products, threads, form);
}
// Bytes of workspace for `lanes` lanes, and a lane's part of it.
template <class T>
uint64_t product_workspace(const Blocks& blocks) {
  return uint64_t(round_up(blocks.scratch() * int64_t(sizeof(T)), 64)) * blocks.lanes;
}
template <class T>
T* lane_scratch(const Blocks& blocks, void* workspace, int64_t lane) {
  return reinterpret_cast<T*>(static_cast<char*>(workspace) +
                              round_up(blocks.scratch() * int64_t(sizeof(T)), 64) * lane);
}

// One task of a product; `scratch` is the lane's.
template <class T>
void run_block(const Product<T>& p, const Blocks& blocks, int64_t task, T* scratch) {
  const TileKernel<T>& kernel = tile_kernel<T>();
  const int64_t m0 = task % blocks.m_blocks * blocks.mc, n0 = task / blocks.m_blocks * blocks.nc;
  const int64_t mc = std::min(blocks.mc, p.m - m0), nc = std::min(blocks.nc, p.n - n0);
  if (mc <= 0 || nc <= 0) return;
  T* const a_block = scratch;
  T* const b_block = scratch + blocks.a_scratch;
  T* const c_block = p.c ? p.c + m0 * p.c_step + n0 : b_block + blocks.b_scratch;
  const int64_t c_step = p.c ? p.c_step : blocks.nc;

  const bool onto = p.c && p.end.residual == p.c;
  int64_t k0 = 0;
  do {  // once even where k is 0: C is then what its end makes of zeros
    const int64_t kc = std::min(blocks.kc, p.k - k0);
    if (!p.a_packed) p.pack_a(p.a, m0, mc, k0, kc, a_block);
    if (!p.b_packed && !p.b_direct) p.pack_b(p.b, k0, kc, n0, nc, b_block, blocks.b_step);
    const bool last = k0 + kc >= p.k;
    for (int64_t j = 0, width; j < nc; j += width) {
      width = std::min(kernel.columns, nc - j);
      // A tile of one vector is bound by its loads: where one would be left over, two of two vectors are
      // cheaper.
      if (!p.b_packed && nc - j > kernel.columns && nc - j <= kernel.columns + kernel.lanes &&
          kernel.columns > 2 * kernel.lanes)
        width = 2 * kernel.lanes;
      const T* b;
      int64_t b_step;
      if (p.b_packed) {
        b = p.b_packed + ((n0 + j) / kernel.columns * p.k + k0) * kernel.columns;
        b_step = kernel.columns;
      } else if (!p.b_direct) {
        b = b_block + j;
        b_step = blocks.b_step;
      } else if (width % kernel.lanes == 0) {
        b = p.b_direct + k0 * p.b_step + n0 + j;
        b_step = p.b_step;
      } else {
        p.pack_b(p.b, k0, kc, n0 + j, width, b_block, kernel.columns);
        b = b_block;
        b_step = kernel.columns;
      }
      for (int64_t i = 0; i < mc; i += kernel.rows) {
        const int64_t height = std::min(kernel.rows, mc - i);
        const T* a =
            p.a_packed ? p.a_packed + ((m0 + i) / kernel.rows * p.k + k0) * kernel.rows : a_block + i * kc;
        TileEnd<T> end;
        end.add = k0 > 0 || onto;
        if (last) {
          end = p.end;
          if (onto) end.residual = nullptr;
          end.add = end.add || k0 > 0 || onto;
          if (end.row_bias) end.row_bias += m0 + i;
          if (end.col_bias) end.col_bias += n0 + j;
          if (end.residual) end.residual += (m0 + i) * end.residual_step + n0 + j;
        }
        // While one panel of a packed B is worked on the next is fetched: it may come from far. Not where each is used
        // once: then nothing but reading takes time, and the order in which it is read is best.
        if (p.b_packed && mc > kernel.rows && (j + width < nc || !last)) {
          const int64_t lines = kc * kernel.columns * int64_t(sizeof(T)) / 64, line = i / kernel.rows * kc;
          const T* next = j + width < nc ? b + p.k * kernel.columns
                                         : p.b_packed + (n0 / kernel.columns * p.k + k0 + kc) * kernel.columns;
          if (line < lines) end.ahead = reinterpret_cast<const char*>(next) + line * 64;
        }
        kernel.run(kc, a, b, b_step, c_block + i * c_step + j, c_step, height, width, end);
      }
    }
    k0 += blocks.kc;
  } while (k0 < p.k);
  if (p.finish) p.finish(p.finish_context, c_block, c_step, m0, mc, n0, nc);
}

// All tasks of `products` products; make(i) gives the i-th.
template <class T, class Make>
void run_products(const Run& run, const Blocks& blocks, int64_t products, void* workspace, Make&& make) {
  const int64_t each = blocks.tasks();
  run_lanes(run, products * each, blocks.lanes, [&](int64_t task, int64_t lane) {
    run_block<T>(make(task / each), blocks, task % each, lane_scratch<T>(blocks, workspace, lane));
  });
}

// A matrix in memory whose elements may be widened, and have zero points taken off, when they are packed.
template <class In>
struct MatrixView {
  const In* data = nullptr;
  int64_t row = 0, col = 0;            // strides in elements
  const In* zero = nullptr;            // zero points; null: none
  int64_t zero_row = 0, zero_col = 0;  // strides of the zero points: 0 or 1
};

template <class In, class T>
T widen(const MatrixView<In>& view, int64_t i, int64_t j) {
  const In x = view.data[i * view.row + j * view.col];
  if constexpr (std::is_integral_v<In>) {
    if (!view.zero) return T(x);
    return T(x) - T(view.zero[i * view.zero_row + j * view.zero_col]);  // wraps around: T is unsigned
  } else {
    return T(Compute<In>::load(x));
  }
}

// 16-bit floats are widened in runs, which come to be transposed in pieces that fit on the stack.
template <class In, class T>
inline constexpr bool kWidens = std::is_same_v<T, float> && (std::is_same_v<In, Half> || std::is_same_v<In, BFloat16>);
template <class In>
void widen_run(const In* from, float* to, int64_t n) {
  if constexpr (std::is_same_v<In, Half>)
    simd().half_to_float(from, to, n);
  else
    simd().bfloat16_to_float(from, to, n);
}
// to[p * step + i] = row i of `from`, rows `row` apart, at p.
template <class In>
void transpose_widened(const In* from, int64_t row, int64_t rows, int64_t columns, float* to, int64_t step) {
  constexpr int64_t kRows = 16, kColumns = 128;
  float piece[kRows * kColumns];
  for (int64_t i = 0; i < rows; i += kRows)
    for (int64_t p = 0; p < columns; p += kColumns) {
      const int64_t height = std::min(kRows, rows - i), width = std::min(kColumns, columns - p);
      for (int64_t r = 0; r < height; ++r) widen_run(from + (i + r) * row + p, piece + r * kColumns, width);
      simd().transpose32(reinterpret_cast<const uint32_t*>(piece), kColumns, reinterpret_cast<uint32_t*>(to + p * step + i),
                         step, height, width);
    }
}

// [panel of rows][k][rows], what is beyond the last row is zero.
template <class In, class T>
void pack_rows(const void* a, int64_t m0, int64_t mc, int64_t k0, int64_t kc, T* to) {
  const MatrixView<In>& view = *static_cast<const MatrixView<In>*>(a);
  const int64_t rows = tile_kernel<T>().rows;
  for (int64_t i0 = 0; i0 < mc; i0 += rows, to += rows * kc) {
    const int64_t height = std::min(rows, mc - i0);
    if (height < rows) std::memset(to, 0, size_t(rows * kc) * sizeof(T));
    if constexpr (std::is_same_v<In, float> && std::is_same_v<T, float>) {
      if (view.col == 1) {
        simd().transpose32(reinterpret_cast<const uint32_t*>(view.data + (m0 + i0) * view.row + k0), view.row,
                           reinterpret_cast<uint32_t*>(to), rows, height, kc);
        continue;
      }
    }
    if constexpr (kWidens<In, T>) {
      if (view.col == 1) {
        transpose_widened(view.data + (m0 + i0) * view.row + k0, view.row, height, kc, to, rows);
        continue;
      }
    }
    for (int64_t p = 0; p < kc; ++p)
      for (int64_t i = 0; i < height; ++i) to[p * rows + i] = widen<In, T>(view, m0 + i0 + i, k0 + p);
  }
}

// A block of B, row-major.
template <class In, class T>
void pack_block(const void* b, int64_t k0, int64_t kc, int64_t n0, int64_t nc, T* to, int64_t step) {
  const MatrixView<In>& view = *static_cast<const MatrixView<In>*>(b);
  const int64_t padded = round_up(nc, tile_kernel<T>().lanes);
  if constexpr (std::is_same_v<In, float> && std::is_same_v<T, float>) {
    if (view.col == 1) {
      for (int64_t p = 0; p < kc; ++p)
        std::memcpy(to + p * step, view.data + (k0 + p) * view.row + n0, size_t(nc) * sizeof(float));
    } else if (view.row == 1) {
      simd().transpose32(reinterpret_cast<const uint32_t*>(view.data + n0 * view.col + k0), view.col,
                         reinterpret_cast<uint32_t*>(to), step, nc, kc);
    } else {
      for (int64_t p = 0; p < kc; ++p)
        for (int64_t j = 0; j < nc; ++j) to[p * step + j] = widen<In, T>(view, k0 + p, n0 + j);
    }
  } else {
    bool done = false;
    if constexpr (kWidens<In, T>) {
      done = view.col == 1 || view.row == 1;
      if (view.col == 1)
        for (int64_t p = 0; p < kc; ++p) widen_run(view.data + (k0 + p) * view.row + n0, to + p * step, nc);
      else if (view.row == 1)
        transpose_widened(view.data + n0 * view.col + k0, view.col, nc, kc, to, step);
    }
    for (int64_t p = 0; !done && p < kc; ++p)
      for (int64_t j = 0; j < nc; ++j) to[p * step + j] = widen<In, T>(view, k0 + p, n0 + j);
  }
  if (padded > nc)
    for (int64_t p = 0; p < kc; ++p) std::memset(to + p * step + nc, 0, size_t(padded - nc) * sizeof(T));
}

template <class T>
int64_t packed_rows_size(int64_t m, int64_t k) {
  return round_up(m, tile_kernel<T>().rows) * k;
}
template <class T>
int64_t packed_columns_size(int64_t n, int64_t k) {
  return round_up(n, tile_kernel<T>().columns) * k;
}
// [panel of columns][k][columns], for b_packed.
template <class In, class T>
void pack_columns(const MatrixView<In>& view, int64_t k, int64_t n, T* to) {
  const int64_t columns = tile_kernel<T>().columns;
  for (int64_t j = 0; j < n; j += columns, to += columns * k) {
    const int64_t width = std::min(columns, n - j);
    if (width < columns) std::memset(to, 0, size_t(columns * k) * sizeof(T));
    pack_block<In, T>(&view, 0, k, j, width, to, columns);
  }
}

}  // namespace belay::cpu
