// core/config/units.h: sizes and durations as people write them.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace belay::core {

// INVALID_ARGUMENT: no number, no unit (0 needs none). OUT_OF_RANGE: 2^63 or more.
Result<int64_t> parse_size(std::string_view text);      // bytes: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB
Result<int64_t> parse_duration(std::string_view text);  // nanoseconds: ns, us, ms, s, min, h
std::string print_size(int64_t bytes);
std::string print_duration(int64_t nanoseconds);

}  // namespace belay::core
