"""Moves of a random graph that move elements: transposed, reshaped, cut, joined, copied, sorted."""
import math

import numpy as np

from random_blocks import binary, broadcast_binary, clip, unary
from random_moves import pad
from reference import sigmoid


def transpose(w):
    x = w.pick(lambda v: v.rank >= 2)
    perm = [int(i) for i in w.rng.permutation(x.rank)]
    w.keep(w.add("Transpose", [x], x.data.transpose(perm), perm=perm))


def there_and_back(w):
    """Transposed, something by elements, and back: as exporters of channels-last models write."""
    x = w.pick(lambda v: v.rank in (3, 4))
    there = [0, *range(2, x.rank), 1]
    back = [0, x.rank - 1, *range(1, x.rank - 1)]
    y = w.add("Transpose", [x], x.data.transpose(there), perm=there)
    for _ in range(w.between(0, 2)):
        y = w.choice([unary, clip, broadcast_binary])(w, y)
    if w.chance(0.2):
        w.keep(y)
    w.keep(w.add("Transpose", [y], y.data.transpose(back), perm=back))


def reshape(w):
    x = w.pick(lambda v: v.rank >= 1)
    how = w.between(0, 5)
    if how == 0 and x.data.size:  # two neighbours become one
        w.need(x.rank >= 2)
        i = w.between(0, x.rank - 2)
        shape = [*x.shape[:i], x.shape[i] * x.shape[i + 1], *x.shape[i + 2:]]
        asked = list(shape)
        asked[w.between(0, len(shape) - 1)] = -1
    elif how == 1:
        i = w.between(0, x.rank - 1)
        f = w.choice([2, 3, 4])
        w.need(x.shape[i] % f == 0 and x.shape[i] > 0 and x.data.size)
        shape = [*x.shape[:i], f, x.shape[i] // f, *x.shape[i + 1:]]
        asked = [0 if k < i and w.chance(0.5) else d for k, d in enumerate(shape)]
    elif how == 2:
        axis = w.between(0, x.rank)
        data = x.data.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        return w.keep(w.add("Flatten", [x], data, axis=axis))
    elif how == 3:
        axis = w.between(0, x.rank)
        data = np.expand_dims(x.data, axis)
        w.need(data.ndim <= 6)
        if w.opset >= 13:
            return w.keep(w.add("Unsqueeze", [x, w.const(np.int64([axis]))], data))
        return w.keep(w.add("Unsqueeze", [x], data, axes=[axis]))
    elif how == 4:
        ones = [i for i, d in enumerate(x.shape) if d == 1]
        w.need(ones)
        axes = [a for a in ones if w.chance(0.7)] or ones
        data = x.data.squeeze(tuple(axes))
        if w.opset >= 13:
            return w.keep(w.add("Squeeze", [x, w.const(np.int64(axes))], data))
        return w.keep(w.add("Squeeze", [x], data, axes=axes))
    else:
        return dynamic_reshape(w, x)
    w.keep(w.add("Reshape", [x, w.const(np.int64(asked))], x.data.reshape(shape)))


def dynamic_reshape(w, x):
    """By numbers taken from Shape, as traced models do."""
    w.need(x.data.size and x.rank >= 2)
    shape = w.add("Shape", [x], np.int64(x.shape))
    first = w.const(np.int64(0))
    lead = w.add("Gather", [shape, first], np.int64(x.shape[0]), axis=0)
    lead = (w.add("Unsqueeze", [lead, w.const(np.int64([0]))], lead.data.reshape(1)) if w.opset >= 13 else
            w.add("Unsqueeze", [lead], lead.data.reshape(1), axes=[0]))
    asked = w.add("Concat", [lead, w.const(np.int64([-1]))], np.int64([x.shape[0], -1]), axis=0)
    w.keep(w.add("Reshape", [x, asked], x.data.reshape(x.shape[0], -1)))


def slices(w):
    x = w.pick(lambda v: v.rank >= 1 and v.data.size)
    axes = sorted({w.between(0, x.rank - 1) for _ in range(w.between(1, 2))})
    cut, starts, ends, steps = [slice(None)] * x.rank, [], [], []
    for a in axes:
        n = x.shape[a]
        step = w.choice([1, 1, 1, 2, -1])
        start, end = (w.between(0, n - 1), w.choice([n, n, 2**31 - 1, w.between(1, n)])) if step > 0 else (-1, -(2**31))
        cut[a] = slice(start, min(end, n), step) if step > 0 else slice(None, None, -1)
        starts.append(start), ends.append(end), steps.append(step)
    data = x.data[tuple(cut)]
    inputs = [x, *(w.const(np.int64(v)) for v in (starts, ends, axes))]
    if any(s != 1 for s in steps) or w.chance(0.5):
        inputs.append(w.const(np.int64(steps)))
    w.keep(w.add("Slice", inputs, data))


def concat(w):
    x = w.pick(lambda v: v.rank >= 1)
    axis = w.between(0, x.rank - 1)
    fit = w.values(lambda v: v.is_float and v.rank == x.rank and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis))
    parts = [x] + [w.choice(fit) if w.chance(0.7) else w.const(w.floats(*[2 if i == axis else d for i, d in enumerate(x.shape)]))
                   for _ in range(w.between(0, 3))]
    w.rng.shuffle(parts)
    data = np.concatenate([p.data for p in parts], axis)
    w.need(data.size < 30000)
    w.keep(w.add("Concat", parts, data, axis=axis - (x.rank if w.chance(0.3) else 0)))


def split(w):
    x = w.pick(lambda v: v.rank >= 1 and max(v.shape) >= 2)
    axis = w.choice([i for i, d in enumerate(x.shape) if d >= 2])
    n = x.shape[axis]
    cut = w.between(1, n - 1)
    sizes = [cut, n - cut]
    if n % 2 == 0 and w.chance(0.5):
        sizes = [n // 2, n // 2]
    datas = np.split(x.data, [sizes[0]], axis)
    if w.opset >= 13:
        made = w.add_many("Split", [x, w.const(np.int64(sizes))], datas, axis=axis)
    else:
        made = w.add_many("Split", [x], datas, axis=axis, split=sizes)
    for v in made:
        w.keep(v)
    if w.chance(0.4) and made[0].shape == made[1].shape:  # a gated unit
        w.keep(binary(w, "Mul", made[0], w.add("Sigmoid", [made[1]], sigmoid(made[1].data))))


def copies(w):
    x = w.pick(lambda v: v.rank >= 1 and v.data.size < 3000)
    how = w.between(0, 3)
    if how == 0:
        times = [w.choice([1, 1, 2, 3]) for _ in x.shape]
        y = w.add("Tile", [x, w.const(np.int64(times))], np.tile(x.data, times))
    elif how == 1:
        shape = [w.choice([2, 3]) if d == 1 else d for d in x.shape]
        asked = [w.choice([2])] + shape if w.chance(0.3) and x.rank < 5 else list(shape)
        y = w.add("Expand", [x, w.const(np.int64(asked))], np.broadcast_to(x.data, asked).copy())
    elif how == 2:
        axis = w.between(0, x.rank - 1)
        w.need(x.shape[axis] > 0)
        index = w.rng.randint(-x.shape[axis], x.shape[axis], [w.between(1, 4)] * w.between(0, 2))
        y = w.add("Gather", [x, w.const(np.int64(index))], np.take(x.data, index, axis), axis=axis)
    else:
        widths = [w.between(0, 2) for _ in range(2 * x.rank)]
        y = pad(w, x, widths, w.choice(["constant", "edge", "reflect"]), float(w.choice([0, 1.5])))
    w.need(y.data.size < 20000 and y.rank <= 6)
    w.keep(y)


def depth_space(w):
    x = w.pick(lambda v: v.rank == 4 and v.data.size)
    n, c, h, v = x.shape
    if w.chance(0.5):
        w.need(c % 4 == 0)
        how = w.choice(["DCR", "CRD"])
        data = (x.data.reshape(n, 2, 2, c // 4, h, v).transpose(0, 3, 4, 1, 5, 2) if how == "DCR" else
                x.data.reshape(n, c // 4, 2, 2, h, v).transpose(0, 1, 4, 2, 5, 3)).reshape(n, c // 4, 2 * h, 2 * v)
        return w.keep(w.add("DepthToSpace", [x], data, blocksize=2, mode=how))
    w.need(h % 2 == 0 and v % 2 == 0)
    data = x.data.reshape(n, c, h // 2, 2, v // 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, v // 2)
    w.keep(w.add("SpaceToDepth", [x], data, blocksize=2))


def extremes(w):
    x = w.pick(lambda v: v.rank >= 1 and v.data.size)
    axis = w.between(0, x.rank - 1)
    n = x.shape[axis]
    order = np.sort(x.data, axis)
    if n > 1:
        w.need(np.diff(order, axis=axis).min() > 1e-4 * max(1, np.abs(x.data).max()))
    if w.chance(0.5):
        return w.keep(w.add("ArgMax", [x], np.expand_dims(x.data.argmax(axis), axis), axis=axis, keepdims=1))
    k = w.between(1, n)
    index = np.argsort(-x.data, axis, kind="stable").take(range(k), axis)
    for v in w.add_many("TopK", [x, w.const(np.int64([k]))], [np.take_along_axis(x.data, index, axis), index], axis=axis):
        w.keep(v)


MOVES = [reshape] * 2 + [concat] * 2 + [transpose, there_and_back, slices, split, copies, depth_space, extremes]
