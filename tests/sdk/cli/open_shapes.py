"""Copies of the cases of the ONNX backend data whose models say less of their shapes.

  open_shapes.py CASES OUT HOW
  undeclared  no shapes but those of inputs
  symbolic    the same, and each dim of an input is a symbol
  unranked    no shapes at all
Needs python3-onnx. A case's data are linked to. What stays: initializers, and the shapes of attributes of type.
"""
import pathlib
import sys

HOW = ("undeclared", "symbolic", "unranked")


def forget(value_type):
    """Takes the shape out of a TypeProto, of its elements too."""
    kind = value_type.WhichOneof("value")
    if kind == "tensor_type":
        value_type.tensor_type.ClearField("shape")
    elif kind in ("sequence_type", "optional_type"):
        forget(getattr(value_type, kind).elem_type)


def open_graph(graph, how, main=True):
    del graph.value_info[:]
    for output in graph.output:
        forget(output.type)
    initial = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in initial:
            continue
        if how == "unranked" or not main:
            forget(value.type)
        elif how == "symbolic":
            if value.type.WhichOneof("value") == "tensor_type":
                for i, dim in enumerate(value.type.tensor_type.shape.dim):
                    dim.dim_param = f"{value.name}_{i}"
            else:
                forget(value.type)
    for node in graph.node:
        for attribute in node.attribute:
            for sub in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                open_graph(sub, how, main=False)


def write(cases, out, how):
    import onnx
    for path in sorted(cases.glob("*/*/model.onnx")):
        model = onnx.load(str(path))
        open_graph(model.graph, how)
        to = out / path.parent.relative_to(cases)
        to.mkdir(parents=True)
        onnx.save(model, str(to / "model.onnx"))
        for data in path.parent.glob("test_data_set_*"):
            (to / data.name).symlink_to(data, target_is_directory=True)


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
