"""Which element types the standard allows for the parameters of each version of each operator: onnx.defs up to opset 17, the
table below for what later opsets changed, as the standard's list of operators has it."""
import re

import onnx

from values import (BF16, BOOL, C64, C128, E2M1, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, F16, F32, F64, I2, I4, I8, I16, I32, I64,
                    NAMES, STRING, U2, U4, U8, U16, U32, U64)

DEBIAN = 17  # the newest opset that Debian's python3-onnx knows
NEWEST = 26  # the newest of which types are known here
INT = [I8, I16, I32, I64, U8, U16, U32, U64]
F8 = [E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ]
FL, FL4 = [F16, F32, F64], [F16, F32, F64, BF16]
FL9 = FL4 + F8
NUM4 = INT + FL4
MATH = [U32, U64, I32, I64] + FL4  # of reductions
ALL = INT + FL + [BOOL, STRING, C64, C128]
ALL4 = ALL + [BF16]
GROWING = {19: ALL4 + F8, 21: ALL4 + F8 + [U4, I4], 23: ALL4 + F8 + [U4, I4, E2M1], 24: ALL4 + F8 + [U4, I4, E2M1, E8M0],
           25: ALL4 + F8 + [U4, I4, E2M1, E8M0, U2, I2]}
INDEX = [I32, I64]


def casts(version):
    return [t for t in GROWING[version] if t not in (C64, C128)]


# {version: {operator: {type variable: types}}}
NEWER = {
    18: {**dict.fromkeys(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"], {"T": INT}),
         "CenterCropPad": {"T": ALL4, "Tind": INDEX}, "Col2Im": {"T": ALL4}, "GroupNormalization": {"T": FL4}, "LpPool": {"T": FL},
         "Mish": {"T": FL}, "OptionalGetElement": {"V": ALL}, "OptionalHasElement": {"V": ALL}, "Pad": {"T": ALL4, "Tind": INDEX},
         **dict.fromkeys("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSumSquare".split(), {"T": MATH}),
         **dict.fromkeys(["ReduceMax", "ReduceMin"], {"T": MATH + [I8, U8]}),
         "Resize": {"T1": ALL4, "T2": FL}, "ScatterElements": {"T": ALL4, "Tind": INDEX}, "ScatterND": {"T": ALL4},
         "Split": {"T": ALL4}},
    19: {"AveragePool": {"T": FL}, "Cast": {"T1": casts(19), "T2": casts(19)}, "CastLike": {"T1": casts(19), "T2": casts(19)},
         "DeformConv": {"T": FL}, "DequantizeLinear": {"T1": [I8, U8, I32] + F8, "T2": [F32, F16, BF16]},
         "Equal": {"T": NUM4 + [BOOL, STRING]}, "Pad": {"T": ALL4, "Tind": INDEX},
         "QuantizeLinear": {"T1": [F32, F16, BF16, I32], "T2": [I8, U8] + F8}, "Resize": {"T1": ALL4, "T2": FL}},
    20: {"AffineGrid": {"T1": FL4, "T2": [I64]}, "ConstantOfShape": {"T2": INT + [BOOL] + FL9}, "DFT": {"T1": FL4, "T2": INDEX},
         "Gelu": {"T": FL4}, "GridSample": {"T1": ALL, "T2": FL}, "IsInf": {"T1": FL9}, "IsNaN": {"T1": FL9},
         **dict.fromkeys(["ReduceMax", "ReduceMin"], {"T": MATH + [I8, U8, BOOL]}), "RegexFullMatch": {"T1": [STRING]},
         "StringConcat": {"T": [STRING]}, "StringSplit": {"T1": [STRING]}},
    21: {"Cast": {"T1": casts(21), "T2": casts(21)}, "CastLike": {"T1": casts(21), "T2": casts(21)},
         "ConstantOfShape": {"T2": INT + [BOOL, U4, I4] + FL9},
         "DequantizeLinear": {"T1": [I8, U8, I16, U16, I32, U4, I4] + F8, "T2": [F32, F16, BF16]}, "GroupNormalization": {"T": FL4},
         "QLinearMatMul": {"TS": [F32, F16, BF16], "T1": [I8, U8] + F8, "T2": [I8, U8] + F8, "T3": [I8, U8] + F8},
         "QuantizeLinear": {"T1": [F32, F16, BF16, I32], "T2": [I8, U8, I16, U16, U4, I4] + F8}},
    22: {**dict.fromkeys("""ThresholdedRelu Selu Elu Mish HardSigmoid HardSwish Softsign Softplus Sin Cos Tan Asin Acos Atan Sinh Cosh
         Asinh Acosh Atanh Round Det AveragePool LpPool Conv ConvTranspose DeformConv GlobalAveragePool GlobalMaxPool GlobalLpPool
         InstanceNormalization LpNormalization RandomUniform RandomNormal MaxRoiPool""".split(), {"T": FL4}),
         "EyeLike": {"T1": NUM4 + [BOOL], "T2": NUM4 + [BOOL]},
         **dict.fromkeys(["RandomUniformLike", "RandomNormalLike"], {"T1": ALL4, "T2": FL4}),
         "Multinomial": {"T1": FL4, "T2": INDEX}, "Bernoulli": {"T1": FL4, "T2": NUM4 + [BOOL]},
         "NegativeLogLikelihoodLoss": {"T": FL4, "Tind": INDEX}, "MaxPool": {"T": FL4 + [I8, U8]}, "MaxUnpool": {"T1": FL4},
         "Dropout": {"T": FL9, "T1": FL9}, "RoiAlign": {"T1": FL4}, **dict.fromkeys(["RNN", "GRU", "LSTM"], {"T": FL4}),
         "GridSample": {"T1": ALL4, "T2": FL4}},
    23: {"Cast": {"T1": casts(23), "T2": casts(23)}, "CastLike": {"T1": casts(23), "T2": casts(23)},
         "ConstantOfShape": {"T2": INT + [BOOL, U4, I4, E2M1] + FL9}, "Attention": {"T1": FL4, "T2": FL4, "U": NUM4 + [BOOL]},
         "DequantizeLinear": {"T1": [I8, U8, I16, U16, I32, U4, I4, E2M1] + F8, "T2": [F32, F16, BF16], "T3": [F32, F16, BF16]},
         "QuantizeLinear": {"T1": [F32, F16, BF16, I32], "T2": [F32, F16, BF16, I32], "T3": [I8, U8, I16, U16, U4, I4, E2M1] + F8},
         "RMSNormalization": {"T": FL4, "V": FL4}, "RotaryEmbedding": {"T": [F32, F16, BF16]}},
    24: {"Cast": {"T1": casts(24), "T2": casts(24)}, "CastLike": {"T1": casts(24), "T2": casts(24)},
         "ConstantOfShape": {"T2": INT + [BOOL, U4, I4, E2M1, E8M0] + FL9}, "Attention": {"T1": FL4, "T2": FL4, "U": NUM4 + [BOOL]},
         "DequantizeLinear": {"T1": [I8, U8, I16, U16, I32, U4, I4, E2M1] + F8, "T2": [F32, F16, BF16, E8M0], "T3": [F32, F16, BF16]},
         "QuantizeLinear": {"T1": [F32, F16, BF16, I32], "T2": [F32, F16, BF16, I32, E8M0], "T3": [I8, U8, I16, U16, U4, I4, E2M1] + F8},
         "SplitToSequence": {"T": ALL4, "I": INDEX}, "Swish": {"T": [F32, F16, BF16]}, "TensorScatter": {"T": ALL4},
         "TopK": {"T": NUM4}},
    25: {"Cast": {"T1": casts(25), "T2": casts(25)}, "CastLike": {"T1": casts(25), "T2": casts(25)},
         "ConstantOfShape": {"T2": INT + [BOOL, U4, I4, E2M1, E8M0, U2, I2] + FL9},
         "DequantizeLinear": {"T1": [I8, U8, I16, U16, I32, U4, I4, E2M1, U2, I2] + F8, "T2": [F32, F16, BF16, E8M0], "T3": [F32, F16, BF16]},
         "QuantizeLinear": {"T1": [F32, F16, BF16, I32], "T2": [F32, F16, BF16, I32, E8M0],
                            "T3": [I8, U8, I16, U16, U4, I4, E2M1, U2, I2] + F8}},
    26: {"BitCast": {"T1": [t for t in GROWING[25] if t != STRING], "T2": [t for t in GROWING[25] if t != STRING]},
         "CumProd": {"T": [I32, I64, U32, U64] + FL4, "T2": INDEX}},
}
# What moves elements or looks at shapes takes every type that there was.
MOVES = {19: "Constant Identity If Loop Reshape Scan Shape Size", 21: "Constant Flatten Identity If Loop Pad Reshape Scan Shape Size "
         "Squeeze Transpose Unsqueeze"}
MOVES[23] = MOVES[24] = MOVES[25] = MOVES[21]
VARIABLE = {**dict.fromkeys("Identity If Loop Scan".split(), "V")}
for _version, _ops in MOVES.items():
    for _op in _ops.split():
        NEWER[_version][_op] = {VARIABLE.get(_op, "T"): GROWING[_version]}


def parsed(name):
    """"seq(tensor(float))" -> ("seq", F32)"""
    kind, element = re.fullmatch(r"(?:(seq|optional|optional\(seq)\()?tensor\((\w+)\)+", name).groups()
    return {"optional(seq": "optional(seq)"}.get(kind, kind or "tensor"), NAMES[element]


def uses():
    """[(domain, operator, version, {type variable: [(kind, element type)]})] of every version that is in force at opset 7 or
    later, sorted."""
    out = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.deprecated or schema.domain == "ai.onnx.ml":
            continue
        out.setdefault((schema.domain, schema.name), {})[schema.since_version] = {
            c.type_param_str: [parsed(t) for t in sorted(c.allowed_type_strs)] for c in schema.type_constraints}
    for version, changes in NEWER.items():
        for op, variables in changes.items():
            out.setdefault(("", op), {})[version] = {v: [("tensor", t) for t in types] for v, types in variables.items()}
    for (domain, op), versions in sorted(out.items()):
        old = [v for v in versions if v <= 7]
        for version in sorted(versions):
            if not domain and version < max(old, default=0):
                continue
            yield domain, op, version, versions[version]
