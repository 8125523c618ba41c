// Products of 8-bit matrices with sums of 32 bits: C[m x n] = A[m x k] B[k x n], cut into tasks for threads and into
// tiles that a finishing function takes while they are in the cache. All terms of a tile are summed at once, so
// there is no C in memory. Zero points are no matter of the product: the finishing function adds what they change,
// from the sums of rows and columns.
#pragma once

#include "../heavy/lanes.hpp"
#include "bytes.hpp"

#include <algorithm>
#include <cstring>

namespace belay::cpu {

// Bytes of an operand as they are multiplied.
struct ByteForm {
  bool flip = false;       // moved by 128
  bool is_signed = false;  // after that
  // What a byte, such as a zero point, is then.
  int32_t value(uint8_t x) const {
    const uint8_t y = flip ? uint8_t(x ^ 0x80) : x;
    return is_signed ? int32_t(int8_t(y)) : int32_t(y);
  }
};

// One operand must be signed and the other not; `fixed` keeps its sign, the one returned takes the other.
inline ByteForm opposite_form(bool is_signed, bool fixed_signed) { return {is_signed == fixed_signed, !fixed_signed}; }

struct ByteProduct {
  int64_t m = 0, n = 0, k = 0;
  Signs signs = Signs::kRowsSigned;
  // A: packed by pack_byte_rows() for the whole matrix, or as it is: element (i, p) at a[i * a_row + p * a_column].
  const uint32_t* a_packed = nullptr;
  const int32_t* a_sums = nullptr;  // [m]: sums of its rows, where they are known
  const uint8_t* a = nullptr;
  int64_t a_row = 0, a_column = 1;
  ByteForm a_form;
  // B: packed by pack_byte_columns() for the whole matrix; or by pack_b(b, n0, nc, to), for nc <= columns of a tile:
  // to[p * columns + j] = word p of column n0 + j, what lies beyond nc up to a vector is of no importance.
  const uint32_t* b_packed = nullptr;
  const int32_t* b_sums = nullptr;  // [n]: sums of its columns, where they are known
  void (*pack_b)(const void* b, int64_t n0, int64_t nc, uint32_t* to) = nullptr;
  const void* b = nullptr;
  bool want_a_sums = false, want_b_sums = false;  // by the finishing function
};

struct ByteBlocks {
  int64_t mc = 0, nc = 0, m_blocks = 1, n_blocks = 1;  // of a task
  int64_t a_words = 0, b_words = 0;                    // that a lane needs to pack into
  uint32_t lanes = 1;
  int64_t tasks() const { return m_blocks * n_blocks; }
  // Besides what is packed: a tile, the sums of its columns, those of the rows of a block.
  static constexpr int64_t kTileWords = 6 * 64, kColumnWords = 64;
  int64_t lane_words() const { return round_up(a_words + b_words + kTileWords + kColumnWords + mc, 16); }
  uint64_t workspace() const { return uint64_t(lane_words()) * 4 * lanes; }
};

ByteBlocks plan_bytes(int64_t m, int64_t n, int64_t k, int64_t products, uint32_t threads, bool a_packed,
                      bool b_packed);

inline int64_t byte_groups(int64_t k) { return ceil_div(k, byte_micro().group); }
inline int64_t packed_byte_rows(int64_t m, int64_t k) { return round_up(m, byte_micro().rows) * byte_groups(k); }
inline int64_t packed_byte_columns(int64_t n, int64_t k) { return round_up(n, byte_micro().columns) * byte_groups(k); }

// [panel of rows][groups][rows] and [panel of columns][groups][columns]; what lies beyond m, n and k is zero.
void pack_byte_rows(const uint8_t* a, int64_t row, int64_t column, int64_t m, int64_t k, ByteForm form, uint32_t* to);
// B[k x n] with element (p, j) at b[p * row + j * column]; one of the steps is 1.
void pack_byte_columns(const uint8_t* b, int64_t row, int64_t column, int64_t k, int64_t n, ByteForm form,
                       uint32_t* to);
// The same of at most a tile's columns: pack_b of a matrix.
void pack_byte_panel(const uint8_t* b, int64_t row, int64_t column, int64_t k, int64_t n, ByteForm form, uint32_t* to);

// The sum of k bytes, `step` apart, as `form` makes them.
int32_t sum_bytes(const uint8_t* x, int64_t k, int64_t step, ByteForm form);

// One task, with the lane's memory. finish(tile, i0, j0, row_sums, column_sums) is called for each tile; the sums are
// those of its rows and columns, null where they were not asked for.
template <class Finish>
void run_byte_task(const ByteProduct& p, const ByteBlocks& blocks, int64_t task, uint32_t* scratch, Finish&& finish) {
  const ByteMicro& micro = byte_micro();
  const int64_t m0 = task % blocks.m_blocks * blocks.mc, n0 = task / blocks.m_blocks * blocks.nc;
  const int64_t mc = std::min(blocks.mc, p.m - m0), nc = std::min(blocks.nc, p.n - n0);
  if (mc <= 0 || nc <= 0) return;
  const int64_t groups = byte_groups(p.k);
  uint32_t *const a_block = scratch, *const b_panel = scratch + blocks.a_words;
  int32_t* const tile = reinterpret_cast<int32_t*>(b_panel + blocks.b_words);
  int32_t *const column_sums = tile + ByteBlocks::kTileWords, *const row_sums = column_sums + ByteBlocks::kColumnWords;
  // Rows of whole words are read as they are.
  const bool direct = !p.a_packed && micro.group == 4 && !p.a_form.flip && p.a_column == 1 && p.k % 4 == 0 &&
                      (reinterpret_cast<uintptr_t>(p.a) | uintptr_t(p.a_row)) % 4 == 0;
  if (!p.a_packed && !direct) pack_byte_rows(p.a + m0 * p.a_row, p.a_row, p.a_column, mc, p.k, p.a_form, a_block);
  if (p.want_a_sums && !p.a_sums)
    for (int64_t i = 0; i < mc; ++i) row_sums[i] = sum_bytes(p.a + (m0 + i) * p.a_row, p.k, p.a_column, p.a_form);
  const uint32_t* const a = direct       ? reinterpret_cast<const uint32_t*>(p.a + m0 * p.a_row)
                            : p.a_packed ? p.a_packed + m0 * groups
                                         : a_block;
  const int64_t a_row = direct ? p.a_row / 4 : 1, a_group = direct ? 1 : micro.rows, a_tile = direct ? a_row : groups;
  const int32_t* const of_rows = !p.want_a_sums ? nullptr : p.a_sums ? p.a_sums + m0 : row_sums;
  for (int64_t j = 0; j < nc; j += micro.columns) {
    const int64_t width = std::min(micro.columns, nc - j);
    const uint32_t* b = p.b_packed ? p.b_packed + (n0 + j) * groups : b_panel;
    if (!p.b_packed) p.pack_b(p.b, n0 + j, width, b_panel);
    if (p.want_b_sums && !p.b_sums) micro.sum_columns[int(p.signs)](groups, b, micro.columns, width, column_sums);
    const int32_t* const of_columns = !p.want_b_sums ? nullptr : p.b_sums ? p.b_sums + n0 + j : column_sums;
    for (int64_t i = 0; i < mc; i += micro.rows) {
      const int64_t height = std::min(micro.rows, mc - i);
      micro.tile[int(p.signs)](groups, a + i * a_tile, a_row, a_group, b, micro.columns, tile, micro.columns, height,
                               width);
      finish(Sums{tile, micro.columns, height, width}, m0 + i, n0 + j, of_rows ? of_rows + i : nullptr, of_columns);
    }
  }
}

}  // namespace belay::cpu
