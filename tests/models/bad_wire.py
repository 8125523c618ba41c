"""Bytes that are no protobuf message, or end too early; and odd encodings that are legal."""
import numpy as np

from bad_files import BYTES, END_GROUP, FIXED32, FIXED64, GROUP, VARINT, message, number_field, simple, tag, varint
from cases_control import branch
from onnx_build import F32, Graph

GRAPH, OPSET = 7, 8  # fields of ModelProto


def rich_model():
    """A little of everything, so that cuts and flips meet all kinds of fields."""
    g = Graph("rich")
    x = g.input("x", F32, ["n", 3])
    w = g.const(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
    y = g.op("Gemm", x, w, g.const([0.5, 1.5]), alpha=0.5)
    y = g.op("Transpose", g.op("Reshape", y, g.const(np.int64([-1, 2]))), perm=[1, 0])
    flag = g.op("Greater", g.op("ReduceSum", y, keepdims=0), g.const(0.0))
    g.op("If", flag, out="y", then_branch=branch("then", lambda b: [b.op("Neg", y)]),
         else_branch=branch("else", lambda b: [b.op("Add", y, b.op("Constant", value_floats=[1.0]))]))
    g.output("y", F32, [2, "n"])
    return g.model(13)


def add(files):
    rng = np.random.RandomState(11)
    whole = rich_model().SerializeToString(deterministic=True)
    # opset_import comes last, so that no cut leaves a whole model.
    for length in sorted({*range(1, 60), *range(60, len(whole), 13), *range(len(whole) - 12, len(whole))}):
        files.load(f"truncated/{length:04}", whole[:length])
    for i in range(150):
        flipped = bytearray(whole)
        for at in rng.randint(0, len(whole), 1 + i % 3):
            flipped[at] = rng.randint(0, 256)
        files.any(f"mutated/{i:03}", bytes(flipped))
    for i in range(30):
        cut = sorted(rng.randint(0, len(whole), 2))
        files.any(f"mutated/without_{i:02}", whole[:cut[0]] + whole[cut[1]:])

    files.load("wire/empty", b"")
    for length in 1, 10, 100, 4096, 65536:
        files.load(f"wire/random_{length}", rng.bytes(length))
    files.load("wire/zeros", bytes(1000))
    files.load("wire/ones", b"\xff" * 1000)
    files.load("wire/text", b"This is a text, and no model at all.\n" * 20)
    files.load("wire/html", b"<!DOCTYPE html><html><body>404: not found</body></html>")
    files.load("wire/png", b"\x89PNG\r\n\x1a\n" + rng.bytes(200))
    files.load("wire/gzip", b"\x1f\x8b\x08\x00" + rng.bytes(200))
    files.load("wire/git_lfs_pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64)

    model = simple()
    good = model.SerializeToString(deterministic=True)
    graph = model.graph.SerializeToString(deterministic=True)
    ir, opset = number_field(1, 7), message(OPSET, message(1, b"") + number_field(2, 13))

    def with_graph(graph):
        return ir + message(GRAPH, graph) + opset

    files.load("wire/varint_of_11_bytes", tag(1, VARINT) + b"\xff" * 10 + b"\x01" + message(GRAPH, graph) + opset)
    for name, length in (("4_gib_and_4", 2**32 + 4), ("2_gib", 2**31), ("max_int64", 2**63 - 1),
                         ("max_uint64", 2**64 - 1)):
        files.load(f"wire/length_{name}", ir + opset + tag(GRAPH, BYTES) + varint(length) + graph[:4])
        tensor = message(8, b"weight_w") + number_field(2, 1) + tag(9, BYTES) + varint(length) + b"\0" * 4
        files.load(f"wire/length_{name}_of_raw_data", with_graph(graph + message(5, tensor)))
    # 4 GiB and the right length: right when cut to 32 bits.
    files.load("wire/length_right_in_32_bits", ir + opset + tag(GRAPH, BYTES) + varint(2**32 + len(graph)) + graph)
    files.load("wire/length_one_too_long", ir + opset + tag(GRAPH, BYTES) + varint(len(graph) + 1) + graph)
    files.load("wire/node_longer_than_graph", with_graph(graph + tag(1, BYTES) + varint(100) + b"\x0a\x01x"))
    for wire_type in 6, 7:
        files.load(f"wire/wire_type_{wire_type}", good + tag(100, wire_type) + b"\0\0")
        files.load(f"wire/wire_type_{wire_type}_in_graph", with_graph(graph + tag(100, wire_type) + b"\0\0"))
    files.load("wire/field_number_0", good + tag(0, VARINT) + b"\x01")
    files.load("wire/group_never_ended", good + tag(100, GROUP) + number_field(1, 1))
    files.load("wire/group_never_begun", good + tag(100, END_GROUP))
    files.load("wire/garbage_at_the_end", good + b"\xff\xff\xff")
    files.load("wire/zero_byte_at_the_end", good + b"\0")
    files.load("wire/graph_is_a_number", ir + number_field(GRAPH, 5) + opset)
    files.load("wire/ir_version_is_bytes", message(1, b"\x07") + message(GRAPH, graph) + opset)
    files.load("wire/op_type_is_a_number", with_graph(graph.replace(message(4, b"Relu"), number_field(4, 12345))))

    def with_tensor(*fields):
        """The tensor weight_w of type float, built by hand; the graph gives it out as well."""
        value_info = model.graph.output[0].SerializeToString().replace(b"y", b"weight_w", 1)
        value_info = value_info.replace(b"\x0a\x01weight_w", message(1, b"weight_w"))
        return with_graph(graph + message(5, message(8, b"weight_w") + number_field(2, 1) + b"".join(fields))
                          + message(12, value_info))

    dims = number_field(1, 2) + number_field(1, 3)
    six = np.arange(6, dtype=np.float32)
    files.accepted("wire/dims_packed", with_tensor(message(1, b"\x02\x03"), message(9, six.tobytes())))
    files.accepted("wire/floats_packed", with_tensor(dims, message(4, six.tobytes())))
    files.accepted("wire/floats_not_packed", with_tensor(dims, *[tag(4, FIXED32) + v.tobytes() for v in six]))
    files.accepted("wire/floats_packed_in_two_parts",
                   with_tensor(dims, message(4, six[:2].tobytes()), message(4, six[2:].tobytes())))
    files.load("wire/packed_dims_end_in_a_varint", with_tensor(message(1, b"\x02\x83"), message(9, six.tobytes())))
    files.load("wire/packed_floats_of_23_bytes", with_tensor(dims, message(4, six.tobytes()[:23])))
    files.load("wire/raw_data_is_a_number", with_tensor(dims, number_field(9, 5)))

    unknown = (number_field(1000, 5) + message(1001, b"later") + tag(1002, FIXED32) + b"1234" + tag(1003, FIXED64)
               + b"12345678" + number_field(2**29 - 1, 1))
    files.accepted("wire/unknown_fields", unknown + ir + message(GRAPH, unknown + graph) + opset + unknown)
    files.accepted("wire/fields_in_another_order", opset + message(GRAPH, graph) + ir)
    files.accepted("wire/long_varint", tag(1, VARINT) + b"\x87\x80\x00" + message(GRAPH, graph) + opset)
    files.any("wire/unknown_group", good + tag(100, GROUP) + number_field(1, 1) + tag(100, END_GROUP))
    files.any("wire/two_graphs", good + message(GRAPH, graph))
    files.any("wire/value_name_not_utf8", good.replace(b"\x01y", b"\x01\xff"))
    files.any("wire/node_name_not_utf8", good.replace(b"bad_node", b"bad_\xc3\x28\xff\xfe"))
    files.any("wire/value_name_with_nul", good.replace(b"\x01y", b"\x01\0"))
