#include "heavy.hpp"

namespace belay::cpu {

void add_heavy(Registry& registry) {
  add_conv(registry);
  add_matmul(registry);
  add_pool(registry);
  add_global_pool(registry);
  add_softmax(registry);
  add_batch_norm(registry);
}

}  // namespace belay::cpu
