"""`belay compare`: two configurations, and a peer.

  compare_test.py PROGRAM MODEL FOLDER    FOLDER: what tests/models/make_models.py wrote; the peer is compared where BELAY_ORT_LIB names its library
"""
import json
import os
import sys
import unittest

from program import ProgramTest

COMPARISON = {"equal": bool, "reason": str, "elements": int, "differing": int,
              "worst_difference": (int, float, type(None)), "worst_at": list}
FIRST = {"node": str, "op": str, "domain": str, "version": int, "around": list, "value": str, "type": str, "inputs": [str],
         "kernel_a": str, "kernel_b": str, "fused": bool, "comparison": COMPARISON}
EXACT = ["--rtol", "0", "--atol", "0"]


class CompareTest(ProgramTest):
    model = models = None

    def compare(self, *arguments, code=0, **options):
        return self.json("compare", *arguments, "--model", self.model, "--shape", "N=2", "--random",
                         schema="belay.compare/1", code=code, **options)

    def test_two_configurations_that_agree(self):
        made = self.compare("default", "--set-b", "engine.winograd=false", "--bisect")
        self.assertTrue(made["equal"])
        self.assertEqual((made["a"], made["b"]), ("default", "default with engine.winograd=false"))
        self.assertEqual(made["bisect"], {"first": None, "values_compared": 0, "values_not_given": 0})
        for output in made["outputs"]:
            self.assert_shape(output, {"name": str, "type": str, "comparison": COMPARISON})

    def test_the_first_node_that_differs_is_named_with_what_ran_it(self):
        self.write("plain.toml", self.belay("config", "show", "--set", "engine.winograd=false").stdout)
        made = self.compare("default", "plain.toml", "--bisect", *EXACT, code=1)
        first = made["bisect"]["first"]
        self.assert_shape(first, FIRST)
        self.assertEqual((first["op"], first["node"], first["fused"]), ("Conv", "/conv2/Conv", False))
        self.assertIn("winograd", first["kernel_a"])
        self.assertRegex(first["kernel_b"], "products|planes")
        self.assertGreater(first["comparison"]["differing"], 0)
        text = self.belay("compare", "default", "plain.toml", "--bisect", *EXACT, "--model", self.model, "--shape", "N=2",
                          "--random", code=1).stdout
        for words in ("first   node '/conv2/Conv' (Conv.11)", "DIFFERS: ", "A  default", "B  plain.toml", "winograd"):
            self.assertIn(words, text)

    def test_a_difference_that_only_a_fused_kernel_makes_is_found_by_keeping_one_value(self):
        plain = ["--set-a", "engine.winograd=false", "--set-b", "engine.winograd=false"]
        made = self.compare("default", *plain, "--set-b", 'engine.disable_passes=["affine-folding"]', "--bisect", *EXACT,
                            code=1)
        first = made["bisect"]["first"]
        self.assertTrue(first["fused"])
        self.assertEqual(first["node"], "/norm1/BatchNormalization")  # folded into the first convolution, the value kept
        self.assertIn("for /conv1/Conv + /norm1/BatchNormalization", first["kernel_a"])

    def inside(self, case):
        model = os.path.join(self.models, case, "model.onnx")
        if not os.path.exists(model):
            self.skipTest(f"there is no {model}")
        return ["compare", "default", "--set-b", "engine.winograd=false", "--bisect", *EXACT, "--model", model, "--random"]

    def test_a_node_in_a_body_is_found_whatever_runs_it(self):
        for case, node, around in [
                ("scan_of_convolutions", "body.Conv", [("scan", "Scan", "body", 0)]),
                ("map_of_convolutions", "body.Conv", [("map", "SequenceMap", "body", 0)]),
                ("growing_convolutions", "inner.Conv", [("outer", "Loop", "body", 1), ("inner", "Loop", "body", 0)])]:
            with self.subTest(case=case):
                first = self.json(*self.inside(case), schema="belay.compare/1", code=1)["bisect"]["first"]
                self.assert_shape(first, FIRST)
                self.assertEqual((first["op"], first["node"]), ("Conv", node))
                self.assertEqual([(a["node"], a["op"], a["graph"], a["iteration"]) for a in first["around"]], around)

    def test_a_node_in_a_branch_in_a_body_is_found_with_its_iteration(self):
        arguments = self.inside("loop_of_convolutions")
        made = self.json(*arguments, schema="belay.compare/1", code=1)
        first = made["bisect"]["first"]
        self.assert_shape(first, FIRST)
        self.assertEqual((first["op"], first["node"], first["value"]), ("Conv", "then.Conv", "then.conv"))
        self.assertEqual(first["around"], [
            {"node": "rounds", "op": "Loop", "graph": "body", "iteration": 2},
            {"node": "body.If", "op": "If", "graph": "then_branch", "iteration": None}])
        self.assertEqual(first["type"], "float32 [1,16,8,8]")
        text = self.belay(*arguments, code=1).stdout
        for words in ("first   node 'then.Conv' (Conv.11)", "in body of node 'rounds' (Loop), iteration 2,",
                      "in then_branch of node 'body.If' (If),", "DIFFERS: "):
            self.assertIn(words, text)

    def test_kernels_of_several_nodes_are_left_out_by_their_operators(self):
        def operators(*patterns):
            made = self.json("inspect", self.model, "--shape", "N=1", "--set", "engine.disable_fusions=" + json.dumps(patterns),
                             schema="belay.inspect/1")
            return [kernel["op"] for kernel in made["description"]["kernels"]]
        self.assertEqual(operators().count("Conv+Relu"), 3)
        self.assertIn("Gemm+Relu", operators("Conv+*"))
        self.assertEqual([op for op in operators("Conv+*") if op.startswith("Conv")], ["Conv"] * 3)
        self.assertFalse([op for op in operators("*") if "+" in op])
        made = self.compare("default", "--set-b", 'engine.disable_fusions=["*"]')
        self.assertTrue(made["equal"])

    def test_mistakes_of_the_command_line_are_named(self):
        for arguments, words in [
                ([], "wants a model"),
                (["--model", self.model], "wants something to compare 'default' with"),
                (["default", "default", "--peer", "onnxruntime", "--model", self.model], "B and --peer are both given"),
                (["default", "default", "--peer-lib", "x.so", "--model", self.model], "--peer-lib is given without --peer"),
                (["default", "--peer", "onnx", "--model", self.model], "'onnx' is no peer, want onnxruntime"),
                (["default", "none.toml", "--model", self.model], "There is no configuration file 'none.toml'"),
                (["default", "default", "--config", "x.toml", "--model", self.model], "the configurations of a comparison")]:
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.belay("compare", *arguments, code=2).stderr)

    def test_a_peer_that_is_not_there_or_is_something_else_is_named(self):
        peer = ["compare", "--peer", "onnxruntime", "--model", self.model, "--shape", "N=1", "--random"]
        done = self.belay(*peer, "--peer-lib", "/none/libonnxruntime.so", code=3)
        self.assertIn("/none/libonnxruntime.so", done.stderr)
        self.assertIn("BELAY_ORT_LIB", done.stderr)
        done = self.belay(*peer, code=3, env={"BELAY_ORT_LIB": "libm.so.6"})
        self.assertIn("has no function OrtGetApiBase", done.stderr)

    @unittest.skipUnless(os.path.exists(os.environ.get("BELAY_ORT_LIB", "")), "BELAY_ORT_LIB names no library")
    def test_the_peer_agrees_and_strictly_compared_a_node_is_found(self):
        made = self.compare("--peer", "onnxruntime", "--bisect")
        self.assertTrue(made["equal"])
        self.assertRegex(made["b"], r"ONNX Runtime 1\.\d+")
        first = self.compare("--peer", "onnxruntime", "--bisect", *EXACT, code=1)["bisect"]["first"]
        self.assert_shape(first, FIRST)
        self.assertEqual(first["kernel_b"], "")


if __name__ == "__main__":
    ProgramTest.program, CompareTest.model, CompareTest.models = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
