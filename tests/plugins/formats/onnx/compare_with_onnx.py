"""Compares what the importer makes of ONNX files with what the onnx package of Python reads from them.

  compare_with_onnx.py PRINT_ONNX FOLDER...

For each .onnx file below the folders: the nodes of all graphs by domain, operator and version (Constant nodes become
constants), the number of graphs, constants and their bytes, the names of inputs and outputs. Skipped (77) without
python3-onnx or files.
"""
import collections
import json
import pathlib
import subprocess
import sys

try:
    import onnx
    from onnx import numpy_helper
except ImportError:
    print("skipped: python3-onnx is not installed")
    sys.exit(77)

# The newest definition at or below an opset, for opsets that this onnx knows.
VERSIONS = collections.defaultdict(list)
for schema in onnx.defs.get_all_schemas_with_history():
    VERSIONS[schema.domain, schema.name].append(schema.since_version)


def tensor_bytes(tensor):
    return 0 if tensor.data_type == onnx.TensorProto.STRING else numpy_helper.to_array(tensor).nbytes


def constant_bytes(node):
    (attribute,) = node.attribute
    if attribute.name == "value":
        return tensor_bytes(attribute.t)
    widths = {"value_float": 4, "value_floats": 4 * len(attribute.floats), "value_int": 8,
              "value_ints": 8 * len(attribute.ints)}
    return widths.get(attribute.name, 0)


def count_graph(graph, imports, facts):
    facts["graphs"] += 1
    facts["constants"] += len(graph.initializer)
    facts["constant_bytes"] += sum(map(tensor_bytes, graph.initializer))
    for node in graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) == ("", "Constant"):
            facts["constants"] += 1
            facts["constant_bytes"] += constant_bytes(node)
            continue
        known = [v for v in VERSIONS[domain, node.op_type] if v <= imports[domain]]
        facts["ops"][f"{domain}:{node.op_type}:{max(known) if known else 1}"] += 1
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                count_graph(inner, imports, facts)


def expected(model):
    facts = {"ops": collections.Counter(), "graphs": 0, "constants": 0, "constant_bytes": 0}
    imports = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    count_graph(model.graph, imports, facts)
    constants = {t.name for t in model.graph.initializer} if model.ir_version < 4 else set()
    facts["inputs"] = [v.name for v in model.graph.input if v.name not in constants]
    facts["outputs"] = [v.name for v in model.graph.output]
    facts["ops"] = dict(facts["ops"])
    return facts


def main():
    files = sorted(str(path) for folder in sys.argv[2:] for path in pathlib.Path(folder).rglob("*.onnx"))
    if not files:
        print("skipped: no .onnx file below", *sys.argv[2:])
        return 77
    printed = subprocess.run([sys.argv[1], *files], check=True, capture_output=True, text=True).stdout.splitlines()
    problems = compared = 0
    for file, line in zip(files, printed, strict=True):
        found = json.loads(line)
        if "error" in found:
            print(f"{file}: {found['error']}")
            problems += 1
            continue
        model = onnx.load(file)
        if any(o.version > onnx.defs.onnx_opset_version() for o in model.opset_import if o.domain in ("", "ai.onnx")):
            continue  # this onnx cannot tell
        compared += 1
        for key, value in expected(model).items():
            if found[key] != value:
                print(f"{file}: {key} is {found[key]}, want {value}")
                problems += 1
    print(f"{compared} of {len(files)} files compared, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
