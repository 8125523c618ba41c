// Operators whose cost is arithmetic rather than memory.
#pragma once

namespace belay::cpu {

class Registry;

// Adds all of this folder.
void add_heavy(Registry&);

// Each adds the operators of one file.
void add_conv(Registry&);
void add_matmul(Registry&);
void add_pool(Registry&);
void add_global_pool(Registry&);
void add_softmax(Registry&);
void add_batch_norm(Registry&);
void add_layer_norm(Registry&);
void add_lrn(Registry&);
void add_skip_norm(Registry&);
void add_qkv_attention(Registry&);
void add_multi_head_attention(Registry&);
void add_group_query_attention(Registry&);
void add_matmul_nbits(Registry&);
void add_inverse(Registry&);
void add_conv_transpose(Registry&);
void add_rnn(Registry&);
void add_resize(Registry&);
void add_fused_products(Registry&);
void add_attention(Registry&);
void add_group_norm(Registry&);
void add_rms_norm(Registry&);
void add_deform_conv(Registry&);

}  // namespace belay::cpu
