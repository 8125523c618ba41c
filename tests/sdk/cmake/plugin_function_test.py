"""belay_add_plugin() refuses at configure time what would only fail later, and says what it wants."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CMAKE, MODULES = sys.argv[1:3]
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(one LANGUAGES C)
include({modules}/BelayPlugin.cmake)
add_library(belay_sdk INTERFACE)
add_library(belay::sdk ALIAS belay_sdk)
add_library(belay::core ALIAS belay_sdk)
{call}
"""


class PluginFunctionTest(unittest.TestCase):
    def configure(self, call, manifest='id = "one"\n'):
        """The output of configuring a project with this call, and whether it succeeded."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(PROJECT.format(modules=MODULES, call=call))
            (root / "one.c").write_text("const void* belay_plugin_v0(void) { return 0; }\n")
            if manifest is not None:
                (root / "plugin.toml").write_text(manifest)
            done = subprocess.run([CMAKE, "-G", "Ninja", "-S", root, "-B", root / "build"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            copied = (root / "build/lib/belay/plugins/libbelay_one.plugin.toml").is_file()
        return " ".join(done.stdout.split()), done.returncode == 0, copied

    def test_a_plugin_is_one_line_and_its_manifest_lies_beside_it(self):
        output, ok, copied = self.configure("belay_add_plugin(one SOURCES one.c)")
        self.assertTrue(ok, output)
        self.assertTrue(copied)

    def test_data_of_a_plugin_lies_beside_it_as_it_is_in_the_folder_now(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(PROJECT.format(modules=MODULES,
                                                                call="belay_add_plugin(one SOURCES one.c DATA tables)"))
            (root / "one.c").write_text("const void* belay_plugin_v0(void) { return 0; }\n")
            (root / "plugin.toml").write_text('id = "one"\n')
            (root / "tables/sub").mkdir(parents=True)
            (root / "tables/sub/a.bin").write_text("a")
            (root / "tables/old.bin").write_text("old")
            subprocess.run([CMAKE, "-G", "Ninja", "-S", root, "-B", root / "build"], stdout=subprocess.DEVNULL, check=True)
            subprocess.run([CMAKE, "--build", root / "build"], stdout=subprocess.DEVNULL, check=True)
            data = root / "build/lib/belay/plugins/libbelay_one.data"
            self.assertEqual((data / "sub/a.bin").read_text(), "a")
            (root / "tables/sub/a.bin").write_text("b")
            (root / "tables/old.bin").unlink()
            subprocess.run([CMAKE, "--build", root / "build"], stdout=subprocess.DEVNULL, check=True)
            self.assertEqual((data / "sub/a.bin").read_text(), "b")
            self.assertFalse((data / "old.bin").exists())
            subprocess.run([CMAKE, "--install", root / "build", "--prefix", root / "to"], stdout=subprocess.DEVNULL, check=True)
            self.assertEqual(len(list((root / "to").rglob("libbelay_one.data/sub/a.bin"))), 1)

    def test_what_is_refused(self):
        for call, manifest, why in [
                ("belay_add_plugin(one SOURCES one.c LINKS belay::core)", 'id = "one"\n',
                 "Plugin 'one' links belay::core: it may use the SDK only"),
                ("belay_add_plugin(one SOURCES one.c LINKS belay_hal)", 'id = "one"\n', "links belay_hal"),
                ("belay_add_plugin(one SOURCES one.c)", None, "has no manifest"),
                ("belay_add_plugin(one SOURCES one.c)", 'id = "two"\n', "want 'id = \"one\"'"),
                ("belay_add_plugin(one SOURCES one.c)", "[x]\n", "want 'id = \"one\"'"),
                ("belay_add_plugin(One SOURCES one.c)", 'id = "One"\n', "want a small letter"),
                ("belay_add_plugin(one SOURCES one.c DATA none)", 'id = "one"\n', "none is no folder"),
                ("belay_add_plugin(one)", 'id = "one"\n', "SOURCES <files>"),
                ("belay_add_plugin(one SOURCES one.c LINK m)", 'id = "one"\n', "Cannot find source file")]:
            with self.subTest(call=call, manifest=manifest):
                output, ok, _ = self.configure(call, manifest)
                self.assertFalse(ok)
                self.assertIn(why, output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
