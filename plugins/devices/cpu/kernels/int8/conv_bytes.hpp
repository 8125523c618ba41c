// Convolutions of bytes: products over gathered pixels, or taps where each channel has a kernel of its own.
#pragma once

#include "../heavy/conv.hpp"
#include "byte_product.hpp"

namespace belay::cpu {

// What a run of a convolution works with. Arrays hold one value for each output channel.
struct BytesConv {
  const uint8_t *x, *w;
  uint8_t x_zero;  // as it is in memory
  ByteForm x_form, w_form;
  const int32_t* w_zero;     // as multiplied; null: all are zero
  const int32_t* row_add;
  const float* scale;        // null for sums of 32 bits
  ByteEnd end;               // but for the scales
  uint32_t out;              // BELAY_DT_INT32 or a type of bytes
  void* y;

  // Stores sums whose first row is channel `channel`, or which are all of it where sums.line is 0, from element
  // `place` of the output on. `more`: what is added besides row_add.
  void finish(const Sums& sums, SumEnd more, int64_t channel, int64_t place, int64_t y_step) const;
};

// Whether each channel has a kernel of its own, of two dims at most.
bool taps_of_bytes(const ConvShape& shape);
// Words of memory that a lane needs.
int64_t depthwise_bytes_words(const ConvShape& shape);
void run_depthwise_bytes(const Run& run, const ConvShape& shape, const BytesConv& conv, uint32_t lanes,
                         uint32_t* workspace);

}  // namespace belay::cpu
