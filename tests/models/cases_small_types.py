"""Floats of 8 and 4 bits and integers of 4 bits: Cast, QuantizeLinear and DequantizeLinear of opsets 19 to 24."""
import numpy as np

from cases_networks import f32
from onnx_build import BF16, BOOL, E2M1, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, F16, F32, F64, I4, I8, I32, I64, U4, U8, \
    DTYPES, Bf16, Case, Small
from onnx_nodes import Nodes, like, wide

FLOATS = E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E2M1
EDGES = f32([0, -0.0, 1, -1, 0.3, 2.5, 3.5, -2.5, 17.49, 240, 247, 248, 256, 448, 464, 465, -500, 57344, 61440, 61439, 1e6,
             -1e6, np.inf, -np.inf, np.nan, 2**-9, 2**-10, 2**-10 * 1.01, 2**-16, 2**-17, 2**-18, 1e-12, -1e-12, 5, 6, 7])


def small_casts(rng):
    """Cast 19 to 23, IsNaN and IsInf: every value of the small floats to float, edge values to them with and without saturation, from
    and to other types, as many elements as fill no byte"""
    n = Nodes("small_casts")
    some = f32(np.concatenate([EDGES, rng.normal(0, 30, 301), rng.normal(0, 0.01, 100)]))
    for kind in FLOATS:
        every = Small(kind, np.arange(len(Small.table(kind))))
        n.add("Cast", [every], [f32(every.values())], to=F32)
        n.add("Cast", [every], [every.values()], known=False, to=F64)
        n.add("Cast", [every], [np.float16(every.values())], to=F16)
        if kind != E2M1:
            n.add("IsNaN", [every], [np.isnan(every.values())])
            n.add("IsInf", [every], [np.isinf(every.values())])
        for saturate in 1, 0:
            n.add("Cast", [some], [Small.rounded(kind, some, saturate)], to=kind, saturate=saturate)
        n.add("Cast", [np.float16(some[30:331])], [Small.rounded(kind, np.float16(some[30:331]))], to=kind)
        n.add("CastLike", [Bf16(some[40:60]), every], [Small.rounded(kind, Bf16(some[40:60]).values())])
        # Halfway between two values but for what float has no room for
        double = np.float64([1.0625 if kind != E2M1 else 1.25]) + np.float64([2.0**-40])
        n.add("Cast", [double], [Small.rounded(kind, double)], to=kind)
        n.add("Cast", [np.int32([-7, 0, 3, 300, 1 << 25])], [Small.rounded(kind, np.int32([-7, 0, 3, 300, 1 << 25]))], to=kind)
        finite = Small(kind, [c for c in range(0, len(Small.table(kind)), 3) if np.isfinite(Small.table(kind)[c])])
        n.add("Cast", [finite], [np.trunc(finite.values()).astype(np.int32)], to=I32)
        n.add("Cast", [finite], [finite.values() != 0], to=BOOL)
    return n.case(23)


def four_bit_casts(rng):
    """Cast 21: integers of 4 bits from and to integers, floats and bool; odd counts"""
    n = Nodes("four_bit_casts")
    for kind, low in (I4, -8), (U4, 0):
        every = Small(kind, np.arange(16))
        for to in (t for t in DTYPES if not (kind == I4 and np.dtype(DTYPES[t]).kind == "u")):
            n.add("Cast", [every], [every.values().astype(DTYPES[to])], to=to)
        floats = f32(np.arange(-40, 81) / 4)[:121]
        n.add("Cast", [floats], [Small.rounded(kind, floats)], to=kind)
        whole = np.int8(rng.randint(-128, 128, 1001))
        n.add("Cast", [whole], [Small(kind, whole.astype(np.uint8) & 15)], to=kind)
        n.add("CastLike", [np.int64(whole), every], [Small(kind, whole.astype(np.uint8) & 15)], known=False)
        n.add("Cast", [np.array([True, False, True])], [Small(kind, [1, 0, 1])], to=kind)
        n.add("Cast", [every], [Small(I4 + U4 - kind, np.arange(16))], to=I4 + U4 - kind)
        n.add("Cast", [np.zeros((3, 0), np.float32)], [Small(kind, np.zeros((3, 0)))], to=kind)
    return n.case(21)


def small_moves(rng):
    """Reshape, Flatten, Squeeze, Unsqueeze, Identity, Transpose, Pad, ConstantOfShape, Shape and Size of integers of 4
    bits and of floats of 4 bits"""
    n = Nodes("small_moves")
    for kind in I4, U4, E2M1:
        codes = rng.randint(0, 16, (3, 5, 1))
        x = Small(kind, codes)
        move = lambda op, result, *more, **attributes: n.add(op, [x, *more], [Small(kind, result)], **attributes)
        move("Reshape", codes.reshape(5, 3), np.int64([5, -1]))
        move("Flatten", codes.reshape(3, 5), axis=1)
        move("Squeeze", codes[:, :, 0], np.int64([2]))
        move("Unsqueeze", codes[None], np.int64([0]))
        move("Identity", codes)
        move("Transpose", codes.transpose(2, 1, 0))
        move("Transpose", codes.transpose(1, 0, 2), perm=[1, 0, 2])
        move("Pad", np.pad(codes, ((1, 0), (0, 2), (0, 0)), constant_values=5), np.int64([1, 0, 0, 0, 2, 0]), Small(kind, 5))
        move("Pad", np.pad(codes, ((1, 1), (0, 2), (0, 0)), mode="wrap"), np.int64([1, 0, 1, 2]), None, np.int64([0, 1]),
             mode="wrap")
        n.add("ConstantOfShape", [np.int64([3, 5])], [Small(kind, np.full((3, 5), 11))], known=kind == I4,
              value=Small(kind, [11]).proto("value"))
        n.add("Shape", [x], [np.int64([3, 5, 1])])
        n.add("Size", [x], [np.int64(15)])
    return n.case(23)


def spread(value, shape, axis, block):
    """Scales or zero points as large as the input"""
    value = wide(value)
    if value.size == 1:
        return np.broadcast_to(value.reshape(()), shape)
    if not block:
        return np.broadcast_to(value.reshape([-1 if d == axis % len(shape) else 1 for d in range(len(shape))]), shape)
    return np.take(np.repeat(value, block, axis), range(shape[axis]), axis)


def quantize(n, x, scale, zero=None, to=None, axis=1, block_size=0, saturate=1, known=True, **attributes):
    at = (np.float32(wide(x)) / np.float32(spread(scale, x.shape, axis, block_size))).astype(np.float64)
    kind = to or (zero.elem_type if isinstance(zero, Small) else {np.dtype(v): k for k, v in DTYPES.items()}[zero.dtype]
                  if zero is not None else U8)
    offset = 0 if zero is None else spread(zero, x.shape, axis, block_size)
    if kind in FLOATS:
        y = Small.rounded(kind, at + offset, saturate)
    elif kind in (I4, U4):
        y = Small.rounded(kind, np.rint(at) + offset)
    else:
        limits = np.iinfo(DTYPES[kind])
        y = np.clip(np.rint(at) + offset, limits.min, limits.max).astype(DTYPES[kind])
    if to:
        attributes["output_dtype"] = to
    inputs = [x, scale] if zero is None else [x, scale, zero]
    n.add("QuantizeLinear", inputs, [y], known=known, axis=axis, block_size=block_size, saturate=saturate, **attributes)


def dequantize(n, x, scale, zero=None, to=None, axis=1, block_size=0, known=True):
    offset = 0 if zero is None else spread(zero, x.shape, axis, block_size)
    y = (wide(x) - offset) * spread(scale, x.shape, axis, block_size)
    y = {F32: f32, F16: np.float16, BF16: Bf16}[to](y) if to else like(scale, y) if not np.isscalar(scale) else f32(y)
    n.add("DequantizeLinear", [x, scale] if zero is None else [x, scale, zero], [y], known=known, axis=axis,
          block_size=block_size, **({"output_dtype": to} if to else {}))


def quantize_types(rng):
    """QuantizeLinear 23: to integers of 4, 8 and 16 bits and small floats, for all, by axis and by block, from all floats
    and int32, blocks that do not fill their axis, output_dtype without a zero point"""
    n = Nodes("quantize_types")
    x = f32(rng.normal(0, 4, (3, 7, 5)))
    by_axis, by_block = f32(2.0 ** rng.randint(-3, 2, 7)), f32(2.0 ** rng.randint(-3, 2, (3, 3, 5)))
    for kind in (*FLOATS, I4, U4):
        zeros = lambda shape: Small(kind, rng.randint(0, 8, shape) if kind in (I4, U4) else np.zeros(shape))
        quantize(n, x, np.float32(0.5), zeros(()))
        quantize(n, x, by_axis, zeros(7))
        quantize(n, x, by_block, zeros((3, 3, 5)), block_size=3)
        quantize(n, x, by_block, to=kind, block_size=3, known=False)
        quantize(n, f32(x * 500), np.float32(0.25), zeros(()), saturate=0)
    for dtype in np.uint8, np.int8, np.uint16, np.int16:
        quantize(n, x, by_block, rng.randint(0, 50, (3, 3, 5)).astype(dtype), block_size=3)
        quantize(n, x, f32(2.0 ** rng.randint(-3, 2, (3, 7, 2))), rng.randint(0, 50, (3, 7, 2)).astype(dtype), axis=2, block_size=3)
        quantize(n, f32(x * 3000), np.float32(0.125), dtype(3))
    for to in np.float16, Bf16:
        quantize(n, to(rng.randint(-64, 65, (3, 7)) / 8), to(2.0 ** rng.randint(-3, 2, 7)), to=E4M3FN)
        quantize(n, to(rng.randint(-64, 65, (3, 7)) / 8), to(2.0 ** rng.randint(-3, 2, (3, 4))), block_size=2, to=I8)
    quantize(n, np.float16(rng.randint(-64, 65, (3, 7)) / 8), f32(by_axis), np.zeros(7, np.int8))
    quantize(n, np.int32(rng.randint(-900, 900, (3, 7))), by_axis, np.zeros(7, np.int16))
    quantize(n, f32(np.zeros((0, 7))), by_axis, np.zeros(7, np.uint8))
    return n.case(23)


def dequantize_types(rng):
    """DequantizeLinear 23: from integers of 4, 8, 16 and 32 bits and small floats, for all, by axis and by block; scales
    of all floats; output_dtype"""
    n = Nodes("dequantize_types")
    scales = {(): (), "axis": (7,), "block": (3, 3, 5)}
    for kind in (*FLOATS, I4, U4, np.uint8, np.int8, np.uint16, np.int16, np.int32):
        small = isinstance(kind, int)
        if small:
            finite = [c for c in range(len(Small.table(kind))) if np.isfinite(Small.table(kind)[c])]
            make = lambda *shape: Small(kind, rng.choice(finite, shape))
        else:
            make = lambda *shape: rng.randint(np.iinfo(kind).min // 300, np.iinfo(kind).max // 300 + 100, shape).astype(kind)
        zeros = lambda shape: (None if kind in FLOATS else Small(kind, rng.randint(0, 16, shape)) if small else
                               rng.randint(0, 100, shape).astype(kind))
        for how, shape in scales.items():
            dequantize(n, make(3, 7, 5), f32(2.0 ** rng.randint(-3, 2, shape)), zeros(shape) if how != "block" or small else None,
                       block_size=3 if how == "block" else 0)
        dequantize(n, make(3, 7), np.float16(2.0 ** rng.randint(-3, 2, (3, 3))), block_size=3, known=False)
        dequantize(n, make(5), Bf16(0.5), to=F32)
        dequantize(n, make(5, 3), f32(2.0 ** rng.randint(-3, 2, (2, 3))), axis=0, block_size=4, to=F16)
    return n.case(23, rtol=1e-2)


def small_products(rng):
    """QLinearMatMul 21: scales of 16 bits, floats of 8 bits"""
    n = Nodes("small_products")
    for to in np.float16, Bf16, f32:
        scale = lambda *shape: to(2.0 ** rng.randint(-4, 1, shape))
        for kind in np.uint8, np.int8, E4M3FN, E5M2:
            small = isinstance(kind, int)
            make = lambda *shape: (Small.rounded(kind, rng.randint(-8, 9, shape) / 4) if small else
                                   rng.randint(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind))
            zero = lambda: Small(kind, 0) if small else np.asarray(rng.randint(0, 9), kind)
            a, b, parts = make(3, 5), make(5, 4), [scale(1), zero(), scale(1), zero(), to([16.0]), zero()]
            for k in 0, 2, 4:
                parts[k] = to(wide(parts[k]).reshape(()))
            sums = ((wide(a) - wide(parts[1])) @ (wide(b) - wide(parts[3]))) * wide(parts[0]) * wide(parts[2])
            at = sums / wide(parts[4])
            y = (Small.rounded(kind, at) if small else
                 np.clip(np.rint(at) + wide(parts[5]), np.iinfo(kind).min, np.iinfo(kind).max).astype(kind))
            n.add("QLinearMatMul", [a, parts[0], parts[1], b, parts[2], parts[3], parts[4], parts[5]], [y])
    return n.case(21)


CASES = [small_products, small_casts, four_bit_casts, small_moves, quantize_types, dequantize_types]
