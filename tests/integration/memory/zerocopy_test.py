"""What `belay` shares and copies of models made here with NumPy, whose outputs are compared with NumPy's.

  zerocopy_test.py PROGRAM
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
from onnx import TensorProto, helper

PROGRAM = sys.argv.pop(1)


def gather_model(folder, name, rows, offset):
    """y = table[rows] + bias, with table and bias in a file beside it; the table begins at `offset`."""
    table = numpy.arange(rows * 16, dtype=numpy.float32).reshape(rows, 16) / 7
    bias = numpy.linspace(-1, 1, 16, dtype=numpy.float32)
    end = offset + table.nbytes
    bias_at = (end + 63) // 64 * 64
    (folder / (name + ".bin")).write_bytes(bytes(offset) + table.tobytes() + bytes(bias_at - end) + bias.tobytes())
    tensors = []
    for label, array, at in (("table", table, offset), ("bias", bias, bias_at)):
        tensor = TensorProto(name=label, data_type=TensorProto.FLOAT, dims=array.shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", name + ".bin"), ("offset", str(at)), ("length", str(array.nbytes))):
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "rows"], ["picked"]), helper.make_node("Add", ["picked", "bias"], ["y"])], "g",
        [helper.make_tensor_value_info("rows", TensorProto.INT64, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (folder / (name + ".onnx")).write_bytes(model.SerializeToString())
    return table, bias


class ZerocopyTest(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.work.name)

    def tearDown(self):
        self.work.cleanup()

    def belay(self, *args):
        done = subprocess.run([PROGRAM, *args], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def run_rows(self, name, table, bias, *more):
        rows = numpy.array([3, 0, len(table) - 1, 3])
        numpy.save(self.folder / "rows.npy", rows)
        told = json.loads(self.belay("run", name + ".onnx", "-i", "rows.npy", "-o", "out", "--json", *more))
        numpy.testing.assert_array_equal(numpy.load(self.folder / "out/y.npy"), table[rows] + bias)
        return told

    def test_weights_of_a_file_are_used_there_where_they_are_aligned(self):
        table, bias = gather_model(self.folder, "aligned", 1000, 4096)
        stats = json.loads(self.belay("inspect", "aligned.onnx", "--json"))
        self.assertEqual(stats["stats"]["borrowed_bytes"], table.nbytes + bias.nbytes)
        self.assertEqual(stats["stats"]["copied_bytes"], 0)
        self.assertEqual(stats["description"]["memory"]["copies"], [])
        self.run_rows("aligned", table, bias)

    def test_weights_that_are_not_are_copied_once_with_the_reason(self):
        table, bias = gather_model(self.folder, "odd", 1000, 4097)
        stats = json.loads(self.belay("inspect", "odd.onnx", "--json"))
        self.assertEqual(stats["stats"]["borrowed_bytes"], bias.nbytes)
        self.assertEqual(stats["stats"]["copied_bytes"], table.nbytes)
        (copy,) = stats["description"]["memory"]["copies"]
        self.assertEqual((copy["name"], copy["bytes"]), ("table", table.nbytes))
        self.assertRegex(copy["reason"], "^its address 0x[0-9a-f]*1 is not aligned to 4 bytes")
        self.assertRegex(self.belay("inspect", "odd.onnx"), r"copied +62.5 KiB +table +because its address 0x")
        self.run_rows("odd", table, bias)

    def test_weights_are_copied_where_the_configuration_says_so(self):
        table, bias = gather_model(self.folder, "copied", 1000, 4096)
        for keys, reason in (("engine.weights=copy", '[engine] weights is "copy"'),
                             ("plugin.zerocopy.config.least=1GiB", "plugin.zerocopy.config.least")):
            told = json.loads(self.belay("inspect", "copied.onnx", "--json", "--set", keys))
            self.assertEqual(told["stats"]["borrowed_bytes"], 0)
            self.assertEqual(told["stats"]["copied_bytes"], table.nbytes + bias.nbytes)
            self.assertIn(reason, told["description"]["memory"]["copies"][0]["reason"])
            self.run_rows("copied", table, bias, "--set", keys)

    def test_a_run_copies_nothing(self):
        table, bias = gather_model(self.folder, "model", 100, 64)
        told = self.run_rows("model", table, bias)
        self.assertEqual([(io["shared_bytes"], io["copied_bytes"], io["copy_reason"]) for io in told["inputs"] + told["outputs"]],
                         [(32, 0, None), (256, 0, None)])
        self.assertIn("memory  inputs 32 B shared, 0 B copied; outputs 256 B shared, 0 B copied",
                      self.belay("run", "model.onnx", "-i", "rows.npy"))
        bench = json.loads(self.belay("bench", "model.onnx", "--runs", "20", "--warmup", "0", "--json"))["memory"]
        self.assertEqual(bench["run_inputs"], {"shared_bytes": 32, "copied_bytes": 0, "copied_first": None})
        self.assertEqual(bench["run_outputs"], {"shared_bytes": 256, "copied_bytes": 0, "copied_first": None})
        told = self.run_rows("model", table, bias, "--set", "plugin.zerocopy.config.least=1KiB")
        self.assertEqual([io["copied_bytes"] for io in told["inputs"]], [32])
        self.assertIn("fewer than the 1024", told["inputs"][0]["copy_reason"])


if __name__ == "__main__":
    unittest.main()
