#include "byte_product.hpp"

#include "../simd/simd.hpp"

namespace belay::cpu {

ByteBlocks plan_bytes(int64_t m, int64_t n, int64_t k, int64_t products, uint32_t threads, bool a_packed,
                      bool b_packed) {
  const ByteMicro& micro = byte_micro();
  ByteBlocks out;
  const double terms = double(products) * double(m) * double(n) * double(std::max<int64_t>(k, 1));
  const double outputs = double(products) * double(m) * double(n);
  out.lanes = worthwhile_threads(threads, terms / double(micro.lanes * micro.group * 4) + outputs * 0.1);
  const int64_t m_panels = std::max<int64_t>(1, ceil_div(m, micro.rows)),
                n_panels = std::max<int64_t>(1, ceil_div(n, micro.columns));
  // Several tasks for each thread even out threads that start late.
  const int64_t want = out.lanes == 1 ? 1 : ceil_div(int64_t{out.lanes} * 4, std::max<int64_t>(1, products));
  // Packed rows of a block stay within half of a second-level cache.
  const int64_t most_m = a_packed ? m_panels : std::clamp<int64_t>(256 * 1024 / (k + 1) / micro.rows, 1, 32);
  out.m_blocks = ceil_div(m_panels, most_m);
  // What is packed for each task is not cut, so that it is packed once.
  if (b_packed) {
    out.m_blocks = std::clamp(want, out.m_blocks, m_panels);
    out.n_blocks = std::clamp<int64_t>(ceil_div(want, out.m_blocks), 1, n_panels);
  } else {
    out.n_blocks = std::min(want, n_panels);
    out.m_blocks = std::clamp(ceil_div(want, out.n_blocks), out.m_blocks, m_panels);
  }
  out.mc = ceil_div(m_panels, out.m_blocks) * micro.rows;
  out.nc = ceil_div(n_panels, out.n_blocks) * micro.columns;
  out.m_blocks = ceil_div(m_panels * micro.rows, out.mc);
  out.n_blocks = ceil_div(n_panels * micro.columns, out.nc);
  if (!a_packed) out.a_words = round_up(out.mc * byte_groups(k), 16);
  if (!b_packed) out.b_words = round_up(micro.columns * byte_groups(k), 16);
  return out;
}

void pack_byte_rows(const uint8_t* a, int64_t row, int64_t column, int64_t m, int64_t k, ByteForm form,
                    uint32_t* to) {
  const ByteMicro& micro = byte_micro();
  const int64_t groups = byte_groups(k), rows = micro.rows;
  // Whole words of neighbouring bytes are copied.
  const int64_t whole = micro.group == 4 && column == 1 ? k / 4 : 0;
  const uint32_t flips = form.flip ? 0x80808080u : 0;
  for (int64_t i0 = 0; i0 < m; i0 += rows, to += rows * groups) {
    const int64_t height = std::min(rows, m - i0);
    if (height < rows) std::memset(to, 0, size_t(rows * groups) * sizeof(uint32_t));
    for (int64_t i = 0; i < height; ++i) {
      const uint8_t* from = a + (i0 + i) * row;
      uint32_t* at = to + i;
      for (int64_t p = 0; p < whole; ++p) {
        uint32_t word;
        std::memcpy(&word, from + 4 * p, 4);
        at[p * rows] = word ^ flips;
      }
      const int64_t bits = 32 / micro.group;
      for (int64_t p = whole; p < groups; ++p) {
        uint32_t word = 0;  // the terms beyond k stay zero
        for (int64_t t = 0; t < micro.group && p * micro.group + t < k; ++t)
          word |= (uint32_t(form.value(from[(p * micro.group + t) * column])) & ((1u << bits) - 1)) << (bits * t);
        at[p * rows] = word;
      }
    }
  }
}

void pack_byte_panel(const uint8_t* b, int64_t row, int64_t column, int64_t k, int64_t n, ByteForm form, uint32_t* to) {
  const ByteMicro& micro = byte_micro();
  const int64_t groups = byte_groups(k), columns = micro.columns;
  if (row == 1 && column != 1 && micro.group == 4) {
    // Neighbouring terms already form words.
    const uint32_t flips = form.flip ? 0x80808080u : 0;
    for (int64_t j = 0; j < n; ++j) {
      const uint8_t* from = b + j * column;
      for (int64_t p = 0; p < k / 4; ++p) {
        uint32_t word;
        std::memcpy(&word, from + 4 * p, 4);
        to[p * columns + j] = word ^ flips;
      }
      if (const int64_t left = k % 4) {
        uint32_t word = 0;  // the terms beyond k are zero
        for (int64_t t = 0; t < left; ++t) word |= uint32_t(uint8_t(form.value(from[k - left + t]))) << (8 * t);
        to[k / 4 * columns + j] = word;
      }
    }
    return;
  }
  // What is missing of the last word must be zero after it is moved.
  uint8_t nothing[64];
  std::memset(nothing, form.flip ? 0x80 : 0, sizeof nothing);
  uint8_t line[4][64];
  for (int64_t p = 0; p < groups; ++p, to += columns) {
    const uint8_t* rows[4];
    for (int64_t t = 0; t < micro.group; ++t) {
      const int64_t at = p * micro.group + t;
      if (at >= k) {
        rows[t] = nothing;
      } else if (column == 1) {
        rows[t] = b + at * row;
      } else {
        for (int64_t j = 0; j < n; ++j) line[t][j] = b[at * row + j * column];
        rows[t] = line[t];
      }
    }
    micro.interleave(rows, n, form.flip, form.is_signed, to);
  }
}

void pack_byte_columns(const uint8_t* b, int64_t row, int64_t column, int64_t k, int64_t n, ByteForm form,
                       uint32_t* to) {
  const int64_t columns = byte_micro().columns, panel = columns * byte_groups(k);
  for (int64_t j = 0; j < n; j += columns, to += panel) {
    const int64_t width = std::min(columns, n - j);
    if (width < columns) std::memset(to, 0, size_t(panel) * sizeof(uint32_t));
    pack_byte_panel(b + j * column, row, column, k, width, form, to);
  }
}

int32_t sum_bytes(const uint8_t* x, int64_t k, int64_t step, ByteForm form) {
  if (step != 1) {
    uint32_t sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += uint32_t(form.value(x[p * step]));
    return int32_t(sum);
  }
  // The raw byte's sign is the other where it is moved.
  const uint32_t sum = uint32_t(byte_micro().sum(x, k, form.is_signed != form.flip));
  const uint32_t moved = form.flip ? uint32_t(k) * 128u : 0;
  return int32_t(form.is_signed ? sum - moved : sum + moved);
}

}  // namespace belay::cpu
