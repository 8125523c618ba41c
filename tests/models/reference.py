"""Plain numpy versions of the operators whose result is not one line of numpy. They compute in double precision, so
that a case's expected output is the exact result rounded once."""
import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def f64(*arrays):
    wide = [np.asarray(a, np.float64) for a in arrays]
    return wide[0] if len(wide) == 1 else wide


def _windows(x, kernel, strides, dilations):
    """x [N,C,H,W] -> [N,C,oH,oW,kH,kW]"""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    windows = sliding_window_view(x, reach, axis=(2, 3))
    return windows[:, :, ::strides[0], ::strides[1], ::dilations[0], ::dilations[1]]


def _pad(x, pads, value):
    """pads as in ONNX: top, left, bottom, right"""
    return np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])], constant_values=value)


def conv(x, w, b=None, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1):
    x, w = f64(x, w)
    parts = []
    for xs, ws in zip(np.split(_pad(x, pads, 0), group, axis=1), np.split(w, group, axis=0)):
        parts.append(np.einsum("nchwij,ocij->nohw", _windows(xs, w.shape[2:], strides, dilations), ws, optimize=True))
    y = np.concatenate(parts, axis=1)
    return y if b is None else y + f64(b)[:, None, None]


def conv_transpose(x, w, b, strides, pads, output_padding):
    """w [C,M,kH,kW]; one group, no dilation"""
    x, w = f64(x, w)
    n, _, h, wd = x.shape
    kh, kw = w.shape[2:]
    full = np.zeros((n, w.shape[1], (h - 1) * strides[0] + kh + output_padding[0],
                     (wd - 1) * strides[1] + kw + output_padding[1]))
    for i in range(h):
        for j in range(wd):
            at = full[:, :, i * strides[0]:i * strides[0] + kh, j * strides[1]:j * strides[1] + kw]
            at += np.einsum("nc,cmij->nmij", x[:, :, i, j], w)
    y = full[:, :, pads[0]:full.shape[2] - pads[2], pads[1]:full.shape[3] - pads[3]]
    return y + f64(b)[:, None, None]


def batch_norm(x, scale, bias, mean, var, epsilon=1e-5):
    x, scale, bias, mean, var = (f64(a) for a in (x, scale, bias, mean, var))
    one = (slice(None),) + (None,) * (x.ndim - 2)
    return (x - mean[one]) / np.sqrt(var[one] + epsilon) * scale[one] + bias[one]


def max_pool(x, kernel, strides, pads=(0, 0, 0, 0), dilations=(1, 1)):
    return _windows(_pad(f64(x), pads, -np.inf), kernel, strides, dilations).max(axis=(4, 5))


def average_pool(x, kernel, strides, pads=(0, 0, 0, 0), count_include_pad=False):
    total = _windows(_pad(f64(x), pads, 0), kernel, strides, (1, 1)).sum(axis=(4, 5))
    ones = _pad(np.ones_like(f64(x)), pads, 1 if count_include_pad else 0)
    return total / _windows(ones, kernel, strides, (1, 1)).sum(axis=(4, 5))


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-f64(x)))


def hard_swish(x):
    return f64(x) * np.clip(f64(x) / 6 + 0.5, 0, 1)


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(f64(x))


def gelu(x):
    return 0.5 * f64(x) * (1 + erf(f64(x) / math.sqrt(2)))


def softmax(x, axis=-1):
    e = np.exp(f64(x) - f64(x).max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def layer_norm(x, scale, bias, epsilon=1e-5):
    x = f64(x)
    mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + epsilon) * f64(scale) + f64(bias)
