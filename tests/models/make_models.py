#!/usr/bin/python3
"""Writes small ONNX models with inputs and expected outputs, in the layout of the ONNX backend tests:

  make_models.py OUT [CASE...]
  OUT/<case>/model.onnx, OUT/<case>/test_data_set_<k>/{input,output}_<i>.pb, OUT/cases.json

cases.json lists the cases: {"name", "about", "sets", "rtol", "atol", "beyond"}; rtol and atol only where the usual
tolerance is too narrow, beyond where the model has operators of other domains than ONNX's, or of opsets after 17, or what
the example of a device does not serve.
Expected outputs are computed here with numpy, mostly in double precision. Each run writes the same.
"""
import argparse
import json
import os
import zlib

import numpy as np

import cases_contrib
import cases_contrib_attention
import cases_contrib_layers
import cases_control
import cases_gradient
import cases_networks
import cases_opsets
import cases_quantized
import cases_small_types
import cases_storage
import cases_text
import cases_transformer
import cases_values
from onnx_build import write_file

MODULES = [cases_networks, cases_gradient, cases_quantized, cases_control, cases_values, cases_storage, cases_text,
           cases_transformer, cases_small_types, cases_opsets, cases_contrib, cases_contrib_attention,
           cases_contrib_layers]


def main():
    makers = {maker.__name__: maker for module in MODULES for maker in module.CASES}
    parser = argparse.ArgumentParser(description="Writes small ONNX models with inputs and expected outputs.")
    parser.add_argument("out")
    parser.add_argument("case", nargs="*", help="default: all")
    args = parser.parse_args()
    if unknown := set(args.case) - set(makers):
        parser.error(f"no case {sorted(unknown)}; there are {', '.join(makers)}")

    listing = []
    for name in args.case or makers:
        # Its own seed for each case: to add a case changes no other.
        case = makers[name](np.random.RandomState(zlib.crc32(name.encode())))
        case.write(os.path.join(args.out, name))
        entry = {"name": name, "about": " ".join(makers[name].__doc__.split()), "sets": len(case.runs)}
        entry.update({key: value for key, value in (("rtol", case.rtol), ("atol", case.atol)) if value is not None})
        if case.beyond or any(i.domain not in ("", "ai.onnx") or i.version > 17 for i in case.model.opset_import):
            entry["beyond"] = True
        listing.append(entry)
    write_file(os.path.join(args.out, "cases.json"), (json.dumps(listing, indent=1) + "\n").encode())
    print(f"{len(listing)} cases in {args.out}")


if __name__ == "__main__":
    main()
