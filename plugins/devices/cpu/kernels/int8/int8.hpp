// Operators on 8-bit integers.
#pragma once

namespace belay::cpu {

class Registry;

// Adds all of this folder.
void add_int8(Registry&);

// Each adds the operators of one file.
void add_conv_bytes(Registry&);
void add_elementwise_bytes(Registry&);
void add_matmul_bytes(Registry&);
void add_pool_bytes(Registry&);

}  // namespace belay::cpu
