"""No file of code is longer than 1,000 lines; those over 500 are listed, each should have a reason."""
import pathlib
import sys

import tree

LIMIT, LONG = 1000, 500


def lengths(root):
    for name in tree.files(root):
        if tree.is_code(name):
            yield (pathlib.Path(root) / name).read_bytes().count(b"\n"), name


def check(root):
    return [f"{name}: {lines} lines, want {LIMIT} at most" for lines, name in lengths(root) if lines > LIMIT]


if __name__ == "__main__":
    for lines, name in sorted(lengths(sys.argv[1]), reverse=True):
        if lines > LONG:
            print(f"over {LONG}: {name} {lines}")
    sys.exit(tree.report(check(sys.argv[1]), "lengths"))
