#!/usr/bin/python3
"""Checks digits.onnx against the kept-out images: evaluates the file with numpy in double precision, compares
with heldout_probabilities.npy (what PyTorch answered at training) and counts the right answers. Needs python3-onnx."""
import os
import sys

import numpy as np
import onnx
from onnx import numpy_helper
from numpy.lib.stride_tricks import sliding_window_view

HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 1e-5  # float32 against float64
WANT_RIGHT = 0.97


def conv(x, w, pads, **_):
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    return np.einsum("nchwij,ocij->nohw", sliding_window_view(x, w.shape[2:], axis=(2, 3)), w, optimize=True)


def batch_norm(x, scale, bias, mean, var, epsilon, **_):
    scale = scale / np.sqrt(var + epsilon)
    return x * scale[:, None, None] + (bias - mean * scale)[:, None, None]


def max_pool(x, kernel_shape, strides, **_):
    windows = sliding_window_view(x, kernel_shape, axis=(2, 3))
    return windows[:, :, ::strides[0], ::strides[1]].max(axis=(4, 5))


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


OPERATORS = {  # as digits.onnx uses them: stride 1, one group, no dilation; Gemm with transB
    "Constant": lambda value: numpy_helper.to_array(value).astype(np.float64),
    "Div": np.divide,
    "Conv": conv,
    "BatchNormalization": batch_norm,
    "Relu": lambda x: np.maximum(x, 0),
    "MaxPool": max_pool,
    "Flatten": lambda x, axis: x.reshape(len(x), -1),
    "Gemm": lambda x, w, b, **_: x @ w.T + b,
    "Softmax": softmax,
}


def evaluate(graph, image):
    values = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in graph.initializer}
    values[graph.input[0].name] = image.astype(np.float64)
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = OPERATORS[node.op_type](*[values[name] for name in node.input], **attributes)
    return values[graph.output[0].name]


def main():
    images, labels, expected = (np.load(os.path.join(HERE, f"heldout_{what}.npy"))
                                for what in ("images", "labels", "probabilities"))
    graph = onnx.load(os.path.join(HERE, "digits.onnx")).graph
    answers = evaluate(graph, images)
    worst = np.abs(answers - expected).max()
    right = (answers.argmax(1) == labels).mean()
    print(f"{len(labels)} images: {100 * right:.2f} % right, largest difference from PyTorch {worst:.1e}")
    if worst > TOLERANCE or right < WANT_RIGHT:
        sys.exit(f"want {100 * WANT_RIGHT:.0f} % right and no difference above {TOLERANCE}")


if __name__ == "__main__":
    main()
