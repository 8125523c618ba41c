"""Diagnostics for Belay: every slot of the table is a function of Python, made callable by ctypes.

start_python.c runs this text when the plugin is opened and calls fill(). Slots are called on threads of the host, as
belay/abi/diagnostics.h says; ctypes takes the lock of Python for each.
"""
import ctypes
import functools
import json
import shutil
import sys
import tempfile
import threading
import traceback
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_double, c_int64, c_uint16, c_uint32, c_uint64, c_void_p

OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL = 11, 12, 13
PASSED, WARNING = 0, 1
INFO = 2
KINDS = ["other", "operation", "copy", "alloc", "free", "wait", "load", "error", "range"]


# ---- the structs of the ABI that are needed, field by field as its headers have them ----
class Hdr(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p)]


class Str(ctypes.Structure):
    _fields_ = [("ptr", c_void_p), ("len", c_uint64)]  # not c_char_p: that would look for a NUL


class Sink(ctypes.Structure):
    _fields_ = [("user", c_void_p), ("write", CFUNCTYPE(None, c_void_p, c_char_p, c_uint64))]


class Object(ctypes.Structure):
    _fields_ = [("magic", c_uint32), ("kind", c_uint32), ("generation", c_uint64), ("table", c_void_p), ("impl", c_void_p),
                ("layer_word", c_uint64 * 16)]


class Created(ctypes.Structure):
    _fields_ = [("hdr", Hdr), ("impl", c_void_p), ("table", c_void_p)]


class Host(ctypes.Structure):
    _fields_ = [("hdr", Hdr), ("product", Str), ("version", Str), ("get_service", c_void_p),
                ("log", CFUNCTYPE(None, c_void_p, c_uint32, Str)), ("status_make", CFUNCTYPE(c_uint64, c_void_p, c_uint32, Str)),
                ("status_text", c_void_p), ("status_release", c_void_p), ("alloc", c_void_p), ("free", c_void_p),
                ("now_ns", c_void_p), ("misbehave", c_void_p)]


class ValueTable(ctypes.Structure):
    _fields_ = [("hdr", Hdr), ("type", c_void_p), ("as_bool", c_void_p), ("as_int", CFUNCTYPE(c_int64, c_void_p)),
                ("as_float", CFUNCTYPE(c_double, c_void_p)), ("as_string", c_void_p), ("count", c_void_p), ("at", c_void_p),
                ("get", CFUNCTYPE(c_void_p, c_void_p, Str)), ("key_at", c_void_p), ("where", c_void_p)]


class Record(ctypes.Structure):
    _fields_ = [("begin_ns", c_uint64), ("duration_ns", c_uint32), ("kind", c_uint16), ("stream", c_uint16), ("name", c_uint32),
                ("thread", c_uint32), ("value", c_uint64)]


class CheckInfo(ctypes.Structure):
    _fields_ = [("hdr", Hdr), ("name", Str), ("doc", Str)]


class Table(ctypes.Structure):
    _fields_ = [("hdr", Hdr), ("on_records", CFUNCTYPE(None, POINTER(Object), POINTER(Record), c_uint64)),
                ("check_count", CFUNCTYPE(c_uint64, POINTER(Object))),
                ("check_info", CFUNCTYPE(c_uint64, POINTER(Object), c_uint64, POINTER(CheckInfo))),
                ("run_check", CFUNCTYPE(c_uint64, POINTER(Object), c_uint64, POINTER(c_uint64), Sink)),
                ("dump", CFUNCTYPE(c_uint64, POINTER(Object), Str, Sink)),
                ("flush", c_void_p), ("destroy", CFUNCTYPE(None, POINTER(Object)))]


class Bridge(ctypes.Structure):  # `bridge` of start_python.c
    _fields_ = [("bytes", c_uint64), ("host_bytes", c_uint64), ("table_bytes", c_uint64), ("record_bytes", c_uint64),
                ("host", POINTER(Host)), ("script", c_void_p), ("script_bytes", c_uint64),
                ("create", CFUNCTYPE(c_uint64, c_void_p, POINTER(Created))), ("close", CFUNCTYPE(None)), ("table", Table),
                ("error", c_char * 2048)]


# ---- both directions ----
class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


bridge = None
kept = []  # callables of ctypes: what the table points to must not be collected


def string(data):
    """A view of bytes, which are kept by the caller."""
    return Str(ctypes.cast(data, c_void_p), len(data))


def text_of(view):
    return ctypes.string_at(view.ptr, view.len).decode()


def give(sink, text):
    data = text.encode()
    sink.write(sink.user, data, len(data))


def log(level, text):
    data = text.encode()
    bridge.host.contents.log(ctypes.cast(bridge.host, c_void_p), level, string(data))


def fail(code, message):
    data = message.encode()
    return bridge.host.contents.status_make(ctypes.cast(bridge.host, c_void_p), code, string(data))


def slot(function):
    """What is raised becomes a status: ctypes would print it and say that all is well."""
    @functools.wraps(function)
    def called(*arguments):
        try:
            function(*arguments)
            return 0
        except Failure as failure:
            return fail(failure.code, str(failure))
        except BaseException:
            return fail(INTERNAL, traceback.format_exc())
    return called


def number(config, key, otherwise):
    if not config:
        return otherwise
    table = ctypes.cast(ctypes.cast(config, POINTER(c_void_p)).contents, POINTER(ValueTable)).contents
    found = table.get(config, string(key))
    return table.as_int(found) if found else otherwise


# ---- the diagnostics ----
class Diagnostics:
    def __init__(self, free):
        self.free = free  # bytes, wanted
        self.mutex = threading.Lock()
        self.counts = dict.fromkeys(KINDS, 0)
        self.nanoseconds = 0


all_objects = {}  # by what the host has as `impl`
totals = []       # records of objects that were destroyed
CHECK, DOC = b"diagnostics_python.temporary-files", b"Temporary files have room."


def of(obj):
    return all_objects[obj.contents.impl]


def on_records(obj, records, count):
    try:
        self = of(obj)
        with self.mutex:
            for record in records[:count]:
                self.counts[KINDS[record.kind] if record.kind < len(KINDS) else "other"] += 1
                self.nanoseconds += record.duration_ns
    except BaseException:  # the slot has no status
        log(4, traceback.format_exc())


def check_count(obj):
    return 1


def checked(index):
    if index != 0:
        raise Failure(OUT_OF_RANGE, f"There is no check {index} of 'diagnostics_python', want 0.")


@slot
def check_info(obj, index, inout):
    checked(index)
    known = CheckInfo(inout.contents.hdr, string(CHECK), string(DOC))
    ctypes.memmove(inout, ctypes.byref(known), min(inout.contents.hdr.struct_size, ctypes.sizeof(known)))


@slot
def run_check(obj, index, outcome, sink):
    checked(index)
    folder = tempfile.gettempdir()
    free, wanted = shutil.disk_usage(folder).free, of(obj).free
    outcome[0] = PASSED if free >= wanted else WARNING
    give(sink, f"{folder} has {free} bytes free, says Python {sys.version.split()[0]}")
    if free < wanted:
        give(sink, f"; want {wanted}: remove what is old, or set TMPDIR to another folder")


@slot
def dump(obj, form, sink):
    self, form = of(obj), text_of(form)
    with self.mutex:
        gathered = {**self.counts, "nanoseconds": self.nanoseconds}
    if form == "json":
        give(sink, json.dumps(gathered))
    elif form == "text":
        give(sink, "".join(f"{name} {count}\n" for name, count in gathered.items()))
    else:
        raise Failure(UNIMPLEMENTED, f"'diagnostics_python' cannot write '{form}', only json and text.")


def destroy(obj):
    totals.append(sum(all_objects.pop(obj.contents.impl).counts.values()))


@slot
def create(config, out):
    made = Diagnostics(number(config, b"free", 64 << 20))
    impl = id(made)
    all_objects[impl] = made
    out.contents.impl = impl


def close():
    log(INFO, f"{sum(totals)} records were seen")
    totals.clear()


def fill(address):
    global bridge
    bridge = Bridge.from_address(address)
    ours = [ctypes.sizeof(kind) for kind in (Bridge, Host, Table, Record)]
    theirs = [bridge.bytes, bridge.host_bytes, bridge.table_bytes, bridge.record_bytes]
    if ours != theirs:
        raise RuntimeError(f"The structs here have {ours} bytes, those of the plugin {theirs}: they are of different versions.")

    def set_slot(struct, name, function):
        kept.append(dict(struct._fields_)[name](function))
        setattr(struct, name, kept[-1])

    bridge.table.hdr = Hdr(ctypes.sizeof(Table), 0, None)
    for function in (on_records, check_count, check_info, run_check, dump, destroy):
        set_slot(bridge.table, function.__name__, function)
    set_slot(bridge, "create", create)
    set_slot(bridge, "close", close)
