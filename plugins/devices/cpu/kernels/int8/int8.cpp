#include "int8.hpp"

namespace belay::cpu {

void add_int8(Registry& registry) {
  add_conv_bytes(registry);
  add_elementwise_bytes(registry);
  add_matmul_bytes(registry);
  add_pool_bytes(registry);
}

}  // namespace belay::cpu
