// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
#include "convert.hpp"
#include "int8/bytes.hpp"
#include "registry.hpp"

#include <algorithm>
#include <cmath>

namespace belay::cpu {
namespace {

// The tensor as [outer, channels, inner], with one scale for each channel (one channel: for the whole
// tensor).
struct Channels {
  int64_t outer, channels, inner;
};
Result<Channels> channels_of(OpContext& op) {
  const Dims& in = op.dims(0);
  const int64_t scales = op.count(1);
  if (op.has(2) && op.count(2) != scales)
    return op.bad("zero point has the shape " + text_of(op.dims(2)) + ", want that of the scale, " +
                  text_of(op.dims(1)));
  if (op.rank(1) == 0 || (op.rank(1) == 1 && scales == 1)) return Channels{1, 1, op.count(0)};
  if (op.rank(1) != 1)
    return op.bad("scale has the shape " + text_of(op.dims(1)) + ", want a scalar or a vector",
                  Code::kUnimplemented);
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", 1), in.size()));
  if (scales != in[axis])
    return op.bad("scale has " + std::to_string(scales) + " elements, want the " + std::to_string(in[axis]) +
                  " of axis " + std::to_string(axis) + " of the input's shape " + text_of(in));
  return Channels{product(in, 0, axis), in[axis], product(in, axis + 1, in.size())};
}

// Rounded to nearest, ties to even; then the zero point; then cut to the type.
template <class To>
To quantized(float x, float scale, int32_t zero) {
  constexpr float low = float(std::numeric_limits<To>::min()), high = float(std::numeric_limits<To>::max());
  // Adding 1.5 * 2^23 rounds; what is too large for that is far out of range and cut first.
  float q = x / scale;
  q = q > 70000.0f ? 70000.0f : q < -70000.0f ? -70000.0f : q;
  q = (q + 12582912.0f) - 12582912.0f + float(zero);
  q = q > low ? q : low;  // NaN too
  return To(q < high ? q : high);
}

template <class From, class To>
struct Quantize {
  Channels c;
  bool has_zero;
  using Scale = std::conditional_t<std::is_same_v<From, int32_t>, float, From>;
  void operator()(const Run& run) const {
    run.parallel(c.outer * c.channels, grain_of(double(c.inner)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) loop(run, i, 0, c.inner);
    });
  }
  void loop(const Run& run, int64_t i, int64_t from, int64_t to) const {
    const int64_t channel = i % c.channels;
    const float scale = Compute<Scale>::load(run.in<Scale>(1)[channel]);
    const int32_t zero = has_zero ? int32_t(run.in<To>(2)[channel]) : 0;
    const From* x = run.in<From>(0) + i * c.inner;
    To* y = run.out<To>(0) + i * c.inner;
    if constexpr (std::is_same_v<From, float> && sizeof(To) == 1) {
      byte_micro().quantize(x + from, to - from, scale, zero, std::is_signed_v<To>,
                            reinterpret_cast<uint8_t*>(y) + from);
      return;
    }
    for (int64_t k = from; k < to; ++k) y[k] = quantized<To>(float(Compute<From>::load(x[k])), scale, zero);
  }
};

constexpr TypeMask kQuantized = kI8 | kU8 | types_of(BELAY_DT_INT16, BELAY_DT_UINT16);

Status prepare_quantize(OpContext& op) {
  const uint32_t scale_type = op.dtype(0) == BELAY_DT_INT32 ? BELAY_DT_FLOAT32 : op.dtype(0);
  if (op.dtype(1) != scale_type)
    return op.bad("scale is of type " + std::string(dtype_name(op.dtype(1))) + ", want " +
                  std::string(dtype_name(scale_type)));
  BELAY_ASSIGN(const Channels c, channels_of(op));
  uint32_t to = op.has(2) ? op.dtype(2) : BELAY_DT_UINT8;
  if (!op.has(2) && op.attr().int_or("output_dtype", 0)) to = uint32_t(op.attr().int_or("output_dtype", 0));
  if (!(type_bit(to) & kQuantized))
    return op.bad("output type " + std::string(dtype_name(to)) + " is not supported", Code::kUnimplemented);
  BELAY_TRY(op.output(0, to, op.dims(0)));
  dispatch<kF32 | kF16 | kBf16 | kI32>(op.dtype(0), [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    dispatch<kQuantized>(to, [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      const Quantize<From, To> kernel{c, op.has(2)};
      if (c.outer * c.channels == 1)
        op.kernel([kernel](const Run& run) {
          run.parallel(kernel.c.inner, grain_of(0.7),
                       [&](int64_t begin, int64_t end) { kernel.loop(run, 0, begin, end); });
        });
      else
        op.kernel(kernel);
    });
  });
  return {};
}

Status prepare_dequantize(OpContext& op) {
  BELAY_ASSIGN(const Channels c, channels_of(op));
  if (op.has(2) && op.dtype(2) != op.dtype(0))
    return op.bad("zero point is of type " + std::string(dtype_name(op.dtype(2))) + ", want the input's, " +
                  std::string(dtype_name(op.dtype(0))));
  BELAY_TRY(op.output(0, op.dtype(1), op.dims(0)));
  const bool has_zero = op.has(2);
  dispatch<kQuantized | kI32>(op.dtype(0), [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    dispatch<kF32 | kF16 | kBf16>(op.dtype(1), [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      op.kernel([c, has_zero](const Run& run) {
        const int64_t total = c.outer * c.channels * c.inner;
        run.parallel(total, grain_of(0.5), [&](int64_t begin, int64_t end) {
          while (begin < end) {
            const int64_t line = begin / c.inner, channel = line % c.channels,
                          stop = std::min(end, (line + 1) * c.inner);
            const float scale = Compute<To>::load(run.in<To>(1)[channel]);
            const int64_t zero = has_zero ? int64_t(run.in<From>(2)[channel]) : 0;
            const From* x = run.in<From>(0);
            To* y = run.out<To>(0);
            if constexpr (std::is_same_v<To, float> && sizeof(From) == 1) {
              byte_micro().dequantize(reinterpret_cast<const uint8_t*>(x) + begin, stop - begin, scale, int32_t(zero),
                                      std::is_signed_v<From>, y + begin);
              begin = stop;
              continue;
            }
            for (int64_t i = begin; i < stop; ++i) {
              if constexpr (sizeof(From) < 4)
                y[i] = Compute<To>::store(float(int32_t(x[i]) - int32_t(zero)) * scale);
              else
                y[i] = Compute<To>::store(float(int64_t(x[i]) - zero) * scale);
            }
            begin = stop;
          }
        });
      });
    });
  });
  return {};
}

// The range of the data, with 0 in it, is spread over 0 to 255.
Status prepare_dynamic_quantize(OpContext& op) {
  BELAY_TRY(op.output(0, BELAY_DT_UINT8, op.dims(0)));
  BELAY_TRY(op.output(1, BELAY_DT_FLOAT32, {}));
  BELAY_TRY(op.output(2, BELAY_DT_UINT8, {}));
  op.kernel([count = op.count(0)](const Run& run) {
    const float* x = run.in<float>(0);
    float low = 0, high = 0;
    byte_micro().range(x, count, &low, &high);
    const float scale = high == low ? 1.0f : (high - low) / 255.0f;
    const uint8_t zero = uint8_t(std::clamp(std::nearbyint(0.0f - low / scale), 0.0f, 255.0f));
    if (float* out = run.out<float>(1)) *out = scale;
    if (uint8_t* out = run.out<uint8_t>(2)) *out = zero;
    uint8_t* y = run.out<uint8_t>(0);
    if (!y) return;
    run.parallel(count, grain_of(0.1), [&](int64_t begin, int64_t end) {
      byte_micro().quantize(x + begin, end - begin, scale, zero, false, y + begin);
    });
  });
  return {};
}

}  // namespace

void add_quantize(Registry& registry) {
  registry.add({.op = "QuantizeLinear",
                .prepare = prepare_quantize,
                .types = {kF32 | kF16 | kBf16 | kI32, kF32 | kF16 | kBf16, kQuantized},
                .min_inputs = 2,
                .max_inputs = 3});
  registry.add({.op = "DequantizeLinear",
                .prepare = prepare_dequantize,
                .types = {kQuantized | kI32, kF32 | kF16 | kBf16, kQuantized | kI32},
                .min_inputs = 2,
                .max_inputs = 3});
  registry.add({.op = "DynamicQuantizeLinear",
                .prepare = prepare_dynamic_quantize,
                .types = {kF32},
                .max_outputs = 3});
}

}  // namespace belay::cpu
