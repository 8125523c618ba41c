"""Programs of tests that do all right, run again with `validate` before every plugin: they pass, and it finds nothing.

  silent_test.py PROGRAM...    programs of GoogleTest that make runtimes
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = sys.argv[1:]
# They make a fault on purpose, and look for what is said of it on the standard error stream.
FAULTS = "-*WhatIsLeftIsNamed*"


class SilentTest(unittest.TestCase):
    def test_each_program(self):
        for program in PROGRAMS:
            with self.subTest(program=pathlib.Path(program).name), tempfile.TemporaryDirectory() as folder:
                log = pathlib.Path(folder, "log.txt")
                sets = ('runtime.layers=["validate"]', "plugin.validate.config.strict=true", f'log.file="{log}"')
                done = subprocess.run([program, f"--gtest_filter={FAULTS}"], cwd=folder, capture_output=True, text=True, timeout=240,
                                      env={**os.environ, "BELAY_SET": ";".join(sets)})
                self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-2000:])
                self.assertIn("[  PASSED  ]", done.stdout)
                said = log.read_text() if log.exists() else ""
                self.assertNotIn("plugin.validate", said + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
