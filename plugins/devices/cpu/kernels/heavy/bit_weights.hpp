// Weights of few bits as MatMulNBits has them, brought into the order in which loops read them: panels of columns, so
// that one word of each of a vector's columns lies side by side.
#pragma once

#include "../context.hpp"
#include "../simd/simd.hpp"
#include "lanes.hpp"

#include <vector>

namespace belay::cpu {

// What the operands of the operator hold.
struct BitSource {
  const uint8_t* numbers = nullptr;  // [columns][blocks][block * bits / 8]
  const void* scales = nullptr;      // [columns][blocks], of `dtype`
  const void* zeros = nullptr;       // the same, or packed as the numbers are; null: none
};

struct BitWeights {
  enum class Zeros : uint8_t { kMiddle, kPacked, kFloats };
  uint32_t dtype = BELAY_DT_FLOAT32;  // of scales, and of zeros where they are floats
  int bits = 4;
  Zeros zeros = Zeros::kMiddle;
  int64_t columns = 0, rows = 0, block = 32;
  int64_t source_blocks = 0;
  // Where groups name the block of each row: by packed row the row it comes from (-1: none), and by packed block that of
  // its scale and zero. Empty: rows come as they are.
  std::vector<int32_t> row_of, block_of;

  // Takes the group of each of `rows` rows; false: one of them, whose place goes to `bad`, is no block.
  bool set_groups(const int32_t* groups, int64_t& bad);

  int64_t blocks() const { return block_of.empty() ? source_blocks : int64_t(block_of.size()); }
  int64_t packed_rows() const { return blocks() * block; }
  int64_t panels() const { return ceil_div(columns, kPanel); }
  uint64_t bytes() const { return float_zeros_at() + (zeros == Zeros::kFloats ? uint64_t(parameters()) * 4 : 0); }
  void pack(const BitSource& from, void* to) const;
  BitPanel panel(const void* packed, int64_t number) const;

 private:
  int64_t block_words() const { return block * bits / 32; }
  int64_t parameters() const { return panels() * blocks() * kPanel; }
  uint64_t scales_at() const { return uint64_t(panels() * blocks() * block_words() * kPanel) * 4; }
  uint64_t zeros_at() const { return scales_at() + uint64_t(parameters()) * 4; }
  uint64_t float_zeros_at() const { return zeros_at() + (zeros == Zeros::kPacked ? uint64_t(parameters()) : 0); }
};

}  // namespace belay::cpu
