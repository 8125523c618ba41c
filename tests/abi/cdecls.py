"""What C headers declare, as clang reads them: records, typedefs, functions and constants named belay_* or BELAY_*."""
import json
import pathlib
import re
import subprocess


# An expression of numbers, strings and other constants.
CONSTANT = re.compile(r'(?:"(?:\\.|[^"\\])*"|\b(?:0[xX][0-9a-fA-F]+|[0-9]+)[uUlL]*\b|BELAY_[A-Z0-9_]+|[-+*|&~<>() ])+')


class Unreadable(Exception):
    """A header that cannot be dumped, with the reason."""


def include_dir(root):
    return pathlib.Path(root) / "sdk/include"


def abi_headers(root):
    """The headers of the ABI, as they are included; drafts are not part of it."""
    base = include_dir(root)
    return [str(path.relative_to(base)) for path in sorted((base / "belay/abi").rglob("*.h"))
            if "draft" not in path.parts]


def clang(root, headers, *options):
    source = "".join(f"#include <{header}>\n" for header in headers)
    done = subprocess.run(["clang", "-x", "c", "-std=c11", "-I", include_dir(root), *options, "-"], input=source,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Unreadable(f"clang cannot read {', '.join(headers)}:\n{done.stderr}")
    return done.stdout


def declarations(root, headers):
    """The declarations of a translation unit that includes `headers`, those of the system left out."""
    unit = json.loads(clang(root, headers, "-fsyntax-only", "-Xclang", "-ast-dump=json"))
    found = []
    for node in unit["inner"]:
        name = node.get("name", "")
        if node.get("isImplicit") or node["kind"] == "StaticAssertDecl":
            continue
        if name.startswith("belay_") or is_ours(node, root):
            found.append(node)
    return found


def is_ours(node, root):
    """True for a declaration whose place clang prints and that lies in the SDK; it prints a file once for each run of
    declarations, so names are what decides, and this finds names that break the rule."""
    place = node.get("loc", {})
    place = place.get("spellingLoc", place)
    return str(place.get("file", "")).startswith(str(include_dir(root)))


def constants(root, headers):
    """{name: text} of the macros BELAY_* that stand for a number or a string."""
    found = {}
    for line in clang(root, headers, "-dM", "-E").splitlines():
        match = re.fullmatch(r"#define (BELAY_\w+) (.+)", line)
        if match and CONSTANT.fullmatch(match.group(2)):
            found[match.group(1)] = match.group(2)
    return found


def functions(root, headers):
    """Names of the functions with external linkage."""
    return sorted({node["name"] for node in declarations(root, headers)
                   if node["kind"] == "FunctionDecl" and node.get("storageClass") != "static"})
