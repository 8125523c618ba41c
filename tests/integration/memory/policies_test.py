"""The same models under every combination of memory policies, in every order: outputs are equal to the last bit.

  policies_test.py PROGRAM MODELS    MODELS: folders of model.onnx with test_data_set_N beside it
"""
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
MODELS = pathlib.Path(sys.argv.pop(1))
POLICIES = ("zerocopy", "reuse", "pool")
COMBINATIONS = [chosen for count in range(len(POLICIES) + 1) for chosen in itertools.permutations(POLICIES, count)]


def belay(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f"belay {' '.join(map(str, arguments))} gave {done.returncode}: {done.stderr}")
    return done.stdout


def configured(chosen):
    return ("--set", f"memory.policies={json.dumps(chosen)}")


class PoliciesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        every = sorted(path.parent for path in MODELS.glob("*/model.onnx") if (path.parent / "test_data_set_0").is_dir())
        cls.models = every[:: max(1, len(every) // 8)]
        assert len(cls.models) >= 8, f"{MODELS} has {len(every)} models with data"

    def outputs(self, model, *options):
        with tempfile.TemporaryDirectory() as folder:
            belay("run", model / "model.onnx", "--test-data", model / "test_data_set_0", "-o", folder, "-q", *options)
            made = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}
        self.assertTrue(made)
        return made

    def test_explain_says_which_are_used_and_for_what(self):
        classes = {"zerocopy": "BIND", "reuse": "PLAN", "pool": "PLACE"}
        for chosen in filter(None, COMBINATIONS):
            said = belay("plugins", "explain", "memory-policy", *configured(chosen))
            used = ", ".join(f"{name} ({classes[name]})" for name in chosen)
            self.assertIn(f"-> using {used}: for each class the first that serves it", said)
        self.assertIn("-> using onnx: of each file the surest", belay("plugins", "explain", "model-format"))
        self.assertIn("-> using cpu:0: 'cpu:0' where a model names none", belay("plugins", "explain", "driver"))
        self.assertIn("-> using cpu: for each node the first", belay("plugins", "explain", "kernel-provider"))
        self.assertIn("-> using graph\n", belay("plugins", "explain", "engine"))

    def test_outputs_are_those_without_policies(self):
        for model in self.models:
            expected = self.outputs(model, *configured(()))
            for chosen in COMBINATIONS[1:]:
                with self.subTest(model=model.name, policies=chosen):
                    self.assertEqual(self.outputs(model, *configured(chosen)), expected)

    def test_checked_memory_finds_nothing_and_changes_nothing(self):
        for model in self.models:
            expected = self.outputs(model, *configured(()))
            for chosen in ((), ("pool",), POLICIES):
                with self.subTest(model=model.name, policies=chosen):
                    checked = (*configured(chosen), "--set", "memory.checked=true")
                    self.assertEqual(self.outputs(model, *checked), expected)
                    log = subprocess.run([PROGRAM, "run", model / "model.onnx", "--test-data", model / "test_data_set_0",
                                          *checked], capture_output=True, text=True, timeout=120).stderr
                    self.assertNotIn("Written beside", log)
                    self.assertNotIn("not destroyed", log)


if __name__ == "__main__":
    unittest.main()
