// Copies and fills at the speed of the memory behind them.
#pragma once

#include "packet.h"

#include <cstdint>

namespace belay::cpu {

// Copies ranges that do not overlap. Small: memcpy. From 16 MiB on (what no cache holds): stores that go
// around the caches, of which workers that are awake take a part.
void copy_bytes(Exec& exec, void* to, const void* from, uint64_t bytes);

// Repeats the low `pattern_bytes` (1, 2, 4 or 8) of `pattern` over `bytes`, a multiple of them.
void fill_bytes(Exec& exec, void* to, uint64_t bytes, uint64_t pattern, uint64_t pattern_bytes);

// Estimates, in nanoseconds, for one thread.
uint32_t copy_cost(uint64_t bytes);

}  // namespace belay::cpu
