// Values that are made up or typed, for tensors of any element type.
#pragma once

#include <belay/tensor_io.hpp>

#include <cstdint>
#include <string_view>

namespace belay::cli {

uint16_t to_half(float value);      // round to nearest even
uint16_t to_bfloat16(float value);  // the same

// Floats in [-1, 1), bytes over their range, other integers 0 or 1, strings of one letter. The same for a
// seed each time.
void fill_random(HostTensor& tensor, uint64_t seed);

// Sets one element from text. INVALID_ARGUMENT (no number, does not fit), UNIMPLEMENTED (types of under a
// byte).
Status set_element(HostTensor& tensor, uint64_t index, std::string_view text);

}  // namespace belay::cli
