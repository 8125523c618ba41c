"""Models of many nodes, each with graph inputs and outputs of its own, for operators that python3-onnx 1.12 does not know:
its checker is left out."""
import numpy as np

from onnx_build import BF16, ELEM_TYPES, Bf16, Case, Graph, Small


def elem_type(value):
    return BF16 if isinstance(value, Bf16) else getattr(value, "elem_type", None) or ELEM_TYPES[value.dtype]


def wide(value):
    return np.asarray(value.values() if isinstance(value, (Bf16, Small)) else value, np.float64)


def like(value, result):
    """`result` rounded once to the element type of `value`."""
    return Bf16(result) if isinstance(value, Bf16) else result.astype(value.dtype)


class Nodes:
    """One model of many nodes: each with graph inputs of its own and each output a graph output."""

    def __init__(self, name):
        self.graph, self.values, self.expected = Graph(name), [], []

    def add(self, op, inputs, outputs, known=True, **attributes):
        """`inputs`: arrays, None where there is none; `outputs`: arrays, None where it is not wanted."""
        g, i, names = self.graph, len(self.graph.nodes), []
        for k, value in enumerate(inputs):
            names.append("" if value is None else f"{op}_{i}_in_{k}")
            if value is not None:
                g.input(names[-1], elem_type(value), list(value.shape) if known else [None] * len(value.shape))
                self.values.append(value)
        outs = ["" if value is None else f"{op}_{i}_out_{k}" for k, value in enumerate(outputs)]
        g.op(op, *names, out=outs, **attributes)
        for name, value in zip(outs, outputs):
            if value is not None:
                g.output(name, elem_type(value), list(value.shape) if known else [None] * len(value.shape))
                self.expected.append(value)

    def case(self, opset, **how):
        return Case(self.graph.model(opset, ir=10), (self.values, self.expected), check=False, **how)
