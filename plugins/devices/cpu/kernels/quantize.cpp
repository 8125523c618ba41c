// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
#include "blocks.hpp"
#include "int8/bytes.hpp"
#include "registry.hpp"
#include "small_types.hpp"

#include <algorithm>
#include <cmath>

namespace belay::cpu {
namespace {

// The tensor as [outer, dim, inner], with one scale for all, for each index of dim (block is 1), or for each block of
// `block` indices and each index of outer and inner.
struct Layout {
  int64_t outer = 1, dim = 1, inner = 1, block = 1;
  bool blocked = false;
  int64_t count() const { return outer * dim * inner; }
  // Calls f(first, length, index of the scale, step of that index) for the runs in elements [at, at + n).
  template <class F>
  void each_run(int64_t at, int64_t n, F&& f) const {
    for (int64_t i = 0; i < n;) {
      const int64_t line = (at + i) / inner, place = (at + i) % inner, length = std::min(inner - place, n - i);
      if (!blocked)
        f(i, length, line % dim, int64_t{0});
      else
        f(i, length, (line / dim * ((dim + block - 1) / block) + line % dim / block) * inner + place, int64_t{1});
      i += length;
    }
  }
};

Result<Layout> layout_of(OpContext& op) {
  const Dims &in = op.dims(0), &scale = op.dims(1);
  const int64_t scales = op.count(1), block = op.attr().int_or("block_size", 0);
  if (op.has(2) && op.dims(2) != scale && !(op.count(2) == 1 && scales == 1))
    return op.bad("zero point has the shape " + text_of(op.dims(2)) + ", want that of the scale, " + text_of(scale));
  if (block < 0) return op.bad("attribute block_size is " + std::to_string(block) + ", want 0 or more");
  if (block == 0 && (scale.empty() || (scale.size() == 1 && scales == 1))) return Layout{1, 1, op.count(0)};
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", 1), in.size()));
  Layout out{product(in, 0, axis), in[axis], product(in, axis + 1, in.size()), 1, block > 0};
  if (block == 0) {
    if (scale.size() != 1)
      return op.bad("scale has the shape " + text_of(scale) + ", want a scalar or a vector where block_size is 0");
    if (scales != in[axis])
      return op.bad("scale has " + std::to_string(scales) + " elements, want the " + std::to_string(in[axis]) +
                    " of axis " + std::to_string(axis) + " of the input's shape " + text_of(in));
    return out;
  }
  out.block = std::min(block, std::max<int64_t>(in[axis], 1));
  Dims want = in;
  want[axis] = (in[axis] + out.block - 1) / out.block;
  if (scale != want)
    return op.bad("scale has the shape " + text_of(scale) + ", want " + text_of(want) + " for blocks of " +
                  std::to_string(block) + " along axis " + std::to_string(axis) + " of the input's shape " +
                  text_of(in));
  return out;
}

// Scales and zero points of any type, as float.
struct Scales {
  const float *scale, *zero;  // zero: null where there is none
  Scales(const Run& run, uint32_t scale_type, uint32_t zero_type, int64_t count) : scale(nullptr), zero(nullptr) {
    const auto read = [&](size_t input, uint32_t dtype) {
      float* to = run.scratch<float>(size_t(count));
      load_floats(dtype, run.in<void>(input), 0, count, to);
      return to;
    };
    scale = read(1, scale_type);
    if (zero_type) zero = read(2, zero_type);
  }
};

// y = x / scale + zero, or y = (x - zero) * scale; block by block through float.
struct Scaling {
  Layout layout;
  int64_t scales;
  uint32_t from, to, scale_type, zero_type;  // zero_type 0: none
  SmallRounding how;
  bool quantizes;
  uint32_t precision = BELAY_DT_FLOAT32;  // to which quotients are rounded

  float quotient(float x, float scale) const {
    const float exact = x / scale;
    return precision == BELAY_DT_FLOAT32   ? exact
           : precision == BELAY_DT_FLOAT16 ? to_float(to_half(exact))
                                           : to_float(to_bfloat16(exact));
  }
  void operator()(const Run& run) const {
    const Scales all(run, scale_type, zero_type, scales);
    const int64_t count = layout.count(), steps = (count + kSmallStep - 1) / kSmallStep;
    const bool whole = !(type_bit(to) & (kSmallFloats | kFloats));
    run.parallel(steps, grain_of(8), [&](int64_t begin, int64_t end) {
      for_blocks(begin * kSmallStep, std::min(count, end * kSmallStep), [&](int64_t at, int64_t n) {
        float x[kBlock];
        load_floats(from, run.in<void>(0), at, n, x);
        layout.each_run(at, n, [&](int64_t first, int64_t length, int64_t index, int64_t step) {
          for (int64_t i = first; i < first + length; ++i, index += step) {
            const float scale = all.scale[index], zero = all.zero ? all.zero[index] : 0.0f;
            if (!quantizes)
              x[i] = (x[i] - zero) * scale;
            else if (whole)
              x[i] = std::nearbyint(quotient(x[i], scale)) + zero;
            else
              x[i] = quotient(x[i], scale) + zero;
          }
        });
        store_floats(to, x, run.out<void>(0), at, n, how);
      });
    });
  }
};

constexpr TypeMask kQuantized = kI8 | kU8 | types_of(BELAY_DT_INT16, BELAY_DT_UINT16) |
                                (kSmall & ~type_bit(BELAY_DT_FLOAT8E8M0));
constexpr TypeMask kWide = kF32 | kF16 | kBf16;
constexpr TypeMask kScale = kWide | kI32 | type_bit(BELAY_DT_FLOAT8E8M0);

// Between float and bytes with scales in lines: loops made for it.
bool has_loop(const Layout& layout, uint32_t wide, uint32_t byte, uint32_t scale) {
  return !layout.blocked && wide == BELAY_DT_FLOAT32 && scale == BELAY_DT_FLOAT32 &&
         (byte == BELAY_DT_UINT8 || byte == BELAY_DT_INT8);
}
// Calls f(begin, n, index of the scale) for the lines, or parts of one, of such a layout.
template <class F>
void each_line(const Run& run, const Layout& layout, F&& f) {
  run.parallel(layout.count(), grain_of(0.5), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t line = begin / layout.inner, stop = std::min(end, (line + 1) * layout.inner);
      f(begin, stop - begin, line % layout.dim);
      begin = stop;
    }
  });
}

Status prepare_quantize(OpContext& op) {
  BELAY_ASSIGN(const Layout layout, layout_of(op));
  uint32_t to = uint32_t(op.attr().int_or("output_dtype", 0));
  if (op.has(2)) {
    if (to != 0 && to != op.dtype(2))
      return op.bad("attribute output_dtype is " + std::string(dtype_name(to)) + ", but the zero point is of type " +
                    std::string(dtype_name(op.dtype(2))));
    to = op.dtype(2);
  }
  if (to == 0) to = BELAY_DT_UINT8;
  if (!(type_bit(to) & kQuantized))
    return op.bad("output type " + std::string(dtype_name(to)) + " is not supported", Code::kUnimplemented);
  BELAY_TRY(op.output(0, to, op.dims(0)));
  // From 23 on the quotient has the scale's precision, or what the attribute says.
  uint32_t precision = BELAY_DT_FLOAT32;
  if (op.version() >= 23) {
    precision = uint32_t(op.attr().int_or("precision", 0));
    if (precision != 0 && !(type_bit(precision) & kWide))
      return op.bad("attribute precision is " + std::to_string(op.attr().int_or("precision", 0)) +
                    ", want float, float16 or bfloat16");
    if (precision == 0) precision = type_bit(op.dtype(1)) & kWide ? op.dtype(1) : uint32_t(BELAY_DT_FLOAT32);
  }
  if (precision == BELAY_DT_FLOAT32 && has_loop(layout, op.dtype(0), to, op.dtype(1))) {
    op.kernel([layout, has_zero = op.has(2), is_signed = to == BELAY_DT_INT8](const Run& run) {
      each_line(run, layout, [&](int64_t at, int64_t n, int64_t channel) {
        const int32_t zero = !has_zero    ? 0
                             : is_signed ? int32_t(run.in<int8_t>(2)[channel])
                                         : int32_t(run.in<uint8_t>(2)[channel]);
        byte_micro().quantize(run.in<float>(0) + at, n, run.in<float>(1)[channel], zero, is_signed,
                              run.out<uint8_t>(0) + at);
      });
    });
    return {};
  }
  op.kernel(Scaling{layout, op.count(1), op.dtype(0), to, op.dtype(1), op.has(2) ? op.dtype(2) : 0,
                    {op.attr().int_or("saturate", 1) != 0, PowerRounding::kUp}, true, precision});
  return {};
}

Status prepare_dequantize(OpContext& op) {
  BELAY_ASSIGN(const Layout layout, layout_of(op));
  if (op.has(2) && op.dtype(2) != op.dtype(0))
    return op.bad("zero point is of type " + std::string(dtype_name(op.dtype(2))) + ", want the input's, " +
                  std::string(dtype_name(op.dtype(0))));
  uint32_t to = uint32_t(op.attr().int_or("output_dtype", 0));
  if (to == 0) to = type_bit(op.dtype(1)) & kWide ? op.dtype(1) : uint32_t(BELAY_DT_FLOAT32);
  if (!(type_bit(to) & kWide))
    return op.bad("output type " + std::string(dtype_name(to)) + " is not supported", Code::kUnimplemented);
  BELAY_TRY(op.output(0, to, op.dims(0)));
  if (has_loop(layout, to, op.dtype(0), op.dtype(1))) {
    op.kernel([layout, has_zero = op.has(2), is_signed = op.dtype(0) == BELAY_DT_INT8](const Run& run) {
      each_line(run, layout, [&](int64_t at, int64_t n, int64_t channel) {
        const int32_t zero = !has_zero    ? 0
                             : is_signed ? int32_t(run.in<int8_t>(2)[channel])
                                         : int32_t(run.in<uint8_t>(2)[channel]);
        byte_micro().dequantize(run.in<uint8_t>(0) + at, n, run.in<float>(1)[channel], zero, is_signed,
                                run.out<float>(0) + at);
      });
    });
    return {};
  }
  op.kernel(Scaling{layout, op.count(1), op.dtype(0), to, op.dtype(1), op.has(2) ? op.dtype(2) : 0, {}, false});
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
    const float place = std::nearbyint(0.0f - low / scale);
    const uint8_t zero = place > 0 ? uint8_t(std::min(place, 255.0f)) : uint8_t{0};  // 0 for NaN, which infinities give
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
                .types = {kWide | kI32, kScale, kQuantized},
                .min_inputs = 2,
                .max_inputs = 3});
  registry.add({.op = "DequantizeLinear",
                .prepare = prepare_dequantize,
                .types = {kQuantized | kI32, kScale, kQuantized | kI32},
                .min_inputs = 2,
                .max_inputs = 3});
  registry.add({.op = "DynamicQuantizeLinear",
                .prepare = prepare_dynamic_quantize,
                .types = {kF32},
                .max_outputs = 3});
}

}  // namespace belay::cpu
