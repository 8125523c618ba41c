"""What opsets 18 to 26 changed or added outside of attention and of small types, by the definitions written out in numpy."""
import itertools
import math

import numpy as np

from cases_networks import f32, normal
from onnx_build import BF16, BOOL, DTYPES, F16, F32, F64, I32, I64, Bf16
from onnx_nodes import Nodes, like, wide

NUMBERS = [np.dtype(d) for d in DTYPES.values() if d != np.bool_]


def _reduced(op, x, axes, keep):
    """`axes`: a tuple, which may be empty: then each element stands alone"""
    whole = x.dtype.kind in "iu"
    v = x if whole or op in ("ReduceMax", "ReduceMin") else wide(x)
    how = {"axis": axes, "keepdims": bool(keep)}
    with np.errstate(all="ignore"):
        if op in ("ReduceMax", "ReduceMin"):
            low, high = ((False, True) if x.dtype == bool else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max) if whole
                         else (-np.inf, np.inf))
            return v.max(initial=low, **how) if op == "ReduceMax" else v.min(initial=high, **how)
        total = lambda a: a.sum(dtype=x.dtype if whole else None, **how)
        y = {"ReduceSum": lambda: total(v), "ReduceProd": lambda: v.prod(dtype=x.dtype if whole else None, **how),
             "ReduceMean": lambda: v.mean(**how), "ReduceL1": lambda: total(abs(v)), "ReduceSumSquare": lambda: total(v * v),
             "ReduceL2": lambda: np.sqrt(wide(total(v * v))), "ReduceLogSum": lambda: np.log(wide(total(v))),
             "ReduceLogSumExp": lambda: np.log(np.exp(wide(v)).sum(**how))}[op]()
    return np.asarray(np.trunc(y) if whole else y).astype(x.dtype)


REDUCTIONS = ("ReduceSum", "ReduceProd", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare",
              "ReduceLogSum", "ReduceLogSumExp")


def reductions(rng):
    """Reductions 18: axes as an input that is a constant or not, negative, none with and without noop, empty sets, rank 0;
    20: bool"""
    n = Nodes("reductions")

    def add(op, x, axes, known=True, noop=0, keep=1):
        over = tuple(axes) if axes is not None and len(axes) else () if noop else tuple(range(x.ndim))
        inputs = [x] if axes is None else [x, np.int64(axes)]
        n.add(op, inputs, [_reduced(op, x, over, keep)], known=known, noop_with_empty_axes=noop, keepdims=keep)

    for op in REDUCTIONS:
        x = f32(rng.randint(1, 9, (3, 4, 5)) / 4)
        add(op, x, [1])
        add(op, x, [-1, 0], known=False, keep=0)
        add(op, x, None, keep=0)
        add(op, x, np.int64([]))
        add(op, x, None, noop=1)
        add(op, x, np.int64([]), noop=1, known=False)
        add(op, f32(np.zeros((2, 0, 3))), [1])
        add(op, f32(np.zeros((2, 0, 3))), [0], keep=0)
        add(op, f32(1.5), None)
        add(op, np.float64(x), [0, 2])
        add(op, np.float16(x), [2])
        if "Log" not in op and op != "ReduceL2":
            add(op, np.int32(rng.randint(-4, 5, (3, 4))), [1])
            add(op, np.int64(rng.randint(1, 4, (3, 4))), [0], keep=0)
    for op in "ReduceMax", "ReduceMin":
        for dtype in np.int8, np.uint8:
            add(op, rng.randint(0, 100, (3, 4)).astype(dtype), [0])
            add(op, np.zeros((2, 0), dtype), [1])
        add(op, rng.randint(0, 2, (4, 3)) > 0, [1], keep=0)
        add(op, np.zeros((2, 0), bool), [1], keep=0)
        add(op, rng.randint(0, 2, (4, 3)) > 0, None)
    return n.case(20, rtol=1e-3)


def splits(rng):
    """Split 18: num_outputs, the last part smaller or empty; sizes as an input"""
    n = Nodes("splits")
    for to in f32, np.float64, np.int8:
        x = to(rng.randint(-9, 9, (7, 4)))
        n.add("Split", [x], [x[:3], x[3:6], x[6:]], num_outputs=3)
        n.add("Split", [x], [x[:, :1], x[:, 1:2], x[:, 2:3], x[:, 3:]], num_outputs=4, axis=-1, known=False)
        n.add("Split", [x, np.int64([0, 5, 2])], [x[:0], x[:5], x[5:]])
    x = f32(normal(rng, 2, 5))
    n.add("Split", [x], [x[:, :2], x[:, 2:4], x[:, 4:]], num_outputs=3, axis=1)
    return n.case(18)


def pads(rng):
    """Pad 18 and 19: axes, negative pads, mode wrap; all modes"""
    n = Nodes("pads")
    x = f32(normal(rng, 3, 4, 5))
    n.add("Pad", [x, np.int64([1, 2, 0, 3]), np.float32(7), np.int64([0, -1])],
          [np.pad(x, ((1, 0), (0, 0), (2, 3)), constant_values=7)])
    n.add("Pad", [x, np.int64([2, -1]), None, np.int64([1])], [np.pad(x, ((0, 0), (2, 0), (0, 0)))[:, :-1]], known=False)
    for mode in "reflect", "edge", "wrap":
        n.add("Pad", [x, np.int64([2, 3]), None, np.int32([2])], [np.pad(x, ((0, 0), (0, 0), (2, 3)), mode=mode)], mode=mode)
        n.add("Pad", [x, np.int64([1, 0, 2, 1, 2, 1])], [np.pad(x, ((1, 1), (0, 2), (2, 1)), mode=mode)], mode=mode)
    n.add("Pad", [x, np.int64([4, 9]), None, np.int64([0])], [np.pad(x, ((4, 9), (0, 0), (0, 0)), mode="wrap")], mode="wrap")
    n.add("Pad", [x, np.int64([-1, 2]), None, np.int64([0])], [np.pad(x[1:], ((0, 2), (0, 0), (0, 0)))])
    flags = rng.randint(0, 2, (3, 2)) > 0
    n.add("Pad", [flags, np.int64([0, 1, 1, 0]), np.array(True)], [np.pad(flags, ((0, 1), (1, 0)), constant_values=True)])
    n.add("Pad", [f32(2.0), np.zeros(0, np.int64)], [f32(2.0)])
    return n.case(19)


def _resize_matrix(size, out, scale, mode, coordinates, rounding, antialias, exclude):
    """[out, size]: what each element of a dim contributes; elements outside are those at the edge"""
    m = np.zeros((out, size))
    if size == out and scale == 1:
        return np.eye(size)
    width = min(scale, 1) if antialias else 1
    reach = {"linear": 1, "cubic": 2}.get(mode, 0) / width
    tent = lambda d: max(0, 1 - d)
    cubic = lambda d: (1.25 * d - 2.25) * d * d + 1 if d <= 1 else ((-0.75 * d + 3.75) * d - 6) * d + 3 if d < 2 else 0
    for o in range(out):
        at = {"half_pixel": (o + 0.5) / scale - 0.5, "asymmetric": o / scale,
              "align_corners": o * (size - 1) / (scale * size - 1) if scale * size != 1 else 0,
              "half_pixel_symmetric": size / 2 * (1 - out / (scale * size)) + (o + 0.5) / scale - 0.5}[coordinates]
        if mode == "nearest":
            near = {"floor": math.floor(at), "ceil": math.ceil(at), "round_prefer_floor": math.ceil(at - 0.5),
                    "round_prefer_ceil": math.floor(at + 0.5)}[rounding]
            m[o, min(max(near, 0), size - 1)] = 1
            continue
        places = range(math.ceil(at - reach), math.floor(at + reach) + 1)
        weights = [(tent if mode == "linear" else cubic)(abs(i - at) * width) for i in places]
        if exclude:
            weights = [w if 0 <= i < size else 0 for i, w in zip(places, weights)]
        if antialias or exclude:
            weights = [w / sum(weights) for w in weights]
        for i, w in zip(places, weights):
            m[o, min(max(i, 0), size - 1)] += w
    return m


def resizes(rng):
    """Resize 18 and 19: antialias, axes, keep_aspect_ratio_policy, half_pixel_symmetric, exclude_outside; sizes that a
    scale gives when it is multiplied in float"""
    n = Nodes("resizes")

    def add(x, axes, scales=None, sizes=None, policy="stretch", known=True, mode="linear", coordinates="half_pixel",
            rounding="round_prefer_floor", antialias=0, exclude=0):
        over = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes]
        factors = [float(np.float32(s)) for s in scales] if scales else [s / x.shape[a] for s, a in zip(sizes, over)]
        if scales:
            out = [int(np.floor(np.float32(x.shape[a]) * np.float32(s))) for s, a in zip(scales, over)]
        elif policy == "stretch":
            out = sizes
        else:
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(over)
            out = [math.floor(x.shape[a] * f + 0.5) for f, a in zip(factors, over)]
        y = wide(x)
        for a, size, factor in zip(over, out, factors):
            m = _resize_matrix(x.shape[a], size, factor, mode, coordinates, rounding, antialias, exclude)
            y = np.moveaxis(np.tensordot(m, y, (1, a)), 0, a)
        more = {"axes": axes} if axes is not None else {}
        if policy != "stretch":
            more["keep_aspect_ratio_policy"] = policy
        n.add("Resize", [x, None, f32(scales)] if scales else [x, None, None, np.int64(sizes)], [like(x, y)], known=known,
              mode=mode, coordinate_transformation_mode=coordinates, nearest_mode=rounding, antialias=antialias,
              exclude_outside=exclude, **more)

    x = f32(normal(rng, 2, 3, 10, 13))
    for mode in "linear", "cubic":
        for exclude in 0, 1:
            add(x, [2, 3], sizes=[4, 5], mode=mode, antialias=1, exclude=exclude)
            add(x, [-1, 2], sizes=[17, 6], mode=mode, antialias=1, exclude=exclude, known=False)
            add(x, [3], scales=[0.7], mode=mode, antialias=1, exclude=exclude, coordinates="asymmetric")
        add(x, None, scales=[1, 1, 0.7, 0.6], mode=mode, coordinates="half_pixel_symmetric")
        add(x, [2, 3], scales=[2.3, 0.45], mode=mode, coordinates="half_pixel_symmetric", antialias=1)
        add(x, [2, 3], sizes=[5, 6], mode=mode, coordinates="align_corners", antialias=1)
    for policy in "not_larger", "not_smaller":
        for mode in "linear", "nearest":
            add(x, [2, 3], sizes=[7, 7], policy=policy, mode=mode)
            add(x, [3, 2], sizes=[20, 30], policy=policy, mode=mode, known=False)
    for rounding in "round_prefer_floor", "round_prefer_ceil", "floor", "ceil":
        add(x, [2], scales=[1.6], mode="nearest", rounding=rounding, coordinates="half_pixel_symmetric")
        add(x, [0, 2], sizes=[4, 5], mode="nearest", rounding=rounding)
    add(np.float64(x), [1, 2, 3], sizes=[5, 4, 6], antialias=1)
    add(np.float16(x), [2, 3], sizes=[5, 6], antialias=1)
    add(f32(normal(rng, 10)), [0], scales=[0.7])
    return n.case(19, rtol=2e-3, atol=2e-3)


def scatters(rng):
    """ScatterElements and ScatterND 18: max and min beside add and mul, indices that repeat, from the end, all types"""
    n = Nodes("scatters")
    meet = {"none": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": max, "min": min}
    for to in f32, np.float64, np.int64, np.int32, np.uint8, np.float16:
        for name, how in meet.items():
            data = np.asarray(to(rng.randint(1, 6, (4, 3))))
            indices, updates = rng.randint(-4, 4, (5, 3)), np.asarray(to(rng.randint(1, 6, (5, 3))))
            if name == "none":
                indices = np.stack([rng.permutation(4)[:2] for _ in range(3)], 1)
                updates = updates[:2]
            y = data.copy()
            for i, j in np.ndindex(indices.shape):
                y[indices[i, j], j] = how(y[indices[i, j], j], updates[i, j])
            n.add("ScatterElements", [data, indices, updates], [y], reduction=name)
            places, rows = np.int64([[2], [0], [-2]]), np.asarray(to(rng.randint(1, 6, (3, 3))))
            if name == "none":
                places[2] = 1
            y = data.copy()
            for i in range(3):
                for j in range(3):
                    y[places[i, 0], j] = how(y[places[i, 0], j], rows[i, j])
            n.add("ScatterND", [data, places, rows], [y], reduction=name, known=name != "max")
    return n.case(18)


def _pool(x, kernel, stride, dilation, pads, ceil, fold, pad_value):
    """Windows of [N, C, ...] one by one: fold(values inside, how many places of the window lie in the padded input)"""
    rank = x.ndim - 2
    out = []
    for d in range(rank):
        room = x.shape[2 + d] + pads[d] + pads[d + rank] - (dilation[d] * (kernel[d] - 1) + 1)
        size = (-(-room // stride[d]) if ceil else room // stride[d]) + 1
        if ceil and (size - 1) * stride[d] >= x.shape[2 + d] + pads[d]:
            size -= 1
        out.append(size)
    y = np.zeros(x.shape[:2] + tuple(out))
    for at in np.ndindex(*y.shape):
        values, counted = [], 0
        for tap in np.ndindex(*kernel):
            place = [at[2 + d] * stride[d] - pads[d] + tap[d] * dilation[d] for d in range(rank)]
            counted += all(-pads[d] <= place[d] < x.shape[2 + d] + pads[d + rank] for d in range(rank))
            if all(0 <= place[d] < x.shape[2 + d] for d in range(rank)):
                values.append(float(x[at[:2] + tuple(place)]))
        y[at] = fold(values, counted)
    return y


def pools(rng):
    """AveragePool 19: dilations, ceil_mode, what counts of the padding; LpPool 18: dilations, ceil_mode, p; 1 to 3 dims"""
    n = Nodes("pools")
    for dims, kernel in ((11,), (3,)), ((8, 9), (3, 2)), ((5, 6, 4), (2, 3, 2)):
        rank = len(dims)
        x = f32(normal(rng, 2, 3, *dims))
        for stride, dilation, pad, ceil in itertools.product((1, 2), (1, 2), (0, 1), (0, 1)):
            how = dict(kernel_shape=list(kernel), strides=[stride] * rank, dilations=[dilation] * rank, pads=[pad] * 2 * rank,
                       ceil_mode=ceil)
            args = (kernel, [stride] * rank, [dilation] * rank, [pad] * 2 * rank, ceil)
            count = (stride + dilation + ceil) % 2
            mean = lambda values, counted: sum(values) / (counted if count else len(values))
            n.add("AveragePool", [x], [f32(_pool(x, *args, mean, 0))], count_include_pad=count, **how)
            for p in (1, 2) if rank == 1 else (3,):
                norm = lambda values, counted: sum(abs(v)**p for v in values)**(1 / p)
                n.add("LpPool", [x], [f32(_pool(x, *args, norm, 0))], p=p, **how)
    return n.case(19, rtol=1e-4, atol=1e-5)


def transforms(rng):
    """DFT 20: the axis as an input with a default of -2, inverse, one side, lengths; real and complex"""
    n = Nodes("transforms")
    parts = lambda z: f32(np.stack([z.real, z.imag], -1))
    real, pair = f32(normal(rng, 2, 6, 5, 1)), f32(normal(rng, 2, 6, 5, 2))
    z = wide(pair[..., 0]) + 1j * pair[..., 1]
    n.add("DFT", [real], [parts(np.fft.fft(real[..., 0], axis=2))])
    n.add("DFT", [real, None, np.int64(1)], [parts(np.fft.fft(real[..., 0], axis=1))])
    n.add("DFT", [real, np.int64(8), np.int64(-3)], [parts(np.fft.fft(real[..., 0], 8, axis=1))], known=False)
    n.add("DFT", [real, None, np.int64(1)], [parts(np.fft.rfft(real[..., 0], axis=1))], onesided=1)
    n.add("DFT", [pair, None, np.int64(0)], [parts(np.fft.ifft(z, axis=0))], inverse=1)
    n.add("DFT", [pair, np.int64(3), np.int64(2)], [parts(np.fft.fft(z[:, :, :3], axis=2))])
    half = np.fft.rfft(real[..., 0], axis=1)
    n.add("DFT", [parts(half), np.int64(5), np.int64(1)], [f32(np.fft.irfft(half, 5, axis=1))[..., None]], inverse=1, onesided=1)
    n.add("DFT", [parts(half), None, np.int64(-3)], [f32(np.fft.irfft(half, axis=1))[..., None]], inverse=1, onesided=1)
    n.add("DFT", [parts(half), np.int64(6), np.int64(1)], [f32(np.fft.irfft(half, 6, axis=1))[..., None]], inverse=1, onesided=1)
    return n.case(20, rtol=1e-4, atol=1e-4)


def _reflect(x, low, high):
    if high == low:
        return low
    x = (x - low) % (2 * (high - low))
    return low + (x if x <= high - low else 2 * (high - low) - x)


def _grid_sample(x, grid, mode, padding, corners):
    spatial = x.shape[2:]
    y = np.zeros(x.shape[:2] + grid.shape[1:-1])
    cubic = lambda d: ((1.25 * d - 2.25) * d * d + 1 if d <= 1 else ((-0.75 * d + 3.75) * d - 6) * d + 3 if d < 2 else 0)
    for at in np.ndindex(grid.shape[:-1]):
        taps = []
        for d, size in enumerate(spatial):
            g = float(grid[at][len(spatial) - 1 - d])
            p = (g + 1) / 2 * (size - 1) if corners else ((g + 1) * size - 1) / 2
            ends = (0, size - 1) if corners else (-0.5, size - 0.5)
            if mode != "cubic" and padding == "border":
                p = min(max(p, 0), size - 1)
            if mode != "cubic" and padding == "reflection":
                p = min(max(_reflect(p, *ends), 0), size - 1)
            base = math.floor(p)
            near = ([(round(p), 1.0)] if mode == "nearest" else [(base, 1 - (p - base)), (base + 1, p - base)] if mode == "linear"
                    else [(base + k, cubic(abs(p - base - k))) for k in (-1, 0, 1, 2)])
            placed = []
            for i, w in near:
                if padding == "border":
                    i = min(max(i, 0), size - 1)
                if padding == "reflection":
                    i = int(round(_reflect(i, *ends)))
                    i = min(max(i, 0), size - 1)
                if 0 <= i < size:
                    placed.append((i, w))
            taps.append(placed)
        for combination in itertools.product(*taps):
            weight = math.prod(w for _, w in combination)
            y[(at[0], slice(None)) + at[1:]] += weight * wide(x[(at[0], slice(None)) + tuple(i for i, _ in combination)])
    return y


def grids(rng):
    """GridSample 20: linear, nearest and cubic in two and three dims, paddings, corners; AffineGrid 20"""
    n = Nodes("grids")
    for shape, cells in ((2, 3, 5, 4), (3, 6)), ((1, 2, 3, 4, 5), (2, 3, 2)):
        rank = len(cells)
        x = f32(normal(rng, *shape))
        grid = f32(rng.uniform(-1.4, 1.4, (shape[0], *cells, rank)))
        for mode, padding, corners in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)):
            n.add("GridSample", [x, grid], [f32(_grid_sample(x, grid, mode, padding, corners))], mode=mode, padding_mode=padding,
                  align_corners=corners)
        n.add("GridSample", [np.float64(x), np.float64(grid)], [_grid_sample(x, grid, "linear", "zeros", 0)], known=False)
        n.add("GridSample", [np.float16(x), np.float16(grid)],
              [np.float16(_grid_sample(np.float16(x), np.float16(grid), "linear", "zeros", 0))])
        for corners in 0, 1:
            theta = f32(normal(rng, 2, rank, rank + 1))
            sizes = [5, 4, 3][:rank]
            y = np.zeros((2, *sizes, rank))
            for at in np.ndindex(2, *sizes):
                place = [-1 + 2 * i / (s - 1) if corners else (2 * i + 1) / s - 1 for i, s in zip(at[1:], sizes)]
                y[at] = wide(theta[at[0]]) @ np.float64([*place[::-1], 1])
            n.add("AffineGrid", [theta, np.int64([2, 7, *sizes])], [f32(y)], align_corners=corners, known=not corners)
    return n.case(20, rtol=1e-3, atol=1e-3)


def _deform_conv(x, w, offset, bias, mask, group, offset_group, stride, pad, dilation):
    size, (height, width) = w.shape[2:], x.shape[2:]
    y = np.zeros((x.shape[0], w.shape[0], *offset.shape[2:]))
    offset = wide(offset).reshape(x.shape[0], offset_group, size[0] * size[1], 2, *offset.shape[2:])
    pixel = lambda b, c, i, j: float(x[b, c, i, j]) if 0 <= i < height and 0 <= j < width else 0.0
    for b, o, i, j in np.ndindex(*y.shape):
        total = 0.0 if bias is None else float(bias[o])
        for k in range(w.shape[1]):
            c = o // (w.shape[0] // group) * w.shape[1] + k
            shared = c // (x.shape[1] // offset_group)
            for tap in range(size[0] * size[1]):
                r, s = divmod(tap, size[1])
                py = i * stride - pad + r * dilation + offset[b, shared, tap, 0, i, j]
                px = j * stride - pad + s * dilation + offset[b, shared, tap, 1, i, j]
                y0, x0 = math.floor(py), math.floor(px)
                dy, dx = py - y0, px - x0
                value = ((1 - dy) * (1 - dx) * pixel(b, c, y0, x0) + (1 - dy) * dx * pixel(b, c, y0, x0 + 1) +
                         dy * (1 - dx) * pixel(b, c, y0 + 1, x0) + dy * dx * pixel(b, c, y0 + 1, x0 + 1))
                m = 1.0 if mask is None else float(mask[b, shared * size[0] * size[1] + tap, i, j])
                total += float(w[o, k, r, s]) * value * m
        y[b, o, i, j] = total
    return y


def deform_conv(rng):
    """DeformConv 19: groups of channels and of offsets, bias, mask, strides, pads, dilations; offsets out of the image"""
    n = Nodes("deform_conv")
    for to, group, sets, stride, pad, dilation, extra in (
            (f32, 1, 1, 1, 0, 1, ()), (f32, 2, 2, 2, 1, 1, ("bias",)), (f32, 1, 4, 1, 2, 2, ("bias", "mask")),
            (np.float64, 2, 1, 1, 1, 1, ("mask",)), (np.float16, 2, 2, 1, 1, 1, ("bias", "mask"))):
        x, w = np.asarray(to(rng.randint(-8, 9, (2, 4, 6, 5)) / 8)), np.asarray(to(rng.randint(-8, 9, (6, 4 // group, 3, 2)) / 8))
        out = [(s + 2 * pad - (dilation * (k - 1) + 1)) // stride + 1 for s, k in ((6, 3), (5, 2))]
        offset = np.asarray(to(rng.randint(-24, 25, (2, sets * 12, *out)) / 8))
        bias = np.asarray(to(rng.randint(-8, 9, 6) / 8)) if "bias" in extra else None
        mask = np.asarray(to(rng.randint(0, 9, (2, sets * 6, *out)) / 8)) if "mask" in extra else None
        y = _deform_conv(x, w, offset, bias, mask, group, sets, stride, pad, dilation)
        inputs = [x, w, offset, bias, mask]
        while inputs[-1] is None:
            inputs.pop()
        n.add("DeformConv", inputs, [like(x, y)], known=sets != 4, group=group, offset_group=sets, strides=[stride] * 2,
              pads=[pad] * 4, dilations=[dilation] * 2)
    return n.case(19, rtol=4e-3, atol=4e-3)


def blocks(rng):
    """Col2Im 18: strides, pads, dilations, 1 to 3 dims; CenterCropPad 18: even and odd, axes, all sizes of elements"""
    n = Nodes("blocks")
    for image, block, stride, pad, dilation in (((7,), (3,), 1, 0, 1), ((5, 6), (2, 3), 2, 1, 1), ((5, 6), (2, 2), 1, 1, 2),
                                                ((3, 4, 3), (2, 2, 1), 1, 0, 1)):
        rank = len(image)
        slid = [(s + 2 * pad - (dilation * (k - 1) + 1)) // stride + 1 for s, k in zip(image, block)]
        for to in f32, np.float16, np.int32:
            x = np.asarray(to(rng.randint(-5, 6, (2, 3 * math.prod(block), math.prod(slid)))))
            y = np.zeros((2, 3, *image))
            for c in range(3):
                for t, tap in enumerate(np.ndindex(*block)):
                    for p, place in enumerate(np.ndindex(*slid)):
                        at = tuple(place[d] * stride + tap[d] * dilation - pad for d in range(rank))
                        if all(0 <= a < s for a, s in zip(at, image)):
                            y[(slice(None), c) + at] += x[:, c * math.prod(block) + t, p]
            n.add("Col2Im", [x, np.int64(image), np.int64(block)], [y.astype(x.dtype)], known=to is f32,
                  strides=[stride] * rank, pads=[pad] * 2 * rank, dilations=[dilation] * rank)
    for dtype in np.float32, np.float16, np.int8, np.int64, np.bool_:
        x = rng.randint(1, 9, (5, 4, 3)).astype(dtype)
        n.add("CenterCropPad", [x, np.int64([3, 7, 3])], [np.pad(x[1:4], ((0, 0), (1, 2), (0, 0)))])
        n.add("CenterCropPad", [x, np.int64([8, 1])], [np.pad(x[:, :, 1:2], ((1, 2), (0, 0), (0, 0)))], axes=[0, -1], known=False)
        n.add("CenterCropPad", [x, np.int64([2, 1])], [x[1:3, 1:2]], axes=[0, 1])
        n.add("CenterCropPad", [x, np.int64([0])], [x[:, :0]], axes=[1])
    return n.case(18)


def bits_and_tests(rng):
    """BitwiseAnd, Or, Xor, Not 18 in all integers; IsInf and IsNaN 20 in all floats; Equal, Mish, Gelu, Swish, CumProd"""
    n = Nodes("bits_and_tests")
    for dtype in (d for d in NUMBERS if d.kind in "iu"):
        limits = np.iinfo(dtype)
        draw = lambda *shape: rng.randint(0, 256, shape + (dtype.itemsize,)).astype(np.uint8).view(dtype)[..., 0]
        a, b = draw(3, 1, 5), draw(4, 1)
        for op, f in ("And", np.bitwise_and), ("Or", np.bitwise_or), ("Xor", np.bitwise_xor):
            n.add("Bitwise" + op, [a, b], [f(a, b)])
        n.add("BitwiseNot", [a], [np.bitwise_not(a)], known=limits.min == 0)
    odd = np.float64([0, 1, -np.inf, np.inf, np.nan, -3, 1e30])
    for to in f32, lambda v: np.asarray(v, np.float64), lambda v: np.asarray(v, np.float16), Bf16:
        with np.errstate(over="ignore"):
            x = to(odd[:6])
        v = wide(x)
        n.add("IsNaN", [x], [np.isnan(v)])
        n.add("IsInf", [x], [np.isinf(v)])
        n.add("IsInf", [x], [v == -np.inf], detect_positive=0)
    x = f32(np.concatenate([rng.normal(0, 3, 60), [0, -0.0, 20, -20, 90, -90]]))
    v = wide(x)
    error = np.vectorize(math.erf)
    n.add("Mish", [x], [f32(v * np.tanh(np.logaddexp(0, v)))])
    n.add("Gelu", [x], [f32(v * 0.5 * (1 + error(v / math.sqrt(2))))])
    n.add("Gelu", [x], [f32(v * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))))], approximate="tanh")
    n.add("Swish", [x], [f32(v / (1 + np.exp(-v)))])
    n.add("Swish", [np.float64(x)], [v / (1 + np.exp(-0.3 * v))], alpha=0.3)
    for to in f32, np.float64, np.int32, np.int64:
        y = np.asarray(to(rng.randint(1, 4, (3, 4))))
        before = lambda p, axis: np.concatenate([np.ones_like(np.take(p, [0], axis)), np.delete(p, -1, axis)], axis)
        n.add("CumProd", [y, np.int64(1)], [np.cumprod(y, 1, dtype=y.dtype)])
        n.add("CumProd", [y, np.int64(-2)], [before(np.cumprod(y, 0, dtype=y.dtype), 0)], exclusive=1)
        n.add("CumProd", [y, np.int32(1)], [np.cumprod(y[:, ::-1], 1, dtype=y.dtype)[:, ::-1]], reverse=1, known=False)
    return n.case(26, rtol=1e-4, atol=1e-5)


def caches_and_regions(rng):
    """TensorScatter 24: linear and circular, axes, without indices; MaxRoiPool: corners that are rounded, empty cells"""
    n = Nodes("caches_and_regions")
    for to in f32, np.float16, np.int64:
        cache, rows = np.asarray(to(rng.randint(-9, 9, (2, 3, 6, 4)))), np.asarray(to(rng.randint(-9, 9, (2, 3, 2, 4))))
        for starts, mode in (None, "linear"), (np.int64([1, 4]), "linear"), (np.int64([5, 2]), "circular"):
            y = cache.copy()
            for b in range(2):
                for r in range(2):
                    y[b, :, ((0 if starts is None else starts[b]) + r) % 6] = rows[b, :, r]
            n.add("TensorScatter", [cache, rows] if starts is None else [cache, rows, starts], [y], mode=mode)
        flat = cache.reshape(2, 18, 4)
        y = flat.copy()
        y[0, 7:9], y[1, 3:5] = rows[0, 0], rows[1, 0]
        n.add("TensorScatter", [flat, np.ascontiguousarray(rows[:, 0]), np.int64([7, 3])], [y], axis=1, known=False)
    x = f32(normal(rng, 2, 3, 8, 9))
    rois = f32([[0, 0, 0, 8, 7], [1, 1.4, 2.6, 5.2, 6.9], [0, 3, 3, 3, 3], [1, 6, 6, 20, 20], [0, -4, -4, 2, 1]])
    for scale in 1.0, 0.5:
        y = np.zeros((5, 3, 2, 3))
        for r, (b, *corners) in enumerate(wide(rois)):
            x1, y1, x2, y2 = (math.floor(abs(c) * scale + 0.5) * (-1 if c < 0 else 1) for c in corners)
            w, h = max(x2 - x1 + 1, 1), max(y2 - y1 + 1, 1)
            for p, q in np.ndindex(2, 3):
                rows = range(max(p * h // 2 + y1, 0), min(-(-(p + 1) * h // 2) + y1, 8))
                columns = range(max(q * w // 3 + x1, 0), min(-(-(q + 1) * w // 3) + x1, 9))
                if rows and columns:
                    y[r, :, p, q] = x[int(b)][:, rows.start:rows.stop, columns.start:columns.stop].max((1, 2))
        n.add("MaxRoiPool", [x, rois], [f32(y)], pooled_shape=[2, 3], spatial_scale=scale)
    return n.case(24)


CASES = [reductions, splits, pads, resizes, scatters, pools, transforms, grids, deform_conv, blocks, bits_and_tests, caches_and_regions]
