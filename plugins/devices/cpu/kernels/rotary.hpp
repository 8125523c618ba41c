// Rotation of pairs of values by angles that depend on their position.
#pragma once

#include "context.hpp"
#include "heavy/attention.hpp"

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

// Declares nothing; x, cos and sin are of one float type, positions are int64.
void make_rotary(OpContext& op, const RotaryForm& form);

}  // namespace belay::cpu
