// How elements of each type become numbers. Not installed.
#pragma once

#include <belay/tensor_io.hpp>

#include <complex>

namespace belay {

// Gives element `index` of a tensor as a complex number (most have no imaginary part); null for types whose
// value is their bits (strings, hifloat8).
using Decode = std::complex<double> (*)(const std::byte* bytes, uint64_t index);
Decode decoder(uint32_t dtype);

// A floating-point number of `exponent` and `mantissa` bits below a sign bit. IEEE: the largest exponent is
// infinity or NaN. FN: only all ones is NaN. FNUZ: only the bits of minus zero are NaN. Finite: every pattern
// is a number.
enum class Special { kIeee, kFn, kFnuz, kFinite };
double small_float(uint32_t bits, int exponent, int mantissa, int bias, Special special);

}  // namespace belay
