"""Each public header compiles alone, twice included, without a warning: headers in C (abi/*.h, runtime.h) as C11, C17,
C++17 and C++20 with gcc and clang, for a host and for an author; those of the ABI without padding; headers in C++
(*.hpp) as C++20 with both, those below testing/ with clang alone.

    headers.py ROOT [--testing]    --testing: also those below testing/, which need GoogleTest
"""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

import cdecls

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
AUTHOR = ["-DBELAY_PLUGIN_BUILD"]
C = [(compiler, "c", f"-std={standard}", []) for compiler in ("gcc", "clang") for standard in ("c11", "c17")]
CXX = [(compiler, "c++", f"-std={standard}", options) for compiler in ("g++", "clang++")
       for standard in ("c++17", "c++20") for options in ([], AUTHOR)]


def is_c(header):
    return header.endswith(".h")


def public_headers(root, testing):
    base = cdecls.include_dir(root)
    for path in sorted((base / "belay").rglob("*")):
        header = str(path.relative_to(base))
        if path.suffix in (".h", ".hpp") and (testing or not header.startswith("belay/testing/")):
            yield header


def jobs(headers):
    """(header, compiler, language, standard, options) of each compilation."""
    for header in headers:
        if is_c(header):
            variants = C + CXX
        elif header.startswith("belay/testing/"):  # mocks take seconds; g++ compiles them all for the tests
            variants = [("clang++", "c++", "-std=c++20", [])]
        else:
            variants = [v for v in CXX if v[2] == "-std=c++20"]
        for compiler, language, standard, options in variants:
            padded = ["-Wpadded"] if header.startswith("belay/abi/") else []
            yield header, compiler, language, standard, options + padded


def compile_header(root, header, compiler, language, standard, options):
    """What the compiler says, or None when it is content."""
    source = f"#include <{header}>\n#include <{header}>\nextern int nothing;\n"
    command = [compiler, "-x", language, standard, *WARNINGS, *options, "-I", cdecls.include_dir(root), "-fsyntax-only",
               "-"]
    done = subprocess.run(command, input=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 0:
        return None
    return f"<{header}> with {' '.join([compiler, standard, *options])}:\n{done.stdout}"


def check(root, testing=False):
    missing = [c for c in ("gcc", "g++", "clang", "clang++") if not shutil.which(c)]
    if missing:
        return [f"no {', '.join(missing)} here: the headers are checked with all four compilers"]
    headers = list(public_headers(root, testing))
    if not any(is_c(header) for header in headers):
        return ["no header in C below sdk/include/belay"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: compile_header(root, *job), jobs(headers)))
    print(f"{len(headers)} headers, {len(results)} compilations")
    return [problem for problem in results if problem]


if __name__ == "__main__":
    problems = check(pathlib.Path(sys.argv[1]), "--testing" in sys.argv[2:])
    print("\n".join(problems + [f"headers: {len(problems)} problems"]))
    sys.exit(1 if problems else 0)
