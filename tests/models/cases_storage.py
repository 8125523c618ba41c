"""How a file says the same thing in other ways: storage of weights, old opsets, order of nodes, names."""
import numpy as np
from onnx import TensorProto, helper

import reference as ref
from cases_networks import f32, norm_parameters, normal
from onnx_build import (BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bf16, Case, Graph, external,
                        info)


def external_data(rng):
    """Weights in two side files, one in a folder: aligned, unaligned, without length, without offset and length"""
    w, b, c = normal(rng, 8, 6, scale=0.4), normal(rng, 6), normal(rng, 6)
    g = Graph("external_data")
    x = g.input("x", F32, [3, 8])
    tail = rng.randint(-5, 6, 6).astype(np.int64)
    g.initializers += [external("w", F32, [8, 6], location="weights.bin", offset=4096, length=w.nbytes),
                       external("b", F32, [6], location="weights.bin", offset=3, length=b.nbytes),
                       external("c", F32, [6], location="more/c.bin"),
                       external("tail", I64, [6], location="./weights.bin", offset=4096 + w.nbytes, unknown_key="x")]
    y = g.op("Add", g.op("MatMul", x, "w"), "b")
    g.op("Mul", g.op("Add", y, g.op("Cast", "tail", to=F32)), "c", out="y")
    g.output("y", F32, [3, 6])
    side = b"\xff" * 3 + b.tobytes()
    side = side + b"\xff" * (4096 - len(side)) + w.tobytes() + tail.tobytes()
    v = normal(rng, 3, 8)
    return Case(g.model(13), ([v], [f32((ref.f64(v) @ w + b + tail) * c)]),
                files={"weights.bin": side, "more/c.bin": c.tobytes()}, check=False)


def ir3_initializers_are_inputs(rng):
    """IR 3, opset 8: every initializer is also listed as a graph input, as the old rule demands"""
    w, b, bn = normal(rng, 4, 2, 3, 3, scale=0.3), normal(rng, 4), norm_parameters(rng, 4)
    g = Graph("ir3")
    x = g.input("x", F32, [1, 2, 6, 6])
    y = g.op("Conv", x, g.const(w, "w"), g.const(b, "b"), kernel_shape=[3, 3])
    y = g.op("BatchNormalization", y, *[g.const(p, f"bn{i}") for i, p in enumerate(bn)])
    g.op("Relu", y, out="y")
    g.output("y", F32, [1, 4, 4, 4])
    g.inputs += [info(t.name, t.data_type, list(t.dims)) for t in g.initializers]
    v = normal(rng, 1, 2, 6, 6)
    return Case(g.model(8, ir=3), ([v], [f32(ref.relu(ref.batch_norm(ref.conv(v, w, b), *bn)))]))


def overridable_default(rng):
    """IR 8: an initializer that is also an input; one run gives it another value, one does not"""
    scale = f32([2, 3])
    g = Graph("overridable_default")
    x = g.input("x", F32, [2])
    g.input(g.const(scale, "scale"), F32, [2])
    # All constants but for the input: may be folded only while nobody gives another scale.
    g.op("Mul", x, g.op("Add", "scale", g.const(1.0)), out="y")
    g.output("y", F32, [2])
    v, other = f32([5, 7]), f32([-1, 0.5])
    return Case(g.model(15), ([v], [v * (scale + 1)]), ([v, other], [v * (other + 1)]))


def typed_data(rng):
    """Initializers in float_data, int32_data, int64_data, double_data and uint64_data instead of raw_data"""
    small = [0, 1, 3, 2, 7, 5]
    signed = [0, -1, 3, -2, 7, -5]
    half = np.float16([0.5, -1, 2, 0.25, 0, 8])
    brain = Bf16([0.5, -1, 2, 0.25, 0, 8])
    fields = [  # type, name, field, what is stored, what it means
        (F32, "f32", "float_data", [0.5, -1, 2, 0.25, 0, 8], [0.5, -1, 2, 0.25, 0, 8]),
        (F64, "f64", "double_data", [0.5, -1, 2, 0.25, 0, 8], [0.5, -1, 2, 0.25, 0, 8]),
        (F16, "f16", "int32_data", half.view(np.uint16).tolist(), half.tolist()),
        (BF16, "bf16", "int32_data", brain.bits.tolist(), brain.values().tolist()),
        (I8, "i8", "int32_data", signed, signed), (I16, "i16", "int32_data", signed, signed),
        (I32, "i32", "int32_data", signed, signed), (I64, "i64", "int64_data", signed, signed),
        (U8, "u8", "int32_data", small, small), (U16, "u16", "int32_data", small, small),
        (U32, "u32", "uint64_data", small, small), (U64, "u64", "uint64_data", small, small),
        (BOOL, "bool", "int32_data", [1, 0, 1, 1, 0, 0], [1, 0, 1, 1, 0, 0])]
    g = Graph("typed_data")
    x, v, expected = g.input("x", F32, [2, 3]), normal(rng, 2, 3), []
    for elem_type, name, field, stored, meant in fields:
        t = TensorProto(name=name, data_type=elem_type, dims=[2, 3])
        getattr(t, field).extend(stored)
        g.initializers.append(t)
        g.op("Add", x, g.op("Cast", name, to=F32), out="y_" + name)
        g.output("y_" + name, F32, [2, 3])
        expected.append(f32(v + f32(meant).reshape(2, 3)))
    return Case(g.model(13), ([v], expected))


def constants(rng):
    """Constant with value, value_float, value_floats, value_int, value_ints; ConstantOfShape with and without value"""
    g = Graph("constants")
    x = g.input("x", F32, [2])
    y = g.op("Mul", x, g.op("Constant", value_float=2.0))
    y = g.op("Add", y, g.op("Constant", value_floats=[10.0, 20.0]))
    y = g.op("Gather", y, g.op("Constant", value_ints=[1, 0, 1]), axis=0)
    y = g.op("Add", y, g.op("Cast", g.op("Constant", value_int=100), to=F32))
    y = g.op("Add", y, g.op("Constant", value=helper.make_tensor("", F32, [3], [0.5, 0.25, 0.125])))
    three = g.op("Shape", y)
    y = g.op("Add", y, g.op("ConstantOfShape", three))
    g.op("Add", y, g.op("ConstantOfShape", three, value=helper.make_tensor("", F32, [1], [1000.0])), out="y")
    g.output("y", F32, [3])
    return Case(g.model(13), ([f32([1, 2])], [f32([1124.5, 1112.25, 1124.125])]))


def unsorted_nodes(rng):
    """Nodes in no order at all, one with a subgraph that reads a value made by a node further down"""
    weights = [normal(rng, 6, 6, scale=0.4) for _ in range(6)]
    g = Graph("unsorted_nodes")
    x = g.input("x", F32, [2, 6])
    y, expected = x, normal(rng, 2, 6)
    v = expected
    for w in weights:
        y = g.op("Tanh", g.op("MatMul", y, g.const(w)))
        expected = np.tanh(ref.f64(expected) @ w)
    left, right = Graph("left", "left."), Graph("right", "right.")
    left.output(left.op("Neg", y), F32, [2, 6])
    right.output(right.op("Exp", y), F32, [2, 6])
    flag = g.op("Greater", g.op("ReduceSum", y, keepdims=0), g.const(1000.0))
    g.op("If", flag, then_branch=left.proto(), else_branch=right.proto(), out="y")
    g.output("y", F32, [2, 6])
    g.nodes = [g.nodes[i] for i in rng.permutation(len(g.nodes))]
    return Case(g.model(13), ([v], [f32(np.exp(expected))]), check=False)


def _chain(length):
    g = Graph(f"chain_{length}")
    y, one = g.input("x", F32, [1]), g.const(f32([1]), "one")
    for i in range(length):
        y = g.op("Add", y, one, out="y" if i == length - 1 else None)
    g.output("y", F32, [1])
    return Case(g.model(13), ([f32([0.5])], [f32([length + 0.5])]))


def chain_100(rng):
    """100 Add nodes, each of one element: what a node costs when it computes nothing"""
    return _chain(100)


def chain_1000(rng):
    """1,000 Add nodes, each of one element"""
    return _chain(1000)


def odd_names(rng):
    """Names of values and nodes in UTF-8, spaces, quotes, 300 letters; nodes that share one name"""
    names = ["数字", "/a/b:0", "with space", 'quote " and \\', "😀", "n" * 300, "%s%n", "line\nbreak"]
    g = Graph("名前")
    y = g.input("Eingang größe", F32, [2])
    for name in names:
        y = g.op("Add", y, g.const(1.0), out=name, name="same name")
    g.op("Neg", y, out="出力", name="")
    g.output("出力", F32, [2])
    return Case(g.model(13), ([f32([1, 2])], [f32([-9, -10])]))


def empty_optionals(rng):
    """Optional inputs and outputs left out with "" in the middle and at the end; nodes without names"""
    g = Graph("empty_optionals")
    x = g.input("x", F32, [2, 4])
    y = g.op("Clip", x, "", g.const(0.5), name="")                               # no minimum
    y = g.op("Slice", y, g.const(np.int64([1])), g.const(np.int64([4])), g.const(np.int64([1])), "", name="")
    w, r, h = normal(rng, 1, 8, 3), normal(rng, 1, 8, 2), normal(rng, 1, 2, 2)
    steps = g.op("Unsqueeze", y, g.const(np.int64([0])), name="")
    g.op("LSTM", steps, g.const(w), g.const(r), "", "", g.const(h), hidden_size=2, out=["", "hidden"], name="")
    resized = g.op("Resize", steps, "", "", g.const(np.int64([1, 4, 3])),
                   mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor", name="")
    g.op("Squeeze", resized, g.const(np.int64([0])), out="resized", name="")
    g.op("Dropout", y, "", "", out=["kept", ""], name="")
    g.output("hidden", F32, [1, 2, 2])
    g.output("resized", F32, [4, 3])
    g.output("kept", F32, [2, 3])
    v = f32(rng.permutation(8).reshape(2, 4) / 8)
    y = np.minimum(v, np.float32(0.5))[:, 1:]
    i, o, _, c = np.split(ref.f64(y) @ w[0].T + h[0] @ r[0].T, 4, axis=1)  # one step; the cell starts at 0
    hidden = ref.sigmoid(o) * np.tanh(ref.sigmoid(i) * np.tanh(c))
    return Case(g.model(13), ([v], [f32(hidden)[None], np.repeat(y, 2, axis=0), y]))


def domains(rng):
    """Nodes of domain "" and "ai.onnx" together, imports that nobody uses, doc strings, metadata"""
    g = Graph("domains")
    x = g.input("x", F32, [3])
    y = g.op("Relu", g.op("Neg", x, domain="ai.onnx"))
    g.op("Abs", y, domain="ai.onnx", out="y")
    g.output("y", F32, [3])
    model = g.model(13, com_example_unused=7, ai_onnx_ml=2)
    model.doc_string, model.graph.doc_string, model.graph.node[0].doc_string = "a model", "a graph", "a node"
    model.metadata_props.add(key="author", value="nobody")
    model.domain, model.model_version, model.producer_version = "belay.test", 3, "0"
    return Case(model, ([f32([1, -2, 0])], [f32([0, 2, 0])]), check=False)


def dead_nodes(rng):
    """Nodes and initializers whose result nobody reads, and a chain of them"""
    g = Graph("dead_nodes")
    x = g.input("x", F32, [2, 2])
    g.op("Exp", g.op("MatMul", x, g.const(normal(rng, 2, 50))))
    g.const(normal(rng, 100), "unread")
    g.op("Neg", x, out="y")
    g.output("y", F32, [2, 2])
    v = normal(rng, 2, 2)
    return Case(g.model(13), ([v], [-v]))


def opset7_meanings(rng):
    """Opset 7: BatchNormalization-7, Reshape-5, Dropout-7, Upsample-7, Slice-1, Softmax-1 over the flattened tail"""
    bn = norm_parameters(rng, 2)
    g = Graph("opset7")
    x = g.input("x", F32, [1, 2, 2, 3])
    y = g.op("Dropout", g.op("BatchNormalization", x, *map(g.const, bn), epsilon=1e-4), ratio=0.3)
    g.op("Softmax", y, axis=2, out="softmax")             # one distribution over the 6 last elements
    y = g.op("Upsample", y, scales=[1.0, 1.0, 2.0, 1.0], mode="nearest")
    g.op("Slice", y, axes=[2, 3], starts=[1, -2], ends=[4, 99], out="slice")
    g.op("Squeeze", g.op("ReduceSum", x, axes=[1, 3], keepdims=1), axes=[1], out="sum")
    g.op("Pad", x, pads=[0, 0, 1, 0, 0, 0, 0, 2], value=9.0, out="pad")
    for name, shape in ("softmax", [1, 2, 2, 3]), ("slice", [1, 2, 3, 2]), ("sum", [1, 2, 1]), ("pad", [1, 2, 3, 5]):
        g.output(name, F32, shape)
    v = normal(rng, 1, 2, 2, 3)
    y = ref.batch_norm(v, *bn, epsilon=1e-4)
    softmax = ref.softmax(y.reshape(2, 6)).reshape(v.shape)
    pad = np.pad(v, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=9)
    return Case(g.model(7, ir=4), ([v], [f32(softmax), f32(np.repeat(y, 2, axis=2)[:, :, 1:4, 1:]),
                                         f32(ref.f64(v).sum(axis=(1, 3))[:, None, :].reshape(1, 2, 1)), f32(pad)]))


def opset11_meanings(rng):
    """Opset 11: Softmax over the flattened tail, Clip and Pad with inputs, Squeeze, Split, ReduceSum with attributes"""
    g = Graph("opset11")
    x = g.input("x", F32, [2, 2, 3])
    g.op("Softmax", x, out="softmax")                       # axis 1: over 6 elements
    y = g.op("Clip", g.op("Pad", x, g.const(np.int64([0, 0, 1, 0, 0, 0])), g.const(0.5)), g.const(-0.5))
    a, b = g.op("Split", y, axis=2, split=[1, 3], outs=2)
    g.op("Squeeze", a, axes=[-1], out="squeezed")
    g.op("ReduceSum", b, axes=[0, -1], keepdims=0, out="sum")
    for name, shape in ("softmax", [2, 2, 3]), ("squeezed", [2, 2]), ("sum", [2]):
        g.output(name, F32, shape)
    v = normal(rng, 2, 2, 3)
    y = np.maximum(np.pad(v, [(0, 0), (0, 0), (1, 0)], constant_values=0.5), -0.5)
    return Case(g.model(11), ([v], [f32(ref.softmax(v.reshape(2, 6)).reshape(v.shape)), f32(y[:, :, 0]),
                                    f32(ref.f64(y)[:, :, 1:].sum(axis=(0, 2)))]))


CASES = [external_data, ir3_initializers_are_inputs, overridable_default, typed_data, constants, unsorted_nodes,
         chain_100, chain_1000, odd_names, empty_optionals, domains, dead_nodes, opset7_meanings, opset11_meanings]
