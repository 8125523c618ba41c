"""Who may include what: the layers of the architecture as a table, checked against every #include of the tree."""
import os
import pathlib
import re
import sys

import tree

HELPERS = ["sdk/graph", "sdk/tensor_io"]  # static helper libraries: for plugins and facades
HOSTING = ["sdk/runtime/include"]         # the C++ API over libbelay.so
OWN = "."                                 # the folder of the row itself

# Folder (a * is one level; the longest match counts), what it may include from the tree, and which third-party
# headers (up to the first /). Headers without a folder, such as <vector>, and <sys/...> are allowed to all but the ABI.
TABLE = [
    ("sdk/include/belay/abi", [OWN], []),
    ("sdk/include/belay/testing", ["sdk/include"], ["gmock", "gtest"]),
    ("sdk/include", [OWN], []),
    ("sdk/graph", ["sdk/include", OWN], []),
    ("sdk/tensor_io", ["sdk/include", OWN], ["protozero"]),
    ("sdk/runtime", ["sdk/include", OWN, "hal", "core"], ["dlpack"]),  # libbelay.so: the C functions over the HAL inside it
    ("sdk/acl", ["sdk/include", OWN, *HOSTING, *HELPERS], []),
    ("sdk/python", ["sdk/include", OWN, *HOSTING, *HELPERS], ["pybind11"]),
    ("sdk/cli", ["sdk/include", OWN, *HOSTING, *HELPERS], ["CLI", "nlohmann"]),
    ("sdk/conformance", ["sdk/include", OWN, *HOSTING, *HELPERS], ["nlohmann"]),
    ("sdk/examples/*", ["sdk/include", OWN, *HOSTING, *HELPERS], ["gmock", "gtest"]),
    ("sdk/templates/*", ["sdk/include", OWN, *HOSTING, *HELPERS], ["gmock", "gtest"]),
    ("core/base", ["sdk/include", OWN], ["boost", "spdlog"]),
    ("core/config", ["sdk/include", OWN, "core/base"], ["toml++"]),
    ("core/guard", ["sdk/include", OWN, "core/base", "core/config"], []),
    ("core/discovery", ["sdk/include", OWN, "core/base", "core/config", "core/guard"], []),
    ("core/services", ["sdk/include", "core"], []),
    ("core", ["sdk/include", OWN], ["boost"]),
    ("hal", ["sdk/include", "core", OWN], ["boost"]),
    ("plugins/*/*", ["sdk/include", OWN, *HELPERS], ["protozero", "dnnl", "oneapi", "Eigen", "boost"]),
    ("plugins/engine/graph/ir", ["sdk/include", OWN, *HELPERS], []),
    ("plugins/engine/graph/passes", ["sdk/include", OWN, "plugins/engine/graph/ir", *HELPERS], []),
    ("plugins/engine/graph/plan", ["sdk/include", OWN, "plugins/engine/graph/ir", *HELPERS], []),
    ("plugins/engine/graph/schedule",
     ["sdk/include", OWN, "plugins/engine/graph/ir", "plugins/engine/graph/plan", *HELPERS], ["re2"]),
    ("tests/core/base", ["sdk/include", "core/base", "tests"], None),  # what is built alone is tested alone
    ("tests/core/config", ["sdk/include", "core/config", "core/base", "tests"], None),
    ("tests/core/guard", ["sdk/include", "core/guard", "core/base", "tests"], None),
    ("tests/core/discovery", ["sdk/include", "core/discovery", "core/config", "core/base", "tests"], None),
    ("tests/core", ["sdk/include", "core", "tests"], None),
    ("tests", ["sdk", "core", "hal", "plugins", "tests"], None),  # None: any
]

# The core itself does without what stands on it.
NOT_FOR = {"core": ["core/services"]}

# The core knows no tensor: not even through another header may it see one of these of sdk/include/belay.
TENSOR_HEADERS = {"graph", "tensor", "kernel", "kernel_provider", "driver", "hal", "engine", "memory_policy",
                  "model_format", "runtime"}
ABI_EXTERNAL = {"stdint.h", "stddef.h"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|("(?:\\.|[^"\\\n])*")', re.DOTALL)
SOURCES = {".c", ".cc", ".cpp", ".h", ".hpp", ".inc"}
SYSTEM = {"sys", "linux"}  # folders of the system's own headers


def includes(text):
    """(quote, name, line) of each #include outside comments."""
    text = COMMENT.sub(lambda m: m.group(1) or "\n" * m.group(0).count("\n"), text)
    return [(m.group(1), m.group(2), text.count("\n", 0, m.start()) + 1) for m in INCLUDE.finditer(text)]


def row_of(name):
    """The row of the table for a file, and the folder that the row's pattern stands for."""
    parts = name.split("/")[:-1]
    best = None
    for pattern, allowed, third_party in TABLE:
        wanted = pattern.split("/")
        if len(wanted) > len(parts) or any(w not in ("*", p) for w, p in zip(wanted, parts)):
            continue
        if best is None or len(wanted) > len(best[0].split("/")):
            best = ("/".join(parts[:len(wanted)]), allowed, third_party)
    return best


def below(name, folder):
    return name == folder or name.startswith(folder + "/")


class Tree:
    def __init__(self, root, names):
        self.root = pathlib.Path(root)
        self.sources = {n for n in names if pathlib.PurePath(n).suffix in SOURCES}
        includes_below_sdk = {f"sdk/{n.split('/')[1]}/include" for n in names if n.startswith("sdk/") and "/include/" in n}
        self.include_roots = ["sdk/include", "", "tests", *sorted(includes_below_sdk)]
        self.read = {}

    def includes(self, name):
        if name not in self.read:
            self.read[name] = includes((self.root / name).read_text(encoding="utf-8"))
        return self.read[name]

    def resolve(self, includer, name):
        """The file of the tree that an #include means, or None: one beside it or in a folder around it, else below an
        include root, else (for a test) in the folder of a plugin."""
        folder = pathlib.PurePath(includer).parent
        around = [str(p) for p in [folder, *folder.parents] if str(p) != "."]
        for place in [*around, *self.include_roots]:
            candidate = os.path.normpath(os.path.join(place, name))
            if candidate in self.sources:
                return candidate
        if includer.startswith("tests/"):
            ends = sorted(s for s in self.sources if s.startswith("plugins/") and s.endswith("/" + name))
            return ends[0] if ends else None
        return None


def reaches_tensor(sources, header, seen):
    """The way from a header of the SDK to one that knows tensors, or None."""
    if pathlib.PurePath(header).stem in TENSOR_HEADERS and below(header, "sdk/include/belay"):
        return [header]
    seen.add(header)
    for _, name, _ in sources.includes(header):
        target = sources.resolve(header, name)
        if target and target not in seen:
            way = reaches_tensor(sources, target, seen)
            if way:
                return [header, *way]
    return None


def check_include(sources, includer, row, quote, name):
    """What is wrong with one #include, or None."""
    folder, allowed, third_party = row
    target = sources.resolve(includer, name)
    if target:
        places = [folder if place == OWN else place for place in allowed]
        if not any(below(target, place) for place in places):
            return f"includes {target}; {folder} may include from {', '.join(places)}"
        for place in NOT_FOR.get(folder, []):
            if below(target, place):
                return f"includes {target}; {folder} may not include from {place}"
        if below(folder, "core"):
            way = reaches_tensor(sources, target, set())
            if way:
                return f"sees {way[-1]} (through {' -> '.join(way)}); the core knows no tensor"
        return None
    if quote == '"':
        return f'includes "{name}", which is no file of the tree; third-party headers are written <{name}>'
    if below(folder, "sdk/include/belay/abi"):
        return None if name in ABI_EXTERNAL else f"includes <{name}>; the ABI needs {', '.join(sorted(ABI_EXTERNAL))} only"
    vendor = name.split("/")[0] if "/" in name else re.sub(r"\.(h|hpp)$", "", name)
    if third_party is None or vendor in third_party or vendor in SYSTEM:
        return None
    if "/" in name or vendor in {v for _, _, vendors in TABLE for v in vendors or []}:
        return f"includes <{name}>; {folder} may use {', '.join(third_party) or 'no third-party library'}"
    return None


def check(root, names=None):
    """A problem for each #include that the table does not allow."""
    sources = Tree(root, tree.files(root) if names is None else names)
    problems = []
    for includer in sorted(sources.sources):
        row = row_of(includer)
        if row is None:
            problems.append(f"{includer}: no row of the table says what it may include")
            continue
        for quote, name, line in sources.includes(includer):
            wrong = check_include(sources, includer, row, quote, name)
            if wrong:
                problems.append(f"{includer}:{line}: {wrong}")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1]), "includes"))
