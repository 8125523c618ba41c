"""If, Loop, Scan and model-local functions."""
import numpy as np
from onnx import AttributeProto, helper

import reference as ref
from cases_networks import f32, normal
from onnx_build import BOOL, F32, I64, Case, Graph, attribute_reference, node


def branch(name, build):
    """A subgraph without inputs; build(g) gives the names of its outputs, of unknown shape."""
    g = Graph(name, prefix=name + ".")
    for output in build(g):
        g.output(output, F32, None)
    return g.proto()


def _positive_sum(g, x):
    return g.op("Greater", g.op("ReduceSum", x, keepdims=0), g.const(0.0))


def if_same_shape(rng):
    """The condition comes from the data; both branches read outer values and give [4]"""
    weight = normal(rng, 4)
    g = Graph("if_same_shape")
    x = g.input("x", F32, [4])
    scaled = g.op("Mul", x, g.const(weight, "weight"))
    g.op("If", _positive_sum(g, x), out="y",
         then_branch=branch("then", lambda b: [b.op("Add", scaled, b.const(f32([1, 2, 3, 4])))]),
         else_branch=branch("else", lambda b: [b.op("Neg", b.op("Add", scaled, "weight"))]))
    g.output("y", F32, [4])
    up, down = f32([1, 2, 3, -1]), f32([-1, -2, 0.5, -3])
    return Case(g.model(13), ([up], [f32(ref.f64(up) * weight + [1, 2, 3, 4])]),
                ([down], [f32(-(ref.f64(down) * weight + weight))]))


def if_different_shapes(rng):
    """One branch gives [2,3], the other [6]; what follows takes either"""
    g = Graph("if_different_shapes")
    x = g.input("x", F32, [2, 3])
    y = g.op("If", _positive_sum(g, x), then_branch=branch("then", lambda b: [b.op("Add", x, b.const(1.0))]),
             else_branch=branch("else", lambda b: [b.op("Reshape", x, b.const(np.int64([-1])))]))
    g.op("Relu", y, out="y")
    g.op("Shape", y, out="shape")
    g.output("y", F32, None)
    g.output("shape", I64, [None])
    up = np.abs(normal(rng, 2, 3))
    down = f32([[-1, 2, -3], [4, -5, -6]])
    return Case(g.model(13), ([up], [up + np.float32(1), np.int64([2, 3])]),
                ([down], [ref.relu(down).reshape(6), np.int64([6])]), check=False)


def if_outputs_of_outer_scope(rng):
    """A branch gives an initializer of its own; the other passes an outer value through Identity; two outputs"""
    table = normal(rng, 3)
    g = Graph("if_outputs_of_outer_scope")
    flag, x = g.input("flag", BOOL, []), g.input("x", F32, ["n"])
    g.op("If", flag, out=["a", "b"],
         then_branch=branch("then", lambda b: [b.const(table, "table"), b.op("Identity", x)]),
         else_branch=branch("else", lambda b: [b.op("Identity", x), b.op("Constant", value_floats=[7.0])]))
    g.output("a", F32, [None])
    g.output("b", F32, [None])
    v = normal(rng, 5)
    return Case(g.model(13), ([np.bool_(True), v], [table, v]), ([np.bool_(False), v], [v, f32([7])]))


def if_nested_20(rng):
    """20 levels of If, one inside the other; the innermost reads values of the outermost graph"""
    g = Graph("if_nested_20")
    flag, x = g.input("flag", BOOL, []), g.input("x", F32, [3])

    def level(n):
        def build(b):
            if n == 20:
                return [b.op("Mul", x, b.const(20.0))]
            return [b.op("If", flag, then_branch=level(n + 1),
                         else_branch=branch(f"else{n}", lambda e: [e.op("Sub", x, e.const(float(n)))]))]
        return branch(f"level{n}", build)

    g.op("If", flag, out="y", then_branch=level(1), else_branch=branch("else0", lambda e: [e.op("Neg", x)]))
    g.output("y", F32, [3])
    v = f32([1, -2, 3])
    return Case(g.model(13), ([np.bool_(True), v], [v * np.float32(20)]), ([np.bool_(False), v], [-v]))


def _body(name, *carried):
    """A loop's body with its iteration number and condition; `carried` are (name, type, shape)."""
    b = Graph(name, prefix=name + ".")
    b.input(name + ".i", I64, [])
    b.input(name + ".go", BOOL, [])
    return b, [b.input(f"{name}.{what}", elem_type, shape) for what, elem_type, shape in carried]


def loop_scan_outputs(rng):
    """A trip count from an input, a carried sum, a scan output; also 1 and 0 trips"""
    step = normal(rng, 3)
    g = Graph("loop_scan_outputs")
    trips, start = g.input("trips", I64, []), g.input("start", F32, [3])
    g.const(step, "step")
    b, (total,) = _body("body", ("total", F32, [3]))
    b.op("Identity", "body.go", out="body.still")
    b.op("Add", total, b.op("Mul", "step", b.op("Cast", "body.i", to=F32)), out="body.next")
    b.op("Mul", "body.next", b.const(2.0), out="body.twice")
    b.output("body.still", BOOL, [])
    b.output("body.next", F32, [3])
    b.output("body.twice", F32, [3])
    g.op("Loop", trips, g.const(np.bool_(True)), start, body=b.proto(), out=["end", "all"])
    g.output("end", F32, [3])
    g.output("all", F32, [None, 3])

    def run(n):
        v, rows = normal(rng, 3), np.zeros((0, 3))
        total = ref.f64(v)
        for i in range(n):
            total = total + step * i
            rows = np.vstack([rows, 2 * total])
        return [np.int64(n), v], [f32(total), f32(rows)]

    return Case(g.model(13), run(5), run(1), run(0))


def loop_until(rng):
    """No trip count: doubles until the sum passes a limit; the condition comes from the data"""
    g = Graph("loop_until")
    x, limit = g.input("x", F32, [2]), g.input("limit", F32, [])
    b, (value, count) = _body("body", ("value", F32, [2]), ("count", I64, []))
    b.op("Add", value, value, out="body.doubled")
    b.op("Add", count, b.const(1), out="body.counted")
    b.op("Less", b.op("ReduceSum", "body.doubled", keepdims=0), limit, out="body.still")
    for name, elem_type, shape in ("body.still", BOOL, []), ("body.doubled", F32, [2]), ("body.counted", I64, []):
        b.output(name, elem_type, shape)
    go = g.op("Less", g.op("ReduceSum", x, keepdims=0), limit)
    g.op("Loop", "", go, x, g.const(0), body=b.proto(), out=["y", "count"])
    g.output("y", F32, [2])
    g.output("count", I64, [])
    return Case(g.model(13), ([f32([1, 2]), f32(100)], [f32([64, 128]), np.int64(6)]),
                ([f32([1, 2]), f32(2)], [f32([1, 2]), np.int64(0)]))


def loop_growing(rng):
    """The carried tensor is one row longer after every trip"""
    g = Graph("loop_growing")
    trips, x = g.input("trips", I64, []), g.input("x", F32, ["n", 2])
    b, (rows,) = _body("body", ("rows", F32, [None, 2]))
    b.op("Identity", "body.go", out="body.still")
    b.op("Concat", rows, b.op("ReduceSum", rows, b.const(np.int64([0])), keepdims=1), axis=0, out="body.longer")
    b.output("body.still", BOOL, [])
    b.output("body.longer", F32, [None, 2])
    g.op("Loop", trips, "", x, body=b.proto(), out="y")
    g.output("y", F32, [None, 2])

    def run(n, rows):
        v = rng.randint(-3, 4, (rows, 2)).astype(np.float32)
        y = v
        for _ in range(n):
            y = np.vstack([y, y.sum(axis=0, keepdims=True)])
        return [np.int64(n), v], [y]

    return Case(g.model(13), run(4, 1), run(2, 3), run(0, 2))


def loop_nested(rng):
    """A Loop in a Loop: the inner one counts to the outer's iteration and reads values of both outer scopes"""
    g = Graph("loop_nested")
    trips, x = g.input("trips", I64, []), g.input("x", F32, [2])
    inner, (subtotal,) = _body("inner", ("subtotal", F32, [2]))
    inner.op("Identity", "inner.go", out="inner.still")
    inner.op("Add", subtotal, inner.op("Add", x, "outer.offset"), out="inner.next")
    inner.output("inner.still", BOOL, [])
    inner.output("inner.next", F32, [2])
    outer, (total,) = _body("outer", ("total", F32, [2]))
    outer.op("Identity", "outer.go", out="outer.still")
    outer.op("Cast", "outer.i", to=F32, out="outer.offset")
    outer.op("Loop", "outer.i", "", total, body=inner.proto(), out="outer.next")
    outer.output("outer.still", BOOL, [])
    outer.output("outer.next", F32, [2])
    g.op("Loop", trips, "", g.const(f32([0, 0])), body=outer.proto(), out="y")
    g.output("y", F32, [2])

    def run(n):
        v, y = f32(rng.randint(-4, 5, 2)), np.zeros(2, np.float32)
        for i in range(n):
            y = y + np.float32(i) * (v + np.float32(i))
        return [np.int64(n), v], [y]

    return Case(g.model(13), run(4), run(1))


def if_in_loop(rng):
    """Each trip chooses a branch by the parity of its number"""
    g = Graph("if_in_loop")
    trips, x = g.input("trips", I64, []), g.input("x", F32, [3])
    b, (value,) = _body("body", ("value", F32, [3]))
    b.op("Identity", "body.go", out="body.still")
    odd = b.op("Cast", b.op("Mod", "body.i", b.const(2)), to=BOOL)
    b.op("If", odd, out="body.next", then_branch=branch("odd", lambda t: [t.op("Add", value, x)]),
         else_branch=branch("even", lambda t: [t.op("Mul", value, t.const(-2.0))]))
    b.output("body.still", BOOL, [])
    b.output("body.next", F32, [3])
    g.op("Loop", trips, "", x, body=b.proto(), out="y")
    g.output("y", F32, [3])
    v = f32([1, -2, 4])
    return Case(g.model(13), ([np.int64(1), v], [v * -2]), ([np.int64(5), v], [(((v * -2) + v) * -2 + v) * -2]))


def scan_sum(rng):
    """Scan over two sequences, one of them backwards and along axis 1; a state and two scan outputs"""
    g = Graph("scan_sum")
    start, a, c = g.input("start", F32, [3]), g.input("a", F32, ["n", 3]), g.input("c", F32, [3, "n"])
    b = Graph("body", prefix="body.")
    state, ai, ci = b.input("state", F32, [3]), b.input("ai", F32, [3]), b.input("ci", F32, [3])
    b.op("Add", state, b.op("Mul", ai, ci), out="next")
    b.op("Identity", "next", out="sums")
    b.op("Sub", ai, ci, out="differences")
    for name in "next", "sums", "differences":
        b.output(name, F32, [3])
    g.op("Scan", start, a, c, body=b.proto(), num_scan_inputs=2, scan_input_axes=[0, 1], scan_input_directions=[0, 1],
         scan_output_axes=[0, 1], scan_output_directions=[0, 1], out=["end", "sums_out", "differences_out"])
    g.output("end", F32, [3])
    g.output("sums_out", F32, ["n", 3])
    g.output("differences_out", F32, [3, "n"])

    def run(n):
        s, av, cv = (f32(rng.randint(-4, 5, shape)) for shape in ((3,), (n, 3), (3, n)))
        state, sums, differences = s, [], []
        for i in range(n):
            ai, ci = av[i], cv[:, n - 1 - i]
            state = state + ai * ci
            sums.append(state)
            differences.insert(0, ai - ci)
        return [s, av, cv], [state, np.stack(sums), np.stack(differences, axis=1)]

    return Case(g.model(13), run(4), run(1))


def _function(name, inputs, outputs, nodes, attributes=(), domains=()):
    imports = [helper.make_opsetid("", 15)] + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_function("belay.test", name, inputs, outputs, nodes, imports, list(attributes))


def function_local(rng):
    """A model-local function that takes an attribute and calls another; called twice, with different attributes"""
    slope = attribute_reference("alpha", AttributeProto.FLOAT, "slope")
    leaky = node("LeakyRelu", ["h"], ["Y"])
    leaky.attribute.append(slope)
    dense = _function("Dense", ["X", "W", "B"], ["Y"],
                      [node("Linear", ["X", "W", "B"], ["h"], domain="belay.test"), leaky], ["slope"], ["belay.test"])
    linear = _function("Linear", ["X", "W", "B"], ["Y"], [node("MatMul", ["X", "W"], ["h"]),
                                                          node("Add", ["h", "B"], ["Y"])])
    w1, b1, w2, b2 = normal(rng, 4, 6), normal(rng, 6), normal(rng, 6, 3), normal(rng, 3)
    g = Graph("function_local")
    x = g.input("x", F32, ["n", 4])
    h = g.op("Dense", x, g.const(w1), g.const(b1), domain="belay.test", slope=0.5)
    g.op("Dense", h, g.const(w2), g.const(b2), domain="belay.test", slope=0.25, out="y")
    g.output("y", F32, ["n", 3])

    def run(n):
        v = normal(rng, n, 4)
        h = v @ ref.f64(w1) + b1
        y = np.where(h < 0, h * 0.5, h) @ w2 + b2
        return [v], [f32(np.where(y < 0, y * 0.25, y))]

    return Case(g.model(15, functions=[dense, linear], belay_test=1), run(2), run(5))


def function_with_subgraph(rng):
    """A function whose body holds an If; a missing optional argument; value names that the caller uses as well"""
    def side(name, op):
        b = Graph(name)
        b.op(op, "x", out=name + "_y")
        b.output(name + "_y", F32, None)
        return b.proto()
    pick = _function("Pick", ["c", "x", "low"], ["y"],
                     [node("If", ["c"], ["t"], then_branch=side("then", "Neg"), else_branch=side("else", "Exp")),
                      node("Clip", ["t", "low"], ["y"])])
    g = Graph("function_with_subgraph")
    c, x = g.input("c", BOOL, []), g.input("x", F32, [3])
    t = g.op("Pick", c, x, "", domain="belay.test", out="t")
    g.op("Pick", c, t, g.const(-1.0), domain="belay.test", out="y")
    g.output("y", F32, [3])
    v = f32([0.5, -2, 3])
    return Case(g.model(15, functions=[pick], belay_test=1), ([np.bool_(True), v], [f32([0.5, -1, 3])]),
                ([np.bool_(False), f32([0.5, -2, 1])], [f32(np.exp(np.exp([0.5, -2, 1])))]))


def optionals(rng):
    """Optional of a tensor, of a sequence and of nothing, out of If and through Loop; what opset 18 takes besides"""
    full, none = Graph("full", "full_"), Graph("none", "none_")
    full.op("Optional", "x", out="some")
    none.op("Optional", out="nothing", type=helper.make_tensor_type_proto(F32, [None]))
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, [None]))
    full.outputs.append(helper.make_value_info("some", kind))
    none.outputs.append(helper.make_value_info("nothing", kind))
    body = Graph("body", "body_")
    body.input("trip", I64, [])
    body.input("go", BOOL, [])
    body.inputs.append(helper.make_value_info("last", kind))
    body.op("Identity", "go", out="go_on")
    value = body.op("OptionalGetElement", "last")
    body.op("Optional", body.op("Add", value, value), out="next")
    body.output("go_on", BOOL, [])
    body.outputs.append(helper.make_value_info("next", kind))

    g = Graph("optionals")
    g.input("x", F32, ["n"])
    g.input("given", BOOL, [])
    chosen = g.op("If", "given", then_branch=full.proto(), else_branch=none.proto())
    g.op("OptionalHasElement", chosen, out="has")
    g.op("OptionalHasElement", "x", out="has_tensor")
    g.op("OptionalHasElement", out="has_none")
    g.op("OptionalGetElement", "x", out="same")
    doubled = g.op("Loop", g.const(np.int64(3)), "", g.op("Optional", "x"), body=body.proto())
    g.op("OptionalGetElement", doubled, out="eight_times")
    pair = g.op("OptionalGetElement", g.op("Optional", g.op("SequenceConstruct", "x", "x")))
    g.op("ConcatFromSequence", pair, out="twice", axis=0)
    for name in "has", "has_tensor", "has_none":
        g.output(name, BOOL, [])
    for name in "same", "eight_times", "twice":
        g.output(name, F32, [None])

    def run(given):
        v = normal(rng, 3)
        return [v, np.bool_(given)], [np.bool_(given), np.bool_(True), np.bool_(False), v, 8 * v, np.concatenate([v, v])]

    return Case(g.model(18, ir=8), run(True), run(False), check=False)


def loop_of_convolutions(rng):
    """A Loop whose body has an If, of which the third iteration alone takes the branch with a convolution of 3 x 3"""
    weight = f32(normal(rng, 16, 16, 3, 3) / 12)
    g = Graph("loop_of_convolutions")
    x = g.input("x", F32, [1, 16, 8, 8])
    b = Graph("body", prefix="body.")
    i, go, v = b.input("i", I64, []), b.input("go", BOOL, []), b.input("v", F32, [1, 16, 8, 8])
    b.output(b.op("Identity", go, out="more"), BOOL, [])

    def convolved(h):
        y = h.op("Conv", v, "weight", out="then.conv", name="then.Conv", pads=[1, 1, 1, 1])
        return [h.op("Mul", y, h.const(0.5), name="then.Mul")]
    b.op("If", b.op("Equal", i, b.const(np.int64(2))), out="taken", name="body.If", then_branch=branch("then", convolved),
         else_branch=branch("else", lambda h: [h.op("Neg", v)]))
    b.output(b.op("Add", "taken", b.const(1.0), out="next"), F32, [1, 16, 8, 8])
    g.const(weight, "weight")
    g.op("Loop", g.const(np.int64(4)), "", x, body=b.proto(), out="y", name="rounds")
    g.output("y", F32, [1, 16, 8, 8])
    at = start = normal(rng, 1, 16, 8, 8)
    for k in range(4):
        at = (ref.conv(at, weight, pads=(1, 1, 1, 1)) / 2 if k == 2 else -at) + 1
    return Case(g.model(13), ([start], [f32(at)]))


def _rounded_conv(x, weight):
    return f32(ref.conv(x, weight, pads=(1, 1, 1, 1)))


def scan_of_convolutions(rng):
    """A Scan whose body has a convolution of 3 x 3"""
    weight = f32(normal(rng, 16, 16, 3, 3) / 12)
    g = Graph("scan_of_convolutions")
    x, start = g.input("x", F32, [3, 1, 16, 8, 8]), g.input("start", F32, [1, 16, 8, 8])
    b = Graph("body", prefix="body.")
    s, e = b.input("s", F32, [1, 16, 8, 8]), b.input("e", F32, [1, 16, 8, 8])
    y = b.op("Conv", e, "weight", name="body.Conv", pads=[1, 1, 1, 1])
    b.output(b.op("Add", s, y, out="sum"), F32, [1, 16, 8, 8])
    b.output(b.op("Relu", y, out="each"), F32, [1, 16, 8, 8])
    g.const(weight, "weight")
    g.op("Scan", start, x, body=b.proto(), num_scan_inputs=1, out=["end", "all"], name="scan")
    g.output("end", F32, [1, 16, 8, 8])
    g.output("all", F32, [3, 1, 16, 8, 8])
    xs, s0 = normal(rng, 3, 1, 16, 8, 8), normal(rng, 1, 16, 8, 8)
    parts = [_rounded_conv(part, weight) for part in xs]
    return Case(g.model(13), ([xs, s0], [f32(s0 + sum(parts)), ref.relu(np.stack(parts))]))


def map_of_convolutions(rng):
    """A SequenceMap whose body has a convolution of 3 x 3"""
    weight = f32(normal(rng, 16, 16, 3, 3) / 12)
    g = Graph("map_of_convolutions")
    x = g.input("x", F32, [3, 16, 8, 8])
    items = g.op("SplitToSequence", x, g.const(np.int64(1)), axis=0)
    b = Graph("body", prefix="body.")
    e = b.input("e", F32, [1, 16, 8, 8])
    b.output(b.op("Relu", b.op("Conv", e, "weight", name="body.Conv", pads=[1, 1, 1, 1]), out="each"), F32, [1, 16, 8, 8])
    g.const(weight, "weight")
    g.op("ConcatFromSequence", g.op("SequenceMap", items, body=b.proto(), name="map"), axis=0, out="y")
    g.output("y", F32, [3, 16, 8, 8])
    xs = normal(rng, 3, 16, 8, 8)
    return Case(g.model(17), ([xs], [ref.relu(np.concatenate([_rounded_conv(part[None], weight) for part in xs]))]), check=False)


def growing_convolutions(rng):
    """A Loop in a Loop, as often as the outer one says, whose convolution of 3 x 3 has a wider input each time"""
    weight = f32(normal(rng, 16, 16, 3, 3) / 12)
    g = Graph("growing_convolutions")
    x = g.input("x", F32, [1, 16, 8, 8])
    inner, (v,) = _body("inner", ("v", F32, None))
    inner.op("Identity", "inner.go", out="inner.still")
    inner.op("Conv", inner.op("Concat", v, v, axis=3), "weight", out="inner.next", name="inner.Conv", pads=[1, 1, 1, 1])
    inner.output("inner.still", BOOL, [])
    inner.output("inner.next", F32, None)
    outer, (u,) = _body("outer", ("u", F32, None))
    outer.op("Identity", "outer.go", out="outer.still")
    outer.op("Loop", "outer.i", "", u, body=inner.proto(), out="outer.next", name="inner")
    outer.output("outer.still", BOOL, [])
    outer.output("outer.next", F32, None)
    g.const(weight, "weight")
    g.op("Loop", g.const(np.int64(3)), "", x, body=outer.proto(), out="y", name="outer")
    g.output("y", F32, None)
    at = start = normal(rng, 1, 16, 8, 8)
    for _ in range(3):
        at = _rounded_conv(np.concatenate([at, at], 3), weight)
    return Case(g.model(13), ([start], [at]), check=False)


CASES = [loop_of_convolutions, scan_of_convolutions, map_of_convolutions, growing_convolutions, optionals, if_same_shape, if_different_shapes, if_outputs_of_outer_scope, if_nested_20, loop_scan_outputs, loop_until,
         loop_growing, loop_nested, if_in_loop, scan_sum, function_local, function_with_subgraph]
