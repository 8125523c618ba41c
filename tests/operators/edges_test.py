#!/usr/bin/python3
"""Operators at the edges of their shapes and arguments, against numpy: scalars, dims of 0 and 1, broadcasting, axes that are
negative, out of range or named twice, nothing to reduce, bounds at the ends of integers, NaN.

  edges_test.py DRIVER PLUGINS [TOPIC]...
"""
import sys

import numpy as np

from onnx import helper

from drive import Use
from values import BOOL, F32, I64
from ways import Suite

f32 = np.float32
MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min
RNG = np.random.RandomState(11)
TOPICS = {}


def topic(function):
    TOPICS[function.__name__] = function
    return function


def x(*shape):
    return np.asarray(RNG.randint(-8, 9, shape) / 4, f32)


def ints(*values):
    return np.array(values, np.int64)


def scalar(value, kind=np.int64):
    return np.asarray(value, kind).reshape(())


def empty(*shape, kind=np.float32):
    return np.zeros(shape, kind)


@topic
def scalars():
    a, b = x(), x()
    for op, function in ("Relu", lambda v: np.maximum(v, 0)), ("Exp", np.exp), ("Abs", np.abs), ("Neg", np.negative), ("Floor", np.floor):
        yield Use(op, [a], [f32(function(a)).reshape(())])
    for op, function in ("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract), ("Max", np.maximum), ("Min", np.minimum):
        yield Use(op, [a, b], [f32(function(a, b)).reshape(())])
        yield Use(op, [a, x(0, 3)], [empty(0, 3)])
    for op in "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean":
        for keep in 0, 1:
            yield Use(op, [a], [a], keepdims=keep)
            yield Use(op, [a], [a], version=18, keepdims=keep)
    yield Use("ReduceL1", [a], [np.abs(a)], version=18)
    yield Use("ReduceSumSquare", [a], [a * a], version=18)
    yield Use("ReduceSum", [a, ints(0)], error="axis")
    yield Use("Transpose", [a], [a])
    yield Use("Reshape", [a, ints(1, 1)], [a.reshape(1, 1)])
    yield Use("Reshape", [a, ints(-1)], [a.reshape(1)])
    yield Use("Reshape", [x(1, 1), ints()], [(F32, ())])
    yield Use("Unsqueeze", [a, ints(0)], [a.reshape(1)])
    yield Use("Unsqueeze", [a, ints(-1, 0)], [a.reshape(1, 1)])
    yield Use("Squeeze", [x(1, 1)], [(F32, ())])
    yield Use("Squeeze", [a], [a])
    yield Use("Flatten", [a], [a.reshape(1, 1)], axis=0)
    yield Use("Expand", [a, ints(2, 3)], [np.broadcast_to(a, (2, 3)).copy()])
    yield Use("Expand", [a, ints()], [a])
    yield Use("Tile", [a, ints()], [a])
    yield Use("Shape", [a], [ints()])
    yield Use("Size", [a], [scalar(1)])
    yield Use("Gather", [x(3, 2), scalar(1)], [(F32, (2,))])
    yield Use("Gather", [np.arange(3, dtype=f32), scalar(-1)], [f32(2).reshape(())])
    yield Use("Gather", [a, scalar(0)], error=["rank", "Gather"])
    yield Use("Concat", [a, b], error="axis", axis=0)
    yield Use("Slice", [a, ints(0), ints(1)], error="Slice")
    yield Use("Softmax", [a], error="axis")
    yield Use("ArgMax", [a], error="axis")
    yield Use("Where", [scalar(True, bool), a, b], [a])
    yield Use("Clip", [a, f32(-1).reshape(()), f32(1).reshape(())], [f32(np.clip(a, -1, 1)).reshape(())])
    yield Use("Cast", [a], [np.asarray(a, np.int32)], to=6)
    yield Use("ConstantOfShape", [ints()], [f32(0).reshape(())])
    yield Use("NonZero", [f32(3).reshape(())], [np.zeros((0, 1), np.int64)], note="not as numpy: (0, N)")
    yield Use("NonZero", [f32(0).reshape(())], [np.zeros((0, 0), np.int64)])
    yield Use("Pad", [a, ints()], [a])
    yield Use("MatMul", [a, x(2, 2)], error="rank")
    yield Use("OneHot", [scalar(1), scalar(3), f32([0, 5])], [f32([0, 5, 0])])
    yield Use("CumSum", [a, scalar(0)], error="axis")
    yield Use("IsNaN", [a], [scalar(False, bool)])
    yield Use("Unique", [a], [a.reshape(1), ints(0), ints(0), ints(1)])
    yield Use("Compress", [a, np.array([True])], [a.reshape(1)])
    yield Use("Identity", [a], [a])
    yield Use("Mean", [a, b, x(2)], [(F32, (2,))])
    yield Use("Einsum", [a, x(2, 2)], [(F32, (2, 2))], equation=",ij->ij")
    yield Use("QuantizeLinear", [f32(1.4).reshape(()), f32(0.5).reshape(()), np.uint8(3).reshape(())], [np.uint8(6).reshape(())])
    yield Use("Range", [scalar(0, f32), scalar(1, f32), scalar(0.25, f32)], [f32([0, 0.25, 0.5, 0.75])])
    yield Use("ScatterND", [a, np.zeros((0, 0), np.int64), empty(0)], error="rank")
    yield Use("GatherND", [x(2, 2), ints(1, 1)], [(F32, ())])


@topic
def nothing():
    """dims of 0"""
    for op in "Add", "Mul", "Sub", "Div", "Max", "Min", "Pow":
        for left, right, out in ((0,), (1,), (0,)), ((0, 1), (1, 3), (0, 3)), ((2, 0), (2, 1), (2, 0)), ((1, 0), (0, 1), (0, 0)), ((0, 3), (3,), (0, 3)):
            yield Use(op, [x(*left), x(*right)], [empty(*out)])
        yield Use(op, [x(0), x(2)], error="broadcast")
    for op in "Equal", "Less", "Greater":
        yield Use(op, [x(0, 1), x(1, 3)], [empty(0, 3, kind=bool)])
    for op in "Relu", "Exp", "Tanh", "Erf", "Sigmoid", "Neg", "Sqrt", "Clip", "Identity", "Gelu", "Softplus", "LeakyRelu", "Sin":
        yield Use(op, [x(0, 3)], [empty(0, 3)], version=20)
    yield Use("Concat", [x(0, 3), x(2, 3), x(0, 3)], [(F32, (2, 3))], axis=0)
    yield Use("Concat", [x(0, 3), x(0, 3)], [empty(0, 3)], axis=0)
    yield Use("Concat", [x(2, 0), x(2, 0)], [empty(2, 0)], axis=1)
    yield Use("Concat", [x(0), x(2, 3)], error="rank", axis=0)
    yield Use("Split", [x(4, 2), ints(0, 4, 0)], [empty(0, 2), (F32, (4, 2)), empty(0, 2)], axis=0)
    yield Use("Split", [x(0, 2), ints(0, 0)], [empty(0, 2), empty(0, 2)], axis=0)
    yield Use("Split", [x(0, 2)], [empty(0, 2), empty(0, 2)], version=18, axis=0, num_outputs=2)
    yield Use("Split", [x(3)], [(F32, (2,)), (F32, (1,))], version=18, axis=0, num_outputs=2)
    yield Use("Split", [x(4), ints(1, 2)], [(F32, None), (F32, None)], error="split", axis=0)
    yield Use("Split", [x(4), ints(5, -1)], [(F32, None), (F32, None)], error="split", axis=0)
    yield Use("Transpose", [x(0, 3, 2)], [empty(2, 0, 3)], perm=[2, 0, 1])
    yield Use("Reshape", [x(0, 3), ints(0, 4)], [empty(0, 4)])
    yield Use("Reshape", [x(0, 3), ints(3, 0)], [empty(3, 0)], allowzero=1)
    yield Use("Reshape", [x(2, 3), ints(0, -1)], [(F32, (2, 3))])
    yield Use("Reshape", [x(2, 3), ints(3, 0)], error="elements", allowzero=1)
    yield Use("Reshape", [x(2, 3), ints(4, 0)], error="elements")
    yield Use("Reshape", [x(2, 3), ints(-1, -1)], error="-1")
    yield Use("Reshape", [x(2, 3), ints(-1, 4)], error="")
    yield Use("Reshape", [x(2, 3), ints(-2, 3)], error="-2")
    yield Use("Reshape", [x(2, 3), ints(0, -1)], error="do not fill", allowzero=1, note="0 and -1 with allowzero")
    yield Use("Flatten", [x(0, 3, 2)], [empty(0, 6)], axis=1)
    yield Use("Squeeze", [x(0, 1), ints(1)], [empty(0)])
    yield Use("Unsqueeze", [x(0), ints(0)], [empty(1, 0)])
    yield Use("Expand", [x(1, 3), ints(0, 3)], [empty(0, 3)])
    yield Use("Expand", [x(3), ints(0, 1)], [empty(0, 3)])
    yield Use("Expand", [x(2), ints(0)], error="broadcast")
    yield Use("Expand", [x(0), ints(1)], [empty(0)])
    yield Use("Tile", [x(2, 3), ints(0, 2)], [empty(0, 6)])
    yield Use("Tile", [x(0, 3), ints(2, 2)], [empty(0, 6)])
    yield Use("Tile", [x(2, 3), ints(-1, 2)], error="-1")
    yield Use("Where", [empty(0, 1, kind=bool), x(3), x(1, 1)], [empty(0, 3)])
    yield Use("Gather", [x(3, 4), empty(0, kind=np.int64)], [empty(0, 4)])
    yield Use("Gather", [x(0, 4), empty(0, kind=np.int64)], [empty(0, 4)])
    yield Use("Gather", [x(0, 4), ints(0)], error=["0"])
    yield Use("GatherElements", [x(3, 4), empty(0, 4, kind=np.int64)], [empty(0, 4)])
    yield Use("GatherND", [x(3, 4), empty(0, 2, kind=np.int64)], [empty(0)])
    a = x(3, 4)
    yield Use("ScatterElements", [a, empty(0, 4, kind=np.int64), empty(0, 4)], [a])
    yield Use("ScatterND", [a, empty(0, 1, kind=np.int64), empty(0, 4)], [a])
    yield Use("Slice", [a, ints(2), ints(2)], [empty(0, 4)])
    yield Use("Pad", [x(0, 2), ints(1, 0, 1, 0)], [empty(2, 2)])
    yield Use("Pad", [x(0, 2), ints(1, 0, 1, 0)], error="", mode="edge")
    yield Use("CumSum", [x(0, 3), scalar(0)], [empty(0, 3)])
    yield Use("NonZero", [x(0, 3)], [empty(2, 0, kind=np.int64)])
    yield Use("NonZero", [empty(2, 3)], [empty(2, 0, kind=np.int64)])
    yield Use("Unique", [x(0)], [empty(0)] + [empty(0, kind=np.int64)] * 3)
    yield Use("Compress", [a, np.zeros(3, bool)], [empty(0, 4)], axis=0)
    yield Use("TopK", [a, ints(0)], [empty(3, 0), empty(3, 0, kind=np.int64)])
    yield Use("TopK", [x(0, 4), ints(2)], [empty(0, 2), empty(0, 2, kind=np.int64)])
    yield Use("TopK", [a, ints(5)], [(F32, None), (I64, None)], error="5")
    yield Use("TopK", [a, ints(-1)], [(F32, None), (I64, None)], error="-1")
    yield Use("Range", [scalar(3), scalar(3), scalar(1)], [ints()])
    yield Use("Range", [scalar(3), scalar(0), scalar(1)], [ints()])
    yield Use("Range", [scalar(3), scalar(9), scalar(0)], error="step")
    yield Use("Softmax", [x(2, 0)], [empty(2, 0)])
    yield Use("Softmax", [x(0, 2)], [empty(0, 2)])
    yield Use("LogSoftmax", [x(2, 0)], [empty(2, 0)])
    yield Use("Hardmax", [x(2, 0)], [empty(2, 0)])
    yield Use("Softmax", [x(2, 0)], [empty(2, 0)], version=11, axis=1)
    yield Use("LayerNormalization", [x(0, 4), x(4), x(4)], [empty(0, 4)])
    yield Use("BatchNormalization", [x(0, 3, 2), x(3), x(3), x(3), np.ones(3, f32)], [empty(0, 3, 2)])
    yield Use("InstanceNormalization", [x(0, 3, 2), x(3), x(3)], [empty(0, 3, 2)])
    yield Use("GroupNormalization", [x(0, 4, 2), x(4), x(4)], [empty(0, 4, 2)], version=21, num_groups=2)
    yield Use("RMSNormalization", [x(0, 4), x(4)], [empty(0, 4)], version=23)
    yield Use("LRN", [x(0, 3, 2, 2)], [empty(0, 3, 2, 2)], size=3)
    yield Use("MatMul", [x(2, 0), x(0, 3)], [empty(2, 3)])
    yield Use("MatMul", [x(0, 2), x(2, 3)], [empty(0, 3)])
    yield Use("MatMul", [x(2, 3), x(3, 0)], [empty(2, 0)])
    yield Use("MatMul", [x(0, 2, 3), x(3, 2)], [empty(0, 2, 2)])
    yield Use("MatMul", [x(0), x(0)], [empty()])
    yield Use("MatMul", [empty(2, 0, kind=np.int64), empty(0, 3, kind=np.int64)], [empty(2, 3, kind=np.int64)])
    c = x(3)
    yield Use("Gemm", [x(2, 0), x(0, 3), c], [np.broadcast_to(c * 2, (2, 3)).astype(f32)], beta=2.0)
    yield Use("Gemm", [x(0, 2), x(2, 3), c], [empty(0, 3)])
    yield Use("Einsum", [x(2, 0), x(0, 3)], [empty(2, 3)], equation="ij,jk->ik")
    yield Use("MatMulInteger", [empty(2, 0, kind=np.uint8), empty(0, 3, kind=np.uint8)], [empty(2, 3, kind=np.int32)])
    yield Use("QLinearMatMul", [empty(2, 0, kind=np.uint8), f32(1).reshape(()), np.uint8(3).reshape(()), empty(0, 3, kind=np.uint8), f32(1).reshape(()),
                                np.uint8(1).reshape(()), f32(1).reshape(()), np.uint8(7).reshape(())], [np.full((2, 3), 7, np.uint8)])
    yield Use("Conv", [x(0, 2, 5, 5), x(3, 2, 3, 3)], [empty(0, 3, 3, 3)])
    yield Use("Conv", [x(0, 2, 5), x(3, 2, 3)], [empty(0, 3, 3)])
    yield Use("Conv", [x(2, 4, 5, 5), x(0, 4, 3, 3)], [empty(2, 0, 3, 3)])
    yield Use("ConvTranspose", [x(0, 2, 5, 5), x(2, 3, 3, 3)], [empty(0, 3, 7, 7)])
    yield Use("ConvInteger", [empty(0, 2, 5, 5, kind=np.uint8), empty(3, 2, 3, 3, kind=np.uint8)], [empty(0, 3, 3, 3, kind=np.int32)])
    for op in "MaxPool", "AveragePool", "LpPool":
        yield Use(op, [x(0, 2, 5, 5)], [empty(0, 2, 4, 4)], kernel_shape=[2, 2])
        yield Use(op, [x(2, 0, 5, 5)], [empty(2, 0, 4, 4)], kernel_shape=[2, 2])
    for op in "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool":
        yield Use(op, [x(0, 2, 5, 5)], [empty(0, 2, 1, 1)])
    yield Use("Resize", [x(1, 1, 4, 4), None, None, ints(1, 1, 0, 4)], [empty(1, 1, 0, 4)], mode="nearest")
    yield Use("Resize", [x(1, 1, 4, 4), None, None, ints(1, 1, 1, 1)], [(F32, (1, 1, 1, 1))], mode="linear")
    yield Use("Resize", [x(1, 1, 1, 1), None, None, ints(1, 1, 3, 3)], [(F32, (1, 1, 3, 3))], mode="linear")
    yield Use("Resize", [x(0, 1, 4, 4), None, f32([1, 1, 2, 2])], [empty(0, 1, 8, 8)], mode="linear")
    yield Use("Resize", [x(1, 1, 4, 4), None, f32([1, 1, 0.1, 1])], [empty(1, 1, 0, 4)], mode="linear")
    yield Use("Resize", [x(1, 1, 0, 4), None, None, ints(1, 1, 2, 4)], error="0", mode="nearest")
    yield Use("Resize", [x(1, 1, 4, 4), None, f32([1, 1, -1, 1])], error="-1", mode="linear")
    yield Use("OneHot", [empty(0, kind=np.int64), scalar(3), f32([0, 1])], [empty(0, 3)])
    yield Use("OneHot", [ints(0, 1), scalar(0), f32([0, 1])], error="depth", note="depth 0")
    yield Use("EyeLike", [x(0, 3)], [empty(0, 3)])
    yield Use("Trilu", [x(0, 3)], [empty(0, 3)])
    yield Use("Trilu", [x(3, 0), scalar(7)], [empty(3, 0)])
    yield Use("DepthToSpace", [x(0, 4, 2, 2)], [empty(0, 1, 4, 4)], blocksize=2)
    yield Use("SpaceToDepth", [x(1, 1, 0, 2)], [empty(1, 4, 0, 1)], blocksize=2)
    yield Use("NonMaxSuppression", [empty(1, 0, 4), empty(1, 1, 0), ints(3), f32([0.5]), f32([0])], [empty(0, 3, kind=np.int64)])
    yield Use("NonMaxSuppression", [x(1, 2, 4), x(1, 1, 2), ints(0), f32([0.5]), f32([0])], [empty(0, 3, kind=np.int64)])
    yield Use("RoiAlign", [x(1, 1, 4, 4), empty(0, 4), empty(0, kind=np.int64)], [empty(0, 1, 2, 2)], output_height=2, output_width=2)
    yield Use("MaxRoiPool", [x(1, 1, 4, 4), empty(0, 5)], [empty(0, 1, 2, 2)], pooled_shape=[2, 2])
    yield Use("GridSample", [x(1, 1, 2, 2), empty(1, 0, 2, 2)], [empty(1, 1, 0, 2)])
    yield Use("Dropout", [x(0, 3)], [empty(0, 3), empty(0, 3, kind=bool)])
    yield Use("QuantizeLinear", [x(0, 3), f32(1).reshape(())], [empty(0, 3, kind=np.uint8)])
    yield Use("DequantizeLinear", [empty(0, 3, kind=np.uint8), f32(1).reshape(())], [empty(0, 3)])
    yield Use("ReverseSequence", [x(4, 0), empty(0, kind=np.int64)], [empty(4, 0)])
    yield Use("ConstantOfShape", [ints(2, 0)], [empty(2, 0)])
    yield Use("ConstantOfShape", [ints(2, -1)], error="-1")
    yield Use("RandomUniformLike", [x(0, 3)], [empty(0, 3)])
    yield Use("Attention", [x(0, 2, 3, 4), x(0, 2, 5, 4), x(0, 2, 5, 4)], [empty(0, 2, 3, 4)], version=23)
    yield Use("Attention", [x(1, 2, 0, 4), x(1, 2, 5, 4), x(1, 2, 5, 4)], [empty(1, 2, 0, 4)], version=23)
    yield Use("RNN", [x(3, 0, 4), x(1, 2, 4), x(1, 2, 2)], [empty(3, 1, 0, 2), empty(1, 0, 2)], hidden_size=2)
    yield Use("LSTM", [x(0, 2, 4), x(1, 8, 4), x(1, 8, 2)], [empty(0, 1, 2, 2), empty(1, 2, 2), empty(1, 2, 2)], hidden_size=2)
    yield Use("STFT", [x(0, 8, 1), scalar(2), None, scalar(4)], [empty(0, 3, 3, 2)])
    yield Use("Det", [x(0, 3, 3)], [empty(0)])
    yield Use("Det", [x(2, 0, 0)], [np.ones(2, f32)])
    yield Use("Col2Im", [x(0, 4, 4), ints(4, 4), ints(2, 2)], [empty(0, 1, 4, 4)], version=18, strides=[2, 2])
    yield Use("CenterCropPad", [x(0, 3), ints(2, 3)], [empty(2, 3)], version=18)
    yield Use("TensorScatter", [x(2, 3, 4), x(2, 0, 4)], [(F32, (2, 3, 4))], version=24, axis=1)
    yield Use("SequenceConstruct", [x(0), x(0, 2)], [[empty(0), empty(0, 2)]])
    yield Use("SplitToSequence", [x(0, 2)], [[]])
    yield Use("HannWindow", [scalar(0)], [empty(0)])
    yield Use("StringConcat", [np.zeros((0, 2), object), np.array(["a"], object)], [np.zeros((0, 2), object)], version=20)
    yield Use("ReduceSum", [x(0), ints(0)], [empty()], keepdims=0)


@topic
def reductions():
    """over nothing: what changes nothing, or the end of the type"""
    for shape, axes, out in ((0, 3), (0,), (1, 3)), ((2, 0), (1,), (2, 1)), ((0, 0), (0,), (1, 0)):
        full = lambda value, kind=f32: np.full(out, value, kind)
        for op, value in {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceL1": 0, "ReduceL2": 0,
                          "ReduceSumSquare": 0, "ReduceLogSum": -np.inf, "ReduceLogSumExp": -np.inf, "ReduceMean": np.nan}.items():
            yield Use(op, [empty(*shape), np.array(axes)], [full(value)], version=20)
            yield Use(op, [empty(*shape, kind=np.float64), np.array(axes)], [full(value, np.float64)], version=20)
            yield Use(op, [empty(*shape, kind=np.float16), np.array(axes)], [full(value, np.float16)], version=20)
        for kind in np.int32, np.int64, np.uint32, np.uint64, np.int8, np.uint8:
            info = np.iinfo(kind)
            for op, value in {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": info.min, "ReduceMin": info.max, "ReduceL1": 0, "ReduceL2": 0,
                              "ReduceSumSquare": 0}.items():
                yield Use(op, [empty(*shape, kind=kind), np.array(axes)], [full(value, kind)], version=20)
        yield Use("ReduceMax", [empty(*shape, kind=bool), np.array(axes)], [full(False, bool)], version=20)
        yield Use("ReduceMin", [empty(*shape, kind=bool), np.array(axes)], [full(True, bool)], version=20)
    a = x(2, 3, 4)
    for op in "ReduceSum", "ReduceMax", "ReduceMean", "ReduceProd":
        function = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMean": np.mean, "ReduceProd": np.prod}[op]
        yield Use(op, [a, ints()], [a], version=18, noop_with_empty_axes=1)
        yield Use(op, [a], [a], version=18, noop_with_empty_axes=1)
        yield Use(op, [a, ints()], [f32(function(a)).reshape(1, 1, 1)], version=18, noop_with_empty_axes=0, loose=True)
        yield Use(op, [a, ints()], [f32(function(a)).reshape(())], version=18, keepdims=0, loose=True)
        yield Use(op, [a, ints(-1, 0)], [f32(function(a, axis=(0, 2))).reshape(3)], version=18, keepdims=0)
        yield Use(op, [a, ints(-3)], [f32(function(a, axis=0))[None]], version=18)
        yield Use(op, [a, ints(3)], error=["axis", "3"], version=18)
        yield Use(op, [a, ints(-4)], error=["axis", "-4"], version=18)
        yield Use(op, [a, ints(1, -2)], error="twice", version=18)
        yield Use(op, [a, ints(1, 1)], error="twice", version=18)
    yield Use("ReduceLogSum", [np.abs(a) + 1, ints()], [np.log(np.abs(a) + 1)], version=18, noop_with_empty_axes=1)
    yield Use("ReduceL1", [a, ints()], [np.abs(a)], version=18, noop_with_empty_axes=1)
    yield Use("ReduceSumSquare", [a, ints()], [a * a], version=18, noop_with_empty_axes=1)
    yield Use("ReduceMax", [a], [f32(a.max((0, 2))).reshape(1, 3, 1)], version=13, axes=[0, -1])
    yield Use("ReduceMax", [a], error="twice", version=13, axes=[2, -1])
    yield Use("ArgMax", [empty(0, 3)], error="0", axis=0)
    yield Use("ArgMax", [empty(0, 3)], [empty(0, 1, kind=np.int64)], axis=1)
    ties = f32([[1, 3, 3, 2], [5, 5, 1, 5]])
    yield Use("ArgMax", [ties], [np.array([[1], [0]])], axis=1)
    yield Use("ArgMax", [ties], [np.array([[2], [3]])], axis=1, select_last_index=1)
    yield Use("ArgMin", [ties], [np.array([0, 2])], axis=-1, keepdims=0)
    yield Use("ArgMin", [-ties], [np.array([2, 3])], axis=-1, keepdims=0, select_last_index=1)


@topic
def axes():
    a = x(2, 3, 4)
    for bad in 3, -4, MOST, LEAST:
        for op, more in ("Softmax", {}), ("LogSoftmax", {}), ("Hardmax", {}), ("ArgMax", {}), ("ArgMin", {}), ("LpNormalization", {}), ("Compress", {"inputs": [np.array([True])]}), ("Unique", {}):
            yield Use(op, [a, *more.get("inputs", [])], error=[str(bad)], axis=bad)
        yield Use("Concat", [a, a], error=[str(bad)], axis=bad)
        yield Use("Gather", [a, ints(0)], error=[str(bad)], axis=bad)
        yield Use("Split", [a], [(F32, None)], error=[str(bad)], axis=bad)
        yield Use("GatherElements", [a, np.zeros((2, 3, 4), np.int64)], error=[str(bad)], axis=bad)
        yield Use("ScatterElements", [a, np.zeros((2, 3, 4), np.int64), a], error=[str(bad)], axis=bad)
        yield Use("CumSum", [a, scalar(bad)], error=[str(bad)])
        yield Use("TopK", [a, ints(1)], [(F32, None), (I64, None)], error=[str(bad)], axis=bad)
        yield Use("Squeeze", [x(1, 1, 1), ints(bad)], error=[str(bad)])
        yield Use("LayerNormalization", [a, x(4)], error=[str(bad)], axis=bad)
        yield Use("ConcatFromSequence", [[a, a]], error="", axis=bad)
        yield Use("SplitToSequence", [a], [[]], error="", axis=bad)
        yield Use("Slice", [a, ints(0), ints(1), ints(bad)], error=[str(bad)])
        yield Use("Pad", [a, ints(0, 0), None, ints(bad)], error=[str(bad)], version=18)
        yield Use("CenterCropPad", [a, ints(1)], error=[str(bad)], version=18, axes=[bad])
        yield Use("Resize", [a, None, f32([2])], error=[str(bad)], version=18, axes=[bad])
        yield Use("ReverseSequence", [a, ints(1, 1)], error="", batch_axis=bad, time_axis=1)
        yield Use("MeanVarianceNormalization", [a], error=[str(bad)], axes=[bad])
        yield Use("QuantizeLinear", [a, x(3), np.zeros(3, np.uint8)], error=[str(bad)], axis=bad)
    for bad in 4, -5:
        yield Use("Flatten", [a], error=[str(bad)], axis=bad)
        yield Use("Unsqueeze", [a, ints(bad)], error=[str(bad)])
        yield Use("OneHot", [np.zeros((2, 3, 4), np.int64), scalar(2), f32([0, 1])], error=[str(bad)], axis=bad)
    yield Use("Squeeze", [x(1, 2, 1), ints(0, -3)], error="", note="twice")
    yield Use("Squeeze", [a, ints(0)], error="1", note="dim 2")
    yield Use("Unsqueeze", [a, ints(0, 0)], error="", note="twice")
    yield Use("Unsqueeze", [a, ints(0, -5)], error="", note="twice")
    yield Use("Slice", [a, ints(0, 0), ints(1, 1), ints(1, -2)], error="", note="twice")
    yield Use("Pad", [a, ints(0, 0, 0, 0), None, ints(1, -2)], error="", version=18, note="twice")
    yield Use("CenterCropPad", [a, ints(1, 1)], error="", version=18, axes=[0, -3], note="twice")
    yield Use("Resize", [a, None, f32([2, 2])], error="", version=18, axes=[0, -3], note="twice")
    for perm in [0, 0, 1], [0, 1], [0, 1, 3], [-1, 0, 1]:
        yield Use("Transpose", [a], error="perm", perm=perm)
    yield Use("Softmax", [a], [(F32, (2, 3, 4))], axis=-3)
    yield Use("Flatten", [a], [a.reshape(24, 1)], axis=3)
    yield Use("Flatten", [a], [a.reshape(6, 4)], axis=-1)
    yield Use("Unsqueeze", [a, ints(-1, 1)], [a.reshape(2, 1, 3, 4, 1)])
    yield Use("ReverseSequence", [a, ints(1, 1)], error="", batch_axis=1, time_axis=1)
    yield Use("ReverseSequence", [x(3, 2), ints(1, 4)], error="4", batch_axis=1, time_axis=0)
    yield Use("ReverseSequence", [x(3, 2), ints(1, -1)], error="-1", batch_axis=1, time_axis=0)


@topic
def slices():
    a = np.arange(10, dtype=f32)
    ends = (LEAST, LEAST + 1, -11, -10, -9, -1, 0, 1, 9, 10, 11, MOST - 1, MOST)
    for start in ends:
        for end in ends:
            for step in (1, -1) if abs(start) < 20 and abs(end) < 20 else (1, 2, -1, -3, MOST, LEAST, -MOST):
                yield Use("Slice", [a, ints(start), ints(end), ints(0), ints(step)], [a[sliced(start, end, step)]])
    top, low = 2**31 - 1, -2**31
    for start, end, step in (low, top, 1), (top, low, -1), (-1, low, low), (3, top, top), (top, top, 1), (low, low, -1):
        narrow = [np.array([v], np.int32) for v in (start, end, 0, step)]
        yield Use("Slice", [a, *narrow], [a[sliced(start, end, step)]], note="int32")
    yield Use("Slice", [a, ints(0), ints(5), ints(0), ints(0)], error="0", note="step 0")
    b = x(3, 4, 5)
    yield Use("Slice", [b, ints(1, -1), ints(3, LEAST), ints(0, 2), ints(1, -2)], [b[1:3, :, ::-2]])
    yield Use("Slice", [b, ints(1, 2), ints(3)], error="")


def sliced(start, end, step):
    """The Python slice that stands for ONNX's, whose bounds may lie anywhere: those of numpy for these dims."""
    return slice(start, end if step > 0 or end >= -10 else None, step)


@topic
def pads():
    a = x(4, 5)
    for pad in [-1, 0, 0, -2], [-4, 0, 0, 0], [-2, -3, -2, -2], [1, -2, -1, 3]:
        crop = [slice(max(0, -pad[d]), a.shape[d] - max(0, -pad[d + 2])) for d in range(2)]
        grow = [(max(0, pad[d]), max(0, pad[d + 2])) for d in range(2)]
        expected = np.pad(a[tuple(crop)], grow)
        yield Use("Pad", [a, ints(*pad)], [expected])
    yield Use("Pad", [a, ints(-5, 0, 0, 0)], error="", note="more than there is")
    yield Use("Pad", [a, ints(1, 0, 1)], error="pads")
    yield Use("Pad", [a, ints(MOST, 0, 0, 0)], error="")
    yield Use("Pad", [a, ints(2**40, 0, 2**40, 0)], error="")
    for mode in "reflect", "edge", "wrap":
        for pad in [3, 4, 0, 0], [0, 1, 3, 4], [2, 2, 1, 1]:
            yield Use("Pad", [a, ints(*pad)], [np.pad(a, [(pad[0], pad[2]), (pad[1], pad[3])], mode=mode)], version=19, mode=mode)
    yield Use("Pad", [a, ints(0, 9, 0, 9)], [np.pad(a, [(0, 0), (9, 9)], mode="wrap")], version=19, mode="wrap")
    yield Use("Pad", [a, ints(0, 9, 0, 9)], [np.pad(a, [(0, 0), (9, 9)], mode="edge")], version=19, mode="edge")
    yield Use("Pad", [x(2, 1), ints(0, 1, 0, 1)], [(F32, (2, 3))], version=19, mode="reflect", note="reflect of one: as numpy")
    yield Use("Pad", [a, ints(1, 1, 1, 1), np.array([7], f32)], [np.pad(a, 1, constant_values=7)], note="value of rank 1")


@topic
def windows():
    for op in "MaxPool", "AveragePool", "LpPool":
        yield Use(op, [x(1, 1, 3, 3)], error="", kernel_shape=[5, 5])
        yield Use(op, [x(1, 1, 3, 3)], error="", kernel_shape=[0, 1])
        yield Use(op, [x(1, 1, 3, 3)], error="", kernel_shape=[2, 2], strides=[0, 1])
        yield Use(op, [x(1, 1, 3, 3)], error="", kernel_shape=[2, 2], pads=[-1, 0, 0, 0])
        yield Use(op, [x(1, 1, 3, 3)], error="", kernel_shape=[MOST, 1])
        yield Use(op, [x(1, 1, 3, 3)], error="", kernel_shape=[2, 2], pads=[MOST, 0, 0, 0])
        yield Use(op, [x(1, 1, 3)], error="", kernel_shape=[2, 2])
    a = x(1, 1, 3, 3)
    yield Use("MaxPool", [a], [a.max((2, 3), keepdims=True)], kernel_shape=[5, 5], pads=[1, 1, 1, 1])
    yield Use("MaxPool", [a], [a.max((2, 3), keepdims=True)], kernel_shape=[3, 3])
    yield Use("MaxPool", [f32([[[1, 2, 3, 4, 5]]])], [f32([[[2, 4, 5]]])], kernel_shape=[2], strides=[2], ceil_mode=1)
    # A last window that would begin behind the input and its padding in front is left out.
    yield Use("MaxPool", [f32([[[1, 2, 3, 4]]])], [f32([[[1, 4]]])], kernel_shape=[1], strides=[3], ceil_mode=1)
    yield Use("AveragePool", [f32([[[1, 2, 3, 4, 5]]])], [f32([[[1.5, 3.5, 5]]])], kernel_shape=[2], strides=[2], ceil_mode=1)
    yield Use("AveragePool", [f32([[[1, 2, 3]]])], [f32([[[0.5, 1.5, 2.5, 1.5]]])], kernel_shape=[2], pads=[1, 1], count_include_pad=1)
    yield Use("AveragePool", [f32([[[1, 2, 3]]])], [f32([[[1, 1.5, 2.5, 3]]])], kernel_shape=[2], pads=[1, 1])
    yield Use("Conv", [x(1, 1, 3, 3), x(1, 1, 5, 5)], error="")
    yield Use("Conv", [x(1, 2, 3, 3), x(1, 1, 2, 2)], error="")
    yield Use("Conv", [x(1, 4, 3, 3), x(3, 2, 2, 2)], error="", group=2)
    yield Use("Conv", [x(1, 1, 3, 3), x(1, 1, 2, 2), x(2)], error="")
    yield Use("Conv", [x(1, 1, 3, 3), x(1, 1, 2, 2)], error="", strides=[0, 0])
    yield Use("Conv", [x(1, 1, 3, 3), x(1, 1, 2, 2)], error="", group=0)
    yield Use("Conv", [x(1, 1, 3, 3), x(1, 1, 2, 2)], error="", dilations=[0, 1])
    yield Use("Conv", [x(1, 1, 3, 3), x(1, 1, 2, 2)], error="", pads=[MOST, MOST, MOST, MOST])
    yield Use("GlobalMaxPool", [x(2, 3, 1, 1)], [(F32, (2, 3, 1, 1))])
    yield Use("GlobalAveragePool", [empty(1, 2, 0, 3)], error="nothing to pool")
    yield Use("GlobalMaxPool", [empty(1, 2, 0, 3)], error="nothing to pool")


@topic
def indices():
    a = x(3, 4)
    for bad in 3, -4, MOST, LEAST:
        yield Use("Gather", [a, ints(0, bad)], error=[str(bad)])
        yield Use("GatherElements", [a, ints(bad).reshape(1, 1)], error=[str(bad)])
        yield Use("GatherND", [a, ints(bad).reshape(1, 1)], error=[str(bad)])
        yield Use("ScatterElements", [a, ints(bad).reshape(1, 1), x(1, 1)], error=[str(bad)])
        yield Use("ScatterND", [a, ints(bad).reshape(1, 1), x(1, 4)], error=[str(bad)])
    yield Use("Gather", [a, ints(-1, -3)], [a[[-1, -3]]])
    yield Use("Gather", [a, np.array([-1], np.int32)], [a[[-1]]])
    yield Use("GatherND", [a, np.array([[-1, -4]])], [a[[-1], [-4]]])
    yield Use("GatherND", [a, np.zeros((2, 3), np.int64)], error="")
    yield Use("GatherND", [a, np.zeros((2, 1), np.int64)], error="", batch_dims=1)
    yield Use("GatherND", [a, np.zeros((3, 1), np.int64)], [a[:, 0]], batch_dims=1)
    yield Use("OneHot", [ints(0, 3, -3, -4, MOST, LEAST), scalar(3), f32([0, 1])],
              [f32([[1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]])])
    yield Use("OneHot", [f32([0, np.nan, 1, np.inf]), f32(3).reshape(()), f32([0, 1])], [f32([[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]])])
    yield Use("OneHot", [ints(0), scalar(-1), f32([0, 1])], error="-1")
    yield Use("OneHot", [ints(0), scalar(MOST), f32([0, 1])], error="")
    yield Use("Trilu", [a, scalar(MOST)], [empty(3, 4)])
    yield Use("Trilu", [a, scalar(LEAST)], [a])
    yield Use("Trilu", [a, scalar(LEAST)], [empty(3, 4)], upper=0)
    yield Use("Trilu", [a, scalar(MOST)], [a], upper=0)
    yield Use("EyeLike", [a], [empty(3, 4)], k=MOST)
    yield Use("EyeLike", [a], [empty(3, 4)], k=LEAST)
    yield Use("Compress", [a, np.ones(5, bool)], error="5", axis=0)
    yield Use("Shape", [a], [ints(3, 4)], start=LEAST, end=MOST)
    yield Use("Shape", [a], [ints()], start=5, end=-9)
    yield Use("SequenceAt", [[a, a], scalar(2)], error="2")
    yield Use("SequenceAt", [[a, a], scalar(-3)], error="-3")
    yield Use("SequenceErase", [[a], scalar(1)], [[]], error="1")
    yield Use("NegativeLogLikelihoodLoss", [x(2, 3), ints(0, 3)], error="3")
    yield Use("TensorScatter", [x(2, 3, 4), x(2, 2, 4), ints(0, 2)], error="", version=24, axis=1)
    yield Use("TensorScatter", [x(2, 3, 4), x(2, 2, 4), ints(0, -1)], error="-1", version=24, axis=1)
    yield Use("MaxUnpool", [x(1, 1, 2, 2), np.full((1, 1, 2, 2), 99)], error="99", kernel_shape=[2, 2], strides=[2, 2])
    yield Use("Tile", [a, ints(1)], error="")
    yield Use("Expand", [a, ints(-1, 4)], error="-1")
    yield Use("Split", [x(5)], [(F32, None), (F32, None)], error="", version=13, axis=0)


@topic
def not_numbers():
    """NaN goes through, wherever it stands: in a whole vector of the processor or behind the last."""
    for size in 1, 5, 37:
        for at in {0, size // 2, size - 1}:
            a, b = x(size), x(size)
            a[at] = np.nan
            with np.errstate(all="ignore"):
                for op, function in {"Relu": lambda v: np.where(v < 0, 0, v), "LeakyRelu": lambda v: np.where(v < 0, f32(0.01) * v, v),
                                     "Clip": lambda v: v, "Abs": np.abs, "Neg": np.negative, "Ceil": np.ceil, "Floor": np.floor, "Round": np.rint,
                                     "Sign": np.sign, "Tanh": np.tanh, "Exp": np.exp, "Sigmoid": lambda v: 1 / (1 + np.exp(-v)),
                                     "HardSigmoid": lambda v: np.clip(f32(0.2) * v + f32(0.5), 0, 1), "Softplus": lambda v: np.log1p(np.exp(v)),
                                     "Elu": lambda v: np.where(v < 0, np.expm1(v), v), "HardSwish": lambda v: v * np.clip(v / 6 + 0.5, 0, 1),
                                     "ThresholdedRelu": lambda v: np.where(v <= 1, 0, v), "Sqrt": lambda v: np.sqrt(v),
                                     "Softsign": lambda v: v / (1 + np.abs(v)), "Mish": lambda v: v * np.tanh(np.log1p(np.exp(v)))}.items():
                    yield Use(op, [a], [f32(function(a.astype(np.float64)))], version=18)
            yield Use("Clip", [a, f32(-1).reshape(()), f32(1).reshape(())], [np.clip(a, -1, 1)])
            for op, function in ("Max", np.maximum), ("Min", np.minimum), ("Add", np.add):
                yield Use(op, [a, b], [function(a, b)])
                yield Use(op, [b, a], [function(b, a)])
                if op != "Add":
                    yield Use(op, [b, a, b], [function(function(b, a), b)])
                yield Use(op, [a.astype(np.float64), b.astype(np.float64)], [function(a, b).astype(np.float64)])
                yield Use(op, [b.astype(np.float16), a.astype(np.float16)], [function(b, a).astype(np.float16)])
            for op in "ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd", "ReduceMean", "ReduceLogSumExp":
                yield Use(op, [a], [f32([np.nan])], version=18)
                two = np.stack([b, a], 1)
                yield Use(op, [two], [(F32, (1, 2))] if op != "ReduceMax" else [np.stack([b.max(), f32(np.nan)])[None]], version=13, axes=[0])
            yield Use("ArgMax", [a], [ints(at)], axis=0)
            yield Use("ArgMin", [a], [ints(at)], axis=0)
            yield Use("Softmax", [a], [np.full(size, np.nan, f32)])
            order = np.concatenate([[at], [i for i in np.argsort(-a, kind="stable") if i != at]])[:3].astype(np.int64)
            yield Use("TopK", [a, ints(len(order))], [a[order], order])
            yield Use("MaxPool", [a[None, None]], [f32([[[np.nan]]])], kernel_shape=[size])
            yield Use("GlobalMaxPool", [a[None, None]], [f32([[[np.nan]]])])
            yield Use("CumSum", [a, scalar(0)], [np.cumsum(a)])
            for op, function in ("Equal", np.equal), ("Less", np.less), ("Greater", np.greater), ("LessOrEqual", np.less_equal):
                yield Use(op, [a, a], [function(a, a)])
            yield Use("Where", [np.isnan(a), b, a], [np.where(np.isnan(a), b, a)])
    yield Use("Unique", [f32([np.nan, 1, np.nan])], [f32([1, np.nan]), ints(1, 0), ints(1, 0, 1), ints(1, 2)])
    yield Use("NonZero", [f32([0, np.nan, -0.0])], [ints(1).reshape(1, 1)])
    yield Use("Max", [f32([0.0, -0.0]), f32([-0.0, 0.0])], [(F32, (2,))])
    yield Use("Round", [f32([0.5, 1.5, 2.5, -0.5, -1.5])], [f32([0, 2, 2, -0.0, -2])])
    big = f32([3e38, -3e38, np.inf, -np.inf, 100, -100, 88, -88])
    with np.errstate(all="ignore"):
        for op, function in {"Sigmoid": lambda v: 1 / (1 + np.exp(-v)), "Tanh": np.tanh, "Softplus": lambda v: np.logaddexp(0, v), "Exp": np.exp,
                             "Erf": np.sign}.items():
            yield Use(op, [big], [f32(function(big.astype(np.float64)))], rtol=1e-5, atol=1e-30 if op != "Erf" else 1e-7)
    yield Use("Softmax", [f32([[np.inf, 1, 2], [-np.inf, 1, 1], [3e38, 3e38, -3e38]])],
              [f32([[np.nan, np.nan, np.nan], [0, 0.5, 0.5], [0.5, 0.5, 0]])], note="an infinite one: inf - inf")
    yield Use("ReduceLogSumExp", [f32([[-np.inf, -np.inf], [np.inf, 0], [1000, 1000]])], [f32([-np.inf, np.inf, 1000 + np.log(2)])], axes=[1],
              keepdims=0)


@topic
def sums():
    """CumSum: exclusive and reverse"""
    a = x(3, 4)
    for axis in 0, 1, -1, -2:
        for exclusive in 0, 1:
            for reverse in 0, 1:
                y = np.flip(a, axis) if reverse else a
                total = np.cumsum(y, axis)
                total = total - y if exclusive else total
                total = np.flip(total, axis) if reverse else total
                yield Use("CumSum", [a, scalar(axis)], [f32(total)], exclusive=exclusive, reverse=reverse)
                yield Use("CumSum", [a, np.array([axis], np.int32)], [f32(total)], exclusive=exclusive, reverse=reverse)
    yield Use("CumSum", [a, ints(0, 1)], error="")
    top = np.int32([2**31 - 1, 1, 5])
    with np.errstate(all="ignore"):
        yield Use("CumSum", [top, scalar(0)], [np.cumsum(top, dtype=np.int32)])


def info(name, kind, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


@topic
def loops():
    """none or one time round"""
    step = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["more"]), helper.make_node("Add", ["v", "one"], ["next"]),
         helper.make_node("Concat", ["v", "v"], ["twice"], axis=0)], "body",
        [info("i", I64, ()), info("go", BOOL, ()), info("v", F32, (2,))],
        [info("more", BOOL, ()), info("next", F32, (2,)), info("twice", F32, (4,))],
        [helper.make_tensor("one", F32, (), [1.0])])
    a, yes, no = x(2), scalar(True, bool), scalar(False, bool)
    none, once = [a, empty(0, 4)], [a + 1, np.concatenate([a, a])[None]]
    for trips, go, expected in ((scalar(0), yes, none), (scalar(-5), yes, none), (scalar(LEAST), None, none), (scalar(3), no, none),
                                (None, no, none), (scalar(MOST), no, none), (scalar(1), yes, once), (scalar(1), None, once)):
        yield Use("Loop", [trips, go, a], expected, body=step)
    yield Use("Loop", [ints(1, 1), yes, a], none, error="trip count", body=step)
    each = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Concat", ["s", "e"], ["both"], axis=0)], "body",
        [info("s", F32, (2,)), info("e", F32, (2,))], [info("t", F32, (2,)), info("both", F32, (4,))])
    yield Use("Scan", [a, empty(0, 2)], [a, empty(0, 4)], body=each, num_scan_inputs=1)
    b = x(1, 2)
    yield Use("Scan", [a, b], [a + b[0], np.concatenate([a, b[0]])[None]], body=each, num_scan_inputs=1)
    yield Use("Scan", [a, x(2, 0)], error="", body=each, num_scan_inputs=1, scan_input_axes=[2])
    same = helper.make_graph([helper.make_node("Relu", ["p"], ["q"])], "body", [info("p", F32)], [info("q", F32)])
    yield Use("SequenceMap", [[]], [[]], body=same)
    yield Use("SequenceMap", [[a, empty(0)]], [[np.maximum(a, 0), empty(0)]], body=same)


@topic
def patterns():
    """RegexFullMatch: the whole text, in the syntax of RE2"""
    both = "\u6570"
    examples = {
        "": ([""], ["a"]), "abc": (["abc"], ["ab", "abcd", "xabc", "ABC"]), "a|b|": (["a", "b", ""], ["ab", "c"]),
        "a|bc*": (["a", "b", "bcc"], ["ac"]), "(a|b)*c": (["c", "abbac"], ["ab"]), "(a*)*": (["", "aaa"], ["b"]), "()*x": (["x"], [""]),
        "a{2}": (["aa"], ["a", "aaa"]), "a{2,}b": (["aab", "aaaab"], ["ab"]), "a{1,3}?": (["a", "aaa"], ["", "aaaa"]),
        "a{,3}": (["a{,3}"], ["aaa"]), "x{a": (["x{a"], ["x"]), ".": (["a", both, "\r"], ["\n", "", "ab"]), "(?s).": (["\n"], [""]),
        "[a-c-e]+": (["a-e", "b"], ["d"]), "[]x]": (["]", "x"], ["a"]), "[^]x]": (["a", "\n"], ["]", "x"]), r"[\d_-]+": (["1_-2"], ["a"]),
        "[[:alpha:]][[:^alpha:]]": (["a1"], ["aa", "11"]), r"\w+@\w+\.com": (["me_1@x.com"], ["me@xacom", "@x.com"]),
        r"\S\s\D": (["a b"], ["a 1", "  b"]), r"\bab\b\B": ([], ["ab"]), r"a\b b": (["a b"], []), r"a\Bb": (["ab"], []), "^a$": (["a"], ["a\n"]),
        "(?m)a$\n^b": (["a\nb"], ["ab"]), r"\Aa\z": (["a"], ["a\n"]), "(?i)\u043f": (["\u041f", "\u043f"], ["p"]),
        "(?i:a)b": (["Ab", "ab"], ["aB"]), "(a(?i)b)c": (["aBc", "abc"], ["Abc", "aBC"]), "(?i-i)a": (["a"], ["A"]),
        r"(?P<year>\d{4})-(?P<month>\d\d)": (["2024-05"], ["2024-5"]), "(?:ab)+": (["abab"], ["aba"]),
        r"\x41\x{6570}\101\t\.\*": (["A" + both + "A\t.*"], ["A"]), r"\Qa.b*\Ec": (["a.b*c"], ["axbbc"]), r"\pL\p{Greek}": (["a\u03b1"], ["1a"]),
        "[\u6570-\u6578]": (["\u6574"], ["\u656f"]),
        # What takes others exponential time, or more memory than there is.
        "(a*)*(a|aa)*b": ([], ["a" * 20000]), "(a?){500}a{500}": (["a" * 500], ["a" * 499]), "[ab]*a[ab]{900}": (["a" * 3000], ["b" * 3000])}
    for pattern, (yes, no) in examples.items():
        texts = np.array(yes + no, object)
        yield Use("RegexFullMatch", [texts], [np.array([True] * len(yes) + [False] * len(no))], version=20, pattern=pattern)
    for pattern in ("(", "a)", "[a", "*a", "a**", "a{3,2}", "a{1001}", "\\", r"\8", r"\1", r"\y", "(?=a)", "(?<=a)", "(?", "(?P<>a)", "[b-a]", "[[:nope:]]",
                    r"\x{110000}", "((a{99}){99}){99}", r"((((\pL{99}){9}|\pN{99}){1}\pM{900})|\pS{900})"):
        yield Use("RegexFullMatch", [np.array(["a"], object)], error=["'" + pattern[:200] + "'", "RE2"], version=20, pattern=pattern)
    yield Use("RegexFullMatch", [np.array(["a"], object)], error="RE2", version=20, pattern="(" * 100000)


def main():
    suite = Suite(sys.argv[1], sys.argv[2])
    for name in sys.argv[3:] or TOPICS:
        for use in TOPICS[name]():
            suite.check(name, use)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
