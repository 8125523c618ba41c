"""The program `belay` with its plugins in bad surroundings: configurations that cannot be read, no file descriptors.

  surroundings_test.py PROGRAM MODEL
"""
import pathlib
import resource
import subprocess
import sys
import unittest

from program import ProgramTest, tensor_pb


class SurroundingsTest(ProgramTest):
    model = None

    def test_a_configuration_that_cannot_be_read_is_a_mistake_of_the_configuration(self):
        self.write("big.toml", "# " + "x" * (1 << 20) + "\n")
        self.write("broken.toml", "[log\n")
        self.write("folder/inside", "")
        for file, words in [("none.toml", "No such file"), ("none/x.toml", "No such file"), ("big.toml", "want 1048576 at most"),
                            ("folder", "a directory, want a regular file"), ("/dev/null", "a device, want a regular file"),
                            ("broken.toml", "broken.toml:1:")]:
            with self.subTest(file=file):
                done = self.belay("run", self.model, "--zeros", "--shape", "N=1", code=2, env={"BELAY_CONFIG": file})
                self.assertIn(words, done.stderr)
                if "file" in words:
                    self.assertIn("BELAY_CONFIG", done.stderr)
                self.belay("run", self.model, "--zeros", "--config", file, code=2)
        done = self.belay("devices", "--set", "log.file=/proc/none/x.log", code=2)
        self.assertIn("log.file '/proc/none/x.log' cannot be opened", done.stderr)

    def test_too_little_memory_is_a_lack_of_resources_at_any_point(self):
        codes = set()
        for kib in range(8800, 25000, 700):
            done = subprocess.run([self.program, "run", self.model, "--zeros", "--shape", "N=1"], cwd=self.folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=60,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (kib << 10, kib << 10)))
            if done.returncode == 127:  # of the loader: the program itself has not begun
                continue
            codes.add(done.returncode)
            self.assertIn(done.returncode, (0, 5), f"{kib} KiB: {done.stderr}")
        self.assertIn(5, codes)

    def test_a_result_that_cannot_be_written_whole_is_not_left(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        done = self.belay("run", self.model, "--zeros", "--shape", "N=1", "-o", "out", "--output-format", "both", code=3, preexec_fn=limit)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(list((self.folder / "out").iterdir()), [])

    def test_no_file_descriptor_is_a_lack_of_resources(self):
        def limit(files):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        self.write("case/model.onnx", pathlib.Path(self.model).read_bytes())
        self.write("case/test_data_set_0/input_0.pb", tensor_pb([1, 1, 8, 8], [0.0] * 64))
        self.write("case/test_data_set_0/output_0.pb", tensor_pb([1, 10], [0.0] * 10))
        for files in range(5, 8):
            done = self.belay("conformance", "onnx", "case", code=5, preexec_fn=limit(files))
            self.assertRegex(done.stderr, "A child process cannot be started.*Too many open files")
            self.assertIn("ulimit -n", done.stderr)


if __name__ == "__main__":
    ProgramTest.program, SurroundingsTest.model = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
