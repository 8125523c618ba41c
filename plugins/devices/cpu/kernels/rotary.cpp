// RotaryEmbedding, of ONNX and of com.microsoft.
#include "rotary.hpp"

#include "convert.hpp"
#include "registry.hpp"

namespace belay::cpu {
namespace {

template <class T>
belay_status run_rotary(const RotaryForm& f, const Run& run) {
  const int64_t* positions =
      f.how == RotaryForm::Positions::kInOrder ? nullptr : run.in<int64_t>(f.positions);
  const auto row_of = [&](int64_t b, int64_t r) {
    switch (f.how) {
      case RotaryForm::Positions::kGiven:
        return positions[b * f.rows + r];
      case RotaryForm::Positions::kFirst:
        return positions[0] + r;
      default:
        return b * f.rows + r;
    }
  };
  for (int64_t i = 0; i < f.batch * f.rows; ++i)
    if (const int64_t row = row_of(i / f.rows, i % f.rows); row < 0 || row >= f.cache_rows)
      return run.fail(Code::kOutOfRange, "RotaryEmbedding: position " + std::to_string(row) + " of row " +
                                             std::to_string(i % f.rows) + " in batch " + std::to_string(i / f.rows) +
                                             " is not in the caches, which have " + std::to_string(f.cache_rows) +
                                             " rows.");
  constexpr bool kNarrow = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
  // 16-bit floats are turned as floats: a row, and the angles of its position for all heads.
  float* const buffers = kNarrow ? run.scratch<float>(size_t((f.size + f.rotated) * run.max_parts())) : nullptr;
  run.parallel(f.batch * f.rows, grain_of(double(f.heads * f.size) * 0.5), [&](int64_t begin, int64_t end, int64_t part) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / f.rows, r = i % f.rows, half = f.rotated / 2, cache = row_of(b, r) * half;
      const T *cos = run.in<T>(f.cos) + cache, *sin = run.in<T>(f.sin) + cache;
      if constexpr (kNarrow) {
        float *const row = buffers + (f.size + f.rotated) * part, *const angles = row + f.size;
        const uint32_t dtype = std::is_same_v<T, Half> ? BELAY_DT_FLOAT16 : BELAY_DT_BFLOAT16;
        widen(dtype, cos, angles, half);
        widen(dtype, sin, angles + half, half);
        for (int64_t h = 0; h < f.heads; ++h) {
          const int64_t at = b * f.steps.batch + h * f.steps.head + r * f.steps.row;
          widen(dtype, run.in<T>(f.x) + at, row, f.size);
          rotate_row<float>(f, row, angles, angles + half, row);
          narrow(dtype, row, run.out<T>(0) + at, f.size);
        }
      } else {
        for (int64_t h = 0; h < f.heads; ++h) {
          const int64_t at = b * f.steps.batch + h * f.steps.head + r * f.steps.row;
          rotate_row<T>(f, run.in<T>(f.x) + at, cos, sin, run.out<T>(0) + at);
        }
      }
    }
  });
  return BELAY_OK;
}

Status prepare_rotary(OpContext& op) {
  const Dims &x = op.dims(0), &cos = op.dims(1);
  RotaryForm form;
  if (x.size() == 4) {
    form.batch = x[0], form.heads = x[1], form.rows = x[2], form.size = x[3];
    form.steps = heads_first(form.heads, form.rows, form.size);
  } else if (x.size() == 3) {
    form.heads = op.attr().int_or("num_heads", 0);
    if (form.heads < 1 || x[2] % form.heads != 0)
      return op.bad("attribute num_heads is " + std::to_string(form.heads) + ", want a divisor of the last dim of " +
                    text_of(x));
    form.batch = x[0], form.rows = x[1], form.size = x[2] / form.heads;
    form.steps = rows_first(form.heads, form.rows, form.size);
  } else {
    return op.bad("the input has the shape " + text_of(x) + ", want rank 3 or 4");
  }
  const int64_t rotated = op.attr().int_or("rotary_embedding_dim", 0);
  form.rotated = rotated ? rotated : form.size;
  if (form.rotated < 0 || form.rotated > form.size || form.rotated % 2 != 0)
    return op.bad("rotary_embedding_dim is " + std::to_string(form.rotated) + ", want an even number up to the heads' " +
                  std::to_string(form.size));
  form.interleaved = op.attr().int_or("interleaved", 0) != 0;
  for (size_t i = 1; i < 3; ++i)
    if (op.dtype(i) != op.dtype(0))
      return op.bad("the caches are of type " + std::string(dtype_name(op.dtype(i))) + ", the input of " +
                    std::string(dtype_name(op.dtype(0))) + ", want one type");
  Dims want{form.batch, form.rows, form.rotated / 2};
  if (op.has(3)) {
    form.how = RotaryForm::Positions::kGiven;
    if (op.dims(3) != Dims{form.batch, form.rows})
      return op.bad("position_ids have the shape " + text_of(op.dims(3)) + ", want [" + std::to_string(form.batch) +
                    "," + std::to_string(form.rows) + "]");
    want = {cos.empty() ? 0 : cos[0], form.rotated / 2};
  }
  if (cos != want || op.dims(2) != want)
    return op.bad("the caches have the shapes " + text_of(cos) + " and " + text_of(op.dims(2)) + ", want " +
                  text_of(want));
  form.cache_rows = op.has(3) ? cos[0] : form.batch * form.rows;
  BELAY_TRY(op.output(0, op.dtype(0), x));
  make_rotary(op, form);
  return {};
}

// Of com.microsoft: the positions come before the caches, and may be one number

Status prepare_contrib_rotary(OpContext& op) {
  const Dims &x = op.dims(0), &cos = op.dims(2);
  for (size_t i = 2; i < 4; ++i)
    if (op.dtype(i) != op.dtype(0))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) + ", input 0 of " +
                    std::string(dtype_name(op.dtype(0))) + ", want one type");
  if (const int64_t packed = op.attr().int_or("is_packed_batching", 0); packed != 0)
    return op.bad("attribute is_packed_batching is " + std::to_string(packed) + ", only 0 is supported", Code::kUnimplemented);
  if (cos.size() != 2 || cos != op.dims(3))
    return op.bad("the caches have the shapes " + text_of(cos) + " and " + text_of(op.dims(3)) + ", want rank 2, and one shape");
  RotaryForm form;
  form.x = 0, form.positions = 1, form.cos = 2, form.sin = 3;
  form.rotated = op.attr().int_or("rotary_embedding_dim", 0);
  const int64_t heads = op.attr().int_or("num_heads", 0);
  if (x.size() == 4) {
    form.batch = x[0], form.heads = x[1], form.rows = x[2], form.size = x[3];
    form.steps = heads_first(form.heads, form.rows, form.size);
  } else if (x.size() == 3) {
    // Where the attributes do not say, the caches do how large a head is.
    form.size = heads > 0 ? x[2] / heads : cos[1] * 2;
    form.heads = form.size > 0 ? x[2] / form.size : 0;
    form.batch = x[0], form.rows = x[1];
    if (form.heads * form.size != x[2])
      return op.bad("the last dim of " + text_of(x) + " does not divide into heads of " + std::to_string(form.size));
    form.steps = rows_first(form.heads, form.rows, form.size);
  } else {
    return op.bad("the input has the shape " + text_of(x) + ", want rank 3 or 4");
  }
  if (form.rotated == 0) form.rotated = form.size;
  if (form.rotated < 0 || form.rotated > form.size || form.rotated % 2 != 0 || cos[1] * 2 != form.rotated)
    return op.bad("heads have " + std::to_string(form.size) + " values, of which " + std::to_string(form.rotated) +
                  " are to be rotated, and the caches have the shape " + text_of(cos) + ": want half as many columns");
  form.interleaved = op.attr().int_or("interleaved", 0) != 0;
  form.scale = op.attr().float_or("scale", 1);
  if (op.dims(1) == Dims{form.batch, form.rows} && op.rank(1) == 2)
    form.how = RotaryForm::Positions::kGiven;
  else if (op.dims(1) == Dims{1})
    form.how = RotaryForm::Positions::kFirst;
  else
    return op.bad("position_ids have the shape " + text_of(op.dims(1)) + ", want [1] or " + text_of(Dims{form.batch, form.rows}));
  form.cache_rows = cos[0];
  BELAY_TRY(op.output(0, op.dtype(0), x));
  make_rotary(op, form);
  return {};
}

}  // namespace

void make_rotary(OpContext& op, const RotaryForm& form) {
  dispatch<kFloats>(op.dtype(form.x), [&](auto tag) {
    op.kernel([form](const Run& run) { return run_rotary<typename decltype(tag)::type>(form, run); });
  });
}

void add_rotary(Registry& registry) {
  registry.add({.op = "RotaryEmbedding",
                .prepare = prepare_rotary,
                .types = {kFloats, kFloats, kFloats, kI64},
                .min_inputs = 3,
                .max_inputs = 4,
                .in_place = InPlace::kFirst,
                .ns_per_byte = 0.2});
  constexpr TypeMask kTypes = kF32 | kF16 | kBf16;
  registry.add({.op = "RotaryEmbedding",
                .prepare = prepare_contrib_rotary,
                .types = {kTypes, kI64, kTypes, kTypes},
                .min_inputs = 4,
                .max_inputs = 4,
                .in_place = InPlace::kFirst,
                .domain = "com.microsoft",
                .ns_per_byte = 0.2});
}

}  // namespace belay::cpu
