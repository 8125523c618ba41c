"""`belay memory plan`.

  memory_test.py PROGRAM PROBLEMS    the published problems are solved where the folder PROBLEMS is there
"""
import gzip
import pathlib
import random
import sys
import unittest
import xml.etree.ElementTree

from program import ProgramTest

PLAN = {"file": str, "policy": str, "buffers": int, "peak": int, "lower_bound": int, "ratio": (int, float), "optimal": bool, "fits": bool,
        "seconds": (int, float), "verified": bool}
SVG = "{http://www.w3.org/2000/svg}"


def problem(rows):
    return "id,lower,upper,size\n" + "".join(f"{i},{','.join(map(str, row))}\n" for i, row in enumerate(rows))


def most_live(rows):
    changes = sorted([(begin, 1, size) for begin, end, size in rows] + [(end, 0, -size) for begin, end, size in rows],
                     key=lambda change: change[:2])
    live = most = 0
    for _, _, size in changes:
        live += size
        most = max(most, live)
    return most


class MemoryPlanTest(ProgramTest):
    problems = None

    def plan(self, *arguments, code=0):
        made = self.json("memory", "plan", *arguments, schema="belay.memory-plan/1", code=code)
        self.assert_shape({key: value for key, value in made.items() if key != "schema"}, PLAN)
        return made

    def test_lifetimes_that_do_not_meet_share(self):
        self.write("p.csv", problem([(0, 2, 100), (2, 4, 70), (1, 3, 30)]))
        made = self.plan("p.csv")
        self.assertEqual((made["peak"], made["lower_bound"], made["buffers"]), (130, 130, 3))
        self.assertTrue(made["optimal"] and made["verified"] and made["fits"])
        self.assertEqual(made["policy"], "reuse")
        apart = self.plan("p.csv", "--set", 'memory.policies=["pool"]')
        self.assertEqual((apart["policy"], apart["peak"]), ("", 200))
        self.assertIn("none: no policy of class PLAN", self.belay("memory", "plan", "p.csv", "--set", "memory.policies=[]").stdout)
        text = self.belay("memory", "plan", "p.csv").stdout
        self.assertIn("130 bytes (130 B), 1.0000 of the lower bound, proved smallest", text)

    def test_columns_in_any_order_alignment_and_gzip(self):
        text = "size, upper,lower,alignment,id\n10,2,0,1,a\n\n10,2,0,64,b\r\n"
        (self.folder / "p.csv.gz").write_bytes(gzip.compress(text.encode()))
        self.assertEqual(self.plan("p.csv.gz")["peak"], 20)  # b lies below a
        # More than one member of gzip is one text, and a mark of UTF-8 at its head is none of it.
        (self.folder / "p.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text[:30].encode()) + gzip.compress(text[30:].encode()))
        self.assertEqual(self.plan("p.csv.gz")["peak"], 20)
        self.write("p.csv", b"\xef\xbb\xbf" + text.encode())
        self.assertEqual(self.plan("p.csv")["peak"], 20)
        self.write("p.csv", text + "10,2,1,64,c\n")
        self.assertEqual(self.plan("p.csv")["peak"], 74)  # b, a, then c at 64

    def test_random_problems_are_near_the_bound(self):
        for seed in range(3):
            make = random.Random(seed)
            rows = []
            for _ in range(300):
                begin = make.randrange(200)
                rows.append((begin, begin + 1 + make.randrange(30), make.randrange(1, 10_000)))
            self.write("p.csv", problem(rows))
            quick = self.plan("p.csv", "--budget-ms", 0)  # no clock in it, so the same on any machine
            self.assertEqual(quick["lower_bound"], most_live(rows))
            self.assertLess(quick["ratio"], 1.15)
            self.assertEqual(quick["peak"], self.plan("p.csv", "--budget-ms", 0)["peak"])
            self.assertGreaterEqual(self.plan("p.csv", "--budget-ms", 100)["ratio"], 1)

    def test_a_capacity_that_cannot_be_reached_ends_with_1(self):
        self.write("p.csv", problem([(0, 2, 100), (1, 3, 100)]))
        self.assertTrue(self.plan("p.csv", "--capacity", 200)["fits"])
        self.assertFalse(self.plan("p.csv", "--capacity", 199, "--budget-ms", 10, code=1)["fits"])
        self.assertIn("does not fit, and no plan does", self.belay("memory", "plan", "p.csv", "--capacity", 199, code=1).stdout)

    def test_the_picture_has_a_box_for_each_buffer(self):
        self.write("p.csv", "id,lower,upper,size\na<b>&,0,2,100\nc,1,3,50\nnever,4,4,9\n")
        self.belay("memory", "plan", "p.csv", "--svg", "p.svg")
        root = xml.etree.ElementTree.parse(self.folder / "p.svg").getroot()
        titles = [title.text for title in root.iter(SVG + "title")]
        self.assertEqual(len(titles), 2)
        self.assertTrue(titles[0].startswith("a<b>&: 100 bytes at "))

    def test_wrong_files_are_refused_by_line_and_column(self):
        for text, words in [("", "is empty"), ("id,lower,upper,size,lower\n", "names the column 'lower' twice"), ("id,lower,size\n", "lacks the column 'upper'"),
                            ("id,lower,upper,size\n1,0,2\n", "Line 2 of 'p.csv' has 3 values, want 4"),
                            ("id,lower,upper,size\n1,0,2,4\n2,0,x,4\n", "Line 3 of 'p.csv' has the upper 'x'"),
                            ("id,lower,upper,size\n1,0,2,-4\n", "has the size '-4'"),
                            ("id,lower,upper,size\n1,0,2,18446744073709551616\n", "has the size '18446744073709551616'"),
                            ("id,lower,upper,size\n1,3,2,4\n", "lives from 3 to 2"),
                            ("id,lower,upper,size\na,1,2,4\na,1,2,4\n", "Line 3 of 'p.csv' has the id 'a', which another line has"),
                            ("id,lower,upper,size,alignment\n1,0,2,4,3\n", "alignment 3, want a power of two"),
                            ("id,lower,upper,size\n1,0,2,18446744073709551000\n", "buffer 0 has 18446744073709551000 bytes, want less than 2^63"),
                            ("id,lower,upper,size\n1,0,2,4611686018427387904\n2,0,2,4611686018427387904\n",
                             "live at step 0 have 9223372036854775808 bytes together, want less than 2^63"),
                            ("x" * 5000, "longer than 4096 bytes")]:
            with self.subTest(words=words):
                self.write("p.csv", text)
                self.assertIn(words, self.belay("memory", "plan", "p.csv", code=3).stderr)
        self.write("plan.csv", problem([]))
        self.assertRegex(self.belay("memory", "plan", "plam.csv", code=3).stderr,
                         r"Cannot open 'plam.csv': No such file or directory\.\n.*did you mean 'plan.csv'\?")
        self.assertIn("There is no device 'nope'; there is cpu:0.",
                      self.belay("memory", "plan", "plan.csv", "--device", "nope", code=4).stderr)
        self.assertEqual(self.plan("plan.csv")["peak"], 0)
        self.write("cut.csv.gz", gzip.compress(problem([(0, 2, 100)] * 5000).encode())[:-200])
        self.assertIn("Cannot read 'cut.csv.gz'", self.belay("memory", "plan", "cut.csv.gz", code=3).stderr)
        whole = gzip.compress(problem([(0, 2, 100)]).encode())
        for behind in (b"1", b"1,0,2,100\n" * 9000, b"\x1f\x8c", b"\0"):
            self.write("more.csv.gz", whole + behind)
            self.assertIn("behind its last member of gzip", self.belay("memory", "plan", "more.csv.gz", code=3).stderr)
        self.write("more.csv.gz", whole + whole[:9])
        self.assertIn("it is cut off", self.belay("memory", "plan", "more.csv.gz", code=3).stderr)
        self.assertIn("Cannot write", self.belay("memory", "plan", "plan.csv", "--svg", "no/such.svg", code=3).stderr)

    def test_extremes_are_planned_and_drawn(self):
        self.write("p.csv", "id,lower,upper,size\n1,0,9223372036854775808,4611686018427387904\n"
                            "2,9223372036854775807,18446744073709551615,4611686018427380000\n")
        self.assertEqual(self.plan("p.csv", "--svg", "p.svg", "--capacity", 2**64 - 1, "--budget-ms", 1e300)["peak"],
                         4611686018427387904 + 4611686018427380000)
        self.assertIn(">18446744073709551615</text>", (self.folder / "p.svg").read_text())
        self.write("p.csv", "id,lower,upper,size\na,2,2,5\n")
        self.assertRegex(self.belay("memory", "plan", "p.csv").stdout, r"peak +5 bytes \(5 B\), though no buffer ever lives")
        said = self.belay("memory", "plan", "p.csv", "--svg", self.folder / "p.csv", code=2).stderr
        self.assertIn("which is the file that is read", said)
        self.assertIn("id,lower", (self.folder / "p.csv").read_text())
        for option, words in (("--capacity", "is no size of at most"), ("--seed", "is no number of 0 to")):
            for value in ("-1", "18446744073709551616", "1e3"):
                self.assertIn(f"'{value}' {words}", self.belay("memory", "plan", "p.csv", f"{option}={value}", code=2).stderr)

    def test_published_problems_fit_into_their_capacity(self):
        files = sorted(self.problems.glob("minimalloc/?.1048576.csv"))
        if not files:
            self.skipTest(f"{self.problems} is not there")
        for file in files:
            with self.subTest(file=file.name):
                self.assertTrue(self.plan(file, "--capacity", 1048576, "--budget-ms", 30_000)["fits"])


if __name__ == "__main__":
    MemoryPlanTest.program = sys.argv[1]
    MemoryPlanTest.problems = pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
