"""Small networks: what a runtime is mostly asked to run."""
import math

import numpy as np

import random_ops as ops
import reference as ref
from onnx_build import F32, I64, Case, Graph


def normal(rng, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def norm_parameters(rng, channels):
    """scale, bias, mean, variance of a batch normalisation"""
    return (1 + normal(rng, channels, scale=0.2), normal(rng, channels, scale=0.2), normal(rng, channels, scale=0.2),
            (0.5 + rng.random_sample(channels)).astype(np.float32))


def f32(x):
    return np.asarray(x, np.float32)


def mlp(rng):
    """Gemm, Relu, Gemm, Softmax"""
    w1, b1, w2, b2 = normal(rng, 16, 32, scale=0.3), normal(rng, 32), normal(rng, 10, 32, scale=0.3), normal(rng, 10)
    g = Graph("mlp")
    x = g.input("x", F32, [4, 16])
    hidden = g.op("Relu", g.op("Gemm", x, g.const(w1), g.const(b1)))
    logits = g.op("Gemm", hidden, g.const(w2), g.const(b2), transB=1, alpha=0.5, beta=2.0)
    g.op("Softmax", logits, out="y", axis=-1)
    g.output("y", F32, [4, 10])
    value = normal(rng, 4, 16)
    expected = ref.softmax(0.5 * ref.relu(ref.f64(value) @ w1 + b1) @ w2.T + 2.0 * ref.f64(b2))
    return Case(g.model(13), ([value], [f32(expected)]))


def _small_cnn(rng, batch):
    w1, b1, w2 = normal(rng, 8, 3, 3, 3, scale=0.3), normal(rng, 8), normal(rng, 12, 8, 3, 3, scale=0.2)
    bn, wf, bf = norm_parameters(rng, 12), normal(rng, 5, 12), normal(rng, 5)
    g = Graph("cnn")
    x = g.input("image", F32, [batch, 3, 16, 16])
    y = g.op("Relu", g.op("Conv", x, g.const(w1), g.const(b1), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]))
    y = g.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = g.op("Conv", y, g.const(w2), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    y = g.op("Relu", g.op("BatchNormalization", y, *map(g.const, bn), epsilon=1e-3))
    y = g.op("Flatten", g.op("GlobalAveragePool", y), axis=1)
    g.op("Gemm", y, g.const(wf), g.const(bf), transB=1, out="scores")
    g.output("scores", F32, [batch, 5])

    def run(value):
        y = ref.relu(ref.conv(value, w1, b1, strides=(2, 2), pads=(1, 1, 1, 1)))
        y = ref.conv(ref.max_pool(y, (2, 2), (2, 2)), w2, pads=(1, 1, 1, 1))
        y = ref.relu(ref.batch_norm(y, *bn, epsilon=1e-3)).mean(axis=(2, 3))
        return [value], [f32(y @ wf.T + bf)]

    return g, run


def cnn(rng):
    """Conv, Relu, MaxPool, Conv, BatchNormalization, Relu, GlobalAveragePool, Flatten, Gemm"""
    g, run = _small_cnn(rng, 2)
    return Case(g.model(13), run(normal(rng, 2, 3, 16, 16)))


def symbolic_batch(rng):
    """The same network with batch N, run with 1, 3 and 8 images"""
    g, run = _small_cnn(rng, "N")
    return Case(g.model(13), *[run(normal(rng, n, 3, 16, 16)) for n in (1, 3, 8)])


def residual_depthwise(rng):
    """An inverted residual block: 1x1 Conv, depthwise 3x3 Conv, HardSwish, 1x1 Conv, Add"""
    expand, depthwise, project = (normal(rng, 24, 6, 1, 1, scale=0.4), normal(rng, 24, 1, 3, 3, scale=0.4),
                                  normal(rng, 6, 24, 1, 1, scale=0.3))
    norms = [norm_parameters(rng, c) for c in (24, 24, 6)]
    g = Graph("residual_depthwise")
    x = g.input("x", F32, [1, 6, 9, 11])
    y = x
    for w, bn, group, pads, act in ((expand, norms[0], 1, 0, True), (depthwise, norms[1], 24, 1, True),
                                    (project, norms[2], 1, 0, False)):
        y = g.op("Conv", y, g.const(w), kernel_shape=list(w.shape[2:]), group=group, pads=[pads] * 4)
        y = g.op("BatchNormalization", y, *map(g.const, bn))
        y = g.op("HardSwish", y) if act else y
    g.op("Add", x, y, out="y")
    g.output("y", F32, [1, 6, 9, 11])

    value = normal(rng, 1, 6, 9, 11)
    y = ref.hard_swish(ref.batch_norm(ref.conv(value, expand), *norms[0]))
    y = ref.hard_swish(ref.batch_norm(ref.conv(y, depthwise, pads=(1, 1, 1, 1), group=24), *norms[1]))
    y = ref.batch_norm(ref.conv(y, project), *norms[2])
    return Case(g.model(14), ([value], [f32(value + y)]))


def conv_forms(rng):
    """Convolutions and pools with uneven pads, strides, dilations, groups, auto_pad; ConvTranspose"""
    w1, w2, w3, b3 = normal(rng, 6, 2, 3, 2), normal(rng, 4, 4, 3, 3), normal(rng, 4, 3, 3, 3), normal(rng, 3)
    g = Graph("conv_forms")
    x = g.input("x", F32, [2, 4, 10, 9])
    g.op("Conv", x, g.const(w1), kernel_shape=[3, 2], group=2, pads=[0, 1, 2, 0], strides=[2, 1], dilations=[2, 3],
         out="grouped")
    g.op("Conv", x, g.const(w2), auto_pad="SAME_UPPER", strides=[2, 2], out="same")
    g.op("ConvTranspose", x, g.const(w3), g.const(b3), strides=[2, 3], pads=[1, 0, 1, 2], output_padding=[1, 0],
         out="transposed")
    g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 1], dilations=[1, 2], out="max")
    g.op("MaxPool", x, kernel_shape=[3, 2], strides=[3, 2], ceil_mode=1, out="ceil")
    for name, included in ("average", 0), ("average_padded", 1):
        g.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=included,
             out=name)
    v = normal(rng, 2, 4, 10, 9)
    expected = [
        ref.conv(v, w1, pads=(0, 1, 2, 0), strides=(2, 1), dilations=(2, 3), group=2),
        ref.conv(v, w2, pads=(0, 1, 1, 1), strides=(2, 2)),  # 10 rows need 1 in all, 9 columns need 2
        ref.conv_transpose(v, w3, b3, strides=(2, 3), pads=(1, 0, 1, 2), output_padding=(1, 0)),
        ref.max_pool(v, (3, 3), (2, 2), pads=(1, 1, 0, 1), dilations=(1, 2)),
        ref.max_pool(v, (3, 2), (3, 2), pads=(0, 0, 2, 1)),  # ceil_mode: windows may hang over the end
        ref.average_pool(v, (3, 3), (2, 2), pads=(1, 1, 1, 1)),
        ref.average_pool(v, (3, 3), (2, 2), pads=(1, 1, 1, 1), count_include_pad=True)]
    for name, value in zip(("grouped", "same", "transposed", "max", "ceil", "average", "average_padded"), expected):
        g.output(name, F32, list(value.shape))
    return Case(g.model(13), ([v], [f32(e) for e in expected]))


HEADS, WIDTH = 2, 12


def _layer_norm(g, x, scale, bias):
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes=[-1]))
    variance = g.op("ReduceMean", g.op("Pow", centred, g.const(2.0)), axes=[-1])
    unit = g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, g.const(1e-5))))
    return g.op("Add", g.op("Mul", unit, g.const(scale)), g.const(bias))


def transformer_block(rng):
    """Self-attention with a mask and a GELU layer, LayerNormalization in pieces; batch and length symbolic"""
    w = {k: normal(rng, WIDTH, WIDTH, scale=0.3) for k in "qkvo"}
    up, down = normal(rng, WIDTH, 24, scale=0.3), normal(rng, 24, WIDTH, scale=0.3)
    norms = [(1 + normal(rng, WIDTH, scale=0.1), normal(rng, WIDTH, scale=0.1)) for _ in range(2)]
    size = WIDTH // HEADS
    g = Graph("transformer_block")
    x = g.input("x", F32, ["batch", "length", WIDTH])
    mask = g.input("mask", I64, ["batch", "length"])

    def heads(y, perm):
        return g.op("Transpose", g.op("Reshape", y, g.const(np.int64([0, 0, HEADS, size]))), perm=perm)

    normed = _layer_norm(g, x, *norms[0])
    q = heads(g.op("MatMul", normed, g.const(w["q"])), [0, 2, 1, 3])
    k = heads(g.op("MatMul", normed, g.const(w["k"])), [0, 2, 3, 1])
    v = heads(g.op("MatMul", normed, g.const(w["v"])), [0, 2, 1, 3])
    hide = g.op("Mul", g.op("Sub", g.const(1.0), g.op("Cast", mask, to=F32)), g.const(-1e4))
    hide = g.op("Unsqueeze", hide, g.const(np.int64([1, 2])))
    scores = g.op("Add", g.op("Div", g.op("MatMul", q, k), g.const(math.sqrt(size))), hide)
    mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
    joined = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.const(np.int64([0, 0, -1])))
    x1 = g.op("Add", x, g.op("MatMul", joined, g.const(w["o"])))
    y = g.op("MatMul", _layer_norm(g, x1, *norms[1]), g.const(up))
    half = g.op("Mul", y, g.const(0.5))
    y = g.op("Mul", half, g.op("Add", g.op("Erf", g.op("Div", y, g.const(math.sqrt(2)))), g.const(1.0)))
    g.op("Add", x1, g.op("MatMul", y, g.const(down)), out="y")
    g.output("y", F32, ["batch", "length", WIDTH])

    def run(batch, length):
        value = normal(rng, batch, length, WIDTH)
        seen = np.ones((batch, length), np.int64)
        seen[-1, length // 2 + 1:] = 0  # the last row of the batch is shorter

        def split(y):
            return y.reshape(batch, length, HEADS, size).transpose(0, 2, 1, 3)

        normed = ref.layer_norm(value, *norms[0])
        q, k, v = (split(normed @ w[name]) for name in "qkv")
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(size) + ((1 - seen) * -1e4)[:, None, None, :]
        mixed = (ref.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, WIDTH)
        x1 = value + mixed @ w["o"]
        return [value, seen], [f32(x1 + ref.gelu(ref.layer_norm(x1, *norms[1]) @ up) @ down)]

    return Case(g.model(13), run(1, 5), run(2, 3), run(3, 8), run(1, 1))


def two_lanes(rng):
    """Two independent chains of matrix products that join at the end"""
    weights = [[normal(rng, 160, 160, scale=0.08) for _ in range(4)] for _ in range(2)]
    g = Graph("two_lanes")
    x = g.input("x", F32, [160, 160])
    ends = []
    for lane in weights:
        y = x
        for w in lane:
            y = g.op("Relu", g.op("MatMul", y, g.const(w)))
        ends.append(y)
    g.op("Concat", *ends, axis=1, out="y")
    g.output("y", F32, [160, 320])
    value, results = normal(rng, 160, 160), []
    for lane in weights:
        y = ref.f64(value)
        for w in lane:
            y = ref.relu(y @ w)
        results.append(y)
    return Case(g.model(13), ([value], [f32(np.concatenate(results, axis=1))]))


def fusion_traps(rng):
    """Places where Conv, BatchNormalization and Relu may not be fused: values with a second reader or that go out"""
    w1, w2, bn = normal(rng, 4, 3, 3, 3), normal(rng, 4, 3, 3, 3), norm_parameters(rng, 4)
    row, column = normal(rng, 8), normal(rng, 4, 1, 1)
    g = Graph("fusion_traps")
    x = g.input("x", F32, [1, 3, 10, 10])
    a = g.op("Conv", x, g.const(w1))
    relu_a = g.op("Relu", a)
    g.op("Sub", relu_a, a, out="second_reader")
    b = g.op("Conv", x, g.const(w2), out="conv_out")
    norm_b = g.op("BatchNormalization", b, *map(g.const, bn))
    g.op("Relu", norm_b, out="norm_relu")
    g.op("Mul", b, g.const(row), out="by_row")        # along W, not along channels
    g.op("Mul", b, g.const(column), out="by_channel")
    g.op("Add", b, b, out="doubled")
    v = normal(rng, 1, 3, 10, 10)
    ra, rb = ref.conv(v, w1), ref.conv(v, w2)
    expected = {"second_reader": ref.relu(ra) - ra, "conv_out": rb, "norm_relu": ref.relu(ref.batch_norm(rb, *bn)),
                "by_row": rb * row, "by_channel": rb * column, "doubled": rb + rb}
    for name in expected:
        g.output(name, F32, [1, 4, 8, 8])
    return Case(g.model(13), ([v], [f32(e) for e in expected.values()]))


def atrous(rng):
    """Convolutions whose outer taps see nothing but padding, on one side, on both, on none; small planes; residuals"""
    g, inputs, outputs = Graph("atrous"), [], []
    for k, (shape, outs, group, kernel, strides, dilations, pads) in enumerate([
            ([1, 8, 10, 10], 12, 1, [3, 3], [1, 1], [12, 12], [12, 12, 12, 12]),
            ([2, 8, 10, 12], 9, 1, [3, 3], [1, 1], [11, 6], [11, 6, 11, 6]),
            ([1, 6, 9, 9], 4, 2, [5, 3], [1, 1], [4, 9], [9, 9, 8, 10]),
            ([1, 4, 10, 10], 4, 1, [3, 3], [2, 2], [10, 10], [10, 11, 10, 10]),
            ([1, 4, 8], 5, 1, [4], [1], [8], [12]), ([1, 4, 8], 5, 1, [3], [1], [8], [8, 8]),
            ([1, 3, 4, 5, 5], 6, 1, [3, 3, 3], [1, 1, 1], [4, 1, 5], [4, 1, 5, 4, 1, 5]),
            ([1, 32, 7, 7], 32, 2, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
            ([2, 24, 7, 5], 24, 3, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
            ([1, 16, 13, 13], 32, 2, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1])]):
        pads = pads if len(pads) == 2 * len(kernel) else pads * 2
        x, w, b = f32(rng.randn(*shape)), f32(rng.randn(outs, shape[1] // group, *kernel) / 8), f32(rng.randn(outs))
        y = ops.conv(x, w, b, strides, pads, dilations, group)
        name = g.input(f"x_{k}", F32, shape)
        inputs.append(x)
        made = g.op("Conv", name, g.const(w), g.const(b), kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads,
                    group=group)
        if k % 3 != 1:  # with what is fused to it
            r = f32(rng.randn(*y.shape))
            made, y = g.op("Add", made, g.input(f"r_{k}", F32, list(r.shape))), y + r
            inputs.append(r)
        g.op("Relu" if k % 2 else "Tanh", made, out=f"y_{k}")
        g.output(f"y_{k}", F32, list(y.shape))
        outputs.append(f32(np.maximum(y, 0) if k % 2 else np.tanh(y)))
    return Case(g.model(13), (inputs, outputs))


def roi_align(x, rois, images, size, ratio, scale, mode, half_pixel):
    """Sample by sample, as RoiAlign is defined"""
    h, w = x.shape[2:]
    y = np.zeros((len(rois), x.shape[1], *size))

    def parts(plane, row, column):
        """The four neighbours of a place, each times its weight; zeros outside"""
        if not (-1 <= row <= h and -1 <= column <= w):
            return [0.0] * 4
        row, column = max(row, 0), max(column, 0)
        r0, c0 = min(int(row), h - 1), min(int(column), w - 1)
        row, column = min(row, h - 1), min(column, w - 1)
        r1, c1, a, b = min(r0 + 1, h - 1), min(c0 + 1, w - 1), row - r0, column - c0
        return [(1 - a) * (1 - b) * plane[r0, c0], (1 - a) * b * plane[r0, c1], a * (1 - b) * plane[r1, c0], a * b * plane[r1, c1]]

    for r, (left, top, right, bottom) in enumerate(ref.f64(rois) * scale - (0.5 if half_pixel else 0)):
        extent = [bottom - top, right - left] if half_pixel else [max(bottom - top, 1), max(right - left, 1)]
        bins = [e / n for e, n in zip(extent, size)]
        counts = [ratio or max(0, math.ceil(b)) for b in bins]
        for c, i, j in np.ndindex(x.shape[1], *size):
            found = [parts(x[images[r], c], top + (i + (a + 0.5) / counts[0]) * bins[0], left + (j + (b + 0.5) / counts[1]) * bins[1])
                     for a in range(counts[0]) for b in range(counts[1])]
            if found:
                y[r, c, i, j] = np.sum(found) / len(found) if mode == "avg" else np.max(found)
    return f32(y)


def regions(rng):
    """RoiAlign with regions inside, across each edge, outside, of no size and turned round, by average and by maximum"""
    x = f32(rng.randn(2, 3, 9, 11))
    rois = f32([[1, 2, 7, 6], [-4, -3, 3, 5], [6, 5, 30, 20], [40, 40, 50, 50], [3, 3, 3, 3], [8, 7, 2, 1], [0, 0, 11, 9], [2, -9, 5, -7]])
    images = rng.randint(0, 2, len(rois))
    g, expected = Graph("regions"), []
    names = [g.input("x", F32, ["n", 3, "h", "w"]), g.input("rois", F32, ["r", 4]), g.input("images", I64, ["r"])]
    for k, (size, ratio, scale, mode, half_pixel) in enumerate([
            ([2, 3], 2, 1.0, "avg", True), ([3, 2], 0, 1.0, "avg", True), ([7, 7], 2, 0.5, "avg", False), ([2, 2], 3, 1.0, "max", True),
            ([1, 4], 0, 1.5, "max", False)]):
        g.op("RoiAlign", *names, out=f"y_{k}", output_height=size[0], output_width=size[1], sampling_ratio=ratio, spatial_scale=scale,
             mode=mode, coordinate_transformation_mode="half_pixel" if half_pixel else "output_half_pixel")
        g.output(f"y_{k}", F32, ["r", 3, *size])
        expected.append(roi_align(x, rois, images, size, ratio, scale, mode, half_pixel))
    return Case(g.model(16), ([x, rois, images], expected), beyond=True)


CASES = [regions, atrous, mlp, cnn, symbolic_batch, residual_depthwise, conv_forms, transformer_block, two_lanes, fusion_traps]
