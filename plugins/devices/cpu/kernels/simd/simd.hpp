// Loops over arrays of float, compiled for three levels of the instruction set and chosen once, by what this
// CPU has. Input and output may be the same array; other overlaps are not allowed.
#pragma once

#include "../types.hpp"

#include <cstdint>

namespace belay::cpu {

// y = f(x; a, b). What a and b are is said where they are used.
enum class Unary : uint8_t {
  kIdentity,
  kAbs,
  kNeg,
  kSqrt,
  kReciprocal,
  kSquare,
  kCeil,
  kFloor,
  kRound,  // ties to even
  kSign,
  kExp,
  kLog,
  kErf,
  kTanh,
  kSigmoid,
  kSoftplus,
  kSoftsign,
  kRelu,
  kClip,         // a: low, b: high; NaN stays
  kLeakyRelu,    // a: slope
  kLeakyClip,    // the same, then at least b
  kThresholded,  // a: threshold
  kElu,          // a: alpha
  kSelu,         // a: alpha, b: gamma
  kCelu,         // a: alpha
  kHardSigmoid,  // a: slope, b: offset
  kHardSwish,
  kSwish,  // x * sigmoid(a * x)
  kMish,
  kGelu,
  kGeluTanh,
  kShrink,  // a: lambd, b: bias
  kAffine,  // a * x + b
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kCount
};

enum class Binary : uint8_t { kAdd, kSub, kMul, kDiv, kMax, kMin, kPRelu, kCount };

// Sums and the like of one run, and of many runs element by element.
enum class Fold : uint8_t { kSum, kSumAbs, kSumSquare, kMax, kMin, kProd, kCount };

// Columns of weights that are small unsigned numbers, `bits` (2, 4, 8) each: scale * (number - zero), with a scale and a
// zero for each block of rows.
inline constexpr int64_t kPanel = 16;  // columns
struct BitPanel {
  int bits = 4;
  int64_t blocks = 0, block_words = 0;  // words of 32 bits that a column has in a block
  const uint32_t* words = nullptr;      // [blocks][block_words][kPanel], the first rows in the lowest bits
  const float* scales = nullptr;        // [blocks][kPanel]
  const uint8_t* zeros = nullptr;       // the same
  const float* float_zeros = nullptr;   // the same; without either the zero is in the middle, at 2^(bits - 1)
};

struct Simd {
  const char* name;  // "avx512", "avx2", "sse2"
  void (*unary[size_t(Unary::kCount)])(const float* x, float* y, int64_t n, float a, float b);
  // y[i] = a[i * sa] op b[i * sb]; strides are 0 or 1.
  void (*binary[size_t(Binary::kCount)])(const float* a, int64_t sa, const float* b, int64_t sb, float* y,
                                         int64_t n);
  float (*fold[size_t(Fold::kCount)])(const float* x, int64_t n);                // n >= 1
  void (*fold_into[size_t(Fold::kCount)])(float* y, const float* x, int64_t n);  // y[i] = y[i] op x[i]
  double (*sum_exp)(const float* x, int64_t n, float shift);                     // sum of exp(x[i] - shift)
  // y[i] = exp(scale * x[i] - shift), whose exponents are 88 at most; gives the sum. What is below 2^-126 is 0.
  float (*exp_sum)(const float* x, float* y, int64_t n, float scale, float shift);
  // Turns n pairs: ya = (a * cos - b * sin) * scale, yb = (b * cos + a * sin) * scale.
  void (*rotate)(const float* a, const float* b, const float* cos, const float* sin, float* ya, float* yb, int64_t n,
                 float scale);
  void (*half_to_float)(const Half* x, float* y, int64_t n);
  void (*float_to_half)(const float* x, Half* y, int64_t n);
  void (*bfloat16_to_float)(const BFloat16* x, float* y, int64_t n);
  void (*float_to_bfloat16)(const float* x, BFloat16* y, int64_t n);
  // y[r * kPanel + j] = the sum over all rows k of the panel of x[r * x_step + k] times the weight of row k in column j.
  void (*dot_panel)(const BitPanel& panel, const float* x, int64_t x_step, int64_t rows, float* y);
  // y[i * y_step + j] = the weight of row `row` + i in column j.
  void (*unpack_panel)(const BitPanel& panel, int64_t row, int64_t rows, float* y, int64_t y_step);
  // Transposes a block of 4-byte elements: dst[c * dst_step + r] = src[r * src_step + c].
  void (*transpose32)(const uint32_t* src, int64_t src_step, uint32_t* dst, int64_t dst_step, int64_t rows,
                      int64_t cols);
};

extern const Simd kSimdSse2, kSimdAvx2, kSimdAvx512;

// The best that this CPU runs.
const Simd& simd();

}  // namespace belay::cpu
