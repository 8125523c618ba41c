"""Products, windows, normalisations, recurrence, quantisation, losses, detection, signals, random numbers, training."""
import numpy as np

from context import w
from table_moves import move
from values import BOOL, F32, I32, INTS, SIGNED, STRING, U8, type_of, typed
import reference

TABLE = {}


def example(function):
    TABLE[function.__name__] = function
    return function


# ---- products

@example
def MatMul(c):
    for left, right in ((3, 4), (4, 5)), ((2, 1, 3, 4), (3, 4, 2)), ((4,), (4, 2)):
        a, b = c.x("T", *left), c.x("T", *right)
        yield c.use([a, b], [c.as_("T", np.matmul(w(a), w(b)) if w(a).dtype != object else np.matmul(w(a).astype(np.int64), w(b).astype(np.int64)))])


def as_numbers(value):
    return w(value).astype(np.int64) if w(value).dtype == object else w(value)


@example
def Gemm(c):
    a, b, bias = c.x("T", 4, 3), c.x("T", 5, 4), c.x("T", 5)
    yield c.use([a, b, bias], [c.as_("T", 2 * (as_numbers(a).T @ as_numbers(b).T) + 3 * as_numbers(bias))], alpha=2.0, beta=3.0, transA=1, transB=1)
    if c.v >= 11:
        yield c.use([a, move(b, lambda e: e.T)], [c.as_("T", as_numbers(a).T @ as_numbers(b).T)], transA=1)


@example
def Einsum(c):
    a, b = c.x("T", 3, 4), c.x("T", 4, 5)
    yield c.use([a, b], [c.as_("T", as_numbers(a) @ as_numbers(b))], equation="ij,jk->ik")
    yield c.use([c.as_("T", [[1, 2], [3, 4]])], [c.as_("T", 5)], equation="ii")


@example
def MatMulInteger(c):
    a, b, za, zb = c.x("T1", 3, 4), c.x("T2", 4, 5), c.as_("T1", 3), c.as_("T2", 2)
    yield c.use([a, b, za, zb], [((w(a) - 3) @ (w(b) - 2)).astype(np.int32)])
    yield c.use([a, b], [(w(a) @ w(b)).astype(np.int32)])


@example
def ConvInteger(c):
    x, k, zx, zk = c.x("T1", 1, 2, 4, 4), c.x("T2", 3, 2, 2, 2), c.as_("T1", 3), c.as_("T2", 2)
    yield c.use([x, k, zx, zk], [reference.conv(w(x).astype(float) - 3, w(k).astype(float) - 2).astype(np.int32)])


@example
def Conv(c):
    x, k, b = c.x("T", 1, 2, 5, 5), c.x("T", 3, 2, 2, 2), c.x("T", 3)
    yield c.use([x, k, b], [c.as_("T", reference.conv(w(x), w(k), w(b), (2, 1), (1, 0, 0, 1)))], strides=[2, 1], pads=[1, 0, 0, 1])


@example
def ConvTranspose(c):
    x, k, b = c.x("T", 1, 2, 3, 3), c.x("T", 2, 3, 2, 2), c.x("T", 3)
    yield c.use([x, k, b], [c.as_("T", reference.conv_transpose(w(x), w(k), w(b), (2, 2), (0, 0, 0, 0), (0, 0)))], strides=[2, 2])


@example
def DeformConv(c):
    x, k = c.x("T", 1, 2, 4, 4), c.x("T", 3, 2, 2, 2)
    offset = typed(c.t(), np.zeros((1, 8, 3, 3)))
    yield c.use([x, k, offset], [c.as_("T", reference.conv(w(x), w(k)))], kernel_shape=[2, 2])


@example
def QLinearMatMul(c):
    a, b = c.x("T1", 3, 4), c.x("T2", 4, 5)
    scale = c.types.get("TS", F32)
    small = c.t("T1") not in INTS, c.t("T2") not in INTS, c.t("T3") not in INTS
    zeros = [c.as_(f"T{i + 1}", 0 if s else 2) for i, s in enumerate(small)]
    sums = (np.asarray(w(a), float) - np.asarray(w(zeros[0]), float)) @ (np.asarray(w(b), float) - np.asarray(w(zeros[1]), float))
    y = sums * 0.5 * 0.25 / 0.5
    if small[2]:
        expected = typed(c.t("T3"), y)
    else:
        low, high = (0, 255) if c.t("T3") == U8 else (-128, 127)
        expected = c.as_("T3", np.clip(np.rint(y) + 2, low, high))
    yield c.use([a, typed(scale, 0.5), zeros[0], b, typed(scale, 0.25), zeros[1], typed(scale, 0.5), zeros[2]], [expected])


@example
def QLinearConv(c):
    x, k = c.x("T1", 1, 2, 4, 4), c.x("T2", 3, 2, 2, 2)
    y = reference.conv(w(x).astype(float) - 2, w(k).astype(float) - 1) * 0.5 * 0.25 / 0.5
    low, high = (0, 255) if c.t("T3") == U8 else (-128, 127)
    yield c.use([x, np.float32(0.5).reshape(()), c.as_("T1", 2), k, np.float32(0.25).reshape(()), c.as_("T2", 1), np.float32(0.5).reshape(()), c.as_("T3", 2)],
                [c.as_("T3", np.clip(np.rint(y) + 2, low, high))])


# ---- windows

def windows(x, kernel, strides=(1, 1)):
    return reference._windows(x, kernel, strides, (1, 1))


@example
def AveragePool(c):
    x = c.x("T", 1, 2, 4, 5)
    yield c.use([x], [c.as_("T", windows(w(x), (2, 3)).mean((-1, -2)))], kernel_shape=[2, 3])


@example
def LpPool(c):
    x = c.x("T", 1, 2, 4, 5)
    yield c.use([x], [c.as_("T", np.sqrt((windows(w(x), (2, 2))**2).sum((-1, -2))))], kernel_shape=[2, 2], p=2)


@example
def MaxPool(c):
    x = c.x("T", 1, 1, 4, 5)
    numbers = np.asarray(w(x), float)
    y = windows(numbers, (2, 2)).max((-1, -2))
    expected = [c.as_("T", y)]
    if c.v >= 8:
        flat = windows(np.arange(20).reshape(1, 1, 4, 5), (2, 2)).reshape(1, 1, 3, 4, 4)
        at = windows(numbers, (2, 2)).reshape(1, 1, 3, 4, 4).argmax(-1)
        expected.append(np.take_along_axis(flat, at[..., None], -1)[..., 0].astype(np.int64))
    yield c.use([x], expected, kernel_shape=[2, 2])


@example
def GlobalAveragePool(c):
    x = c.x("T", 2, 3, 4, 5)
    yield c.use([x], [c.as_("T", w(x).mean((2, 3), keepdims=True))])


@example
def GlobalMaxPool(c):
    x = c.x("T", 2, 3, 4, 5)
    yield c.use([x], [c.as_("T", w(x).max((2, 3), keepdims=True))])


@example
def GlobalLpPool(c):
    x = c.x("T", 2, 3, 4, 5)
    yield c.use([x], [c.as_("T", np.sqrt((w(x)**2).sum((2, 3), keepdims=True)))])


@example
def MaxUnpool(c):
    x = c.x("T1", 1, 1, 2, 2)
    y = np.zeros(16)
    y[[5, 7, 13, 15]] = w(x).ravel()
    yield c.use([x, np.array([[[[5, 7], [13, 15]]]])], [c.as_("T1", y.reshape(1, 1, 4, 4))], kernel_shape=[2, 2], strides=[2, 2])


@example
def MaxRoiPool(c):
    x = c.x("T", 1, 2, 4, 4)
    yield c.use([x, c.as_("T", [[0, 0, 0, 3, 3]])], [c.as_("T", w(x).reshape(1, 2, 2, 2, 2, 2).max((3, 5)))], pooled_shape=[2, 2])


@example
def RoiAlign(c):
    x = c.x("T1", 1, 1, 4, 4)
    # One sample in the middle of each quarter: the mean of four neighbours.
    rois = c.as_("T1", [[0, 0, 4, 4]])
    y = w(x).reshape(1, 1, 2, 2, 2, 2).mean((3, 5))
    mode = {"coordinate_transformation_mode": "half_pixel"} if c.v >= 16 else {}
    expected = [c.as_("T1", y)] if c.v >= 16 else [(c.t("T1"), (1, 1, 2, 2))]
    yield c.use([x, rois, np.array([0])], expected, output_height=2, output_width=2, sampling_ratio=1, **mode)


@example
def Col2Im(c):
    if c.t() == STRING:
        x = c.x("T", 1, 4, 4)
        yield c.use([x, c.ints(4, 4), c.ints(2, 2)], [(STRING, (1, 1, 4, 4))], strides=[2, 2])
        return
    x = c.x("T", 1, 4, 4)
    y = w(x).reshape(1, 2, 2, 2, 2).transpose(0, 3, 1, 4, 2).reshape(1, 1, 4, 4)
    yield c.use([x, c.ints(4, 4), c.ints(2, 2)], [c.as_("T", y)], strides=[2, 2])


@example
def Resize(c):
    variable = "T1" if "T1" in c.types else "T"
    x, scales = c.x(variable, 1, 1, 2, 3), np.float32([1, 1, 2, 2])
    y = move(x, lambda e: e.repeat(2, 2).repeat(2, 3))
    if c.op == "Upsample" and c.v < 9:
        yield c.use([x], [y], mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])
    elif c.v < 11 or c.op == "Upsample":
        yield c.use([x, scales], [y], mode="nearest")
    else:
        roi = None if c.v >= 13 else typed(c.types.get("T2", F32), np.zeros(0))
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        yield c.use([x, roi, scales], [y], **how)
        yield c.use([x, typed(c.types.get("T2", F32), [0, 0, 0, 0, 1, 1, 1, 1]), scales if c.v < 13 else None, *([c.ints(1, 1, 4, 6)] if c.v >= 13 else [])],
                    [(c.t(variable), (1, 1, 4, 6))], mode="nearest", coordinate_transformation_mode="tf_crop_and_resize")


TABLE["Upsample"] = Resize


@example
def GridSample(c):
    x = c.x("T1", 1, 1, 2, 3)
    grid = c.as_("T2", [[[[-1, -1], [1, -1]], [[0, 1], [1, 1]]]])
    y = move(x, lambda e: np.array([[[[e[0, 0, 0, 0], e[0, 0, 0, 2]], [e[0, 0, 1, 1], e[0, 0, 1, 2]]]]], e.dtype))
    yield c.use([x, grid], [y], mode="nearest", align_corners=1)


@example
def AffineGrid(c):
    theta = c.as_("T1", [[[1, 0, 0.5], [0, 1, 0]]])
    xs = np.array([-0.5, 0.5])
    yield c.use([theta, c.ints(1, 1, 2, 2)], [c.as_("T1", np.stack([*np.broadcast_arrays(xs[None, :] + 0.5, xs[:, None])], -1)[None])])


# ---- normalisation

@example
def BatchNormalization(c):
    x = c.x("T", 2, 3, 4)
    scale, bias = c.x(c.types.get("T1", c.t()), 3), c.x(c.types.get("T1", c.t()), 3)
    mean, var = c.x(c.types.get("T2", c.types.get("U", c.t())), 3), c.x(c.types.get("T2", c.types.get("U", c.t())), 3, low=0.25, high=2)
    yield c.use([x, scale, bias, mean, var], [c.as_("T", reference.batch_norm(w(x), w(scale), w(bias), w(mean), w(var)))])


@example
def InstanceNormalization(c):
    x, scale, bias = c.x("T", 2, 3, 4, 2), c.x("T", 3), c.x("T", 3)
    m, v = w(x).mean((2, 3), keepdims=True), w(x).var((2, 3), keepdims=True)
    yield c.use([x, scale, bias], [c.as_("T", (w(x) - m) / np.sqrt(v + 1e-5) * w(scale)[:, None, None] + w(bias)[:, None, None])])


@example
def LayerNormalization(c):
    x, scale, bias = c.x("T", 2, 3, 4), c.x("T", 4), c.x("T", 4)
    m, v = w(x).mean(-1, keepdims=True), w(x).var(-1, keepdims=True)
    stash = c.t("U")
    yield c.use([x, scale, bias], [c.as_("T", (w(x) - m) / np.sqrt(v + 1e-5) * w(scale) + w(bias)), typed(stash, m), typed(stash, 1 / np.sqrt(v + 1e-5))],
                stash_type=stash)


@example
def RMSNormalization(c):
    x, scale = c.x("T", 2, 3, 4), c.x("V", 4)
    yield c.use([x, scale], [c.as_("V", w(x) / np.sqrt((w(x)**2).mean(-1, keepdims=True) + 1e-5) * w(scale))])


@example
def GroupNormalization(c):
    x = c.x("T", 2, 4, 3)
    n = 4 if c.v >= 21 else 2
    scale, bias = c.x("T", n), c.x("T", n)
    g = w(x).reshape(2, 2, 6)
    y = (g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)
    s, b = (w(scale), w(bias)) if n == 4 else (np.repeat(w(scale), 2), np.repeat(w(bias), 2))
    yield c.use([x, scale, bias], [c.as_("T", y.reshape(2, 4, 3) * s[:, None] + b[:, None])], num_groups=2)


@example
def MeanVarianceNormalization(c):
    x = c.x("T", 2, 3, 4, 2)
    m, s = w(x).mean((0, 2, 3), keepdims=True), w(x).std((0, 2, 3), keepdims=True)
    yield c.use([x], [c.as_("T", (w(x) - m) / (s + 1e-9))])


@example
def LpNormalization(c):
    x = c.x("T", 3, 4)
    yield c.use([x], [c.as_("T", w(x) / np.sqrt((w(x)**2).sum(-1, keepdims=True)))])


@example
def LRN(c):
    x = c.x("T", 1, 4, 2, 2)
    square = np.stack([(w(x)[:, max(0, i - 1):i + 2]**2).sum(1) for i in range(4)], 1)
    yield c.use([x], [c.as_("T", w(x) / (2 + 0.5 / 3 * square)**0.75)], size=3, alpha=0.5, bias=2.0)


@example
def Attention(c):
    q, k, v = c.x("T1", 1, 2, 3, 4), c.x("T1", 1, 2, 5, 4), c.x("T2", 1, 2, 5, 4)
    scores = w(q) @ w(k).swapaxes(-1, -2) / 2
    for mask in (None, c.x("U", 3, 5)) if "U" in c.types else (None,):
        s = scores
        if mask is not None:
            if c.t("U") == BOOL:
                mask = np.tril(np.ones((3, 5), bool), 2)
                s = np.where(mask, scores, -np.inf)
            else:
                s = scores + np.asarray(w(mask), float)
        p = np.exp(s - s.max(-1, keepdims=True))
        yield c.use([q, k, v] + ([] if mask is None else [mask]), [c.as_("T1", (p / p.sum(-1, keepdims=True)) @ w(v))])


@example
def RotaryEmbedding(c):
    x, cos, sin = c.x("T", 1, 2, 3, 4), c.x("T", 3, 2), c.x("T", 3, 2)
    a, b = w(x)[..., :2], w(x)[..., 2:]
    yield c.use([x, move(cos, lambda e: e[None]), move(sin, lambda e: e[None])], [c.as_("T", np.concatenate([a * w(cos) - b * w(sin), b * w(cos) + a * w(sin)], -1))])


# ---- recurrence

def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def recurrent(gates, step):
    def layer(c):
        x, wx, wh, b = c.x("T", 3, 2, 4), c.x("T", 1, gates * 2, 4, low=-0.5, high=0.5), c.x("T", 1, gates * 2, 2, low=-0.5, high=0.5), c.x("T", 1, 2 * gates * 2)
        bias = w(b)[0]
        wb, rb = bias[:gates * 2], bias[gates * 2:]
        h, cell, all_h = np.zeros((2, 2)), np.zeros((2, 2)), []
        for t in range(3):
            h, cell = step(w(x)[t] @ w(wx)[0].T + wb, h, cell, w(wh)[0], rb)
            all_h.append(h)
        expected = [c.as_("T", np.stack(all_h)[:, None]), c.as_("T", h[None])] + ([c.as_("T", cell[None])] if c.op == "LSTM" else [])
        yield c.use([x, wx, wh, b], expected, hidden_size=2)
        yield c.use([x, wx, wh, b, np.int32([3, 3])], expected, hidden_size=2)
    return layer


def rnn_step(xs, h, cell, r, rb):
    return np.tanh(xs + h @ r.T + rb), cell


def lstm_step(xs, h, cell, r, rb):
    i, o, f, g = np.split(xs + h @ r.T + rb, 4, 1)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def gru_step(xs, h, cell, r, rb):
    (xz, xr, xh), (rz, rr, rh), (bz, br, bh) = np.split(xs, 3, 1), np.split(r, 3), np.split(rb, 3)
    z, reset = sigmoid(xz + h @ rz.T + bz), sigmoid(xr + h @ rr.T + br)
    return (1 - z) * np.tanh(xh + (reset * h) @ rh.T + bh) + z * h, cell


TABLE["RNN"], TABLE["LSTM"], TABLE["GRU"] = recurrent(1, rnn_step), recurrent(4, lstm_step), recurrent(3, gru_step)


# ---- quantisation

def limits(kind):
    bits = INTS[kind]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind in SIGNED else (0, (1 << bits) - 1)


def scale_of(c, variable, default):
    return typed(c.types.get(variable, default), 0.5)


@example
def QuantizeLinear(c):
    x = c.x("T1", 3, 4)
    if c.t("T1") == I32:
        x = typed(I32, c.rng.randint(-4, 5, (3, 4)))
    target = "T3" if "T3" in c.types else "T2"
    scale = scale_of(c, "T2", F32) if target == "T3" else typed(c.t("T1") if c.v >= 19 and c.t("T1") != I32 else F32, 0.5)
    if type_of(scale) == I32:
        scale = typed(I32, 1)
    zero = c.as_(target, 1 if c.t(target) in INTS else 0)
    y = np.asarray(w(x), float) / float(w(scale))
    expected = typed(c.t(target), np.clip(np.rint(y) + 1, *limits(c.t(target))) if c.t(target) in INTS else y)
    yield c.use([x, scale, zero], [expected])


@example
def DequantizeLinear(c):
    kind = "T1" if "T1" in c.types else "T"
    x = c.x(kind, 3, 4)
    scale = scale_of(c, "T2", F32)
    to = c.types.get("T3", type_of(scale) if "T2" in c.types else F32)
    zero = c.as_(kind, 1) if c.t(kind) in INTS and c.t(kind) != I32 else None
    y = (np.asarray(w(x), float) - (1 if zero is not None else 0)) * float(w(scale))
    yield c.use([x, scale] + ([zero] if zero is not None else []), [typed(to, y)], **({"output_dtype": to} if "T3" in c.types else {}))


@example
def DynamicQuantizeLinear(c):
    x = np.float32([0, 2, -3, -2.5, 1.34, 0.5])
    scale = np.float32((2 + 3) / 255)
    zero = np.uint8(np.rint(3 / scale))
    yield c.use([x], [np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), scale.reshape(()), zero.reshape(())])


# ---- losses, detection

@example
def NegativeLogLikelihoodLoss(c):
    x, target = c.x("T", 3, 5), typed(c.t("Tind"), [1, 0, 4])
    yield c.use([x, target], [c.as_("T", -np.mean(w(x)[range(3), [1, 0, 4]]))])


@example
def SoftmaxCrossEntropyLoss(c):
    x, target = c.x("T", 3, 5), typed(c.t("Tind"), [1, 0, 4])
    p = w(x) - w(x).max(1, keepdims=True)
    p = p - np.log(np.exp(p).sum(1, keepdims=True))
    yield c.use([x, target], [c.as_("T", -np.mean(p[range(3), [1, 0, 4]])), c.as_("T", p)])


@example
def NonMaxSuppression(c):
    boxes, scores = np.float32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]]), np.float32([[[0.9, 0.75, 0.6]]])
    yield c.use([boxes, scores, c.ints(3), np.float32([0.5]), np.float32([0])], [np.array([[0, 0, 0], [0, 0, 2]])])


@example
def Det(c):
    x = c.x("T", 2, 3, 3)
    yield c.use([x], [c.as_("T", np.linalg.det(w(x)))])


# ---- signals

def window(terms):
    def of_size(c):
        for periodic in 1, 0:
            n = np.arange(8)
            y = sum(a * np.cos(2 * np.pi * k * n / (8 if periodic else 7)) for k, a in enumerate(terms))
            target = c.t("T2")
            expected = typed(target, np.trunc(y)) if target in INTS else typed(target, y)
            yield c.use([typed(c.t("T1"), 8)], [expected], output_datatype=target, periodic=periodic)
    return of_size


TABLE["HannWindow"] = window((0.5, -0.5))
TABLE["HammingWindow"] = window((25 / 46, -21 / 46))
TABLE["BlackmanWindow"] = window((0.42, -0.5, 0.08))


def pair(z):
    return np.stack([z.real, z.imag], -1)


@example
def DFT(c):
    x = c.x("T1", 2, 6, 1)
    length = typed(c.t("T2"), 6)
    if c.v >= 20:
        yield c.use([x, length, np.int64(1).reshape(())], [c.as_("T1", pair(np.fft.fft(w(x)[..., 0], axis=1)))])
    else:
        yield c.use([x, length], [c.as_("T1", pair(np.fft.fft(w(x)[..., 0], axis=1)))], axis=1)


@example
def STFT(c):
    x, step, size = c.x("T1", 1, 8, 1), typed(c.t("T2"), 2), typed(c.t("T2"), 4)
    frames = np.stack([w(x)[0, i:i + 4, 0] for i in (0, 2, 4)])
    yield c.use([x, step, None, size], [c.as_("T1", pair(np.fft.rfft(frames))[None])])


@example
def MelWeightMatrix(c):
    bins, size, rate, low, high = 8, 16, 8192, 0.0, 4096.0
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    edges = 700 * (10**((mel(low) + np.arange(bins + 2) * (mel(high) - mel(low)) / (bins + 2)) / 2595) - 1)
    at = np.floor((size + 1) * edges / rate).astype(int)
    y = np.zeros((size // 2 + 1, bins))
    for m in range(bins):
        left, centre, right = at[m:m + 3]
        for k in range(left, centre + 1 if left == centre else centre + 1):
            y[k, m] = 1 if left == centre else (k - left) / (centre - left)
        for k in range(centre, right):
            if right > centre:
                y[k, m] = (right - k) / (right - centre)
    target = c.t("T3")
    expected = typed(target, np.trunc(y)) if target in INTS else typed(target, y)
    if c.t("T2") != F32:
        expected = (target, y.shape)  # bounds of few bits round
    yield c.use([typed(c.t("T1"), bins), typed(c.t("T1"), size), typed(c.t("T1"), rate), c.as_("T2", low), c.as_("T2", high)], [expected], output_datatype=target)


# ---- random numbers: type and shape; values only where a bound shows itself

@example
def RandomNormal(c):
    yield c.use([], [(c.t("T"), (3, 4))], dtype=c.t("T"), shape=[3, 4])


TABLE["RandomUniform"] = RandomNormal


@example
def RandomNormalLike(c):
    yield c.use([c.x("T1", 3, 4)], [(c.t("T2"), (3, 4))], dtype=c.t("T2"))


TABLE["RandomUniformLike"] = RandomNormalLike


@example
def Bernoulli(c):
    yield c.use([c.as_("T1", [0, 1, 0, 1])], [c.as_("T2", [0, 1, 0, 1])], dtype=c.t("T2"))


@example
def Multinomial(c):
    yield c.use([c.as_("T1", [[-60, 0, -60]])], [c.as_("T2", [[1, 1, 1, 1, 1]])], dtype=c.t("T2"), sample_size=5)


# ---- training: one step each

@example
def Adagrad(c):
    r, t, x, g, h = c.as_("T1", 0.5), np.int64(2).reshape(()), c.x("T3", 3), c.x("T3", 3), c.x("T3", 3, low=0, high=2)
    squares = w(h) + w(g)**2
    yield c.use([r, t, x, g, h], [c.as_("T3", w(x) - 0.5 * w(g) / (np.sqrt(squares) + 1.0)), c.as_("T3", squares)], epsilon=1.0)


@example
def Adam(c):
    r, t, x, g, v, h = c.as_("T1", 0.5), np.int64(0).reshape(()), c.x("T3", 3), c.x("T3", 3), c.x("T3", 3), c.x("T3", 3, low=0, high=2)
    v2, h2 = 0.5 * w(v) + 0.5 * w(g), 0.5 * w(h) + 0.5 * w(g)**2
    yield c.use([r, t, x, g, v, h], [c.as_("T3", w(x) - 0.5 * v2 / (np.sqrt(h2) + 1.0)), c.as_("T3", v2), c.as_("T3", h2)],
                alpha=0.5, beta=0.5, epsilon=1.0)


@example
def Momentum(c):
    r, t, x, g, v = c.as_("T1", 0.5), np.int64(2).reshape(()), c.x("T3", 3), c.x("T3", 3), c.x("T3", 3)
    v2 = 0.5 * w(v) + 0.25 * w(g)
    yield c.use([r, t, x, g, v], [c.as_("T3", w(x) - 0.5 * v2), c.as_("T3", v2)], alpha=0.5, beta=0.25, mode="standard", norm_coefficient=0.0)


