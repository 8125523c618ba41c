"""Operators that move, choose, make and count elements, sequences, optionals, control flow, text."""
import numpy as np
from onnx import helper

from context import is_float, w
from values import BOOL, E8M0, I64, INTS, STRING, Bf16, Crumbs, Small, proto, type_of, typed

TABLE = {}


def example(function):
    TABLE[function.__name__] = function
    return function


def raw(value):
    """The elements as numpy moves them: codes and bits of what it has no type for."""
    return value.bits if isinstance(value, Bf16) else value.codes if isinstance(value, (Small, Crumbs)) else value


def moved(value, elements):
    """The same type of value around moved elements."""
    if isinstance(value, Bf16):
        out = Bf16(np.zeros(()))
        out.bits = np.asarray(elements)
        out.shape = out.bits.shape
        return out
    if isinstance(value, (Small, Crumbs)):
        return type(value)(value.elem_type, elements)
    return np.asarray(elements, value.dtype)


def move(value, function):
    return moved(value, function(raw(value)))


@example
def Identity(c):
    kind, variable = c.types.get("kind"), "V" if "V" in c.types else "T"
    x = c.x(variable, 3, 5)
    if kind == "seq":
        items = [x, c.x(variable, 2)]
        yield c.use([items], [items])
    elif kind in ("optional", "optional(seq)"):
        yield optional_chain(c, variable, kind)
    else:
        yield c.use([x], [x])


def optional_chain(c, variable, kind):
    """Optional, the operator where it keeps an optional, OptionalGetElement."""
    value = c.x(variable, 3) if kind == "optional" else [c.x(variable, 3), c.x(variable, 2)]
    nodes = [helper.make_node("Optional", ["i0"], ["p"], name="a"), helper.make_node("Identity", ["p"], ["q"], name="b"),
             helper.make_node("OptionalGetElement", ["q"], ["o0"], name="c")]
    return c.use([value], [value], nodes=nodes)


@example
def Optional(c):
    variable = "V" if "V" in c.types else "O"
    for kind in {"tensor": ["optional"], "seq": ["optional(seq)"]}.get(c.types.get("kind"), ["optional"]):
        yield optional_chain(c, variable, kind)


TABLE["OptionalGetElement"] = Optional


@example
def OptionalHasElement(c):
    value = c.x("O" if "O" in c.types else "V", 3)
    yield c.use([value], [np.bool_(True).reshape(())], nodes=[
        helper.make_node("Optional", ["i0"], ["p"], name="a"), helper.make_node("OptionalHasElement", ["p"], ["o0"], name="b")])
    kind = helper.make_tensor_type_proto(type_of(value), None)
    yield c.use([], [np.bool_(False).reshape(())], nodes=[
        helper.make_node("Optional", [], ["p"], name="a", type=kind), helper.make_node("OptionalHasElement", ["p"], ["o0"], name="b")])


def moving(cases):
    def of(c):
        for shape, inputs, attributes, function in cases(c):
            x = c.x("T", *shape)
            yield c.use([x, *inputs], [move(x, function)], **attributes)
    return of


TABLE["Reshape"] = moving(lambda c: [
    ((2, 3, 4), [c.ints(4, 6)], {}, lambda x: x.reshape(4, 6)), ((2, 3), [c.ints(0, -1, 1)], {}, lambda x: x.reshape(2, 3, 1)),
    ((1,), [np.zeros(0, np.int64)], {}, lambda x: x.reshape(()))])
TABLE["Flatten"] = moving(lambda c: [
    ((2, 3, 4), [], {"axis": 2}, lambda x: x.reshape(6, 4)), ((2, 3), [], {"axis": 0}, lambda x: x.reshape(1, 6)), ((3, 2), [], {}, lambda x: x)])
TABLE["Transpose"] = moving(lambda c: [((2, 3, 4), [], {"perm": [2, 0, 1]}, lambda x: x.transpose(2, 0, 1)), ((3, 5), [], {}, lambda x: x.T)])


def axes_of(c, axes, since=13):
    return ([np.array(axes)], {}) if c.v >= since else ([], {"axes": axes})


def squeezes(c):
    inputs, attributes = axes_of(c, [1])
    return [((2, 1, 3), inputs, attributes, lambda x: x[:, 0]), ((1, 3, 1), [], {}, lambda x: x[0, :, 0])]


def unsqueezes(c):
    inputs, attributes = axes_of(c, [0, 2])
    return [((2, 3), inputs, attributes, lambda x: x[None, :, None])]


TABLE["Squeeze"], TABLE["Unsqueeze"] = moving(squeezes), moving(unsqueezes)
TABLE["Expand"] = moving(lambda c: [((3, 1), [c.ints(2, 1, 4)], {}, lambda x: np.broadcast_to(x, (2, 3, 4)))])


@example
def Tile(c):
    x = c.x("T", 2, 3)
    yield c.use([x, c.ints(2, 3)], [move(x, lambda e: np.tile(e, (2, 3)))])


@example
def Concat(c):
    xs = [c.x("T", 2, 3), c.x("T", 1, 3), c.x("T", 0, 3)]
    yield c.use(xs, [moved(xs[0], np.concatenate([raw(x) for x in xs]))], axis=0)
    ys = [c.x("T", 2, 3), c.x("T", 2, 1)]
    yield c.use(ys, [moved(ys[0], np.concatenate([raw(y) for y in ys], 1))], axis=-1 if c.v >= 11 else 1)


@example
def Split(c):
    x = c.x("T", 5, 4)
    parts = [move(x, lambda e: e[:2]), move(x, lambda e: e[2:])]
    if c.v >= 13:
        yield c.use([x, c.ints(2, 3)], parts, axis=0)
    else:
        yield c.use([x], parts, axis=0, split=[2, 3])
    yield c.use([x], [move(x, lambda e: e[:, :2]), move(x, lambda e: e[:, 2:])], axis=1, **({"num_outputs": 2} if c.v >= 18 else {}))


@example
def Slice(c):
    x = c.x("T", 4, 5)
    if c.v < 10:
        yield c.use([x], [move(x, lambda e: e[1:3, -3:])], starts=[1, -3], ends=[3, 99], axes=[0, 1])
        return
    ints = lambda *v: c.ints(*v, kind=c.t("Tind"))
    yield c.use([x, ints(1, -3), ints(3, 99)], [move(x, lambda e: e[1:3, -3:])])
    yield c.use([x, ints(-1), ints(-99), ints(1), ints(-2)], [move(x, lambda e: e[:, ::-2])])


@example
def Pad(c):
    x, value = c.x("T", 2, 3), c.x("T")
    pads = [1, 0, 0, 2]
    if c.v < 11:
        yield c.use([x], [move(x, lambda e: np.pad(e, [(1, 0), (0, 2)], constant_values=0))], pads=pads)
    else:
        yield c.use([x, c.ints(*pads), value], [move(x, lambda e: np.pad(e, [(1, 0), (0, 2)], constant_values=raw(value).item()))])
        if c.v >= 18:
            yield c.use([x, c.ints(0, 2), value, c.ints(-1, kind=c.types.get("Tind", I64))],
                        [move(x, lambda e: np.pad(e, [(0, 0), (0, 2)], constant_values=raw(value).item()))])
        zero = np.zeros((), raw(x).dtype).item() if type_of(x) not in (STRING, E8M0) else None
        if zero is not None and type_of(x) != E8M0:
            yield c.use([x, c.ints(*pads)], [move(x, lambda e: np.pad(e, [(1, 0), (0, 2)], constant_values=zero))])
    more = {} if c.v < 11 else None
    for mode, how in ("edge", "edge"), ("reflect", "reflect"), *([("wrap", "wrap")] if c.v >= 19 else []):
        expected = move(x, lambda e: np.pad(e, [(1, 0), (0, 2)], mode=how))
        if more is None:
            yield c.use([x, c.ints(*pads)], [expected], mode=mode)
        else:
            yield c.use([x], [expected], mode=mode, pads=pads)


@example
def CenterCropPad(c):
    x = c.x("T", 5, 3)
    pad = lambda e: np.pad(e[1:4], [(0, 0), (0, 1)], constant_values="" if e.dtype == object else 0)
    yield c.use([x, c.ints(3, 4, kind=c.t("Tind"))], [move(x, pad)])


@example
def Gather(c):
    x = c.x("T", 3, 4)
    index = c.ints(0, 2, -1, kind=c.t("Tind")) if c.v >= 11 else c.ints(0, 2, 1, kind=c.t("Tind"))
    for axis in 0, 1:
        yield c.use([x, index], [move(x, lambda e: np.take(e, index, axis))], axis=axis)


@example
def GatherElements(c):
    x, index = c.x("T", 3, 4), typed(c.t("Tind"), [[0, 2, -1, 1]])
    yield c.use([x, index], [move(x, lambda e: np.take_along_axis(e, index.astype(np.int64), 0))], axis=0)


@example
def GatherND(c):
    x, index = c.x("T", 3, 4), np.array([[0, 1], [2, -1]])
    yield c.use([x, index], [move(x, lambda e: e[[0, 2], [1, -1]])])
    yield c.use([x, index[:, :1]], [move(x, lambda e: e[[0, 2]])])


def scattered(c, elements, at, updates, reduction):
    """`at`: for each update where it goes."""
    out = elements.copy()
    for i, place in at.items():
        if reduction == "none":
            out[place] = updates[i]
        else:
            out[place] = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": max, "min": min}[reduction](out[place], updates[i])
    return out


def reductions(c):
    """Sums and products have a meaning for numbers only."""
    kind = c.t()
    yield "none"
    if c.v >= 16 and (is_float(kind) or kind in INTS):
        yield from ("add", "mul", *(("max", "min") if c.v >= 18 else ()))


@example
def ScatterElements(c):
    x, index, updates = c.x("T", 3, 4), typed(c.t("Tind"), [[0, 2, 1, 1], [2, 0, 2, -1]]), c.x("T", 2, 4)
    at = {i: (int(index[i]), i[1]) for i in np.ndindex(2, 4)}
    if c.v < 11:
        index, at = typed(c.t("Tind"), np.where(index < 0, 2, index)), {i: (p[0] % 3, p[1]) for i, p in at.items()}
        at = {i: (int(index[i]), i[1]) for i in np.ndindex(2, 4)}
    for reduction in reductions(c):
        if reduction == "none":  # no place twice
            once = typed(c.t("Tind"), [[0, 2, 1, 1], [2, 0, 2, 0]])
            yield c.use([x, once, updates], [moved(x, scattered(c, raw(x), {i: (int(once[i]), i[1]) for i in np.ndindex(2, 4)}, raw(updates), "none"))], axis=0)
        else:
            yield c.use([x, index, updates], [c.as_("T", scattered(c, w(x), at, w(updates), reduction))], axis=0, reduction=reduction)


TABLE["Scatter"] = ScatterElements


@example
def ScatterND(c):
    x, index, updates = c.x("T", 3, 4), np.array([[0, 1], [2, 3], [1, 0]]), c.x("T", 3)
    at = {i: (int(index[i, 0]), int(index[i, 1])) for i in range(3)}
    for reduction in reductions(c):
        if reduction == "none":
            yield c.use([x, index, updates], [moved(x, scattered(c, raw(x), at, raw(updates), "none"))])
        else:
            twice = np.array([[0, 1], [2, 3], [0, 1]])
            yield c.use([x, twice, updates], [c.as_("T", scattered(c, w(x), {0: (0, 1), 1: (2, 3), 2: (0, 1)}, w(updates), reduction))], reduction=reduction)


@example
def TensorScatter(c):
    past, update = c.x("T", 2, 1, 4, 3), c.x("T", 2, 1, 2, 3)
    def put(e):
        e = e.copy()
        e[0, :, 1:3], e[1, :, 0:2] = raw(update)[0], raw(update)[1]
        return e
    yield c.use([past, update, c.ints(1, 0)], [move(past, put)], axis=-2)


@example
def OneHot(c):
    index, depth, values = c.as_("T1", [0, 2, 1]), c.as_("T2", 3), c.x("T3", 2)
    yield c.use([index, depth, values], [moved(values, raw(values)[(np.arange(3) == np.array([0, 2, 1])[:, None]).astype(int)])])


@example
def DepthToSpace(c):
    x = c.x("T", 1, 8, 2, 3)
    yield c.use([x], [move(x, lambda e: e.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6))], blocksize=2)


@example
def SpaceToDepth(c):
    x = c.x("T", 1, 2, 4, 6)
    yield c.use([x], [move(x, lambda e: e.reshape(1, 2, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3))], blocksize=2)


@example
def ReverseSequence(c):
    x, lengths = c.x("T", 4, 3), c.ints(1, 3, 4)
    def turn(e):
        e = e.copy()
        for b, n in enumerate([1, 3, 4]):
            e[:n, b] = e[:n, b][::-1].copy()
        return e
    yield c.use([x, lengths], [move(x, turn)], time_axis=0, batch_axis=1)


@example
def Trilu(c):
    x = c.x("T", 3, 4)
    keep = lambda upper, k: lambda e: np.where(np.triu(np.ones(e.shape), k) if upper else np.tril(np.ones(e.shape), k), e, "" if e.dtype == object else 0)
    yield c.use([x], [move(x, keep(True, 0))])
    yield c.use([x, np.int64(-1).reshape(())], [move(x, keep(False, -1))], upper=0)


@example
def Compress(c):
    x, condition = c.x("T", 3, 4), np.array([True, False, True])
    yield c.use([x, condition], [move(x, lambda e: e[[0, 2]])], axis=0)
    yield c.use([x, condition], [move(x, lambda e: e.ravel()[[0, 2]])])


@example
def NonZero(c):
    x = c.x("T", 3, 4)
    elements = raw(x) if type_of(x) == STRING else w(x)
    yield c.use([x], [np.array(np.nonzero(elements != ("" if type_of(x) == STRING else 0)), np.int64)])


@example
def Unique(c):
    x = c.x("T", 9)
    values = sorted(set(w(x).tolist()), key=lambda v: (v.real, v.imag) if isinstance(v, complex) else v)
    index = np.array([values.index(v) for v in w(x)], np.int64)
    first = np.array([w(x).tolist().index(v) for v in values], np.int64)
    counts = np.array([w(x).tolist().count(v) for v in values], np.int64)
    yield c.use([x], [c.as_("T", np.array(values, object if type_of(x) == STRING else None)), first, index, counts])
    order = sorted(range(len(values)), key=lambda k: first[k])
    place = {k: i for i, k in enumerate(order)}
    yield c.use([x], [c.as_("T", np.array([values[k] for k in order], object if type_of(x) == STRING else None)), first[order],
                      np.array([place[k] for k in index], np.int64), counts[order]], sorted=0)


@example
def TopK(c):
    x = c.x("T", 3, 5)
    for largest in (1, 0) if c.v >= 11 else (1,):
        order = np.argsort(np.asarray(-w(x) if largest else w(x), np.float64), 1, kind="stable")[:, :2]
        expected = [move(x, lambda e: np.take_along_axis(e, order, 1)), order.astype(np.int64)]
        if c.v < 10:
            yield c.use([x], expected, k=2, axis=1)
        else:
            yield c.use([x, c.ints(2)], expected, axis=-1, **({"largest": largest} if c.v >= 11 else {}))


@example
def Shape(c):
    variable = "T"
    x = c.x(variable, 2, 3, 4)
    yield c.use([x], [np.array([2, 3, 4])])
    if c.v >= 15:
        yield c.use([x], [np.array([3])], start=1, end=-1)


@example
def Size(c):
    yield c.use([c.x("T", 2, 3)], [np.array(6)])


@example
def EyeLike(c):
    x = c.x("T1", 3, 4)
    yield c.use([x], [c.as_("T2", np.eye(3, 4, 1))], dtype=c.t("T2"), k=1)


@example
def Constant(c):
    value = c.x("T", 2, 3)
    yield c.use([], [value], value=proto(value))


@example
def ConstantOfShape(c):
    value = c.x("T2", 1)
    yield c.use([c.ints(2, 3)], [move(value, lambda e: np.broadcast_to(e, (2, 3)))], value=proto(value))


@example
def Range(c):
    for start, limit, delta in (1, 7, 2), (5, 0, -2), (3, 3, 1):
        scalars = [c.as_("T", v) for v in (start, limit, delta)]
        yield c.use(scalars, [c.as_("T", np.arange(start, limit, delta))])


# ---- sequences

def sequence_of(c):
    variable = "T" if "T" in c.types else "S"
    return [c.x(variable, 2), c.x(variable, 2), c.x(variable, 2)]


def at_type(c):
    return c.types.get("I", I64)


@example
def SequenceConstruct(c):
    items = sequence_of(c)
    yield c.use(items, [items])


@example
def SequenceEmpty(c):
    yield c.use([], [np.int64(0).reshape(())], nodes=[helper.make_node("SequenceEmpty", [], ["s"], name="a", dtype=c.t("S")),
                                                    helper.make_node("SequenceLength", ["s"], ["o0"], name="b")])


@example
def SequenceLength(c):
    yield c.use([sequence_of(c)], [np.int64(3).reshape(())])


@example
def SequenceAt(c):
    items = sequence_of(c)
    for at in 1, -1:
        yield c.use([items, typed(at_type(c), at)], [items[at]])


@example
def SequenceErase(c):
    items = sequence_of(c)
    yield c.use([items, typed(at_type(c), 0)], [items[1:]])
    yield c.use([items], [items[:-1]])


@example
def SequenceInsert(c):
    items = sequence_of(c)
    yield c.use([items[:2], items[2], typed(at_type(c), 1)], [[items[0], items[2], items[1]]])
    yield c.use([items[:2], items[2]], [items])


@example
def ConcatFromSequence(c):
    items = sequence_of(c)
    yield c.use([items], [moved(items[0], np.concatenate([raw(i) for i in items]))], axis=0)
    yield c.use([items], [moved(items[0], np.stack([raw(i) for i in items]))], axis=0, new_axis=1)


@example
def SplitToSequence(c):
    x = c.x("T", 5, 2)
    yield c.use([x, typed(c.t("I"), 2)], [[move(x, lambda e: e[:2]), move(x, lambda e: e[2:4]), move(x, lambda e: e[4:])]])
    yield c.use([x, c.ints(2, 3, kind=c.t("I"))], [[move(x, lambda e: e[:2]), move(x, lambda e: e[2:])]])
    yield c.use([x], [[move(x, lambda e: e[i]) for i in range(5)]], keepdims=0)


def info(name, kind, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


@example
def SequenceMap(c):
    variable = "S" if "S" in c.types else "V"
    items = [c.x(variable, 2), c.x(variable, 3)]
    kind = type_of(items[0])
    body = helper.make_graph([helper.make_node("Identity", ["a"], ["b"], name="x")], "body", [info("a", kind)], [info("b", kind)])
    yield c.use([items], [items], body=body)


# ---- control flow

@example
def If(c):
    x, y = c.x("V", 2, 3), c.x("V", 4)
    kind = type_of(x)
    branch = lambda name: helper.make_graph([helper.make_node("Identity", [name], ["b" + name], name="x")], "g" + name, [], [info("b" + name, kind)])
    for condition in True, False:
        yield c.use([np.bool_(condition).reshape(()), x, y], [x if condition else y], nodes=[helper.make_node(
            "If", ["i0"], ["o0"], name="n", then_branch=branch("i1"), else_branch=branch("i2"))])


@example
def Loop(c):
    x = c.x("V", 2)
    kind = type_of(x)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["more"], name="a"), helper.make_node("Identity", ["v"], ["w"], name="b"),
         helper.make_node("Identity", ["v"], ["each"], name="c")], "body",
        [info("i", I64, ()), info("go", BOOL, ()), info("v", kind)], [info("more", BOOL, ()), info("w", kind), info("each", kind)])
    yield c.use([np.int64(3).reshape(()), np.bool_(True).reshape(()), x], [x, move(x, lambda e: np.stack([e] * 3))], body=body)


@example
def Scan(c):
    x, state = c.x("V", 3, 2), c.x("V", 2)
    kind = type_of(x)
    body = helper.make_graph([helper.make_node("Identity", ["e"], ["s2"], name="a"), helper.make_node("Identity", ["s"], ["out"], name="b")],
                             "body", [info("s", kind, (2,)), info("e", kind, (2,))], [info("s2", kind, (2,)), info("out", kind, (2,))])
    outs = np.concatenate([raw(state)[None], raw(x)[:2]])
    if c.v < 9:
        yield c.use([None, move(state, lambda e: e[None]), move(x, lambda e: e[None])],
                    [move(x, lambda e: e[2:3]), moved(x, outs[None])], body=body, num_scan_inputs=1)
    else:
        yield c.use([state, x], [move(x, lambda e: e[2]), moved(x, outs)], body=body, num_scan_inputs=1)


# ---- text

@example
def StringNormalizer(c):
    x = np.array(["Monday", "tuesday", "Monday"], object)
    yield c.use([x], [np.array(["TUESDAY"], object)], case_change_action="UPPER", is_case_sensitive=1, stopwords=["Monday"])


@example
def StringConcat(c):
    a, b = c.x("T", 2, 1), c.x("T", 3)
    yield c.use([a, b], [a + b])


@example
def StringSplit(c):
    x = np.array(["a b  c", "", "d"], object)
    yield c.use([x], [np.array([["a", "b", "c"], ["", "", ""], ["d", "", ""]], object), np.array([3, 0, 1])])


@example
def RegexFullMatch(c):
    yield c.use([np.array(["abc", "ab", "xabc"], object)], [np.array([True, False, False])], pattern="[a-c]{3}")


@example
def TfIdfVectorizer(c):
    text = c.t() == STRING
    x = np.array(["a", "b", "a", "c"], object) if text else c.as_("T", [1, 2, 1, 3])
    pool = {"pool_strings": ["a", "c", "a", "b"]} if text else {"pool_int64s": [1, 3, 1, 2]}
    yield c.use([x], [np.float32([2, 1, 1])], mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 2],
                ngram_indexes=[0, 1, 2], **pool)


