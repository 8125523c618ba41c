"""Operators of com.microsoft used wrongly, or in ways that are refused by name."""
import functools

import numpy as np

import bad_operators
from bad_operators import ints
from onnx_build import U8

use = functools.partial(bad_operators.use, domain="com.microsoft")


def add(files):
    for name, model, words in (
            ("no_heads", use("MultiHeadAttention", [1, 2, 4], [1, 2, 4], [1, 2, 4]), ["num_heads", "bad_node"]),
            ("heads_as_a_float", use("MultiHeadAttention", [1, 2, 4], num_heads=2.0), ["num_heads", "bad_node", "an int"]),
            ("one_input_too_many", use("FusedMatMul", [2, 2], [2, 2], [2]), ["3 inputs", "bad_node"]),
            ("no_lengths", use("GroupQueryAttention", [1, 1, 8], None, None, None, None, None, np.int32(1), num_heads=1, kv_num_heads=1),
             ["input 5", "bad_node"])):
        files.load(f"contrib/{name}", model, *words)

    weights, scales = np.zeros((4, 2, 16), np.uint8), np.ones((4, 2), np.float32)
    nbits = {"K": 64, "N": 4, "block_size": 32}
    few = lambda *more, **changed: use("MatMulNBits", [2, 64], weights, scales, *more, **{**nbits, **changed})
    row, eye = np.ones(4, np.float32), np.ones((4, 12), np.float32)
    one, zero = np.float32(1), np.uint8(0)
    lengths, total = np.zeros(1, np.int32), np.int32(1)
    for name, model, words in (
            ("bits_3", few(bits=3), ["bits is 3"]), ("block_of_20", few(block_size=20), ["block_size is 20"]),
            ("weights_of_other_size", few(K=64, N=5), ["B has the shape [4,2,16]", "[5,2,16]"]),
            ("other_k", few(K=65), ["65"]), ("group_9_of_2", few(None, np.full(64, 9, np.int32)), ["g_idx", "row 0 of B"]),
            ("packed_for_another", few(weight_prepacked=1), ["weight_prepacked is 1"]),
            ("bias_of_5", few(None, None, np.ones(5, np.float32)), ["bias has the shape [5]"]),
            ("matmul_2x3_and_2x3", use("FusedMatMul", [2, 3], [2, 3]), ["differ"]),
            ("batch_of_a_matrix", use("FusedMatMul", [2, 3], [3, 2], transBatchA=1), ["transBatchA"]),
            ("skip_of_other_rows", use("SkipLayerNormalization", [2, 3, 4], [2, 2, 4], row), ["[2,2,4]"]),
            ("gamma_of_5", use("SkipSimplifiedLayerNormalization", [2, 4], [2, 4], np.ones(5, np.float32)), ["[5]", "[4]"]),
            ("activation_foo", use("FusedConv", [1, 1, 3, 3], np.ones((1, 1, 3, 3), np.float32), activation="Foo"), ["'Foo'"]),
            ("metric_foo", use("CDist", [2, 3], [2, 3], metric="foo"), ["'foo'"]),
            ("concat_of_two_and_a_half", use("QLinearConcat", one, zero, [2], one, types={2: U8}, axis=0), ["4 inputs, want a scale"]),
            ("no_inverse", use("Inverse", [2, 3, 3]), ["has no inverse"]), ("inverse_of_2x3", use("Inverse", [2, 3]), ["[2,3]"]),
            ("rotary_inside", use("Attention", [1, 2, 4], eye, num_heads=2, do_rotary=1), ["do_rotary"]),
            ("buffer_without_its_length", use("Attention", [1, 2, 4], eye, None, None, [2, 1, 2, 6, 2], num_heads=2,
                                              past_present_share_buffer=1), ["past_sequence_length"]),
            ("beams", use("MultiHeadAttention", [1, 1, 4], [1, 1, 4], [1, 1, 4], None, None, None, [1, 2, 3, 2], [1, 2, 3, 2], lengths,
                          np.zeros((1, 1, 4), np.int32), num_heads=2), ["cache_indirection is not supported"]),
            ("beams_of_a_decoder", use("DecoderMaskedMultiHeadAttention", [1, 1, 4], [1, 1, 4], [1, 1, 4], None, None, None, None, None,
                                       lengths + 1, num_heads=2), ["beam_width is not supported"]),
            ("window_of_9_in_4", use("GroupQueryAttention", [1, 1, 8], [1, 1, 8], [1, 1, 8], [1, 1, 4, 8], [1, 1, 4, 8], lengths, total,
                                     num_heads=1, kv_num_heads=1, local_window_size=9, sliding_window_cache=1), ["they have 4"]),
            ("one_norm", use("GroupQueryAttention", [1, 1, 8], [1, 1, 8], [1, 1, 8], None, None, lengths, total, None, None, None, None, None,
                             None, None, np.ones(8, np.float32), num_heads=1, kv_num_heads=1), ["only one of q_norm_weight"]),
            ("gather_of_3_bits", use("GatherBlockQuantized", np.zeros((4, 16), np.uint8), ints(0), np.ones((4, 2), np.float32), bits=3,
                                     block_size=16), ["bits is 3"]),
            ("blocks_of_20", use("GatherBlockQuantized", np.zeros((4, 16), np.uint8), ints(0), np.ones((4, 2), np.float32),
                                 block_size=20), ["block_size is 20"]),
            ("activation_7", use("GroupNorm", [1, 2, 2, 4], row, row, activation=7, groups=2), ["'activation' is 7"]),
            ("distance_of_2", use("RelativePositionBias", np.ones((8, 2), np.float32), ints(3), ints(3), max_distance=2), ["'max_distance' is 2"]),
            ("tokens_without_padding", use("GatedRelativePositionBias", [1, 2, 4], row, [1, 2, 2, 2], np.ones((2, 8), np.float32),
                                           np.ones(8, np.float32), np.ones((1, 2, 1, 1), np.float32), np.zeros((1, 2), np.int32), num_heads=2),
             ["token_offset is not supported"]),
            ("block_of_2_to_62", few(block_size=2**62), ["block_size is 4611686018427387904"]),
            ("heads_of_2_to_63", use("GroupQueryAttention", [1, 1, 8], None, None, None, None, lengths, total, num_heads=2**63 - 1,
                                     kv_num_heads=2**63 - 1), ["num_heads is 9223372036854775807"]),
            ("taps_beyond_63_bits", use("CausalConvWithState", [1, 2, 5], np.ones((2, 1, 4), np.float32), dilation=2**63 - 1), ["'dilation' is 9223372036854775807"]),
            ("states_of_a_window", use("CausalConvWithState", [1, 2, 5], np.ones((2, 1, 3), np.float32), state_window=2), ["'state_window' is 2"]),
            ("mask_of_5", use("Attention", [1, 2, 4], eye, None, np.ones((1, 5), np.int32), num_heads=2), ["mask", "[1,5]"]),
            ("hidden_sizes_below_0", use("Attention", [1, 2, 4], eye, num_heads=2, qkv_hidden_sizes=[-2, -2, eye.shape[1] + 4]),
             [f"[-2,-2,{eye.shape[1] + 4}]"]),
            ("hidden_sizes_beyond_63_bits", use("Attention", [1, 2, 4], eye, num_heads=2, qkv_hidden_sizes=[2**62, 2**62, 2**63 - 4]),
             ["9223372036854775804"]),
            ("hidden_sizes", use("Attention", [1, 2, 4], eye, num_heads=2, qkv_hidden_sizes=[4, 4, 5]), ["[4,4,5]"]),
            ("keys_without_values", use("MultiHeadAttention", [1, 2, 4], [1, 2, 4], num_heads=2), ["value is missing"]),
            ("heads_do_not_divide", use("MultiHeadAttention", [1, 2, 4], [1, 2, 4], [1, 2, 4], num_heads=3), ["num_heads, 3"]),
            ("one_past", use("MultiHeadAttention", [1, 2, 4], [1, 2, 4], [1, 2, 4], None, None, None, [1, 2, 3, 2], num_heads=2),
             ["only one of past_key and past_value"]),
            ("three_heads_of_two", use("GroupQueryAttention", [1, 1, 12], [1, 1, 8], [1, 1, 8], None, None, lengths, total, num_heads=3,
                                       kv_num_heads=2), ["num_heads is 3"]),
            ("length_beyond_the_cache", use("GroupQueryAttention", [1, 1, 8], [1, 1, 8], [1, 1, 8], None, None, lengths + 5, total,
                                            num_heads=1, kv_num_heads=1), ["seqlens_k of batch 0 is 5"]),
            ("quantised_cache", use("GroupQueryAttention", [1, 1, 8], [1, 1, 8], [1, 1, 8], None, None, lengths, total, num_heads=1,
                                    kv_num_heads=1, k_quant_type="PER_TENSOR"), ["k_quant_type"]),
            ("caches_of_other_columns", use("RotaryEmbedding", [1, 2, 8], ints(0), np.ones((4, 3), np.float32), np.ones((4, 3), np.float32),
                                            num_heads=1), ["[4,3]"]),
            ("position_7_of_4", use("RotaryEmbedding", [1, 2, 8], ints(7), np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)),
             ["position 7"])):
        files.run(f"contrib/{name}", model, "bad_node", *words)
