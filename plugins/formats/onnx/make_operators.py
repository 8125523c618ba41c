#!/usr/bin/python3
"""Writes operator_table.hpp: every version of every operator of ONNX, one line an operator. Needs python3-onnx.

  make_operators.py > operator_table.hpp

Up to opset 17 the facts are those of python3-onnx 1.12 (onnx.defs); from 18 on they are the table NEWER below, after the
operator sets of ONNX 1.13 to 1.22; the table MICROSOFT has those of com.microsoft. A version is
number(inputs,outputs)attributes  where inputs and outputs have a letter each: r required, o optional, vN the last one may
repeat, N times at least; an attribute is  name:kind  with the kind of AttributeProto as a letter (small: one, capital:
many; y = type, p = sparse tensor), and ! where it is required. A number alone: as the version before. A number and x: the
operator is gone since then.
"""
import onnx

KINDS = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "FLOATS": "F", "INTS": "I", "STRINGS": "S",
         "TENSORS": "T", "GRAPHS": "G", "SPARSE_TENSOR": "p", "SPARSE_TENSORS": "P", "TYPE_PROTO": "y"}

REDUCE = "(ro,r)keepdims:i,noop_with_empty_axes:i"
SAME = None  # as the version before, with more element types
NEWER = {
    18: {"Pad": "(rroo,r)mode:s", "CenterCropPad": "(rr,r)axes:I", "Mish": "(r,r)", "OptionalGetElement": "(r,r)",
         "Resize": "(rooo,r)antialias:i,axes:I,coordinate_transformation_mode:s,cubic_coeff_a:f,exclude_outside:i,"
                   "extrapolation_value:f,keep_aspect_ratio_policy:s,mode:s,nearest_mode:s",
         "OptionalHasElement": "(o,r)", "Split": "(ro,v1)axis:i,num_outputs:i",
         "Col2Im": "(rrr,r)dilations:I,pads:I,strides:I", "ScatterND": "(rrr,r)reduction:s",
         "ScatterElements": "(rrr,r)axis:i,reduction:s", "ReduceSumSquare": REDUCE, "ReduceLogSum": REDUCE,
         "ReduceLogSumExp": REDUCE, "ReduceL1": REDUCE, "ReduceL2": REDUCE, "ReduceMax": REDUCE, "ReduceMin": REDUCE,
         "ReduceMean": REDUCE, "ReduceProd": REDUCE, "BitwiseAnd": "(rr,r)", "BitwiseOr": "(rr,r)",
         "BitwiseXor": "(rr,r)", "BitwiseNot": "(r,r)", "GroupNormalization": "(rrr,r)epsilon:f,num_groups:i!",
         "LpPool": "(r,r)auto_pad:s,ceil_mode:i,dilations:I,kernel_shape:I!,p:i,pads:I,strides:I"},
    19: {"Equal": SAME, "Constant": SAME, "Identity": SAME, "If": SAME, "Loop": SAME, "Pad": SAME, "Resize": SAME,
         "Reshape": SAME, "Scan": SAME, "Shape": SAME, "Size": SAME, "DequantizeLinear": SAME,
         "AveragePool": "(r,r)auto_pad:s,ceil_mode:i,count_include_pad:i,dilations:I,kernel_shape:I!,pads:I,strides:I",
         "Cast": "(r,r)saturate:i,to:i!", "CastLike": "(rr,r)saturate:i",
         "DeformConv": "(rrroo,r)dilations:I,group:i,kernel_shape:I,offset_group:i,pads:I,strides:I",
         "QuantizeLinear": "(rro,r)axis:i,saturate:i"},
    20: {"AffineGrid": "(rr,r)align_corners:i", "ConstantOfShape": SAME, "DFT": "(roo,r)inverse:i,onesided:i",
         "Gelu": "(r,r)approximate:s", "GridSample": SAME, "ImageDecoder": "(r,r)pixel_format:s", "IsInf": SAME,
         "IsNaN": SAME, "ReduceMax": SAME, "ReduceMin": SAME, "RegexFullMatch": "(r,r)pattern:s",
         "StringConcat": "(rr,r)", "StringSplit": "(r,rr)delimiter:s,maxsplit:i"},
    21: {"Cast": SAME, "CastLike": SAME, "Constant": SAME, "ConstantOfShape": SAME, "Flatten": SAME, "Identity": SAME,
         "If": SAME, "Loop": SAME, "Pad": SAME, "QLinearMatMul": SAME, "Reshape": SAME, "Scan": SAME, "Shape": SAME,
         "Size": SAME, "Squeeze": SAME, "Transpose": SAME, "Unsqueeze": SAME,
         "DequantizeLinear": "(rro,r)axis:i,block_size:i",
         "GroupNormalization": "(rrr,r)epsilon:f,num_groups:i!,stash_type:i",
         "QuantizeLinear": "(rro,r)axis:i,block_size:i,output_dtype:i,saturate:i"},
    22: dict.fromkeys("""EyeLike RandomUniform RandomNormal RandomUniformLike RandomNormalLike Multinomial Bernoulli
        ThresholdedRelu Selu Elu Mish HardSigmoid HardSwish Softsign Softplus Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh
        Acosh Atanh Round Det NegativeLogLikelihoodLoss AveragePool MaxPool MaxUnpool LpPool MaxRoiPool Conv ConvTranspose
        DeformConv GlobalAveragePool GlobalMaxPool GlobalLpPool InstanceNormalization LpNormalization Dropout RoiAlign RNN
        GRU LSTM GridSample""".split(), SAME),
    23: {**dict.fromkeys("""Cast CastLike Constant ConstantOfShape Flatten Identity If Loop Pad Reshape Scan Shape Size
        Squeeze Transpose Unsqueeze""".split(), SAME),
         "Attention": "(rrrooo,rooo)is_causal:i,kv_num_heads:i,q_num_heads:i,qk_matmul_output_mode:i,scale:f,softcap:f,"
                      "softmax_precision:i",
         "DequantizeLinear": "(rro,r)axis:i,block_size:i,output_dtype:i",
         "QuantizeLinear": "(rro,r)axis:i,block_size:i,output_dtype:i,precision:i,saturate:i",
         "RMSNormalization": "(rr,r)axis:i,epsilon:f,stash_type:i",
         "RotaryEmbedding": "(rrro,r)interleaved:i,num_heads:i,rotary_embedding_dim:i"},
    24: {**dict.fromkeys("""Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear Reshape
        Scan Shape Size SplitToSequence Squeeze TopK Transpose Unsqueeze""".split(), SAME),
         "Attention": "(rrroooo,rooo)is_causal:i,kv_num_heads:i,q_num_heads:i,qk_matmul_output_mode:i,scale:f,softcap:f,"
                      "softmax_precision:i",
         "Cast": "(r,r)round_mode:s,saturate:i,to:i!", "CastLike": "(rr,r)round_mode:s,saturate:i",
         "Swish": "(r,r)alpha:f", "TensorScatter": "(rro,r)axis:i,mode:s"},
    25: dict.fromkeys("""Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad
        QuantizeLinear Reshape Scan Shape Size Squeeze Transpose Unsqueeze""".split(), SAME),
    26: {"BitCast": "(r,r)to:i!", "CumProd": "(rr,r)exclusive:i,reverse:i"},
    # Of these only the names are established here, so their use is not checked.
    27: {"CausalConvWithState": "(v0,v0)", "LinearAttention": "(v0,v0)", "Range": SAME},
}
# Operators that exporters wrote in the domain of ONNX before, or without, a definition of ONNX.
EARLY = {"LayerNormalization": {1: "(rro,roo)axis:i,epsilon:f,stash_type:i"},
         "SimplifiedLayerNormalization": {1: "(rr,ro)axis:i,epsilon:f,stash_type:i"}}
# Those of com.microsoft that are known here; it has one version, which grows.
CONV = "auto_pad:s,dilations:I,group:i,kernel_shape:I,pads:I,strides:I"
QKV = "do_rotary:i,mask_filter_value:f,num_heads:i!,past_present_share_buffer:i"
TRANSPOSED = "alpha:f,transA:i,transB:i"
SKIP = "(rrroo,rooo)epsilon:f"
GROUP = "activation:i!,channels_last:i,epsilon:f,groups:i!"
MICROSOFT = {
    "Attention": f"(rrooooo,ro){QKV},qkv_hidden_sizes:I,rotary_embedding_dim:i,scale:f,unidirectional:i",
    "BiasAdd": "(rrr,r)", "BiasDropout": "(rrooo,ro)seed:i", "BiasSoftmax": "(rr,r)axis:i,is_inner_broadcast:i!",
    "CausalConvWithState": "(rroo,ro)activation:s,channels_last:i,dilation:i,ndim:i,state_window:i",
    "DecoderMaskedMultiHeadAttention": "(roooooooooo,rooo)mask_filter_value:f,num_heads:i!,output_qk:i,past_present_share_buffer:i,"
                                       "scale:f",
    "FusedMatMulActivation": f"(rr,r)activation:s!,activation_alpha:f,activation_axis:i,activation_beta:f,activation_gamma:f,{TRANSPOSED},"
                             "transBatchA:i,transBatchB:i",
    "GatedRelativePositionBias": "(rrrrrro,r)num_heads:i!",
    "GatherBlockQuantized": "(rrro,r)bits:i,block_size:i,gather_axis:i,quantize_axis:i",
    "GroupNorm": f"(rrr,r){GROUP}", "SkipGroupNorm": f"(rrrro,ro){GROUP}",
    "NhwcConv": f"(rro,r){CONV}", "NhwcFusedConv": f"(rroo,r)activation:s,activation_params:F,{CONV}",
    "NhwcMaxPool": "(r,r)auto_pad:s,ceil_mode:i,dilations:I,kernel_shape:I!,pads:I,strides:I",
    "QEmbedLayerNormalization": "(rorrorrorrorrrrorr,rr)epsilon:f",
    "RelativePositionBias": "(rrr,r)is_bidirectional:i,max_distance:i!", "BiasGelu": "(rr,r)", "BiasSplitGelu": "(rr,r)", "CDist": "(rr,r)metric:s",
    "DequantizeLinear": "(rro,r)axis:i", "DynamicQuantizeMatMul": "(rrroo,r)",
    "DynamicQuantizeLSTM": "(rrrooooorrrr,ooo)activation_alpha:F,activation_beta:F,activations:S,clip:f,direction:s,"
                           "hidden_size:i,input_forget:i",
    "EmbedLayerNormalization": "(rorrorroo,roo)epsilon:f,mask_index_type:i", "FastGelu": "(ro,r)",
    "FusedConv": f"(rroo,r)activation:s,activation_params:F,{CONV}",
    "FusedGemm": "(rro,r)activation:s,activation_alpha:f,activation_beta:f,activation_gamma:f,alpha:f,beta:f,transA:i,transB:i",
    "FusedMatMul": f"(rr,r){TRANSPOSED},transBatchA:i,transBatchB:i", "GatherND": "(rr,r)", "Gelu": "(r,r)",
    "GemmFastGelu": "(rro,r)", "GridSample": "(rr,r)align_corners:i,mode:s,padding_mode:s",
    "GroupQueryAttention": "(roooorrooooooooo,rooo)causal:i,do_rotary:i,k_quant_type:s,kv_cache_bit_width:i,"
                           "kv_num_heads:i!,local_window_size:i,num_heads:i!,qk_norm_epsilon:f,qk_output:i,"
                           "rotary_interleaved:i,scale:f,sliding_window_cache:i,smooth_softmax:i,softcap:f,v_quant_type:s",
    "Inverse": "(r,r)", "MatMulIntegerToFloat": "(rrrrooo,r)",
    "MatMulNBits": "(rrrooo,r)K:i!,N:i!,accuracy_level:i,bits:i,block_size:i!,weight_prepacked:i",
    "MultiHeadAttention": "(rooooooooo,rooo)mask_filter_value:f,num_heads:i!,scale:f,unidirectional:i",
    "Pad": "(rro,r)mode:s", "QAttention": f"(rrrrroooo,ro){QKV},scale:f,unidirectional:i",
    "QGemm": f"(rrrrrrooo,r){TRANSPOSED}", "QLinearAdd": "(rrorroro,r)",
    "QLinearAveragePool": "(rroro,r)auto_pad:s,ceil_mode:i,channels_last:i,count_include_pad:i,kernel_shape:I!,pads:I,strides:I",
    "QLinearConcat": "(rrv1,r)axis:i!", "QLinearConv": "(rrrrrrrro,r)" + CONV.replace(",dilations", ",channels_last:i,dilations"),
    "QLinearGlobalAveragePool": "(rrrrr,r)channels_last:i", "QLinearLeakyRelu": "(rroro,r)alpha:f",
    "QLinearMul": "(rrorroro,r)", "QLinearReduceMean": "(rroro,r)axes:I!,keepdims:i!", "QLinearSigmoid": "(rroro,r)",
    "QLinearSoftmax": "(rrorr,r)axis:i,opset:i!", "QLinearWhere": "(rrrrrrrrr,r)", "QuantizeLinear": "(rro,r)axis:i",
    "QuickGelu": "(r,r)alpha:f", "Range": "(rro,r)",
    "RotaryEmbedding": "(rrrr,r)interleaved:i,is_packed_batching:i,num_heads:i,rotary_embedding_dim:i,scale:f",
    "SkipLayerNormalization": SKIP, "SkipSimplifiedLayerNormalization": SKIP.replace("oo,", "o,", 1),
    "TransposeMatMul": f"(rr,r){TRANSPOSED}", "Trilu": "(ro,r)upper:i", "Unique": "(r,rrr)",
}
NEWER_ML = {4: {"LabelEncoder": "(r,r)"},
            5: {"LabelEncoder": "(r,r)", "TreeEnsemble": "(r,r)", "TreeEnsembleClassifier": "(r,rr)",
                "TreeEnsembleRegressor": "(r,r)"}}

HEAD = """// Every version of every operator of ONNX. Made by make_operators.py, which says what a line means: do not edit.
#pragma once

#include <string_view>

namespace belay::onnx {

struct OperatorRow {
  std::string_view domain, name, versions;
};

// clang-format off
inline constexpr OperatorRow kOperatorTable[] = {  // sorted by domain and name"""
TAIL = """};
// clang-format on

}  // namespace belay::onnx"""


def parameters(formal, least):
    letters = {"Single": "r", "Optional": "o"}
    return "".join(letters.get(p.option.name) or f"v{max(0, least - i)}" for i, p in enumerate(formal))


def main():
    operators = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.deprecated:
            text = "x"
        else:
            attributes = ",".join(f"{name}:{KINDS[a.type.name]}{'!' * a.required}"
                                  for name, a in sorted(schema.attributes.items()))
            inputs = parameters(schema.inputs, schema.min_input)
            text = f"({inputs},{parameters(schema.outputs, schema.min_output)}){attributes}"
        operators.setdefault((schema.domain, schema.name), {})[schema.since_version] = text
    for domain, newer in ("", NEWER), ("ai.onnx.ml", NEWER_ML):
        for version, changes in newer.items():
            for name, text in changes.items():
                versions = operators.setdefault((domain, name), {})
                versions[version] = versions[max(versions)] if text is SAME else text
    for name, versions in EARLY.items():
        operators[("", name)] = versions | operators.get(("", name), {})
    for name, text in MICROSOFT.items():
        operators[("com.microsoft", name)] = {1: text}
    print(HEAD)
    for (domain, name), versions in sorted(operators.items()):
        lines = [versions[version] for version in sorted(versions)]
        text = " ".join(f"{version}{'' if i and lines[i] == lines[i - 1] else lines[i]}"
                        for i, version in enumerate(sorted(versions)))
        print(f'    {{"{domain}", "{name}", "{text}"}},')
    print(TAIL)


if __name__ == "__main__":
    main()
