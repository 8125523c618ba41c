"""A model of one large table of weights that kernels read where it lies, for bench_zerocopy.

  make_big_model.py FOLDER MIB    writes FOLDER/big.onnx and FOLDER/big.bin
"""
import pathlib
import sys

import numpy
from onnx import TensorProto, helper

folder, rows = pathlib.Path(sys.argv[1]), int(sys.argv[2]) * (1 << 20) // 64
folder.mkdir(parents=True, exist_ok=True)
with open(folder / "big.bin", "wb") as file:
    for begin in range(0, rows, 1 << 16):
        count = min(1 << 16, rows - begin)
        file.write((numpy.arange(count * 16, dtype=numpy.float32) + numpy.float32(begin)).tobytes())
table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[rows, 16], data_location=TensorProto.EXTERNAL)
table.external_data.add(key="location", value="big.bin")
graph = helper.make_graph([helper.make_node("Gather", ["table", "rows"], ["y"])], "g",
                          [helper.make_tensor_value_info("rows", TensorProto.INT64, [4])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])], [table])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
model.ir_version = 8
(folder / "big.onnx").write_bytes(model.SerializeToString())
