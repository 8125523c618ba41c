"""Element types as the tests of operators see them: their names in the standard, values that suit each, the way to the numbers
that a reference computes with and back. Floats are computed as float64, integers as Python's own (exact, then wrapped)."""
import os
import sys

import numpy as np
from onnx import TensorProto

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))
from onnx_build import (BF16, BOOL, DTYPES, E2M1, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, F16, F32, F64, I4, I8, I16, I32, I64,  # noqa: E402
                        STRING, U4, U8, U16, U32, U64, Bf16, Small, tensor)

C64, C128, U2, I2 = TensorProto.COMPLEX64, TensorProto.COMPLEX128, 25, 26
NAMES = {"float": F32, "double": F64, "float16": F16, "bfloat16": BF16, "int8": I8, "int16": I16, "int32": I32, "int64": I64,
         "uint8": U8, "uint16": U16, "uint32": U32, "uint64": U64, "bool": BOOL, "string": STRING, "complex64": C64,
         "complex128": C128, "float8e4m3fn": E4M3FN, "float8e4m3fnuz": E4M3FNUZ, "float8e5m2": E5M2, "float8e5m2fnuz": E5M2FNUZ,
         "uint4": U4, "int4": I4, "float4e2m1": E2M1, "float8e8m0": E8M0, "uint2": U2, "int2": I2}
NAME_OF = {number: name for name, number in NAMES.items()}
NUMPY = DTYPES | {C64: np.complex64, C128: np.complex128}
FLOATS = {F32, F64, F16, BF16}
SMALL_FLOATS = {E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E2M1, E8M0}
SIGNED, UNSIGNED = {I8: 8, I16: 16, I32: 32, I64: 64, I4: 4, I2: 2}, {U8: 8, U16: 16, U32: 32, U64: 64, U4: 4, U2: 2}
INTS = {**SIGNED, **UNSIGNED}
COMPLEX = {C64, C128}
# How far a result of one rounding, of sums of a few terms, may be off: relative, absolute.
TOLERANCE = {F32: (2e-5, 2e-6), F64: (1e-10, 1e-12), F16: (4e-3, 4e-3), BF16: (2e-2, 2e-2), C64: (2e-5, 2e-5), C128: (1e-10, 1e-10)}
LETTERS = np.array(["a", "", "bc", "B", "Zürich", "x y", "7", "ab"], object)


class Crumbs:
    """uint2 and int2: `codes` are the bits of each."""

    def __init__(self, elem_type, codes):
        self.elem_type, self.codes = elem_type, np.asarray(codes, np.uint8)
        self.shape = self.codes.shape

    def values(self):
        return np.where((self.elem_type == I2) & (self.codes > 1), self.codes.astype(np.int64) - 4, self.codes.astype(np.int64))

    def proto(self, name):
        raw = np.append(self.codes.ravel(), np.zeros(-self.codes.size % 4, np.uint8))
        raw = raw[0::4] | raw[1::4] << 2 | raw[2::4] << 4 | raw[3::4] << 6
        return TensorProto(name=name, data_type=self.elem_type, dims=self.shape, raw_data=raw.astype(np.uint8).tobytes())


def type_of(value):
    if isinstance(value, Bf16):
        return BF16
    if isinstance(value, (Small, Crumbs)):
        return value.elem_type
    value = np.asarray(value)
    if value.dtype.kind in "OUS":
        return STRING
    return {np.dtype(v): k for k, v in NUMPY.items()}[value.dtype]


def shape_of(value):
    return tuple(value.shape)


def typed(elem_type, numbers):
    """`numbers` rounded once, or wrapped, to the element type."""
    with np.errstate(all="ignore"):
        if elem_type == BF16:
            return Bf16(np.asarray(numbers, np.float64).astype(np.float32))
        if elem_type in SMALL_FLOATS:
            return Small.rounded(elem_type, numbers)
        if elem_type in INTS:
            bits = INTS[elem_type]
            wrapped = np.vectorize(lambda x: int(x) & ((1 << bits) - 1), otypes=[object])(np.asarray(numbers, object)) if np.size(
                numbers) else np.zeros(np.shape(numbers), object)
            if elem_type in (U4, I4):
                return Small(elem_type, np.asarray(wrapped).astype(np.uint8))
            if elem_type in (U2, I2):
                return Crumbs(elem_type, np.asarray(wrapped).astype(np.uint8))
            return np.asarray(wrapped).astype(f"uint{bits}").astype(NUMPY[elem_type])
        if elem_type == STRING:
            return np.asarray(numbers, object)
        return np.asarray(numbers).astype(NUMPY[elem_type])


def wide(value):
    """Numbers to compute with."""
    if isinstance(value, Bf16) or isinstance(value, Small) and value.elem_type in SMALL_FLOATS:
        return np.asarray(value.values(), np.float64)
    if isinstance(value, (Small, Crumbs)):
        return np.asarray(value.values()).astype(np.int64).astype(object)
    value = np.asarray(value)
    if value.dtype.kind in "iu":
        return np.asarray(value.astype(object))
    return value.astype(np.float64) if value.dtype.kind == "f" else value.astype(np.complex128) if value.dtype.kind == "c" else value


def some(elem_type, shape, rng, low=-2.0, high=2.0):
    """Values that every type of a kind can hold exactly: floats in quarters, small integers."""
    shape = tuple(shape)
    if elem_type == BOOL:
        return np.asarray(rng.randint(0, 2, shape)).astype(bool)
    if elem_type == STRING:
        return np.asarray(LETTERS[rng.randint(0, len(LETTERS), shape)], object)
    if elem_type in COMPLEX:
        return typed(elem_type, rng.randint(-8, 9, shape) / 4 + 1j * rng.randint(-8, 9, shape) / 4)
    if elem_type in INTS:
        edge = 1 if INTS[elem_type] == 2 else 7
        return typed(elem_type, rng.randint(-edge if elem_type in SIGNED else 0, edge + 1, shape))
    if elem_type == E8M0:
        return Small(E8M0, rng.randint(125, 130, shape))
    return typed(elem_type, rng.randint(np.ceil(low * 4), np.floor(high * 4) + 1, shape) / 4)


def proto(value, name=""):
    if isinstance(value, Crumbs):
        return value.proto(name)
    if isinstance(value, np.ndarray) and value.dtype.kind == "c":
        return TensorProto(name=name, data_type=type_of(value), dims=value.shape, raw_data=value.tobytes())
    return tensor(value, name)


def from_proto(message):
    """The value that a TensorProto of the driver holds."""
    dims = tuple(message.dims)
    kind = message.data_type
    if kind == STRING:
        return np.array([s.decode("utf-8", "replace") for s in message.string_data] or [], object).reshape(dims)
    raw = np.frombuffer(message.raw_data, np.uint8)
    count = int(np.prod(dims, dtype=np.int64))
    if kind == BF16:
        value = Bf16(np.zeros(dims))
        value.bits = np.frombuffer(message.raw_data, np.uint16).reshape(dims)
        return value
    if kind in (U4, I4, E2M1):
        return Small(kind, np.stack([raw & 15, raw >> 4], 1).ravel()[:count].reshape(dims))
    if kind in (U2, I2):
        return Crumbs(kind, np.stack([raw >> s & 3 for s in (0, 2, 4, 6)], 1).ravel()[:count].reshape(dims))
    if kind in SMALL_FLOATS:
        return Small(kind, raw.reshape(dims))
    return np.frombuffer(message.raw_data, NUMPY[kind]).reshape(dims)


def bits_of(value):
    """What is compared where results must be the same to the last bit."""
    if isinstance(value, list):
        return [bits_of(v) for v in value]
    if value is None:
        return None
    if isinstance(value, Bf16):
        return BF16, value.shape, value.bits.tobytes()
    if isinstance(value, (Small, Crumbs)):
        return value.elem_type, value.shape, value.codes.tobytes()
    return type_of(value), value.shape, tuple(value.ravel()) if value.dtype.kind == "O" else value.tobytes()


def difference(found, expected, rtol=None, atol=None):
    """What is wrong with `found`; nothing: it is as expected. `expected` may be (elem_type, shape): then only those count,
    and a shape of None is any."""
    if isinstance(expected, list) or isinstance(found, list):
        if not isinstance(expected, list) or not isinstance(found, list) or len(found) != len(expected):
            return f"a sequence of {found if not isinstance(found, list) else len(found)}, want {expected if not isinstance(expected, list) else len(expected)}"
        return next((f"item {i}: {d}" for i, (f, e) in enumerate(zip(found, expected)) if (d := difference(f, e, rtol, atol))), None)
    if expected is None or found is None:
        return None if expected is None and found is None else f"found {found}, want {expected}"
    if isinstance(expected, tuple):
        if type_of(found) != expected[0] or expected[1] is not None and shape_of(found) != tuple(expected[1]):
            return f"{NAME_OF[type_of(found)]}{list(shape_of(found))}, want {NAME_OF[expected[0]]}{list(expected[1] or [])}"
        return None
    kind = type_of(expected)
    if type_of(found) != kind or shape_of(found) != shape_of(expected):
        return f"{NAME_OF[type_of(found)]}{list(shape_of(found))}, want {NAME_OF[kind]}{list(shape_of(expected))}"
    a, b = wide(found), wide(expected)
    if kind in FLOATS or kind in SMALL_FLOATS or kind in COMPLEX:
        usual = TOLERANCE.get(kind, (0, 0))
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= (usual[1] if atol is None else atol) + (usual[0] if rtol is None else rtol) * np.abs(b)
            good = near | (a == b) | (a != a) & (b != b)
    else:
        good = a == b
    if np.all(good):
        return None
    at = np.argwhere(~np.asarray(good))[0] if np.ndim(good) else ()
    return f"at {list(map(int, at))}: {np.asarray(a)[tuple(at)]!r}, want {np.asarray(b)[tuple(at)]!r} ({np.size(good) - np.count_nonzero(good)} of {np.size(good)} differ)"


