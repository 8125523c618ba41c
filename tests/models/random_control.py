"""Moves of a random graph with a state or a choice: recurrent nodes, branches, loops."""
import numpy as np

import random_ops as ops
from onnx_build import BOOL, I64
from random_blocks import after, limited
from random_walk import Walk, broadcasts


def recurrent(w):
    x = limited(w, w.pick(lambda v: v.rank == 3 and min(v.shape) > 0 and v.data.size < 2000))
    t, b, i = x.shape
    h, two = w.choice([1, 3, 8]), w.chance(0.4)
    gates, lstm = w.choice([(4, True), (3, False)])
    dirs = 2 if two else 1
    wt, r, bias = w.floats(dirs, gates * h, i, scale=i**-0.5), w.floats(dirs, gates * h, h, scale=h**-0.5), w.floats(dirs, 2 * gates * h, scale=0.3)
    h0 = w.floats(dirs, b, h) if w.chance(0.5) else np.zeros((dirs, b, h))
    reset = w.between(0, 1)
    ys, hs, cs = [], [], []
    for d in range(dirs):
        xs = x.data[::-1] if d else x.data
        if lstm:
            y, hn, cn = ops.lstm(xs, wt[d], r[d], bias[d], h0[d], np.zeros((b, h)))
            cs.append(cn)
        else:
            y, hn = ops.gru(xs, wt[d], r[d], bias[d], h0[d], reset)
        ys.append(y[::-1] if d else y), hs.append(hn)
    datas = [np.stack(ys, 1), np.stack(hs)] + ([np.stack(cs)] if lstm else [])
    inputs = [x, w.const(wt), w.const(r), w.const(bias)] + ([None, w.const(h0)] if h0.any() else [])
    attributes = {"hidden_size": h, "direction": "bidirectional" if two else "forward"}
    if not lstm:
        attributes["linear_before_reset"] = reset
    made = w.add_many("LSTM" if lstm else "GRU", inputs, datas, **attributes)
    for v in made:
        w.keep(v)
    if not two:
        squeeze = [made[0], w.const(np.int64([1]))] if w.opset >= 13 else [made[0]]
        w.keep(w.add("Squeeze", squeeze, made[0].data[:, 0], **({} if w.opset >= 13 else {"axes": [1]})))


def branch(w):
    inner = Walk(0, w)
    w.branches += 1
    inner.grow(w.moves, w.between(1, 3))
    w.used |= inner.used
    return inner


def read_outside(w, inner):
    """A reader in a branch is a reader: what it reads is no output by itself."""
    for v in w.values():
        if v.name in inner.used:
            v.reads += 1


def conditional(w):
    w.need(not w.outer)
    taken = bool(w.chance(0.5))
    how = w.between(0, 2)
    if how == 0:
        condition = w.const(np.array(taken))
    elif how == 1:
        condition = w.input(np.array(taken))
    else:  # known only when it runs
        x = w.pick(lambda v: v.data.size)
        s = w.add("ReduceMax", [x], x.data.max(), keepdims=0)
        limit = np.float64(np.float32(x.data.max() + (-1 if taken else 1)))
        condition = w.add("Greater", [s, w.const(limit)], np.array(taken))
    inners = [branch(w), branch(w)]
    made = [[v for v in inner.made.values() if v.is_float] for inner in inners]
    w.need(all(made))
    graphs, outs = [], []
    for inner, values in zip(inners, made):
        out = values[-1]
        inner.g.output(out.name, w.kind, None if w.chance(0.3) else [None] * out.rank)
        graphs.append(inner.g.proto())
        outs.append(out)
        read_outside(w, inner)
    result = w.add("If", [condition], outs[0 if taken else 1].data, then_branch=graphs[0], else_branch=graphs[1])
    after(w, result) if w.chance(0.5) else w.keep(result)


def loop(w):
    """A state that each turn changes with what lies outside, and a scan output."""
    w.need(not w.outer)
    x = limited(w, w.pick(lambda v: v.rank >= 1 and v.data.size))
    fit = w.values(lambda v: v.is_float and broadcasts(v.shape, x.shape))
    outside, factor = limited(w, w.choice(fit)), w.const(w.floats(*x.shape[-1:]))
    turns = w.between(0, 3)
    body = Walk(0, w)
    w.branches += 1
    prefix, state, scanned = body.g.prefix, x.data, []
    for name, kind in ((prefix + "turn", I64), (prefix + "on", BOOL)):
        body.g.input(name, kind, [])
    body.g.input(prefix + "state", w.kind, list(x.shape) if w.chance(0.5) else [None] * x.rank)
    y = body.g.op("Mul", prefix + "state", factor.name)
    y = body.g.op("Tanh", body.g.op("Add", y, outside.name))
    body.g.output(body.g.op("Identity", prefix + "on"), BOOL, [])
    body.g.output(y, w.kind, [None] * x.rank)
    body.g.output(body.g.op("ReduceMean", y, axes=[x.rank - 1], keepdims=0), w.kind, [None] * (x.rank - 1))
    for _ in range(turns):
        state = np.tanh(state * factor.data + outside.data)
        scanned.append(state.mean(-1))
    outside.reads += 1
    factor.reads += 1
    count = np.int64(turns)
    inputs = [w.const(count) if w.chance(0.5) else w.input(count), w.const(np.array(True)) if w.chance(0.5) else None, x]
    w.need(turns)
    for v in w.add_many("Loop", inputs, [state, np.stack(scanned)], body=body.g.proto()):
        w.keep(v)


MOVES = [conditional] * 2 + [recurrent, loop]
