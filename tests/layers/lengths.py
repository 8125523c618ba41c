"""No file of code is longer than 1,000 lines; those over 500 are listed, each should have a reason. The core itself,
without the libraries in its folders, has at most 2,000."""
import pathlib
import sys

import tree

LIMIT, LONG, CORE_LIMIT = 1000, 500, 2000


def lengths(root):
    for name in tree.files(root):
        if tree.is_code(name):
            yield (pathlib.Path(root) / name).read_bytes().count(b"\n"), name


def core_lines(root):
    return sum(lines for lines, name in lengths(root)
               if str(pathlib.PurePath(name).parent) == "core" and not name.endswith("CMakeLists.txt"))


def check(root):
    problems = [f"{name}: {lines} lines, want {LIMIT} at most" for lines, name in lengths(root) if lines > LIMIT]
    if (lines := core_lines(root)) > CORE_LIMIT:
        problems.append(f"core: {lines} lines in its own sources, want {CORE_LIMIT} at most")
    return problems


if __name__ == "__main__":
    for lines, name in sorted(lengths(sys.argv[1]), reverse=True):
        if lines > LONG:
            print(f"over {LONG}: {name} {lines}")
    print(f"core itself: {core_lines(sys.argv[1])} lines of {CORE_LIMIT}")
    sys.exit(tree.report(check(sys.argv[1]), "lengths"))
