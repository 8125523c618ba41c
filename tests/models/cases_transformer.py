"""Attention, RotaryEmbedding and the normalisations of opsets 18 to 24. python3-onnx 1.12 knows none of them, so its
checker is left out; expected outputs are the standard's definitions written out in double precision."""
import numpy as np

import reference as ref
from cases_networks import f32, normal
from onnx_build import F32, I64, Bf16, Case, Graph
from onnx_nodes import Nodes, like, wide


def attention_reference(q, k, v, mask=None, past_key=None, past_value=None, nonpad=None, is_causal=0, q_num_heads=0,
                        kv_num_heads=0, scale=None, softcap=0, qk_matmul_output_mode=0, softmax_precision=1):
    """Y, the joined keys, the joined values, the scores at the stage that is asked for; query by query"""
    rows = len(q.shape) == 3

    def split(x, heads):
        x = wide(x)
        return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3) if rows else x

    qs, ks, vs = split(q, q_num_heads), split(k, kv_num_heads), split(v, kv_num_heads)
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        ks, vs = np.concatenate([wide(past_key), ks], 2), np.concatenate([wide(past_value), vs], 2)
    batch, heads, queries, size = qs.shape
    keys = ks.shape[2]
    scale = 1 / np.sqrt(size) if scale is None else scale
    y, told = np.zeros((batch, heads, queries, vs.shape[3])), np.zeros((batch, heads, queries, keys))
    for b in range(batch):
        for h in range(heads):
            shared = h // (heads // ks.shape[1])
            for i in range(queries):
                stages = [scale * (ks[b, shared] @ qs[b, h, i])]
                stages.append(softcap * np.tanh(stages[0] / softcap) if softcap else stages[0])
                bias = np.zeros(keys)
                if mask is not None:
                    at = np.broadcast_to(mask if isinstance(mask, np.ndarray) else mask.values(),
                                         (batch, heads, queries, mask.shape[-1]))[b, h, i]
                    bias[len(at):] = -np.inf
                    bias[:len(at)] = np.where(at, 0, -np.inf) if at.dtype == bool else at
                for j in range(keys):
                    offset = nonpad[b] - queries if nonpad is not None and past_key is None else past
                    if is_causal and j > i + offset or nonpad is not None and j >= nonpad[b]:
                        bias[j] = -np.inf
                stages.append(stages[1] + bias)
                if np.all(bias == -np.inf):
                    stages.append(np.zeros(keys))
                else:
                    e = np.exp(stages[2] - stages[2].max())
                    stages.append(e / e.sum())
                y[b, h, i] = stages[3] @ vs[b, shared]
                told[b, h, i] = stages[qk_matmul_output_mode]
    if rows:
        y = y.transpose(0, 2, 1, 3).reshape(batch, queries, -1)
    return [like(q, y), like(k, ks), like(v, vs), like(q, told)]


def add_attention(nodes, inputs, wanted=(1, 1, 1, 1), known=True, **attributes):
    outputs = [o if w else None for o, w in zip(attention_reference(*inputs, **attributes), wanted)]
    while outputs[-1] is None:
        outputs.pop()
    nodes.add("Attention", inputs, outputs, known=known, **attributes)


def attention_heads(rng):
    """Attention 23: Q of rank 3 and 4, shared heads, cross attention, V of another size, scale, cap; sizes that fill no
    vector and more queries than a block has"""
    n = Nodes("attention_heads")
    make = lambda *shape: f32(normal(rng, *shape))
    add_attention(n, [make(2, 3, 5, 8), make(2, 3, 5, 8), make(2, 3, 5, 8)], (1, 0, 0, 0))
    add_attention(n, [make(2, 6, 7, 5), make(2, 2, 9, 5), make(2, 2, 9, 3)], scale=0.3)
    add_attention(n, [make(1, 4, 6, 8), make(1, 1, 6, 8), make(1, 1, 6, 8)], (1, 0, 0, 1), softcap=2.0)
    add_attention(n, [make(2, 5, 24), make(2, 5, 24), make(2, 5, 24)], (1, 1, 1, 0), q_num_heads=3, kv_num_heads=3)
    add_attention(n, [make(2, 5, 48), make(2, 7, 16), make(2, 7, 6)], q_num_heads=6, kv_num_heads=2)
    add_attention(n, [make(1, 150, 2 * 17), make(1, 133, 2 * 17), make(1, 133, 2 * 40)], (1, 0, 0, 0), q_num_heads=2,
                  kv_num_heads=2)
    add_attention(n, [make(1, 2, 70, 16), make(1, 2, 70, 16), make(1, 2, 70, 16)], (1, 0, 0, 0), is_causal=1)
    add_attention(n, [make(2, 4, 1, 16), make(2, 2, 300, 16), make(2, 2, 300, 16)], (1, 0, 0, 0))
    return n.case(23, rtol=2e-5, atol=2e-6)


def attention_masks(rng):
    """Attention 23: masks of bool and float that broadcast from rank 2, 3 and 4, causal masks, rows with nothing to
    look at, the scores at each stage"""
    n = Nodes("attention_masks")
    make = lambda *shape: f32(normal(rng, *shape))
    qkv = lambda: [make(2, 4, 5, 8), make(2, 2, 6, 8), make(2, 2, 6, 7)]
    flags = lambda *shape: rng.randint(0, 3, shape) > 0
    holes = lambda *shape: f32(np.where(flags(*shape), normal(rng, *shape), -np.inf))
    none = flags(5, 6)
    none[2] = False
    add_attention(n, [*qkv(), none])
    add_attention(n, [*qkv(), flags(2, 1, 5, 6)], qk_matmul_output_mode=3)
    add_attention(n, [*qkv(), make(4, 5, 6)], qk_matmul_output_mode=2, softcap=1.5)
    add_attention(n, [*qkv(), holes(2, 4, 1, 6)], qk_matmul_output_mode=1, softcap=0.7)
    add_attention(n, [*qkv(), holes(1, 6)], qk_matmul_output_mode=0, softcap=0.7, scale=2.0)
    add_attention(n, qkv(), is_causal=1, qk_matmul_output_mode=2)
    add_attention(n, [*qkv(), holes(5, 6)], is_causal=1, qk_matmul_output_mode=3)
    add_attention(n, [*qkv(), flags(2, 4, 5, 6)], (1, 0, 0, 0), is_causal=1, softcap=3.0)
    return n.case(23, rtol=2e-5, atol=2e-6)


def attention_past(rng):
    """Attention 23 and 24: keys and values of earlier steps, wanted as outputs or not; one query for heads that share
    keys; 24: how many keys count, shorter masks"""
    n = Nodes("attention_past")
    make = lambda *shape: f32(normal(rng, *shape))
    past = [make(2, 2, 5, 8), make(2, 2, 5, 6)]
    qkv = lambda q: [make(2, 6, q, 8), make(2, 2, q, 8), make(2, 2, q, 6)]
    add_attention(n, [*qkv(3), None, *past])
    add_attention(n, [*qkv(3), None, *past], (1, 0, 0, 0), is_causal=1)
    add_attention(n, [*qkv(1), make(1, 6), *past], (1, 1, 0, 0), is_causal=1)
    add_attention(n, [*qkv(4), rng.randint(0, 2, (2, 1, 4, 9)) > 0, *past], (1, 0, 1, 1), qk_matmul_output_mode=3)
    add_attention(n, [make(2, 3, 48), make(2, 3, 16), make(2, 3, 12), None, *past], q_num_heads=6, kv_num_heads=2,
                  is_causal=1, qk_matmul_output_mode=2)
    add_attention(n, [make(1, 2, 3, 4), make(1, 2, 3, 4), make(1, 2, 3, 4), None, make(1, 2, 0, 4), make(1, 2, 0, 4)])
    lengths = np.int64([4, 7])
    cache = [make(2, 2, 9, 8), make(2, 2, 9, 6)]
    add_attention(n, [make(2, 6, 3, 8), *cache, None, None, None, lengths], (1, 0, 0, 1), qk_matmul_output_mode=3)
    add_attention(n, [make(2, 6, 3, 8), *cache, None, None, None, lengths], (1, 0, 0, 0), is_causal=1)
    add_attention(n, [make(2, 6, 1, 8), *cache, make(1, 7), None, None, lengths], (1, 0, 0, 1), is_causal=1,
                  qk_matmul_output_mode=2)
    add_attention(n, [make(2, 6, 3, 8), *cache, rng.randint(0, 2, (3, 5)) > 0], (1, 0, 0, 0))
    return n.case(24, rtol=2e-5, atol=2e-6)


def attention_types(rng):
    """Attention 23 in float16, bfloat16, float64 and mixed; empty batches, queries and keys; dims that are not known"""
    n = Nodes("attention_types")
    make = lambda to, *shape: to(rng.randint(-8, 9, shape) / 8)
    for to in np.float16, Bf16, np.float64:
        add_attention(n, [make(to, 2, 4, 5, 8), make(to, 2, 2, 6, 8), make(to, 2, 2, 6, 7), make(to, 5, 6)],
                      qk_matmul_output_mode=3)
        add_attention(n, [make(to, 1, 1, 16), make(to, 1, 1, 8), make(to, 1, 1, 8), None, make(to, 1, 1, 4, 8),
                          make(to, 1, 1, 4, 8)], q_num_heads=2, kv_num_heads=1)
    add_attention(n, [make(np.float32, 1, 2, 3, 4), make(np.float32, 1, 2, 3, 4), make(np.float16, 1, 2, 3, 4)])
    add_attention(n, [make(np.float32, 1, 2, 3, 4), make(np.float32, 1, 2, 3, 4), make(np.float64, 1, 2, 3, 4)])
    add_attention(n, [make(np.float32, 1, 2, 3, 4), make(np.float32, 1, 2, 3, 4), make(np.float32, 1, 2, 3, 4),
                      make(np.float32, 3, 3)], known=False, is_causal=1)
    for shape in (0, 2, 3, 4), (2, 2, 0, 4):
        add_attention(n, [make(np.float32, *shape)] * 3, (1, 0, 0, 0))
    add_attention(n, [make(np.float32, 1, 2, 3, 4), make(np.float32, 1, 2, 0, 4), make(np.float32, 1, 2, 0, 5)])
    return n.case(23, rtol=4e-3, atol=4e-3)


def rotary_reference(x, cos, sin, positions=None, interleaved=0, num_heads=0, rotary_embedding_dim=0):
    """each pair of values as a complex number, turned by that of its position"""
    v = wide(x)
    v = v.reshape(v.shape[0], v.shape[1], num_heads, -1).transpose(0, 2, 1, 3) if v.ndim == 3 else v.copy()
    turned = rotary_embedding_dim or v.shape[3]
    at = (lambda cache: wide(cache)[positions]) if positions is not None else wide
    turn = (at(cos) + 1j * at(sin))[:, None]
    first, second = ((slice(0, turned, 2), slice(1, turned, 2)) if interleaved else
                     (slice(0, turned // 2), slice(turned // 2, turned)))
    out = v.copy()
    result = (v[..., first] + 1j * v[..., second]) * turn
    out[..., first], out[..., second] = result.real, result.imag
    return like(x, out.transpose(0, 2, 1, 3).reshape(x.shape) if len(x.shape) == 3 else out)


def rotary_embedding(rng):
    """RotaryEmbedding 23: rank 3 and 4, halves and neighbours, part of a head, positions given or in order, all types"""
    n = Nodes("rotary_embedding")

    def add(x, cos, sin, *positions, known=True, **attributes):
        n.add("RotaryEmbedding", [x, cos, sin, *positions], [rotary_reference(x, cos, sin, *positions, **attributes)],
              known=known, **attributes)

    for to in f32, np.float64, np.float16, Bf16:
        make = lambda *shape: to(rng.randint(-16, 17, shape) / 8)
        ids = rng.randint(0, 9, (2, 5))
        add(make(2, 3, 5, 8), make(9, 4), make(9, 4), ids)
        add(make(2, 5, 24), make(9, 2), make(9, 2), ids, num_heads=3, rotary_embedding_dim=4, interleaved=1)
        add(make(2, 3, 5, 8), make(2, 5, 4), make(2, 5, 4), interleaved=1)
    add(make(2, 5, 24), make(2, 5, 3), make(2, 5, 3), num_heads=3, rotary_embedding_dim=6, known=False)
    add(make(0, 3, 5, 8), make(9, 4), make(9, 4), np.zeros((0, 5), np.int64))
    return n.case(23, rtol=4e-3, atol=4e-3)


def normalisations(rng):
    """RMSNormalization 23 and, by its definition, what scales broadcast to; types that differ"""
    n = Nodes("normalisations")

    def rms(x, scale, axis=-1, known=True, **attributes):
        v = wide(x)
        over = tuple(range(axis % v.ndim, v.ndim))
        y = v / np.sqrt((v * v).mean(axis=over, keepdims=True) + attributes.get("epsilon", 1e-5)) * wide(scale)
        n.add("RMSNormalization", [x, scale], [like(scale, y)], known=known, axis=axis, **attributes)

    for to in f32, np.float64, np.float16, Bf16:
        make = lambda *shape: to(rng.randint(-16, 17, shape) / 8)
        rms(make(3, 4, 37), make(37))
        rms(make(2, 3, 4, 5), make(3, 1, 5), axis=1, epsilon=0.1)
        rms(make(2, 3, 4), make(2, 3, 4), axis=2)
    rms(f32(normal(rng, 2, 6)), np.float16(rng.randint(-4, 5, 6) / 4))
    rms(np.float16(rng.randint(-4, 5, (2, 6)) / 4), np.float64(normal(rng, 1)), axis=0, known=False)
    rms(f32(normal(rng, 0, 4)), f32(normal(rng, 4)))
    rms(f32(normal(rng, 5)), f32(normal(rng, 5)), axis=-1)
    return n.case(23, rtol=4e-3, atol=4e-3)


def f64(values):
    return np.asarray(values, np.float64)


def f16(values):
    return np.asarray(values, np.float16)


def _group_norm(rng, opset):
    n = Nodes(f"group_norm_{opset}")

    def add(to, shape, groups, known=True, **attributes):
        x = to(rng.randint(-16, 17, shape) / 8)
        size = groups if opset < 21 else shape[1]
        scale, bias = (to(rng.randint(-8, 9, size) / 4) for _ in "sb")
        v = wide(x).reshape(shape[0], groups, int(np.prod(shape[1:])) // groups)
        v = (v - v.mean(axis=2, keepdims=True)) / np.sqrt(v.var(axis=2, keepdims=True) + attributes.get("epsilon", 1e-5))
        repeat = shape[1] // groups if opset < 21 else 1
        one = lambda a: np.repeat(wide(a), repeat).reshape([1, shape[1]] + [1] * (len(shape) - 2))
        n.add("GroupNormalization", [x, scale, bias], [like(x, v.reshape(shape) * one(scale) + one(bias))], known=known,
              num_groups=groups, **attributes)

    for to in f32, f64, f16, Bf16:
        add(to, (2, 6, 4, 5), 3)
        add(to, (2, 4, 33), 1, epsilon=0.05)
    add(f32, (3, 4), 2)
    add(f32, (1, 4, 3, 3), 4, known=False)
    add(f32, (0, 4, 3), 2)
    return n.case(opset, rtol=4e-3, atol=4e-3)


def group_norm_18(rng):
    """GroupNormalization 18: scale and bias by group"""
    return _group_norm(rng, 18)


def group_norm_21(rng):
    """GroupNormalization 21: scale and bias by channel"""
    return _group_norm(rng, 21)


def einsum_products(rng):
    """Einsum of two operands: products of matrices that lie anyhow, of letters that join and that do not, broadcast"""
    sizes = dict(zip("abcdhijknsft", (2, 3, 4, 5, 3, 7, 4, 6, 17, 9, 2, 3)))
    rules = ["bhid,bhjd->bhij", "bhij,bhjd->bihd", "bhid,bhjd->bijh", "bhij,bjhd->bdih", "ibnd,jbnd->bnij", "ijbn,jbnd->ibnd",
             "ij,jk->ki", "abc,cd->abd", "abc,dc->dab", "cab,cd->abd", "i,j->ij", "ij,j->i", "i,ij->j", "ij,kj", "bij,bij->bi",
             "ij,k->i", "abcd,nscd->abns", "abcd,nsdc->abns", "aibj,jn->ibna", "aib,bka->ki", "abi,abj->ji", "abi,j->jab",
             "nft,stf->ns", "...ij,...jk->...ik", "...i,jk...->k...ij"]
    nodes = Nodes("einsum_products")
    for i, rule in enumerate(rules):
        terms = rule.split("->")[0].split(",")
        for kind in [np.float32] if i % 3 else [np.float32, np.float64, np.int32, np.float16]:
            ones = set() if i % 4 else {terms[1].replace("...", "")[0]}  # a dim of 1 that is broadcast
            shapes = [[n for c in t.replace("...", ".") for n in ([2, 3] if c == "." else [1 if k and c in ones else sizes[c]])]
                      for k, t in enumerate(terms)]
            a, b = (np.asarray(rng.randint(-8, 9, shape) / (1 if kind == np.int32 else 8), kind) for shape in shapes)
            wide = np.einsum(rule, a.astype(np.float64), b.astype(np.float64), optimize=False)
            nodes.add("Einsum", [a, b], [np.asarray(wide, kind)], known=bool(i % 2), equation=rule)
    none = np.zeros((2, 3, 0), np.float32)  # nothing to sum, nothing at all
    nodes.add("Einsum", [none, none], [np.zeros((2, 3, 3), np.float32)], equation="bik,bjk->bij")
    nodes.add("Einsum", [none, np.ones((3, 5), np.float32)], [np.zeros((2, 0, 5), np.float32)], equation="bik,in->bkn")
    return nodes.case(13, beyond=True)


def growing_cache(rng):
    """Two layers of a decoder whose keys and values grow by a token from run to run, as it is exported: shapes by
    arithmetic on Shape, a causal mask; a prompt, single tokens, a few at once, then another prompt"""
    layers, heads, size, vocabulary, longest = 2, 4, 8, 17, 32
    width = heads * size
    weights = lambda *shape: normal(rng, *shape, scale=1 / np.sqrt(shape[0]))
    embedding, positions, head = normal(rng, vocabulary, width), normal(rng, longest, width), weights(width, vocabulary)
    blocks = [(weights(width, 3 * width), normal(rng, 3 * width, scale=0.1), weights(width, width), weights(width, 2 * width),
               weights(2 * width, width)) for _ in range(layers)]
    scale, bias = 1 + normal(rng, width, scale=0.1), normal(rng, width, scale=0.1)

    g = Graph("growing_cache")
    ids = g.input("ids", I64, ["batch", "tokens"])
    cache = lambda name: g.input(name, F32, ["batch", heads, "past", size])
    caches = [[cache(f"key{layer}"), cache(f"value{layer}")] for layer in range(layers)]
    dim = lambda of, axis: g.op("Gather", g.op("Shape", of), g.const(np.int64(axis)), axis=0)
    one = lambda of: g.op("Unsqueeze", of, g.const(np.int64([0])))
    batch, tokens, past = dim(ids, 0), dim(ids, 1), dim(caches[0][0], 2)
    total = g.op("Add", past, tokens)
    here = g.op("Range", past, total, g.const(np.int64(1)))
    keys = g.op("Range", g.const(np.int64(0)), total, g.const(np.int64(1)))
    seen = g.op("LessOrEqual", one(keys), g.op("Unsqueeze", here, g.const(np.int64([1]))))
    mask = g.op("Where", seen, g.const(0.0), g.const(-1e9))
    split = g.op("Concat", one(batch), one(tokens), g.const(np.int64([heads, size])), axis=0)
    join = g.op("Concat", one(batch), one(tokens), g.const(np.int64([width])), axis=0)
    norm = lambda x: g.op("LayerNormalization", x, g.const(scale), g.const(bias), axis=-1)
    x = g.op("Add", g.op("Gather", g.const(embedding), ids, axis=0), g.op("Gather", g.const(positions), here, axis=0))
    for layer, (qkv, qkv_bias, out, up, down) in enumerate(blocks):
        parts = g.op("Split", g.op("Add", g.op("MatMul", norm(x), g.const(qkv)), g.const(qkv_bias)), outs=3, axis=-1)
        q, k, v = (g.op("Transpose", g.op("Reshape", part, split), perm=[0, 2, 1, 3]) for part in parts)
        k, v = (g.op("Concat", old, new, axis=2, out=f"{name}{layer}_out")
                for old, new, name in zip(caches[layer], (k, v), ("key", "value")))
        scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.const(float(size) ** -0.5))
        mixed = g.op("MatMul", g.op("Softmax", g.op("Add", scores, mask), axis=-1), v)
        mixed = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), join)
        x = g.op("Add", x, g.op("MatMul", mixed, g.const(out)))
        x = g.op("Add", x, g.op("MatMul", g.op("Relu", g.op("MatMul", norm(x), g.const(up))), g.const(down)))
    g.op("MatMul", norm(x), g.const(head), out="logits")
    g.output("logits", F32, ["batch", "tokens", vocabulary])
    for layer in range(layers):
        for name in "key", "value":
            g.output(f"{name}{layer}_out", F32, ["batch", heads, "total", size])

    def normed(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias

    def run(ids, caches):
        past, tokens = caches[0][0].shape[2], ids.shape[1]
        x, grown = ref.f64(embedding)[ids] + positions[past:past + tokens], []
        for (qkv, qkv_bias, out, up, down), old in zip(blocks, caches):
            q, k, v = np.split(normed(x) @ qkv + qkv_bias, 3, -1)
            parts = [part.reshape(*ids.shape, heads, size).transpose(0, 2, 1, 3) for part in (q, k, v)]
            k, v = (np.concatenate([ref.f64(a), b], 2) for a, b in zip(old, parts[1:]))
            scores = parts[0] @ k.transpose(0, 1, 3, 2) / np.sqrt(size)
            scores[..., np.arange(past + tokens)[None] > past + np.arange(tokens)[:, None]] = -1e9
            x = x + (ref.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(*ids.shape, width) @ out
            x = x + np.maximum(normed(x) @ up, 0) @ down
            grown.append([f32(k), f32(v)])
        return f32(normed(x) @ head), grown

    runs = []
    for counts in ((5, *[1] * 8, 3, *[1] * 4), (2, 1, 1, 6, 1)):
        caches = [[np.zeros((2, heads, 0, size), np.float32)] * 2] * layers
        for count in counts:
            ids = rng.randint(0, vocabulary, (2, count))
            logits, grown = run(ids, caches)
            flat = lambda of: [value for pair in of for value in pair]
            runs.append(([np.int64(ids), *flat(caches)], [logits, *flat(grown)]))
            caches = grown
    return Case(g.model(17), *runs, rtol=1e-3, atol=1e-4)


CASES = [growing_cache, einsum_products, attention_heads, attention_masks, attention_past, attention_types, rotary_embedding,
         normalisations, group_norm_18, group_norm_21]
