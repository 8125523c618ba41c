"""Plugins that end a process: in a probe, in the program itself, and what later starts make of it.

  quarantine_test.py PROGRAM FOLDER_OF_FAKE_PLUGINS
"""
import pathlib
import shutil
import signal
import sys
import unittest

from program import ProgramTest

MANIFEST = """format = 1
id = "{id}"
version = "1.0.0"
abi = "0.1"
library = "libbelay_{id}.so"
[[component]]
kind = "test.counter/1"
name = "{id}"
[[component.field]]
key = "mode"
type = "string"
default = ""
doc = "what to do wrong"
"""


class QuarantineTest(ProgramTest):
    fakes = None

    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"

    def install(self, plugin):
        shutil.copyfile(pathlib.Path(self.fakes) / f"libfake_{plugin}.so", self.folder / f"libbelay_{plugin}.so")
        self.write(f"libbelay_{plugin}.plugin.toml", MANIFEST.format(id=plugin))

    def start(self, plugin, *options, code, probe="external"):
        return self.belay("devices", "--plugin-dir", self.folder, "--set", f"runtime.plugins=[\"{plugin}\"]", "--set",
                          f"runtime.probe=\"{probe}\"", *options, code=code, env={"BELAY_STATE": str(self.state)})

    def listed(self, plugin):
        done = self.belay("plugins", "list", "--plugin-dir", self.folder, env={"BELAY_STATE": str(self.state)})
        return next(line for line in done.stdout.splitlines() if line.startswith(plugin + " "))

    def test_a_probe_dies_in_place_of_the_program(self):
        self.install("crashes")
        for _ in range(2):
            done = self.start("crashes", code=4)
            self.assertIn("plugin 'crashes' quarantined: killed by SIGILL while probing", done.stderr)
            self.assertIn("belay plugins release crashes", done.stderr)
        self.assertEqual([path.suffix for path in self.state.iterdir()], [".quarantine"])
        self.assertIn("quarantined", self.listed("crashes"))
        self.belay("plugins", "release", "crashes", env={"BELAY_STATE": str(self.state)})
        self.assertIn("found", self.listed("crashes"))
        self.start("crashes", code=4)  # and is probed again

    def test_a_good_one_is_probed_once(self):
        self.install("a")
        self.start("a", code=0)
        (harmless,) = self.state.iterdir()
        self.assertEqual(harmless.suffix, ".harmless")
        when = harmless.stat().st_mtime_ns
        self.start("a", code=0)
        self.assertEqual(harmless.stat().st_mtime_ns, when)
        (self.folder / "libbelay_a.so").touch()
        self.start("a", code=0)
        self.assertNotEqual(harmless.stat().st_mtime_ns, when)

    def test_without_a_probe_the_next_start_knows(self):
        self.install("a")
        mode = ["--set", "plugin.a.config.mode=open_aborts"]
        self.start("a", *mode, code=-signal.SIGABRT, probe="none")
        self.assertIn("SIGABRT in open ended process", self.start("a", *mode, code=4, probe="none").stderr)

    def test_the_installed_are_not_probed(self):
        self.belay("devices", env={"BELAY_STATE": str(self.state)})
        self.assertEqual(list(self.state.iterdir()), [])


if __name__ == "__main__":
    ProgramTest.program, QuarantineTest.fakes = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
