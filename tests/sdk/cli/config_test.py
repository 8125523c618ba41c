"""Configurations: what is told of them before anything runs, and how the program ends where something is missing.

  config_test.py PROGRAM PLUGINS    PLUGINS: the folder of the plugins
"""
import pathlib
import shutil
import sys
import unittest

from program import ProgramTest

DIGITS = pathlib.Path(__file__).parents[3] / "sdk/examples/digits/digits.onnx"
CPU = pathlib.Path(__file__).parents[3] / "configs/cpu.toml"


class ConfigTest(ProgramTest):
    plugins = None

    def check(self, text, code=0):
        self.write("c.toml", text)
        done = self.belay("config", "check", "--config", CPU, "--config", "c.toml", code=code)
        return done.stdout + done.stderr

    def test_values_that_no_plugin_takes_are_refused_before_it_runs(self):
        for key, value in (("block_size", "100B"), ("alignment", "3")):
            said = self.check(f'[plugin.pool.config]\n{key} = "{value}"\n' if "B" in value else f"[plugin.pool.config]\n{key} = {value}\n", code=2)
            self.assertIn("want a power of two", said)
            self.assertIn("c.toml:2:", said)
        self.assertIn("want 64B to 2MiB\n", self.check("[plugin.pool.config]\nblock_size = 1\n", code=2))

    def test_what_only_the_plugin_can_tell_is_said_to_be_left_to_it(self):
        said = self.check('[plugin.pool.config]\nsoft_limit = "2GiB"\nhard_limit = "1GiB"\n')
        self.assertIn("note: how values of [plugin.pool.config] go with each other and with this machine is checked by plugin 'pool'", said)
        self.assertNotIn("note", self.check(""))

    def test_settings_of_what_is_not_used_are_noted(self):
        said = self.check('[memory]\npolicies = ["reuse"]\n[plugin.pool.config]\npool_size = "1MiB"\n')
        self.assertRegex(said, r"note: \[plugin.pool\] is set, c.toml:3:1, but no key names what plugin 'pool' offers "
                               r"\(belay.memory-policy/1:pool\), so it is not used")
        self.assertNotIn("is not used", self.check('[plugin.cpu.config]\nthreads = 1\n'))

    def test_numbers_are_shown_as_they_are_written(self):
        self.write("c.toml", "[plugin.pool.config]\ncache_percent = 0.025\n")
        self.assertIn("cache_percent = 0.025 ", self.belay("config", "show", "--config", CPU, "--config", "c.toml").stdout)
        self.assertNotIn("MiB bytes", self.belay("config", "example").stdout)

    def test_folders_of_plugins_are_searched_alike_wherever_they_are_named(self):
        tree = self.folder / "tree"
        shutil.copytree(self.plugins, tree / "lib/belay/plugins")
        for name in ("tree", tree, tree / "lib/belay/plugins"):
            self.write("c.toml", f'[runtime]\nplugin_dirs = ["{name}"]\n')
            for options in (("--plugin-dir", name), ("--config", CPU, "--config", "c.toml")):
                with self.subTest(options=options):
                    said = self.json("plugins", "info", "pool", *options, schema="belay.plugin/1")
                    self.assertTrue(str(said).count(str(tree)), said)

    def test_a_library_that_is_not_allowed_says_what_allows_it(self):
        library = next(self.plugins.glob("libbelay_pool.so"))
        said = self.check(f'[plugin.pool]\npath = "{library}"\n', code=2)
        self.assertIn("allow_external = true", said)
        self.assertNotIn("allow_insecure", said)

    def test_what_is_not_configured_is_a_matter_of_the_configuration(self):
        self.write("c.toml", '[memory]\npolicies = []\n')
        self.assertIn("No driver is configured", self.belay("run", DIGITS, "--zeros", "--config", "c.toml", code=2).stderr)
        for setting, words in (("engine.use=''", "No engine is configured"), ("models.formats=[]", "No model format is configured")):
            self.assertIn(words, self.belay("run", DIGITS, "--zeros", "--set", setting, code=2).stderr)


if __name__ == "__main__":
    ConfigTest.program = sys.argv[1]
    ConfigTest.plugins = pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
