#!/usr/bin/python3
"""Arithmetic where processors trap, wrap or answer each in its own way: one defined answer, or a refusal that says why, the same
on every instruction set, on one and two threads, executed and folded.

  traps_test.py DRIVER PLUGINS [--one] [TOPIC]...    --one: under the configuration that is built in alone
"""
import math
import sys

import numpy as np
from onnx import helper

from drive import Use
from values import BF16, F16, F32, F64, INTS, NAME_OF, NUMPY, SIGNED, UNSIGNED, typed, wide
from ways import Suite

f32 = np.float32
MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min
WHOLE = [t for t in INTS if t in NUMPY]
TOPICS = {}
CONFIGURATIONS = {"": [], "one thread": ["engine.threads=1", "plugin.cpu.config.threads=1"],
                  "two threads": ["engine.threads=2", "plugin.cpu.config.threads=2"],
                  **{isa: [f'plugin.cpu.config.isa="{isa}"'] for isa in ("sse2", "avx2", "avx512")}}


def topic(function):
    TOPICS[function.__name__] = function
    return function


def limits(kind):
    bits = INTS[kind]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind in SIGNED else (0, (1 << bits) - 1)


def ints(*values):
    return np.array(values, np.int64)


def scalar(value, kind=np.int64):
    return np.asarray(value, kind).reshape(())


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@topic
def division():
    for kind in WHOLE:
        low, high = limits(kind)
        numbers = sorted({low, low + 1, -7, -1, 0, 1, 2, 7, high - 1, high} & set(range(max(low, -8), 9)) | {low, low + 1, high - 1, high})
        a, b = zip(*[(p, q) for p in numbers for q in numbers if q != 0])
        x, y = typed(kind, a), typed(kind, b)
        yield Use("Div", [x, y], [typed(kind, [truncated(p, q) for p, q in zip(a, b)])], note=NAME_OF[kind])
        yield Use("Mod", [x, y], [typed(kind, [p % q for p, q in zip(a, b)])], note=NAME_OF[kind])
        yield Use("Mod", [x, y], [typed(kind, [p - truncated(p, q) * q for p, q in zip(a, b)])], note=NAME_OF[kind], fmod=1)
        for size in 1, 40:
            zero = typed(kind, [1] * (size - 1) + [0])
            one = typed(kind, [1] * size)
            for use in ("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1}):
                yield Use(use[0], [one, zero], error="zero", note=NAME_OF[kind], **use[1])
                yield Use(use[0], [one, typed(kind, 0)], error="zero", note=NAME_OF[kind], **use[1])
    for kind in F32, F64, F16, BF16:
        a = typed(kind, [1, -1, 0, np.nan, np.inf, -np.inf, 5.5, -5.5, 5.5, -5.5, 1, 3])
        b = typed(kind, [0, 0, 0, 1, 2, 0, 2, 2, -2, np.inf, np.nan, -0.0])
        with np.errstate(all="ignore"):
            yield Use("Div", [a, b], [typed(kind, wide(a) / wide(b))], note=NAME_OF[kind])
            yield Use("Mod", [a, b], [typed(kind, np.fmod(wide(a), wide(b)))], note=NAME_OF[kind], fmod=1)
            yield Use("Reciprocal", [b], [typed(kind, 1 / wide(b))], note=NAME_OF[kind])
        yield Use("Mod", [a, b], error="fmod", note=NAME_OF[kind])


@topic
def shifts():
    for kind in [t for t in UNSIGNED if t in NUMPY]:
        bits, (_, high) = UNSIGNED[kind], limits(kind)
        amounts = sorted({0, 1, bits - 1, bits, bits + 1, 2 * bits, high})
        a, b = zip(*[(p, q) for p in (1, 2, 5, high) for q in amounts])
        for direction in "LEFT", "RIGHT":
            y = [(p << q if q < 64 else 0) if direction == "LEFT" else p >> min(q, 99) for p, q in zip(a, b)]
            yield Use("BitShift", [typed(kind, a), typed(kind, b)], [typed(kind, y)], note=NAME_OF[kind], direction=direction)


@topic
def signs():
    for kind in WHOLE:
        low, high = limits(kind)
        numbers = [low, low + 1, -1, 0, 1, high - 1, high] if kind in SIGNED else [0, 1, high - 1, high]
        x = typed(kind, numbers * 9)
        yield Use("Abs", [x], [typed(kind, [abs(v) for v in numbers] * 9)], note=NAME_OF[kind])
        yield Use("Sign", [x], [typed(kind, [(v > 0) - (v < 0) for v in numbers] * 9)], note=NAME_OF[kind])
        if kind in SIGNED:
            yield Use("Neg", [x], [typed(kind, [-v for v in numbers] * 9)], note=NAME_OF[kind])
            yield Use("Relu", [x], [typed(kind, [max(v, 0) for v in numbers] * 9)], note=NAME_OF[kind])
        for op, function in ("Add", lambda p, q: p + q), ("Sub", lambda p, q: p - q), ("Mul", lambda p, q: p * q):
            a, b = zip(*[(p, q) for p in numbers for q in numbers])
            yield Use(op, [typed(kind, a), typed(kind, b)], [typed(kind, [function(p, q) for p, q in zip(a, b)])], note=NAME_OF[kind])
        yield Use("Max", [x, typed(kind, 0)], [typed(kind, [max(v, 0) for v in numbers] * 9)], note=NAME_OF[kind])
        yield Use("Clip", [x, typed(kind, low), typed(kind, high)], [x], note=NAME_OF[kind])
        pair = typed(kind, [[high, high], [low, low], [high, low], [low, 1]])
        rows = [[high, high], [low, low], [high, low], [low, 1]]
        for op, function in (("ReduceSum", sum), ("ReduceProd", math.prod), ("ReduceSumSquare", lambda r: sum(v * v for v in r)),
                             ("ReduceL1", lambda r: sum(abs(v) for v in r)), ("ReduceMax", max), ("ReduceMin", min)):
            yield Use(op, [pair, ints(1)], [typed(kind, [[function(r)] for r in rows])], version=18, note=NAME_OF[kind])
        yield Use("CumSum", [x, scalar(0)], [typed(kind, np.cumsum(np.array(numbers * 9, object)))], note=NAME_OF[kind])
        if INTS[kind] >= 32:
            m = typed(kind, [[high, low], [3, high]])
            n = np.array([[high, low], [3, high]], object)
            yield Use("MatMul", [m, m], [typed(kind, n.dot(n))], note=NAME_OF[kind])
            yield Use("Gemm", [m, m, m], [typed(kind, n.dot(n) + n)], note=NAME_OF[kind])
        if INTS[kind] < 64:  # sums of 64 bits hold the sum of two
            yield Use("ReduceMean", [pair, ints(1)], [typed(kind, [[int(sum(r) / 2)] for r in rows])], version=18, note=NAME_OF[kind])


def saturated(value, kind):
    low, high = limits(kind)
    return 0 if value != value else low if value <= low else high if value >= high else int(value)


@topic
def casts():
    """from floats: towards zero, the nearest end where it does not fit, 0 for NaN; between integers: the low bits"""
    numbers = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0, -0.0, 0.99, -0.99, 1.5, -1.5, -1.0]
    for bits in 7, 8, 15, 16, 31, 32, 63, 64:
        edge = 2.0**bits
        numbers += [edge, -edge, edge * (1 - 2**-24), -edge * (1 - 2**-24), edge * (1 - 2**-53), edge + 1, -edge - 1, edge - 1, 0.5 - edge, edge - 0.5]
    for source in F32, F64, F16, BF16:
        x = typed(source, numbers)
        exact = wide(x)
        for target in WHOLE:
            yield Use("Cast", [x], [typed(target, [saturated(v, target) for v in exact])], note=f"{NAME_OF[source]} to {NAME_OF[target]}", to=target)
        yield Use("Cast", [x], [exact != 0], note=f"{NAME_OF[source]} to bool", to=9)
        for target in F32, F64, F16, BF16:
            yield Use("Cast", [x], [typed(target, exact)], note=f"{NAME_OF[source]} to {NAME_OF[target]}", rtol=0, atol=0, to=target)
    for source in WHOLE:
        low, high = limits(source)
        values = [low, low + 1, high, high - 1, 0, 1, 127, 128] + [v for v in (255, 256, 32767, 65535, 65536, -1, -128, -129) if low <= v <= high]
        values = [v for v in values if low <= v <= high]
        for target in WHOLE:
            yield Use("Cast", [typed(source, values)], [typed(target, values)], note=f"{NAME_OF[source]} to {NAME_OF[target]}", to=target)
        for target in F32, F64:
            exact = np.array([f32(v) if target == F32 else float(v) for v in np.array(values, NUMPY[source])], NUMPY[target])
            yield Use("Cast", [typed(source, values)], [exact], note=f"{NAME_OF[source]} to {NAME_OF[target]}", rtol=0, atol=0, to=target)
        yield Use("Cast", [typed(source, values)], [np.array([v != 0 for v in values])], note=f"{NAME_OF[source]} to bool", to=9)


@topic
def powers():
    """the integer part of the exact value, wrapped; a negative power of 0 has none and is 0"""
    for kind in WHOLE:
        if INTS[kind] < 32:
            continue  # bases of Pow have 32 bits at least
        low, high = limits(kind)
        bases = [0, 1, 2, 3, 10, high] + ([-1, -2, -3, low] if kind in SIGNED else [])
        for other in WHOLE:
            e_low, e_high = limits(other)
            exponents = [0, 1, 2, 3, 31, 63, 64, 65, min(e_high, 10**6)] + ([-1, -2, -3, max(e_low, -10**6)] if other in SIGNED else [])
            a, b = zip(*[(p, q) for p in bases for q in exponents])
            y = [pow(p, q, 1 << 64) if q >= 0 else p**(-q % 2) if abs(p) == 1 else 0 for p, q in zip(a, b)]
            yield Use("Pow", [typed(kind, a), typed(other, b)], [typed(kind, y)], note=f"{NAME_OF[kind]}, {NAME_OF[other]}")
        yield Use("Pow", [typed(kind, [2, 4, 0, 3]), f32([-1, 0.5, -1, np.nan])], [typed(kind, [0, 2, high, 0])], note=f"{NAME_OF[kind]}, float")
    with np.errstate(all="ignore"):
        a, b = f32([0, 0, -8, 2, np.inf, 1, -1, 0]), f32([0, -1, 1 / 3, 128, 0, np.nan, np.inf, np.inf])
        yield Use("Pow", [a, b], [np.power(a.astype(float), b.astype(float)).astype(f32)])
        yield Use("Pow", [f32([2, -2, 0]), ints(-1, -3, -1)], [f32([0.5, -0.125, np.inf])])


@topic
def quantised():
    """what no integer holds: the nearest end; for NaN the standard says nothing, and all ways give one number"""
    numbers = [np.inf, -np.inf, 1e30, -1e30, 2**31, -2**31, 2.0**33, 300, -300, 0.5, 1.5, 2.5, -0.5, 127.4, 127.5, -128.5, 255.4, 255.5, -0.4]
    for source in F32, F16, BF16:
        x = typed(source, numbers * 3)
        for target in (2, 3, 4, 5):
            for zero in 0, 100:
                low, high = limits(target)
                exact = [v if np.isinf(v) else np.rint(v) for v in wide(x)]
                y = typed(target, [int(min(max(v + zero, low), high)) for v in exact])
                version = 21 if target in (4, 5) or source != F32 else 13
                yield Use("QuantizeLinear", [x, typed(source, 1), typed(target, zero)], [y], version=version, note=f"{NAME_OF[source]} to {NAME_OF[target]}")
        for size in 1, 5, 40:
            some = np.full(size, 3.0)
            for at in {0, size // 2, size - 1}:
                some[at] = np.nan
                for target in (2, 3):
                    yield Use("QuantizeLinear", [typed(source, some), typed(source, 1), typed(target, 7)], [(target, (size,))], version=19, note="NaN")
                yield Use("Cast", [typed(source, some)], [typed(2, [0 if v != v else 3 for v in some])], to=2, note="NaN")
    bad = f32([np.nan, np.inf, -np.inf, 1, 2])
    for size in 1, 3, 5:
        yield Use("DynamicQuantizeLinear", [bad[:size]], [(2, (size,)), (1, ()), (2, ())])
        yield Use("DynamicQuantizeLinear", [f32([0] * size)], [np.zeros(size, np.uint8), (1, ()), (2, ())], note="of zeros")
    yield Use("DynamicQuantizeLinear", [np.zeros((0,), f32)], [(2, (0,)), (1, ()), (2, ())], note="of nothing")
    for mode in "nearest", "linear", "cubic":
        yield Use("Resize", [bad.reshape(1, 1, 1, 5), None, f32([1, 1, 1, 1.7])], [(1, (1, 1, 1, 8))], mode=mode)
        yield Use("Resize", [np.array([[[[2**31 - 1, -2**31, 5]]]], np.int32), None, f32([1, 1, 1, 3])], [(6, (1, 1, 1, 9))], mode=mode)
    for op in "DFT", "STFT":
        more = [scalar(5)] if op == "DFT" else [scalar(1), None, scalar(2)]
        yield Use(op, [bad.reshape(1, 5, 1), *more], [(1, None)], loose=True)
    yield Use("Det", [np.full((2, 2), np.nan, f32)], [f32(np.nan).reshape(())])
    yield Use("TopK", [bad, ints(5)], [f32([-np.inf, 1, 2, np.inf, np.nan]), ints(2, 3, 4, 1, 0)], largest=0)
    yield Use("QLinearMatMul", [np.full((1, 4), 255, np.uint8), f32(1e30).reshape(()), np.uint8(0).reshape(()), np.full((4, 1), 255, np.uint8),
                                f32(1e30).reshape(()), np.uint8(0).reshape(()), f32(1e-30).reshape(()), np.uint8(9).reshape(())], [np.uint8([[255]])])
    yield Use("QLinearConv", [np.full((1, 1, 2, 2), 255, np.uint8), f32(1e30).reshape(()), np.uint8(0).reshape(()), np.full((1, 1, 2, 2), -128, np.int8),
                              f32(1e30).reshape(()), np.int8(0).reshape(()), f32(1e-30).reshape(()), np.uint8(9).reshape(())], [np.zeros((1, 1, 1, 1), np.uint8)])
    yield Use("MatMulInteger", [np.full((1, 40), 255, np.uint8), np.full((40, 1), -128, np.int8), np.uint8(0).reshape(()), np.int8(127).reshape(())],
              [np.int32([[40 * 255 * (-128 - 127)]])])
    yield Use("MatMulInteger", [np.full((1, 40), -128, np.int8), np.full((40, 1), -128, np.int8), np.int8(127).reshape(()), np.int8(127).reshape(())],
              [np.int32([[40 * 255 * 255]])])


HUGE = 2**40


@topic
def sizes():
    """What no memory holds is refused, whatever wraps in 64 bits."""
    one = f32([1])
    for shape in [HUGE, HUGE], [MOST], [MOST, MOST], [2**32, 2**32], [2**62, 4], [2**63 - 1, 2], [HUGE]:
        yield Use("ConstantOfShape", [ints(*shape)], error="")
        yield Use("Expand", [one, ints(*shape)], error="")
        yield Use("Tile", [np.ones([1] * len(shape), f32), ints(*shape)], error="")
        yield Use("RandomUniform", [], error="", shape=shape)
        yield Use("Resize", [np.ones([1] * len(shape), f32), None, None, ints(*shape)], error="")
        yield Use("CenterCropPad", [np.ones([1] * len(shape), f32), ints(*shape)], error="", version=18)
        yield Use("Reshape", [one, ints(*shape)], error="")
        yield Use("Pad", [np.ones([1] * len(shape), f32), ints(*[0] * len(shape), *shape)], error="")
        yield Use("ConstantOfShape", [ints(1, *shape)], error="")
    for start, limit, delta in (0, MOST, 1), (LEAST, MOST, 1), (MOST, LEAST, -1), (LEAST, 0, 1), (0, LEAST, -1):
        yield Use("Range", [scalar(start), scalar(limit), scalar(delta)], error="")
    yield Use("Range", [scalar(LEAST), scalar(MOST), scalar(MOST)], [ints(LEAST, -1, MOST - 1)])
    yield Use("Range", [scalar(MOST), scalar(LEAST), scalar(LEAST)], [ints(MOST, -1)])
    yield Use("Range", [scalar(MOST - 1), scalar(MOST), scalar(MOST)], [ints(MOST - 1)])
    for kind in np.int16, np.int32:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        yield Use("Range", [scalar(low, kind), scalar(high, kind), scalar(high, kind)], [np.array([low, -1, high - 1], kind)])
        yield Use("Range", [scalar(high, kind), scalar(low, kind), scalar(low, kind)], [np.array([high, -1], kind)])
    yield Use("Range", [scalar(np.iinfo(np.int32).min, np.int32), scalar(np.iinfo(np.int32).max, np.int32), scalar(2**30, np.int32)],
              [np.array([-2**31, -2**30, 0, 2**30], np.int32)])
    for start, limit, delta in (0, 1e30, 1), (0, np.inf, 1), (np.nan, 1, 1), (0, 1, np.nan), (0, 1, 1e-30), (-np.inf, 0, 1), (0, 1, 0):
        for kind in f32, np.float64:
            yield Use("Range", [scalar(start, kind), scalar(limit, kind), scalar(delta, kind)], error="")
    yield Use("Range", [scalar(0, f32), scalar(1, f32), scalar(np.inf, f32)], error="inf")
    yield Use("Resize", [np.ones((1, 1, 2, 2), f32), None, f32([1, 1, 1e30, 1])], error="")
    yield Use("Resize", [np.ones((1, 1, 2, 2), f32), None, f32([1, 1, np.nan, 1])], error="")
    yield Use("Resize", [np.ones((1, 1, 2, 2), f32), None, f32([1, 1, np.inf, 1])], error="")
    yield Use("Upsample", [np.ones((1, 1, 2, 2), f32), f32([1, 1, 1e30, 1])], error="", version=9)
    yield Use("OneHot", [ints(0), scalar(HUGE), f32([0, 1])], error="")
    yield Use("OneHot", [ints(0), f32(np.nan).reshape(()), f32([0, 1])], error="")
    yield Use("DepthToSpace", [np.ones((1, 4, 2, 2), f32)], error="", blocksize=MOST)
    yield Use("SpaceToDepth", [np.ones((1, 4, 2, 2), f32)], error="", blocksize=MOST)
    yield Use("DepthToSpace", [np.ones((1, 4, 2, 2), f32)], error="", blocksize=0)
    yield Use("HannWindow", [scalar(HUGE)], error="")
    yield Use("HannWindow", [scalar(-1)], error="-1")
    yield Use("DFT", [np.ones((1, 4, 1), f32), scalar(HUGE)], error="", axis=1)
    yield Use("STFT", [np.ones((1, 4, 1), f32), scalar(1), None, scalar(HUGE)], error="")
    yield Use("STFT", [np.ones((1, 4, 1), f32), scalar(0), None, scalar(2)], error="")
    yield Use("MelWeightMatrix", [scalar(HUGE), scalar(16), scalar(8192), f32(0).reshape(()), f32(4096).reshape(())], error="")
    yield Use("ConvTranspose", [np.ones((1, 1, 2, 2), f32), np.ones((1, 1, 2, 2), f32)], error="", strides=[HUGE, HUGE])
    yield Use("ConvTranspose", [np.ones((1, 1, 2, 2), f32), np.ones((1, 1, 2, 2), f32)], error="", output_shape=[HUGE, HUGE])
    yield Use("Col2Im", [np.ones((1, 4, 4), f32), ints(HUGE, HUGE), ints(2, 2)], error="", version=18)
    yield Use("MaxUnpool", [np.ones((1, 1, 2, 2), f32), np.zeros((1, 1, 2, 2), np.int64), ints(1, 1, HUGE, HUGE)], error="", kernel_shape=[2, 2])
    yield Use("Multinomial", [f32([[0, 0]])], error="", sample_size=MOST)
    yield Use("RoiAlign", [np.ones((1, 1, 2, 2), f32), f32([[0, 0, 1, 1]]), ints(0)], error="", output_height=HUGE, output_width=HUGE)
    yield Use("MaxRoiPool", [np.ones((1, 1, 2, 2), f32), f32([[0, 0, 0, 1, 1]])], error="", pooled_shape=[HUGE, HUGE])
    yield Use("AffineGrid", [np.ones((1, 2, 3), f32), ints(1, 1, HUGE, HUGE)], error="", version=20)
    yield Use("SplitToSequence", [f32([1, 2]), scalar(MOST)], [[f32([1, 2])]])
    yield Use("SplitToSequence", [f32([1, 2]), scalar(0)], [[]], error="0")
    yield Use("Split", [f32([1, 2]), ints(MOST, MOST)], [(F32, None), (F32, None)], error="")
    yield Use("TopK", [f32([1, 2]), ints(MOST)], [(F32, None), (7, None)], error="")
    yield Use("NonMaxSuppression", [np.zeros((1, 2, 4), f32), f32([[[0.9, 0.8]]]), ints(MOST), f32([0.5]), f32([0])], [(7, None)])
    yield Use("NonMaxSuppression", [np.full((1, 2, 4), np.nan, f32), f32([[[np.nan, 0.8]]]), ints(LEAST), f32([0.5]), f32([0])], [(7, None)])
    yield Use("RoiAlign", [np.ones((1, 1, 2, 2), f32), f32([[np.nan, -1e30, 1e30, np.inf]]), ints(0)], [(F32, (1, 1, 1, 1))])
    yield Use("RoiAlign", [np.ones((1, 1, 2, 2), f32), f32([[0, 0, 1, 1]]), ints(7)], error="7")
    yield Use("MaxRoiPool", [np.ones((1, 1, 2, 2), f32), f32([[0, np.nan, -1e30, 1e30, np.inf]])], [(F32, (1, 1, 1, 1))], pooled_shape=[1, 1])
    yield Use("MaxRoiPool", [np.ones((1, 1, 2, 2), f32), f32([[np.nan, 0, 0, 1, 1]])], error="", pooled_shape=[1, 1])
    for mode in "nearest", "bilinear", "bicubic":
        for padding in "zeros", "border", "reflection":
            yield Use("GridSample", [np.ones((1, 1, 2, 2), f32), f32([[[[np.nan, np.inf], [-np.inf, 1e30]]]])], [(F32, (1, 1, 1, 2))], mode=mode, padding_mode=padding)


def long_use(op, shape, expected, before=(), note="", rtol=1e-5, kind=F32, **attributes):
    """The operator on ones of a shape that Expand makes inside the model."""
    version = attributes.pop("version", 17)
    inputs = [typed(kind, 1), ints(*shape)]
    nodes = [helper.make_node("Expand", ["i0", "i1"], ["e"], name="e"), *before]
    reads = ["e"] + [name for n in before for name in n.output] if op in ("MatMul", "Einsum") else ["e"]
    for value in attributes.pop("more", []):
        inputs.append(value)
        reads.append(f"i{len(inputs) - 1}")
    nodes.append(helper.make_node(op, reads, ["long"], name="n", **attributes))
    nodes.append(helper.make_node("ReduceMax", ["long"], ["o0"], name="m", keepdims=0))
    nodes.append(helper.make_node("ReduceMin", ["long"], ["o1"], name="l", keepdims=0))
    both = [typed(kind, v) for v in (expected if isinstance(expected, tuple) else (expected, expected))]
    return Use(op, inputs, both, nodes=nodes, version=version, note=note or f"of {list(shape)}", rtol=rtol, atol=0, loose=True)


@topic
def long_sums():
    n = 2**25
    for shape, axes, count in ((n,), [0], n), ((n // 8, 8), [0], n // 8), ((8, n // 8), [1], n // 8), ((64, n // 512, 8), [0, 1], n // 8):
        yield long_use("ReduceSum", shape, count, more=[np.array(axes)], keepdims=0)
        yield long_use("ReduceMean", shape, 1, axes=axes)
        yield long_use("ReduceL1", shape, count, axes=axes)
        yield long_use("ReduceL2", shape, math.sqrt(count), axes=axes)
        yield long_use("ReduceSumSquare", shape, count, axes=axes)
        yield long_use("ReduceLogSum", shape, math.log(count), axes=axes)
        yield long_use("ReduceLogSumExp", shape, 1 + math.log(count), axes=axes)
    yield long_use("CumSum", (n,), (n, 1), more=[scalar(0)])
    yield long_use("CumSum", (n // 8, 8), (n // 8, 1), more=[scalar(0)])
    yield long_use("Softmax", (n,), 1 / n, axis=0)
    yield long_use("Softmax", (n // 8, 8), 8 / n, axis=0)
    yield long_use("LogSoftmax", (n,), -math.log(n), axis=0)
    # Products are summed in blocks of some hundred terms, and block upon block.
    yield long_use("MatMul", (1, n), n, rtol=1e-2, before=[helper.make_node("Transpose", ["e"], ["t"], name="t")])
    yield long_use("MatMul", (4, n // 4), n // 4, rtol=1e-2, before=[helper.make_node("Transpose", ["e"], ["t"], name="t")])
    yield long_use("Einsum", (n,), n, before=[helper.make_node("Identity", ["e"], ["t"], name="t")], equation="i,i->")
    yield long_use("GlobalAveragePool", (1, 1, n), 1)
    yield long_use("AveragePool", (1, 1, n), 1, kernel_shape=[n])
    yield long_use("AveragePool", (1, 1, n // 4), 1, kernel_shape=[n // 4 - 1])
    yield long_use("LpPool", (1, 1, n), math.sqrt(n), kernel_shape=[n])
    yield long_use("LpNormalization", (n,), 1 / math.sqrt(n), axis=0)
    yield long_use("LpNormalization", (n,), 1 / n, axis=0, p=1)
    yield long_use("GlobalLpPool", (1, 1, n), math.sqrt(n))
    for kind in F16, BF16:
        rtol = 2e-3 if kind == F16 else 1e-2
        yield long_use("ReduceSum", (4096,), 4096, kind=kind, rtol=0, more=[ints(0)], keepdims=0)
        yield long_use("ReduceSum", (70000,), np.inf if kind == F16 else 70000, kind=kind, rtol=rtol, more=[ints(0)], keepdims=0)
        yield long_use("ReduceMean", (70000,), 1, kind=kind, rtol=0, axes=[0])
        yield long_use("ReduceL2", (70000,), math.sqrt(70000), kind=kind, rtol=rtol, axes=[0])
        yield long_use("GlobalAveragePool", (1, 1, 70000), 1, kind=kind, rtol=0)
        yield long_use("Softmax", (4096,), 1 / 4096, kind=kind, rtol=rtol, axis=0)
        yield long_use("CumSum", (4096,), (4096, 1), kind=kind, rtol=0, more=[scalar(0)])
        yield long_use("MatMul", (1, 4096), 4096, kind=kind, rtol=0, before=[helper.make_node("Transpose", ["e"], ["t"], name="t")])


def main():
    one, topics = "--one" in sys.argv, [name for name in sys.argv[3:] if name != "--one"]
    suite = Suite(sys.argv[1], sys.argv[2], None if one else CONFIGURATIONS)
    for name in topics or TOPICS:
        for use in TOPICS[name]():
            suite.check(name, use)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
