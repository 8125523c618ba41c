// Softmax of one run of values, in place, for operators that have it inside.
#pragma once

#include <cstdint>

namespace belay::cpu {

void softmax_row(float* row, int64_t n);  // n >= 1
void softmax_row(double* row, int64_t n);

}  // namespace belay::cpu
