#!/usr/bin/python3
"""Writes the corpora of the fuzz targets beside it: small files of every kind. Needs python3-onnx and a build.

  make_corpus.py MODELS PRINT_ONNX
MODELS is the folder that tests/models/make_models.py writes, PRINT_ONNX the program of tests/plugins/formats/onnx.
"""
import io
import pathlib
import subprocess
import sys

import numpy as np
from onnx import SequenceProto, TensorProto, helper, numpy_helper

LARGEST = 1000  # bytes of a model: small inputs make fuzzing fast


def write(folder, name, content):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)


def attributes_model():
    """One node with every kind of attribute that a frozen graph has."""
    tensor = numpy_helper.from_array(np.float32([1, 2]), "t")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "g", [], [])
    node = helper.make_node("Anything", ["x", "", "x"], ["y"], domain="com.microsoft", f=1.0, i=2, s="text", t=tensor, g=graph,
                            fs=[1.0, 2.0], is_=[1, 2], ss=["a", "b"], ts=[tensor, tensor])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", None, 3])
    x = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    main = helper.make_graph([node], "main", [x], [y], value_info=[y])
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)])


def typed_model():
    """An initializer of each element type, typed and raw, and one in a side file."""
    nodes, tensors = [], []
    for dtype in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15):
        values = [1] * 2
        for raw in False, True:
            name = f"w{dtype}{raw}"
            width = helper.mapping.TENSOR_TYPE_TO_NP_TYPE[dtype].itemsize
            tensors.append(helper.make_tensor(name, dtype, [2], bytes(2 * width) if raw else values, raw=raw))
            nodes.append(helper.make_node("Identity", [name], ["y" + name]))
    tensors.append(helper.make_tensor("strings", 8, [2], [b"a", b"bc"]))
    side = TensorProto(name="side", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in ("location", "a/w.bi"), ("offset", "8"), ("length", "8"):
        side.external_data.add(key=key, value=value)
    tensors.append(side)
    outputs = [helper.make_tensor_value_info(n.output[0], 1, None) for n in nodes[:1]]
    return helper.make_model(helper.make_graph(nodes, "typed", [], outputs, initializer=tensors), opset_imports=[helper.make_opsetid("", 13)])


def main():
    here = pathlib.Path(__file__).parent
    models = {path.parent.name: path.read_bytes() for path in sorted(pathlib.Path(sys.argv[1]).glob("*/model.onnx"))
              if path.stat().st_size < LARGEST}
    models |= {"attributes": attributes_model().SerializeToString(), "typed": typed_model().SerializeToString()}
    for name, content in models.items():
        write(here / "corpus", name + ".onnx", content)
        image = subprocess.run([sys.argv[2], "--image", here / "corpus" / (name + ".onnx")], capture_output=True)
        if image.returncode == 0:
            write(here / "image_corpus", name + ".graph", image.stdout)

    tensors = here / "tensor_corpus"
    for name, array in (("f32", np.float32([[1, 2], [3, 4]])), ("fortran", np.asfortranarray(np.int16([[1, 2], [3, 4]]))),
                        ("big", np.array([1, 2], ">i4")), ("text", np.array(["a", "\u00e9"])), ("bytes", np.array([b"ab", b"c"])),
                        ("empty", np.zeros((0, 3), bool)), ("scalar", np.complex64(1)), ("half", np.float16([1]))):
        file = io.BytesIO()
        np.save(file, array)
        write(tensors, name + ".npy", file.getvalue())
    one = helper.make_tensor("t", TensorProto.INT8, [3], [1, -2, 3])
    write(tensors, "typed.pb", one.SerializeToString())
    write(tensors, "raw.pb", numpy_helper.from_array(np.float64([1, 2])).SerializeToString())
    write(tensors, "strings.pb", helper.make_tensor("s", TensorProto.STRING, [2], [b"a", b"bc"]).SerializeToString())
    write(tensors, "sequence.pb", helper.make_sequence("q", SequenceProto.TENSOR, [one, one]).SerializeToString())


if __name__ == "__main__":
    main()
