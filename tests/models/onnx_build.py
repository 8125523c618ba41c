"""Helpers of make_models.py and make_bad_models.py: a short way to write ONNX graphs, and the files of a test case.

Needs Debian's python3-onnx (1.12) and numpy. What python3-onnx 1.12 lacks, as arrays of bfloat16, is here.
"""
import os

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

F32, F64, F16, BF16 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16
I8, I16, I32, I64 = TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64
U8, U16, U32, U64 = TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64
BOOL, STRING = TensorProto.BOOL, TensorProto.STRING
# Newer than python3-onnx 1.12.
E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, U4, I4, E2M1, E8M0 = 17, 18, 19, 20, 21, 22, 23, 24

DTYPES = {F32: np.float32, F64: np.float64, F16: np.float16, I8: np.int8, I16: np.int16, I32: np.int32, I64: np.int64,
          U8: np.uint8, U16: np.uint16, U32: np.uint32, U64: np.uint64, BOOL: np.bool_}
ELEM_TYPES = {np.dtype(v): k for k, v in DTYPES.items()}


class Bf16:
    """Values that are stored as bfloat16: rounded to nearest, ties to even."""

    def __init__(self, values):
        values = np.asarray(values, np.float32)
        bits = np.frombuffer(values.tobytes(), np.uint32).reshape(values.shape).astype(np.int64)
        self.bits = np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        self.shape = self.bits.shape

    def values(self):
        return np.frombuffer((self.bits.astype(np.uint32) * 65536).astype(np.uint32).tobytes(), np.float32).reshape(self.shape)


class Small:
    """Values of 8 or 4 bits that numpy has no type for: `codes` are the bits of each. Rounding is a search in the list
    of all values: the nearest, of two the one with an even code."""

    FLOATS = {E4M3FN: (3, 7, 8), E4M3FNUZ: (3, 8, 8), E5M2: (2, 15, 8), E5M2FNUZ: (2, 16, 8), E2M1: (1, 1, 4)}

    def __init__(self, elem_type, codes):
        self.elem_type, self.codes = elem_type, np.asarray(codes, np.uint8)
        self.shape = self.codes.shape

    @classmethod
    def table(cls, elem_type):
        """The value of each code."""
        if elem_type in (U4, I4):
            return np.float64([c - 16 if elem_type == I4 and c > 7 else c for c in range(16)])
        if elem_type == E8M0:
            return np.float64([2.0 ** (c - 127) for c in range(255)] + [np.nan])
        mantissa, bias, bits = cls.FLOATS[elem_type]
        sign, values = 1 << (bits - 1), []
        for code in range(1 << bits):
            exponent, fraction = (code & (sign - 1)) >> mantissa, code & ((1 << mantissa) - 1)
            value = (fraction / 2**mantissa * 2.0 ** (1 - bias) if exponent == 0 else
                     (1 + fraction / 2**mantissa) * 2.0 ** (exponent - bias))
            values.append(-value if code & sign else value)
        values = np.float64(values)
        if elem_type == E4M3FN:
            values[[0x7f, 0xff]] = np.nan
        if elem_type in (E4M3FNUZ, E5M2FNUZ):
            values[0x80] = np.nan
        if elem_type == E5M2:
            values[0x7c], values[0xfc] = np.inf, -np.inf
            values[[0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff]] = np.nan
        return values

    @classmethod
    def rounded(cls, elem_type, values, saturate=True):
        table, codes = cls.table(elem_type), []
        finite = np.array([c for c in range(len(table)) if np.isfinite(table[c])])
        most, least = table[finite].max(), table[finite].min()
        nan = next((c for c in range(len(table)) if np.isnan(table[c])), None)
        # More than half a step behind the largest value a number is too large, and there too where that value is odd.
        odd = finite[table[finite] == most][0] % 2
        limit = most + (most - np.sort(table[finite])[-2]) / 2
        for x in np.asarray(values, np.float64).ravel():
            if np.isnan(x):
                codes.append(nan if nan is not None else np.argmax(table) if elem_type == E2M1 else np.argmin(table))
            elif np.isinf(x) and elem_type in (E4M3FNUZ, E5M2FNUZ):
                codes.append(nan)
            elif (abs(x) > limit or abs(x) == limit and odd) and not saturate and elem_type in cls.FLOATS and \
                    elem_type != E2M1:
                infinite = [c for c in range(len(table)) if table[c] == np.sign(x) * np.inf]
                codes.append(infinite[0] if infinite else nan)
            else:
                distance = np.abs(table[finite] - np.clip(x, least, most))
                near = finite[distance == distance.min()]
                if not np.any(table[near]):  # zeros: with the sign of x where there are two
                    near = near[::-1] if np.signbit(x) else near
                elif len(near) > 1:
                    near = near[near % 2 == 0]
                codes.append(near[0])
        return cls(elem_type, np.reshape(codes, np.shape(values)))

    def values(self):
        return self.table(self.elem_type)[self.codes]

    def proto(self, name):
        raw = self.codes.ravel()
        if self.elem_type in (U4, I4, E2M1):
            raw = np.append(raw, np.zeros(len(raw) % 2, np.uint8))
            raw = raw[0::2] | raw[1::2] << 4
        return TensorProto(name=name, data_type=self.elem_type, dims=self.shape, raw_data=raw.astype(np.uint8).tobytes())


def tensor(value, name=""):
    """A TensorProto with its data in raw_data; strings in string_data."""
    if isinstance(value, Small):
        return value.proto(name)
    if isinstance(value, Bf16):
        return TensorProto(name=name, data_type=BF16, dims=value.shape, raw_data=value.bits.tobytes())
    value = np.asarray(value)
    if value.dtype == object or value.dtype.kind in "US":
        strings = [s if isinstance(s, bytes) else s.encode() for s in value.ravel().tolist()]
        return TensorProto(name=name, data_type=STRING, dims=value.shape, string_data=strings)
    return TensorProto(name=name, data_type=ELEM_TYPES[value.dtype], dims=value.shape, raw_data=value.tobytes())


def sequence(values, name=""):
    return onnx.SequenceProto(name=name, elem_type=onnx.SequenceProto.TENSOR, tensor_values=[tensor(v) for v in values])


def info(name, elem_type, shape):
    """ValueInfoProto of a tensor; a dim is a number, a symbol, or None; shape None: unknown rank."""
    return helper.make_tensor_value_info(name, elem_type, shape)


def external(name, elem_type, dims, **entries):
    """A TensorProto whose data lies in another file; `entries` are location, offset, length."""
    t = TensorProto(name=name, data_type=elem_type, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        t.external_data.add(key=key, value=str(value))
    return t


def node(op, inputs, outputs, name="", domain="", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes)


def attribute_reference(name, kind, outer):
    """An attribute inside a function's body that takes its value from the caller's attribute `outer`."""
    return AttributeProto(name=name, type=kind, ref_attr_name=outer)


class Graph:
    """Collects the parts of a GraphProto. op() names nodes and outputs by itself, so that a case shows only the
    operators; the name of the value goes in and out as a plain string."""

    def __init__(self, name, prefix=""):
        self.name, self.prefix = name, prefix
        self.nodes, self.inputs, self.outputs, self.initializers, self.value_info = [], [], [], [], []
        self.used = 0

    def input(self, name, elem_type, shape):
        self.inputs.append(info(name, elem_type, shape))
        return name

    def output(self, name, elem_type, shape):
        self.outputs.append(info(name, elem_type, shape))
        return name

    def const(self, value, name=None):
        """An initializer. Python numbers become float32 or int64."""
        if not isinstance(value, (np.ndarray, np.generic, Bf16, Small)):
            value = np.asarray(value)
            if value.dtype == np.float64:
                value = value.astype(np.float32)
        name = name or self._fresh("c")
        self.initializers.append(tensor(value, name))
        return name

    def op(self, op, *inputs, out=None, outs=1, name=None, domain="", **attributes):
        """Adds a node; returns its output's name, or a list when `outs` is above 1 or `out` is a list."""
        outputs = out if isinstance(out, list) else [out] if out else [self._fresh(op.lower()) for _ in range(outs)]
        name = name if name is not None else f"{self.prefix}{op}_{len(self.nodes)}"
        self.nodes.append(node(op, list(inputs), outputs, name, domain, **attributes))
        return outputs if isinstance(out, list) or outs > 1 else outputs[0]

    def proto(self):
        return helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.initializers,
                                 value_info=self.value_info)

    def model(self, opset=13, ir=None, functions=(), **domains):
        """`domains`: further imports, a domain's dots written as underscores."""
        imports = [helper.make_opsetid("", opset)]
        imports += [helper.make_opsetid(domain.replace("_", "."), version) for domain, version in domains.items()]
        ir = ir or (8 if opset >= 15 or functions else 7 if opset >= 12 else 6 if opset >= 11 else 4)
        return helper.make_model(self.proto(), opset_imports=imports, ir_version=ir, functions=list(functions),
                                 producer_name="belay-tests")

    def _fresh(self, stem):
        self.used += 1
        return f"{self.prefix}{stem}_{self.used}"


class Case:
    """A model, its side files, and runs: each a list of inputs and a list of outputs in the graph's order."""

    def __init__(self, model, *runs, files=None, rtol=None, atol=None, check=True, beyond=False):
        self.model, self.runs, self.files = model, runs, files or {}
        self.rtol, self.atol = rtol, atol
        self.beyond = beyond  # the example of a device does not serve all of its operators or types
        self.check = check  # False: legal, but python3-onnx 1.12's checker does not think so

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        for name, content in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_file(path, content)
        write_file(os.path.join(folder, "model.onnx"), self.model.SerializeToString(deterministic=True))
        if self.rtol is not None or self.atol is not None:  # for tests that read no JSON
            write_file(os.path.join(folder, "tolerance"), f"{self.rtol or 1e-4} {self.atol or 0}\n".encode())
        if self.check:
            onnx.checker.check_model(os.path.join(folder, "model.onnx"))
        for i, (inputs, outputs) in enumerate(self.runs):
            where = os.path.join(folder, f"test_data_set_{i}")
            os.makedirs(where, exist_ok=True)
            for kind, values, declared in ("input", inputs, self.model.graph.input), ("output", outputs,
                                                                                    self.model.graph.output):
                for k, value in enumerate(values):
                    to = sequence if isinstance(value, list) else tensor
                    write_file(os.path.join(where, f"{kind}_{k}.pb"), to(value, declared[k].name).SerializeToString())


def write_file(path, content):
    with open(path, "wb") as file:
        file.write(content)
