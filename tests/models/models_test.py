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
    """All regular files; links and pipes are there to be refused, not to be read."""
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    return sorted(os.path.relpath(p, root) for p in paths if os.path.isfile(p) and not os.path.islink(p))


class MakersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "models")
        self.first = os.path.join(folder.name, "first")

    def make_twice(self, maker):
        """Writes to the same folder twice, compares, returns the names of the files."""
        make(maker, self.out)
        os.rename(self.out, self.first)
        make(maker, self.out)
        names = files(self.out)
        self.assertEqual(names, files(self.first))
        self.assertEqual(filecmp.cmpfiles(self.out, self.first, names, shallow=False)[1:], ([], []))
        return names

    def test_good_models_are_the_same_each_time_and_each_has_its_data(self):
        names = self.make_twice("make_models.py")
        with open(os.path.join(self.out, "cases.json")) as listing:
            cases = json.load(listing)
        folders = {name.split("/")[0] for name in names} - {"cases.json"}
        self.assertEqual(sorted(case["name"] for case in cases), sorted(folders))
        for case in cases:
            for i in range(case["sets"]):
                self.assertIn(f"{case['name']}/test_data_set_{i}/output_0.pb", names)

    def test_bad_models_are_the_same_each_time_and_each_is_listed_once(self):
        names = self.make_twice("make_bad_models.py")
        with open(os.path.join(self.out, "expected.json")) as listing:
            expected = json.load(listing)
        self.assertEqual(sorted(expected), ["accepted", "any", "load", "run"])
        listed = [name for entries in expected.values() for name in entries]
        self.assertEqual(sorted(listed), [name for name in names if name.endswith(".onnx")])
        for words in [*expected["load"].values(), *expected["run"].values()]:
            for word in words:
                self.assertTrue(word and all(word if isinstance(word, list) else [word]), words)


if __name__ == "__main__":
    unittest.main()
