"""Gradient of ai.onnx.preview.training, against central differences in double precision."""
import math

import numpy as np

import reference as ref
from cases_networks import f32, normal
from onnx_build import F32, Case, Graph

TRAINING = "ai.onnx.preview.training"
STEP = 1e-6


def slopes(f, values):
    """The derivative of sum(f(*values)) by each element of each value."""
    values = [np.array(v, np.float64) for v in values]
    out = []
    for v in values:
        grad = np.zeros_like(v)
        for at in np.ndindex(v.shape):
            here = v[at]
            v[at] = here + STEP
            up = np.sum(f(*values))
            v[at] = here - STEP
            grad[at] = (up - np.sum(f(*values))) / (2 * STEP)
            v[at] = here
        out.append(grad)
    return out


def case(g, opset, y, given, f, values):
    """A model with the outputs y and its gradients by `given`."""
    g.op("Gradient", *given, out=["d_" + x for x in given], domain=TRAINING, xs=list(given), y=y)
    for x, v in zip(given, values):
        g.output("d_" + x, F32, list(v.shape))
    expected = [f32(f(*[np.float64(v) for v in values]))] + [f32(s) for s in slopes(f, values)]
    return Case(g.model(opset, ai_onnx_preview_training=1), ([f32(v) for v in values], expected), rtol=2e-4, atol=2e-5)


def gradient_of_network(rng):
    """MatMul, Gemm, Tanh, Softmax, ReduceMean, with a bias that is broadcast"""
    values = [normal(rng, 4, 3), normal(rng, 3, 5), normal(rng, 5), normal(rng, 2, 5), normal(rng, 1, 2)]
    g = Graph("gradient_of_network")
    for name, v in zip("xwbuc", values):
        g.input(name, F32, list(v.shape))
    hidden = g.op("Tanh", g.op("Add", g.op("MatMul", "x", "w"), "b"))
    logits = g.op("Gemm", hidden, "u", "c", alpha=0.5, beta=2.0, transB=1)
    g.op("ReduceMean", g.op("Mul", g.op("Softmax", logits, axis=1), logits), out="y", axes=[1], keepdims=0)
    g.output("y", F32, [4])

    def f(x, w, b, u, c):
        logits = 0.5 * np.tanh(x @ w + b) @ u.T + 2 * c
        e = np.exp(logits)
        return (e / e.sum(axis=1, keepdims=True) * logits).mean(axis=1)

    return case(g, 13, "y", "xwbuc", f, values)


def gradient_of_elements(rng):
    """One of each element by element: Div, Pow, Sqrt, Exp, Log, Sin, Cos, Erf, Sigmoid, Softplus, Relu, Clip, Where ..."""
    values = [np.abs(normal(rng, 2, 3)) + 0.5, np.abs(normal(rng, 3)) + 0.5]
    g = Graph("gradient_of_elements")
    for name, v in zip("xp", values):
        g.input(name, F32, list(v.shape))
    down = g.op("Sub", "x", g.const(1.0))  # of both signs
    parts = [g.op("Div", "x", "p"), g.op("Pow", "x", "p"), g.op("Sqrt", "x"), g.op("Exp", down), g.op("Log", "x"),
             g.op("Sin", "x"), g.op("Cos", "x"), g.op("Erf", down), g.op("Sigmoid", down), g.op("Softplus", down),
             g.op("Relu", down), g.op("LeakyRelu", down, alpha=0.1), g.op("Abs", down), g.op("Neg", "x"),
             g.op("Reciprocal", "x"), g.op("Clip", "x", g.const(0.7), g.const(1.3)),
             g.op("Where", g.op("Greater", "x", g.const(1.0)), g.op("Mul", "x", "x"), "p"), g.op("Mean", "x", "p"),
             g.op("LogSoftmax", "x", axis=0)]
    g.op("Sum", *parts, out="y")
    g.output("y", F32, [2, 3])

    def f(x, p):
        down, erf = x - 1, np.vectorize(math.erf)
        return (x / p + x**p + np.sqrt(x) + np.exp(down) + np.log(x) + np.sin(x) + np.cos(x) + erf(down)
                + 1 / (1 + np.exp(-down)) + np.log1p(np.exp(down)) + np.maximum(down, 0) + np.where(down < 0, 0.1 * down, down)
                + np.abs(down) - x + 1 / x + np.clip(x, 0.7, 1.3) + np.where(x > 1, x * x, p) + (x + p) / 2
                + x - np.log(np.exp(x).sum(axis=0)))

    return case(g, 13, "y", "xp", f, values)


def gradient_of_shapes(rng):
    """Reshape, Transpose, Concat, Expand, Squeeze, ReduceSum without its dim, MatMul of vectors and of stacks"""
    values = [normal(rng, 2, 3), normal(rng, 3), normal(rng, 2, 1, 3, 2)]
    g = Graph("gradient_of_shapes")
    for name, v in zip("xvm", values):
        g.input(name, F32, list(v.shape))
    both = g.op("Concat", g.op("Transpose", "x"), g.op("Unsqueeze", "v", g.const(np.int64([1]))), axis=1)  # [3,3]
    square = g.op("Mul", both, both)
    stack = g.op("MatMul", "x", "m")  # [2,1,2,2]
    flat = g.op("Reshape", stack, g.const(np.int64([2, 4])))
    wide = g.op("Expand", g.op("ReduceSum", square, g.const(np.int64([-1])), keepdims=0), g.const(np.int64([2, 3])))
    dots = g.op("MatMul", wide, "v")  # [2]
    whole = g.op("Mul", g.op("ReduceSum", g.op("Mul", flat, flat), g.const(np.int64([1])), keepdims=0), dots)
    g.op("Squeeze", g.op("Add", whole, g.op("MatMul", "v", "v")), out="y")
    g.output("y", F32, [2])

    def f(x, v, m):
        square = np.concatenate([x.T, v[:, None]], axis=1) ** 2
        return ((x @ m).reshape(2, 4) ** 2).sum(axis=1) * (np.broadcast_to(square.sum(-1), (2, 3)) @ v) + v @ v

    return case(g, 13, "y", "xvm", f, values)


def gradient_twice(rng):
    """The gradient of a gradient, and one that is taken elsewhere than at the named input, of a value nobody else reads"""
    g = Graph("gradient_twice")
    g.input("x", F32, ["n"])
    g.input("at", F32, ["k"])
    g.op("Mul", g.op("Mul", "x", "x"), "x", out="cube")
    g.op("Gradient", "x", out="first", domain=TRAINING, xs=["x"], y="cube")
    g.op("Gradient", "x", out="second", domain=TRAINING, xs=["x"], y="first")
    g.op("Gradient", "at", out="elsewhere", domain=TRAINING, xs=["x"], y="cube")
    for name in "first", "second":
        g.output(name, F32, ["n"])
    g.output("elsewhere", F32, ["k"])
    x, at = normal(rng, 4), normal(rng, 3)
    wide, other = ref.f64(x), ref.f64(at)
    return Case(g.model(13, ai_onnx_preview_training=1), ([x, at], [f32(3 * wide**2), f32(6 * wide), f32(3 * other**2)]))


CASES = [gradient_of_network, gradient_of_elements, gradient_of_shapes, gradient_twice]
