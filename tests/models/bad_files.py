"""Collects files that a loader must refuse, and what its message must say; and the wire format of protobuf by hand."""
import json
import os

from onnx_build import F32, Graph, write_file

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = 0, 1, 2, 3, 4, 5


class Files:
    """What expected.json holds. `words` of a file: each must be in the message; a list is a choice of one."""

    def __init__(self, out):
        self.out = out
        self.expected = {"load": {}, "run": {}, "accepted": [], "any": []}

    def load(self, name, content, *words):
        """Loading must fail."""
        self.expected["load"][self._add(name, content)] = list(words)

    def run(self, name, content, *words):
        """Loading may work; then running with inputs of zeros must fail."""
        self.expected["run"][self._add(name, content)] = list(words)

    def accepted(self, name, content):
        """Odd but legal: loading must work."""
        self.expected["accepted"].append(self._add(name, content))

    def any(self, name, content):
        """The format leaves it open, or the bytes are arbitrary: refused or not, but no crash and no hang."""
        self.expected["any"].append(self._add(name, content))

    def side(self, name, content):
        path = os.path.join(self.out, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_file(path, content)

    def finish(self):
        text = json.dumps(self.expected, indent=1, ensure_ascii=False) + "\n"
        self.side("expected.json", text.encode())
        return {kind: len(entries) for kind, entries in self.expected.items()}

    def _add(self, name, content):
        name += ".onnx"
        if any(name in entries for entries in self.expected.values()):
            raise ValueError(f"{name} is made twice")
        self.side(name, content if isinstance(content, bytes) else content.SerializeToString(deterministic=True))
        return name


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def tag(number, wire_type):
    return varint(number << 3 | wire_type)


def message(number, payload):
    """A length-delimited field."""
    return tag(number, BYTES) + varint(len(payload)) + payload


def number_field(number, value):
    return tag(number, VARINT) + varint(value)


def simple(opset=13, op="Relu", **attributes):
    """x -> bad_node -> y, in float32 [2,3]: what most bad files are a variation of."""
    g = Graph("simple")
    g.op(op, g.input("x", F32, [2, 3]), out="y", name="bad_node", **attributes)
    g.output("y", F32, [2, 3])
    return g.model(opset)
