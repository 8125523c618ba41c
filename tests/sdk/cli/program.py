"""Runs a program `belay` for tests: fake_test.py, real_test.py."""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest


def write_npy(path, dtype, dims, data):
    """A .npy file of version 1, so that these tests need no numpy."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({''.join(f'{d},' for d in dims)}), }}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def tensor_pb(dims, floats):
    """A TensorProto of float32."""
    raw = struct.pack(f"<{len(floats)}f", *floats)
    return b"".join(b"\x08" + varint(d) for d in dims) + b"\x10\x01" + b"\x4a" + varint(len(raw)) + raw


class ProgramTest(unittest.TestCase):
    """`self.belay(...)` runs the program in a folder of its own and checks the exit code, or that it is one of several."""
    program = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        return path

    def belay(self, *arguments, code=0, timeout=60, **options):
        done = subprocess.run([self.program, *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=options.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, text=True,
                              timeout=timeout, env={**os.environ, **options.pop("env", {})}, **options)
        self.assertIn(done.returncode, code if isinstance(code, tuple) else (code,), f"belay {' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}")
        return done

    def json(self, *arguments, schema, code=0, **options):
        done = self.belay(*arguments, "--json", code=code, **options)
        document = json.loads(done.stdout)
        self.assertEqual(document["schema"], schema)
        return document

    def assert_shape(self, value, shape, where="$"):
        """`shape`: a type, a tuple of types, {"key": shape} (exactly these keys), or [shape of every item]."""
        if isinstance(shape, dict):
            self.assertIsInstance(value, dict, where)
            self.assertEqual(sorted(value), sorted(shape), where)
            for key, inner in shape.items():
                self.assert_shape(value[key], inner, f"{where}.{key}")
        elif isinstance(shape, list):
            self.assertIsInstance(value, list, where)
            for i, item in enumerate(value):
                self.assert_shape(item, shape[0], f"{where}[{i}]")
        else:
            self.assertIsInstance(value, shape, where)
