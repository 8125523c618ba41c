// The levels of the instruction set that kernels have loops for, and the one that this process uses.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <string_view>

namespace belay::cpu {

enum class Isa : uint8_t { kSse2, kAvx2, kAvx512, kVnni, kVbmi };  // each has what those before it have

// What loops are chosen by: what fix_isa() was given, else the best that this CPU has.
Isa isa();

// Sets the level for the life of the library: kernels of all runtimes of a process are the same. `name`: "auto",
// "sse2", "avx2", "avx512", "avx512_vnni", "avx512_vbmi". Errors: INVALID_ARGUMENT (no such level), UNIMPLEMENTED
// (this CPU lacks it), FAILED_PRECONDITION (it is another one already).
Status fix_isa(std::string_view name);

}  // namespace belay::cpu
