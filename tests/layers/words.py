"""No file of the tree names a place of one machine or the host of a package registry."""
import pathlib
import re
import sys

import tree

# Written so that this file does not name them either.
FORBIDDEN = [
    (re.compile(rb"(?<![\w.])/(?:" + b"|".join([b"wo" b"rk", b"ho" b"me", b"ro" b"ot", b"Us" b"ers"]) + rb")/[\w.-]"),
     "an absolute path of one machine"),
    (re.compile(rb"\b(?:" + b"|".join([rb"regis" rb"try\.[\w-]+\.\w+", rb"deb\.deb" rb"ian\.org", rb"files\.python" rb"hosted",
                                       rb"pypi\.o" rb"rg", rb"cra" rb"tes\.io", rb"proxy\.go" rb"lang"]) + rb")"),
     "the host of a package registry"),
]


def check(root):
    problems = []
    for name in tree.files(root):
        for number, line in enumerate((pathlib.Path(root) / name).read_bytes().split(b"\n"), 1):
            for pattern, what in FORBIDDEN:
                match = pattern.search(line)
                if match:
                    problems.append(f"{name}:{number}: names {what}: {match.group(0).decode(errors='replace')}")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1]), "words"))
