"""Element types, shapes that depend on data, strings, sequences, empty tensors, values with several readers."""
import numpy as np
from onnx import helper

import reference as ref
from cases_networks import f32, normal
from onnx_build import BF16, BOOL, DTYPES, F16, F32, F64, I32, I64, STRING, U8, Bf16, Case, Graph


def eighths(rng, *shape):
    """Multiples of 1/8 up to 1: their sums and products are exact in few bits, in whatever order they are added."""
    return rng.randint(-8, 9, shape) / 8


def fp16(rng):
    """MatMul, Add, Relu, Mul in float16 with numbers that stay exact"""
    w, b, v = eighths(rng, 6, 4), eighths(rng, 4), eighths(rng, 3, 6)
    g = Graph("fp16")
    x = g.input("x", F16, ["n", 6])
    y = g.op("Relu", g.op("Add", g.op("MatMul", x, g.const(np.float16(w))), g.const(np.float16(b))))
    g.op("Mul", y, g.const(np.float16(2)), out="y")
    g.output("y", F16, ["n", 4])
    return Case(g.model(13), ([np.float16(v)], [np.float16(2 * ref.relu(v @ w + b))]))


def extremes(rng):
    """Attributes and numbers at the ends of their ranges, and no elements where operators still have rows"""
    v = f32(rng.randn(1, 3, 2, 2))
    g = Graph("extremes")
    x = g.input("x", F32, [1, 3, 2, 2])
    q = g.input("q", F32, [2])
    e = g.input("e", F32, ["n", 1, 2, "m"])
    g.op("LRN", x, out="lrn", size=2**63 - 1, alpha=1.0, beta=1.0, bias=1.0)
    g.op("DynamicQuantizeLinear", q, out=["y", "scale", "zero"])
    g.op("MeanVarianceNormalization", e, out="even", axes=[1, 2])
    g.op("Unique", g.const(np.zeros((3, 0), np.float32)), out=["one", "first", "inverse", "counts"], axis=0)
    g.output("lrn", F32, [1, 3, 2, 2])
    for name, elem_type, shape in (("y", U8, [2]), ("scale", F32, []), ("zero", U8, []), ("even", F32, ["n", 1, 2, "m"]),
                                   ("one", F32, ["u", 0]), ("counts", I64, ["u"])):
        g.output(name, elem_type, shape)
    # The window of LRN is all channels; what it divides by is as large as it says.
    answers = [v, np.uint8([0, 0]), f32(np.inf), np.uint8(0), np.zeros((1, 0), np.float32), np.int64([3])]
    none = [np.zeros(shape, np.float32) for shape in ((0, 1, 2, 3), (2, 1, 2, 0), (0, 1, 2, 0))]
    sets = [([v, f32([-np.inf, 1]), e], [*answers[:4], e, *answers[4:]]) for e in none]
    return Case(g.model(13), *sets, beyond=True)


def fp16_mixed(rng):
    """float16 to float32 and back; Softmax and Sigmoid in float16, right to a few parts in a thousand"""
    w, v = eighths(rng, 5, 5), eighths(rng, 4, 5)
    g = Graph("fp16_mixed")
    x = g.input("x", F16, [4, 5])
    product = g.op("MatMul", g.op("Cast", x, to=F32), g.const(f32(w)))
    half = g.op("Cast", product, to=F16)
    g.op("Softmax", half, out="softmax", axis=1)
    g.op("Sigmoid", half, out="sigmoid")
    g.op("Cast", half, to=F32, out="back")
    g.output("softmax", F16, [4, 5])
    g.output("sigmoid", F16, [4, 5])
    g.output("back", F32, [4, 5])
    y = v @ w  # multiples of 1/64 below 8: exact in float16
    return Case(g.model(13), ([np.float16(v)], [np.float16(ref.softmax(y)), np.float16(ref.sigmoid(y)), f32(y)]),
                rtol=4e-3, atol=2e-3)


def bf16(rng):
    """bfloat16: MatMul, Add, Relu with numbers that stay exact, and a Cast that must round to nearest, ties to even"""
    w, b, v = rng.randint(-2, 3, (4, 3)) / 2, rng.randint(-2, 3, 3) / 2, rng.randint(-2, 3, (2, 4)) / 2
    g = Graph("bf16")
    x = g.input("x", BF16, [2, 4])
    f = g.input("f", F32, [8])
    g.op("Relu", g.op("Add", g.op("MatMul", x, g.const(Bf16(w))), g.const(Bf16(b))), out="y")
    g.op("Cast", f, to=BF16, out="rounded")
    g.op("Cast", "rounded", to=F32, out="wide")
    g.output("y", BF16, [2, 3])
    g.output("rounded", BF16, [8])
    g.output("wide", F32, [8])
    # 1 + 2^-8 and 1 + 3 * 2^-8 are ties: down to 1, up to 1 + 2^-6
    floats = f32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -(1 + 2**-8), 3.3e38, 1e-40, 0.1, -0.0])
    return Case(g.model(13), ([Bf16(v), floats], [Bf16(ref.relu(v @ w + b)), Bf16(floats), Bf16(floats).values()]))


def dtypes(rng):
    """(a + b) * b in every numeric element type that Add and Mul have, and comparisons, and, or, not in bool"""
    g, values, expected = Graph("dtypes"), [], []
    for elem_type, dtype in DTYPES.items():
        if elem_type == BOOL:
            continue
        name = np.dtype(dtype).name
        a, b = g.input("a_" + name, elem_type, [5]), g.input("b_" + name, elem_type, [5])
        g.op("Mul", g.op("Add", a, b), b, out="y_" + name)
        g.output("y_" + name, elem_type, [5])
        low = 0 if np.dtype(dtype).kind == "u" else -5
        va, vb = (rng.randint(low, 7, 5).astype(dtype) for _ in "ab")
        values += [va, vb]
        expected.append((va + vb) * vb)
    g.op("And", g.op("Less", "a_int32", "b_int32"), g.op("Not", g.op("Equal", "a_uint8", "b_uint8")), out="y_bool")
    g.output("y_bool", BOOL, [5])
    at = {i.name: v for i, v in zip(g.inputs, values)}
    expected.append((at["a_int32"] < at["b_int32"]) & (at["a_uint8"] != at["b_uint8"]))
    return Case(g.model(14), (values, expected))


def casts(rng):
    """Cast between float, double, integers and bool: towards zero, and what is not zero is true"""
    g = Graph("casts")
    x = g.input("x", F32, [6])
    for name, to in ("int32", I32), ("int64", I64), ("uint8", U8), ("double", F64), ("bool", BOOL), ("half", F16):
        source = g.op("Abs", x) if to == U8 else x
        g.op("Cast", source, to=to, out="to_" + name)
        g.output("to_" + name, to, [6])
    g.op("Cast", "to_bool", to=I32, out="bool_to_int32")
    g.output("bool_to_int32", I32, [6])
    v = f32([0, 0.5, -1.75, 2.5, -3.999, 100])
    return Case(g.model(13), ([v], [v.astype(np.int32), v.astype(np.int64), np.abs(v).astype(np.uint8),
                                    v.astype(np.float64), v != 0, v.astype(np.float16), (v != 0).astype(np.int32)]))


def shape_chain(rng):
    """Shape, Gather, Unsqueeze, Mul, Concat, Reshape in int64; Slice and Expand with computed bounds"""
    g = Graph("shape_chain")
    x = g.input("x", F32, ["a", "b", 4])
    shape = g.op("Shape", x)
    a, b = g.op("Gather", shape, g.const(0), axis=0), g.op("Gather", shape, g.const(1), axis=0)
    product = g.op("Mul", a, b)
    axis = g.const(np.int64([0]))
    target = g.op("Concat", g.op("Unsqueeze", product, axis), g.const(np.int64([2, -1])), axis=0)
    g.op("Reshape", x, target, out="reshaped")
    half = g.op("Unsqueeze", g.op("Div", b, g.const(2)), axis)
    g.op("Slice", x, half, g.op("Unsqueeze", b, axis), g.const(np.int64([1])), out="second_half")
    g.op("Expand", g.op("Range", g.const(0), a, g.const(1)), g.op("Concat", g.const(np.int64([3])),
                                                                  g.op("Unsqueeze", a, axis), axis=0), out="ramp")
    g.op("Size", x, out="size")
    g.output("reshaped", F32, [None, 2, None])
    g.output("second_half", F32, ["a", None, 4])
    g.output("ramp", I64, [3, "a"])
    g.output("size", I64, [])

    def run(a, b):
        v = normal(rng, a, b, 4)
        return [v], [v.reshape(a * b, 2, -1), v[:, b // 2:], np.tile(np.arange(a), (3, 1)), np.int64(v.size)]

    return Case(g.model(13), run(2, 3), run(1, 1), run(3, 4))


def data_dependent_shapes(rng):
    """NonZero, GatherND, TopK with k from an input, Compress, Where: shapes known only once the data is"""
    g = Graph("data_dependent_shapes")
    x, k = g.input("x", F32, ["n", 4]), g.input("k", I64, [1])
    positive = g.op("Greater", x, g.const(0.0))
    where = g.op("Transpose", g.op("NonZero", positive), perm=[1, 0])
    g.op("GatherND", x, where, out="positives")
    g.op("TopK", x, k, axis=1, largest=1, sorted=1, out=["top", "where_top"])
    rows = g.op("Greater", g.op("ReduceSum", x, g.const(np.int64([1])), keepdims=0), g.const(0.0))
    g.op("Compress", x, rows, axis=0, out="rows")
    g.op("Shape", "rows", out="rows_shape")
    g.op("Where", positive, x, g.const(-1.0), out="clipped")
    for name, elem_type, shape in (("positives", F32, [None]), ("top", F32, ["n", None]),
                                   ("where_top", I64, ["n", None]), ("rows", F32, [None, 4]),
                                   ("rows_shape", I64, [2]), ("clipped", F32, ["n", 4])):
        g.output(name, elem_type, shape)

    def run(v, count):
        order = np.argsort(-v, axis=1, kind="stable")[:, :count]
        rows = v[v.sum(axis=1) > 0]
        return [v, np.int64([count])], [v[v > 0], np.take_along_axis(v, order, 1), order, rows, np.int64(rows.shape),
                                        np.where(v > 0, v, np.float32(-1))]

    return Case(g.model(13), run(normal(rng, 3, 4), 2), run(normal(rng, 5, 4), 4), run(-np.abs(normal(rng, 2, 4)), 1))


def sequences(rng):
    """SequenceConstruct, SequenceAt, ConcatFromSequence, SplitToSequence, SequenceInsert; a sequence goes out"""
    g = Graph("sequences")
    a, b, i = g.input("a", F32, [2, 3]), g.input("b", F32, [1, 3]), g.input("i", I64, [])
    s = g.op("SequenceConstruct", a, b, a)
    g.op("SequenceAt", s, i, out="chosen")
    g.op("ConcatFromSequence", s, axis=0, out="joined")
    parts = g.op("SplitToSequence", "joined", g.const(np.int64([1, 3, 1])), axis=0)
    g.op("SequenceInsert", parts, b, g.const(1), out="parts")
    g.op("SequenceLength", "parts", out="count")
    g.output("chosen", F32, [None, 3])
    g.output("joined", F32, [5, 3])
    g.outputs.append(helper.make_value_info("parts", helper.make_sequence_type_proto(
        helper.make_tensor_type_proto(F32, [None, 3]))))
    g.output("count", I64, [])

    def run(index):
        va, vb = normal(rng, 2, 3), normal(rng, 1, 3)
        joined = np.vstack([va, vb, va])
        return [va, vb, np.int64(index)], [[va, vb, va][index], joined, [joined[:1], vb, joined[1:4], joined[4:]],
                                           np.int64(4)]

    return Case(g.model(13), run(1), run(-1))


def strings(rng):
    """Tensors of strings through Identity, Gather, Concat, Reshape and Where: UTF-8, empty, 300 letters"""
    g = Graph("strings")
    s, i = g.input("s", STRING, ["n"]), g.input("i", I64, [2])
    words = g.const(np.array(["", "Zürich", "数字"], object))
    both = g.op("Concat", s, words, axis=0)
    g.op("Gather", both, i, axis=0, out="chosen")
    g.op("Reshape", both, g.const(np.int64([-1, 1])), out="column")
    g.op("Where", g.op("Greater", i, g.const(0)), "chosen", g.const(np.array(["none"], object)), out="masked")
    g.output("chosen", STRING, [2])
    g.output("column", STRING, [None, 1])
    g.output("masked", STRING, [2])

    def run(strings, index):
        both = np.array(strings + ["", "Zürich", "数字"], object)
        chosen = both[index]
        return [np.array(strings, object), np.int64(index)], [
            chosen, both.reshape(-1, 1), np.array([c if k > 0 else "none" for c, k in zip(chosen, index)], object)]

    return Case(g.model(13), run(["one", "x" * 300], [0, 3]), run(["a\n\tb"], [1, 3]))


def zero_size(rng):
    """Batch of 0 and dims of 0 through MatMul, ReduceSum, Concat, Reshape with allowzero"""
    w = normal(rng, 3, 2)
    g = Graph("zero_size")
    x, e = g.input("x", F32, ["n", 3]), g.input("e", F32, ["k", 0])
    g.op("Relu", g.op("MatMul", x, g.const(w)), out="product")
    g.op("ReduceSum", x, g.const(np.int64([0])), keepdims=0, out="sum")
    g.op("Concat", x, g.const(np.zeros((0, 3), np.float32)), axis=0, out="joined")
    g.op("Reshape", e, g.const(np.int64([0, 5])), allowzero=1, out="reshaped")
    g.op("MatMul", e, g.const(np.zeros((0, 2), np.float32)), out="inner")  # sums of nothing
    for name, shape in (("product", ["n", 2]), ("sum", [3]), ("joined", ["n", 3]), ("reshaped", [0, 5]),
                        ("inner", ["k", 2])):
        g.output(name, F32, shape)

    def run(n, k):
        v = normal(rng, n, 3)
        return [v, np.zeros((k, 0), np.float32)], [f32(ref.relu(ref.f64(v) @ w)), f32(ref.f64(v).sum(axis=0)), v,
                                                   np.zeros((0, 5), np.float32), np.zeros((k, 2), np.float32)]

    return Case(g.model(14), run(0, 2), run(2, 0), run(0, 0))


def scalars(rng):
    """Values of rank 0 as inputs, outputs and initializers, beside [1]"""
    g = Graph("scalars")
    a, b = g.input("a", F32, []), g.input("b", F32, [1])
    g.op("Mul", a, g.const(3.0), out="scalar")
    g.op("Add", "scalar", b, out="vector")
    g.op("Squeeze", "vector", g.const(np.int64([0])), out="squeezed")
    g.op("Shape", a, out="no_dims")
    g.output("scalar", F32, [])
    g.output("vector", F32, [1])
    g.output("squeezed", F32, [])
    g.output("no_dims", I64, [0])
    return Case(g.model(13), ([f32(2), f32([5])], [f32(6), f32([11]), f32(11), np.zeros(0, np.int64)]))


def symbolic_broadcast(rng):
    """Symbols that turn out as 1 and broadcast; the same symbol in two inputs"""
    g = Graph("symbolic_broadcast")
    x, y, z = g.input("x", F32, ["n", "m"]), g.input("y", F32, ["k", "m"]), g.input("z", F32, ["p", "n", "m"])
    g.op("Add", g.op("Mul", x, y), z, out="sum")
    g.op("Max", x, y, g.const(0.0), out="most")
    g.output("sum", F32, [None, None, None])
    g.output("most", F32, [None, None])

    def run(n, m, k, p):
        x, y, z = normal(rng, n, m), normal(rng, k, m), normal(rng, p, n, m)
        return [x, y, z], [f32(ref.f64(x) * y + z), np.maximum(np.maximum(x, y), 0)]

    return Case(g.model(13), run(3, 4, 1, 2), run(3, 4, 3, 1), run(1, 1, 1, 1), run(1, 5, 4, 3))


def alias_hazards(rng):
    """Views and in-place candidates with readers that come later, and outputs that are also read inside"""
    g = Graph("alias_hazards")
    x = g.input("x", F32, [2, 6])
    relu = g.op("Relu", x, out="relu")                    # goes out and is read three times below
    flat = g.op("Reshape", relu, g.const(np.int64([12])))   # a view of relu
    bumped = g.op("Add", flat, g.const(1.0))                # may not change relu
    back = g.op("Reshape", bumped, g.const(np.int64([2, 6])))
    g.op("Sub", back, relu, out="ones")
    left, right = g.op("Split", x, out=["left", "right"], axis=1)
    g.op("Add", g.op("Neg", left), right, out="difference")
    turned = g.op("Transpose", g.op("Identity", x), perm=[1, 0])
    g.op("MatMul", x, turned, out="gram")
    g.op("Exp", g.op("Neg", g.op("Neg", x)), out="exp")
    for name, shape in (("relu", [2, 6]), ("ones", [2, 6]), ("left", [2, 3]), ("right", [2, 3]),
                        ("difference", [2, 3]), ("gram", [2, 2]), ("exp", [2, 6])):
        g.output(name, F32, shape)
    v = f32(rng.randint(-4, 5, (2, 6)))
    return Case(g.model(13), ([v], [ref.relu(v), np.ones_like(v), v[:, :3], v[:, 3:], v[:, 3:] - v[:, :3], v @ v.T,
                                    f32(np.exp(ref.f64(v)))]))


def pass_through(rng):
    """An input that is an output as it is, an initializer that is one, an input that nobody reads, one value twice"""
    table = normal(rng, 2, 2)
    g = Graph("pass_through")
    x = g.input("x", F32, [2, 2])
    g.input("unread", F32, [7])
    g.const(table, "table")
    g.op("Identity", x, out="same")
    g.op("Mul", x, x, out="square")
    g.op("Identity", "same", out="same_again")
    g.outputs.append(g.inputs[0])
    for name in "table", "same", "same_again", "square":
        g.output(name, F32, [2, 2])
    v = normal(rng, 2, 2)
    return Case(g.model(13), ([v, normal(rng, 7)], [v, table, v, v, f32(ref.f64(v) ** 2)]))


CASES = [extremes, fp16, fp16_mixed, bf16, dtypes, casts, shape_chain, data_dependent_shapes, sequences, strings, zero_size,
         scalars, symbolic_broadcast, alias_hazards, pass_through]
