#!/usr/bin/python3
"""Writes bad ONNX files and what a loader must say about them:

  make_bad_models.py OUT
  OUT/<group>/<name>.onnx, OUT/expected.json

expected.json: {"load": {file: words}, "run": {file: words}, "accepted": [file], "any": [file]}
  load      loading must fail
  run       loading may work; running with inputs of zeros (the shapes are known) must fail
  accepted  odd but legal: loading must work
  any       the format leaves it open: refused or not, no crash and no hang
Each of `words` must be in the message; where it is a list, one of the list. They are names and values of what is wrong,
which any good message has. No file may crash, hang, take memory far above its own size, or leak.
"""
import argparse
import os

import bad_contrib
import bad_graphs
import bad_operators
import bad_tensors
import bad_wire
from bad_files import Files


def main():
    parser = argparse.ArgumentParser(description="Writes bad ONNX files and what a loader must say about them.")
    parser.add_argument("out")
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    files = Files(out)
    for module in bad_wire, bad_tensors, bad_graphs, bad_operators, bad_contrib:
        module.add(files)
    print(", ".join(f"{count} {kind}" for kind, count in files.finish().items()), "in", out)


if __name__ == "__main__":
    main()
