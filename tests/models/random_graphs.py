#!/usr/bin/python3
"""Writes random graphs of many operators with inputs and expected outputs, in the layout of the ONNX backend tests:

  random_graphs.py OUT FIRST COUNT
  OUT/random_<seed>/..., for the seeds FIRST, FIRST + 1, ...

Graphs hold what fusions and rewrites look for, and what disturbs them: values with several readers that are outputs too,
residuals, broadcasts in all ways, constants on either side, odd attributes, dims of 0 and 1, shapes that are known at run
time only, branches and loops that read values from outside. Expected outputs are computed here, each node by numpy in
double precision while it is added. What turns on the last digit of a number (rounding, comparisons) is only added where
every number is well away from the place where it turns.
"""
import os
import sys

import random_bytes
import random_control
import random_moves
import random_shapes
from random_walk import Walk


MOVES = random_moves.MOVES + random_shapes.MOVES + random_control.MOVES + random_bytes.MOVES


def make(seed):
    walk = Walk(seed)
    walk.begin()
    walk.grow(MOVES, walk.between(3, 14))
    return walk.case()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    out, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + count):
        make(seed).write(os.path.join(out, f"random_{seed}"))


if __name__ == "__main__":
    main()
