"""Every command that a document of the tree shows is run here, every C and C++ program in one is compiled and run.

  docs_test.py SOURCE_TREE BINARY_DIR
In a document a command is a line that begins with "$ " in a block fenced as console, or a line of an indented block
(four spaces) in a text file. The commands of one document run in one shell, in a folder that looks like the top of the
tree after a build: build/release is the build that is tested. A fence of C or C++ that has a main() is built against
the tree's headers and library, and run without arguments. The example at the head of a header of the hosting API is
compiled as a function.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Commands that are not run, and why.
ALLOWANCES = {
    'cmake --install build/release --prefix "$HOME/belay"': "tests integration.outside install and build against it",
    'cmake -S sdk/examples/first_fit -B build/first_fit -DCMAKE_PREFIX_PATH="$HOME/belay"': "integration.swap does",
    "cmake --build build/first_fit": "integration.swap does",
    "belay plugins info first_fit --plugin-dir build/first_fit": "needs what integration.swap builds",
    "belay bench sdk/examples/digits/digits.onnx --config configs/cpu.toml --config first_fit.toml": "integration.swap runs it",
    "belay plugins explain memory-policy --config configs/cpu.toml --config first_fit.toml": "needs what integration.swap builds",
    "belay memory replay trace.csv --plugin-dir build/first_fit --policy first_fit": "integration.swap replays with it",
    "belay bench sdk/examples/digits/digits.onnx --plugin-dir build/first_fit --set 'memory.policies=[\"first_fit\"]'":
        "integration.swap runs models with it",
    "bash sdk/quickstart.sh": "installs packages and builds: what it does is what this build was made by",
    "bash sdk/quickstart.sh --ocr": "the same, and needs a network",
    "bash tests/run.sh": "runs this test",
    "apt-get install python3-torch python3-onnx": "installs packages",
    "/usr/bin/python3 train.py": "trains for a while, with packages that a build does not need",
    "/usr/bin/python3 check.py": "test models.digits runs it",
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documents(root):
    found = subprocess.run(["git", "-C", root, "ls-files", "-z", "*.md"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    names = [name for name in found.stdout.decode().split("\0") if name]
    if not names:  # no repository: an archive of the tree
        names = [str(p.relative_to(root)) for p in root.rglob("*.md") if not p.relative_to(root).parts[0].startswith("build")]
    return sorted(names)


def commands(text):
    """Commands of the console blocks, in order."""
    for language, block in FENCE.findall(text):
        if language in ("sh", "bash", "shell"):
            yield None, f"a block fenced as {language}: fence commands as console, each after '$ '"
        if language == "console":
            for line in block.splitlines():
                if line.startswith("$ "):
                    yield line[2:], None


def indented(text):
    """Lines of indented blocks: commands that set up or train; each needs an allowance or runs."""
    outside = FENCE.sub("", text)
    before_blank = True
    for line in outside.splitlines():
        if line.startswith("    ") and before_blank:
            yield re.sub(r"\s+#.*$", "", line.strip())
        before_blank = not line.strip() or line.startswith("    ")or line.startswith("#")


def run_commands(lines, top):
    script = 'set -u\n' + "".join(
        f"{line}\nrc=$?; [ $rc -eq 0 ] || {{ printf 'FAILED with %d: %s\\n' $rc {shell_quote(line)}; exit 1; }}\n" for line in lines)
    done = subprocess.run(["bash", "-c", script], cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=300)
    return None if done.returncode == 0 else "\n".join(done.stdout.splitlines()[-15:])


def shell_quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def build_program(language, source, root, binary, work):
    file = pathlib.Path(work, "program.c" if language == "c" else "program.cpp")
    file.write_text(source)
    compiler = [os.environ.get("CC", "cc"), "-std=c11"] if language == "c" else [os.environ.get("CXX", "c++"), "-std=c++20"]
    lib = binary / "lib"
    line = [*compiler, "-Wall", "-Wextra", "-Werror", f"-I{root}/sdk/include", str(file), "-o", f"{work}/program", f"-L{lib}", "-lbelay",
            f"-Wl,-rpath,{lib}"]
    for step in (line, [f"{work}/program"]):
        done = subprocess.run(step, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        if done.returncode != 0:
            return f"{step[0]}: {done.stdout.strip()[-2000:]}"
    return None


# What the example at the head of a header takes for granted.
HEADERS = {
    "runtime.hpp": "std::vector<float>& pixels",
    "tensor.hpp": "std::vector<uint8_t>& pixels",
    "operator.hpp": "belay::Runtime& runtime, belay::Stream& stream, belay::Tensor image, belay::Tensor weights, belay::Tensor answer",
}


def compile_example(header, parameters, root, work):
    head = (root / "sdk/include/belay" / header).read_text(encoding="utf-8").split("#pragma once")[0]
    lines = re.findall(r"^//   (.*)$", head, re.MULTILINE)
    if not lines:
        return "there is no example at its head"
    file = pathlib.Path(work, "example.cpp")
    file.write_text(f"#include <belay/{header}>\nbelay::Status example({parameters}) {{\n" + "\n".join(lines) + "\nreturn {};\n}\n")
    done = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable",
                           f"-I{root}/sdk/include", "-fsyntax-only", str(file)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.stdout.strip()[-2000:] if done.returncode else None


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    problems, ran, built = [], 0, 0
    for name in documents(root):
        text = (root / name).read_text(encoding="utf-8")
        lines = []
        for line, problem in commands(text):
            if problem:
                problems.append(f"{name}: {problem}")
            elif line not in ALLOWANCES:
                lines.append(line)
        for line in indented(text):
            if line not in ALLOWANCES:
                lines.append(line)
        with tempfile.TemporaryDirectory() as work:
            for entry in root.iterdir():
                if entry.name not in ("build", ".git"):
                    os.symlink(entry, pathlib.Path(work, entry.name))
            pathlib.Path(work, "build").mkdir()
            os.symlink(binary, pathlib.Path(work, "build/release"))
            if lines:
                wrong = run_commands(lines, work)
                ran += len(lines)
                if wrong:
                    problems.append(f"{name}: {wrong}")
        for language, source in FENCE.findall(text):
            if language in ("c", "cpp", "c++") and "main(" in source:
                with tempfile.TemporaryDirectory() as work:
                    wrong = build_program(language, source, root, binary, work)
                built += 1
                if wrong:
                    problems.append(f"{name}: a program in {language}: {wrong}")
    for header, parameters in HEADERS.items():
        with tempfile.TemporaryDirectory() as work:
            wrong = compile_example(header, parameters, root, work)
        built += 1
        if wrong:
            problems.append(f"{header}: its example: {wrong}")
    for problem in problems:
        print(problem)
    print(f"{ran} commands run, {built} programs built, {len(problems)} problems")
    return 1 if problems or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
