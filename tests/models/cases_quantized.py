"""Quantised networks: QuantizeLinear and DequantizeLinear around operators, and products of integers. Expected outputs
are those of the graph as it is written, each number quantised where the graph says so; a kernel that keeps integers
between may land on the neighbouring step, which is what the cases allow."""
import numpy as np

import reference as ref
from onnx_build import F32, Case, Graph
from cases_networks import f32, normal

U8, I8 = np.uint8, np.int8


def quantise(x, scale, zero):
    limits = np.iinfo(zero.dtype)
    x = np.asarray(x, np.float32) / np.asarray(scale, np.float32)
    return np.clip(np.rint(x.astype(np.float64)) + zero, limits.min, limits.max).astype(zero.dtype)


class Qdq:
    """Builds a graph and its values side by side: each value is a name and the number that the name stands for."""

    def __init__(self, name):
        self.g = Graph(name)

    def input(self, value, name="x"):
        return self.g.input(name, F32, list(value.shape)), np.asarray(value, np.float64)

    def q(self, at, scale, zero):
        """The name of quantised bytes, and the bytes."""
        scale, zero = np.float32(scale), np.asarray(zero)
        name = self.g.op("QuantizeLinear", at[0], self.g.const(scale), self.g.const(zero))
        return name, quantise(at[1], scale, zero), scale, zero

    def dq(self, bytes_of, out=None):
        name, value, scale, zero = bytes_of
        name = self.g.op("DequantizeLinear", name, self.g.const(scale), self.g.const(zero), out=out)
        return name, (value.astype(np.int64) - int(zero)) * np.float64(scale)

    def qdq(self, at, scale, zero):
        return self.dq(self.q(at, scale, zero))

    def weights(self, w, axis=None, dtype=I8, zero=None):
        """Constant weights as bytes and DequantizeLinear, with one scale or one for each place of `axis`."""
        shape = [1] * w.ndim
        if axis is None:
            scale, zeros = np.float32(np.abs(w).max() / 120), np.asarray(zero or 0, dtype)
            bytes_of = quantise(w, scale, zeros)
            value = (bytes_of.astype(np.int64) - int(zeros)) * np.float64(scale)
        else:
            shape[axis] = w.shape[axis]
            scale = f32(np.abs(w).max(axis=tuple(i for i in range(w.ndim) if i != axis)) / 120)
            zeros = np.full(w.shape[axis], zero or 0, dtype)
            bytes_of = quantise(w, scale.reshape(shape), zeros.reshape(shape))
            value = (bytes_of.astype(np.int64) - zeros.reshape(shape).astype(np.int64)) * np.float64(1) * scale.reshape(shape)
        extra = {} if axis is None else {"axis": axis}
        name = self.g.op("DequantizeLinear", self.g.const(bytes_of), self.g.const(scale), self.g.const(zeros), **extra)
        return (name, value), scale

    def bias(self, b, scales):
        """int32 in units of the product's scales."""
        scales = f32(scales)
        steps = np.rint(b / scales).astype(np.int32)
        name = self.g.op("DequantizeLinear", self.g.const(steps), self.g.const(scales),
                         self.g.const(np.zeros(scales.shape, np.int32)), axis=0)
        return name, steps * np.float64(1) * scales

    def conv(self, x, w, b=None, pads=(0, 0, 0, 0), strides=(1, 1), group=1):
        inputs = [x[0], w[0]] + ([b[0]] if b else [])
        name = self.g.op("Conv", *inputs, kernel_shape=list(w[1].shape[2:]), pads=list(pads), strides=list(strides), group=group)
        return name, ref.conv(x[1], w[1], b[1] if b else None, strides=strides, pads=pads, group=group)

    def relu(self, x):
        return self.g.op("Relu", x[0]), ref.relu(x[1])

    def clip(self, x, low, high):
        return self.g.op("Clip", x[0], self.g.const(np.float32(low)), self.g.const(np.float32(high))), np.clip(x[1], low, high)

    def unary(self, op, x, function, **attributes):
        return self.g.op(op, x[0], **attributes), function(x[1])

    def binary(self, op, a, b, function):
        return self.g.op(op, a[0], b[0]), function(a[1], b[1])

    def outputs(self, *values):
        for i, (name, value) in enumerate(values):
            self.g.output(name, F32, list(value.shape))
        return [f32(value) for _, value in values]

    def case(self, inputs, *outputs, step, opset=13):
        expected = self.outputs(*outputs)
        return Case(self.g.model(opset), (inputs, expected), rtol=1e-5, atol=float(step) * 1.01)


def qdq_mobile_block(rng):
    """Conv, Clip, depthwise Conv, Relu, pointwise Conv, residual Add, each between Q and DQ"""
    x = normal(rng, 1, 6, 9, 11)
    m = Qdq("qdq_mobile_block")
    a = m.qdq(m.input(x), 0.03, U8(120))
    w1, s1 = m.weights(normal(rng, 16, 6, 1, 1), axis=0)
    w2, s2 = m.weights(normal(rng, 16, 1, 3, 3), axis=0)
    w3, s3 = m.weights(normal(rng, 6, 16, 1, 1), axis=0)
    y = m.conv(a, w1, m.bias(normal(rng, 16), 0.03 * s1))
    y = m.qdq(y, 0.07, U8(131))
    y = m.qdq(m.clip(y, 0, 6), 6 / 255, U8(0))
    y = m.conv(y, w2, m.bias(normal(rng, 16), np.float32(6 / 255) * s2), pads=(1, 1, 1, 1), group=16)
    y = m.qdq(m.relu(y), 0.05, U8(0))
    y = m.conv(y, w3, m.bias(normal(rng, 6), np.float32(0.05) * s3))
    y = m.qdq(y, 0.5, U8(100))
    out = m.qdq(m.binary("Add", a, y, lambda p, q: p + q), 0.5, U8(101))
    return m.case([x], out, step=1.0)


def qdq_signed_network(rng):
    """Signed bytes: strided Conv with bias as float, Relu, MaxPool, Conv, GlobalAveragePool, Flatten, Gemm"""
    x = normal(rng, 2, 3, 15, 14)
    m = Qdq("qdq_signed_network")
    a = m.qdq(m.input(x), 0.025, I8(-3))
    w1, _ = m.weights(normal(rng, 9, 3, 3, 3))
    w2, _ = m.weights(normal(rng, 12, 9, 3, 3), zero=5)
    w3, s3 = m.weights(normal(rng, 5, 12), axis=0)
    b1 = normal(rng, 9)
    y = m.relu(m.conv(a, w1, (m.g.const(b1), b1), pads=(1, 0, 1, 2), strides=(2, 1)))
    y = m.qdq(y, 0.06, I8(-128))
    y = m.g.op("MaxPool", y[0], kernel_shape=[2, 2], strides=[2, 2]), ref.max_pool(y[1], (2, 2), (2, 2))
    y = m.qdq(y, 0.06, I8(-128))
    y = m.qdq(m.conv(y, w2), 0.3, I8(4))
    y = m.g.op("GlobalAveragePool", y[0]), y[1].mean(axis=(2, 3), keepdims=True)
    y = m.qdq(y, 0.08, I8(1))
    y = m.g.op("Flatten", y[0]), y[1].reshape(2, 12)
    y = m.qdq(y, 0.09, I8(0))
    b3 = m.bias(normal(rng, 5), np.float32(0.09) * s3)
    y = m.g.op("Gemm", y[0], w3[0], b3[0], transB=1), y[1] @ w3[1].T + b3[1]
    # The only rounding that may differ by a step is that before Gemm; its weights are about 1.
    return m.case([x], y, step=0.7)


def qdq_products(rng):
    """MatMul and Gemm between Q and DQ, with one scale or many, with Relu, and without Q behind them"""
    x = normal(rng, 2, 7, 33)
    m = Qdq("qdq_products")
    a = m.qdq(m.input(x), 0.02, U8(128))
    flat = m.g.op("Reshape", a[0], m.g.const(np.array([14, 33]))), a[1].reshape(14, 33)
    flat = m.qdq(flat, 0.02, U8(128))
    w1, _ = m.weights(normal(rng, 33, 20), axis=1)
    w2, _ = m.weights(normal(rng, 33, 70))
    w3, s3 = m.weights(normal(rng, 33, 9), axis=1, dtype=U8, zero=128)
    w4, _ = m.weights(normal(rng, 33, 5))
    bias = normal(rng, 70)
    one = m.qdq((m.g.op("MatMul", a[0], w1[0]), a[1] @ w1[1]), 0.25, U8(130))
    two = m.g.op("MatMul", a[0], w2[0]), a[1] @ w2[1]
    two = m.g.op("Add", two[0], m.g.const(bias)), two[1] + bias
    b3 = m.bias(normal(rng, 9), np.float32(0.02) * np.float32(0.5) * s3)
    three = m.g.op("Gemm", flat[0], w3[0], b3[0], alpha=0.5), 0.5 * (flat[1] @ w3[1]) + b3[1]
    three = m.qdq(m.relu(three), 0.1, U8(0))
    four = m.qdq(m.relu((m.g.op("MatMul", a[0], w4[0]), a[1] @ w4[1])), 0.25, U8(3))
    return m.case([x], one, two, three, four, step=0.25)


def qdq_elements(rng):
    """What looks at single elements or moves them: Sigmoid, x * Sigmoid(x), HardSwish in parts, Mul, LeakyRelu, Concat
    of several scales, Transpose and Slice; means of windows"""
    x = normal(rng, 2, 3, 5, 7, scale=2)
    m = Qdq("qdq_elements")
    f = m.input(x)
    a, b, c = m.qdq(f, 0.04, U8(117)), m.qdq(f, 0.03, U8(128)), m.qdq(f, 0.02, U8(90))
    outs = []
    outs.append(m.qdq(m.unary("Sigmoid", a, ref.sigmoid), 1 / 256, U8(0)))
    gate = m.unary("Sigmoid", b, ref.sigmoid)
    outs.append(m.qdq(m.binary("Mul", b, gate, lambda p, q: p * q), 0.03, U8(20)))
    shifted = m.g.op("Add", c[0], m.g.const(np.float32(3))), c[1] + 3
    gated = m.binary("Mul", m.clip(shifted, 0, 6), c, lambda p, q: p * q)
    sixth = m.g.op("Div", gated[0], m.g.const(np.array([6], np.float32))), gated[1] / 6
    outs.append(m.qdq(sixth, 0.03, U8(10)))
    outs.append(m.qdq(m.binary("Mul", a, b, lambda p, q: p * q), 0.1, U8(60)))
    outs.append(m.qdq(m.unary("LeakyRelu", a, lambda v: np.where(v < 0, 0.1 * v, v), alpha=0.1), 0.03, I8(-90)))
    joined = m.g.op("Concat", a[0], b[0], c[0], axis=1), np.concatenate([a[1], b[1], c[1]], axis=1)
    outs.append(m.qdq(joined, 0.03, U8(128)))
    moved = m.g.op("Transpose", a[0], perm=[0, 2, 3, 1]), a[1].transpose(0, 2, 3, 1)
    begin, end, axis = (m.g.const(np.array([v])) for v in (1, 4, 2))
    moved = m.g.op("Slice", moved[0], begin, end, axis), moved[1][:, :, 1:4]
    outs.append(m.qdq(moved, 0.05, U8(127)))
    for pads, count in ((0, 0), (1, 0), (1, 1)):
        around = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [pads] * 4, "count_include_pad": count}
        mean = m.g.op("AveragePool", a[0], **around), ref.average_pool(a[1], (3, 2), (2, 1), (pads,) * 4, bool(count))
        outs.append(m.qdq(mean, 0.03, U8(125)))
    return m.case([x], *outs, step=0.1)


def qdq_traps(rng):
    """Where floats must stay: other readers, scales that are computed, weights with scales along another axis, an input
    with a scale for each channel, an activation in between that is no clamp"""
    x = normal(rng, 1, 4, 6, 6)
    m = Qdq("qdq_traps")
    f = m.input(x)
    a = m.qdq(f, 0.03, U8(120))
    w, s = m.weights(normal(rng, 5, 4, 3, 3), axis=0)
    y = m.conv(a, w)
    second = m.g.op("Neg", y[0], out="second"), -y[1]
    first = m.qdq(y, 0.1, U8(128))
    # An input with a scale for each channel.
    scales, zeros = f32([0.02, 0.03, 0.04, 0.05]), np.array([120, 121, 122, 123], U8)
    four = (1, 4, 1, 1)
    raw = quantise(x, scales.reshape(four), zeros.reshape(four))
    name = m.g.op("QuantizeLinear", f[0], m.g.const(scales), m.g.const(zeros), axis=1)
    name = m.g.op("DequantizeLinear", name, m.g.const(scales), m.g.const(zeros), axis=1)
    channels = name, (raw.astype(np.int64) - zeros.reshape(four)) * np.float64(1) * scales.reshape(four)
    third = m.qdq(m.conv(channels, w), 0.1, U8(128))
    # Weights with a scale for each input channel.
    w_in, _ = m.weights(normal(rng, 5, 4, 3, 3), axis=1)
    fourth = m.qdq(m.conv(a, w_in), 0.1, U8(128))
    # A scale that is only known when the model runs.
    scale = m.g.op("ReduceMax", m.g.op("Abs", f[0]), axes=[0, 1, 2, 3], keepdims=0)
    scale = m.g.op("Mul", scale, m.g.const(np.float32(0.01)))
    known = np.float32(np.abs(x).max() * np.float32(0.01))
    name = m.g.op("QuantizeLinear", f[0], scale, m.g.const(U8(128)))
    name = m.g.op("DequantizeLinear", name, scale, m.g.const(U8(128)))
    computed = name, (quantise(x, known, U8(128)).astype(np.int64) - 128) * np.float64(known)
    fifth = m.qdq(m.conv(computed, w), 0.1, U8(128))
    sixth = m.qdq(m.unary("Sigmoid", m.conv(a, w), ref.sigmoid), 1 / 256, U8(0))
    both = m.binary("Add", a, a, lambda p, q: p + q)
    seventh = m.qdq(both, 0.06, U8(120))
    eighth = m.g.op("Mul", both[0], both[0], out="squares"), both[1] * both[1]
    return m.case([x], first, second, third, fourth, fifth, sixth, seventh, eighth, step=0.1)


def dynamic_feed_forward(rng):
    """DynamicQuantizeLinear, MatMulInteger, Cast, Mul, Add, twice with one input, then Relu and once more"""
    x = normal(rng, 2, 9, 24)
    g = Graph("dynamic_feed_forward")
    name = g.input("x", F32, list(x.shape))

    def dynamic(at, value):
        parts = g.op("DynamicQuantizeLinear", at, outs=3)
        low, high = min(np.float32(0), value.min()), max(np.float32(0), value.max())
        scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
        zero = U8(np.clip(np.rint(np.float32(0) - np.float32(low) / scale), 0, 255))
        return parts, quantise(value, scale, zero), scale, zero

    def linear(at, value, w, b, zero):
        (q, s, z), bytes_of, scale, a_zero = dynamic(at, value)
        w_scale = f32(np.abs(w).max(axis=0) / 110)
        zeros = np.full(w.shape[1], zero, I8)
        w_bytes = quantise(w, w_scale, zeros)
        sums = g.op("MatMulInteger", q, g.const(w_bytes), z, g.const(zeros))
        scales = g.op("Mul", s, g.const(w_scale))
        y = g.op("Add", g.op("Mul", g.op("Cast", sums, to=1), scales), g.const(b))
        exact = (bytes_of.astype(np.int64) - int(a_zero)) @ (w_bytes.astype(np.int64) - zeros.astype(np.int64))
        return y, f32(exact) * (scale * w_scale) + b

    left, left_value = linear(name, x, normal(rng, 24, 40), normal(rng, 40), 0)
    right, right_value = linear(name, x, normal(rng, 24, 40), normal(rng, 40), 3)
    both = g.op("Relu", g.op("Add", left, right))
    both_value = ref.relu(left_value + right_value)
    out, value = linear(both, f32(both_value), normal(rng, 40, 17), normal(rng, 17), 0)
    g.output(left, F32, list(left_value.shape))
    g.output(out, F32, list(value.shape))
    # A byte of the second product's input may be the neighbouring one: 0.07 times weights of about 1.
    return Case(g.model(13), ([x], [f32(left_value), f32(value)]), rtol=1e-5, atol=0.3)


CASES = [qdq_mobile_block, qdq_signed_network, qdq_products, qdq_elements, qdq_traps, dynamic_feed_forward]
