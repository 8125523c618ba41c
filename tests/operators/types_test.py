#!/usr/bin/python3
"""Every operator of the standard in every element type that it allows, each use as a model of one node.

  types_test.py DRIVER PLUGINS [--all] [--only OPERATOR] [--set KEY=VALUE]...

Without --all of each operator the newest version up to opset 17 and the newest of all, each type variable on its own; with it
every version, with shapes that the model does not tell and with constant inputs as well. refused.txt names what is refused, with the reason; what is there and
passes, or is refused and not there, is a failure.
"""
import argparse
import fnmatch
import itertools
import pathlib
import sys
import time

import schemas
import table_elements
import table_moves
import table_neural
from context import Context
from drive import Driver
from values import F32, I64, NAME_OF
from ways import WAYS

TABLE = table_elements.TABLE | table_moves.TABLE | table_neural.TABLE
# Tested elsewhere, with the models that they need.
ELSEWHERE = {"Gradient": "tests/models/cases_gradient.py", "ImageDecoder": "it reads compressed pictures"}
PAIRS = {"Cast", "CastLike", "BitCast", "Pow"}  # all pairs of types, not only one of them at a time


def choices(op, variables):
    """The types to test: for each type variable each of its types, the others as usual; of what takes pairs all of them."""
    usual = {}
    for name, types in variables.items():
        kinds = [t for t in types if t[0] == "tensor"] or types
        usual[name] = next((t for t in kinds if t[1] in (F32, I64)), kinds[0])
    if "T" in usual and "V" not in usual and op in ("ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceInsert", "SplitToSequence"):
        variables = {k: v for k, v in variables.items() if k != "S"}  # the sequence of T
    seen = set()
    if op in PAIRS and len(variables) == 2:
        options = [dict(zip(variables, pair)) for pair in itertools.product(*variables.values())]
    else:
        options = [usual | {name: kind} for name, types in variables.items() for kind in types]
    for option in options or [usual]:
        key = tuple(sorted(option.items()))
        if key not in seen:
            seen.add(key)
            types = {name: kind[1] for name, kind in option.items()}
            kinds = {kind[0] for kind in option.values()} - {"tensor"}
            yield types | ({"kind": kinds.pop()} if kinds else {})


def label(domain, op, version, types):
    parts = [f"{name}={NAME_OF.get(kind, kind)}" for name, kind in sorted(types.items()) if name != "kind"]
    return " ".join([f"{domain + '.' if domain else ''}{op}-{version}", *(["kind=" + types["kind"]] if "kind" in types else []), *parts])


def read_list():
    """[[pattern, reason, used]] of refused.txt"""
    lines = (pathlib.Path(__file__).parent / "refused.txt").read_text().splitlines()
    return [[*map(str.strip, line.split("|", 1)), 0] for line in lines if line.strip() and not line.startswith("#")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("plugins")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="*")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    driver, listed = Driver(args.driver, args.plugins, args.set), read_list()
    everything = list(schemas.uses())
    newest = {}
    for domain, op, version, _ in everything:
        best = newest.setdefault((domain, op), [0, 0])
        best[0] = max(best[0], version if version <= schemas.DEBIAN else 0)
        best[1] = max(best[1], version)
    wrong, counts, start = [], {"uses": 0, "choices": 0, "refused": 0, "operators": set(), "versions": set()}, time.process_time()
    for domain, op, version, variables in everything:
        if not fnmatch.fnmatch(op, args.only) or op in ELSEWHERE or not args.all and version not in newest[domain, op]:
            continue
        if op not in TABLE:
            wrong.append(f"{op}-{version}: there is no example of it")
            continue
        counts["operators"].add((domain, op))
        counts["versions"].add((domain, op, version))
        for types in choices(op, variables):
            name = label(domain, op, version, types)
            try:
                uses = list(TABLE[op](Context(domain, op, version, types)))
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(f"{name}: its example fails: {type(error).__name__}: {error}")
                continue
            counts["choices"] += 1
            entry = next((e for e in listed if fnmatch.fnmatchcase(name, e[0])), None)
            problems = []
            for use in uses:
                for way, options in (WAYS if args.all else {"": {}}).items():
                    counts["uses"] += 1
                    if problem := use.problem(driver, **options):
                        problems.append(f"{name}{way} {use.attributes or ''}: {problem}")
            refused = bool(problems) and all(": refused: " in p for p in problems)
            if entry and refused:
                entry[2] += 1
                counts["refused"] += 1
            elif entry and uses and not problems:
                wrong.append(f"{name}: is listed as refused ({entry[1]}), but passes")
            else:
                wrong += problems[:2]
    wrong += [f"refused.txt: nothing is refused that '{e[0]}' names" for e in listed if args.all and args.only == "*" and not e[2]]
    driver.close()
    for line in wrong:
        print(line[:1500])
    print(f"{len(counts['operators'])} operators in {len(counts['versions'])} versions, {counts['choices']} choices of types, {counts['uses']} runs; "
          f"{counts['refused']} refused as listed; {len(wrong)} wrong; {time.process_time() - start:.1f} s of processor time beside the driver")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
