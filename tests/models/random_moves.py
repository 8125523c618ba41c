"""The moves of a random graph: each adds some nodes to a Walk, or raises Skip where nothing fits."""
import math

import numpy as np

import random_ops as ops
from random_blocks import after, batch_norm, binary, broadcast_binary, clip, gated, gelu, limited, prelu, unary
from random_walk import broadcasts
from reference import softmax


# -- products
def image(w, low=3, high=5):
    return limited(w, w.pick(lambda v: low <= v.rank <= high and min(v.shape[1:]) > 0 and v.shape[1] <= 64 and v.data.size < 20000))


def window_attributes(w, spatial, transpose=False):
    rank = len(spatial)
    kernel = [w.between(1, 4) for _ in spatial] if w.chance(0.6) else [w.choice([1, 3])] * rank
    strides = [w.choice([1, 1, 2, 3])] * rank if w.chance(0.6) else [w.between(1, 2) for _ in spatial]
    dilations = [w.choice([1, 1, 1, 2])] * rank
    pads = [w.between(0, 2) for _ in range(2 * rank)] if w.chance(0.5) else [w.choice([0, 1])] * (2 * rank)
    if not transpose and w.chance(0.15):  # atrous: some taps see nothing but padding
        kernel, dilations = [3] * rank, [w.between(2, 9)] * rank
        pads = [dilations[0] + w.choice([0, 0, -1, 1])] * (2 * rank)
    if not transpose:
        for i, n in enumerate(spatial):
            w.need(n + pads[i] + pads[rank + i] >= (kernel[i] - 1) * dilations[i] + 1)
    return kernel, strides, dilations, pads


def given(w, **attributes):
    """Attributes, those with their default value left out at random."""
    plain = {"strides": 1, "dilations": 1, "pads": 0, "group": 1, "output_padding": 0}
    return {k: v for k, v in attributes.items() if not (w.chance(0.5) and np.all(np.asarray(v) == plain[k]))}


def conv_weights(w, channels, kernel):
    group = w.choice([1, 1, 1, channels, 2])
    w.need(channels % group == 0)
    outs = group * w.choice([1, 1, 2, 4]) if group > 1 else w.choice([1, 3, 4, 8, 16, 17, 32])
    weights = w.floats(outs, channels // group, *kernel, scale=(channels // group * math.prod(kernel)) ** -0.5)
    return group, outs, weights


def conv(w):
    x = image(w)
    spatial = x.shape[2:]
    kernel, strides, dilations, pads = window_attributes(w, spatial)
    group, outs, weights = conv_weights(w, x.shape[1], kernel)
    inputs = [x, w.const(weights) if w.chance(0.93) else w.input(weights)]
    if w.chance(0.5):
        inputs.append(w.const(w.floats(outs)))
    attributes = given(w, strides=strides, dilations=dilations, pads=pads, group=group)
    if w.chance(0.3):
        attributes["kernel_shape"] = kernel
    if w.chance(0.12):
        attributes.pop("pads", None)
        same = [max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n) for n, s, k, d in zip(spatial, strides, kernel, dilations)]
        how = w.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        first, second = [t // 2 for t in same], [t - t // 2 for t in same]
        pads = [0] * (2 * len(same)) if how == "VALID" else first + second if how == "SAME_UPPER" else second + first
        for i, n in enumerate(spatial):
            w.need(n + pads[i] + pads[len(spatial) + i] >= (kernel[i] - 1) * dilations[i] + 1)
        attributes["auto_pad"] = how
    elif w.chance(0.15):  # a Pad before it
        mode = w.choice(["constant", "constant", "reflect", "edge"])
        extra = [0, 0] + [w.between(0, 2) for _ in spatial] + [0, 0] + [w.between(0, 2) for _ in spatial]
        x = pad(w, x, extra, mode, 0.0 if w.chance(0.7) else 0.5)
        inputs[0] = x
    b = inputs[2].data if len(inputs) > 2 else None
    data = ops.conv(x.data, inputs[1].data, b, strides, pads, dilations, group)
    after(w, w.add("Conv", inputs, data, **attributes))


def pad(w, x, pads, mode, value):
    half = len(pads) // 2
    widths = list(zip(pads[:half], pads[half:]))
    if mode == "reflect":
        w.need(all(max(a) < n for a, n in zip(widths, x.shape)))
    w.need(x.data.size)
    data = np.pad(x.data, widths, mode, **({"constant_values": value} if mode == "constant" else {}))
    inputs = [x, w.const(np.int64(pads))]
    if mode == "constant" and (value or w.chance(0.5)):
        inputs.append(w.const(value))
    return w.add("Pad", inputs, data, **({} if mode == "constant" and w.chance(0.5) else {"mode": mode}))


def conv_transpose(w):
    x = image(w)
    spatial = x.shape[2:]
    kernel, strides, dilations, pads = window_attributes(w, spatial, True)
    channels = x.shape[1]
    group = w.choice([1, 1, 1, channels, 2])
    w.need(channels % group == 0)
    outs = w.choice([1, 2, 3, 8]) if group > 1 else w.choice([1, 3, 8, 16, 17])
    extra = [w.between(0, max(s, d) - 1) if w.chance(0.3) else 0 for s, d in zip(strides, dilations)]
    size = [(n - 1) * s + (k - 1) * d + 1 + e - pads[i] - pads[len(spatial) + i]
            for i, (n, s, k, d, e) in enumerate(zip(spatial, strides, kernel, dilations, extra))]
    w.need(min(size) > 0 and math.prod(size) * outs * group < 30000)
    weights = w.floats(channels, outs, *kernel, scale=(channels / group * math.prod(kernel) / math.prod(strides)) ** -0.5)
    inputs = [x, w.const(weights)] + ([w.const(w.floats(outs * group))] if w.chance(0.5) else [])
    data = ops.conv_transpose(x.data, weights, inputs[2].data if len(inputs) > 2 else None, strides, pads, dilations, group, extra)
    after(w, w.add("ConvTranspose", inputs, data,
                   **given(w, strides=strides, dilations=dilations, pads=pads, group=group, output_padding=extra)))


def gemm(w):
    x = limited(w, w.pick(lambda v: v.rank == 2 and v.shape[1] > 0))
    trans_a = int(w.chance(0.2) and x.shape[0] > 0)
    a = x.data.T if trans_a else x.data
    n, trans_b = w.choice([1, 2, 5, 16, 33]), int(w.chance(0.5))
    b = w.floats(a.shape[1], n, scale=a.shape[1] ** -0.5)
    alpha, beta = w.choice([1, 1, 1, 0.5, -2]), w.choice([1, 1, 1, 0.25, 0])
    weights = np.ascontiguousarray(b.T) if trans_b else b
    inputs, data = [x, w.const(weights) if w.chance(0.9) else w.input(weights)], alpha * (a @ b)
    if w.chance(0.7):
        dims = w.choice([[n], [1, n], [], [1], [data.shape[0], 1], list(data.shape)])
        inputs.append(w.const(w.floats(*dims)))
        data = data + beta * inputs[2].data
    told = [("alpha", float(alpha), 1), ("beta", float(beta), 1), ("transA", trans_a, 0), ("transB", trans_b, 0)]
    attributes = {name: value for name, value, default in told if value != default or w.chance(0.2)}
    after(w, w.add("Gemm", inputs, data, **attributes))


def matmul(w):
    x = limited(w, w.pick(lambda v: v.rank >= 1 and v.shape[-1] > 0 and v.data.size < 20000))
    k, n = x.shape[-1], w.choice([1, 2, 7, 16, 33])
    how = w.between(0, 5)
    if how == 0:  # a constant on the left
        w.need(x.rank >= 2 and x.shape[-2] > 0)
        b = w.const(w.floats(w.choice([1, 3, 8]), x.shape[-2], scale=x.shape[-2] ** -0.5))
        y = w.add("MatMul", [b, x], b.data @ x.data)
    elif how == 1:  # with what is there
        fit = w.values(lambda v: v.is_float and v.rank >= 2 and v.rank == x.rank and v.shape[:-2] == x.shape[:-2] and v.shape[-2] == k)
        w.need(fit)
        b = limited(w, w.choice(fit))
        y = w.add("MatMul", [x, b], x.data @ b.data)
    elif how == 2:  # with its own transpose
        w.need(x.rank >= 2)
        t = w.add("Transpose", [x], np.swapaxes(x.data, -1, -2), perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
        y = w.add("MatMul", [x, t], x.data @ t.data)
    else:
        lead = w.choice([[], [], [], [], [1] * max(0, x.rank - 2), list(x.shape[:-2])])
        b = w.const(w.floats(*lead, k, n, scale=k ** -0.5) if w.chance(0.93) else w.floats(k, scale=k ** -0.5))
        y = w.add("MatMul", [x, b], x.data @ b.data)
    w.need(y.data.size < 20000)
    after(w, y)


def einsum(w):
    """Of two operands whose letters are in both, in one, summed or not, in any order."""
    w.need(w.opset >= 12)
    x = limited(w, w.pick(lambda v: 1 <= v.rank <= 4 and v.data.size < 4000))
    left = "abcd"[:x.rank]
    right = [c for c in left if w.chance(0.6)] + ["n"] * w.between(0, 1) + ["m"] * int(w.chance(0.2))
    w.need(right)
    w.rng.shuffle(right)
    sizes = {**dict(zip(left, x.shape)), "n": w.between(1, 6), "m": 2}
    out = [c for c in sorted(set(left) | set(right)) if c in "nm" or (c in right and w.chance(0.5)) or c not in right]
    w.rng.shuffle(out)
    summed = math.prod(sizes[c] for c in left if c not in out)
    b = w.const(w.floats(*[sizes[c] for c in right], scale=max(summed, 1) ** -0.5))
    operands, terms = [x, b], [left, "".join(right)]
    if w.chance(0.3):
        operands, terms = operands[::-1], terms[::-1]
    rule = f"{terms[0]},{terms[1]}->{''.join(out)}"
    data = np.einsum(rule, *[v.data for v in operands])
    w.need(data.size < 10000)
    after(w, w.add("Einsum", operands, data, equation=rule))


def attention(w):
    x = limited(w, w.pick(lambda v: v.rank == 3 and min(v.shape) > 0 and v.data.size < 4000))
    n, t, d = x.shape
    heads, size = w.choice([1, 2, 4]), w.choice([1, 4, 8])

    def projected():
        m = w.const(w.floats(d, heads * size, scale=d ** -0.5))
        y = w.add("MatMul", [x, m], x.data @ m.data)
        if w.chance(0.6):
            b = w.const(w.floats(heads * size))
            y = binary(w, "Add", *((y, b) if w.chance(0.5) else (b, y)))
        shape = w.const(np.int64([0, -1, heads, size] if w.chance(0.5) else [n, t, heads, size]))
        return w.add("Reshape", [y, shape], y.data.reshape(n, t, heads, size))

    def transposed(y, perm):
        return w.add("Transpose", [y], y.data.transpose(perm), perm=perm)

    q, v = transposed(projected(), [0, 2, 1, 3]), transposed(projected(), [0, 2, 1, 3])
    k = transposed(projected(), [0, 2, 3, 1])
    root = w.const(math.sqrt(size))
    early = w.chance(0.3)
    if early:
        q = binary(w, "Div", q, root)
    s = w.add("MatMul", [q, k], q.data @ k.data)
    if not early:
        s = binary(w, "Div", s, root) if w.chance(0.6) else binary(w, "Mul", s, w.const(size**-0.5))
    if w.chance(0.6):
        dims = w.choice([[t, t], [1, 1, t, t], [n, 1, 1, t], [1, 1, 1, t], [n, heads, t, t], [heads, 1, 1]])
        mask = np.where(w.rng.rand(*dims) < 0.3, -1000.0, w.floats(*dims))
        s = binary(w, "Add", s, w.const(mask) if w.chance(0.5) else w.input(mask))
    p = w.add("Softmax", [s], softmax(s.data), axis=-1 if w.opset >= 13 or w.chance(0.5) else 3)
    y = transposed(w.add("MatMul", [p, v], p.data @ v.data), [0, 2, 1, 3])
    shape = w.const(np.int64([0, 0, heads * size]))
    y = w.add("Reshape", [y, shape], y.data.reshape(n, t, heads * size))
    m = w.const(w.floats(heads * size, d, scale=(heads * size) ** -0.5))
    after(w, w.add("MatMul", [y, m], y.data @ m.data))


# -- norms, pools, sizes
def spread(w, data, axes):
    """Whether a norm over these axes would not blow up rounding errors."""
    if data.size:
        w.need(data.var(axes).min() > 1e-3 * max(1.0, np.abs(data).max() ** 2))


def layer_norm(w):
    x = w.pick(lambda v: v.rank >= 1 and v.shape[-1] > 1 and v.data.size)
    first = x.rank - 1 if w.chance(0.8) or x.rank < 2 else x.rank - 2
    axes = tuple(range(first, x.rank))
    spread(w, x.data, axes)
    row, eps = x.shape[first:], np.float64(np.float32(w.choice([1e-5, 1e-3, 0.1])))
    scale, bias = w.const(w.floats(*row)), w.const(w.floats(*row))
    mean = x.data.mean(axes, keepdims=True)
    d = x.data - mean
    var = (d * d).mean(axes, keepdims=True)
    root = np.sqrt(var + eps)
    if w.opset >= 17 and w.chance(0.6):
        y = w.add("LayerNormalization", [x, scale, bias], d / root * scale.data + bias.data, epsilon=eps,
                  axis=first - (x.rank if w.chance(0.5) else 0))
        return after(w, y)
    listed = [a - (x.rank if w.chance(0.5) else 0) for a in axes]
    m = w.add("ReduceMean", [x], mean, axes=listed, keepdims=1)
    dist = w.add("Sub", [x, m], d)
    square = w.add("Pow", [dist, w.const(2.0)], d * d) if w.chance(0.6) else w.add("Mul", [dist, dist], d * d)
    v = w.add("ReduceMean", [square], var, axes=listed, keepdims=1)
    r = w.add("Sqrt", [binary(w, "Add", v, w.const(eps))], root)
    y = binary(w, "Mul", w.add("Div", [dist, r], d / root), scale)
    after(w, binary(w, "Add", y, bias) if w.chance(0.8) else y)


def rms_norm(w):
    x = w.pick(lambda v: v.rank >= 2 and v.shape[-1] > 1 and v.data.size)
    w.need((x.data**2).mean(-1).min() > 1e-3)
    square = w.add("Pow", [x, w.const(2.0)], x.data**2)
    mean = w.add("ReduceMean", [square], (x.data**2).mean(-1, keepdims=True), axes=[-1], keepdims=1)
    root = w.add("Sqrt", [binary(w, "Add", mean, w.const(1e-6))], np.sqrt(mean.data + 1e-6))
    y = binary(w, "Mul", x, w.add("Reciprocal", [root], 1 / root.data)) if w.chance(0.5) else binary(w, "Div", x, root)
    scale = w.const(w.floats(x.shape[-1]))
    after(w, binary(w, "Mul", *((y, scale) if w.chance(0.5) else (scale, y))))


def group_norm(w):
    x = w.pick(lambda v: 3 <= v.rank <= 4 and min(v.shape) > 0 and math.prod(v.shape[2:]) > 1)
    groups = w.choice([g for g in (1, 2, 4, x.shape[1]) if x.shape[1] % g == 0])
    flat = w.add("Reshape", [x, w.const(np.int64([0, groups, -1]))], x.data.reshape(x.shape[0], groups, -1))
    spread(w, flat.data, -1)
    eps = np.float64(np.float32(1e-5))
    scale, bias = w.floats(groups), w.floats(groups)
    mean, var = flat.data.mean(-1, keepdims=True), flat.data.var(-1, keepdims=True)
    y = w.add("InstanceNormalization", [flat, w.const(scale), w.const(bias)],
              (flat.data - mean) / np.sqrt(var + eps) * scale[:, None] + bias[:, None], epsilon=1e-5)
    y = w.add("Reshape", [y, w.const(np.int64(x.shape))], y.data.reshape(x.shape))
    for op in ("Mul", "Add"):
        y = binary(w, op, y, w.const(w.floats(x.shape[1], *[1] * (x.rank - 2))))
    after(w, y)


def pool(w):
    x = image(w)
    w.need(x.data.size)
    kernel, strides, dilations, pads = window_attributes(w, x.shape[2:])
    op = w.choice(["MaxPool", "AveragePool", "AveragePool", "LpPool"])
    if op != "MaxPool":
        dilations = [1] * len(kernel)
    rank = len(kernel)
    w.need(all(p < k for p, k in zip(pads, kernel + kernel)) and all(
        n + pads[i] + pads[rank + i] >= (k - 1) * d + 1 for i, (n, k, d) in enumerate(zip(x.shape[2:], kernel, dilations))))
    include = int(w.chance(0.4))
    if w.chance(0.2):  # a Pad before it
        x = pad(w, x, [0, 0] + [w.between(0, 2) for _ in kernel] + [0, 0] + [w.between(0, 2) for _ in kernel], "constant", 0.0)
    data = ops.pool(op, x.data, kernel, strides, pads, dilations, include)
    attributes = given(w, strides=strides, pads=pads, **({"dilations": dilations} if op == "MaxPool" else {}))
    if op == "AveragePool" and include:
        attributes["count_include_pad"] = 1
    after(w, w.add(op, [x], data, kernel_shape=kernel, **attributes))


def squeeze_and_excite(w):
    x = image(w)
    w.need(x.data.size and x.shape[1] > 1)
    axes = tuple(range(2, x.rank))
    mean = x.data.mean(axes, keepdims=True)
    y = w.add("GlobalAveragePool", [x], mean) if w.chance(0.6) else w.add("ReduceMean", [x], mean, axes=list(axes), keepdims=1)
    c = x.shape[1]
    for outs in (w.between(1, 6), c):
        m, b = w.const(w.floats(outs, y.shape[1], *[1] * len(axes))), w.const(w.floats(outs))
        data = ops.conv(y.data, m.data, b.data, [1] * len(axes), [0] * 2 * len(axes), [1] * len(axes), 1)
        y = unary(w, w.add("Conv", [y, m, b], data))
    after(w, binary(w, "Mul", *((x, y) if w.chance(0.5) else (y, x))))


def resize(w):
    x = image(w, 3, 4)
    w.need(x.data.size)
    sizes = [w.choice([1, n, 2 * n, 2 * n, n + 1, max(1, n // 2), 3 * n]) for n in x.shape[2:]]
    w.need(math.prod(sizes) * x.shape[0] * x.shape[1] < 20000)
    mode = w.choice(["nearest", "nearest", "linear", "linear", "cubic"])
    w.need(x.rank == 4 or mode != "cubic")
    place = w.choice(["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
    attributes = {"mode": mode, "coordinate_transformation_mode": place}
    rounding = w.choice(["round_prefer_floor", "floor", "ceil", "round_prefer_ceil"])
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
    full = [*x.shape[:2], *sizes]
    region = None if w.opset >= 13 else w.const(np.zeros(0))
    if all(b % a == 0 for a, b in zip(x.shape, full)) and w.chance(0.5):
        inputs = [x, region, w.const(np.float32(full) / np.float32(x.shape))]
    else:
        inputs = [x, region, None if w.opset >= 13 else w.const(np.zeros(0)), w.const(np.int64(full))]
    after(w, w.add("Resize", inputs, ops.resize(x.data, full, mode, place, rounding), **attributes))


# -- elements
def elementwise(w):
    x = limited(w, w.pick())
    after(w, w.choice([unary, broadcast_binary, broadcast_binary, clip, prelu, gated, gelu, batch_norm])(w, x))


def two_values(w):
    x = limited(w, w.pick())
    fit = w.values(lambda v: v.is_float and v is not x and (broadcasts(v.shape, x.shape) or broadcasts(x.shape, v.shape)))
    w.need(fit)
    y = limited(w, w.choice(fit))
    after(w, binary(w, w.choice(["Add", "Mul", "Sub", "Max", "Min"]), x, y))


def compare_and_choose(w):
    x = limited(w, w.pick(lambda v: v.data.size))
    limit = w.floats()
    w.need(np.abs(x.data - limit).min() > 1e-3 * max(1, np.abs(x.data).max()))
    later = [("GreaterOrEqual", np.greater_equal), ("LessOrEqual", np.less_equal)] if w.opset >= 12 else []
    op, f = w.choice([("Greater", np.greater), ("Less", np.less), *later])
    c = w.add(op, [x, w.const(limit)], f(x.data, limit))
    if w.chance(0.3):
        c = w.add("Not", [c], ~c.data)
    if w.chance(0.3):
        return w.keep(w.add("Cast", [c], c.data.astype(np.float64), to=w.kind))
    y = w.operand(x.shape)
    after(w, w.add("Where", [c, x, y], np.where(c.data, x.data, y.data)))


def softmaxes(w):
    x = limited(w, w.pick(lambda v: v.rank >= 1 and v.data.size))
    axis = w.between(0, x.rank - 1) if w.opset >= 13 else x.rank - 1
    p = softmax(x.data, axis)
    given_axis = axis - (x.rank if w.chance(0.5) else 0)
    if w.chance(0.6):
        return after(w, w.add("Softmax", [x], p, axis=given_axis))
    shifted = x.data - x.data.max(axis, keepdims=True)
    after(w, w.add("LogSoftmax", [x], shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)), axis=given_axis))


def reduce(w):
    x = limited(w, w.pick(lambda v: v.rank >= 1 and v.data.size))
    axes = [a for a in range(x.rank) if w.chance(0.5)] or [x.rank - 1]
    keep = int(w.chance(0.6))
    op, f = w.choice([("ReduceMean", np.mean), ("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMin", np.min),
                      ("ReduceL1", lambda v, a, keepdims: np.abs(v).sum(a, keepdims=keepdims)),
                      ("ReduceL2", lambda v, a, keepdims: np.sqrt((v * v).sum(a, keepdims=keepdims))),
                      ("ReduceSumSquare", lambda v, a, keepdims: (v * v).sum(a, keepdims=keepdims)),
                      ("ReduceLogSumExp", lambda v, a, keepdims: np.log(np.exp(v).sum(a, keepdims=keepdims)))])
    data = f(x.data, tuple(axes), keepdims=bool(keep))
    listed = [a - (x.rank if w.chance(0.3) else 0) for a in axes]
    if op == "ReduceSum" and w.opset >= 13:
        return after(w, w.add(op, [x, w.const(np.int64(listed))], data, keepdims=keep))
    after(w, w.add(op, [x], data, axes=listed, keepdims=keep))


MOVES = ([conv] * 6 + [conv_transpose] * 3 + [gemm] * 3 + [matmul] * 4 + [attention] * 2 + [layer_norm] * 2 + [pool] * 2 +
         [resize] * 2 + [elementwise] * 4 + [two_values] * 2 + [reduce] * 2 +
         [einsum, rms_norm, group_norm, squeeze_and_excite, compare_and_choose, softmaxes])
