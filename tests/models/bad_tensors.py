"""Tensors whose dims, type and data do not fit together; external data that must not or cannot be read."""
import os

import numpy as np
from onnx import TensorProto

from bad_files import message, number_field, simple
from onnx_build import BF16, BOOL, DTYPES, F16, F32, I4, I64, STRING, Graph, external, info

TYPED_FIELD = {TensorProto.FLOAT: "float_data", TensorProto.DOUBLE: "double_data", TensorProto.INT64: "int64_data",
               TensorProto.UINT32: "uint64_data", TensorProto.UINT64: "uint64_data"}  # the others: int32_data


KNOWN = {*DTYPES, BF16, STRING, I4}


def proto(elem_type, dims, **fields):
    return TensorProto(name="weight_w", data_type=elem_type, dims=dims, **fields)


def initializer(t):
    """t -> use_weight (Identity) -> y, beside an input that makes the model runnable."""
    g = Graph("initializer")
    g.initializers.append(t)
    g.op("Identity", "weight_w", out="y", name="use_weight")
    g.op("Neg", g.input("x", F32, [1]), out="z")
    g.output("y", t.data_type if t.data_type in KNOWN else F32, None)
    g.output("z", F32, [1])
    return g.model(13)


def constant(t):
    g = Graph("constant")
    g.op("Constant", out="c", name="constant_node", value=t)
    g.op("Add", g.input("x", F32, [1]), g.op("Cast", "c", to=F32), out="y")
    g.output("y", F32, None)
    return g.model(13)


def add(files):
    widths = {**{t: np.dtype(d).itemsize for t, d in DTYPES.items()}, BF16: 2}
    for elem_type, width in widths.items():
        name = TensorProto.DataType.Name(elem_type).lower()
        field = TYPED_FIELD.get(elem_type, "int32_data")
        for what, t in (("raw_one_byte_short", proto(elem_type, [3], raw_data=bytes(3 * width - 1))),
                        ("raw_one_value_long", proto(elem_type, [3], raw_data=bytes(4 * width))),
                        ("typed_one_short", proto(elem_type, [3], **{field: [1, 1]})),
                        ("typed_one_long", proto(elem_type, [3], **{field: [1, 1, 1, 1]})),
                        ("no_data", proto(elem_type, [128]))):
            files.load(f"tensors/{name}_{what}", initializer(t), "weight_w")
    files.load("tensors/string_one_short", initializer(proto(STRING, [3], string_data=[b"a", b"b"])), "weight_w")
    files.load("tensors/string_in_raw_data", initializer(proto(STRING, [3], raw_data=b"abc")), "weight_w")
    files.load("tensors/int4_raw_one_byte_short", initializer(proto(I4, [3], raw_data=b"\0")),
               ["weight_w", "use_weight"])  # the operator takes no int4 in this opset

    raw = np.arange(4, dtype=np.float32).tobytes()
    big, kept = 2**32, {}
    for what, t in (
            ("scalar_with_2_values", proto(F32, [], float_data=[1, 2])),
            ("scalar_with_2_raw_values", proto(F32, [], raw_data=raw[:8])),
            ("scalar_without_value", proto(F32, [])),
            ("dim_0_with_data", proto(F32, [2, 0], raw_data=raw)),
            ("floats_in_int64_data", proto(F32, [4], int64_data=[1, 2, 3, 4])),
            ("halves_in_float_data", proto(F16, [4], float_data=[1, 2, 3, 4])),
            ("int64_in_int32_data", proto(I64, [4], int32_data=[1, 2, 3, 4])),
            ("raw_and_typed", proto(F32, [4], raw_data=raw, float_data=[0, 1, 2, 3])),
            ("dims_2_32_x_2_32", proto(F32, [big, big])),
            ("dims_2_32_x_2_32_with_data", proto(F32, [big, big], raw_data=raw)),
            ("dims_2_62_x_4", proto(F32, [2**62, 4])),
            ("dims_2_62_x_4_with_a_byte", proto(BOOL, [2**62, 4], raw_data=b"\1")),
            ("dims_whose_bytes_overflow", proto(F32, [2**62], raw_data=b"")),
            ("dims_2_63_less_1", proto(F32, [2**63 - 1], raw_data=raw)),
            ("dims_of_4_tib", proto(F32, [2**40], raw_data=raw)),
            ("dims_of_4_tib_without_data", proto(F32, [2**40]))):
        kept[what] = t
        files.load(f"tensors/{what}", initializer(t), "weight_w")
    for dim in -1, -2**63:
        t = proto(F32, [2, dim], raw_data=raw)
        files.load(f"tensors/dim_{dim}", initializer(t), "weight_w", str(dim))
    for elem_type in 0, 27, 999, -1:
        files.load(f"tensors/data_type_{elem_type}", initializer(proto(elem_type, [4], raw_data=raw)), "weight_w",
                   str(elem_type))
    untyped = initializer(proto(F32, [4], raw_data=raw))
    untyped.graph.initializer[0].ClearField("data_type")
    files.load("tensors/data_type_missing", untyped, "weight_w")
    model = initializer(proto(F32, [4], raw_data=raw))
    files.load("tensors/data_location_7", _append_to_tensor(model, number_field(14, 7)), "weight_w", "7")

    for what in ("scalar_with_2_values", "dims_2_32_x_2_32", "dims_of_4_tib_without_data", "raw_and_typed",
                 "int64_in_int32_data"):
        files.load(f"tensors/constant_{what}", constant(kept[what]), "constant_node")
    files.any("tensors/dims_that_overflow_before_a_0", initializer(proto(F32, [big, big, 0])))
    files.any("tensors/uint8_300_in_int32_data", initializer(proto(TensorProto.UINT8, [1], int32_data=[300])))
    files.any("tensors/bool_2", initializer(proto(BOOL, [1], raw_data=b"\2")))
    files.any("tensors/nameless", initializer(TensorProto(data_type=F32, dims=[4], raw_data=raw)))

    for what, indices in (("past_the_end", [1, 99]), ("negative", [-1, 2]), ("more_than_values", [0, 1, 2])):
        g = Graph("sparse")
        sparse = g.proto().sparse_initializer.add()
        sparse.dims.append(4)
        sparse.values.CopyFrom(proto(F32, [2], float_data=[1, 2]))
        sparse.indices.CopyFrom(TensorProto(data_type=I64, dims=[len(indices)], int64_data=indices))
        model = initializer(proto(F32, [4], raw_data=raw))
        model.graph.ClearField("initializer")
        model.graph.sparse_initializer.append(sparse)
        files.load(f"tensors/sparse_index_{what}", model, "weight_w")

    def with_input(elem_type, shape):
        model = simple()
        model.graph.input[0].CopyFrom(info("input_x", elem_type, shape))
        model.graph.node[0].input[0] = "input_x"
        return model

    for what, shape in ("negative_dim", [2, -1]), ("dims_that_overflow", [big, big]), ("bytes_that_overflow", [2**62]):
        files.load(f"inputs/{what}", with_input(F32, shape), "input_x")
    for elem_type in 0, 27, 999:
        files.load(f"inputs/elem_type_{elem_type}", with_input(elem_type, [2, 3]), "input_x", str(elem_type))
    untyped = with_input(F32, [2, 3])
    untyped.graph.input[0].type.tensor_type.ClearField("elem_type")
    files.load("inputs/no_elem_type", untyped, "input_x")
    untyped.graph.input[0].ClearField("type")
    files.load("inputs/no_type", untyped, "input_x")
    _add_external(files)


def _append_to_tensor(model, field):
    """Appends a field to the first initializer, one that Python would refuse to write; returns bytes."""
    tensor = message(5, model.graph.initializer[0].SerializeToString(deterministic=True))
    longer = message(5, model.graph.initializer[0].SerializeToString(deterministic=True) + field)
    graph = model.graph.SerializeToString(deterministic=True).replace(tensor, longer)
    model.ClearField("graph")
    return model.SerializeToString(deterministic=True) + message(7, graph)


def _add_external(files):
    """external/weights.bin has 64 bytes; outside.bin, one folder up, looks just as good and must not be read."""
    numbers = np.arange(16, dtype=np.float32).tobytes()
    files.side("external/weights.bin", numbers)
    files.side("external/sixteen.bin", numbers[:16])
    files.side("external/sub/inner.bin", numbers[:16])
    files.side("outside.bin", numbers[:16])
    folder = os.path.join(files.out, "external")
    for link, to in ("link.bin", "../outside.bin"), ("linked", ".."):
        if not os.path.lexists(os.path.join(folder, link)):
            os.symlink(to, os.path.join(folder, link))
    if not os.path.exists(os.path.join(folder, "pipe")):
        os.mkfifo(os.path.join(folder, "pipe"))

    def model(elem_type=F32, dims=(4,), **entries):
        return initializer(external("weight_w", elem_type, dims, **entries))

    outside = os.path.abspath(os.path.join(files.out, "outside.bin"))
    for what, location in (
            ("parent", "../outside.bin"), ("parent_after_a_folder", "sub/../../outside.bin"),
            ("parent_after_a_missing_folder", "missing/../../outside.bin"), ("parent_after_a_dot", "./../outside.bin"),
            ("parent_after_slashes", "sub//..//..//outside.bin"), ("absolute", outside),
            ("absolute_twice", "/" + outside), ("device", "/dev/zero"), ("drive_letter", "C:\\outside.bin"),
            ("drive_letter_slash", "C:/outside.bin"),
            ("backslash_parent", "..\\outside.bin"), ("share", "\\\\server\\outside.bin"), ("missing", "missing.bin"),
            ("missing_folder", "missing/weights.bin"), ("link_to_outside", "link.bin"),
            ("folder_link_to_outside", "linked/outside.bin"), ("folder", "sub"), ("pipe", "pipe"),
            ("below_a_file", "weights.bin/x"), ("long", "x" * 5000)):
        files.load(f"external/location_{what}", model(location=location), "weight_w", location[-100:])
    files.load("external/location_dot", model(location="."), "weight_w")
    files.load("external/location_empty", model(location=""), "weight_w")
    files.load("external/location_none", model(offset=0, length=16), "weight_w")
    files.load("external/location_with_nul", model(location="sixteen.bin\0.png"), "weight_w")

    for what, entries in (
            ("offset_past_the_end", dict(offset=65, length=16)), ("range_past_the_end", dict(offset=52, length=16)),
            ("offset_2_64_less_8", dict(offset=2**64 - 8, length=16)), ("offset_2_64", dict(offset=2**64, length=16)),
            ("offset_2_63", dict(offset=2**63, length=16)), ("offset_of_40_digits", dict(offset=10**39, length=16)),
            ("offset_negative", dict(offset=-4, length=16)), ("offset_a_word", dict(offset="four", length=16)),
            ("offset_with_a_tail", dict(offset="4x", length=16)), ("offset_empty", dict(offset="", length=16)),
            ("offset_hexadecimal", dict(offset="0x10", length=16)), ("length_short", dict(offset=0, length=15)),
            ("length_long", dict(offset=0, length=17)), ("length_0", dict(offset=0, length=0)),
            ("length_2_64", dict(offset=0, length=2**64)), ("length_2_64_and_16", dict(offset=0, length=2**64 + 16)),
            ("length_negative", dict(offset=0, length=-16)), ("length_a_word", dict(offset=0, length="all")),
            ("rest_of_file_too_long", dict(offset=16)), ("rest_of_file_too_short", dict(offset=56))):
        files.load(f"external/{what}", model(location="weights.bin", **entries), "weight_w")
    files.load("external/dims_of_4_tib", model(dims=[2**40], location="weights.bin"), "weight_w")
    files.load("external/dims_2_32_x_2_32", model(dims=[2**32, 2**32], location="weights.bin"), "weight_w")
    files.load("external/dim_negative", model(dims=[-4], location="sixteen.bin"), "weight_w")
    files.load("external/strings", model(elem_type=STRING, location="sixteen.bin"), "weight_w")
    both = model(location="sixteen.bin")
    both.graph.initializer[0].raw_data = numbers[:16]
    files.load("external/raw_data_as_well", both, "weight_w")
    default = model(location="sixteen.bin")
    default.graph.initializer[0].data_location = TensorProto.DEFAULT
    files.load("external/location_is_default", default, "weight_w")
    files.load("external/constant_parent", constant(external("", F32, [4], location="../outside.bin")), "constant_node",
               "../outside.bin")

    for what, entries in (("whole_file", dict(location="sixteen.bin")),
                          ("last_bytes", dict(location="weights.bin", offset=48)),
                          ("middle", dict(location="weights.bin", offset=20, length=16)),
                          ("sub_folder", dict(location="sub/inner.bin")), ("dot", dict(location="./sixteen.bin")),
                          ("back_inside", dict(location="sub/../sixteen.bin")),
                          ("unknown_key", dict(location="sixteen.bin", colour="red")),
                          ("checksum", dict(location="sixteen.bin", checksum="0" * 40))):
        files.accepted(f"external/good_{what}", model(**entries))
    files.accepted("external/good_no_values", model(dims=[0], location="weights.bin", offset=64, length=0))
