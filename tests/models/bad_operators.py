"""Operators used wrongly: no inputs, wrong ranks, shapes that do not fit, indices out of range, sizes that overflow."""
import numpy as np
import onnx

from onnx_build import BOOL, F32, I8, I64, U8, Graph

OPSET = 17
OUTPUT_TYPES = {"TopK": [F32, I64], "ArgMax": [I64], "Range": [I64], "Not": [BOOL], "And": [BOOL]}  # the others: F32


def gradient(op, y="y", **attributes):
    """The Gradient bad_node of sum(op(x)) by x."""
    g = Graph("gradient")
    g.input("x", F32, [2])
    g.op(op, "x", out="y", **attributes)
    g.op("Gradient", "x", out="d", name="bad_node", domain="ai.onnx.preview.training", xs=["x"], y=y)
    g.output("d", F32, [2])
    return g.model(OPSET, ai_onnx_preview_training=1)


def use(op, *inputs, types=None, opset=OPSET, outs=1, domain="", **attributes):
    """bad_node of type `op`; an input is a shape (an input of the graph), an array (an initializer), or None."""
    g = Graph(op.lower())
    names = []
    for i, given in enumerate(inputs):
        if given is None:
            names.append("")
        elif isinstance(given, (np.ndarray, np.generic)):
            names.append(g.const(given, f"c{i}"))
        else:
            names.append(g.input(f"x{i}", (types or {}).get(i, F32), given))
    outputs = [f"y{i}" for i in range(outs)]
    g.op(op, *names, out=outputs, name="bad_node", domain=domain, **attributes)
    for name, elem_type in zip(outputs, OUTPUT_TYPES.get(op, [F32] * outs)):
        g.output(name, elem_type, None)
    return g.model(opset, **({domain.replace(".", "_"): 1} if domain else {}))


def ints(*values):
    return np.array(values, np.int64)


def add(files):
    for schema in sorted(onnx.defs.get_all_schemas(), key=lambda s: s.name):
        if schema.domain == "" and schema.min_input > 0:
            model = use(schema.name, outs=max(1, schema.min_output))
            files.load(f"no_inputs/{schema.name}", model, schema.name, "bad_node")

    weights = np.ones((4, 3, 3, 3), np.float32)
    image, one, two, i64 = [1, 3, 8, 8], np.ones(1, np.float32), np.ones((2, 2), np.float32), {0: I64}
    for name, model in (
            # ranks
            ("conv_of_a_scalar", use("Conv", [], weights)), ("conv_of_a_vector", use("Conv", [3], weights)),
            ("conv_with_scalar_weights", use("Conv", image, np.float32([1]).reshape(()))),
            ("conv_of_a_matrix", use("Conv", [8, 8], weights)),
            ("conv_with_a_bias_matrix", use("Conv", image, weights, np.ones((2, 2), np.float32))),
            ("conv_transpose_of_a_vector", use("ConvTranspose", [3], weights)),
            ("gemm_of_a_scalar", use("Gemm", [], two)), ("gemm_of_a_vector", use("Gemm", [2], two)),
            ("gemm_of_rank_3", use("Gemm", [2, 2, 2], two)), ("matmul_of_a_scalar", use("MatMul", [], two)),
            ("attention_of_a_matrix", use("Attention", [2, 4], [2, 4], [2, 4], opset=23)),
            ("attention_without_numbers_of_heads", use("Attention", [1, 2, 4], [1, 2, 4], [1, 2, 4], opset=23)),
            ("attention_of_heads_that_do_not_divide", use("Attention", [1, 3, 2, 4], [1, 2, 2, 4], [1, 2, 2, 4], opset=23)),
            ("attention_with_half_a_past", use("Attention", *[[1, 2, 2, 4]] * 3, None, [1, 2, 3, 4], opset=23)),
            ("rotary_embedding_of_a_matrix", use("RotaryEmbedding", [2, 4], [1, 2, 2], [1, 2, 2], opset=23)),
            ("group_norm_of_other_groups", use("GroupNormalization", image, *[np.ones(3, np.float32)] * 2, num_groups=2,
                                               opset=21)),
            ("rms_norm_with_a_long_scale", use("RMSNormalization", [2, 3], np.ones(4, np.float32), opset=23)),
            ("col2im_of_too_few_places", use("Col2Im", [1, 4, 3], ints(3, 3), ints(2, 2), opset=18)),
            ("center_crop_to_too_few_sizes", use("CenterCropPad", [2, 3], ints(1), opset=18)),
            ("affine_grid_of_other_rank", use("AffineGrid", [1, 2, 4], ints(1, 1, 3, 3), opset=20)),
            ("deform_conv_with_few_offsets", use("DeformConv", image, weights, [1, 9, 6, 6], opset=19)),
            ("quantize_of_blocks_that_do_not_fit", use("QuantizeLinear", [4, 6], np.ones((4, 2), np.float32), block_size=4,
                                                       output_dtype=F32, opset=21)),
            ("dequantize_by_a_matrix_without_blocks", use("DequantizeLinear", [4, 6], np.ones((4, 2), np.float32),
                                                          types={0: U8}, opset=21)),
            ("tensor_scatter_of_a_long_update", use("TensorScatter", [1, 2, 3, 4], [1, 2, 5, 4], opset=24)),
            ("max_pool_of_a_vector", use("MaxPool", [8], kernel_shape=[2])),
            ("average_pool_of_a_matrix", use("AveragePool", [8, 8], kernel_shape=[2, 2])),
            ("global_average_pool_of_a_scalar", use("GlobalAveragePool", [])),
            ("batch_norm_of_a_scalar", use("BatchNormalization", [], one, one, one, one)),
            ("batch_norm_of_other_channels", use("BatchNormalization", image, *[np.ones(4, np.float32)] * 4)),
            ("batch_norm_statistics_of_opset_9", use("BatchNormalization", image, *[np.ones(3, np.float32)] * 4, outs=3,
                                                     opset=9)),
            ("lstm_of_a_matrix", use("LSTM", [4, 3], np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32),
                                     hidden_size=2)),
            ("lstm_with_small_weights", use("LSTM", [5, 1, 3], np.ones((1, 4, 3), np.float32),
                                            np.ones((1, 8, 2), np.float32), hidden_size=2)),
            ("lstm_of_negative_size", use("LSTM", [5, 1, 3], np.ones((1, 8, 3), np.float32),
                                          np.ones((1, 8, 2), np.float32), hidden_size=-2)),
            ("lrn_of_a_vector", use("LRN", [4], size=3)),
            # shapes that do not fit
            ("add_2_and_3", use("Add", [2], [3])), ("mul_2x3_and_3x2", use("Mul", [2, 3], [3, 2])),
            ("matmul_2x3_and_2x3", use("MatMul", [2, 3], [2, 3])), ("gemm_2x3_and_2x3", use("Gemm", [2, 3], [2, 3])),
            ("gemm_with_a_bias_of_5", use("Gemm", [2, 2], two, np.ones(5, np.float32))),
            ("conv_of_other_channels", use("Conv", [1, 4, 8, 8], weights)),
            ("conv_of_group_2", use("Conv", image, weights, group=2)),
            ("conv_of_group_0", use("Conv", image, weights, group=0)),
            ("conv_of_stride_0", use("Conv", image, weights, strides=[0, 1])),
            ("conv_of_dilation_0", use("Conv", image, weights, dilations=[0, 0])),
            ("conv_of_pads_for_1_axis", use("Conv", image, weights, pads=[1, 1])),
            ("conv_of_negative_pads", use("Conv", image, weights, pads=[-9, -9, -9, -9])),
            ("conv_of_another_kernel_shape", use("Conv", image, weights, kernel_shape=[5, 5])),
            ("conv_larger_than_its_image", use("Conv", [1, 3, 2, 2], weights)),
            ("conv_auto_pad_unknown", use("Conv", image, weights, auto_pad="SAME_MIDDLE")),
            ("max_pool_of_stride_0", use("MaxPool", image, kernel_shape=[2, 2], strides=[0, 0])),
            ("max_pool_of_kernel_0", use("MaxPool", image, kernel_shape=[0, 2])),
            ("max_pool_without_kernel", use("MaxPool", image)),
            ("concat_of_two_ranks", use("Concat", [2, 3], [2], axis=0)),
            ("concat_of_two_widths", use("Concat", [2, 3], [2, 4], axis=0)),
            ("concat_axis_5", use("Concat", [2], [2], axis=5)),
            ("softmax_axis_5", use("Softmax", [2, 3], axis=5)),
            ("softmax_axis_minus_3", use("Softmax", [2, 3], axis=-3)),
            ("flatten_axis_5", use("Flatten", [2, 3], axis=5)),
            ("transpose_perm_of_3_for_2", use("Transpose", [2, 3], perm=[0, 1, 2])),
            ("transpose_perm_0_0", use("Transpose", [2, 3], perm=[0, 0])),
            ("transpose_perm_0_7", use("Transpose", [2, 3], perm=[0, 7])),
            ("reshape_6_to_4", use("Reshape", [2, 3], ints(4))),
            ("reshape_to_two_unknown", use("Reshape", [2, 3], ints(-1, -1))),
            ("reshape_6_to_4_and_unknown", use("Reshape", [2, 3], ints(4, -1))),
            ("reshape_to_minus_5", use("Reshape", [2, 3], ints(-5))),
            ("reshape_0_past_the_rank", use("Reshape", [2, 3], ints(6, 1, 0))),
            ("reshape_that_overflows", use("Reshape", [2, 3], ints(2**32, 2**32, 6))),
            ("reshape_by_a_matrix", use("Reshape", [2, 3], ints(3, 2).reshape(1, 2))),
            ("squeeze_of_a_2", use("Squeeze", [2, 3], ints(0))), ("squeeze_axis_5", use("Squeeze", [1, 3], ints(5))),
            ("unsqueeze_axis_twice", use("Unsqueeze", [2], ints(0, 0))),
            ("unsqueeze_axis_9", use("Unsqueeze", [2], ints(9))),
            ("expand_2_to_3", use("Expand", [2], ints(3))), ("expand_to_minus_1", use("Expand", [1], ints(-1))),
            ("split_into_1_and_1_of_3", use("Split", [3], ints(1, 1), outs=2)),
            ("split_into_minus_1", use("Split", [3], ints(4, -1), outs=2)),
            ("tile_of_minus_1", use("Tile", [2], ints(-1))), ("tile_for_2_axes", use("Tile", [2], ints(1, 1))),
            ("pad_past_nothing", use("Pad", [2], ints(-3, 0))), ("pad_for_2_axes", use("Pad", [2], ints(1, 1, 1, 1))),
            ("pad_mode_unknown", use("Pad", [2], ints(1, 1), mode="mirror")),
            ("resize_without_scales_or_sizes", use("Resize", image)),
            ("resize_of_scale_0", use("Resize", image, None, np.float32([1, 1, 0, 1]))),
            ("resize_of_negative_scale", use("Resize", image, None, np.float32([1, 1, -2, 1]))),
            ("resize_of_2_scales_for_4_axes", use("Resize", image, None, np.float32([2, 2]))),
            ("depth_to_space_3_by_2", use("DepthToSpace", image, blocksize=2)),
            ("depth_to_space_by_0", use("DepthToSpace", [1, 4, 2, 2], blocksize=0)),
            ("depth_to_space_by_2_to_the_32", use("DepthToSpace", [1, 4, 2, 2], blocksize=2**32)),
            ("space_to_depth_by_2_to_the_32", use("SpaceToDepth", [1, 1, 2, 2], blocksize=2**32)),
            ("space_to_depth_of_7", use("SpaceToDepth", [1, 1, 7, 7], blocksize=2)),
            ("reduce_sum_axis_5", use("ReduceSum", [2, 3], ints(5))),
            ("reduce_mean_axis_5", use("ReduceMean", [2, 3], axes=[5])),
            ("arg_max_axis_5", use("ArgMax", [2, 3], axis=5)), ("arg_max_of_nothing", use("ArgMax", [0, 3], axis=0)),
            ("layer_norm_axis_5", use("LayerNormalization", [2, 3], np.ones(3, np.float32), axis=5)),
            ("layer_norm_scale_of_5", use("LayerNormalization", [2, 3], np.ones(5, np.float32))),
            ("einsum_of_another_rank", use("Einsum", [2, 3], equation="ijk->i")),
            ("einsum_that_is_none", use("Einsum", [2, 3], equation="i->->j")),
            ("clip_by_a_vector", use("Clip", [2], np.ones(2, np.float32))),
            ("cumsum_axis_5", use("CumSum", [2], np.array(5, np.int64))),
            ("where_2_3_4", use("Where", [2], [3], [4], types={0: BOOL})),
            # indices and counts
            ("gather_of_9_in_3", use("Gather", [3], ints(9))), ("gather_of_minus_4_in_3", use("Gather", [3], ints(-4))),
            ("gather_of_a_far_index", use("Gather", [3], ints(2**62))),
            ("gather_axis_5", use("Gather", [3], ints(0), axis=5)),
            ("gather_from_nothing", use("Gather", [0], ints(0))),
            ("gather_nd_of_9", use("GatherND", [3, 3], ints(9, 0).reshape(1, 2))),
            ("gather_nd_deeper_than_its_data", use("GatherND", [3, 3], ints(0, 0, 0).reshape(1, 3))),
            ("gather_elements_of_9", use("GatherElements", [3], ints(9))),
            ("scatter_nd_at_9", use("ScatterND", [3], ints(9).reshape(1, 1), np.ones(1, np.float32))),
            ("scatter_nd_at_minus_9", use("ScatterND", [3], ints(-9).reshape(1, 1), np.ones(1, np.float32))),
            ("scatter_nd_of_other_updates", use("ScatterND", [3], ints(0).reshape(1, 1), np.ones(5, np.float32))),
            ("scatter_elements_at_9", use("ScatterElements", [3], ints(9), np.ones(1, np.float32))),
            ("slice_step_0", use("Slice", [3], ints(0), ints(2), ints(0), ints(0))),
            ("slice_axis_5", use("Slice", [3], ints(0), ints(2), ints(5))),
            ("slice_of_2_starts_and_1_end", use("Slice", [3, 3], ints(0, 0), ints(2))),
            ("slice_axis_twice", use("Slice", [3, 3], ints(0, 0), ints(2, 2), ints(1, 1))),
            ("top_9_of_3", use("TopK", [3], ints(9), outs=2)), ("top_minus_1", use("TopK", [3], ints(-1), outs=2)),
            ("one_hot_depth_minus_1", use("OneHot", [2], np.array(-1, np.int64), np.float32([0, 1]), types=i64)),
            ("range_by_0", use("Range", np.array(0, np.int64), np.array(5, np.int64), np.array(0, np.int64))),
            ("constant_of_shape_minus_1", use("ConstantOfShape", ints(-1))),
            ("cast_to_999", use("Cast", [2], to=999)), ("cast_to_0", use("Cast", [2], to=0)),
            ("cast_to_2_to_the_32_and_1", use("Cast", [2], to=2**32 + 1)),
            ("eye_like_of_type_2_to_the_31", use("EyeLike", np.ones((2, 2), np.float32), dtype=2**31)),
            ("vector_with_a_zero_point_matrix", use("MatMulInteger", [2, 4], [4], None, np.ones((5, 3), np.uint8),
                                                    types={0: I8, 1: U8})),
            ("vector_from_the_left_with_zero_points", use("MatMulInteger", [4], [4, 2], np.ones((5, 3), np.int8),
                                                          types={0: I8, 1: U8})),
            ("n_grams_of_column_2_to_the_63", use("TfIdfVectorizer", [4], types=i64, mode="TF", min_gram_length=1,
                                                  max_gram_length=1, max_skip_count=0, ngram_counts=[0],
                                                  ngram_indexes=[2**63 - 1], pool_int64s=[7])),
            # element types
            ("add_float_and_int", use("Add", [2], [2], types={1: I64})),
            ("relu_of_bool", use("Relu", [2], types={0: BOOL})),
            ("not_of_float", use("Not", [2])), ("gather_by_floats", use("Gather", [3], [1])),
            ("reshape_by_floats", use("Reshape", [2], [1])), ("and_of_floats", use("And", [2], [2])),
            # sizes
            ("expand_that_overflows", use("Expand", [1], ints(2**31, 2**31, 2**31))),
            ("expand_to_256_tib", use("Expand", [1], ints(2**46))),
            ("tile_that_overflows", use("Tile", [2], ints(2**62))),
            ("constant_of_shape_of_256_tib", use("ConstantOfShape", ints(2**46))),
            ("constant_of_shape_that_overflows", use("ConstantOfShape", ints(2**32, 2**32))),
            ("pad_that_overflows", use("Pad", [2], ints(2**62, 2**62))),
            ("range_of_256_tib", use("Range", np.array(0, np.int64), np.array(2**45, np.int64), np.array(1, np.int64))),
            ("resize_that_overflows", use("Resize", image, None, None, ints(1, 1, 2**33, 2**33)))):
        files.run(f"misuse/{name}", model, "bad_node")
    add_text(files)


def add_text(files):
    """What is wrong with text shows when it is read: the element is named."""
    def words(*values):
        return np.array(values, object)

    for name, model, expected in (
            ("cast_of_no_number", use("Cast", words("1", "12x"), to=F32), "'12x'"),
            ("cast_of_too_much", use("Cast", words("256"), to=U8), "uint8"),
            ("cast_of_a_huge_integer", use("Cast", words("9223372036854775808"), to=I64), "int64"),
            ("cast_of_nothing", use("Cast", words(""), to=I64), "is no number"),
            ("normalize_a_matrix", use("StringNormalizer", words(["a"], ["b"])), "[2,1]"),
            ("normalize_no_utf8", use("StringNormalizer", np.array([b"a\xff"], object), case_change_action="UPPER"), "UTF-8"),
            ("normalize_by_no_locale", use("StringNormalizer", words("a"), case_change_action="UPPER", locale="x y"), "'x y'"),
            ("normalize_by_no_action", use("StringNormalizer", words("a"), case_change_action="Lower"), "'Lower'"),
            ("unique_along_no_axis", use("Unique", words("a"), axis=1), "axis 1 is not in"),
            ("concat_of_other_shapes", use("StringConcat", words("a", "b"), words("a", "b", "c"), opset=20), "broadcast"),
            ("pattern_that_does_not_end", use("RegexFullMatch", words("a"), pattern="a(b", opset=20), "'a(b'"),
            ("pattern_of_too_much", use("RegexFullMatch", words("a"), pattern="((a{99}){99}){99}", opset=20), "'((a{99}){99}){99}'"),
            ("equal_of_text_and_numbers", use("Equal", words("a"), np.ones(1, np.float32)), "string"),
            ("gradient_of_no_value", gradient("Exp", y="z"), "'z'"),
            ("gradient_of_no_derivative", gradient("Ceil"), "Ceil"),
            ("gradient_of_integers", gradient("Cast", to=I64), "y is int64[2]")):
        files.run(f"misuse/{name}", model, "bad_node", expected)
