"""Graphs that make no sense: versions, unknown operators, names, cycles, subgraphs, functions."""
import numpy as np
from onnx import AttributeProto, helper

from bad_files import message, simple
from cases_control import branch
from onnx_build import BOOL, F32, I64, Graph, attribute_reference, node


def two(op_a, in_a, op_b, in_b, outputs=("y",)):
    """Two nodes, node_a -> a and node_b -> b, with inputs as given; x is the graph's input."""
    g = Graph("two")
    g.input("x", F32, [2])
    g.op(op_a, *in_a, out="a", name="node_a")
    g.op(op_b, *in_b, out="b", name="node_b")
    for name in outputs:
        g.output(name, F32, [2])
    return g


def _add_versions(files):
    def ir(version):
        model = simple()
        model.ir_version = version
        return model

    files.load("versions/ir_0", ir(0), ["IR", "ir_version"])
    files.load("versions/ir_99", ir(99), ["IR", "ir_version"], "99")
    files.load("versions/ir_negative", ir(-1), ["IR", "ir_version"], "-1")
    files.load("versions/ir_max_int64", ir(2**63 - 1), ["IR", "ir_version"], str(2**63 - 1))
    missing = simple()
    missing.ClearField("ir_version")
    files.load("versions/ir_missing", missing, ["IR", "ir_version"])

    def opset(*imports):
        model = simple()
        model.ClearField("opset_import")
        for domain, version in imports:
            entry = model.opset_import.add(domain=domain)
            if version is not None:
                entry.version = version
        return model

    files.load("versions/opset_0", opset(("", 0)), "opset", "0")
    files.load("versions/opset_negative", opset(("", -13)), "opset", "-13")
    files.load("versions/opset_999", opset(("", 999)), "opset", "999")
    files.load("versions/opset_max_int64", opset(("", 2**63 - 1)), "opset", str(2**63 - 1))
    files.load("versions/opset_missing", opset(), "opset")
    files.load("versions/opset_without_version", opset(("", None)), "opset")
    files.load("versions/opset_of_other_domain_only", opset(("com.example", 1)), "opset")
    files.load("versions/opset_twice", opset(("", 13), ("", 11)), "opset", "13", "11")
    files.load("versions/opset_twice_by_two_names", opset(("", 13), ("ai.onnx", 11)), "opset", "13", "11")
    files.any("versions/opset_twice_the_same", opset(("", 13), ("", 13)))
    files.any("versions/opset_1", opset(("", 1)))
    files.accepted("versions/opset_by_the_other_name", opset(("ai.onnx", 13)))
    files.accepted("versions/unused_domain_of_any_version", opset(("", 13), ("com.example", 999), ("ai.onnx.ml", 2)))


def _add_operators(files):
    files.load("operators/unknown", simple(op="Frobnicate"), "Frobnicate", "bad_node", "13")
    files.load("operators/lower_case", simple(op="relu"), "relu", "bad_node")
    files.load("operators/too_new_for_the_opset", simple(op="HardSwish"), "HardSwish", "bad_node", "13")
    files.load("operators/gone_in_the_opset", simple(op="Upsample"), "Upsample", "bad_node", "13")
    files.load("operators/no_op_type", simple(op=""), "bad_node")

    def foreign(imports):
        model = simple(op="Frobnicate")
        model.graph.node[0].domain = "com.example"
        model.opset_import.extend(imports)
        return model

    files.load("operators/unknown_in_domain", foreign([helper.make_opsetid("com.example", 3)]),
               "Frobnicate", "bad_node", "com.example", "3")
    files.load("operators/domain_not_imported", foreign([]), "Frobnicate", "com.example")
    inside = Graph("inside")
    x, flag = inside.input("x", F32, [2]), inside.input("flag", BOOL, [])
    inside.op("If", flag, out="y", name="if_node",
              then_branch=branch("then", lambda b: [b.op("Frobnicate", x, name="deep_node")]),
              else_branch=branch("else", lambda b: [b.op("Neg", x)]))
    inside.output("y", F32, [2])
    files.load("operators/unknown_in_a_branch", inside.model(13), "Frobnicate", "deep_node", "13")


def _add_nodes(files):
    files.load("nodes/too_many_inputs", two("Relu", ["x", "x", "x"], "Neg", ["a"], ["b"]).model(), "Relu", "node_a")
    files.load("nodes/too_few_inputs", two("Add", ["x"], "Neg", ["a"], ["b"]).model(), "Add", "node_a")
    files.load("nodes/required_input_empty", two("Add", ["", "x"], "Neg", ["a"], ["b"]).model(), "Add", "node_a")
    many = two("Relu", ["x"], "Neg", ["a"], ["b"])
    many.nodes[0].output.append("second")
    files.load("nodes/too_many_outputs", many.model(), "Relu", "node_a")
    none = two("Relu", ["x"], "Neg", ["x"], ["b"])
    del none.nodes[0].output[:]
    files.any("nodes/no_output", none.model())

    def attribute(op, change, **attributes):
        model = simple(op=op, **attributes)
        change(model.graph.node[0].attribute)
        return model

    def rename(to):
        def change(attributes):
            attributes[0].name = to
        return change

    def retype(to):
        def change(attributes):
            attributes[0].type = to
        return change

    def unname(attributes):
        attributes[0].ClearField("name")

    files.load("attributes/without_name", attribute("Transpose", rename(""), perm=[1, 0]), "bad_node")
    files.load("attributes/name_missing", attribute("Transpose", unname, perm=[1, 0]), "bad_node")
    files.load("attributes/twice", attribute("Transpose", lambda a: a.append(helper.make_attribute("perm", [0, 1])),
                                             perm=[1, 0]), "bad_node", "perm")
    files.load("attributes/string_for_ints", simple(op="Transpose", perm="10"), "bad_node", "perm")
    files.load("attributes/int_for_ints", simple(op="Transpose", perm=1), "bad_node", "perm")
    files.load("attributes/floats_for_ints", simple(op="Transpose", perm=[1.0, 0.0]), "bad_node", "perm")
    files.load("attributes/float_for_int", simple(op="Flatten", axis=1.0), "bad_node", "axis")
    files.load("attributes/int_for_float", simple(op="LeakyRelu", alpha=1), "bad_node", "alpha")
    files.load("attributes/type_is_int_but_floats_are_set",
               attribute("Transpose", retype(AttributeProto.INTS), perm=[1.0, 0.0]), "bad_node", "perm")
    files.load("attributes/type_says_graph_but_there_is_none",
               attribute("Transpose", retype(AttributeProto.GRAPH), perm=[1, 0]), "bad_node", "perm")
    whole = attribute("Transpose", lambda a: a[0].ClearField("type"), perm=[1, 0])
    files.accepted("attributes/no_type_but_one_field", whole)
    old = simple(op="Transpose", perm=[1, 0])
    plain = old.graph.node[0].attribute[0].SerializeToString(deterministic=True)
    assert plain.endswith(b"\xa0\x01\x07")  # field 20, INTS
    graph = old.graph.SerializeToString(deterministic=True)
    node_bytes = old.graph.node[0].SerializeToString(deterministic=True)
    for value in 16, 99:
        changed = node_bytes.replace(message(5, plain), message(5, plain[:-1] + bytes([value])))
        wrong = graph.replace(message(1, node_bytes), message(1, changed))
        rest = simple()
        rest.ClearField("graph")
        files.load(f"attributes/type_{value}", rest.SerializeToString(deterministic=True) + message(7, wrong),
                   "bad_node", "perm", str(value))
    concat = two("Concat", ["x", "x"], "Neg", ["a"], ["b"]).model()
    files.load("attributes/required_axis_missing", concat, "node_a", "axis")
    files.load("attributes/required_to_missing", two("Cast", ["x"], "Neg", ["a"], ["b"]).model(), "node_a", "to")
    reference = simple(op="Transpose")
    reference.graph.node[0].attribute.append(attribute_reference("perm", AttributeProto.INTS, "outer_perm"))
    files.load("attributes/reference_outside_a_function", reference, "bad_node")
    constant = Graph("constant")
    constant.op("Constant", out="c", name="constant_node")
    constant.op("Add", constant.input("x", F32, [1]), "c", out="y")
    constant.output("y", F32, [1])
    files.load("attributes/constant_without_value", constant.model(), "constant_node")
    for name, value in ("value_float", 1.0), ("value_int", 1):
        constant.nodes[0].attribute.append(helper.make_attribute(name, value))
    files.load("attributes/constant_with_two_values", constant.model(), "constant_node")
    files.any("attributes/unknown", simple(op="Relu", colour="red"))


def _add_names(files):
    files.load("names/undefined_input", two("Relu", ["nowhere"], "Neg", ["a"], ["b"]).model(), "nowhere")
    dead = two("Relu", ["x"], "Add", ["a", "nowhere"], ["a"]).model()
    files.load("names/undefined_input_of_a_dead_node", dead, "nowhere")
    files.load("names/undefined_output", two("Relu", ["x"], "Neg", ["a"], ["b", "nowhere"]).model(), "nowhere")
    files.load("names/self_loop", two("Add", ["x", "a"], "Neg", ["a"], ["b"]).model(), ["node_a", "'a'", '"a"'])
    files.load("names/cycle_of_2", two("Add", ["x", "b"], "Neg", ["a"], ["b"]).model(), ["node_a", "node_b"])
    ring = Graph("ring")
    x = ring.input("x", F32, [2])
    for i in range(500):
        ring.op("Add", x, f"v{(i - 1) % 500}", out=f"v{i}", name=f"ring_{i}")
    ring.op("Neg", x, out="y")
    ring.output("y", F32, [2])
    files.load("names/cycle_of_500_that_no_output_needs", ring.model(), ["ring_", "v0", "v499"])

    def condition_in(reads):
        g = Graph("cycle")
        x, flag = g.input("x", F32, [2]), g.input("flag", BOOL, [])
        g.op("If", flag, out="picked", name="if_node", then_branch=branch("then", lambda b: [b.op("Neg", reads)]),
             else_branch=branch("else", lambda b: [b.op("Abs", x)]))
        g.op("Relu", "picked", out="y", name="relu_node")
        g.output("y", F32, [2])
        return g.model()

    files.load("names/branch_reads_its_own_if", condition_in("picked"), ["if_node", "picked"])
    files.load("names/branch_reads_what_follows_its_if", condition_in("y"), ["if_node", "relu_node", "picked"])
    files.load("names/branch_reads_nothing_known", condition_in("nowhere"), "nowhere")

    twice = two("Relu", ["x"], "Neg", ["x"], ["a"])
    twice.nodes[1].output[0] = "a"
    files.load("names/two_nodes_make_one_value", twice.model(), ["'a'", '"a"', "node_b"])
    one = two("Split", ["x"], "Neg", ["x"], ["b"])
    one.nodes[0].output.append("a")
    files.load("names/one_node_makes_a_value_twice", one.model(), "node_a")
    over_input = two("Relu", ["x"], "Neg", ["x"], ["a"])
    over_input.nodes[1].output[0] = "x"
    files.load("names/node_makes_a_graph_input", over_input.model(), ["node_b", "'x'", '"x"'])
    over_weight = two("Relu", ["weight_w"], "Neg", ["x"], ["a"])
    over_weight.const(np.float32([1, 2]), "weight_w")
    over_weight.nodes[1].output[0] = "weight_w"
    files.load("names/node_makes_an_initializer", over_weight.model(), "weight_w")
    for what, change in (("input", lambda g: g.inputs.append(g.inputs[0])),
                         ("output", lambda g: g.outputs.append(g.outputs[0])),
                         ("initializer", lambda g: (g.const([1.0], "named_once"), g.const([2.0], "named_once")))):
        g = two("Relu", ["named_once"], "Neg", ["named_once"], ["b"])
        if what != "initializer":
            g.inputs[0].name = "named_once"
        if what == "output":
            g.outputs[0].name, g.nodes[1].output[0] = "output_once", "output_once"
        change(g)
        files.load(f"names/graph_{what}_twice", g.model(), "output_once" if what == "output" else "named_once")
    unnamed = two("Relu", ["x"], "Neg", ["x"], ["b"])
    unnamed.inputs.append(helper.make_tensor_value_info("", F32, [2]))
    files.any("names/graph_input_without_name", unnamed.model())
    no_graph = simple()
    no_graph.ClearField("graph")
    files.load("names/no_graph", no_graph, "graph")
    empty = simple()
    empty.ClearField("graph")
    files.load("names/empty_graph_message", empty.SerializeToString(deterministic=True) + message(7, b""))
    no_nodes = simple()
    del no_nodes.graph.node[:]
    files.load("names/no_nodes", no_nodes, ["'y'", '"y"', " y "])

    shuffled = Graph("shuffled")
    value = shuffled.input("x", F32, [2])
    for i in range(50):
        value = shuffled.op("Add", value, value)
    shuffled.output(value, F32, [2])
    shuffled.nodes = [shuffled.nodes[i] for i in np.random.RandomState(5).permutation(50)]
    files.accepted("names/shuffled_nodes", shuffled.model())


def _nested(depth):
    """An If of `depth` levels, by hand: Python's protobuf refuses to write 100 levels."""
    flag = b"\x0a\x04flag"                                    # NodeProto.input
    leaf = message(1, message(1, b"x") + message(2, b"t") + message(4, b"Neg"))
    inner = leaf + message(2, b"leaf") + message(12, message(1, b"t"))
    for i in range(depth):
        out = f"t{i}".encode()
        other = message(1, message(1, b"x") + message(2, b"e") + message(4, b"Abs")) + message(2, b"e") + message(
            12, message(1, b"e"))
        branches = b"".join(message(5, message(1, name) + message(6, graph) + b"\xa0\x01\x05")
                            for name, graph in ((b"then_branch", inner), (b"else_branch", other)))
        nested = message(1, flag + message(2, out) + message(3, f"if_{i}".encode()) + message(4, b"If") + branches)
        inner = nested + message(2, f"level_{i}".encode()) + message(12, message(1, out))
    g = Graph("outer")
    g.input("x", F32, [2])
    g.input("flag", BOOL, [])
    g.op("Relu", f"t{depth - 1}", out="y")
    g.output("y", F32, [2])
    model = g.model()
    graph = nested + model.graph.SerializeToString(deterministic=True)
    model.ClearField("graph")
    return model.SerializeToString(deterministic=True) + message(7, graph)


def _add_subgraphs(files):
    files.accepted("subgraphs/depth_20", _nested(20))
    files.load("subgraphs/depth_33", _nested(33), ["32", "33"])
    files.load("subgraphs/depth_200", _nested(200))
    files.load("subgraphs/depth_5000", _nested(5000))

    def if_node(flag_type=BOOL, then=1, other=1, drop=None):
        g = Graph("if")
        x, flag = g.input("x", F32, [2]), g.input("flag", flag_type, [])
        g.op("If", flag, out="y", name="if_node",
             then_branch=branch("then", lambda b: [b.op("Neg", x) for _ in range(then)]),
             else_branch=branch("else", lambda b: [b.op("Abs", x) for _ in range(other)]))
        g.output("y", F32, [2])
        if drop:
            g.nodes[0].attribute.remove(next(a for a in g.nodes[0].attribute if a.name == drop))
        return g.model()

    files.load("subgraphs/if_without_else", if_node(drop="else_branch"), "if_node", "else_branch")
    files.load("subgraphs/if_without_then", if_node(drop="then_branch"), "if_node", "then_branch")
    files.load("subgraphs/if_with_a_branch_of_2_outputs", if_node(then=2), "if_node")
    files.load("subgraphs/if_with_a_branch_of_0_outputs", if_node(other=0), "if_node")
    files.load("subgraphs/if_on_a_float", if_node(flag_type=F32), "if_node")

    inner_name = if_node()
    inner_name.graph.node.append(node("Relu", ["then.neg_1"], ["z"], name="reader_node"))
    inner_name.graph.output.append(helper.make_tensor_value_info("z", F32, [2]))
    files.load("subgraphs/inner_value_read_outside", inner_name, "then.neg_1")
    siblings = if_node()
    siblings.graph.node[0].attribute[1].g.node[0].input[0] = "then.neg_1"
    siblings.graph.node[0].attribute[0].g.node[0].input[0] = "else.abs_1"
    files.load("subgraphs/branches_read_each_other", siblings, ["then.neg_1", "else.abs_1"])
    same = if_node()
    for attribute in same.graph.node[0].attribute:
        attribute.g.node[0].output[0] = attribute.g.output[0].name = "same_in_both"
    files.accepted("subgraphs/branches_share_a_name", same)
    shadow = if_node()
    shadow.graph.node[0].attribute[0].g.node[0].output[0] = shadow.graph.node[0].attribute[0].g.output[0].name = "x"
    files.any("subgraphs/branch_hides_an_outer_name", shadow)
    output = if_node()
    output.graph.node[0].attribute[0].g.output[0].name = "nowhere"
    files.load("subgraphs/branch_gives_nothing_known", output, "nowhere")

    def loop(body_inputs=3, body_outputs=2, drop=False, **kind):
        b = Graph("body", "body.")
        for name, elem_type in (("i", I64), ("go", BOOL), ("v", F32))[:body_inputs]:
            b.input(name, elem_type, None)
        b.op("Identity", "go", out="still")
        b.op("Neg", "v" if body_inputs > 2 else "x", out="next")
        for name, elem_type in (("still", BOOL), ("next", F32))[:body_outputs]:
            b.output(name, elem_type, None)
        g = Graph("loop")
        x = g.input("x", F32, [2])
        g.op("Loop", g.const(3), "", x, body=b.proto(), out="y", name="loop_node")
        if drop:
            del g.nodes[0].attribute[:]
        g.output("y", F32, [2])
        return g.model()

    files.load("subgraphs/loop_without_body", loop(drop=True), "loop_node", "body")
    files.load("subgraphs/loop_body_of_2_inputs", loop(body_inputs=2), "loop_node")
    files.load("subgraphs/loop_body_of_1_output", loop(body_outputs=1), "loop_node")

    def scan(**attributes):
        b = Graph("body")
        b.op("Neg", b.input("v", F32, None), out="n")
        b.output("n", F32, None)
        g = Graph("scan")
        g.op("Scan", g.input("x", F32, [4, 2]), body=b.proto(), out="y", name="scan_node", **attributes)
        g.output("y", F32, [4, 2])
        return g.model()

    files.load("subgraphs/scan_without_num_scan_inputs", scan(), "scan_node", "num_scan_inputs")
    files.load("subgraphs/scan_of_9_inputs", scan(num_scan_inputs=9), "scan_node")
    files.load("subgraphs/scan_of_minus_1_inputs", scan(num_scan_inputs=-1), "scan_node")
    files.load("subgraphs/scan_axis_7", scan(num_scan_inputs=1, scan_input_axes=[7]), "scan_node")


def _add_functions(files):
    def function(name, nodes, inputs=("X",), outputs=("Y",), attributes=(), domains=("belay.test",)):
        imports = [helper.make_opsetid("", 15)] + [helper.make_opsetid(d, 1) for d in domains]
        return helper.make_function("belay.test", name, list(inputs), list(outputs), nodes, imports, list(attributes))

    def call(name, inputs=("X",), outputs=("Y",)):
        return node(name, list(inputs), list(outputs), domain="belay.test")

    def model(functions, inputs=("x",), op="First"):
        g = Graph("functions")
        g.input("x", F32, [2])
        g.op(op, *inputs, out="y", name="call_node", domain="belay.test")
        g.output("y", F32, [2])
        return g.model(15, functions=functions, belay_test=1)

    def first(*nodes, **more):
        return function("First", list(nodes), **more)

    neg = node("Neg", ["X"], ["Y"])
    files.load("functions/calls_itself", model([first(call("First"))]), "First")
    files.load("functions/two_call_each_other", model([first(call("Second")), function("Second", [call("First")])]),
               ["First", "Second"])
    by_branch = branch("then", lambda b: [b.op("First", "X", domain="belay.test")])
    other = branch("else", lambda b: [b.op("Neg", "X")])
    files.load("functions/calls_itself_in_a_branch", model([first(
        node("ReduceMax", ["X"], ["m"], keepdims=0), node("Cast", ["m"], ["c"], to=BOOL),
        node("If", ["c"], ["Y"], then_branch=by_branch, else_branch=other))]), "First")
    doubling = [function(f"F{i}", [call(f"F{i + 1}", ["X"], ["h"]), call(f"F{i + 1}", ["h"], ["Y"])])
                for i in range(60)]
    files.load("functions/bomb_of_2_to_the_60_nodes", model(doubling + [function("F60", [neg])], op="F0"))
    files.load("functions/defined_twice", model([first(neg), first(neg)]), "First")
    files.load("functions/reads_nothing_known", model([first(node("Neg", ["nowhere"], ["Y"]))]), "nowhere")
    files.load("functions/reads_a_value_of_the_caller", model([first(node("Add", ["X", "x"], ["Y"]))]), "First")
    files.load("functions/never_makes_its_output", model([first(node("Neg", ["X"], ["h"]))]), "First")
    files.load("functions/called_with_2_inputs_for_1", model([first(neg)], inputs=("x", "x")), "call_node")
    files.load("functions/called_under_another_name", model([first(neg)], op="Third"), "Third", "call_node")
    files.load("functions/unknown_operator_inside", model([first(node("Frobnicate", ["X"], ["Y"]))]), "Frobnicate")
    files.load("functions/domain_not_imported_inside",
               model([first(node("Neg", ["X"], ["Y"], domain="belay.other"))]), "belay.other")
    files.load("functions/two_parameters_of_one_name", model([first(neg, inputs=("X", "X"))], inputs=("x", "x")),
               "First")
    files.load("functions/cycle_inside", model([first(node("Add", ["X", "Y"], ["h"], name="add_inside"),
                                                      node("Neg", ["h"], ["Y"], name="neg_inside"))]),
               ["First", "add_inside", "neg_inside"])
    files.any("functions/nobody_calls_the_recursive_one", model([first(neg), function("Loose", [call("Loose")])]))
    files.accepted("functions/callee_listed_last", model([first(call("Second")), function("Second", [neg])]))


def add(files):
    _add_versions(files)
    _add_operators(files)
    _add_nodes(files)
    _add_names(files)
    _add_subgraphs(files)
    _add_functions(files)
