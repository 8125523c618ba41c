"""What an example of an operator is made from: the operator's version and one choice of element types."""
import zlib

import numpy as np

from drive import Use
from values import BF16, F16, F32, F64, some, typed, wide


class Context:
    def __init__(self, domain, op, version, types):
        self.domain, self.op, self.v, self.types = domain, op, version, types
        self.rng = np.random.RandomState(zlib.crc32(f"{op} {version} {sorted(types.items())}".encode()))

    def t(self, variable="T"):
        return self.types[variable]

    def x(self, variable, *shape, low=-2.0, high=2.0):
        """Values of the element type of a type variable (or of the element type itself)."""
        return some(self.kind(variable), shape, self.rng, low, high)

    def kind(self, variable):
        return self.types[variable] if isinstance(variable, str) else variable

    def as_(self, variable, numbers):
        return typed(self.kind(variable), numbers)

    def ints(self, *values, kind=None):
        return typed(kind or 7, np.array(values, object).reshape(len(values)))

    def use(self, inputs, expected, **attributes):
        # A version below 7 is in force at opset 7, the oldest that is loaded.
        version = self.v if self.domain else max(self.v, 7)
        return Use(self.op, inputs, expected, domain=self.domain, version=version, **attributes)


def is_float(elem_type):
    return elem_type in (F32, F64, F16, BF16)


def w(*values):
    """The numbers of values to compute with."""
    return wide(values[0]) if len(values) == 1 else [wide(v) for v in values]
