"""The program `belay` against a fake runtime (fake_runtime.cpp): usage, exit codes, output, interruption.

  fake_test.py PROGRAM
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from program import ProgramTest, tensor_pb, write_npy

VERBS = ["run", "bench", "inspect", "devices", "plugins list", "plugins info", "plugins release", "plugins explain", "plugins new", "config check",
         "config show", "config example", "memory plan", "explain", "doctor", "version", "conformance onnx", "completion bash",
         "help"]


class FakeTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("double.m", "double")
        write_npy(self.folder / "x.npy", "<f4", [2, 3], struct.pack("<6f", *range(6)))

    def case(self, name, model, inputs, outputs):
        self.write(f"{name}/model.onnx", model)
        self.write(f"{name}/test_data_set_0/input_0.pb", tensor_pb([1, 3], inputs))
        self.write(f"{name}/test_data_set_0/output_0.pb", tensor_pb([1, 3], outputs))

    # ---- help and usage ----
    def test_every_verb_has_help_with_an_example(self):
        for verb in VERBS:
            with self.subTest(verb=verb):
                text = self.belay(*verb.split(), "--help").stdout
                self.assertIn(f"Usage: belay {verb}", text)
                self.assertIn(f"belay {verb.split()[0]}", text.split("Examples:")[1])
                self.assertLessEqual(max(map(len, text.splitlines())), 120)

    def test_help_is_a_verb_too(self):
        for verb in VERBS:
            with self.subTest(verb=verb):
                self.assertEqual(self.belay("help", *verb.split()).stdout, self.belay(*verb.split(), "--help").stdout)
        self.assertEqual(self.belay("help").stdout, self.belay("--help").stdout)
        for line in ["help rnu", "rnu --help"]:
            self.assertIn("did you mean 'run'?", self.belay(*line.split(), code=2).stderr)
        for line in ["help plugins lst", "plugins lst --help"]:
            self.assertIn("did you mean 'list'?", self.belay(*line.split(), code=2).stderr)
        self.assertIn("'belay run' has no verb 'x'", self.belay("help", "run", "x", code=2).stderr)

    def test_help_names_the_exit_codes(self):
        text = self.belay("--help").stdout
        for code in ["0 ok", "1 a comparison failed", "2 command line", "3 input", "4 device", "5 out of memory", "6 timeout", "7 internal"]:
            self.assertIn(code, text)

    def test_mistakes_of_the_command_line_are_answered_with_what_was_meant(self):
        for line, words in [("rnu double.m", "did you mean 'run'?"), ("run double.m --inptu x", "did you mean '--input'?"),
                            ("plugins lst", "did you mean 'list'?"), ("--json run", "after the verb"),
                            ("plugins explain drivr", "did you mean 'driver'?"), ("explain NOT_FUND", "did you mean 'NOT_FOUND'?"),
                            ("run double.m --config nothere.toml", "nothere.toml"), ("run", "wants a model"), ("plugins", "list, info, probe, release, explain, new"),
                            ("run double.m extra", "extra"), ("run double.m --timeout abc", "'abc' is no number"),
                            ("run double.m --repeat 0", "'0' is no number of 1"), ("run double.m --random=-7", "want a seed from 0 on"), ("bench double.m --callers -1", "'-1'"),
                            ("run double.m --zeros --random", "Choose one"), ("run double.m --output-format jpg", "npy, pb or both"),
                            ("run double.m --zeros --output-format pb", "--output-format is given without --output-dir"),
                            ("run double.m --zeros --atol 1", "--atol is given without --test-data"),
                            ("inspect double.m --text --kernels", "--text goes with neither"),
                            ("run double.m --shape x=1xq", "1xq"), ("run double.m -i x=x.bin:flaot32:1", "did you mean 'float32'?")]:
            with self.subTest(line=line):
                done = self.belay(*line.split(), code=2)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout if "--json" not in line else "", "")

    def test_mistakes_with_inputs_are_answered_with_what_is_there(self):
        self.write("x.txt.npy", "rubbish")
        (self.folder / "loop").symlink_to("loop")
        for line, words in [("run duoble.m", "did you mean 'double.m'?"), ("run double.m -i x=y.npy", "did you mean 'x.npy'?"),
                            ("run double.m -i y=x.npy", "inputs are 'x' float32 [N,3]"), ("run double.m", "needs 'x' float32 [N,3]"),
                            ("run double.m --zeros --shape 2x4", "does not fit"),
                            ("run double.m --value x=1,2", "holds 3"), ("run double.m --value x=1,2,z", "'z' is no number"),
                            ("run double.m -i x.npy:int8:2x3", "int8"), ("run double.m -i x.txt.npy", "x.txt.npy"),
                            (f"run double.m -i {'n' * 300}", "File name too long"), ("run loop --zeros", "Too many levels of symbolic links"),
                            ("run double.m -i loop", "Too many levels of symbolic links"), ("run double.m --test-data x.npy", "'x.npy' is no folder"),
                            ("conformance onnx loop", "Too many levels of symbolic links"),
                            ("run . --zeros", "is a folder"), ("run double.m --test-data nothere", "nothere")]:
            with self.subTest(line=line):
                self.assertIn(words, self.belay(*line.split(), code=3).stderr)

    def test_an_array_of_numpy_is_not_taken_for_raw_numbers(self):
        self.write("y.npz", b"PK\x03\x04" + bytes(20))
        self.assertIn("'y.npz' is an archive", self.belay("run", "double.m", "-i", "y.npz", code=3).stderr)
        (self.folder / "x.bin").write_bytes((self.folder / "x.npy").read_bytes())
        self.assertIn("ends in .npy", self.belay("run", "double.m", "-i", "x=x.bin", code=3).stderr)

    def test_open_sizes_follow_from_lists_wherever_they_stand(self):
        self.write("pair.m", "pair")
        for given in [["x=0,1,2,3,4,5", "y=7"], ["y=7", "x=0,1,2,3,4,5"], ["y=0,1,2,3,4,5", "x=7"]]:
            with self.subTest(given=given):
                run = self.json("run", "pair.m", "--value", given[0], "--value", given[1], schema="belay.run/1")
                self.assertEqual([one["type"] for one in run["inputs"]], ["float32 [2,3]"] * 2)

    # ---- results ----
    def test_run_shows_small_outputs_whole(self):
        text = self.belay("run", "double.m", "--input", "x=x.npy").stdout
        self.assertIn("output  y  float32 [2,3]", text)
        self.assertIn("6   8  10", text)

    def test_run_takes_npy_pb_raw_and_typed_values(self):
        self.write("x.pb", tensor_pb([2, 3], range(6)))
        self.write("x.raw", struct.pack("<6f", *range(6)))
        for given in [["-i", "x.npy"], ["-i", "x=x.pb"], ["-i", "x=x.raw"], ["-i", "x=x.raw:float32:2x3"], ["--value", "x=0,1,2,3,4,5"]]:
            with self.subTest(given=given):
                outputs = self.json("run", "double.m", *given, schema="belay.run/1")["outputs"]
                self.assertEqual(outputs[0]["dims"], [2, 3])
                self.assertEqual(outputs[0]["values"], [0, 2, 4, 6, 8, 10])

    def test_a_run_says_what_it_shared_and_copied(self):
        self.assertIn("memory  inputs 24 B shared, 0 B copied; outputs 0 B shared, 24 B copied ('y' because the fake copies)",
                      self.belay("run", "double.m", "--input", "x=x.npy").stdout)
        output = self.json("run", "double.m", "--input", "x=x.npy", schema="belay.run/1")["outputs"][0]
        self.assertEqual((output["shared_bytes"], output["copied_bytes"], output["copy_reason"]), (0, 24, "the fake copies"))

    def test_random_inputs_repeat_and_seeds_differ(self):
        def values(*flag):
            return self.json("run", "double.m", "--shape", "N=4", *flag, schema="belay.run/1")["outputs"][0]["values"]
        self.assertEqual(values("--random"), values("--random=0"))
        self.assertNotEqual(values("--random"), values("--random=1"))
        self.assertEqual(values("--zeros"), [0] * 12)

    def test_open_sizes_of_made_up_inputs_are_one_with_a_note(self):
        done = self.belay("run", "double.m", "--random")
        self.assertIn("float32 [1,3]  random, seed 0", done.stdout)
        self.assertIn("is taken as [1,3]; choose with --shape x=1x3", done.stderr)
        self.assertEqual(self.belay("run", "double.m", "--zeros", "-q").stdout.split(), "output y float32 [1,3] 0 0 0".split())

    def test_outputs_are_saved(self):
        self.belay("run", "double.m", "-i", "x.npy", "-o", "out", "--output-format", "both")
        self.assertTrue((self.folder / "out/y.npy").read_bytes().endswith(struct.pack("<6f", 0, 2, 4, 6, 8, 10)))
        self.assertIn(struct.pack("<6f", 0, 2, 4, 6, 8, 10), (self.folder / "out/y.pb").read_bytes())

    def test_test_data_is_compared(self):
        self.case("good", "double", [1, 2, 3], [2, 4, 6.00001])
        self.case("bad", "double", [1, 2, 3], [2, 4.5, 6])
        self.assertIn("equal within", self.belay("run", "double.m", "--test-data", "good/test_data_set_0").stdout)
        text = self.belay("run", "double.m", "--test-data", "bad/test_data_set_0", code=1).stdout
        self.assertIn("DIFFERS", text)
        self.assertIn("[0,1]", text)
        self.belay("run", "double.m", "--test-data", "bad/test_data_set_0", "--atol", "0.6")
        report = self.json("run", "double.m", "--test-data", "bad/test_data_set_0", code=1, schema="belay.run/1")
        self.assertIs(report["equal"], False)
        self.assertEqual(report["outputs"][0]["comparison"]["worst_at"], [0, 1])

    def test_schemas(self):
        io = {"name": str, "kind": str, "dtype": str, "dims": [(str, int)], "optional": bool}
        bench = self.json("bench", "double.m", "--runs", "10", "--warmup", "0", schema="belay.bench/1")
        self.assert_shape(bench, {
            "schema": str, "model": str, "device": str, "threads": (int, type(None)), "callers": int, "runs": int, "seconds": float,
            "inputs": [{"name": str, "type": str, "from": str}], "runs_per_second": float, "create_ns": int,
            "latency_ns": dict.fromkeys(["median", "p10", "p90", "p99", "min", "max", "mean"], float),
            "memory": {**dict.fromkeys(["peak_rss_bytes", "peak_rss_before_load_bytes", "arena_bytes", "live_bytes", "weight_bytes",
                                        "borrowed_bytes", "copied_bytes", "packed_bytes"], int),
                       "run_inputs": {"shared_bytes": int, "copied_bytes": int, "copied_first": type(None)},
                       "run_outputs": {"shared_bytes": int, "copied_bytes": int, "copied_first": str}}})
        self.assertEqual(bench["memory"]["run_outputs"]["copied_first"], "'y' because the fake copies")
        self.assertEqual(bench["runs"], 10)
        run = self.json("run", "double.m", "-i", "x.npy", "--repeat", "3", schema="belay.run/1")
        self.assert_shape(run, {
            "schema": str, "model": str, "device": str, "inputs": [{**io, "type": str, "from": str, "shared_bytes": int, "copied_bytes": int, "copy_reason": type(None)}],
            "equal": type(None),
            "outputs": [{"name": str, "kind": str, "dtype": str, "dims": [int], "values": [float], "files": [str],
                         "shared_bytes": int, "copied_bytes": int, "copy_reason": str,
                         "statistics": {"count": int, "nan": int, "infinite": int, "min": float, "max": float, "mean": float, "deviation": float}}],
            "time": {"create_ns": int, "runs": int, "median_ns": int, "min_ns": int, "max_ns": int}})
        inspect = self.json("inspect", "double.m", schema="belay.inspect/1")
        self.assert_shape(inspect["inputs"], [io])
        self.assert_shape(self.json("plugins", "list", schema="belay.plugins/1")["plugins"],
                          [{"id": str, "version": str, "abi": str, "kinds": str, "state": str, "reason": str, "file": str}])
        self.assert_shape(self.json("explain", "5", schema="belay.code/1"),
                          {"schema": str, "code": int, "name": str, "title": str, "cause": str, "remedy": str})
        self.assertEqual(len(self.json("explain", schema="belay.codes/1")["codes"]), 23)
        self.assertIn("Command line", self.belay("explain", "USAGE").stdout)
        self.assertIsNone(self.json("explain", "usage", schema="belay.code/1")["code"])
        self.assert_shape(self.json("version", schema="belay.version/1"), {"schema": str, "version": str, "plugin_abi": str})
        self.assert_shape(self.json("doctor", code=4, schema="belay.doctor/1"),
                          {"schema": str, "ok": bool, "checks": [{"name": str, "outcome": str, "text": str}]})
        for verb, schema in [("check", "belay.config-check/1"), ("show", "belay.config-show/1"), ("example", "belay.config-example/1")]:
            self.json("config", verb, schema=schema)
        self.json("plugins", "info", "good", schema="belay.plugin/1")
        self.json("plugins", "explain", "engine", schema="belay.plugins-explain/1")
        self.assertEqual(len(self.json("devices", schema="belay.devices/1")["devices"]), 2)

    def test_options_reach_the_configuration_and_set_wins(self):
        text = self.json("config", "show", "-vv", "--set", "a=1", "--set", "b=2", schema="belay.config-show/1")["toml"]
        self.assertLess(text.index("log.level=debug"), text.index("a=1"))
        self.assertLess(text.index("a=1"), text.index("b=2"))

    def test_names_cannot_drive_the_terminal(self):
        text = self.belay("devices").stdout
        self.assertNotIn("\x1b", text)
        self.assertIn("\\x1b[31m", text)

    def test_bash_completion_completes(self):
        script = self.belay("completion", "bash").stdout
        self.write("completion.bash", script)
        for words, want in [("belay r", "run"), ("belay plugins l", "list"), ("belay run --te", "--test-data"), ("belay config ch", "check"),
                            ("belay run double.m --device f", "fake:0"), ("belay run --output-format n", "npy"), ("belay explain NOT", "NOT_FOUND"),
                            ("belay plugins info go", "good"), ("belay plugins explain dr", "driver"), ("belay plugins new mem", "memory-policy"), ("belay help r", "run"),
                            ("belay plugins info --js", "--json")]:
            line = [self.program, *words.split()[1:]]
            done = subprocess.run(["bash", "-c", 'source completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                                   'compopt() { :; }; _belay; echo "${COMPREPLY[@]}"', "-", *line],
                                  cwd=self.folder, stdout=subprocess.PIPE, text=True)
            self.assertIn(want, done.stdout.split(), words)

    # ---- exit codes ----
    def test_codes_of_the_runtime_become_exit_codes(self):
        exits = {"INVALID_ARGUMENT": 3, "NOT_FOUND": 3, "DATA_LOSS": 3, "UNIMPLEMENTED": 3, "OUT_OF_RANGE": 3, "FAILED_PRECONDITION": 3,
                 "PERMISSION_DENIED": 3, "DEVICE_LOST": 4, "UNAVAILABLE": 4, "RESOURCE_EXHAUSTED": 5, "DEADLINE_EXCEEDED": 6, "INTERNAL": 7,
                 "UNKNOWN": 7, "ABORTED": 7}
        for code, of_code in exits.items():
            for when in ["load", "run"]:
                # What a model needs beside itself to be loaded, such as an engine, is a matter of the configuration.
                exit_code = 2 if (code, when) == ("FAILED_PRECONDITION", "load") else of_code
                with self.subTest(code=code, when=when):
                    self.write("fails.m", f"{when} {code}")
                    done = self.belay("run", "fails.m", "-i", "x.npy", "--json", code=exit_code)
                    self.assertIn(f"fails with {code}", done.stderr)
                    error = json.loads(done.stdout)
                    self.assert_shape(error, {"schema": str, "error": {"code": str, "exit": int, "message": str, "hint": str}})
                    self.assertEqual((error["error"]["code"], error["error"]["exit"]), (code, exit_code))
                    self.belay("bench", "fails.m", "-i", "x.npy", code=exit_code)

    def test_configuration_is_usage_and_a_missing_plugin_is_4(self):
        self.assertIn("bad is 1", self.belay("run", "double.m", "--zeros", "--set", "bad=1", code=2).stderr)
        self.assertIn("'x' is not there", self.belay("devices", "--set", "plugin=x", code=4).stderr)
        self.assertIn("did you mean 'good'?", self.belay("plugins", "info", "goud", code=4).stderr)
        self.assertIn("did you mean 'fake:0'?", self.belay("run", "double.m", "--zeros", "--device", "fake:1", code=4).stderr)

    def test_a_device_is_an_id_a_driver_or_auto(self):
        for device in ["fake:0", "fake", "auto"]:
            run = self.json("run", "double.m", "--zeros", "--device", device, schema="belay.run/1")
            self.assertEqual(run["device"], "fake:0")
            self.assertEqual(len(self.json("devices", "--device", device, schema="belay.devices/1")["devices"]), 1)
        self.assertIn("'auto' for the default", self.belay("bench", "double.m", "--device", "gpu", code=4).stderr)

    def test_what_a_verb_has_no_use_for_is_refused(self):
        for verb in ["config check", "config show", "config example", "plugins list", "plugins info good", "explain", "version"]:
            self.assertIn("has no option '--device'", self.belay(*verb.split(), "--device", "fake", code=2).stderr)
        for verb in ["explain", "version"]:
            for option in ["--config", "--set", "--plugin-dir"]:
                self.assertIn(f"has no option '{option}'", self.belay(verb, option, "x=1", code=2).stderr)
        (self.folder / "circle.toml").symlink_to("circle.toml")
        self.assertIn("Cannot open 'circle.toml': Too many levels", self.belay("devices", "--config", "circle.toml", code=2).stderr)
        self.assertIn("Cannot open 'circle.toml': Too many levels", self.belay("devices", "--plugin-dir", "circle.toml", code=2).stderr)

    def test_hints_fit_what_was_done(self):
        for code in ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"]:  # of the catalogue they are about configurations
            self.write("fails.m", f"load {code}")
            done = self.belay("run", "fails.m", "-i", "x.npy", "--json", code=3)
            self.assertEqual(json.loads(done.stdout)["error"]["hint"], "")
        self.assertIn("A remedy.", self.belay("config", "check", "--set", "bad=1", code=2).stderr)
        self.write("fails.m", "load UNIMPLEMENTED")
        self.assertIn("'belay inspect fails.m' shows", self.belay("run", "fails.m", "-i", "x.npy", code=3).stderr)

    def test_inspect_shows_the_operators_of_a_model_that_cannot_be_loaded(self):
        self.write("fails.m", "load UNIMPLEMENTED")
        done = self.belay("inspect", "fails.m", code=3)
        self.assertIn("cannot be loaded for fake:0\nnodes   Foo 2", done.stdout)
        self.assertIn("fails with UNIMPLEMENTED", done.stderr)

    def test_what_a_configuration_cannot_do_is_told(self):
        self.assertIn("note: no model", self.belay("config", "check", "--set", "bare=1").stdout)
        self.assertEqual(self.json("config", "check", "--set", "bare=1", schema="belay.config-check/1")["notes"], ["no model can run"])
        self.assertEqual(self.json("config", "check", schema="belay.config-check/1")["notes"], [])

    def test_a_deadline_ends_the_program(self):
        self.write("slow.m", "sleep")
        done = self.belay("run", "slow.m", "-i", "x.npy", "--timeout", "0.2", "--json", code=6)
        self.assertIn("Not done after 0.2 s", done.stderr)
        self.assertEqual(json.loads(done.stdout)["error"]["exit"], 6)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_a_full_disk_is_reported(self):
        with open("/dev/full", "w") as full:
            done = self.belay("devices", code=3, stdout=full)
            self.assertIn("No space left", done.stderr)
            self.belay("run", "double.m", "-i", "x.npy", "--json", code=3, stdout=full)

    def test_a_folder_that_cannot_be_written_is_reported(self):
        self.write("file", "not a folder")
        self.assertIn("file", self.belay("run", "double.m", "-i", "x.npy", "-o", "file/out", code=3).stderr)

    def test_a_reader_that_leaves_is_no_error(self):
        done = subprocess.run(["bash", "-c", 'set -o pipefail; "$0" inspect double.m --text | head -n 1', self.program], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "%a float32[2] = Foo.1(%x)\n", ""))

    def test_an_interrupt_ends_a_benchmark_with_what_it_has(self):
        started = subprocess.Popen([self.program, "bench", "double.m", "--seconds", "30", "--warmup", "0"], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=20)
        self.assertEqual(started.returncode, 130, err)
        self.assertIn("latency", out)
        self.assertIn("stopping", err)

    def test_several_callers(self):
        report = self.json("bench", "double.m", "--callers", "4", "--runs", "1000", schema="belay.bench/1")
        self.assertEqual((report["callers"], report["runs"]), (4, 1000))

    # ---- conformance ----
    def test_conformance_tells_crashes_hangs_and_what_is_missing_apart(self):
        self.case("suite/node/passes", "double", [1, 2, 3], [2, 4, 6])
        self.case("suite/node/differs", "double", [1, 2, 3], [2, 4, 7])
        self.case("suite/node/crashes", "crash", [1, 2, 3], [2, 4, 6])
        self.case("suite/node/later", "double", [1, 2, 3], [2, 4, 6])
        self.case("suite/simple/hangs", "sleep", [1, 2, 3], [2, 4, 6])
        self.case("suite/simple/misses", "load UNIMPLEMENTED", [1, 2, 3], [2, 4, 6])
        self.case("suite/simple/broken", "load DATA_LOSS", [1, 2, 3], [2, 4, 6])
        report = self.json("conformance", "onnx", "suite", "--jobs", "2", "--timeout", "3", code=1, schema="belay.conformance/1")
        self.assert_shape(report, {"schema": str, "passed": int, "failed": int, "unsupported": int,
                                   "cases": [{"name": str, "status": str, "reason": str}]})
        found = {case["name"]: (case["status"], case["reason"]) for case in report["cases"]}
        self.assertEqual((report["passed"], report["failed"], report["unsupported"]), (2, 4, 1))
        for name, status, words in [("node/passes", "passed", ""), ("node/differs", "failed", "[0,2]"), ("node/crashes", "failed", "SEGV"),
                                    ("node/later", "passed", ""), ("simple/hangs", "failed", "not done"),
                                    ("simple/misses", "unsupported", "UNIMPLEMENTED"), ("simple/broken", "failed", "DATA_LOSS")]:
            self.assertEqual(found[name][0], status, name)
            self.assertIn(words, found[name][1])
        self.assertIn("2 passed, 4 failed, 1 unsupported of 7 cases",
                      self.belay("conformance", "onnx", "suite", "--timeout", "3", code=1).stdout)

    def test_conformance_takes_a_part(self):
        self.case("suite/node/one", "double", [1, 2, 3], [2, 4, 6])
        self.case("suite/node/two", "double", [1, 2, 3], [2, 4, 6])
        self.assertIn("1 passed", self.belay("conformance", "onnx", "suite/node/one").stdout)
        self.assertIn("2 passed", self.belay("conformance", "onnx", "suite/node").stdout)
        self.assertIn("1 passed", self.belay("conformance", "onnx", "suite", "--filter", "node/o*").stdout)
        self.assertIn("1 passed", self.belay("conformance", "onnx", "suite", "--filter", "two").stdout)
        self.belay("conformance", "onnx", "suite", "--filter", "three", code=3)
        self.belay("conformance", "onnx", "nothere", code=3)
        self.assertIn("'x' is not there", self.belay("conformance", "onnx", "suite", "--set", "plugin=x", code=4).stderr)


if __name__ == "__main__":
    ProgramTest.program = shutil.which(sys.argv.pop(1)) or sys.exit("usage: fake_test.py PROGRAM")
    unittest.main()
