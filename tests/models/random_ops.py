"""Operators over any number of spatial axes written out in numpy, in double precision: what random_graphs.py expects."""
import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from reference import erf, f64, sigmoid

SPATIAL = "xyz"


def windows(x, kernel, strides, dilations):
    """x [N,C,spatial...] -> [N,C,positions...,kernel...]"""
    rank = len(kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    view = sliding_window_view(x, reach, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilations]
    return view[(slice(None), slice(None), *steps)]


def padded(x, pads, value):
    """pads as in ONNX: all begins, then all ends, of the spatial axes"""
    half = len(pads) // 2
    return np.pad(x, [(0, 0), (0, 0), *zip(pads[:half], pads[half:])], constant_values=value)


def conv(x, w, b, strides, pads, dilations, group):
    x, w = f64(x, w)
    rank = w.ndim - 2
    at, inside = SPATIAL[:rank], "ijk"[:rank]
    rule = f"nc{at}{inside},oc{inside}->no{at}"
    y = np.concatenate([np.einsum(rule, windows(xs, w.shape[2:], strides, dilations), ws, optimize=True)
                        for xs, ws in zip(np.split(padded(x, pads, 0), group, 1), np.split(w, group, 0))], 1)
    return y if b is None else y + f64(b).reshape(-1, *[1] * rank)


def conv_transpose(x, w, b, strides, pads, dilations, group, output_padding):
    x, w = f64(x, w)
    rank = w.ndim - 2
    size = [(x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 + output_padding[i] for i in range(rank)]
    full = np.zeros((x.shape[0], w.shape[1] * group, *size))
    for g, (xs, ws) in enumerate(zip(np.split(x, group, 1), np.split(w, group, 0))):
        out = full[:, g * w.shape[1]:(g + 1) * w.shape[1]]
        for offset in np.ndindex(*w.shape[2:]):
            to = tuple(slice(o * d, o * d + (n - 1) * s + 1, s)
                       for o, d, s, n in zip(offset, dilations, strides, x.shape[2:]))
            out[(slice(None), slice(None), *to)] += np.einsum("nc...,cm->nm...", xs, ws[(slice(None), slice(None), *offset)])
    cut = tuple(slice(pads[i], full.shape[2 + i] - pads[rank + i]) for i in range(rank))
    y = full[(slice(None), slice(None), *cut)]
    return y if b is None else y + f64(b).reshape(-1, *[1] * rank)


def pool(op, x, kernel, strides, pads, dilations, include_pad=False, p=2):
    axes = tuple(range(-len(kernel), 0))
    if op == "MaxPool":
        return windows(padded(f64(x), pads, -np.inf), kernel, strides, dilations).max(axes)
    w = windows(padded(f64(x), pads, 0), kernel, strides, dilations)
    if op == "LpPool":
        return (np.abs(w) ** p).sum(axes) ** (1 / p)
    ones = padded(np.ones_like(f64(x)), pads, 1 if include_pad else 0)
    return w.sum(axes) / windows(ones, kernel, strides, dilations).sum(axes)


def _place(mode, out, scale, before, after):
    if mode == "half_pixel":
        return (out + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (out + 0.5) / scale - 0.5 if after > 1 else np.zeros_like(out)
    if mode == "asymmetric":
        return out / scale
    return out * ((before - 1) / (after - 1)) if after > 1 else np.zeros_like(out)  # align_corners


def resize(x, sizes, mode, place, rounding="round_prefer_floor", cubic=-0.75):
    """Axis by axis: each output element is a weighted sum of input elements along it."""
    y = f64(x)
    for axis, (before, after) in enumerate(zip(x.shape, sizes)):
        if before == after:
            continue
        at = _place(place, np.arange(after, dtype=np.float64), after / before, before, after)
        if mode == "nearest":
            # what is exactly between two elements is told apart by its mode, and not by the last digit of a quotient
            at = np.round(at, 9)
            index = {"floor": np.floor(at), "ceil": np.ceil(at), "round_prefer_floor": np.ceil(at - 0.5),
                     "round_prefer_ceil": np.floor(at + 0.5)}[rounding]
            y = np.take(y, np.clip(index, 0, before - 1).astype(int), axis)
            continue
        weights = np.zeros((after, before))
        low = np.floor(at).astype(int)
        for tap in range(*((0, 2) if mode == "linear" else (-1, 3))):
            d = np.abs(at - (low + tap))
            if mode == "linear":
                share = 1 - d
            else:
                share = np.where(d <= 1, (cubic + 2) * d**3 - (cubic + 3) * d**2 + 1,
                                 cubic * d**3 - 5 * cubic * d**2 + 8 * cubic * d - 4 * cubic)
            np.add.at(weights, (np.arange(after), np.clip(low + tap, 0, before - 1)), share)
        y = np.moveaxis(np.tensordot(y, weights, (axis, 1)), -1, axis)
    return y


def quantize(x, scale, zero, dtype):
    info = np.iinfo(dtype)
    return np.clip(np.rint(f64(x) / f64(scale)) + np.float64(zero), info.min, info.max).astype(dtype)


def dequantize(q, scale, zero):
    return (q.astype(np.float64) - np.asarray(zero, np.float64)) * f64(scale)


def lstm(x, w, r, b, h, c):
    """One direction: x [T,B,I], w [4H,I], r [4H,H], b [8H], gates i o f c; gives y [T,B,H], h, c."""
    x, w, r, b, h, c = f64(x, w, r, b, h, c)
    n, out = r.shape[1], []
    for step in x:
        i, o, f, g = np.split(step @ w.T + h @ r.T + b[:4 * n] + b[4 * n:], 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out), h, c


def gru(x, w, r, b, h, linear_before_reset):
    """One direction: gates z r h; gives y [T,B,H], h."""
    x, w, r, b, h = f64(x, w, r, b, h)
    n, out = r.shape[1], []
    wb, rb = b[:3 * n], b[3 * n:]
    for step in x:
        a, q = step @ w.T + wb, h @ r.T + rb
        z, reset = sigmoid(a[:, :n] + q[:, :n]), sigmoid(a[:, n:2 * n] + q[:, n:2 * n])
        inner = q[:, 2 * n:] * reset if linear_before_reset else (reset * h) @ r[2 * n:].T + rb[2 * n:]
        h = (1 - z) * np.tanh(a[:, 2 * n:] + inner) + z * h
        out.append(h)
    return np.stack(out), h


def hard_sigmoid(x, alpha=0.2, beta=0.5):
    return np.clip(alpha * f64(x) + beta, 0, 1)


def softplus(x):
    return np.logaddexp(f64(x), 0)


# Operators of one input, with attributes that they are tried with, and what they are.
UNARY = [
    ("Relu", {}, lambda x: np.maximum(x, 0)),
    ("Relu", {}, lambda x: np.maximum(x, 0)),
    ("LeakyRelu", {"alpha": 0.125}, lambda x: np.where(x < 0, 0.125 * x, x)),
    ("LeakyRelu", {}, lambda x: np.where(x < 0, np.float64(np.float32(0.01)) * x, x)),
    ("Elu", {"alpha": 0.75}, lambda x: np.where(x < 0, 0.75 * np.expm1(np.minimum(x, 0)), x)),
    ("Selu", {}, lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(np.minimum(x, 0)), x)),
    ("Sigmoid", {}, sigmoid),
    ("Tanh", {}, np.tanh),
    ("Softplus", {}, softplus),
    ("Softsign", {}, lambda x: x / (1 + np.abs(x))),
    ("HardSigmoid", {}, hard_sigmoid),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.375}, lambda x: hard_sigmoid(x, 0.25, 0.375)),
    ("HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("Celu", {"alpha": 1.5}, lambda x: np.maximum(x, 0) + np.minimum(0, 1.5 * np.expm1(x / 1.5))),
    ("ThresholdedRelu", {"alpha": -9.5}, lambda x: np.where(x > -9.5, x, 0)),
    ("Neg", {}, np.negative),
    ("Abs", {}, np.abs),
    ("Erf", {}, erf),
    ("Sin", {}, np.sin),
    ("Cos", {}, np.cos),
    ("Atan", {}, np.arctan),
    ("Identity", {}, lambda x: x),
]
OPSET = {"HardSwish": 14, "Celu": 12}


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
