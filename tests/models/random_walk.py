"""A graph that grows by random moves (random_moves.py), each node's result computed while it is added."""
import numpy as np

from onnx_build import DTYPES, ELEM_TYPES, F32, F64, Case, Graph


class Skip(Exception):
    """The move does not fit what is there."""


class Value:
    def __init__(self, name, data):
        self.name, self.data = name, data  # floats as float64, whatever else as it is
        self.shape, self.rank = data.shape, data.ndim
        self.reads = 0

    @property
    def is_float(self):
        return self.data.dtype == np.float64


class Walk:
    """A graph while it grows."""

    def __init__(self, seed, outer=None):
        self.rng = outer.rng if outer else np.random.RandomState(seed)
        self.outer = outer
        self.opset = outer.opset if outer else self.choice([11, 12, 13, 14, 15, 16, 17])
        self.g = Graph("random", f"{outer.g.prefix}b{outer.branches}_" if outer else "")
        self.branches = 0
        self.kind = outer.kind if outer else self.choice([F32] * 15 + [F64])  # of all floats
        # How inputs are declared: with their dims, with symbols, or by rank.
        self.declared = "dims" if outer else self.choice(["dims", "dims", "symbols", "none"])
        self.pool, self.inputs, self.made, self.used = [], [], {}, set()

    # -- chance
    def choice(self, items):
        return items[self.rng.randint(len(items))]

    def chance(self, p):
        return self.rng.rand() < p

    def between(self, low, high):
        return int(self.rng.randint(low, high + 1))

    def need(self, condition):
        if not condition:
            raise Skip

    # -- values
    def floats(self, *shape, scale=1.0, low=None, high=None):
        """Random numbers that the graph's floats hold."""
        data = self.rng.uniform(low, high, shape) if low is not None else self.rng.standard_normal(shape) * scale
        return self.rounded(data)

    def rounded(self, data):
        return np.asarray(data, np.float32).astype(np.float64)

    def stored(self, data):
        return data.astype(DTYPES[self.kind]) if data.dtype == np.float64 else data

    def const(self, data, name=None):
        data = np.asarray(data)
        if data.dtype == np.float64:
            data = self.rounded(data)
        value = Value(self.g.const(self.stored(data), name), data)
        if self.chance(0.1):  # as a node of its own
            made = self.g.initializers.pop()
            out = self.g.op("Constant", value=made)
            value.name = out
        return value

    def input(self, data):
        """A graph input that holds `data`; inside a branch a constant."""
        data = np.asarray(data)
        if self.outer:
            return self.const(data)
        name, i = f"in_{len(self.inputs)}", len(self.inputs)
        dims = {"dims": list(data.shape), "symbols": [f"d{i}_{k}" for k in range(data.ndim)], "none": [None] * data.ndim}
        self.g.input(name, ELEM_TYPES[self.stored(data).dtype], dims[self.declared])
        self.inputs.append(self.stored(data))
        return Value(name, data)

    def add(self, op, inputs, data, domain="", **attributes):
        """A node of one output, which holds `data`."""
        return self.add_many(op, inputs, [data], domain, **attributes)[0]

    def add_many(self, op, inputs, datas, domain="", **attributes):
        for v in inputs:
            if v is not None:
                v.reads += 1
                self.used.add(v.name)
        outs = self.g.op(op, *[v.name if v is not None else "" for v in inputs], outs=len(datas), domain=domain, **attributes)
        outs = outs if len(datas) > 1 else [outs]
        made = [Value(name, np.asarray(data)) for name, data in zip(outs, datas)]
        for v in made:
            self.made[v.name] = v
            self.need(not v.is_float or not v.data.size or self.sane(v.data, inputs))
            if self.chance(0.15):  # something else may read it, or it is an output
                self.pool.append(v)
        return made

    def sane(self, data, inputs):
        """Not so large, and not what large numbers that cancel leave, that rounding would show."""
        most = np.abs(data).max()
        before = max((np.abs(v.data).max() for v in inputs if v is not None and v.is_float and v.data.size), default=0)
        return np.isfinite(data).all() and most < 200 and (most == 0 or most > 1e-3 * min(before, 1))

    def keep(self, value):
        if value not in self.pool:
            self.pool.append(value)
        return value

    def values(self, where=lambda v: True):
        seen = self.pool + (self.outer.values() if self.outer else [])
        return [v for v in seen if where(v)]

    def pick(self, where=lambda v: True, ints=False):
        """A value of the pool, sooner a late one."""
        fit = self.values(lambda v: (v.is_float or ints) and where(v))
        self.need(fit)
        return fit[len(fit) - 1 - min(int(self.rng.exponential(3)), len(fit) - 1)]

    def operand(self, shape, scale=1.0, low=None, high=None):
        """What a binary operator may have beside a value of this shape: a value that is there, or a constant, of the
        same shape or of one that broadcasts to it; never one that adds dims."""
        if self.chance(0.3):
            fit = self.values(lambda v: v.is_float and broadcasts(v.shape, shape)) if low is None else []
            if fit:
                return self.choice(fit)
        kept = [1 if self.chance(0.4) else d for d in shape]
        how = self.between(0, 4)
        dims = ([], list(shape), kept, kept[self.between(0, len(kept)):], [1] * self.between(0, len(shape)))[how]
        if how == 4 and len(shape) >= 2 and self.chance(0.7):  # one for each channel
            dims = [shape[1]] + [1] * (len(shape) - 2)
        data = self.floats(*dims, scale=scale, low=low, high=high)
        return self.input(data) if self.chance(0.15) else self.const(data)

    def begin(self):
        """The first values: images, rows of tokens, matrices, a number."""
        n = self.choice([1, 1, 2, 3, 0])
        side = lambda: self.choice([1, 2, 4, 5, 7, 8, 12, 17])
        channels = self.choice([1, 3, 4, 8, 16, 24, 32])
        kinds = [[n, channels, side(), side()], [n, channels, self.between(1, 20)], [n, self.between(1, 9), self.choice([4, 8, 16])],
                 [n, self.choice([1, 5, 16])], [n, channels, self.between(1, 4), self.between(1, 5), self.between(1, 5)], [self.between(1, 8)], []]
        for shape in [self.choice(kinds[:5])] + [kinds[i] for i in range(len(kinds)) if self.chance(0.3)]:
            self.keep(self.input(self.floats(*shape)))

    # -- the whole
    def grow(self, moves, count):
        """Makes `count` of the moves, with at most 200 tries."""
        self.moves = moves
        for _ in range(200):
            if count <= 0:
                break
            state = self.save()
            try:
                self.choice(moves)(self)
                count -= 1
            except Skip:
                self.restore(state)

    def save(self):
        reads = [(v, v.reads) for v in self.values()]
        return (len(self.g.nodes), len(self.g.inputs), len(self.g.initializers), len(self.inputs), list(self.pool),
                dict(self.made), set(self.used), reads, self.branches)

    def restore(self, state):
        nodes, inputs, initializers, values, self.pool, self.made, self.used, reads, self.branches = state
        del self.g.nodes[nodes:], self.g.inputs[inputs:], self.g.initializers[initializers:], self.inputs[values:]
        for v, count in reads:
            v.reads = count

    def case(self):
        """What nobody reads is an output, and some of what somebody reads."""
        outs = [v for v in self.made.values() if not v.reads or (v in self.pool and self.chance(0.15))][:40]
        if self.chance(0.1):  # an input as it came
            outs.append(Value(self.g.inputs[0].name, np.asarray(self.inputs[0], np.float64)))
        expected = [self.stored(v.data) for v in outs]
        for v, data in zip(outs, expected):
            self.g.output(v.name, ELEM_TYPES[data.dtype], [None] * v.rank)
        return Case(self.g.model(self.opset, com_microsoft=1), (self.inputs, expected), check=False)


def broadcasts(shape, to):
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(shape[::-1], to[::-1]))
