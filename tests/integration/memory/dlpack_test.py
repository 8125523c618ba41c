"""Tensors between Belay and NumPy by DLPack, through the C functions of libbelay.

  dlpack_test.py LIBBELAY
"""
import ctypes
import gc
import sys
import unittest

import numpy

LIBRARY = ctypes.CDLL(sys.argv.pop(1))


class Hdr(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("next", ctypes.c_void_p)]


class Tensor(ctypes.Structure):
    _fields_ = [("hdr", Hdr), ("dtype", ctypes.c_uint32), ("rank", ctypes.c_uint32), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p), ("buffer", ctypes.c_void_p),
                ("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("quant", ctypes.c_void_p)]


RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
LIBRARY.belay_tensor_to_dlpack.argtypes = [ctypes.POINTER(Tensor), RELEASE, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
LIBRARY.belay_tensor_to_dlpack.restype = ctypes.c_uint64
LIBRARY.belay_tensor_from_dlpack.argtypes = [ctypes.c_void_p, ctypes.POINTER(Tensor)]
LIBRARY.belay_tensor_from_dlpack.restype = ctypes.c_uint64
NEW = ctypes.pythonapi.PyCapsule_New
NEW.argtypes, NEW.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
POINTER = ctypes.pythonapi.PyCapsule_GetPointer
POINTER.argtypes, POINTER.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "float16": 10, "float64": 11,
         "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15}


class Lent:
    """What NumPy asks for a tensor of Belay."""

    def __init__(self, managed):
        self.managed = managed

    def __dlpack__(self, stream=None):
        return NEW(self.managed, b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


class DlpackTest(unittest.TestCase):
    def lend(self, array, dtype, released):
        dims = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        tensor = Tensor(Hdr(ctypes.sizeof(Tensor), 0, None), dtype, array.ndim, dims, strides, array.ctypes.data, None, 0, 0, None)
        managed = ctypes.c_void_p()
        callback = RELEASE(lambda user: released.append(user))
        self.callbacks.append(callback)
        self.assertEqual(LIBRARY.belay_tensor_to_dlpack(tensor, callback, 7, managed), 0)
        return managed

    def setUp(self):
        self.callbacks = []

    def test_numpy_reads_what_belay_lends_and_lets_it_go_once(self):
        for name, dtype in TYPES.items():
            array = numpy.arange(24).astype(name).reshape(2, 3, 4)
            for view in (array, array.transpose(2, 0, 1), array[:, 1:, ::2], array[1, 2, ::-1]):
                with self.subTest(type=name, strides=view.strides):
                    released = []
                    seen = numpy.from_dlpack(Lent(self.lend(view, dtype, released)))
                    numpy.testing.assert_array_equal(seen, view)
                    self.assertEqual((seen.dtype, seen.ctypes.data), (view.dtype, view.ctypes.data))
                    self.assertEqual(released, [])
                    del seen
                    gc.collect()
                    self.assertEqual(released, [7])

    def test_belay_reads_what_numpy_lends(self):
        for name, dtype in TYPES.items():
            array = numpy.arange(24).astype(name).reshape(2, 3, 4)
            for view in (array, array.transpose(2, 0, 1), array[:, 1:, ::2], array[:0], array[0, 0, 0:1].reshape(())):
                with self.subTest(type=name, strides=view.strides):
                    capsule = view.__dlpack__()
                    tensor = Tensor(Hdr(ctypes.sizeof(Tensor), 0, None))
                    self.assertEqual(LIBRARY.belay_tensor_from_dlpack(POINTER(capsule, b"dltensor"), tensor), 0)
                    self.assertEqual(tensor.dtype, dtype)
                    self.assertEqual(tuple(tensor.dims[:tensor.rank]), view.shape)
                    self.assertEqual(tensor.data, view.ctypes.data if view.size else None)
                    if view.flags.c_contiguous:
                        self.assertFalse(tensor.strides)
                    else:
                        self.assertEqual(tuple(s * view.itemsize for s in tensor.strides[:tensor.rank]), view.strides)


if __name__ == "__main__":
    unittest.main()
