// The innermost loops of operators on 8-bit integers, compiled for five levels of the instruction set and chosen
// once, by what this CPU has. All sums are exact and of 32 bits: no level adds products in 16 bits, where they
// would saturate.
#pragma once

#include "../simd/simd.hpp"

#include <cstdint>

namespace belay::cpu {

// Operands of a product are packed in words of 32 bits, each with `group` neighbouring terms of one row of A or of
// one column of B: four bytes, or two numbers of 16 bits. One operand is signed, the other is not; Signs says
// which. A byte that has the wrong sign is moved by 128, and with it its zero point.
enum class Signs : uint8_t { kRowsSigned, kColumnsSigned, kCount };

// Sums of a tile, or of anything else that has rows: sums[i * step + j], i < m, j < n.
struct Sums {
  const int32_t* sums;
  int64_t step, m, n;
  int64_t line = 1;  // step between what goes with rows; 0: one value for all
};

// What is added to them before they are used: row_add[i] + column_add[j] + the sum over f of
// row_factor[f][i] * column_factor[f][j]; null: nothing.
struct SumEnd {
  const int32_t *row_add = nullptr, *column_add = nullptr;
  const int32_t *row_factor[2] = {nullptr, nullptr}, *column_factor[2] = {nullptr, nullptr};
  bool by_column() const { return column_add || column_factor[0] || column_factor[1]; }
};

// The factor of a sum: row[i], column[j] or, where both are there, their product.
struct Scales {
  const float *row = nullptr, *column = nullptr;
};

// sum * scale, rounded to nearest even, plus zero, cut to 8 bits; then, where there is a table, what it has for that
// byte. NaN (a scale of 0 / 0) becomes the lowest value.
struct ByteEnd {
  Scales scale;
  int32_t zero = 0;
  bool is_signed = false;
  const uint8_t* table = nullptr;  // 256 bytes, by the bits of the byte
};

// Four taps of a kernel that lie in one row.
struct TapWord {
  int64_t offset;    // of the first
  uint32_t weights;  // signed bytes, zero beyond the last
};

// Rows as signed bytes with a scale for each block, in the order in which dot_panel() takes the numbers of a word.
struct BitRows {
  const int8_t* bytes;   // [rows][blocks][block]
  const float* scales;   // [rows][blocks]
  const float* sums;     // the same: of the bytes of a block, times the scale
};

struct ByteMicro {
  const char* name;               // "vbmi", "vnni", "avx512", "avx2", "sse2"
  int64_t group = 2;              // terms in a word
  int64_t rows = 6, lanes = 0, columns = 0;  // of a tile

  // C[m x n] = A B over `groups` words of each row and column: word p of row i of A is a[i * a_row + p * a_group], that
  // of column j of B b[p * b_step + j]; of C, n rounded up to `lanes` columns are written. m <= rows, n <= columns.
  void (*tile[int(Signs::kCount)])(int64_t groups, const uint32_t* a, int64_t a_row, int64_t a_group,
                                   const uint32_t* b, int64_t b_step, int32_t* c, int64_t c_step, int64_t m, int64_t n);
  // sums[j] = the sum of all terms of column j of B, packed as for tile().
  void (*sum_columns[int(Signs::kCount)])(int64_t groups, const uint32_t* b, int64_t b_step, int64_t n, int32_t* sums);
  // The sum of n bytes.
  int32_t (*sum)(const uint8_t* x, int64_t n, bool is_signed);
  // to[j] = the word of element j of `group` rows, for n elements; `flip` moves them by 128, after which they are
  // signed or not. Rows are not read beyond n.
  void (*interleave)(const uint8_t* const* rows, int64_t n, bool flip, bool is_signed, uint32_t* to);

  // Row i of the result begins at y + i * y_step; only n elements of it are written.
  void (*to_bytes)(const Sums& sums, const SumEnd& sum, const ByteEnd& end, uint8_t* y, int64_t y_step);
  // sum * scale, then + bias[j] where there is one.
  void (*to_floats)(const Sums& sums, const SumEnd& sum, const Scales& scale, const float* bias, float* y,
                    int64_t y_step);
  void (*to_ints)(const Sums& sums, const SumEnd& sum, int32_t* y, int64_t y_step);

  // Copies `rows` rows of n bytes, `from_step` and `to_step` apart; `flip` moves them by 128.
  void (*copy_rows)(const uint8_t* from, int64_t from_step, int64_t rows, int64_t n, bool flip, uint8_t* to,
                    int64_t to_step);
  // to[i] = from[i * step].
  void (*copy_steps)(const uint8_t* from, int64_t step, int64_t n, uint8_t* to);
  // y[i] = table[x[i]].
  void (*look_up)(const uint8_t* x, int64_t n, const uint8_t* table, uint8_t* y);
  // sums[i] = sum over `taps` of w[t] * x[offsets[t] + i * step], for n sums; n rounded up to 16 are written and
  // their bytes read. `x_signed` says what a byte of x is; w is in [-255, 255].
  void (*taps)(const uint8_t* x, bool x_signed, const int64_t* offsets, const int32_t* w, int64_t taps, int64_t step,
               int64_t n, int32_t* sums);
  // The same for words: null where there is nothing better than taps(). Word t adds, for each of its bytes b,
  // x[words[t].offset + i * step + b * dilation] times the weight. x is unsigned; 64 bytes beyond the last that is
  // used must be readable, n rounded up to 32. Only for what words_fit() allows.
  void (*tap_words)(const uint8_t* x, const TapWord* words, int64_t count, int64_t step, int64_t dilation, int64_t n,
                    int32_t* sums);
  // QuantizeLinear and DequantizeLinear of n elements with one scale.
  void (*quantize)(const float* x, int64_t n, float scale, int32_t zero, bool is_signed, uint8_t* y);
  // The least and the largest of n numbers and 0; NaN where one is NaN.
  void (*range)(const float* x, int64_t n, float* low, float* high);
  void (*dequantize)(const uint8_t* x, int64_t n, float scale, int32_t zero, bool is_signed, float* y);
  // A row for dot_panel(), of whole blocks of 16 numbers or more: false where it has an infinity, NaN, or nothing but tiny numbers in a
  // block.
  bool (*quantize_blocks)(int bits, const float* x, int64_t blocks, int64_t block, int8_t* bytes, float* scales, float* sums);
  // y[r * kPanel + j] as dot_panel() of simd.hpp, by products of bytes. Both are null where bytes are not multiplied fast.
  void (*dot_panel)(const BitPanel& panel, const BitRows& x, int64_t rows, float* y);
};

// Sixteen outputs of tap_words() see bytes that four lanes of 16 bytes can hold.
constexpr bool words_fit(int64_t step, int64_t dilation) { return step <= 4 && 3 * step + 3 * dilation < 16; }

extern const ByteMicro kBytesSse2, kBytesAvx2, kBytesAvx512, kBytesVnni, kBytesVbmi;

// The best that this CPU runs.
const ByteMicro& byte_micro();
// Makes byte_micro() give another level that the CPU runs; null: the best again. For tests, while no kernel is in use:
// what is packed for one level is of no use to another.
void use_byte_micro(const ByteMicro* level);

}  // namespace belay::cpu
