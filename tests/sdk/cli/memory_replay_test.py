"""`belay memory replay`.

  memory_replay_test.py PROGRAM TRACES [OPTION...]    the recorded traces are replayed where the folder TRACES is there; with
                                                      options only what holds for any policy is tested, with them
"""
import gzip
import json
import pathlib
import random
import re
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from program import ProgramTest

REPLAY = {"file": str, "policy": str, "rows": int, "pairs": int, "left": int, "streams": int, "threads": int, "lag": str, "finished": bool,
          "row": int, "ns_per_pair": (int, float), "runs": int, "max_live": int, "reserved_peak": int, "ratio": (int, float),
          "segments": int, "waits": int, "lost_in_blocks": int, "free_at_fullest": int, "largest_free_at_fullest": int,
          "trimmed": int, "verified": bool}
SVG = "{http://www.w3.org/2000/svg}"


def trace(rows):
    return "op,id,size,stream\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def random_rows(seed, count, streams, most=1 << 20):
    """A program that holds up to 100 blocks, of sizes that come again and of some that do not."""
    make = random.Random(seed)
    sizes = [make.randrange(1, most) for _ in range(12)]
    live, rows = {}, []
    for i in range(count):
        if len(live) < make.randrange(1, 100):
            live[i] = make.choice(sizes) if make.random() < 0.7 else make.randrange(1, most)
            rows.append(("a", i, live[i], make.randrange(streams)))
        else:
            block = make.choice(list(live))
            if streams > 1 and make.random() < 0.2:
                rows.append(("u", block, 0, make.randrange(streams)))
            rows.append(("f", block, live.pop(block), make.randrange(streams)))
    return rows + [("f", block, size, 0) for block, size in live.items()]


def most_live(rows):
    live = most = 0
    for op, _, size, _ in rows:
        live += {"a": size, "f": -size, "u": 0}[op]
        most = max(most, live)
    return most


class MemoryReplayTest(ProgramTest):
    traces = None
    readme = pathlib.Path(__file__).parents[3] / "README.md"

    def replay(self, *arguments, code=0, **options):
        made = self.json("memory", "replay", *arguments, "--runs", 1, schema="belay.memory-replay/1", code=code, **options)
        self.assert_shape({key: value for key, value in made.items() if key != "schema"}, REPLAY)
        return made

    def test_what_is_released_is_used_again(self):
        rows = [("a", 1, 1000, 0), ("a", 2, 3000, 0), ("f", 1, 1000, 0), ("a", 3, 900, 0), ("f", 2, 3000, 0), ("f", 3, 900, 0)]
        self.write("t.csv", trace(rows))
        made = self.replay("t.csv", "--min-capacity")
        self.assertEqual((made["max_live"], made["rows"], made["pairs"], made["streams"]), (4000, 6, 3, 1))
        self.assertEqual(made["reserved_peak"], 4096)  # 1024 + 3072
        self.assertTrue(made["finished"] and made["verified"])
        text = self.belay("memory", "replay", "t.csv", "--runs", 1).stdout
        self.assertIn("6, 3 pairs of place and release, 1 stream", text)
        self.assertIn("ns a pair", text)
        self.assertRegex(text, r"blocks up to +used +free\n")

    def test_random_programs_need_little_more_than_is_live(self):
        for seed, streams in ((1, 1), (2, 1), (3, 4)):
            rows = random_rows(seed, 3000, streams)
            (self.folder / "t.csv.gz").write_bytes(gzip.compress(trace(rows).encode()))
            made = self.replay("t.csv.gz", "--min-capacity")
            self.assertEqual(made["max_live"], most_live(rows))
            self.assertLess(made["ratio"], 1.25)
            self.assertEqual(made["waits"], 0)  # all is reached at once
            exact = made["reserved_peak"]
            grown = self.replay("t.csv.gz")
            self.assertGreaterEqual(grown["reserved_peak"], made["max_live"])
            self.assertFalse(self.replay("t.csv.gz", "--capacity", made["max_live"] - 1, code=1)["finished"])
            self.assertTrue(self.replay("t.csv.gz", "--capacity", 2 * exact)["finished"])

    def test_the_smallest_capacity_that_is_found_does(self):
        for seed in range(12):
            rows = random_rows(seed, 1500, 1 + seed % 4, most=1 << 17)
            self.write("t.csv", trace(rows))
            with self.subTest(seed=seed):
                self.assertTrue(self.replay("t.csv", "--min-capacity")["finished"])

    def test_a_capacity_that_leaves_no_segment_is_waited_in(self):
        # What is free may still be used by stream 0: a wait gives it, with no segment taken away or added.
        self.write("t.csv", trace([("a", 1, 60000, 0), ("f", 1, 60000, 0), ("a", 2, 60000, 1), ("f", 2, 60000, 1)]))
        made = self.replay("t.csv", "--capacity", 65536, "--lag", "never", "--set", "plugin.pool.config.cross_stream=grow",
                           "--set", "plugin.pool.config.pool_size=64KiB")
        self.assertEqual((made["waits"], made["trimmed"], made["segments"]), (1, 0, 1))
        self.write("t.csv", trace([("a", 1, 64, 0), ("f", 1, 64, 0)]))

    def test_a_capacity_is_one_reservation_of_it(self):
        for rows in [random_rows(7, 2000, 1), random_rows(8, 2000, 3, most=5000)]:
            self.write("t.csv", trace(rows))
            least = self.replay("t.csv", "--min-capacity")["reserved_peak"]
            made = self.replay("t.csv", "--capacity", least)
            self.assertEqual((made["segments"], made["reserved_peak"]), (1, least))
            self.assertEqual(self.replay("t.csv", "--capacity", f"{least / 1024:.0f}KiB")["reserved_peak"], least)
        self.write("t.csv", trace([("a", 1, 4096, 0), ("a", 2, 9000, 1), ("f", 1, 4096, 0), ("f", 2, 9000, 1)]))
        self.assertTrue(self.replay("t.csv", "--capacity", 16384)["finished"])  # less than the pool's own segments
        said = self.belay("memory", "replay", "t.csv", "--capacity", 8192, code=1).stdout
        self.assertRegex(said, r"row 2, of 8.79 KiB, finds no room in 8.00 KiB: the policy asks for a segment of .* more, and nothing is left")
        for bad in ("-1", "1.5MiB", "16777216TiB", "1mib"):
            self.assertIn("is no size", self.belay("memory", "replay", "t.csv", f"--capacity={bad}", code=2).stderr)

    def test_the_configurations_policy_or_the_one_that_is_named(self):
        self.write("t.csv", trace([("a", 1, 64, 0), ("f", 1, 64, 0)]))
        self.assertEqual(self.replay("t.csv")["policy"], "pool")
        self.assertEqual(self.replay("t.csv", "--set", 'memory.policies=["reuse","pool"]')["policy"], "pool")
        said = self.belay("memory", "replay", "t.csv", "--set", 'memory.policies=["reuse"]', code=2).stderr
        self.assertIn("No policy of [memory] policies places blocks", said)
        said = self.belay("memory", "replay", "t.csv", "--policy", "nosuch", code=2).stderr
        self.assertRegex(said, "There is no memory policy 'nosuch'; plugins offer .*pool, reuse.*zerocopy")
        self.assertNotIn("--set", said)
        self.assertIn("did you mean 'pool'?", self.belay("memory", "replay", "t.csv", "--policy", "pol", code=2).stderr)

    def test_columns_of_a_trace(self):
        self.write("t.csv", "id,op,alignment,size,stream\nfirst block,a,4096,100,5\nb,a,1,100,5\nfirst block,f,,100,2\nb,f,x,100,5\n")
        made = self.replay("t.csv", "--min-capacity", "--snapshot", "s.json")
        self.assertEqual((made["rows"], made["pairs"], made["left"], made["streams"]), (4, 2, 0, 2))
        offsets = [block["offset"] for segment in json.loads((self.folder / "s.json").read_text())["segments"]
                   for block in segment["blocks"] if block["state"] == "used"]
        self.assertEqual(len(offsets), 2)
        self.assertTrue(any(offset % 4096 == 0 for offset in offsets))
        self.write("t.csv", "op,id,size,stream,alignment\na,1,1,0,48\n")
        self.assertIn("has the alignment 48, want a power of two", self.belay("memory", "replay", "t.csv", code=3).stderr)
        self.write("t.csv", trace([("a", 1, 64, 0), ("a", 2, 64, 0), ("f", 1, 64, 0)]))
        made = self.replay("t.csv")
        self.assertEqual((made["rows"], made["pairs"], made["left"]), (3, 2, 1))
        self.assertIn("1 block that the trace does not free", self.belay("memory", "replay", "t.csv").stdout)
        for option in ("--svg", "--snapshot"):
            self.assertIn(f"{option} is './t.csv', which is the file that is read",
                          self.belay("memory", "replay", "t.csv", option, "./t.csv", code=2).stderr)

    def test_events_that_are_not_reached_are_waited_for_or_it_grows(self):
        self.write("t.csv", trace(random_rows(4, 3000, 4)))
        never = self.replay("t.csv", "--lag", "never")
        grow = self.replay("t.csv", "--lag", "never", "--set", "plugin.pool.config.cross_stream=grow")
        self.assertGreater(never["waits"], 0)
        self.assertEqual(grow["waits"], 0)
        self.assertGreater(grow["reserved_peak"], never["reserved_peak"])
        self.assertEqual(self.replay("t.csv", "--lag", 0)["waits"], 0)
        self.assertLessEqual(self.replay("t.csv", "--lag", 10)["waits"], never["waits"])
        self.assertIn("only when waited for", self.belay("memory", "replay", "t.csv", "--lag", "never", "--runs", 1).stdout)

    def test_threads_share_a_pool(self):
        self.write("t.csv", trace(random_rows(5, 2000, 2)))
        made = self.replay("t.csv", "--threads", 3)
        self.assertEqual(made["threads"], 3)
        self.assertIn("--threads goes with neither", self.belay("memory", "replay", "t.csv", "--threads", 2, "--lag", 3, code=2).stderr)

    def test_threads_that_sometimes_find_no_room_end_without_another_failure(self):
        make, rows = random.Random(1), []
        for first in range(0, 3000, 3):
            blocks = [(first + i, make.randrange(1, 1 << 20), 0) for i in range(3)]
            rows += [("a", *block) for block in blocks] + [("f", *block) for block in blocks]
        self.write("t.csv", trace(rows))
        for _ in range(4):
            said = self.belay("memory", "replay", "t.csv", "--threads", 8, "--runs", 40, "--capacity", 4 * most_live(rows), code=(0, 1))
            self.assertEqual(said.stderr, "")

    def test_threads_that_find_no_room_end_with_1(self):
        # Each holds a block for as long as the other needs to begin.
        held = [("a", 0, 1 << 20, 0)] + [(op, 1, 64, 0) for _ in range(50_000) for op in "af"] + [("f", 0, 1 << 20, 0)]
        self.write("t.csv", trace(held))
        command = ("memory", "replay", "t.csv", "--threads", 8, "--runs", 20, "--capacity", 3 << 19)
        self.assertRegex(self.belay(*command, code=1).stdout, r"row 1 of thread \d, of 1.00 MiB, finds no room in 1.50 MiB")
        made = self.json(*command, schema="belay.memory-replay/1", code=1)
        self.assertEqual((made["finished"], made["row"]), (False, 1))

    def test_the_snapshot_and_its_picture_show_the_fullest_moment(self):
        rows = random_rows(6, 800, 2)
        self.write("t<a>&.csv", trace(rows))
        self.belay("memory", "replay", "t<a>&.csv", "--runs", 1, "--snapshot", "s.json", "--svg", "s.svg")
        shown = json.loads((self.folder / "s.json").read_text())
        self.assertEqual((shown["schema"], shown["policy"]), ("belay.memory-snapshot/1", "pool"))
        used = 0
        for segment in shown["segments"]:
            at = 0
            for block in segment["blocks"]:
                self.assertEqual(block["offset"], at)
                self.assertIn(block["state"], ("used", "free", "pending"))
                at += block["bytes"]
                used += block.get("requested", 0)
            self.assertEqual(at, segment["bytes"])
        self.assertEqual(used, most_live(rows))
        blocks = sum(len(segment["blocks"]) for segment in shown["segments"])
        self.assertEqual(sum(line["used"] + line["free"] for line in shown["classes"]), blocks)
        root = xml.etree.ElementTree.parse(self.folder / "s.svg").getroot()
        titles = [title.text for title in root.iter(SVG + "title")]
        self.assertGreaterEqual(len(titles), sum(block["state"] == "used" and block["bytes"] > 65536
                                                 for segment in shown["segments"] for block in segment["blocks"]))
        self.assertIn("Cannot write", self.belay("memory", "replay", "t<a>&.csv", "--svg", "no/such.svg", code=3).stderr)

    def test_settings_are_checked_by_name(self):
        self.write("t.csv", trace([("a", 1, 1, 0), ("f", 1, 1, 0)]))
        for key, value, words in [("block_size", 3000, "'block_size' of belay.memory-policy/1:pool is \"3000B\", want a power of two"),
                                  ("alignment", 48, "is \"48B\", want a power of two"),
                                  ("hard_limit", 1, "hard_limit is 1"), ("cross_stream", "maybe", "maybe"),
                                  ("growth_percent", -1, "growth_percent"), ("blocksize", 1, "block_size")]:
            with self.subTest(key=key):
                said = self.belay("memory", "replay", "t.csv", "--set", f"plugin.pool.config.{key}={value}", code=2).stderr
                self.assertIn(words, said)
        limits = ("--set", "plugin.pool.config.hard_limit=256", "--set", "plugin.pool.config.soft_limit=256")
        said = self.belay("memory", "replay", "t.csv", *limits, "--capacity", 100, code=2).stderr
        self.assertIn("--capacity is 100 B, which policy 'pool' does not take as a reservation: ", said)
        self.write("t.csv", trace([("a", 1, 200, 0), ("a", 2, 200, 0)]))
        said = self.belay("memory", "replay", "t.csv", *limits, code=1).stdout
        self.assertIn("row 2, of 200 B, finds no room in 256 B: the policy has reached a limit of its own", said)
        self.assertIn("places nothing", self.belay("memory", "replay", "t.csv", "--policy", "reuse", code=2).stderr)
        self.assertIn("want a number of rows, or never", self.belay("memory", "replay", "t.csv", "--lag", "soon", code=2).stderr)

    def test_a_device_that_is_not_there_is_refused(self):
        self.write("t.csv", trace([("a", 1, 64, 0)]))
        for line in ["memory replay t.csv", "doctor", "plugins explain driver"]:
            done = self.belay(*line.split(), "--device", "nope", code=4)
            self.assertIn("There is no device 'nope'; there is cpu:0.", done.stdout + done.stderr)
        self.replay("t.csv", "--device", "cpu")

    def test_wrong_files_are_refused_by_line(self):
        for text, words in [("", "is empty"), ("op,id,size,id,stream\n", "names the column 'id' twice"), ("op,id,size\n", "lacks the column 'stream'"),
                            ("op,id,size,stream\na,1,2\n", "Line 2 of 't.csv' has 3 values, want 4"),
                            ("op,id,size,stream\na,b\x1bc,1,0\na,b\x1bc,1,0\n", "allocates b\\x1bc, which is"),
                            ("op,id,size,stream\na,1,x,0\n", "has the size 'x'"),
                            ("op,id,size,stream\na,1,-1,0\n", "has the size '-1'"),
                            ("op,id,size,stream\na,1,1,70000\n", "has the stream '70000'"),
                            ("op,id,size,stream\na,1,1,0\na,1,1,0\n", "Line 3 of 't.csv' allocates 1, which is allocated"),
                            ("op,id,size,stream\nf,1,1,0\n", "names 1, which is not allocated"),
                            ("op,id,size,stream\na,1,1,0\nf,1,2,0\n", "frees 2 bytes of 1, which has 1"),
                            ("op,id,size,stream\nz,1,1,0\n", "has the op 'z', want a, f or u"),
                            (f"op,id,size,stream\na,1,{2**62},0\na,2,1,0\n", "more than 2^62 bytes live")]:
            with self.subTest(words=words):
                self.write("t.csv", text)
                self.assertIn(words, self.belay("memory", "replay", "t.csv", code=3).stderr)

    def test_extremes(self):
        self.write("t.csv", trace([]))
        self.assertEqual(self.replay("t.csv", "--min-capacity")["max_live"], 0)
        self.write("t.csv", trace([("a", 1, 0, 0), ("a", 2, 0, 9), ("f", 1, 0, 0)]))  # 2 is not freed
        self.assertEqual([self.replay("t.csv")[key] for key in ("pairs", "streams", "left")], [2, 2, 1])
        self.write("t.csv", trace([("a", 1, 1 << 60, 0)]))
        self.assertIn("places up to", self.belay("memory", "replay", "t.csv", code=3).stderr)

    def test_recorded_traces(self):
        files = sorted(self.traces.glob("**/*.csv.gz"))
        if not files:
            self.skipTest(f"{self.traces} is not there")
        for file in files:
            with self.subTest(file=file.name):
                self.assertLess(self.replay(file)["ratio"], 1.3)
        serving = self.traces / "multi-model-serving.csv.gz"
        for lag, most in ((0, 1.12), (100, 1.12), (300, 1.12), ("never", 1.6)):  # one step of growth more or less is 0.06
            with self.subTest(lag=lag):
                made = self.replay(serving, "--lag", lag)
                self.assertLessEqual(made["ratio"], most)
                self.assertLess(made["waits"], made["pairs"] / 50)
        # More threads than processors, so that each is stopped anywhere; one that is lost track of is seen in most of so many runs.
        for _ in range(8):
            self.assertTrue(self.json("memory", "replay", serving, "--threads", 4, "--runs", 5,
                                      schema="belay.memory-replay/1")["finished"])

    def test_documented_commands_run(self):
        documented = self.readme.read_text().split("### memory replay")[1].split("```")[1].splitlines()
        commands = [line[2:] for line in documented if line.startswith("$ ")]
        self.assertGreater(len(commands), 2)
        for command in commands:
            with self.subTest(command=command):
                command = re.sub(r"^belay ", self.program + " ", command)
                subprocess.run(["bash", "-c", command], cwd=self.folder, check=True, stdout=subprocess.DEVNULL, timeout=60)


class OtherPolicyTest(ProgramTest):
    """A policy that does not round: what a trace asks for arrives as it is."""
    options = None

    def test_odd_sizes_lie_where_they_may(self):
        traces = {"odd": trace([("a", 1, 100, 0), ("a", 2, 100, 0), ("f", 1, 100, 0), ("f", 2, 100, 0)]),
                  "random": trace(random_rows(9, 2000, 3)),
                  "aligned": "op,id,size,stream,alignment\na,1,100,0,1\na,2,100,0,4096\nf,1,100,0,\nf,2,100,0,\n"}
        for name, text in traces.items():
            with self.subTest(trace=name):
                self.write("t.csv", text)
                made = self.json("memory", "replay", "t.csv", *self.options, schema="belay.memory-replay/1")
                self.assertTrue(made["finished"] and made["verified"])
                said = self.belay("memory", "replay", "t.csv", *self.options).stdout
                self.assertRegex(said, r"between them in \d+ ranges?, the largest \d\d")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        OtherPolicyTest.program, OtherPolicyTest.options = sys.argv[1], sys.argv[3:]
        unittest.main(argv=[sys.argv[0], "OtherPolicyTest"])
    del OtherPolicyTest
    MemoryReplayTest.program = sys.argv[1]
    MemoryReplayTest.traces = pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
