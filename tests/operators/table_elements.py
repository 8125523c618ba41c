"""Operators that work element by element, and reductions, written out from the standard: {operator: function(context) that
yields uses}."""
import math

import numpy as np

from context import is_float, w
from values import BF16, BOOL, E8M0, I2, I64, INTS, NUMPY, SIGNED, SMALL_FLOATS, STRING, Small, from_proto, proto, some, typed, wide

erf = np.vectorize(math.erf, otypes=[np.float64])


def clip(x, low, high):
    return np.minimum(np.maximum(x, low), high)


def softplus(x):
    return np.log1p(np.exp(x))


def unary(function, low=-2.0, high=2.0, variable="T", **attributes):
    def example(c):
        x = c.x(variable, 3, 5, low=low, high=high)
        yield c.use([x], [c.as_(variable, function(w(x)))], **attributes)
    return example


def int_or_float(for_ints, for_floats):
    def example(c):
        x = c.x("T", 3, 5)
        yield c.use([x], [c.as_("T", (for_floats if is_float(c.t()) else for_ints)(w(x)))])
    return example


SELU = np.float64(np.float32(1.67326319217681884765625)), np.float64(np.float32(1.05070102214813232421875))
TABLE = {
    "Acos": unary(np.arccos, -1, 1), "Acosh": unary(np.arccosh, 1, 3), "Asin": unary(np.arcsin, -1, 1), "Asinh": unary(np.arcsinh),
    "Atan": unary(np.arctan), "Atanh": unary(np.arctanh, -0.75, 0.75), "Ceil": unary(np.ceil), "Floor": unary(np.floor),
    "Cos": unary(np.cos), "Cosh": unary(np.cosh), "Exp": unary(np.exp), "Log": unary(np.log, 0.25, 4),
    "Reciprocal": unary(lambda x: 1 / x, 0.25, 4), "Round": unary(np.rint), "Sigmoid": unary(lambda x: 1 / (1 + np.exp(-x))),
    "Sin": unary(np.sin), "Sinh": unary(np.sinh), "Softplus": unary(softplus), "Softsign": unary(lambda x: x / (1 + np.abs(x))),
    "Sqrt": unary(np.sqrt, 0, 4), "Tan": unary(np.tan, -1, 1), "Tanh": unary(np.tanh),
    "Mish": unary(lambda x: x * np.tanh(softplus(x))), "HardSwish": unary(lambda x: x * clip(x / 6 + 0.5, 0, 1)),
    "Celu": unary(lambda x: np.maximum(x, 0) + np.minimum(0, 0.5 * np.expm1(x / 0.5)), alpha=0.5),
    "Elu": unary(lambda x: np.where(x < 0, 0.5 * np.expm1(x), x), alpha=0.5),
    "Selu": unary(lambda x: SELU[1] * np.where(x > 0, x, SELU[0] * np.expm1(x))),
    "LeakyRelu": unary(lambda x: np.where(x < 0, 0.25 * x, x), alpha=0.25),
    "ThresholdedRelu": unary(lambda x: np.where(x > 0.75, x, 0), alpha=0.75),
    "HardSigmoid": unary(lambda x: clip(0.25 * x + 0.5, 0, 1), alpha=0.25),
    "Gelu": unary(lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))), "Swish": unary(lambda x: x / (1 + np.exp(-0.5 * x)), alpha=0.5),
    "Abs": int_or_float(np.abs, np.abs), "Neg": int_or_float(lambda x: -x, lambda x: -x),
    "Sign": int_or_float(lambda x: (x > 0).astype(int) - (x < 0).astype(int), np.sign),
    "Relu": int_or_float(lambda x: np.maximum(x, 0), lambda x: np.maximum(x, 0)),
    "Not": unary(np.logical_not), "BitwiseNot": unary(lambda x: ~x),
    "Erf": int_or_float(lambda x: np.trunc(erf(x.astype(np.float64))).astype(int), erf),
}


def example(function):
    TABLE[function.__name__] = function
    return function


@example
def Shrink(c):
    x = c.x("T", 4, 5, low=-4, high=4)
    y = w(x).astype(np.float64)
    y = np.where(y < -1.5, y + 0.5, np.where(y > 1.5, y - 0.5, 0))
    yield c.use([x], [c.as_("T", y if is_float(c.t()) else np.trunc(y))], lambd=1.5, bias=0.5)


@example
def Clip(c):
    x, low, high = c.x("T", 4, 5), c.as_("T", 1 if c.t() not in SIGNED and not is_float(c.t()) else -1), c.as_("T", 1)
    if c.v < 11:
        yield c.use([x], [c.as_("T", clip(w(x), -1, 1))], min=-1.0, max=1.0)
        yield c.use([x], [x])
        return
    yield c.use([x, low, high], [c.as_("T", clip(w(x), w(low), w(high)))])
    yield c.use([x, None, high], [c.as_("T", np.minimum(w(x), w(high)))])
    yield c.use([x, low], [c.as_("T", np.maximum(w(x), w(low)))])
    yield c.use([x], [x])


def binary(function, low=-2.0, high=2.0, result=None, **attributes):
    def of_two(c):
        for left, right in ((3, 5), (3, 5)), ((3, 1), (5,)), ((), (2, 2)):
            a, b = c.x("T", *left), c.x("T", *right, low=low, high=high)
            if c.op in ("Div", "Mod"):
                b = c.as_("T", np.where(w(b) == 0, 3, w(b)))
            with np.errstate(all="ignore"):
                yield c.use([a, b], [c.as_(result or "T", function(w(a), w(b)))], **attributes)
    return of_two


def quotient(a, b):
    if np.asarray(a).dtype != object:
        return a / b
    return np.vectorize(lambda p, q: abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1), otypes=[object])(a, b)


def remainder(a, b):  # of truncated division
    return np.fmod(a, b) if np.asarray(a).dtype != object else a - quotient(a, b) * b


for _op, _function in {"Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Div": quotient}.items():
    TABLE[_op] = binary(_function)
for _op, _function in {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Equal": lambda a, b: a == b,
                       "Greater": lambda a, b: a > b, "Less": lambda a, b: a < b, "GreaterOrEqual": lambda a, b: a >= b,
                       "LessOrEqual": lambda a, b: a <= b}.items():
    TABLE[_op] = binary(_function, result=BOOL)
for _op, _function in {"BitwiseAnd": lambda a, b: a & b, "BitwiseOr": lambda a, b: a | b, "BitwiseXor": lambda a, b: a ^ b}.items():
    TABLE[_op] = binary(_function)


@example
def Mod(c):
    if not is_float(c.t()):
        yield from binary(lambda a, b: np.vectorize(lambda p, q: p % q, otypes=[object])(a, b))(c)
    yield from binary(remainder, fmod=1)(c)


@example
def Pow(c):
    for left, right in ((3, 5), (3, 5)), ((2, 3), ()), ((), (3,)):
        a = c.x("T", *left, low=0.25, high=3)
        kind = c.types.get("T1", c.t())
        b = typed(kind, c.rng.randint(0, 4, right))
        p, q = w(a), w(b)
        if p.dtype == object or q.dtype != object:
            y = np.vectorize(lambda x, e: x**e, otypes=[object])(p, q.astype(object)) if p.dtype == object else p**q
        else:
            y = p**q.astype(np.float64)
        yield c.use([a, b], [c.as_("T", y)])


@example
def PRelu(c):
    x, slope = c.x("T", 3, 5), c.x("T", 5, low=0, high=2)
    yield c.use([x, slope], [c.as_("T", np.where(w(x) < 0, w(x) * w(slope), w(x)))])


@example
def BitShift(c):
    a, b = c.x("T", 3, 5), c.x("T", 5)
    for direction in "LEFT", "RIGHT":
        yield c.use([a, b], [c.as_("T", w(a) << w(b) if direction == "LEFT" else w(a) >> w(b))], direction=direction)


def many(function):
    def of_many(c):
        for shapes in [(3, 5)], [(3, 1), (5,), ()], [(2, 3), (2, 3)]:
            xs = [c.x("T", *s) for s in shapes]
            yield c.use(xs, [c.as_("T", function(*np.broadcast_arrays(*[w(x) for x in xs])))])
    return of_many


for _op, _function in {"Max": lambda *xs: np.max(xs, 0), "Min": lambda *xs: np.min(xs, 0), "Sum": lambda *xs: sum(xs),
                       "Mean": lambda *xs: sum(xs) / len(xs)}.items():
    TABLE[_op] = many(_function)


@example
def Where(c):
    for shapes in ((3, 5), (3, 5), (3, 5)), ((3, 1), (5,), ()), ((), (2,), (2, 1)):
        b, x, y = c.x(BOOL, *shapes[0]), c.x("T", *shapes[1]), c.x("T", *shapes[2])
        yield c.use([b, x, y], [c.as_("T", np.where(b, w(x), w(y)))])


def is_what(function):
    def test(c):
        x = c.as_("T1" if "T1" in c.types else "T", [1.0, np.nan, np.inf, -np.inf, 0.0])
        yield c.use([x], [function(w(x))])
    return test


TABLE["IsNaN"], TABLE["IsInf"] = is_what(np.isnan), is_what(np.isinf)


@example
def Dropout(c):
    x = c.x("T", 3, 5)
    if c.v < 12:
        yield c.use([x], [x])
        return
    yield c.use([x, typed(c.types.get("T1", c.t()), 0.5)], [x, np.ones((3, 5), bool)])
    yield c.use([x, typed(c.types.get("T1", c.t()), 0.0), np.bool_(True).reshape(())], [x, np.ones((3, 5), bool)])
    yield c.use([x, typed(c.types.get("T1", c.t()), 0.5), np.bool_(True).reshape(())], [(c.t(), (3, 5)), (BOOL, (3, 5))])


# ---- casts

def cast(value, to, c):
    kind = value if isinstance(value, np.ndarray) and value.dtype == object and value.size and isinstance(value.flat[0], str) else None
    x = wide(value)
    if kind is not None:
        if to == STRING:
            return value
        x = np.vectorize(float, otypes=[np.float64])(value)
    if to == BOOL:
        return np.asarray(x != 0).astype(bool)
    if to in INTS:
        return typed(to, np.vectorize(int, otypes=[object])(x))
    if to in SMALL_FLOATS or to in NUMPY and to != STRING or to == BF16:
        return typed(to, np.asarray(x, np.float64))
    raise AssertionError(to)


def cast_pair(c, source, target):
    if source == STRING:
        return np.array({E8M0: ["1", "2", "4", "0.5"], I2: ["1", "0", "-1", "-2"]}.get(target, ["1", "0", "3", "2"]), object)
    if source == E8M0:
        return Small(E8M0, [127, 127, 127, 127] if target == I2 else [127, 128, 127, 128])
    return typed(source, [1, 1, 1, 1] if target == E8M0 else [0, 1, 1, 0])


@example
def Cast(c):
    source, target = c.t("T1"), c.t("T2")
    x = cast_pair(c, source, target)
    if target == STRING and source != STRING:
        x = some(source, (4,), c.rng) if source in INTS else x
        if source in INTS:
            expected = np.array([str(v) for v in w(x)], object)
        elif source == BOOL:
            expected = np.array(["1" if v else "0" for v in x], object)  # as a number: the standard does not say
        else:
            expected = (STRING, (4,))
    else:
        expected = cast(x, target, c)
    if c.op == "CastLike":
        yield c.use([x, c.x("T2", 1)], [expected])
    else:
        yield c.use([x], [expected], to=target)


TABLE["CastLike"] = Cast


@example
def BitCast(c):
    bits = {t: np.dtype(NUMPY[t]).itemsize * 8 for t in NUMPY}
    source, target = c.t("T1"), c.t("T2")
    x = c.x("T1", 3, 4)
    size = lambda t: bits.get(t, 16 if t == BF16 else 8 if t in SMALL_FLOATS and t != 23 else INTS.get(t, 4))
    if size(source) != size(target):
        return
    message = proto(x)
    message.data_type = target
    yield c.use([x], [from_proto(message)], to=target)


# ---- reductions

def reduction(function):
    def reduce(c):
        x = c.x("T", 2, 3, 4, low=0.25, high=2)
        if c.t() in INTS:
            x = c.as_("T", c.rng.randint(1, 4, (2, 3, 4)))
        for axes, keep in (None, 1), ((1,), 0), ((-1, 0), 1):
            at = axes if axes is not None else (0, 1, 2)
            y = function(w(x), tuple(at), bool(keep))
            y = np.trunc(np.asarray(y, np.float64)) if c.t() in INTS and np.asarray(y).dtype != object else y
            by_input = c.v >= 18 or c.op == "ReduceSum" and c.v >= 13
            if axes is None:
                yield c.use([x], [c.as_("T", y)], keepdims=keep)
            elif by_input:
                yield c.use([x, np.array(axes)], [c.as_("T", y)], keepdims=keep)
            else:
                yield c.use([x], [c.as_("T", y)], keepdims=keep, axes=list(axes))
    return reduce


def total(x, axis, keepdims):
    return np.sum(x, axis=axis, keepdims=keepdims)


def mean(x, axis, keepdims):
    count = np.prod([x.shape[a] for a in axis])
    return np.asarray(total(x, axis, keepdims), np.float64) / count


for _op, _function in {
        "ReduceSum": total, "ReduceMean": mean, "ReduceProd": lambda x, a, k: np.prod(x, axis=a, keepdims=k),
        "ReduceMax": lambda x, a, k: np.max(x, axis=a, keepdims=k), "ReduceMin": lambda x, a, k: np.min(x, axis=a, keepdims=k),
        "ReduceL1": lambda x, a, k: total(np.abs(x), a, k),
        "ReduceL2": lambda x, a, k: np.sqrt(np.asarray(total(x * x, a, k), np.float64)),
        "ReduceLogSum": lambda x, a, k: np.log(np.asarray(total(x, a, k), np.float64)),
        "ReduceLogSumExp": lambda x, a, k: np.log(total(np.exp(np.asarray(x, np.float64)), a, k)),
        "ReduceSumSquare": lambda x, a, k: total(x * x, a, k)}.items():
    TABLE[_op] = reduction(_function)


def arg(function, flip):
    def extreme(c):
        x = c.x("T", 3, 5)
        for axis, keep in (0, 1), (1, 0), (-1, 1):
            if c.v < 11 and axis < 0:
                continue
            y = function(np.asarray(w(x), np.float64), axis=axis)
            yield c.use([x], [np.asarray(np.expand_dims(y, axis) if keep else y, np.int64)], axis=axis, keepdims=keep)
    return extreme


TABLE["ArgMax"], TABLE["ArgMin"] = arg(np.argmax, False), arg(np.argmin, True)


def cumulative(function):
    def running(c):
        x = c.x("T", 3, 4)
        for axis in 0, -1:
            for exclusive in 0, 1:
                for reverse in 0, 1:
                    y = np.flip(w(x), axis) if reverse else w(x)
                    if exclusive:
                        first = np.zeros_like(np.take(y, [0], axis)) + (0 if function is np.cumsum else 1)
                        y = np.concatenate([first, np.take(y, range(y.shape[axis] - 1), axis)], axis)
                    y = function(y, axis=axis)
                    y = np.flip(y, axis) if reverse else y
                    yield c.use([x, typed(c.types.get("T2", I64), axis)], [c.as_("T", y)], exclusive=exclusive, reverse=reverse)
    return running


TABLE["CumSum"], TABLE["CumProd"] = cumulative(np.cumsum), cumulative(np.cumprod)


def softmax(c, x, axis):
    if c.v < 13:  # the input as a matrix
        flat = w(x).reshape(int(np.prod(x.shape[:axis])), -1)
        axis = 1
    else:
        flat = w(x)
    y = np.exp(flat - flat.max(axis=axis, keepdims=True))
    return flat, axis, y / y.sum(axis=axis, keepdims=True)


@example
def Softmax(c):
    x = c.x("T", 2, 3, 4)
    for axis in (1, 2) if c.v < 13 else (1, -1):
        flat, at, y = softmax(c, x, axis)
        if c.op == "LogSoftmax":
            y = np.log(y)
        if c.op == "Hardmax":
            places = np.arange(flat.shape[at]).reshape([-1 if d == at % flat.ndim else 1 for d in range(flat.ndim)])
            y = (np.expand_dims(np.argmax(flat, at), at) == places) + 0.0
        yield c.use([x], [c.as_("T", y.reshape(x.shape))], axis=axis)


TABLE["LogSoftmax"] = TABLE["Hardmax"] = Softmax
