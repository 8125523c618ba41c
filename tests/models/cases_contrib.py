"""Operators of com.microsoft that exported and quantised models carry. What they are to give is written out here in
double precision, from the definitions of the operators."""
import numpy as np

import reference as ref
from onnx_build import BF16, F16, F32, F64, I32, I64, I8, U8, Bf16, Case, Graph
from cases_networks import f32, normal
from cases_quantized import quantise

MS = "com.microsoft"


class Net:
    """A graph whose nodes are of com.microsoft, with what it is to give."""

    def __init__(self, name, **case):
        self.g, self.inputs, self.expected, self.case = Graph(name), [], [], case

    def input(self, name, value, elem_type=None):
        """A numpy array, or a Bf16; `elem_type` where the array is not of it."""
        self.g.input(name, elem_type or TYPES[getattr(value, "dtype", None)], list(value.shape))
        self.inputs.append(value)
        return name

    def const(self, value):
        return self.g.const(value)

    def op(self, op, *inputs, outs=1, domain=MS, out=None, **attributes):
        return self.g.op(op, *inputs, outs=outs, out=out, domain=domain, **attributes)

    def output(self, name, value, elem_type=None):
        self.g.output(name, elem_type or TYPES[getattr(value, "dtype", None)], list(value.shape))
        self.expected.append(value)

    def make(self, opset=17):
        return Case(self.g.model(opset, com_microsoft=1), (self.inputs, self.expected), check=False, **self.case)


TYPES = {None: BF16, np.dtype(np.float32): F32, np.dtype(np.float64): F64, np.dtype(np.float16): F16, np.dtype(np.int32): I32,
         np.dtype(np.int64): I64, np.dtype(np.uint8): U8, np.dtype(np.int8): I8}


def rounded(value, kind):
    """As `kind` stores it: what goes in, and the numbers that it stands for."""
    if kind == BF16:
        stored = Bf16(value)
        return stored, stored.values().astype(np.float64)
    stored = np.asarray(value, {F32: np.float32, F16: np.float16, F64: np.float64}[kind])
    return stored, stored.astype(np.float64)


def fast_gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


# ---- activations and products


def contrib_gelus(rng):
    """Gelu, BiasGelu, FastGelu with and without bias, QuickGelu, BiasSplitGelu, BiasAdd, GemmFastGelu"""
    x, bias, w = normal(rng, 2, 5, 12, scale=3), normal(rng, 12), normal(rng, 12, 6)
    n = Net("contrib_gelus", rtol=1e-5, atol=1e-5)
    a, b = n.input("x", x), n.const(bias)
    v, c = x.astype(np.float64), bias.astype(np.float64)
    n.output(n.op("Gelu", a), f32(ref.gelu(v)))
    n.output(n.op("BiasGelu", a, b), f32(ref.gelu(v + c)))
    n.output(n.op("FastGelu", a), f32(fast_gelu(v)))
    n.output(n.op("FastGelu", a, b), f32(fast_gelu(v + c)))
    n.output(n.op("QuickGelu", a), f32(v * ref.sigmoid(1.702 * v)))
    n.output(n.op("QuickGelu", a, alpha=0.5), f32(v * ref.sigmoid(0.5 * v)))
    n.output(n.op("BiasSplitGelu", a, b), f32((v + c)[..., :6] * ref.gelu((v + c)[..., 6:])))
    n.output(n.op("BiasAdd", a, b, a), f32(2 * v + c))
    n.output(n.op("GemmFastGelu", a, n.const(w), n.const(bias[:6])), f32(fast_gelu(v @ w.astype(np.float64) + c[:6])))
    return n.make()


def contrib_gelus_of_16_bits(rng):
    """BiasGelu and FastGelu in float16 and bfloat16, with a runtime bias"""
    n = Net("contrib_gelus_of_16_bits", rtol=2e-2, atol=2e-2)
    for kind in (F16, BF16):
        (x, v), (bias, c) = rounded(normal(rng, 3, 8), kind), rounded(normal(rng, 8), kind)
        a, b = n.input(f"x{kind}", x), n.input(f"b{kind}", bias)
        n.output(n.op("BiasGelu", a, b), rounded(ref.gelu(v + c), kind)[0])
        n.output(n.op("FastGelu", a, b), rounded(fast_gelu(v + c), kind)[0])
    return n.make()


def contrib_fused_matmul(rng):
    """FusedMatMul: operands transposed, batches between rows and columns, alpha, vectors, constant weights"""
    n = Net("contrib_fused_matmul", rtol=1e-5, atol=1e-4)
    a, b = normal(rng, 2, 3, 7, 5), normal(rng, 2, 3, 5, 9)
    turned_a, turned_b = np.moveaxis(a, 2, 0), np.moveaxis(b, 2, 0)  # rows in front of the batches
    wide = a.astype(np.float64) @ b.astype(np.float64)
    swap = lambda x: np.ascontiguousarray(np.swapaxes(x, -1, -2))
    forms = {"n": (a, {}), "t": (swap(a), {"transA": 1}), "b": (np.ascontiguousarray(turned_a), {"transBatchA": 1}),
             "bt": (np.ascontiguousarray(np.moveaxis(swap(a), 2, 0)), {"transBatchA": 1, "transA": 1})}
    rights = {"n": (b, {}), "t": (swap(b), {"transB": 1}), "b": (np.ascontiguousarray(turned_b), {"transBatchB": 1}),
              "bt": (np.ascontiguousarray(np.moveaxis(swap(b), 2, 0)), {"transBatchB": 1, "transB": 1})}
    lefts = {key: (n.input(f"a_{key}", f32(value)), attributes) for key, (value, attributes) in forms.items()}
    for i, (key, (value, attributes)) in enumerate(rights.items()):
        right = n.const(f32(value)) if i % 2 else n.input(f"b_{key}", f32(value))
        for left, more in lefts.values():
            n.output(n.op("FusedMatMul", left, right, alpha=0.5, **attributes, **more), f32(0.5 * wide))
    row, w = normal(rng, 5), normal(rng, 9, 5)
    n.output(n.op("FusedMatMul", n.input("row", row), n.const(w), transB=1, transA=1), f32(row.astype(np.float64) @ w.T))
    n.output(n.op("FusedMatMul", n.input("left", w), n.input("column", row), alpha=-2.0), f32(-2.0 * (w.astype(np.float64) @ row)))
    x = normal(rng, 4, 5, 3)
    n.output(n.op("TransposeMatMul", n.input("x", x), n.const(w), transA=1, transB=1),
             f32(np.swapaxes(x.astype(np.float64), 1, 2) @ w.T))
    return n.make()


def contrib_fused_matmul_types(rng):
    """FusedMatMul in double, float16 and bfloat16"""
    n = Net("contrib_fused_matmul_types", rtol=2e-2, atol=5e-2)
    for kind in (F64, F16, BF16):
        (a, u), (b, v) = rounded(normal(rng, 6, 11), kind), rounded(normal(rng, 7, 6), kind)
        n.output(n.op("FusedMatMul", n.input(f"a{kind}", a), n.input(f"b{kind}", b), transA=1, transB=1, alpha=0.25),
                 rounded(0.25 * u.T @ v.T, kind)[0], kind)
    return n.make()


def contrib_fused_conv_and_gemm(rng):
    """FusedConv with each activation, with and without a summand; FusedGemm"""
    x, w, b, z = normal(rng, 1, 3, 7, 7), normal(rng, 4, 3, 3, 3), normal(rng, 4), normal(rng, 1, 4, 7, 7)
    n = Net("contrib_fused_conv_and_gemm", rtol=1e-4, atol=1e-4)
    a, names = n.input("x", x), [n.const(w), n.const(b)]
    y = ref.conv(x.astype(np.float64), w.astype(np.float64), b.astype(np.float64), strides=(1, 1), pads=(1, 1, 1, 1))
    leaky = lambda v, slope: np.where(v < 0, slope * v, v)
    around = {"kernel_shape": [3, 3], "pads": [1] * 4}
    acts = {"Relu": ([], lambda v: np.maximum(v, 0)), "Sigmoid": ([], ref.sigmoid), "Tanh": ([], np.tanh),
            "LeakyRelu": ([0.2], lambda v: leaky(v, np.float32(0.2))), "Clip": ([-1.0, 2.5], lambda v: np.clip(v, -1, 2.5)),
            "HardSigmoid": ([0.3, 0.4], lambda v: np.clip(np.float32(0.3) * v + np.float32(0.4), 0, 1))}
    for op, (parameters, function) in acts.items():
        extra = {"activation_params": parameters} if parameters else {}
        n.output(n.op("FusedConv", a, *names, activation=op, **around, **extra), f32(function(y)))
    n.output(n.op("FusedConv", a, *names, n.const(z), activation="Relu", **around), f32(np.maximum(y + z, 0)))
    n.output(n.op("FusedConv", a, *names, n.input("z", z), **around), f32(y + z))
    n.output(n.op("FusedConv", a, *names, **around), f32(y))
    p, q, c = normal(rng, 4, 6), normal(rng, 5, 6), normal(rng, 5)
    sums = 0.5 * p.astype(np.float64) @ q.T + 2 * c.astype(np.float64)
    gemm = [n.input("p", p), n.const(q), n.const(c)]
    n.output(n.op("FusedGemm", *gemm, transB=1, alpha=0.5, beta=2.0, activation="Relu"), f32(np.maximum(sums, 0)))
    n.output(n.op("FusedGemm", *gemm, transB=1, alpha=0.5, beta=2.0, activation="LeakyRelu", activation_alpha=0.1),
             f32(leaky(sums, np.float32(0.1))))
    return n.make()


# ---- normalisation


def layer_norm(x, gamma, beta=None, epsilon=1e-12):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    inverse = 1 / np.sqrt(variance + epsilon)
    return (x - mean) * inverse * gamma + (0 if beta is None else beta), mean, inverse


def rms_norm(x, gamma, epsilon=1e-12):
    inverse = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
    return x * inverse * gamma, inverse


def contrib_skip_layer_norm(rng):
    """SkipLayerNormalization and its simplified form: skips of three shapes, bias, all outputs; the norms that old
    exporters wrote in the domain of ONNX"""
    x, full, one = normal(rng, 2, 4, 19), normal(rng, 2, 4, 19), normal(rng, 1, 4, 19)
    gamma, beta, bias = normal(rng, 19), normal(rng, 19), normal(rng, 19)
    n = Net("contrib_skip_layer_norm", rtol=1e-4, atol=1e-4)
    a, s, g, b, c = n.input("x", x), n.input("skip", full), n.const(gamma), n.const(beta), n.const(bias)
    v = x.astype(np.float64)
    total = v + full + bias
    names = n.op("SkipLayerNormalization", a, s, g, b, c, outs=4, epsilon=1e-3)
    for name, value in zip(names, (*layer_norm(total, gamma, beta, 1e-3), total)):
        n.output(name, f32(value))
    n.output(n.op("SkipLayerNormalization", a, n.input("one", one), g), f32(layer_norm(v + one, gamma)[0]))
    n.output(n.op("SkipLayerNormalization", a, n.const(one[0]), g, b), f32(layer_norm(v + one, gamma, beta)[0]))
    y, _, inverse, sums = n.op("SkipSimplifiedLayerNormalization", a, s, g, c, out=["y", "", "inverse", "sums"], epsilon=1e-5)
    for name, value in ((y, rms_norm(total, gamma, 1e-5)[0]), (inverse, rms_norm(total, gamma, 1e-5)[1]), (sums, total)):
        n.output(name, f32(value))
    n.output(n.op("SkipSimplifiedLayerNormalization", a, s, g), f32(rms_norm(v + full, gamma)[0]))
    names = n.op("SimplifiedLayerNormalization", a, g, domain="", outs=2, axis=-1, epsilon=1e-6, stash_type=1)
    for name, value in zip(names, rms_norm(v, gamma, 1e-6)):
        n.output(name, f32(value))
    n.output(n.op("LayerNormalization", a, g, b, domain="", epsilon=1e-5), f32(layer_norm(v, gamma, beta, 1e-5)[0]))
    return n.make(opset=13)


def contrib_skip_layer_norm_of_16_bits(rng):
    """The same in float16 and bfloat16, on rows of tokens"""
    n = Net("contrib_skip_layer_norm_of_16_bits", rtol=2e-2, atol=4e-2)
    for kind in (F16, BF16):
        (x, v), (skip, s), (gamma, g), (bias, b) = (rounded(normal(rng, *dims), kind) for dims in ((5, 33), (5, 33), (33,), (33,)))
        names = [n.input(f"{name}{kind}", value) for name, value in zip("xsgb", (x, skip, gamma, bias))]
        n.output(n.op("SkipLayerNormalization", *names[:3], names[3], epsilon=1e-5), rounded(layer_norm(v + s, g, b, 1e-5)[0], kind)[0])
        y, _, _, sums = n.op("SkipSimplifiedLayerNormalization", *names, out=[f"y{kind}", "", "", f"sum{kind}"], epsilon=1e-5)
        n.output(y, rounded(rms_norm(v + s + b, g, 1e-5)[0], kind)[0])
        n.output(sums, rounded(v + s + b, kind)[0])
        n.output(n.op("SimplifiedLayerNormalization", names[0], names[2], domain=""), rounded(rms_norm(v, g, 1e-5)[0], kind)[0])
    return n.make()


def contrib_embedding(rng):
    """EmbedLayerNormalization: with and without segments, mask and position ids, the counted mask, the sum"""
    words, places, kinds = normal(rng, 11, 8), normal(rng, 7, 8), normal(rng, 2, 8)
    gamma, beta = normal(rng, 8), normal(rng, 8)
    ids = np.array([[3, 1, 10, 0], [5, 5, 2, 9]], np.int32)
    segments, order = np.array([[0, 0, 1, 1], [1, 0, 0, 0]], np.int32), np.array([[6, 4, 2, 0], [1, 2, 3, 3]], np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    n = Net("contrib_embedding", rtol=1e-4, atol=1e-5)
    names = [n.input("ids", ids), n.input("segments", segments), *(n.const(v) for v in (words, places, kinds, gamma, beta))]
    m, p = n.input("mask", mask), n.input("order", order)
    wide = [v.astype(np.float64) for v in (words, places, kinds)]
    sums = wide[0][ids] + wide[1][None, :4] + wide[2][segments]
    y, counts, total = n.op("EmbedLayerNormalization", *names, m, outs=3, epsilon=1e-12)
    n.output(y, f32(layer_norm(sums, gamma, beta)[0]))
    n.output(counts, np.array([3, 2], np.int32))
    n.output(total, f32(sums))
    bare = [names[0], "", names[2], names[3], "", *names[5:]]
    y, counts = n.op("EmbedLayerNormalization", *bare, "", p, outs=2)
    n.output(y, f32(layer_norm(wide[0][ids] + wide[1][order], gamma, beta)[0]))
    n.output(counts, np.zeros(2, np.int32))
    return n.make()


# ---- weights of few bits


def pack_bits(numbers, bits):
    """[..., count] numbers, the first in the lowest bits of a byte."""
    each = 8 // bits
    pad = -numbers.shape[-1] % each
    numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, pad)])
    parts = numbers.reshape(*numbers.shape[:-1], -1, each).astype(np.uint32)
    return sum(parts[..., i] << (i * bits) for i in range(each)).astype(np.uint8)


def few_bits(rng, n, k, block, bits, zeros):
    """Weights as MatMulNBits has them: packed, scales, zero points (or None), and the matrix [k, n]."""
    blocks = -(-k // block)
    numbers = rng.randint(0, 1 << bits, (n, blocks, block))
    scales = f32(rng.uniform(0.02, 0.2, (n, blocks)))
    zero = rng.randint(0, 1 << bits, (n, blocks)) if zeros else np.full((n, blocks), 1 << (bits - 1))
    matrix = ((numbers - zero[..., None]) * scales.astype(np.float64)[..., None]).reshape(n, -1)[:, :k].T
    return pack_bits(numbers, bits), scales, pack_bits(zero, bits) if zeros else None, zero, matrix


def contrib_matmul_nbits(rng):
    """MatMulNBits: 2, 4 and 8 bits, few and many rows, blocks that end beyond K, zero points packed, as floats and
    left out, bias"""
    n = Net("contrib_matmul_nbits", rtol=1e-4, atol=2e-3)
    i = 0
    for bits in (2, 4, 8):
        for rows, columns, k, block, zeros in (((1,), 17, 64, 32, False), ((2, 3), 9, 70, 16, True), ((1, 40), 37, 300, 64, True),
                                               ((9,), 70, 33, 128, False)):
            packed, scales, zero, zero_numbers, matrix = few_bits(rng, columns, k, block, bits, zeros)
            x, bias = normal(rng, *rows, k), normal(rng, columns)
            inputs = [n.input(f"x{i}", x), n.const(packed), n.const(scales)]
            want = x.astype(np.float64) @ matrix
            if zeros:
                inputs.append(n.const(f32(zero_numbers)) if i % 3 == 0 else n.const(zero))
            if len(rows) == 2:
                inputs += [""] * (5 - len(inputs)) + [n.const(bias)]
                want = want + bias
            n.output(n.op("MatMulNBits", *inputs, K=k, N=columns, bits=bits, block_size=block), f32(want))
            i += 1
    return n.make()


def contrib_matmul_nbits_of_16_bits(rng):
    """MatMulNBits in float16 and bfloat16, and lists that old files write without their dims"""
    n = Net("contrib_matmul_nbits_of_16_bits", rtol=3e-2, atol=6e-2)
    for kind in (F16, BF16):
        packed, scales, zero, _, _ = few_bits(rng, 21, 96, 32, 4, True)
        scales, s = rounded(scales / 4, kind)
        numbers = np.stack([packed & 15, packed >> 4], -1).reshape(21, 3, 32).astype(np.float64)
        zeros = np.stack([zero & 15, zero >> 4], -1).reshape(21, -1)[:, :3].astype(np.float64)
        matrix = ((numbers - zeros[..., None]) * s[..., None]).reshape(21, 96).T
        flat = scales.reshape(-1) if kind == F16 else scales
        (bias, b), inputs = rounded(normal(rng, 21), kind), [n.const(packed), n.const(flat), n.const(zero.reshape(-1)), ""]
        for rows in (2, 30):
            x, v = rounded(normal(rng, rows, 96), kind)
            name = n.input(f"x{kind}_{rows}", x)
            n.output(n.op("MatMulNBits", name, *inputs, n.const(bias), K=96, N=21, bits=4, block_size=32), rounded(v @ matrix + b, kind)[0])
    return n.make()


# ---- quantised operators


def real(x, scale, zero):
    return (x.astype(np.float64) - float(zero)) * np.float64(np.float32(scale))


def contrib_quantized_elements(rng):
    """QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, QLinearConcat, QLinearWhere,
    QLinearReduceMean of both types of bytes, with and without zero points"""
    n = Net("contrib_quantized_elements", atol=1.01)
    step = np.float32
    for kind, low in ((np.uint8, 0), (np.int8, -128)):
        tag = kind.__name__
        x, y = (rng.randint(low, low + 256, dims).astype(kind) for dims in ((2, 3, 8), (3, 8)))
        a, b = n.input("x" + tag, x), n.input("y" + tag, y)
        xs, xz, ys, yz = step(0.04), kind(low + 120), step(0.02), kind(low + 100)
        left, right, none = [n.const(xs), n.const(xz)], [n.const(ys), n.const(yz)], ""
        u, v = real(x, xs, xz), real(y, ys, yz)

        def out(name, value, scale, zero):
            n.output(name, quantise(value, scale, np.asarray(zero)))

        zero, mid = kind(0), kind(low + 128)
        out(n.op("QLinearAdd", a, *left, b, *right, n.const(step(0.07)), n.const(mid)), u + v, 0.07, mid)
        out(n.op("QLinearMul", a, *left, b, *right, n.const(step(0.1))), u * v, 0.1, zero)
        out(n.op("QLinearAdd", a, left[0], none, b, right[0], none, n.const(step(0.08)), n.const(mid)),
            real(x, xs, 0) + real(y, ys, 0), 0.08, mid)
        out(n.op("QLinearSigmoid", a, *left, n.const(step(1 / 256)), n.const(kind(low))), ref.sigmoid(u), 1 / 256, kind(low))
        out(n.op("QLinearSigmoid", a, left[0], none, n.const(step(1 / 128))), ref.sigmoid(real(x, xs, 0)), 1 / 128, zero)
        out(n.op("QLinearLeakyRelu", a, *left, *right, alpha=0.2), np.where(u < 0, np.float32(0.2) * u, u), ys, yz)
        exps = np.exp(u - u.max(-1, keepdims=True))
        out(n.op("QLinearSoftmax", a, *left, n.const(step(1 / 256)), n.const(kind(low)), axis=-1, opset=13),
            exps / exps.sum(-1, keepdims=True), 1 / 256, kind(low))
        flat = np.exp(u - u.max((1, 2), keepdims=True))
        out(n.op("QLinearSoftmax", a, *left, n.const(step(1 / 512)), n.const(kind(low)), axis=1, opset=12),
            flat / flat.sum((1, 2), keepdims=True), 1 / 512, kind(low))
        out(n.op("QLinearConcat", *right, a, *left, a, *right, axis=1),
            np.concatenate([u, real(x, ys, yz)], axis=1), ys, yz)
        mask = rng.randint(0, 2, (2, 3, 8)).astype(np.bool_)
        out(n.op("QLinearWhere", n.const(mask), a, *left, b, *right, n.const(step(0.05)), n.const(mid)),
            np.where(mask, u, v[None]), 0.05, mid)
        out(n.op("QLinearReduceMean", a, *left, *right, axes=[1], keepdims=0), u.mean(axis=1), ys, yz)
    return n.make()


def contrib_quantized_pools(rng):
    """QLinearAveragePool and QLinearGlobalAveragePool, channels first and last; QLinearConv with channels last"""
    n = Net("contrib_quantized_pools", atol=1.01)
    x = rng.randint(0, 256, (2, 3, 7, 6)).astype(np.uint8)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    a, b = n.input("x", x), n.input("last", last)
    scales = [n.const(np.float32(0.05)), n.const(np.uint8(110)), n.const(np.float32(0.03)), n.const(np.uint8(120))]
    v = real(x, 0.05, 110)
    way = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for count in (0, 1):
        mean = ref.average_pool(v, (3, 2), (2, 1), (1, 0, 1, 1), bool(count))
        n.output(n.op("QLinearAveragePool", a, *scales, count_include_pad=count, **way), quantise(mean, 0.03, np.uint8(120)))
        n.output(n.op("QLinearAveragePool", b, *scales, count_include_pad=count, channels_last=1, **way),
                 quantise(mean.transpose(0, 2, 3, 1), 0.03, np.uint8(120)))
    plain = ref.average_pool(real(x, 0.05, 0), (3, 2), (2, 1), (1, 0, 1, 1), False)
    n.output(n.op("QLinearAveragePool", a, scales[0], "", scales[2], **way), quantise(plain, 0.03, np.uint8(0)))
    mean = v.mean(axis=(2, 3), keepdims=True)
    n.output(n.op("QLinearGlobalAveragePool", a, *scales), quantise(mean, 0.03, np.uint8(120)))
    n.output(n.op("QLinearGlobalAveragePool", b, *scales, channels_last=1), quantise(mean.transpose(0, 2, 3, 1), 0.03, np.uint8(120)))
    w = rng.randint(-128, 128, (4, 3, 3, 3)).astype(np.int8)
    y = ref.conv(v, w.astype(np.float64) * np.float64(np.float32(0.01)), None, strides=(1, 1), pads=(1, 1, 1, 1))
    weights = [n.const(w), n.const(np.float32(0.01)), n.const(np.int8(0)), n.const(np.float32(0.5)), n.const(np.uint8(128))]
    n.output(n.op("QLinearConv", a, *scales[:2], *weights, pads=[1] * 4), quantise(y, 0.5, np.uint8(128)))
    n.output(n.op("QLinearConv", b, *scales[:2], *weights, pads=[1] * 4, channels_last=1),
             quantise(y.transpose(0, 2, 3, 1), 0.5, np.uint8(128)))
    return n.make()


def contrib_quantized_products(rng):
    """DynamicQuantizeMatMul, MatMulIntegerToFloat, QGemm; QuantizeLinear and DequantizeLinear of com.microsoft"""
    x = normal(rng, 2, 5, 24)
    n = Net("contrib_quantized_products", rtol=1e-5, atol=0.02)
    a = n.input("x", x)
    w = rng.randint(-128, 128, (24, 10)).astype(np.int8)
    scales, zeros, bias = f32(rng.uniform(0.005, 0.02, 10)), rng.randint(-3, 4, 10).astype(np.int8), normal(rng, 10)
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    scale = np.float32((high - low) / np.float32(255))
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    u = real(quantise(x, scale, zero), scale, zero)
    for with_zeros in (False, True):
        m = (w.astype(np.float64) - (zeros if with_zeros else 0)) * scales
        inputs = [a, n.const(w), n.const(scales), n.const(zeros) if with_zeros else "", n.const(bias)]
        n.output(n.op("DynamicQuantizeMatMul", *inputs), f32(u @ m + bias))
    n.output(n.op("DynamicQuantizeMatMul", a, n.const(w), n.const(np.float32(0.01))), f32(u @ (w * np.float64(np.float32(0.01)))))
    q = n.op("QuantizeLinear", a, n.const(np.float32(0.03)), n.const(np.uint8(128)))
    bytes_of = quantise(x, 0.03, np.uint8(128))
    v = real(bytes_of, 0.03, 128)
    n.output(n.op("DequantizeLinear", q, n.const(np.float32(0.03)), n.const(np.uint8(128))), f32(v))
    y = n.op("MatMulIntegerToFloat", q, n.const(w), n.const(np.float32(0.03)), n.const(scales), n.const(np.uint8(128)), n.const(zeros))
    n.output(y, f32(v @ ((w.astype(np.float64) - zeros) * scales)))
    rows = n.g.op("Reshape", q, n.const(np.array([10, 24])))
    m = real(w, 0.01, 0)
    c = rng.randint(-500, 500, 10).astype(np.int32)
    sums = v.reshape(10, 24) @ m + c * np.float64(np.float32(0.03)) * np.float64(np.float32(0.01))
    gemm = [rows, n.const(np.float32(0.03)), n.const(np.uint8(128)), n.const(np.ascontiguousarray(w.T)), n.const(np.float32(0.01)), n.const(np.int8(0)), n.const(c)]
    n.output(n.op("QGemm", *gemm, transB=1), f32(sums))
    per = n.op("QuantizeLinear", a, n.const(f32(np.linspace(0.01, 0.1, 5))), n.const(np.arange(5).astype(np.int8)), axis=1)
    want = quantise(x, np.linspace(0.01, 0.1, 5).astype(np.float32)[None, :, None], np.arange(5).astype(np.int8)[None, :, None])
    back = n.op("DequantizeLinear", per, n.const(f32(np.linspace(0.01, 0.1, 5))), n.const(np.arange(5).astype(np.int8)), axis=1)
    n.output(back, f32((want.astype(np.float64) - np.arange(5)[None, :, None]) * np.linspace(0.01, 0.1, 5).astype(np.float32)[None, :, None]))
    return n.make()


# ---- the rest


def contrib_shapes_and_values(rng):
    """Inverse, Trilu, GatherND, Range, Pad, Unique, CDist"""
    n = Net("contrib_shapes_and_values", rtol=1e-4, atol=1e-4)
    square = normal(rng, 2, 3, 5, 5) + 4 * np.eye(5, dtype=np.float32)
    a = n.input("square", f32(square))
    n.output(n.op("Inverse", a), f32(np.linalg.inv(f32(square).astype(np.float64))))
    n.output(n.op("Trilu", a, n.const(np.array(1)), upper=0), f32(np.tril(f32(square), 1)))
    n.output(n.op("Trilu", a), f32(np.triu(f32(square))))
    n.output(n.op("GatherND", a, n.const(np.array([[0, 1], [1, 2]]))), f32(square)[[0, 1], [1, 2]])
    n.output(n.op("Range", n.const(np.array([2])), n.const(np.array([6]))), np.arange(2, 6))
    n.output(n.op("Range", n.const(np.float32(1)), n.const(np.float32(2)), n.const(np.float32(0.25))), f32(np.arange(1, 2, 0.25)))
    n.output(n.op("Range", n.const(np.int32(3)), n.const(np.int32(5))), np.arange(3, 5).astype(np.int32))
    p = normal(rng, 3, 4)
    b = n.input("p", p)
    n.output(n.op("Pad", b, n.const(np.array([[1, 0, 0, 2]])), n.const(np.float32(7))), np.pad(p, [(1, 0), (0, 2)], constant_values=7))
    y, places, counts = n.op("Unique", n.const(f32([2, 1, 1, 3, 4, 3])), outs=3)
    n.output(y, f32([2, 1, 3, 4]))
    n.output(places, np.array([0, 1, 1, 2, 3, 2]))
    n.output(counts, np.array([1, 2, 2, 1]))
    q = normal(rng, 6, 4)
    apart = p.astype(np.float64)[:, None] - q.astype(np.float64)[None]
    n.output(n.op("CDist", b, n.const(q), metric="sqeuclidean"), f32((apart ** 2).sum(-1)))
    n.output(n.op("CDist", b, n.const(q), metric="euclidean"), f32(np.sqrt((apart ** 2).sum(-1))))
    return n.make()


def contrib_grid_sample(rng):
    """GridSample of com.microsoft: bilinear, beyond the border zeros"""
    x, grid = normal(rng, 1, 2, 4, 5), f32(rng.uniform(-1.3, 1.3, (1, 3, 2, 2)))
    n = Net("contrib_grid_sample", rtol=1e-4, atol=1e-5)
    padded = np.pad(x[0].astype(np.float64), [(0, 0), (2, 2), (2, 2)])
    y = np.zeros((1, 2, 3, 2))
    for i in range(3):
        for j in range(2):
            across, down = ((g.astype(np.float64) + 1) * size / 2 - 0.5 for g, size in zip(grid[0, i, j], (5, 4)))
            left, top = int(np.floor(across)), int(np.floor(down))
            for r, c in ((0, 0), (0, 1), (1, 0), (1, 1)):
                share = (1 - abs(down - top - r)) * (1 - abs(across - left - c))
                y[0, :, i, j] += share * padded[:, top + r + 2, left + c + 2]
    n.output(n.op("GridSample", n.input("x", x), n.input("grid", grid), mode="bilinear"), f32(y))
    return n.make()


def contrib_quantized_lstm(rng):
    """DynamicQuantizeLSTM: both directions, weights with a scale for each direction or each column"""
    steps, batch, inputs, hidden = 5, 2, 6, 4
    x, bias = normal(rng, steps, batch, inputs), normal(rng, 2, 8 * hidden)
    n = Net("contrib_quantized_lstm", rtol=1e-4, atol=1e-5)
    name = n.input("x", x)
    for columns in (False, True):
        shape = (2, 4 * hidden) if columns else (2,)
        parts, wide = [], []
        for rows in (inputs, hidden):
            w, scale, zero = rng.randint(0, 256, (2, rows, 4 * hidden)).astype(np.uint8), f32(rng.uniform(0.002, 0.004, shape)), \
                rng.randint(120, 136, shape).astype(np.uint8)
            parts.append((n.const(w), n.const(scale), n.const(zero)))
            spread = (slice(None), None) if columns else (slice(None), None, None)
            wide.append((w.astype(np.float64) - zero.astype(np.float64)[spread]) * scale.astype(np.float64)[spread])
        (w, ws, wz), (r, rs, rz) = parts
        y, last, cells = n.op("DynamicQuantizeLSTM", name, w, r, n.const(bias), "", "", "", "", ws, wz, rs, rz, outs=3, hidden_size=hidden,
                              direction="bidirectional")
        out, ends, cell_ends = np.zeros((steps, 2, batch, hidden)), [], []
        for way in range(2):
            h, c = np.zeros((batch, hidden)), np.zeros((batch, hidden))
            for t in (range(steps), reversed(range(steps)))[way]:
                gates = x[t] @ wide[0][way] + h @ wide[1][way] + bias[way, :4 * hidden] + bias[way, 4 * hidden:]
                i, o, f, g = np.split(gates.astype(np.float64), 4, axis=1)
                c = ref.sigmoid(f) * c + ref.sigmoid(i) * np.tanh(g)
                h = ref.sigmoid(o) * np.tanh(c)
                out[t, way] = h
            ends.append(h)
            cell_ends.append(c)
        for value, array in ((y, out), (last, np.stack(ends)), (cells, np.stack(cell_ends))):
            n.output(value, f32(array))
    return n.make()


CASES = [contrib_gelus, contrib_gelus_of_16_bits, contrib_fused_matmul, contrib_fused_matmul_types, contrib_fused_conv_and_gemm,
         contrib_skip_layer_norm, contrib_skip_layer_norm_of_16_bits, contrib_embedding, contrib_matmul_nbits,
         contrib_matmul_nbits_of_16_bits, contrib_quantized_elements, contrib_quantized_pools, contrib_quantized_products,
         contrib_shapes_and_values, contrib_grid_sample, contrib_quantized_lstm]
