"""What the program says of plugins without loading any: the kernel ends it where it maps code after its start.

  no_code_test.py PROGRAM NO_CODE.so
"""
import signal
import sys
import unittest

from program import ProgramTest


class NoCodeTest(ProgramTest):
    preload = None

    def under(self, *words):
        done = self.belay(*words, env={"LD_PRELOAD": self.preload}, code=(0, 99, -signal.SIGSYS))
        if done.returncode == 99:
            self.skipTest("this system has no seccomp filters: " + done.stderr)
        return done

    def test_lists_and_checks_load_nothing(self):
        self.write("all.toml", "[runtime]\nplugins = [\"null\"]\nlayers = [\"trace\"]\n[memory]\npolicies = [\"pool\"]\n")
        for line in ["plugins list", "plugins list --json", "plugins info cpu", "config check", "config check --config all.toml",
                     "config show", "config example", "explain INTERNAL", "version", "--help"]:
            with self.subTest(line=line):
                self.assertEqual(self.under(*line.split()).returncode, 0)
        self.assertIn("cpu", self.under("plugins", "list").stdout)

    def test_what_loads_is_ended(self):
        self.assertEqual(self.under("devices").returncode, -signal.SIGSYS)


if __name__ == "__main__":
    ProgramTest.program, NoCodeTest.preload = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
