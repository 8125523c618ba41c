"""Models under different lists of layers: outputs are equal to the last bit, and `validate` has nothing to say.

  layers_test.py PROGRAM MODELS    MODELS: folders of model.onnx with test_data_set_N beside it
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
MODELS = pathlib.Path(sys.argv.pop(1))
LISTS = ('["trace"]', '["validate"]', '["trace", "validate"]', '["validate", "trace"]')


def belay(*arguments, code=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    if done.returncode != code:
        raise AssertionError(f"belay {' '.join(map(str, arguments))} gave {done.returncode}: {done.stderr}")
    return done.stderr


class LayersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        every = sorted(path.parent for path in MODELS.glob("*/model.onnx") if (path.parent / "test_data_set_0").is_dir())
        cls.models = every[:: max(1, len(every) // 6)]
        assert len(cls.models) >= 6, f"{MODELS} has {len(every)} models with data"

    def outputs(self, model, *options):
        """The outputs, and what the layers say."""
        with tempfile.TemporaryDirectory() as folder:
            # How near they are to the data is not asked here.
            said = belay("run", model / "model.onnx", "--test-data", model / "test_data_set_0", "--atol", 1e9, "-o", folder, *options)
            made = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}
        self.assertTrue(made)
        return made, said

    def test_outputs_are_those_without_layers(self):
        for model in self.models:
            expected, said = self.outputs(model)
            self.assertNotIn("layer", said)
            for layers in LISTS:
                for streams in (1, 4):
                    with self.subTest(model=model.name, layers=layers, streams=streams):
                        made, said = self.outputs(model, "--set", f"runtime.layers={layers}", "--set", f"engine.streams={streams}")
                        self.assertEqual(made, expected)
                        self.assertEqual("trace" in layers, "belay: layer trace: context.run: 1 calls" in said, said)
                        self.assertNotIn("layer validate", said)
                        self.assertNotIn("plugin.validate", said)

    def test_strict_refuses_nothing_of_the_engine(self):
        for model in self.models:
            self.outputs(model, "--set", 'runtime.layers=["validate"]', "--set", "plugin.validate.config.strict=true",
                         "--set", "engine.streams=4")

    def test_a_call_that_fails_shows_its_status_in_the_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "calls.txt")
            bad = pathlib.Path(folder, "bad.onnx")
            bad.write_bytes(b"\x08\x07\x3a\x7f")  # ends within its graph
            belay("run", bad, "--set", 'runtime.layers=["trace"]', "--set", f'plugin.trace.config.file="{file}"',
                  "--set", 'plugin.trace.config.kinds=["model_format"]', code=3)
            lines = file.read_text().splitlines()
        parse = [line for line in lines if ".parse(" in line]
        self.assertEqual(len(parse), 1, lines)
        self.assertRegex(parse[0], r"model_format 1\.parse\(.*\) = status \d+: \w+")

    def test_what_inject_makes_fail_ends_as_such_failures_do(self):
        model = self.models[0] / "model.onnx"
        for rule, code, words in (("model_format.parse 1 short=40", 3, "damaged"),
                                  ("device.alloc 1+ RESOURCE_EXHAUSTED", 5, "are in use"),
                                  ("program.launch 1 lost", 4, "'inject' has lost the device"),
                                  ("program.launch 1 QUEUE_FULL", 0, "met by 1 of 2 calls")):  # room is made
            with self.subTest(rule=rule):
                said = belay("run", model, "--random", "--set", 'runtime.layers=["inject"]',
                             "--set", f'plugin.inject.config.rules=["{rule}"]', code=code)
                self.assertIn(words, said)
                self.assertIn(f"belay: layer inject: '{rule}': met by 1 of" if "1+" not in rule else "met by", said)

    def test_layers_and_their_settings_are_checked(self):
        model = self.models[0] / "model.onnx"
        for sets, words in (
                (['runtime.layers=["validat"]'], "did you mean"),
                (['runtime.layers=["trace"]', 'plugin.trace.config.kinds=["queue"]'], "has 'queue', want some of driver"),
                (['runtime.layers=["trace"]', 'plugin.trace.config.file="/nonexistent/x"'], "'/nonexistent/x', cannot be written"),
                (['runtime.layers=["inject"]', 'plugin.inject.config.rules=["stream.fly 1 lost"]'], "there is no slot 'stream.fly'"),
                (['runtime.layers=["validate"]', "plugin.validate.config.strict=7"], "strict")):
            with self.subTest(sets=sets):
                done = subprocess.run([PROGRAM, "run", model, "--random", *(word for one in sets for word in ("--set", one))],
                                      capture_output=True, text=True, timeout=120)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    os.environ.pop("BELAY_SET", None)
    unittest.main(verbosity=2)
