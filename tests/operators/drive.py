"""One-node models for operators_driver, and the driver itself: started once for a configuration, again after a crash."""
import os
import struct
import subprocess

import onnx
from onnx import SequenceProto, TensorProto, helper

from values import bits_of, difference, from_proto, proto, shape_of, type_of


INTERNAL = 13  # the code of a status: a fault of the runtime


class Driver:
    """Runs models with `sets` (key=value) as configuration."""

    def __init__(self, program, plugins, sets=()):
        self.command = [program, plugins, *sets]
        self.process = None

    def run(self, model, inputs):
        """(code, text, outputs): code None: the process died, and the text says of what."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            os.set_blocking(self.process.stderr.fileno(), False)
        request = [struct.pack("<I", len(model)), model, struct.pack("<I", len(inputs))]
        for value in inputs:
            is_list = isinstance(value, list)
            message = (SequenceProto(elem_type=1, tensor_values=[proto(v) for v in value]) if is_list else proto(value)).SerializeToString()
            request += [struct.pack("<II", 2 if is_list else 1, len(message)), message]
        try:
            self.process.stdin.write(b"".join(request))
            self.process.stdin.flush()
            code = self._number()
            text = self._bytes().decode(errors="replace")
            outputs = [self._value() for _ in range(self._number())] if code == 0 else []
        except (BrokenPipeError, EOFError):
            os.set_blocking(self.process.stderr.fileno(), True)
            words = self.process.stderr.read().decode(errors="replace")
            code = self.process.wait()
            if code == 3:
                raise SystemExit(77 if "which this CPU lacks" in words else f"the driver does not start: {words}")
            self.close()
            return None, f"the driver ended with {code}: {words[:1500]}", []
        self.process.stderr.read()  # the log, which must not fill up
        return code, text, outputs

    def _exactly(self, count):
        data = self.process.stdout.read(count)
        if len(data) != count:
            raise EOFError
        return data

    def _number(self):
        return struct.unpack("<I", self._exactly(4))[0]

    def _bytes(self):
        return self._exactly(self._number())

    def _value(self):
        kind, data = self._number(), self._bytes()
        if kind == 1:
            return from_proto(TensorProto.FromString(data))
        if kind == 2:
            return [from_proto(t) for t in SequenceProto.FromString(data).tensor_values]
        message = onnx.OptionalProto.FromString(data)
        if message.elem_type == onnx.OptionalProto.TENSOR:
            return from_proto(message.tensor_value)
        if message.elem_type == onnx.OptionalProto.SEQUENCE:
            return [from_proto(t) for t in message.sequence_value.tensor_values]
        return None

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()
            self.process = None


class Use:
    """One use of an operator: `inputs` (None: absent; a list: a sequence), attributes, `expected` (None: not wanted; see
    values.difference), or `error`: words of the refusal."""

    def __init__(self, op, inputs, expected=(), error=None, domain="", version=17, note="", rtol=None, atol=None, constants=(), nodes=None, loose=False,
                 **attributes):
        self.op, self.inputs, self.expected, self.error = op, list(inputs), list(expected), error
        self.domain, self.version, self.note, self.rtol, self.atol = domain, version, note, rtol, atol
        self.constants = set(constants)  # of the inputs, those that are initializers in any case
        self.loose = loose  # results may differ in their last bits between ways to run it
        self.nodes = nodes  # in place of the one node: they read i0, i1 ... and write o0, o1 ...
        self.attributes = attributes

    def model(self, folded=False, opset=None, shapes=True):
        """(bytes of the model, values of its inputs); folded: all inputs are initializers."""
        names, given, initializers, values = [], [], [], []
        for i, value in enumerate(self.inputs):
            names.append("" if value is None else f"i{i}")
            if value is None:
                continue
            if isinstance(value, list):
                kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(type_of(value[0]) if value else 1, None))
                given.append(helper.make_value_info(names[-1], kind))
                values.append(value)
            elif folded or i in self.constants:
                initializers.append(proto(value, names[-1]))
            else:
                given.append(helper.make_tensor_value_info(names[-1], type_of(value), shape_of(value) if shapes else None))
                values.append(value)
        outs = ["" if e is None else f"o{k}" for k, e in enumerate(self.expected or [(1, None)])]
        nodes = self.nodes or [helper.make_node(self.op, names, outs, name="n", domain=self.domain,
                                                **{k: v for k, v in self.attributes.items() if v is not None})]
        results = []
        for name, value in zip(outs, self.expected or [(1, None)]):
            if not name:
                continue
            info = onnx.ValueInfoProto(name=name)
            if isinstance(value, list):
                info.type.sequence_type.elem_type.tensor_type.elem_type = type_of(value[0]) if value else 1
            elif self.expected and not isinstance(value, str):
                info.type.tensor_type.elem_type = value[0] if isinstance(value, tuple) else type_of(value)
            results.append(info)
        graph = helper.make_graph(nodes, "g", given, results, initializers)
        imports = [helper.make_opsetid("", opset or (self.version if not self.domain else 17))]
        if self.domain:
            imports.append(helper.make_opsetid(self.domain, self.version))
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return model.SerializeToString(), values

    def problem(self, driver, folded=False, opset=None, shapes=True):
        """What is wrong, None if nothing; a refusal as UNIMPLEMENTED begins with "refused: "."""
        model, values = self.model(folded, opset, shapes)
        code, text, found = driver.run(model, values)
        self.found = (code, text, [bits_of(v) for v in found])
        if code is None:
            return text
        if code == INTERNAL:  # whatever was asked for
            return f"internal error: {text}"
        if self.error is not None:
            if code == 0:
                return f"gave {[v.tolist() if hasattr(v, 'tolist') else v for v in found]}, want a refusal with {self.error!r}"
            missing = [word for word in ([self.error] if isinstance(self.error, str) else self.error) if word not in text]
            return f"refused without {missing}: {text}" if missing else None
        if code != 0:
            return f"refused: {text}"
        wanted = [e for e in self.expected if e is not None]
        for k, (value, expected) in enumerate(zip(found, wanted)):
            if wrong := difference(value, expected, self.rtol, self.atol):
                return f"output {k}: {wrong}"
        return None
