"""Attention as com.microsoft has it: Attention, QAttention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding. What
they are to give is written out here in double precision, head by head."""
import numpy as np

from onnx_build import BF16, F16
from cases_contrib import Net, rounded
from cases_networks import f32, normal

HIDDEN = np.float64(-10000.0)


def softmax(scores, sink=None):
    """Along the last axis; `sink` is the score of one more, which takes its share."""
    most = np.maximum(scores.max(-1, keepdims=True), -np.inf if sink is None else sink)
    most = np.where(np.isfinite(most), most, 0)
    exps = np.exp(scores - most)
    return exps / (exps.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink - most)))


def heads_of(x, heads):
    """[batch, rows, heads * size] as [batch, heads, rows, size]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def rows_of(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attend(q, k, v, bias=0.0, scale=None):
    scale = scale or 1 / np.sqrt(q.shape[-1])
    return rows_of(softmax(q @ k.transpose(0, 1, 3, 2) * scale + bias) @ v)


def causal(queries, keys):
    """Each query sees the keys up to its own place; the last query's is that of the last key."""
    return np.where(np.arange(keys)[None] <= np.arange(queries)[:, None] + keys - queries, 0.0, -np.inf)


def contrib_attention(rng):
    """Attention: each form of mask, unidirectional, past and present, bias of scores, heads of V of another size, a scale"""
    b, s, c, h = 2, 5, 9, 2
    x, w, bias = normal(rng, b, s, c), normal(rng, c, 24, scale=0.5), normal(rng, 24)
    n = Net("contrib_attention", rtol=1e-4, atol=1e-4)
    names = [n.input("x", x), n.const(w), n.const(bias)]
    qkv = x.astype(np.float64) @ w + bias
    q, k, v = (heads_of(part, h) for part in np.split(qkv, 3, axis=2))
    masks = {"lengths": np.array([5, 3]), "both": np.array([5, 4, 1, 2]), "long": np.array([4, 5, 0, 5, 10, 0, 5, 10]),
             "keys": np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]), "queries": rng.randint(0, 2, (b, s, s)),
             "square": rng.randint(0, 2, (b, 1, 7, 7))}
    place = np.arange(s)
    hidden = {"lengths": place >= masks["lengths"][:, None], "long": place >= masks["long"][:2, None],
              "both": (place >= masks["both"][:2, None]) | (place < masks["both"][2:, None]), "keys": masks["keys"] == 0}
    hidden = {key: value[:, None, None] for key, value in hidden.items()}
    hidden["queries"] = (masks["queries"] == 0)[:, None]
    hidden["square"] = masks["square"][:, :, :5, :5] == 0
    for key, mask in masks.items():
        y = attend(q, k, v, np.where(hidden[key], HIDDEN, 0))
        n.output(n.op("Attention", *names, n.const(mask.astype(np.int32)), num_heads=h), f32(y))
    y = attend(q, k, v, np.where(hidden["keys"], HIDDEN, 0) + causal(s, s))
    n.output(n.op("Attention", *names, n.input("mask", masks["keys"].astype(np.int32)), num_heads=h, unidirectional=1), f32(y))
    n.output(n.op("Attention", *names[:2], num_heads=h, scale=0.3),
             f32(attend(*(heads_of(p, h) for p in np.split(x.astype(np.float64) @ w, 3, axis=2)), scale=0.3)))
    past, more = normal(rng, 2, b, h, 3, 4), normal(rng, 1, h, s, 8)
    all_k, all_v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    y, present = n.op("Attention", *names, "", n.input("past", past), n.input("more", more), outs=2, num_heads=h, unidirectional=1)
    n.output(y, f32(attend(q, all_k, all_v, more + causal(s, s + 3))))
    n.output(present, f32(np.stack([all_k, all_v])))
    wide = np.split(qkv, [6, 12], axis=2)
    n.output(n.op("Attention", *names, num_heads=h, qkv_hidden_sizes=[6, 6, 12]), f32(attend(*(heads_of(p, h) for p in wide))))
    return n.make()


def contrib_quantized_attention(rng):
    """QAttention: bytes, scales for each column, a mask, past"""
    b, s, c, h = 1, 4, 8, 2
    x, w = rng.randint(0, 256, (b, s, c)).astype(np.uint8), rng.randint(-128, 128, (c, 24)).astype(np.int8)
    scales, zeros, bias = f32(rng.uniform(0.002, 0.005, 24)), rng.randint(-3, 4, 24).astype(np.int8), normal(rng, 24)
    mask, past = np.array([[1, 1, 1, 1, 0, 1]], np.int32), normal(rng, 2, b, h, 2, 4)
    n = Net("contrib_quantized_attention", rtol=1e-4, atol=1e-4)
    y, present = n.op("QAttention", n.input("x", x), n.const(w), n.const(bias), n.const(np.float32(0.02)), n.const(scales),
                      n.const(mask), n.const(np.uint8(120)), n.const(zeros), n.input("past", past), outs=2, num_heads=h)
    qkv = (x.astype(np.float64) - 120) * np.float64(np.float32(0.02)) @ ((w.astype(np.float64) - zeros) * scales) + bias
    q, k, v = (heads_of(part, h) for part in np.split(qkv, 3, axis=2))
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    n.output(y, f32(attend(q, k, v, np.where(mask == 0, HIDDEN, 0)[:, None, None])))
    n.output(present, f32(np.stack([k, v])))
    return n.make()


def contrib_multi_head_attention(rng):
    """MultiHeadAttention: each layout of its inputs, bias, masks, unidirectional, past and present"""
    b, s, t, h, d, e = 2, 4, 6, 3, 4, 5
    query, key, value = normal(rng, b, s, h * d), normal(rng, b, t, h * d), normal(rng, b, t, h * e)
    bias, more = normal(rng, h * (2 * d + e)), normal(rng, b, 1, s, t)
    n = Net("contrib_multi_head_attention", rtol=1e-4, atol=1e-4)
    names = [n.input("query", query), n.input("key", key), n.input("value", value)]
    parts = np.split(bias.astype(np.float64), [h * d, 2 * h * d])
    q, k, v = (heads_of(x.astype(np.float64), h) for x in (query, key, value))
    with_bias = [heads_of(x + p, h) for x, p in zip((query, key, value), parts)]
    n.output(n.op("MultiHeadAttention", *names, num_heads=h), f32(attend(q, k, v)))
    lengths, mask = np.array([6, 2]), np.array([[1, 1, 0, 1, 0, 1], [0, 1, 1, 1, 1, 0]])
    hidden = np.where(np.arange(t) >= lengths[:, None], HIDDEN, 0)[:, None, None]
    n.output(n.op("MultiHeadAttention", *names, n.const(bias), n.const(lengths.astype(np.int32)), n.input("more", more), num_heads=h),
             f32(attend(*with_bias, hidden + more)))
    hidden = np.where(mask == 0, HIDDEN, 0)[:, None, None]
    n.output(n.op("MultiHeadAttention", *names, "", n.const(mask.astype(np.int32)), num_heads=h, scale=0.7), f32(attend(q, k, v, hidden, 0.7)))
    # Keys and values heads first: of an earlier run, so that only the query has its bias added.
    split = [n.const(f32(k)), n.const(f32(v))]
    n.output(n.op("MultiHeadAttention", names[0], *split, n.const(bias), num_heads=h), f32(attend(with_bias[0], k, v)))
    # Packed: keys with values, and all three.
    square = normal(rng, b, s, h, 3, d)
    packed = [square[:, :, :, i].transpose(0, 2, 1, 3).astype(np.float64) for i in range(3)]
    n.output(n.op("MultiHeadAttention", n.input("qkv", square), num_heads=h), f32(attend(*packed)))
    pairs = normal(rng, b, t, h, 2, d)
    kv = [pairs[:, :, :, i].transpose(0, 2, 1, 3).astype(np.float64) for i in range(2)]
    n.output(n.op("MultiHeadAttention", names[0], n.input("kv", pairs), num_heads=h), f32(attend(q, *kv)))
    # A step of a decoder.
    old_k, old_v, bias = normal(rng, b, h, 3, d), normal(rng, b, h, 3, d), normal(rng, 3 * h * d)
    fresh = [normal(rng, b, s, h * d) for _ in range(2)]
    parts = np.split(bias.astype(np.float64), 3)
    one = [heads_of(x + p, h) for x, p in zip((query, *fresh), parts)]
    k, v = np.concatenate([old_k, one[1]], 2), np.concatenate([old_v, one[2]], 2)
    made = n.op("MultiHeadAttention", names[0], n.input("k1", fresh[0]), n.input("v1", fresh[1]), n.const(bias), "", "",
                n.input("old_k", old_k), n.input("old_v", old_v), outs=3, num_heads=h, unidirectional=1)
    for name, array in zip(made, (attend(one[0], k, v, causal(s, s + 3)), k, v)):
        n.output(name, f32(array))
    y, present_k, present_v = n.op("MultiHeadAttention", *names, outs=3, num_heads=h)
    n.output(present_k, f32(heads_of(key, h)))
    n.output(present_v, f32(heads_of(value, h)))
    return n.make()


def rotated(x, cos, sin, interleaved=False):
    """The first values of each row turned by the angles of its place; x [..., size], cos and sin [..., half]."""
    half = cos.shape[-1]
    a, b = (x[..., 0:2 * half:2], x[..., 1:2 * half:2]) if interleaved else (x[..., :half], x[..., half:2 * half])
    y = x.astype(np.float64).copy()
    if interleaved:
        y[..., 0:2 * half:2], y[..., 1:2 * half:2] = a * cos - b * sin, b * cos + a * sin
    else:
        y[..., :half], y[..., half:2 * half] = a * cos - b * sin, b * cos + a * sin
    return y


def angles(rows, half):
    at = np.arange(rows)[:, None] / 10.0 ** (2 * np.arange(half) / half)
    return np.cos(at), np.sin(at)


def contrib_rotary(rng):
    """RotaryEmbedding of com.microsoft: rank 3 and 4, a position for all or one for each row, halves and neighbours, part of
    a head, a scale"""
    b, s, h, d = 2, 5, 3, 8
    x = normal(rng, b, s, h * d)
    split = np.ascontiguousarray(heads_of(x, h))
    n = Net("contrib_rotary", rtol=1e-4, atol=1e-5)
    rows, first = n.input("x", x), n.input("split", split)
    cos, sin = angles(12, 4)
    cache = [n.const(f32(cos)), n.const(f32(sin))]
    each, start = np.array([[0, 3, 1, 7, 11], [5, 4, 3, 2, 1]]), np.array([6])
    of_each = [c[each][:, None] for c in (cos, sin)]
    of_start = [c[6:11][None, None] for c in (cos, sin)]
    n.output(n.op("RotaryEmbedding", rows, n.const(each), *cache), f32(rows_of(rotated(split, *of_each))))
    n.output(n.op("RotaryEmbedding", rows, n.input("start", start), *cache, interleaved=1), f32(rows_of(rotated(split, *of_start, True))))
    n.output(n.op("RotaryEmbedding", first, n.const(each), *cache), f32(rotated(split, *of_each)))
    cos, sin = angles(12, 2)
    part = [c[each][:, None] for c in (cos, sin)]
    n.output(n.op("RotaryEmbedding", rows, n.const(each), n.const(f32(cos)), n.const(f32(sin)), num_heads=h, rotary_embedding_dim=4),
             f32(rows_of(rotated(split, *part))))
    return n.make()


def grouped(q, k, v, past, lengths, heads, kv_heads, bias=0.0, window=None, cap=None, sink=None, scale=None):
    """The result, and keys and values of the caches: each batch has its past, and as many keys as `lengths` says."""
    b, rows, size, most = q.shape[0], q.shape[2], q.shape[3], max(int(max(lengths)), past[0].shape[2] if past else 0)
    caches = [np.zeros((b, kv_heads, most, size)) for _ in range(2)]
    y = np.zeros((b, rows, heads * size))
    first = int(max(lengths)) == rows
    for i, total in enumerate(lengths):
        before = 0 if first else total - rows
        for cache, old, new in zip(caches, past or (None, None), (k, v)):
            if past:
                cache[i, :, :old.shape[2]] = old[i]  # of the rows beyond what is known is that they are kept
            cache[i, :, before:total] = new[i, :, :total - before]
        for head in range(heads):
            for row in range(rows):
                end = min(before + row + 1, total)
                begin = max(0, before + row + 1 - window) if window else 0
                kv = head // (heads // kv_heads)
                scores = caches[0][i, kv, begin:end] @ q[i, head, row] * (scale or 1 / np.sqrt(size))
                if cap:
                    scores = cap * np.tanh(scores / cap)
                if np.ndim(bias):
                    scores = scores + bias[i % bias.shape[0], head % bias.shape[1], row, begin:end]
                share = softmax(scores, None if sink is None else sink[head])
                y[i, row, head * size:(head + 1) * size] = share @ caches[1][i, kv, begin:end]
    return y, caches


def contrib_group_query_attention(rng):
    """GroupQueryAttention: a prompt and steps behind it, packed or not, rotary inside, caches of their own length or with
    room, batches of different lengths, a window, a cap, a bias, sinks"""
    b, h, kvh, d = 2, 4, 2, 16
    n = Net("contrib_group_query_attention", rtol=1e-4, atol=1e-4)
    cos, sin = angles(16, 8)
    cache = [n.const(f32(cos)), n.const(f32(sin))]
    total_of = lambda value: n.const(np.array(value, np.int32))
    lengths_of = lambda values: n.const(np.array(values, np.int32) - 1)

    def projections(tag, rows, batches=b):
        arrays = [normal(rng, batches, rows, count * d) for count in (h, kvh, kvh)]
        return [n.input(f"{name}_{tag}", a) for name, a in zip("qkv", arrays)], [heads_of(a.astype(np.float64), m) for a, m in zip(arrays, (h, kvh, kvh))]

    def keep(names, values):
        for name, value in zip(names, values):
            n.output(name, f32(value))

    # A prompt, without a past; then the same packed, with rotation.
    names, (q, k, v) = projections("prompt", 5)
    made = n.op("GroupQueryAttention", *names, "", "", lengths_of([5, 5]), total_of(5), outs=3, num_heads=h, kv_num_heads=kvh)
    y, caches = grouped(q, k, v, None, [5, 5], h, kvh)
    keep(made, (y, *caches))
    packed = normal(rng, b, 5, (h + 2 * kvh) * d)
    q, k, v = (heads_of(part.astype(np.float64), m) for part, m in zip(np.split(packed, [h * d, (h + kvh) * d], axis=2), (h, kvh, kvh)))
    turn = lambda x, places, mode=False: rotated(x, cos[places][:, None], sin[places][:, None], mode)
    places = np.tile(np.arange(5), (b, 1))
    for mode in (0, 1):
        made = n.op("GroupQueryAttention", n.input(f"packed{mode}", packed), "", "", "", "", lengths_of([5, 5]), total_of(5), *cache, outs=3,
                    num_heads=h, kv_num_heads=kvh, do_rotary=1, rotary_interleaved=mode)
        y, caches = grouped(turn(q, places, mode), turn(k, places, mode), v, None, [5, 5], h, kvh)
        keep(made, (y, *caches))
    # One step: caches that grow, and caches with room, whose batches have lengths of their own.
    names, (q, k, v) = projections("step", 1)
    for room, lengths in ((6, [7, 7]), (10, [7, 4])):
        past = [normal(rng, b, kvh, room, d) for _ in range(2)]
        given = [n.input(f"past_{name}{room}", p) for name, p in zip("kv", past)]
        made = n.op("GroupQueryAttention", *names, *given, lengths_of(lengths), total_of(7), *cache, outs=3, num_heads=h, kv_num_heads=kvh,
                    do_rotary=1)
        places = np.array(lengths)[:, None] - 1
        y, caches = grouped(turn(q, places), turn(k, places), v, past, lengths, h, kvh)
        keep(made, (y, *caches))
    # Options.
    past = [normal(rng, b, kvh, 6, d) for _ in range(2)]
    given = [n.const(p) for p in past]
    bias, sinks = normal(rng, 1, h, 1, 7), normal(rng, h)
    options = [({"local_window_size": 3}, [], {"window": 3}), ({"softcap": 0.5, "scale": 0.9}, [], {"cap": 0.5, "scale": 0.9}),
               ({}, ["", "", "", n.const(bias)], {"bias": bias.astype(np.float64)}), ({"smooth_softmax": 1}, [], {"sink": np.zeros(h)}),
               ({}, ["", "", "", "", n.const(sinks)], {"sink": sinks})]
    for attributes, inputs, how in options:
        made = n.op("GroupQueryAttention", *names, *given, lengths_of([7, 7]), total_of(7), *inputs, outs=3, num_heads=h, kv_num_heads=kvh,
                    **attributes)
        n.output(made[0], f32(grouped(q, k, v, past, [7, 7], h, kvh, **how)[0]))
    return n.make()


def contrib_attention_of_16_bits(rng):
    """MultiHeadAttention and GroupQueryAttention in float16 and bfloat16"""
    b, s, h, d = 1, 4, 4, 8
    n = Net("contrib_attention_of_16_bits", rtol=3e-2, atol=4e-2)
    for kind in (F16, BF16):
        (q, a), (k, c), (v, e) = (rounded(normal(rng, b, s, m * d), kind) for m in (h, h, h))
        names = [n.input(f"{name}{kind}", x) for name, x in zip("qkv", (q, k, v))]
        n.output(n.op("MultiHeadAttention", *names, num_heads=h), rounded(attend(*(heads_of(x, h) for x in (a, c, e))), kind)[0])
        made = n.op("GroupQueryAttention", *names, "", "", n.const(np.array([s - 1], np.int32)), n.const(np.array(s, np.int32)),
                    num_heads=h, kv_num_heads=h)
        n.output(made, rounded(grouped(*(heads_of(x, h) for x in (a, c, e)), None, [s], h, h)[0], kind)[0])
    return n.make()


CASES = [contrib_attention, contrib_quantized_attention, contrib_multi_head_attention, contrib_rotary, contrib_group_query_attention,
         contrib_attention_of_16_bits]
