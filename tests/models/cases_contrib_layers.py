"""Layers that com.microsoft has under one name: sums with softmax and dropout, biases of positions, tables of few bits, norms of
diffusion models, convolutions with channels last and with a state. What they are to give is written out in double precision."""
import math

import numpy as np

import reference as ref
from onnx_build import BF16, BOOL, F16, F32, I32, I4, U4, U8, Small
from cases_contrib import Net, few_bits, layer_norm, pack_bits, real, rounded
from cases_contrib_attention import attend, heads_of
from cases_networks import f32, normal


def softmax(x, axes):
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


def contrib_bias_softmax_and_dropout(rng):
    """BiasSoftmax whose bias lacks dims in front and in the middle; BiasDropout with and without a residual, its mask"""
    x, outer, inner, same = (normal(rng, *dims) for dims in ((2, 3, 4, 5), (4, 5), (2, 5), (2, 1, 1, 5)))
    n = Net("contrib_bias_softmax_and_dropout", rtol=1e-5, atol=1e-6)
    a, v = n.input("x", x), x.astype(np.float64)
    n.output(n.op("BiasSoftmax", a, n.const(outer), axis=3, is_inner_broadcast=0), f32(softmax(v + outer, (3,))))
    n.output(n.op("BiasSoftmax", a, n.input("inner", inner), axis=3, is_inner_broadcast=1), f32(softmax(v + inner[:, None, None], (3,))))
    n.output(n.op("BiasSoftmax", a, n.const(same), axis=2, is_inner_broadcast=1), f32(softmax(v + same, (2, 3))))
    bias, residual = normal(rng, 5), normal(rng, 2, 3, 4, 5)
    y, mask = n.op("BiasDropout", a, n.const(bias), n.input("residual", residual), n.const(np.float32(0.5)), outs=2)
    n.output(y, f32(v + bias + residual))
    n.output(mask, np.ones(x.shape, np.bool_), BOOL)
    n.output(n.op("BiasDropout", a, n.const(bias)), f32(v + bias))
    return n.make()


def bucket(apart, both, buckets, most):
    """The bucket of a key that is `apart` places behind the query, as T5 has it."""
    first = 0
    if both:
        buckets //= 2
        first, apart = (buckets if apart < 0 else 0), abs(apart)
    apart = max(apart, 0)
    exact = buckets // 2
    if apart < exact:
        return first + apart
    return first + min(buckets - 1, exact + int(math.log(apart / exact) / math.log(most / exact) * (buckets - exact)))


def contrib_position_biases(rng):
    """RelativePositionBias in both kinds, whose table lies head by head; GatedRelativePositionBias"""
    n = Net("contrib_position_biases", rtol=1e-4, atol=1e-5)
    for both, (q, k) in ((1, (30, 30)), (0, (7, 25)), (1, (1, 3)), (0, (1, 1))):
        table = normal(rng, 16, 3)
        want = np.zeros((1, 3, q, k))
        for i in range(q):
            for j in range(k):
                want[0, :, i, j] = table.reshape(3, 16)[:, bucket(i - j, both, 16, 20)]
        length = lambda value: n.const(np.array([value], np.int64))
        n.output(n.op("RelativePositionBias", n.input(f"table{both}{q}", table), length(q), length(k), is_bidirectional=both, max_distance=20),
                 f32(want))
    b, s, h, d, gate = 2, 5, 3, 4, 8
    query, bias, places, weight, shift, eco = (normal(rng, *dims) for dims in
                                               ((b, s, h * d), (h * d,), (1, h, s, s), (d, gate), (gate,), (1, h, 1, 1)))
    turned = heads_of(query.astype(np.float64) + bias, h) @ weight + shift
    gates = ref.sigmoid(turned.reshape(b, h, s, 2, gate // 2).sum(-1))
    want = (gates[..., :1] * (gates[..., 1:] * eco - 1) + 2) * places
    n.output(n.op("GatedRelativePositionBias", n.input("query", query), n.const(bias), n.input("places", places),
                  *(n.const(v) for v in (weight, shift, eco)), num_heads=h), f32(want))
    return n.make()


def contrib_gather_block_quantized(rng):
    """GatherBlockQuantized: bytes of 2, 4 and 8 bits, int4 and uint4, zero points and none, along other axes, indices that are
    negative and that are not there, scales of 16 bits"""
    n = Net("contrib_gather_block_quantized", rtol=2e-2, atol=2e-2)
    rows, ids = 9, np.array([[3, 0, 8], [-1, 42, 5]], np.int64)
    pick = lambda matrix: np.where(((ids >= -len(matrix)) & (ids < len(matrix)))[..., None], matrix[np.clip(ids, -len(matrix), len(matrix) - 1)], 0)
    for bits in (2, 4, 8):
        for zeros in (True, False):
            packed, scales, zero, _, matrix = few_bits(rng, rows, 64, 16, bits, zeros)
            extra = [n.const(zero)] if zeros else []
            index = n.input(f"ids{bits}{zeros}", ids if zeros else ids.astype(np.int32))
            n.output(n.op("GatherBlockQuantized", n.const(packed.reshape(rows, -1)), index, n.const(scales), *extra, bits=bits,
                          block_size=16, quantize_axis=1, gather_axis=0), f32(pick(matrix.T)))
    for kind in (U4, I4):
        codes, zero = rng.randint(0, 16, (rows, 32)), rng.randint(0, 16, (rows, 2))
        scale, stored = rounded(rng.uniform(0.01, 0.1, (rows, 2)), F16)
        wide = np.repeat(Small(kind, zero).values(), 16, 1), np.repeat(stored, 16, 1)
        matrix = (Small(kind, codes).values() - wide[0]) * wide[1]
        n.output(n.op("GatherBlockQuantized", n.const(Small(kind, codes)), n.const(ids), n.const(scale), n.const(Small(kind, zero)),
                      block_size=16), rounded(pick(matrix), F16)[0])
    # Blocks along the first axis of three, indices along the last.
    codes, scale = rng.randint(0, 16, (20, 3, 6)), f32(rng.uniform(0.1, 1, (2, 3, 6)))
    numbers = np.where(codes > 7, codes - 16, codes) * np.repeat(scale.astype(np.float64), 16, 0)[:20]
    n.output(n.op("GatherBlockQuantized", n.const(Small(I4, codes)), n.const(np.array([5, 0, -2], np.int64)), n.const(scale),
                  block_size=16, quantize_axis=0, gather_axis=2), f32(numbers[:, :, [5, 0, 4]]))
    return n.make(opset=21)


def contrib_quantized_embedding(rng):
    """QEmbedLayerNormalization: tables of bytes, with and without segments"""
    n = Net("contrib_quantized_embedding", rtol=1e-4, atol=1e-4)
    table = lambda count: rng.randint(0, 256, (count, 8)).astype(np.uint8)
    ids, kinds = np.array([[3, 1, 10, 0], [5, 5, 2, 9]], np.int32), np.array([[0, 0, 1, 1], [1, 0, 0, 0]], np.int32)
    tables = [table(11), table(7), table(2), table(1)[0], table(1)[0]]
    scales, zeros = [np.float32(s) for s in (0.02, 0.03, 0.05, 0.01, 0.04)], [np.uint8(z) for z in (120, 100, 3, 7, 200)]
    words, places, segments, gamma, beta = (real(t, s, z) for t, s, z in zip(tables, scales, zeros))
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    names = [n.input("ids", ids), n.input("kinds", kinds), *(n.const(t) for t in tables), n.input("mask", mask),
             *(n.const(s) for s in scales), *(n.const(z) for z in zeros)]
    y, counts = n.op("QEmbedLayerNormalization", *names, outs=2, epsilon=1e-10)
    n.output(y, f32(layer_norm(words[ids] + places[None, :4] + segments[kinds], gamma, beta, 1e-10)[0]))
    n.output(counts, np.array([3, 2], np.int32))
    for i in (1, 4, 7, 10, 15):
        names[i] = ""
    y, counts = n.op("QEmbedLayerNormalization", *names, outs=2)
    n.output(y, f32(layer_norm(words[ids] + places[None, :4], gamma, beta)[0]))
    n.output(counts, np.zeros(2, np.int32))
    return n.make()


def contrib_group_norms(rng):
    """GroupNorm and SkipGroupNorm: channels last and first, an activation, skips of each shape, the sum"""
    n = Net("contrib_group_norms", rtol=1e-4, atol=1e-4)
    x, gamma, beta, bias = normal(rng, 2, 3, 5, 8), normal(rng, 8), normal(rng, 8), normal(rng, 8)

    def norm(v, groups, act):
        parts = v.transpose(0, 3, 1, 2).reshape(2, groups, -1)
        parts = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + np.float32(1e-3))
        y = parts.reshape(2, 8, 3, 5).transpose(0, 2, 3, 1) * gamma + beta
        return y * ref.sigmoid(y) if act else y

    a, v, factors = n.input("x", x), x.astype(np.float64), [n.const(gamma), n.const(beta)]
    for act in (0, 1):
        n.output(n.op("GroupNorm", a, *factors, activation=act, groups=4, epsilon=1e-3), f32(norm(v, 4, act)))
    first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    n.output(n.op("GroupNorm", n.input("first", first), *factors, activation=1, groups=2, epsilon=1e-3, channels_last=0),
             f32(norm(v, 2, 1).transpose(0, 3, 1, 2)))
    for i, dims in enumerate(((2, 3, 5, 8), (2, 1, 1, 8), (2, 8))):
        skip = normal(rng, *dims)
        total = v + skip.reshape(2, *(dims[1:3] if len(dims) == 4 else (1, 1)), 8) + (bias if i else 0)
        y, sums = n.op("SkipGroupNorm", a, *factors, n.input(f"skip{i}", skip), *([n.const(bias)] if i else []), outs=2, activation=i % 2,
                       groups=2, epsilon=1e-3)
        n.output(y, f32(norm(total, 2, i % 2)))
        n.output(sums, f32(total))
    return n.make()


def contrib_channels_last(rng):
    """NhwcConv, NhwcFusedConv with a summand and an activation, NhwcMaxPool"""
    n = Net("contrib_channels_last", rtol=1e-4, atol=1e-4)
    x, w, b, z = normal(rng, 2, 7, 6, 3), normal(rng, 4, 3, 3, 3), normal(rng, 4), normal(rng, 2, 4, 3, 4)
    y = ref.conv(x.transpose(0, 3, 1, 2).astype(np.float64), w.astype(np.float64), b.astype(np.float64), strides=(2, 2),
                 pads=(1, 1, 1, 1)).transpose(0, 2, 3, 1)
    how = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}
    a, weights = n.input("x", x), [n.const(w), n.const(b)]
    n.output(n.op("NhwcConv", a, *weights, **how), f32(y))
    n.output(n.op("NhwcFusedConv", a, *weights, n.input("z", z), activation="Relu", **how), f32(np.maximum(y + z, 0)))
    bytes_in = rng.randint(-128, 128, (1, 5, 6, 2)).astype(np.int8)
    want = np.stack([[bytes_in[0, i:i + 2, j:j + 2].max((0, 1)) for j in range(5)] for i in range(4)])[None]
    n.output(n.op("NhwcMaxPool", n.input("bytes", bytes_in), kernel_shape=[2, 2]), want)
    p, q = normal(rng, 2, 4, 6), normal(rng, 2, 5, 6)
    n.output(n.op("FusedMatMulActivation", n.input("p", p), n.input("q", q), transB=1, alpha=0.5, activation="LeakyRelu",
                  activation_alpha=0.25), f32((lambda v: np.where(v < 0, 0.25 * v, v))(0.5 * p.astype(np.float64) @ q.transpose(0, 2, 1))))
    return n.make()


def contrib_causal_conv(rng):
    """CausalConvWithState: with and without what was before, with an activation, with gaps; a sequence in one step and in two"""
    n = Net("contrib_causal_conv", rtol=1e-4, atol=1e-4)
    x, w, b = normal(rng, 2, 5, 9), normal(rng, 5, 1, 4), normal(rng, 5)

    def conv(v, past, dilation=1, bias=0.0):
        v = np.concatenate([past, v], 2)
        span = 3 * dilation
        y = np.zeros((2, 5, v.shape[2] - span))
        for t in range(y.shape[2]):
            y[:, :, t] = sum(v[:, :, t + j * dilation] * w[None, :, 0, j].astype(np.float64) for j in range(4))
        return y + np.asarray(bias).reshape(-1, 1) if np.ndim(bias) else y, v[:, :, v.shape[2] - span:]

    a, k, v = n.input("x", x), n.const(w), x.astype(np.float64)
    y, state = n.op("CausalConvWithState", a, k, n.const(b), outs=2)
    whole, last = conv(v, np.zeros((2, 5, 3)), bias=b)
    n.output(y, f32(whole))
    n.output(state, f32(last))
    head, tail = np.ascontiguousarray(x[:, :, :6]), np.ascontiguousarray(x[:, :, 6:])
    _, carried = n.op("CausalConvWithState", n.input("head", head), k, n.const(b), outs=2)
    y, state = n.op("CausalConvWithState", n.input("tail", tail), k, n.const(b), carried, outs=2, activation="silu")
    n.output(y, f32(whole[:, :, 6:] * ref.sigmoid(whole[:, :, 6:])))
    n.output(state, f32(last))
    past = normal(rng, 2, 5, 6)
    y, state = n.op("CausalConvWithState", a, k, "", n.input("past", past), outs=2, dilation=2)
    for name, value in zip((y, state), conv(v, past.astype(np.float64), 2)):
        n.output(name, f32(value))
    return n.make()


def contrib_decoder_attention(rng):
    """DecoderMaskedMultiHeadAttention: self attention with a past, packed and not, a bias and a mask; cross attention"""
    n = Net("contrib_decoder_attention", rtol=1e-4, atol=1e-4)
    b, h, d = 2, 3, 4
    q, k, v = (normal(rng, b, 1, h * d) for _ in range(3))
    past = [normal(rng, b, h, 5, d) for _ in range(2)]
    bias, mask = normal(rng, 3 * h * d), np.array([[1, 1, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
    parts = np.split(bias.astype(np.float64), 3)
    one = [heads_of(x + p, h) for x, p in zip((q, k, v), parts)]
    keys, values = (np.concatenate([p, x], 2) for p, x in zip(past, one[1:]))
    given = [n.input("past_k", past[0]), n.input("past_v", past[1])]
    hidden = np.where(mask == 0, -10000.0, 0)[:, None, None]
    for packed in (False, True):
        names = [n.input("packed", np.concatenate([q, k, v], 2)), "", ""] if packed else [n.input(f"in_{c}", x) for c, x in zip("qkv", (q, k, v))]
        made = n.op("DecoderMaskedMultiHeadAttention", *names, n.const(mask.astype(np.int32)), "", *given, "", "", "", n.const(bias), outs=3,
                    num_heads=h)
        for name, value in zip(made, (attend(one[0], keys, values, hidden), keys, values)):
            n.output(name, f32(value))
    n.output(n.op("DecoderMaskedMultiHeadAttention", "in_q", *given, num_heads=h), f32(attend(heads_of(q.astype(np.float64), h), *past)))
    return n.make()


def contrib_linear_of_4_bits(rng):
    """QuantizeLinear and DequantizeLinear of com.microsoft in int4, uint4 and 16 bits"""
    n = Net("contrib_linear_of_4_bits", rtol=1e-5, atol=1e-5)
    x = normal(rng, 3, 10, scale=2)
    a, scale = n.input("x", x), np.float32(0.37)
    for kind, zero in ((I4, 14), (U4, 5)):
        z = Small(kind, np.array(zero))
        low, high = (-8, 7) if kind == I4 else (0, 15)
        numbers = np.clip(np.rint(x / scale) + z.values(), low, high)
        q = n.op("QuantizeLinear", a, n.const(scale), n.const(z))
        n.output(n.op("DequantizeLinear", q, n.const(scale), n.const(z)), f32((numbers - z.values()) * np.float64(scale)))
    return n.make(opset=21)


CASES = [contrib_bias_softmax_and_dropout, contrib_position_biases, contrib_gather_block_quantized, contrib_quantized_embedding,
         contrib_group_norms, contrib_channels_last, contrib_causal_conv, contrib_decoder_attention, contrib_linear_of_4_bits]
