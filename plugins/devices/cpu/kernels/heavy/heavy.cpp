#include "heavy.hpp"

namespace belay::cpu {

void add_heavy(Registry& registry) {
  add_conv(registry);
  add_matmul(registry);
  add_pool(registry);
  add_global_pool(registry);
  add_softmax(registry);
  add_batch_norm(registry);
  add_layer_norm(registry);
  add_lrn(registry);
  add_skip_norm(registry);
  add_qkv_attention(registry);
  add_multi_head_attention(registry);
  add_group_query_attention(registry);
  add_matmul_nbits(registry);
  add_inverse(registry);
  add_conv_transpose(registry);
  add_rnn(registry);
  add_resize(registry);
  add_fused_products(registry);
  add_attention(registry);
  add_group_norm(registry);
  add_rms_norm(registry);
  add_deform_conv(registry);
}

}  // namespace belay::cpu
