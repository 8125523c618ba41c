"""Operators that read or make text. Expected values are Python's own: str, float, sorted, lower, upper, split."""
import re

import numpy as np

from cases_networks import f32
from onnx_build import BOOL, DTYPES, F16, F32, F64, I64, STRING, Bf16, BF16, Case, Graph


def text(*rows):
    return np.array(rows, object)


def casts_to_text(rng):
    """Cast and CastLike of each numeric type to string: plain digits, as few as bring the number back"""
    g, values, expected = Graph("casts_to_text"), [], []
    like = g.const(text("like"))

    def add(name, elem_type, value, words):
        x = g.input(name, elem_type, list(np.shape(value.bits if isinstance(value, Bf16) else value)))
        g.op("Cast", x, to=STRING, out=name + "_text")
        g.op("CastLike", x, like, out=name + "_like")
        for out in "_text", "_like":
            g.output(name + out, STRING, [len(words)])
            expected.append(text(*words))
        values.append(value)

    for elem_type, dtype in DTYPES.items():
        name = np.dtype(dtype).name
        if np.dtype(dtype).kind in "iu":
            limits = np.iinfo(dtype)
            add(name, elem_type, np.array([limits.min, 7, limits.max], dtype), [str(limits.min), "7", str(limits.max)])
    add("bool", BOOL, np.array([True, False]), ["1", "0"])
    words = ["0.1", "-2.5", "3", "16777216", "100000002004087730000", "0.00000000000000000001", "NaN", "INF", "-INF"]
    floats = [0.1, -2.5, 3, 2.0**24, 1e20, 1e-20, np.nan, np.inf, -np.inf]
    add("float32", F32, f32(floats), words[:4] + ["100000002004087734272"] + words[5:])
    add("float64", F64, np.array(floats), words[:4] + ["100000000000000000000"] + words[5:])
    add("float16", F16, np.float16([0.5, 0.1, 65504]), ["0.5", "0.099975586", "65504"])
    add("bfloat16", BF16, Bf16([0.5, 3]), ["0.5", "3"])
    return Case(g.model(15), (values, expected))


def casts_from_text(rng):
    """Cast of strings to each numeric type: plain and scientific, signs, INF and NaN in any case, white space"""
    words = ["3.14", "1000", "1e-5", "+1E8", " 42\n", "-0.0", "NaN", "nan", "INF", "+inf", "-Inf", "1e400", "-1e-400"]
    g = Graph("casts_from_text")
    s, w = g.input("s", STRING, [len(words)]), g.input("w", STRING, [5])
    expected = []
    for name, elem_type, value in (("f32", F32, f32), ("f64", F64, np.float64), ("f16", F16, np.float16),
                                   ("bf16", BF16, Bf16)):
        g.op("Cast", s, to=elem_type, out=name)
        g.output(name, elem_type, [len(words)])
        with np.errstate(over="ignore"):
            expected.append(value([float(word) for word in words]))
    whole = ["0", "100", "+7", "12.9", "1e2"]
    for elem_type, dtype in DTYPES.items():
        if np.dtype(dtype).kind in "iub":
            name = np.dtype(dtype).name
            g.op("CastLike", w, g.const(np.zeros((), dtype)), out=name)
            g.output(name, elem_type, [5])
            expected.append(np.array([int(float(word)) for word in whole]).astype(dtype))
    limits = g.const(text("-9223372036854775808", "9223372036854775807"))
    g.op("Cast", limits, to=I64, out="limits")
    g.output("limits", I64, [2])
    expected.append(np.array([-2**63, 2**63 - 1]))
    return Case(g.model(15), ([text(*words), text(*whole)], expected))


def text_normalized(rng):
    """StringNormalizer: case of letters beyond ASCII, stop words in any case, Turkish, nothing left"""
    g = Graph("text_normalized")
    s, row = g.input("s", STRING, ["n"]), g.input("row", STRING, [1, "n"])

    def add(out, x, shape, **attributes):
        g.op("StringNormalizer", x, out=out, **attributes)
        g.output(out, STRING, shape)

    add("lower", s, [None], case_change_action="LOWER")
    add("upper", s, [None], case_change_action="UPPER", stopwords=["ПРИВЕТ", "zürich"])
    add("exact", row, [1, None], stopwords=["zürich", "Izmir"], is_case_sensitive=1)
    add("turkish_lower", s, [None], case_change_action="LOWER", locale="tr_TR")
    add("turkish_upper", s, [None], case_change_action="UPPER", locale="tr_TR.UTF-8")
    add("ascii", s, [None], case_change_action="UPPER", locale="C")
    add("nothing", row, [1, None], stopwords=["izmir", "zürich", "привет", "數字", ""])
    words = ["Izmir", "Zürich", "привет", "數字", ""]

    def run(words):
        ascii_upper = ["".join(c.upper() if c.isascii() else c for c in w) for w in words]
        turkish = {"lower": str.maketrans("Iİ", "ıi"), "upper": str.maketrans("iı", "İI")}
        lower = [w.lower() for w in words]
        kept = [w for w in words if w.lower() not in ("привет", "zürich")]
        exact = [w for w in words if w not in ("zürich", "Izmir")]
        return [text(*words), text(words)], [
            text(*lower), text(*([w.upper() for w in kept] or [""])), text(exact or [""]),
            text(*[w.translate(turkish["lower"]).lower() for w in words]),
            text(*[w.translate(turkish["upper"]).upper() for w in words]), text(*ascii_upper), text([""])]

    return Case(g.model(13), run(words), run(["iİıI", "zürich"][1:]))


def text_compared(rng):
    """Equal with broadcasting, Unique whole, by row and in the order of appearance"""
    g = Graph("text_compared")
    a, b = g.input("a", STRING, ["n", 2]), g.input("b", STRING, [2])
    g.op("Equal", a, b, out="equal")
    names = ["values", "first", "inverse", "counts"]
    g.op("Unique", a, out=names)
    rows = ["rows_" + n for n in names]
    g.op("Unique", a, out=rows, axis=0)
    g.op("Unique", a, out=["seen", "", "seen_inverse"], sorted=0)
    g.output("equal", BOOL, ["n", 2])
    for out in names + rows + ["seen", "seen_inverse"]:
        g.output(out, STRING if out in ("values", "rows_values", "seen") else I64, [None] * (1 + (out == "rows_values")))

    def unique(items, key=lambda item: item):
        order = sorted(set(items), key=key)
        return order, [items.index(i) for i in order], [order.index(i) for i in items], [items.count(i) for i in order]

    def run(rows, b):
        flat = [word for row in rows for word in row]
        whole, by_row, seen = unique(flat), unique([tuple(r) for r in rows]), unique(flat, flat.index)
        ints = lambda *lists: [np.int64(values) for values in lists]
        return [text(*rows), text(*b)], [text(*rows) == text(*b), text(*whole[0]), *ints(*whole[1:]),
                                         text(*[list(r) for r in by_row[0]]), *ints(*by_row[1:]), text(*seen[0]),
                                         *ints(seen[2])]

    return Case(g.model(13), run([["b", "a"], ["ä", "b"], ["b", "a"]], ["b", "b"]), run([["z", "z"]], ["", "z"]))


def text_counted(rng):
    """TfIdfVectorizer of words: one and two in a row, a word that is in no gram, weights"""
    pool = ["one", "two", "three", "one", "two", "two", "three"]  # three words, then two pairs
    attributes = dict(mode="TFIDF", min_gram_length=1, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 3],
                      ngram_indexes=[0, 1, 2, 4, 3], pool_strings=pool, weights=[1.0, 0.5, 2.0, 4.0, 8.0])
    grams = [("one",), ("two",), ("three",), ("one", "two"), ("two", "three")]
    g = Graph("text_counted")
    x = g.input("x", STRING, ["n", 5])
    g.op("TfIdfVectorizer", x, out="y", **attributes)
    g.output("y", F32, ["n", 5])

    def run(*rows):
        out = np.zeros((len(rows), 5), np.float32)
        for r, row in enumerate(rows):
            for n in (1, 2):
                for at in range(len(row) - n + 1):
                    if (gram := tuple(row[at:at + n])) in grams:
                        out[r, attributes["ngram_indexes"][grams.index(gram)]] += attributes["weights"][grams.index(gram)]
        return [text(*rows)], [out]

    return Case(g.model(13), run(["one", "two", "three", "four", "two"], ["two", "two", "one", "two", "three"]),
                run(["x", "y", "", "One", "one"]), beyond=True)


def text_joined(rng):
    """StringConcat with broadcasting; StringSplit at white space, at a delimiter, with a limit; RegexFullMatch"""
    g = Graph("text_joined")
    a, b = g.input("a", STRING, ["n", 1]), g.input("b", STRING, [2])
    g.op("StringConcat", a, b, out="joined")
    g.output("joined", STRING, ["n", 2])
    forms = {"space": {}, "space_1": {"maxsplit": 1}, "comma": {"delimiter": ","}, "comma_1": {"delimiter": ",", "maxsplit": 1},
             "long": {"delimiter": "--"}, "empty": {"delimiter": "", "maxsplit": 0}}
    for name, attributes in forms.items():
        g.op("StringSplit", a, out=[name, name + "_count"], **attributes)
        g.output(name, STRING, ["n", 1, None])
        g.output(name + "_count", I64, ["n", 1])

    patterns = {"letters": r"[a-z,]*", "ends": r".*--|a.*c|\s.*\w\s"}
    for name, pattern in patterns.items():
        g.op("RegexFullMatch", a, out=name, pattern=pattern)
        g.output(name, BOOL, ["n", 1])

    def run(words, ends):
        column = np.array(words, object).reshape(-1, 1)
        out = [column + text(*ends)]
        for attributes in forms.values():
            parts = [word.split(attributes.get("delimiter") or None, attributes.get("maxsplit", -1)) for word in words]
            longest = max(map(len, parts), default=0)
            padded = np.array([p + [""] * (longest - len(p)) for p in parts], object)
            out += [padded.reshape(len(words), 1, longest), np.int64([[len(p)] for p in parts]).reshape(-1, 1)]
        out += [np.array([[bool(re.fullmatch(p, w, re.ASCII))] for w in words]) for p in patterns.values()]
        return [column, text(*ends)], out

    return Case(g.model(20, ir=9), run(["a,b,c", "  two  words\u3000and more ", "", "x--y--", ",,"], ["", "数"]),
                run([""], ["p", "q"]), check=False)


def text_moved(rng):
    """Strings through what moves elements: Pad, Tile, Expand, Transpose, Slice, Split, OneHot, Trilu, ScatterND ..."""
    g = Graph("text_moved")
    x = g.input("x", STRING, ["r", 2])


    def add(op, *inputs, rank=2, **attributes):
        name = op.lower()
        g.op(op, *inputs, out=name, **attributes)
        g.output(name, STRING, [None] * rank)

    add("Pad", x, g.const(np.int64([1, 0, 0, 2])), g.const(np.array("-", object)))
    add("Tile", x, g.const(np.int64([2, 1])))
    add("Expand", x, g.const(np.int64([2, 1, 1])), rank=3)
    add("Transpose", x, perm=[1, 0])
    add("Slice", x, g.const(np.int64([-1])), g.const(np.int64([-100])), g.const(np.int64([1])), g.const(np.int64([-1])))
    add("Trilu", x, upper=0)
    add("Unsqueeze", x, g.const(np.int64([0])), rank=3)
    add("Flatten", x, axis=0)
    add("GatherND", x, g.const(np.int64([[1, 0], [0, 1]])), rank=1)
    add("GatherElements", x, g.const(np.int64([[1, 1]])), axis=0)
    add("ScatterND", x, g.const(np.int64([[0, 0]])), g.const(text("new")))
    add("Compress", x, g.const(np.array([True, False])), axis=0)
    add("OneHot", g.const(np.int64([1, 0])), g.const(np.int64(2)), g.const(text("off", "on")))
    g.op("Split", x, out=["left", "right"], axis=1)
    g.op("Shape", x, out="shape")
    for name, elem_type, shape in (("left", STRING, ["r", 1]), ("right", STRING, ["r", 1]), ("shape", I64, [2])):
        g.output(name, elem_type, shape)

    def run(rows):
        v = text(*rows)
        padded = np.pad(v, ((1, 0), (0, 2)), constant_values="-")
        low = v.copy()
        low[np.triu_indices(v.shape[0], 1, v.shape[1])] = ""
        scattered = v.copy()
        scattered[0, 0] = "new"
        return [v], [padded, np.tile(v, (2, 1)), np.stack([v, v]), v.T, v[:, ::-1], low, v[None], v.reshape(1, -1),
                     text(v[1, 0], v[0, 1]), text([v[1, 0], v[1, 1]]), scattered, v[:1],
                     text(["off", "on"], ["on", "off"]), v[:, :1], v[:, 1:], np.int64(v.shape)]

    return Case(g.model(15), run([["a", "bb"], ["", "Zürich"], ["數", "d"]]), run([["1", "2"], ["3", "4"]]),
                beyond=True)


def text_in_graphs(rng):
    """Strings carried by Loop and stacked, scanned, chosen by If, put into sequences and an optional"""
    inner = Graph("loop", "loop_")
    inner.input("trip", I64, [])
    inner.input("go", BOOL, [])
    inner.input("so_far", STRING, [None])
    inner.op("Identity", "go", out="go_out")
    inner.op("Concat", "so_far", "words", out="longer", axis=0)
    inner.op("Gather", "words", "trip", out="one", axis=0)
    for name, elem_type, shape in (("go_out", BOOL, []), ("longer", STRING, [None]), ("one", STRING, [])):
        inner.output(name, elem_type, shape)
    scan = Graph("scan", "scan_")
    scan.input("word", STRING, [])
    scan.op("Cast", "word", out="number", to=F32)
    scan.op("Cast", scan.op("Mul", "number", scan.const(2.0)), out="twice", to=STRING)
    scan.output("twice", STRING, [])
    yes, no = Graph("yes", "yes_"), Graph("no", "no_")
    yes.op("Identity", "words", out="yes_out")
    yes.output("yes_out", STRING, [None])
    no.op("StringNormalizer", "words", out="no_out", stopwords=["1"])
    no.output("no_out", STRING, [None])

    g = Graph("text_in_graphs")
    g.input("words", STRING, ["n"])
    g.input("flag", BOOL, [])
    g.op("Loop", g.const(np.int64(2)), "", g.const(text("start")), out=["carried", "stacked"], body=inner.proto())
    g.op("Scan", "words", out="scanned", body=scan.proto(), num_scan_inputs=1)
    g.op("If", "flag", out="chosen", then_branch=yes.proto(), else_branch=no.proto())
    several = g.op("SequenceInsert", g.op("SequenceConstruct", "words", "chosen"), "scanned", g.const(np.int64(0)))
    g.op("ConcatFromSequence", several, out="joined", axis=0)
    parts = g.op("SplitToSequence", "words", g.const(np.int64(1)))
    g.op("SequenceAt", parts, g.const(np.int64(-1)), out="last")
    g.op("OptionalGetElement", g.op("Optional", "words"), out="there")
    for name in "carried", "stacked", "scanned", "chosen", "joined", "last", "there":
        g.output(name, STRING, [None])

    def run(words, flag):
        v, twice = text(*words), text(*[str(2 * int(w)) for w in words])
        chosen = v if flag else text(*([w for w in words if w != "1"] or [""]))
        return [v, np.bool_(flag)], [text("start", *words, *words), v[:2], twice, chosen, text(*twice, *words, *chosen),
                                     v[-1:], v]

    return Case(g.model(15), run(["1", "22", "333"], True), run(["1", "4"], False))


CASES = [casts_to_text, casts_from_text, text_normalized, text_compared, text_counted, text_joined, text_moved,
         text_in_graphs]
