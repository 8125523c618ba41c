"""The program `belay` with its plugins on real models.

  real_test.py PROGRAM SUITE FOLDER [OPTION...]
  digits FOLDER       sdk/examples/digits: the model reads the held-out images as it was trained to
  good FOLDER         what tests/models/make_models.py wrote: equal to the expected outputs
  bad FOLDER          what tests/models/make_bad_models.py wrote: the expected words and exit code 3, never a signal
  shared FOLDER       a folder of models, each with model.onnx and test_data_set_0
  light FOLDER        light_NAME.onnx with light_NAME_output_0.pb, the input is arange(n) / n
  conformance FOLDER  the ONNX backend cases of Debian's libonnx-testdata, but for conformance_exceptions.txt
  random, random_many FOLDER
                      graphs that random_graphs.py in FOLDER makes: equal to what numpy computes, with and without the
                      passes and fusions, in one stream and in several
  undeclared, symbolic, unranked FOLDER
                      the same, whose models say less of their shapes: see open_shapes.py
OPTION...: for each call of the program: --config FILE and the like.
Ends with 77, saying so, where the folder is not there: ctest counts that as skipped.
"""
import array
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import open_shapes
from program import write_npy

SKIPPED = 77
JOBS = 2
# Tolerances of shared models that are not the usual one, with the reasons in that folder's README.
ATOL = {"mlsd_tiny_320": 5e-3, "ppocr_v4_det": 5e-4, "synth_mobilenet_v2_int8": 0.15, "synth_bert_mini_int8": 0.05,
        "synth_minilm_l6_int8": 0.05}
RTOL_LIGHT = {"light_densenet121": 2e-3}
CASES = 1072  # of the conformance suite


class Belay:
    def __init__(self, program, options):
        self.program = program
        self.options = options

    def run(self, *arguments, timeout=120):
        """(exit code, stdout, stderr); code None: it hung."""
        try:
            done = subprocess.run([self.program, *map(str, arguments), *self.options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout)
        except subprocess.TimeoutExpired:
            return None, "", f"not done after {timeout} s"
        return done.returncode, done.stdout, done.stderr


def check_all(items, check):
    """Runs check(item), which gives what is wrong or None, for all; prints what is wrong; the exit code."""
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        problems = [(item, wrong) for item, wrong in zip(items, pool.map(check, items)) if wrong]
    for item, wrong in problems:
        print(f"{item['name'] if isinstance(item, dict) else item}: {wrong}")
    print(f"{len(items) - len(problems)} of {len(items)} as expected")
    return 1 if problems or not items else 0


def outcome(code, out, err):
    """One line about a run that did not end as it should."""
    last = [line for line in (err or out).splitlines() if line.strip()]
    differs = [line for line in out.splitlines() if "DIFFERS" in line]
    return f"exit code {code}: {(differs or last or ['no words'])[0].strip()}"


def good(belay, folder):
    def check(case):  # an entry of cases.json
        at = folder / case["name"]
        for k in range(case["sets"]):
            options = [word for key in ("rtol", "atol") if key in case for word in (f"--{key}", case[key])]
            result = belay.run("run", at / "model.onnx", "--test-data", at / f"test_data_set_{k}", "-q", *options)
            # The example of a device serves what ONNX had up to opset 17.
            if case.get("beyond") and "is not served by the reference device" in result[2]:
                print(f"skipped: {case['name']}: {result[2].strip()}")
                return None
            if result[0] != 0:
                return f"test_data_set_{k}: {outcome(*result)}"
        return None
    return check_all(json.loads((folder / "cases.json").read_text()), check)


def bad(belay, folder):
    expected = json.loads((folder / "expected.json").read_text())
    items = [(name, kind, expected[kind][name] if kind in ("load", "run") else []) for kind in ("load", "run", "accepted", "any")
             for name in expected[kind]]

    def check(item):
        name, kind, words = item
        code, out, err = belay.run("inspect", folder / name) if kind in ("load", "accepted") else belay.run("run", folder / name, "--zeros")
        if code is None or code < 0 or code > 7:
            return outcome(code, out, err)
        if kind == "any":
            return None
        if kind == "accepted":
            return None if code == 0 else outcome(code, out, err)
        missing = [word for word in words if not any(w in err for w in (word if isinstance(word, list) else [word]))]
        if code not in (3, 5):  # 5: what a small file asks for is larger than any memory
            return f"want exit code 3 or 5, {outcome(code, out, err)}"
        return f"want {missing} in: {err.strip()}" if missing else None
    return check_all(items, check)


def shared(belay, folder):
    folders = sorted(path for path in folder.iterdir() if (path / "test_data_set_0").is_dir())
    here = [path for path in folders if (path / "model.onnx").is_file()]
    for path in folders:
        if path not in here:
            print(f"skipped: {path.name}: no model.onnx (its README says how to get it)")

    def check(path):
        options = ["--atol", ATOL[path.name]] if path.name in ATOL else []
        result = belay.run("run", path / "model.onnx", "--test-data", path / "test_data_set_0", "-q", *options, timeout=300)
        return None if result[0] == 0 else outcome(*result)
    return check_all(here, check)


def light(belay, folder):
    def check(path):
        code, out, err = belay.run("inspect", path, "--json", timeout=300)
        if code != 0:
            return outcome(code, out, err)
        given = [i for i in json.loads(out)["inputs"] if not i["optional"]]
        dims = given[0]["dims"]
        count = 1
        for dim in dims:
            count *= dim
        with tempfile.TemporaryDirectory() as work:
            write_npy(f"{work}/x.npy", "<f4", dims, array.array("f", (i / count for i in range(count))).tobytes())
            shutil.copy(path.with_name(path.stem + "_output_0.pb"), f"{work}/output_0.pb")
            result = belay.run("run", path, "--input", f"{given[0]['name']}={work}/x.npy", "--test-data", work, "-q",
                               "--rtol", RTOL_LIGHT.get(path.stem, 1e-3), "--atol", 1e-7, timeout=300)
        return None if result[0] == 0 else outcome(*result)
    return check_all(sorted(folder.glob("light_*.onnx")), check)


def exceptions():
    """{case: reason} of conformance_exceptions.txt."""
    lines = pathlib.Path(__file__).with_name("conformance_exceptions.txt").read_text().splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def conformance(belay, folder):
    code, out, err = belay.run("conformance", "onnx", folder, "--json", "--jobs", JOBS, timeout=1500)
    if code not in (0, 1):
        print(outcome(code, out, err))
        return SKIPPED if "which this CPU lacks" in err else 1
    cases = {case["name"]: case for case in json.loads(out)["cases"]}
    listed = exceptions()
    missing = [name for name in listed if name not in cases]
    wrong = {name: f"{case['status']}: {case['reason']}" for name, case in cases.items()
             if case["status"] != "passed" and name not in listed}
    wrong |= {name: "is among the exceptions, but passes" for name in listed if cases.get(name, {}).get("status") == "passed"}
    for name, reason in wrong.items():
        print(f"{name}: {reason}")
    passed = sum(case["status"] == "passed" for case in cases.values())
    print(f"{passed} of {len(cases)} passed, {len(listed)} exceptions, {len(wrong)} unexpected; want {CASES} cases; "
          f"exceptions that are no case: {missing}")
    return 0 if not wrong and not missing and len(cases) == CASES else 1


# How random graphs are run. What stays of the passes brings a model to the operators that the engine has.
WAYS = {"as usual": [],
        "without passes and fusions": ["--set", "engine.disable_passes=" + json.dumps([
            "constant-folding", "identity", "inline-if", "common-nodes", "pad-folding", "layer-norm", "gelu", "quantized-products",
            "quantized-elementwise", "dynamic-products", "dead-code", "dequantized-constants", "affine-folding"]),
            "--set", 'engine.disable_fusions=["*"]'],
        "without fusions": ["--set", 'engine.disable_fusions=["*"]'],
        "in three streams": ["--set", "engine.streams=3", "--set", "engine.threads=2", "--set", "plugin.cpu.config.threads=2"]}


def random_graphs(first, count):
    def suite(belay, folder):
        if importlib.util.find_spec("onnx") is None or importlib.util.find_spec("numpy") is None:
            print("skipped: there is no python3-onnx or no numpy")
            return SKIPPED
        wrong = 0
        with tempfile.TemporaryDirectory() as work:
            parts = [first + count * i // JOBS for i in range(JOBS + 1)]
            makers = [subprocess.Popen([sys.executable, "-B", folder / "random_graphs.py", work, str(a), str(b - a)])
                      for a, b in zip(parts, parts[1:])]
            if any([maker.wait() for maker in makers]):
                return 1
            for name, options in WAYS.items():
                code, out, err = belay.run("conformance", "onnx", work, "--json", "--jobs", JOBS, "--rtol", 2e-3, "--atol", 1e-4,
                                           *options, timeout=1500)
                cases = json.loads(out)["cases"] if code in (0, 1) else []
                bad = [case for case in cases if case["status"] != "passed"]
                for case in bad:
                    print(f"{case['name']}, {name}: {case['status']}: {case['reason']}")
                print(f"{name}: {len(cases) - len(bad)} of {count}" if cases else outcome(code, out, err))
                wrong += len(bad) + (len(cases) != count)
        if wrong:
            print("one of them for itself: random_graphs.py OUT SEED 1")
        return 1 if wrong else 0
    return suite


def less_shaped(how):
    def suite(belay, folder):
        try:
            import onnx  # noqa: F401
        except ImportError:
            print("skipped: there is no python3-onnx")
            return SKIPPED
        with tempfile.TemporaryDirectory() as work:
            open_shapes.write(folder, pathlib.Path(work), how)
            return conformance(belay, pathlib.Path(work))
    return suite


def digits(belay, folder):
    with tempfile.TemporaryDirectory() as work:
        code, out, err = belay.run("run", folder / "digits.onnx", "--input", f"image={folder / 'heldout_images.npy'}", "-o", work, "--json")
        if code != 0:
            print(outcome(code, out, err))
            return 1
        answers = json.loads(out)["outputs"][0]
        saved = array.array("f", pathlib.Path(work, "probabilities.npy").read_bytes()[128:])
    expected = array.array("f", (folder / "heldout_probabilities.npy").read_bytes()[128:])
    labels = array.array("q", (folder / "heldout_labels.npy").read_bytes()[128:])
    rows = [answers["values"][10 * i:10 * i + 10] for i in range(len(labels))]
    right = sum(row.index(max(row)) == label for row, label in zip(rows, labels))
    furthest = max(abs(a - b) for a, b in zip(saved, expected))
    print(f"{right} of {len(labels)} right, probabilities at most {furthest:.1e} from PyTorch's")
    return 0 if answers["dims"] == [360, 10] and right >= 0.97 * len(labels) and furthest < 1e-4 else 1


def main():
    program, suite, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    if not folder.is_dir():
        print(f"skipped: there is no {folder}")
        return SKIPPED
    suites = {how: less_shaped(how) for how in open_shapes.HOW}
    suites |= {"good": good, "bad": bad, "shared": shared, "light": light, "conformance": conformance, "digits": digits,
               "random": random_graphs(0, 500), "random_many": random_graphs(500, 12000)}
    return suites[suite](Belay(os.path.abspath(program), sys.argv[4:]), folder.resolve())


if __name__ == "__main__":
    sys.exit(main())
