"""Every script parses: `bash -n` (and shellcheck where it is installed), Python's compiler, JSON."""
import json
import pathlib
import shutil
import subprocess
import sys

import tree


def first_line(path):
    with path.open("rb") as file:
        return file.readline()


def check_shell(path):
    tools = [["bash", "-n"]]
    if shutil.which("shellcheck"):
        tools.append(["shellcheck", "-s", "bash"])
    for tool in tools:
        done = subprocess.run([*tool, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            yield done.stdout.strip()
    if "set -euo pipefail" not in path.read_text() and "set -uo pipefail" not in path.read_text():
        yield f"{path}: want 'set -euo pipefail'"


def check(root):
    problems = []
    for name in tree.files(root):
        path = pathlib.Path(root) / name
        if path.suffix == ".sh" or first_line(path).startswith((b"#!/usr/bin/env bash", b"#!/bin/bash")):
            problems += check_shell(path)
        elif path.suffix == ".py":
            try:
                compile(path.read_text(encoding="utf-8"), name, "exec")
            except SyntaxError as error:
                problems.append(f"{name}:{error.lineno}: {error.msg}")
        elif path.suffix == ".json":
            try:
                json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                problems.append(f"{name}: {error}")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1]), "scripts"))
