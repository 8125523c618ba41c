"""The makers of test models keep their word: the same bytes each time, and a listing that matches the files."""
import filecmp
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def make(maker, out):
    subprocess.run([sys.executable, "-B", os.path.join(HERE, maker), out], check=True, stdout=subprocess.DEVNULL)


def files(root):
    return sorted(os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root)
                  for name in names)


class MakersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "a")
        self.again = os.path.join(folder.name, "b")

    def test_good_models_are_the_same_each_time_and_each_has_its_data(self):
        make("make_models.py", self.out)
        make("make_models.py", self.again)
        names = files(self.out)
        self.assertEqual(names, files(self.again))
        self.assertEqual(filecmp.cmpfiles(self.out, self.again, names, shallow=False)[1:], ([], []))

        with open(os.path.join(self.out, "cases.json")) as listing:
            cases = json.load(listing)
        self.assertEqual(sorted(case["name"] for case in cases), sorted({n.split("/")[0] for n in names} - {"cases.json"}))
        for case in cases:
            for i in range(case["sets"]):
                self.assertIn(f"{case['name']}/test_data_set_{i}/output_0.pb", names)


if __name__ == "__main__":
    unittest.main()
