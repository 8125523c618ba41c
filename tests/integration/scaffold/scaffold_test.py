"""`belay plugins new` writes a plugin of each kind; they build in one project against an installed Belay, their tests
pass, and each takes its place in a runtime by TOML. So do the examples of plugins that are not in C++.

  scaffold_test.py write PREFIX FOLDER TREE     makes FOLDER anew, with a project of each kind and one around all
  scaffold_test.py swap PREFIX FOLDER TREE BUILD
BUILD: where that project was built; TREE: the source tree.
"""
import array
import ctypes
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

KINDS = ["driver", "memory-policy", "model-format", "kernel-provider", "engine", "diagnostics", "layer"]
AROUND = """cmake_minimum_required(VERSION 3.25)
project(all_kinds LANGUAGES C CXX)
find_package(belay 0.1 REQUIRED)
enable_testing()
add_compile_options(-Wall -Wextra -Werror)
set(CMAKE_CXX_STANDARD 20)
set(examples {tree}/sdk/examples)
add_subdirectory(${{examples}}/diagnostics_c diagnostics_c)
add_subdirectory(${{examples}}/diagnostics_python diagnostics_python)
add_executable(examples_test {tree}/tests/integration/scaffold/examples_test.cpp)
target_link_libraries(examples_test PRIVATE belay::testing GTest::gtest_main ${{CMAKE_DL_LIBS}})
target_compile_definitions(examples_test PRIVATE C_PLUGIN_FILE="$<TARGET_FILE:belay_plugin_diagnostics_c>"
  PYTHON_PLUGIN_FILE="$<TARGET_FILE:belay_plugin_diagnostics_python>"
  PYTHON_SCRIPT="${{examples}}/diagnostics_python/data/diagnostics.py")
add_dependencies(examples_test belay_plugin_diagnostics_c belay_plugin_diagnostics_python)
add_test(NAME examples COMMAND examples_test)
"""


def has_library(name):
    try:
        ctypes.CDLL(name)
        return True
    except OSError:
        return False


def id_of(kind):
    return "my." + kind  # a dot and a dash: what an id may have and a name in C may not


def write(prefix, folder, tree):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for kind in KINDS:
        subprocess.run([prefix / "bin/belay", "plugins", "new", kind, id_of(kind), "--dir", folder], check=True)
    (folder / "CMakeLists.txt").write_text(AROUND.format(tree=tree) + "".join(f"add_subdirectory({id_of(kind)})\n" for kind in KINDS))


class Swap(unittest.TestCase):
    belay = plugins = digits = projects = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_belay(self, *arguments, config, code=0):
        file = self.folder / "swap.toml"
        file.write_text(f'[runtime]\nplugin_dirs = ["{self.plugins}"]\n{config}')
        done = subprocess.run([self.belay, *map(str, arguments), "--config", self.belay.parent.parent / "share/belay/configs/cpu.toml",
                               "--config", file], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, f"belay {arguments}\n{config}\n{done.stdout}\n{done.stderr}")
        return done

    def digits_by_the_rules(self, config):
        """As digits_with, with the layer that checks callers and plugins, which finds nothing."""
        self.assertNotIn("layer validate", self.digits_with('layers = ["validate"]\n' + config).stderr)

    def digits_with(self, config):
        """What is printed when the digits are recognised, which must come out as in training."""
        done = self.run_belay("run", self.digits / "digits.onnx", "--input", f"image={self.digits / 'heldout_images.npy'}", "-o",
                              self.folder, config=config)
        got, expected = (array.array("f", path.read_bytes()[128:])
                         for path in (self.folder / "probabilities.npy", self.digits / "heldout_probabilities.npy"))
        self.assertEqual(len(got), 3600)
        self.assertLess(max(abs(a - b) for a, b in zip(got, expected)), 1e-4)
        return done

    def values_of(self, model, *arguments, config):
        done = self.run_belay("run", model, *arguments, "--json", config=config)
        return json.loads(done.stdout)["outputs"][0]["values"]

    def text_model(self, *lines):
        path = self.folder / "model.txt"
        path.write_text("".join(line + "\n" for line in ("my.model-format 1", *lines)))
        return path

    def test_the_files_are_plugins_and_say_what_they_are(self):
        listed = json.loads(self.run_belay("plugins", "list", "--json", config="").stdout)["plugins"]
        found = {plugin["id"]: plugin for plugin in listed}
        for kind in KINDS:
            self.assertIn(id_of(kind), found)
            self.assertIn(f"belay.{kind}/1:{id_of(kind)}", found[id_of(kind)]["kinds"])
            self.assertEqual(found[id_of(kind)]["reason"], "")

    def test_driver(self):
        config = 'device = "my.driver:0"\n[engine]\nproviders = ["cpu"]\n[plugin."my.driver".config]\nmemory = '
        self.digits_by_the_rules(config + '"64MiB"')
        self.assertRegex(self.run_belay("devices", config=config + '"64MiB"').stdout, r"my\.driver:0 +\(default\) +memory of the host")
        self.assertIn("passed", next(line for line in self.run_belay("doctor", config=config + '"64MiB"').stdout.splitlines()
                                     if "my.driver:0" in line))
        full = self.run_belay("run", self.digits / "digits.onnx", "--input", f"image={self.digits / 'heldout_images.npy'}",
                              config=config + '"4KiB"', code=5)
        self.assertIn("4096", full.stderr)

    def test_memory_policy(self):
        self.digits_by_the_rules('[memory]\npolicies = ["my.memory-policy"]\nchecked = true\n[plugin."my.memory-policy".config]\nsegment = "64KiB"')
        trace = self.folder / "trace.csv"
        trace.write_text("op,id,size,stream\na,1,1000,0\na,2,500,0\nf,1,1000,0\na,3,400,0\nf,2,500,0\nf,3,400,0\n")
        self.run_belay("memory", "replay", trace, "--policy", "my.memory-policy", config='[memory]\npolicies = ["my.memory-policy"]')

    def test_model_format(self):
        config = '[models]\nformats = ["onnx", "my.model-format"]'
        self.assertEqual(self.values_of(self.projects / "my.model-format/example.txt", "--value", "x=1,2,3,-4,-5,-6", "--shape", "x=2x3",
                                        config=config), [15, 10, 50, 0, 0, 0])
        self.digits_with(config)  # others are still read
        wrong = self.run_belay("run", self.text_model("output y"), "--random", config=config, code=3).stderr
        self.assertIn("no value 'y' above this line. (while reading line 2)", wrong)

    def test_kernel_provider(self):
        config = '[models]\nformats = ["my.model-format"]\n[engine]\nproviders = ["my.kernel-provider"]\n'
        model = self.projects / "my.model-format/example.txt"
        self.assertEqual(self.values_of(model, "--value", "x=1,2,3", "--shape", "x=1x3", config=config), [15, 10, 50])
        kernels = self.run_belay("inspect", model, "--shape", "N=2", "--kernels", config=config).stdout
        self.assertRegex(kernels, r"Relu +y +my\.kernel-provider: my\.kernel-provider:loop")
        self.assertRegex(kernels, r"Add +sum +cpu:")
        last = self.run_belay("inspect", model, "--shape", "N=2", "--kernels",
                              config=config + '[plugin."my.kernel-provider".config]\nrank = 1').stdout
        self.assertRegex(last, r"Relu +y +cpu:")

    def test_engine(self):
        config = '[models]\nformats = ["my.model-format"]\n[engine]\nuse = "my.engine"'
        model = self.text_model("input x float32 Nx2", "node a = Relu x", "node b = Relu a", "output b", "output x")
        self.assertEqual(self.values_of(model, "--value", "x=1,-2,-3,4", "--shape", "x=2x2", config=config), [1, 0, 0, 4])
        self.assertRegex(self.run_belay("inspect", model, "--kernels", config=config).stdout, r"my\.engine: loop")
        wrong = self.run_belay("run", self.projects / "my.model-format/example.txt", "--random", config=config, code=3).stderr
        self.assertIn("'sum'", wrong)
        self.assertIn("the engine 'my.engine' runs Relu alone", wrong)

    def test_diagnostics(self):
        use = '[diagnostics]\nuse = ["my.diagnostics"]\n[plugin."my.diagnostics".config]\nopen_files = '
        self.assertRegex(self.run_belay("doctor", config=use + "1").stdout, r"passed +my\.diagnostics\.open-files +(\d+ files|any number)")
        log = self.digits_with('layers = ["trace"]\n[log]\nlevel = "info"\n' + use + "1").stderr
        self.assertRegex(log, r"plugin\.my\.diagnostics: [1-9]\d* records were seen")

    def test_diagnostics_in_plain_c(self):
        use = '[diagnostics]\nuse = ["diagnostics_c"]\n'
        self.assertRegex(self.run_belay("doctor", config=use).stdout, r"diagnostics_c\.clock +the clock moves in steps of \d+ ns")
        self.assertRegex(self.digits_with('layers = ["trace"]\n[log]\nlevel = "info"\n' + use).stderr,
                         r"plugin\.diagnostics_c: [1-9]\d* records were seen")
        needed = subprocess.run(["readelf", "-d", self.plugins / "libbelay_diagnostics_c.so"], capture_output=True, text=True, check=True)
        self.assertEqual(re.findall(r"NEEDED.*\[(lib\w+)", needed.stdout), ["libc"])

    def test_diagnostics_in_python(self):
        use = '[diagnostics]\nuse = ["diagnostics_python"]\n[plugin.diagnostics_python.config]\n'
        wrong = self.run_belay("doctor", config=use + 'library = "libnothere.so"', code=4).stdout
        self.assertRegex(wrong, r"failed .*Python cannot be loaded: libnothere\.so")
        if not any(has_library(f"libpython3.{minor}.so.1.0") for minor in range(9, 15)):
            self.skipTest("there is no libpython3.9 to libpython3.14 here (on Debian 12: libpython3.11)")
        done = self.run_belay("doctor", config=use)
        self.assertRegex(done.stdout, r"passed +diagnostics_python\.temporary-files .* says Python 3\.")
        self.assertNotIn("broke a rule", done.stderr)
        self.assertIn("remove what is old", self.run_belay("doctor", config=use + 'free = "1000TiB"').stdout)
        self.assertRegex(self.digits_with('layers = ["trace"]\n[log]\nlevel = "info"\n' + use).stderr,
                         r"plugin\.diagnostics_python: [1-9]\d* records were seen")

    def test_layer(self):
        config = 'layers = ["my.layer"]\n[plugin."my.layer".config]\nleast = '
        said = self.digits_with(config + "1").stderr
        self.assertIn("belay: layer my.layer: context.run 1\n", said)
        self.assertNotIn("context.run 1\n", self.digits_with(config + "2").stderr)


if __name__ == "__main__":
    step, prefix, projects, root = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
    if step == "write":
        write(prefix, projects, root)
    else:
        Swap.belay, Swap.projects, Swap.digits = prefix / "bin/belay", projects, root / "sdk/examples/digits"
        Swap.plugins = pathlib.Path(sys.argv[5], "lib/belay/plugins")
        unittest.main(argv=sys.argv[:1])
