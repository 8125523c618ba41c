"""Moves that quantise: between QuantizeLinear and DequantizeLinear, by operators of bytes, at run time."""
import numpy as np

import random_ops as ops
from onnx_build import F32
from random_blocks import after, batch_norm, binary, clip, gated, limited, residual, unary
from random_moves import conv_weights, given, window_attributes
from random_walk import Skip, broadcasts
from reference import softmax


def scale_for(w, data, dtype, zero):
    """A scale with which no element of `data` lies near the middle between two steps."""
    info = np.iinfo(dtype)
    for _ in range(40):
        most = max(np.abs(data).max() if data.size else 1, 0.01) * w.rng.uniform(0.7, 1.5)
        room = max(info.max - zero, zero - info.min) if np.min(data, initial=0) < 0 else info.max - zero
        scale = np.float64(np.float32(most / max(room, 1)))
        part = data / scale
        inside = (part > info.min - zero - 1) & (part < info.max - zero + 1)
        if np.all(np.abs(np.abs(part - np.floor(part)) - 0.5)[inside] > 4e-3):
            return scale
    raise Skip


def quantized(w, x, dtype=None):
    """DequantizeLinear(QuantizeLinear(x))."""
    w.need(w.kind == F32)
    dtype = dtype or w.choice([np.uint8, np.uint8, np.int8])
    info = np.iinfo(dtype)
    zero = dtype(w.choice([0, 128, w.between(info.min, info.max)]) if dtype == np.uint8 else w.choice([0, 0, w.between(-128, 127)]))
    w.need(x.data.size < 2500)
    scale = scale_for(w, x.data, dtype, int(zero))
    s = w.const(scale)
    inputs = [s] if dtype == np.uint8 and zero == 0 and w.chance(0.5) else [s, w.const(np.asarray(zero))]
    q = w.add("QuantizeLinear", [x, *inputs], ops.quantize(x.data, scale, zero, dtype))
    if w.chance(0.1):
        w.keep(q)
    y = w.add("DequantizeLinear", [q, *inputs], ops.dequantize(q.data, scale, zero))
    y.scale = scale
    y.stored = (q, s, inputs[1] if len(inputs) > 1 else w.const(np.asarray(zero)))
    return y


def weights_of_bytes(w, weights, axis, dtype=np.int8):
    """Constant weights as DequantizeLinear makes them, by tensor or by `axis`."""
    info = np.iinfo(dtype)
    by_axis = w.opset >= 13 and axis is not None and w.chance(0.6)
    others = tuple(i for i in range(weights.ndim) if i != axis)
    most = np.maximum(np.abs(weights).max(others if by_axis else None), 0.01)
    scale = np.asarray(np.float32(most / 127), np.float64)
    if dtype == np.uint8:
        zero = np.full(scale.shape, 128, dtype)
    else:
        zero = (np.zeros(scale.shape) if w.chance(0.8) else w.rng.randint(-3, 4, scale.shape)).astype(dtype)
    shape = [-1 if i == axis else 1 for i in range(weights.ndim)] if by_axis else []
    s, z = scale.reshape(shape), zero.reshape(shape)
    q = np.clip(np.rint(weights / s) + z, info.min, info.max).astype(dtype)
    inputs = [w.const(q), w.const(scale)] + ([w.const(zero)] if zero.any() or w.chance(0.6) else [])
    if dtype == np.uint8 and len(inputs) < 3:
        inputs.append(w.const(zero))
    return w.add("DequantizeLinear", inputs, (q.astype(np.float64) - z) * s, **({"axis": axis} if by_axis else {})), scale


def bias_of_bytes(w, count, x_scale, w_scale):
    scale = np.asarray(np.float32(x_scale * w_scale), np.float64)
    q = np.int32(w.rng.randint(-3000, 3000, count))
    if scale.ndim and w.opset < 13 or w.chance(0.3):
        return w.const(q * scale)
    inputs = [w.const(q), w.const(scale)]
    return w.add("DequantizeLinear", inputs, q * scale, **({"axis": 0} if scale.ndim else {}))


def quantized_product(w):
    x = w.pick(lambda v: (v.rank in (2, 3, 4)) and min(v.shape) > 0 and v.data.size < 1500)
    x = quantized(w, limited(w, x))
    dtype = w.choice([np.int8, np.int8, np.int8, np.uint8])
    if x.rank >= 3 and w.chance(0.8):
        kernel, strides, dilations, pads = window_attributes(w, x.shape[2:])
        group, outs, weights = conv_weights(w, x.shape[1], kernel)
        m, w_scale = weights_of_bytes(w, weights, 0, dtype)
        inputs = [x, m] + ([bias_of_bytes(w, outs, x.scale, w_scale)] if w.chance(0.6) else [])
        data = ops.conv(x.data, m.data, inputs[2].data if len(inputs) > 2 else None, strides, pads, dilations, group)
        y = w.add("Conv", inputs, data, **given(w, strides=strides, dilations=dilations, pads=pads, group=group))
    elif x.rank == 2 and w.chance(0.6):
        n, trans = w.choice([1, 4, 17]), int(w.chance(0.5))
        weights = w.floats(*((n, x.shape[1]) if trans else (x.shape[1], n)), scale=x.shape[1] ** -0.5)
        m, w_scale = weights_of_bytes(w, weights, 0 if trans else 1, dtype)
        b = m.data.T if trans else m.data
        inputs, data = [x, m], x.data @ b
        if w.chance(0.6):
            inputs.append(bias_of_bytes(w, n, x.scale, w_scale))
            data = data + inputs[2].data
        y = w.add("Gemm", inputs, data, **({"transB": 1} if trans else {}))
    else:
        n = w.choice([1, 4, 17])
        m, w_scale = weights_of_bytes(w, w.floats(x.shape[-1], n, scale=x.shape[-1] ** -0.5), 1, dtype)
        y = w.add("MatMul", [x, m], x.data @ m.data)
        if w.chance(0.5):
            y = binary(w, "Add", y, bias_of_bytes(w, n, x.scale, w_scale))
    if w.chance(0.15):
        w.keep(y)
    for _ in range(w.choice([0, 0, 1, 1, 2])):
        y = w.choice([lambda w, x: w.add("Relu", [x], np.maximum(x.data, 0)), clip, unary, batch_norm, residual, gated])(w, y)
    w.keep(quantized(w, y) if w.chance(0.85) else y)


def quantized_element(w):
    """Between dequantised bytes and bytes again: by elements, moved, pooled, joined."""
    x = quantized(w, limited(w, w.pick(lambda v: v.data.size and v.data.size < 1500)))
    how = w.between(0, 7)
    if how == 0:
        y = w.choice([unary, clip, gated])(w, x)
    elif how == 1:
        fit = w.values(lambda v: v.is_float and v.data.size < 1500 and v.data.size and (broadcasts(v.shape, x.shape)))
        other = quantized(w, limited(w, w.choice(fit))) if fit else x
        y = binary(w, w.choice(["Add", "Mul"]), x, other)
        w.need(y.shape == x.shape)
    elif how == 2:
        perm = [int(i) for i in w.rng.permutation(x.rank)]
        w.need(x.rank)
        y = w.add("Transpose", [x], x.data.transpose(perm), perm=perm)
    elif how == 3:
        y = w.add("Reshape", [x, w.const(np.int64([-1]))], x.data.reshape(-1))
    elif how == 4:
        w.need(3 <= x.rank <= 5)
        y = w.add("GlobalAveragePool", [x], x.data.mean(tuple(range(2, x.rank)), keepdims=True))
    elif how == 5:
        w.need(3 <= x.rank <= 4 and min(x.shape[2:]) >= 2)
        op = w.choice(["MaxPool", "AveragePool"])
        kernel = [2] * (x.rank - 2)
        one, none = [1] * len(kernel), [0] * 2 * len(kernel)
        strides = w.choice([one, kernel])
        y = w.add(op, [x], ops.pool(op, x.data, kernel, strides, none, one), kernel_shape=kernel, strides=strides)
    elif how == 6:
        w.need(x.rank)
        axis = w.between(0, x.rank - 1)
        fit = w.values(lambda v: v.is_float and v.shape == x.shape)
        other = quantized(w, limited(w, w.choice(fit))) if fit and w.chance(0.7) else x
        y = w.add("Concat", [x, other], np.concatenate([x.data, other.data], axis), axis=axis)
    else:
        w.need(x.rank)
        y = w.add("Softmax", [x], softmax(x.data), axis=x.rank - 1)
    if w.chance(0.15):
        w.keep(y)
    w.keep(quantized(w, y) if w.chance(0.85) else y)


def operator_of_bytes(w):
    """QLinearConv or QLinearMatMul between bytes, as operator-oriented exporters write them."""
    x = limited(w, w.pick(lambda v: 2 <= v.rank <= 4 and min(v.shape) > 0 and v.data.size < 1500))
    x = quantized(w, x)
    q, s, z = x.stored
    if x.rank == 4:
        kernel, strides, dilations, pads = window_attributes(w, x.shape[2:])
        group, outs, weights = conv_weights(w, x.shape[1], kernel)
        count, axes = outs, (1, 2, 3)
    else:
        outs, axes = w.choice([1, 4, 17]), (0,)
        weights, count = w.floats(x.shape[-1], outs, scale=x.shape[-1] ** -0.5), outs
    by_channel = w.chance(0.5) and x.rank == 4
    ws = np.asarray(np.float32(np.maximum(np.abs(weights).max(axes if by_channel else None), 0.01) / 127), np.float64)
    shape = [-1, 1, 1, 1] if by_channel else []
    stored = np.clip(np.rint(weights / ws.reshape(shape)), -127, 127).astype(np.int8)
    real = stored * ws.reshape(shape)
    inputs = [q, s, z, w.const(stored), w.const(ws), w.const(np.zeros(ws.shape, np.int8))]
    bias = np.zeros(count)
    if x.rank == 4:
        steps = np.int32(w.rng.randint(-2000, 2000, count))
        bias = steps * (ws * x.scale) if w.chance(0.6) else bias
        y = ops.conv(x.data, real, bias, strides, pads, dilations, group)
    else:
        y = x.data @ real
    zero = np.uint8(w.choice([0, 128, 100]))
    if z.data.dtype == np.int8:
        zero = np.int8(w.choice([0, -128, 5]))
    ys = scale_for(w, y, zero.dtype.type, int(zero))
    out_scale, out_zero = w.const(ys), w.const(np.asarray(zero))
    inputs += [out_scale, out_zero] + ([w.const(steps)] if bias.any() else [])
    data = ops.quantize(y, ys, zero, zero.dtype.type)
    made = (w.add("QLinearConv", inputs, data, **given(w, strides=strides, dilations=dilations, pads=pads, group=group)) if x.rank == 4
            else w.add("QLinearMatMul", inputs, data))
    w.keep(w.add("DequantizeLinear", [made, out_scale, out_zero], ops.dequantize(made.data, ys, zero)))


def dynamic_product(w):
    """As dynamic quantisation writes it: bytes found at run time, an integer product, scaled back."""
    x = limited(w, w.pick(lambda v: v.rank >= 2 and v.data.size and v.shape[-1] > 0 and v.data.size < 1500))
    w.need(w.kind == F32)
    low, high = min(0, x.data.min()), max(0, x.data.max())
    w.need(high - low > 0.01)
    scale = np.float64(np.float32((high - low) / 255))
    exact = -low / scale
    w.need(abs(abs(exact - np.floor(exact)) - 0.5) > 1e-2)
    zero = np.uint8(np.clip(np.rint(exact), 0, 255))
    part = x.data / scale
    w.need(np.all(np.abs(np.abs(part - np.floor(part)) - 0.5) > 2e-3))
    q, s, z = w.add_many("DynamicQuantizeLinear", [x], [ops.quantize(x.data, scale, zero, np.uint8), scale, np.asarray(zero)])
    n, k = w.choice([1, 4, 17]), x.shape[-1]
    weights = np.int8(w.rng.randint(-127, 128, (k, n)))
    by_column = w.chance(0.4)
    factor = w.floats(*([n] if by_column else []), low=0.001, high=0.003)
    inputs = [q, w.const(weights), z] + ([w.const(np.int8(w.choice([0, 0, 2])))] if w.chance(0.5) else [])
    b = weights.astype(np.int32) - (int(inputs[3].data) if len(inputs) > 3 else 0)
    product = w.add("MatMulInteger", inputs, (q.data.astype(np.int32) - np.int32(zero)) @ b)
    wide = w.add("Cast", [product], product.data.astype(np.float64), to=F32)
    f = w.const(factor)
    total = binary(w, "Mul", *((s, f) if w.chance(0.5) else (f, s)))
    y = binary(w, "Mul", *((wide, total) if w.chance(0.5) else (total, wide)))
    after(w, binary(w, "Add", y, w.const(w.floats(n)))) if w.chance(0.6) else w.keep(y)


MOVES = [quantized_product] * 4 + [quantized_element] * 4 + [dynamic_product] + [operator_of_bytes] * 2
