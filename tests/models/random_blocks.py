"""What follows a node in a random graph: activations in one node and in parts, norms, residuals, broadcasts."""
import math

import numpy as np

import random_ops as ops
from onnx_build import F32
from reference import erf, sigmoid


def unary(w, x):
    op, attributes, of = w.choice(ops.UNARY)
    w.need(w.opset >= ops.OPSET.get(op, 1) and (op != "Celu" or w.kind == F32))
    return w.add(op, [x], of(x.data), **attributes)


def binary(w, op, a, b):
    f = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum}[op]
    with np.errstate(all="ignore"):
        return w.add(op, [a, b], f(a.data, b.data))


def broadcast_binary(w, x, ops_of="Add Add Mul Mul Sub Max Min Div"):
    op = w.choice(ops_of.split())
    if op == "Div":
        b = w.operand(x.shape, low=0.5, high=2)
        return binary(w, op, x, b)
    b = w.operand(x.shape)
    return binary(w, op, b, x) if w.chance(0.4) else binary(w, op, x, b)


def clip(w, x):
    low, high = sorted(w.floats(2))
    low, high = (None if w.chance(0.3) else low), (None if w.chance(0.3) else high + 0.5)
    data = np.clip(x.data, -np.inf if low is None else low, np.inf if high is None else high)
    limits = [None if v is None else w.const(v) for v in (low, high)]
    while limits and limits[-1] is None:
        limits.pop()
    return w.add("Clip", [x, *limits], data)


def prelu(w, x):
    dims = w.choice([[1], [x.shape[1]] + [1] * (x.rank - 2), list(x.shape[1:])]) if x.rank >= 2 else [1] * x.rank
    slope = w.const(w.floats(*dims, scale=0.3))
    return w.add("PRelu", [x, slope], np.where(x.data < 0, x.data * slope.data, x.data))


def batch_norm(w, x):
    w.need(x.rank >= 2)
    c, one = x.shape[1], (slice(None),) + (None,) * (x.rank - 2)
    s, b, m = (w.const(w.floats(c)) for _ in range(3))
    v = w.const(w.floats(c, low=0.5, high=2))
    eps = w.choice([1e-5, 1e-3, 0.1])
    data = (x.data - m.data[one]) / np.sqrt(v.data[one] + np.float64(np.float32(eps))) * s.data[one] + b.data[one]
    return w.add("BatchNormalization", [x, s, b, m, v], data, epsilon=eps)


def gated(w, x):
    """x * sigmoid(x), the gates of HardSwish, Mish and others, written in parts."""
    how = w.between(0, 4)
    if how == 0:
        g = w.add("Sigmoid", [x], sigmoid(x.data))
    elif how == 1:
        a, b = w.choice([(1 / 6, 0.5), (0.2, 0.5), (1 / 6, 0.25)])
        g = w.add("HardSigmoid", [x], ops.hard_sigmoid(x.data, a, b), alpha=a, beta=b)
    elif how == 2:
        g = w.add("Tanh", [w.add("Softplus", [x], ops.softplus(x.data))], np.tanh(ops.softplus(x.data)))
    elif how == 3:
        three, low, high = w.choice([3.0, 3.0, 2.5]), 0.0, w.choice([6.0, 6.0, 5.0])
        g = binary(w, "Add", x, w.const(three))
        g = w.add("Clip", [g, w.const(low), w.const(high)], np.clip(g.data, low, high))
    else:
        g = binary(w, "Mul", x, w.const(1.702))
        g = w.add("Sigmoid", [g], sigmoid(g.data))
    y = binary(w, "Mul", *((x, g) if w.chance(0.5) else (g, x)))
    if how == 3:
        y = binary(w, "Div", y, w.const(6.0)) if w.chance(0.5) else binary(
            w, "Mul", y, w.const(1 / 6))
    return y


def gelu(w, x):
    half, one, root = w.const(0.5), w.const(1.0), math.sqrt(2)
    if w.chance(0.25):  # by tanh
        k, c = 0.044715, math.sqrt(2 / math.pi)
        cube = w.add("Pow", [x, w.const(3.0)], x.data**3)
        inner = binary(w, "Mul", binary(w, "Add", x, binary(w, "Mul", cube, w.const(k))), w.const(c))
        e = w.add("Tanh", [inner], np.tanh(inner.data))
    else:
        inner = binary(w, "Div", x, w.const(root)) if w.chance(0.6) else binary(w, "Mul", x, w.const(1 / root))
        e = w.add("Erf", [inner], erf(inner.data))
    plus = binary(w, "Add", e, one) if w.chance(0.6) else binary(w, "Add", one, e)
    how = w.between(0, 2)
    if how == 0:
        return binary(w, "Mul", binary(w, "Mul", x, plus), half)
    if how == 1:
        return binary(w, "Mul", binary(w, "Mul", x, half), plus)
    return binary(w, "Mul", x, binary(w, "Mul", plus, half))


def after(w, x):
    """What follows a product: bias, scale, norm, residual, activation, and what is nearly one of them."""
    for _ in range(w.between(0, 4)):
        f = w.choice([batch_norm, broadcast_binary, broadcast_binary, residual, unary, unary, clip, prelu, gated, gelu,
                      lambda w, x: broadcast_binary(w, x, "Add Mul Sub Div")])
        x = f(w, x)
        if w.chance(0.12):
            w.keep(x)
    return w.keep(x)


def residual(w, x):
    fit = w.values(lambda v: v.is_float and v.shape == x.shape and v is not x)
    other = w.choice(fit) if fit and w.chance(0.8) else x if w.chance(0.1) else w.const(w.floats(*x.shape))
    return binary(w, "Add", *((x, other) if w.chance(0.5) else (other, x)))


def limited(w, x):
    """x, scaled down where it has grown."""
    most = np.abs(x.data).max() if x.data.size else 0
    return x if most < 20 else binary(w, "Mul", x, w.const(1 / most))
