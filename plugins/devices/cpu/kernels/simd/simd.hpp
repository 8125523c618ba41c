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

struct Simd {
  const char* name;  // "avx512", "avx2", "sse2"
  void (*unary[size_t(Unary::kCount)])(const float* x, float* y, int64_t n, float a, float b);
  // y[i] = a[i * sa] op b[i * sb]; strides are 0 or 1.
  void (*binary[size_t(Binary::kCount)])(const float* a, int64_t sa, const float* b, int64_t sb, float* y,
                                         int64_t n);
  float (*fold[size_t(Fold::kCount)])(const float* x, int64_t n);                // n >= 1
  void (*fold_into[size_t(Fold::kCount)])(float* y, const float* x, int64_t n);  // y[i] = y[i] op x[i]
  double (*sum_exp)(const float* x, int64_t n, float shift);                     // sum of exp(x[i] - shift)
  void (*half_to_float)(const Half* x, float* y, int64_t n);
  void (*float_to_half)(const float* x, Half* y, int64_t n);
  void (*bfloat16_to_float)(const BFloat16* x, float* y, int64_t n);
  void (*float_to_bfloat16)(const float* x, BFloat16* y, int64_t n);
  // Small unsigned numbers, `bits` (2, 4, 8) each, packed in bytes from the lowest bit on. The sum over blocks of
  // `bytes` bytes of scale * (number - zero) * x, where x has for each block first what belongs to the lowest numbers
  // of its bytes, then to the next.
  float (*dot_bits)(int bits, const uint8_t* numbers, int64_t blocks, int64_t bytes, const float* scales,
                    const float* zeros, const float* x);
  // y = scale * (number - zero) of all numbers of `bytes` bytes, in their order.
  void (*unpack_bits)(int bits, const uint8_t* numbers, int64_t bytes, float scale, float zero, float* y);
  // Transposes a block of 4-byte elements: dst[c * dst_step + r] = src[r * src_step + c].
  void (*transpose32)(const uint32_t* src, int64_t src_step, uint32_t* dst, int64_t dst_step, int64_t rows,
                      int64_t cols);
};

extern const Simd kSimdSse2, kSimdAvx2, kSimdAvx512;

// The best that this CPU runs.
const Simd& simd();

}  // namespace belay::cpu
