// RMSNormalization and GroupNormalization.
#include "../registry.hpp"
#include "../simd/simd.hpp"
#include "heavy.hpp"
#include "matmul.hpp"

#include <cmath>

namespace belay::cpu {
namespace {

// Each row of n values over the root of the mean of their squares, times a scale that broadcasts to the input.
struct RmsForm {
  int64_t rows = 0, n = 0;
  double epsilon = 1e-5;
  Dims outer, outer_steps;  // of the rows, and of the scale over them
  Dims places;              // of the scale's elements along a row; empty: side by side
  int64_t scale_at(int64_t row) const { return matrix_at(outer, outer_steps, row); }
};

template <class In, class Scale>
void rms_row(const RmsForm& form, const In* x, const Scale* scale, Scale* y) {
  if constexpr (std::is_same_v<In, float> && std::is_same_v<Scale, float>) {
    if (form.places.empty()) {
      const Simd& loops = simd();
      const float mean = loops.fold[size_t(Fold::kSumSquare)](x, form.n) / float(form.n);
      loops.unary[size_t(Unary::kAffine)](x, y, form.n, 1.0f / std::sqrt(mean + float(form.epsilon)), 0);
      loops.binary[size_t(Binary::kMul)](y, 1, scale, 1, y, form.n);
      return;
    }
  }
  double squares = 0;
  for (int64_t i = 0; i < form.n; ++i) {
    const double value = double(Compute<In>::load(x[i]));
    squares += value * value;
  }
  const double inverse = 1 / std::sqrt(squares / double(form.n) + form.epsilon);
  for (int64_t i = 0; i < form.n; ++i) {
    const Scale by = scale[form.places.empty() ? i : form.places[size_t(i)]];
    y[i] = Compute<Scale>::store(
        compute_t<Scale>(double(Compute<In>::load(x[i])) * inverse * double(Compute<Scale>::load(by))));
  }
}

Status prepare_rms_norm(OpContext& op) {
  const Dims& x = op.dims(0);
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", -1), x.size()));
  const Dims& scale = op.dims(1);
  const Dims* const both[] = {&scale, &x};
  if (scale.size() > x.size() || broadcast(both) != x)
    return op.bad("scale has the shape " + text_of(scale) + ", which does not broadcast to the input's, " + text_of(x));
  if (const int64_t stash = op.attr().int_or("stash_type", BELAY_DT_FLOAT32); !(kFloats & type_bit(uint32_t(stash))))
    return op.bad("attribute stash_type is " + std::to_string(stash) + ", want a float type");
  RmsForm form{product(x, 0, axis), product(x, axis, x.size()), double(op.attr().float_or("epsilon", 1e-5f)), {}, {}, {}};
  const Dims steps = broadcast_strides(scale, x), dense = dense_strides(x);
  form.outer.assign(x.begin(), x.begin() + int64_t(axis));
  form.outer_steps.assign(steps.begin(), steps.begin() + int64_t(axis));
  bool beside = true;
  for (size_t d = axis; d < x.size(); ++d) beside = beside && (x[d] == 1 || steps[d] == dense[d]);
  for (int64_t i = 0; !beside && i < form.n; ++i)
    form.places.push_back(matrix_at(Dims(x.begin() + int64_t(axis), x.end()), Dims(steps.begin() + int64_t(axis), steps.end()), i));
  BELAY_TRY(op.output(0, op.dtype(1), x));
  op.cost_ns(double(op.count(0)) * 0.4);
  dispatch<kFloats>(op.dtype(0), [&](auto in_tag) {
    using In = typename decltype(in_tag)::type;
    dispatch<kFloats>(op.dtype(1), [&](auto scale_tag) {
      using Scale = typename decltype(scale_tag)::type;
      op.kernel([form = std::move(form)](const Run& run) {
        if (form.n == 0) return;
        run.parallel(form.rows, grain_of(double(form.n) * 0.4 + 30), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            rms_row<In, Scale>(form, run.in<In>(0) + i * form.n, run.in<Scale>(1) + form.scale_at(i),
                               run.out<Scale>(0) + i * form.n);
        });
      });
    });
  });
  return {};
}

// The channels of a group, with all their pixels, are normalised together.
struct GroupForm {
  int64_t batch = 0, channels = 0, pixels = 0, groups = 1;
  double epsilon = 1e-5;
  bool by_channel = true;  // scale and bias; else by group
};

template <class In>
void group_norm(const GroupForm& form, const Run& run) {
  const int64_t in_group = form.channels / form.groups, n = in_group * form.pixels;
  if (n == 0) return;
  run.parallel(form.batch * form.groups, grain_of(double(n) * 0.6 + 30), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const In* x = run.in<In>(0) + i * n;
      In* y = run.out<In>(0) + i * n;
      double mean = 0, squares = 0;
      if constexpr (std::is_same_v<In, float>) {
        // The squares are of distances from the mean, so that nothing cancels.
        const Simd& loops = simd();
        mean = double(loops.fold[size_t(Fold::kSum)](x, n)) / double(n);
        loops.unary[size_t(Unary::kAffine)](x, y, n, 1.0f, -float(mean));
        const double rest = double(loops.fold[size_t(Fold::kSum)](y, n)) / double(n);
        squares = std::max(0.0, double(loops.fold[size_t(Fold::kSumSquare)](y, n)) - rest * rest * double(n));
        x = y;
        mean = rest;
      } else {
        for (int64_t k = 0; k < n; ++k) mean += double(Compute<In>::load(x[k]));
        mean /= double(n);
        for (int64_t k = 0; k < n; ++k) {
          const double value = double(Compute<In>::load(x[k])) - mean;
          squares += value * value;
        }
      }
      const double inverse = 1 / std::sqrt(squares / double(n) + form.epsilon);
      for (int64_t c = 0; c < in_group; ++c) {
        const int64_t group = i % form.groups, at = form.by_channel ? group * in_group + c : group;
        const double factor = inverse * double(Compute<In>::load(run.in<In>(1)[at]));
        const double shift = double(Compute<In>::load(run.in<In>(2)[at])) - mean * factor;
        const In* from = x + c * form.pixels;
        In* to = y + c * form.pixels;
        if constexpr (std::is_same_v<In, float>)
          simd().unary[size_t(Unary::kAffine)](from, to, form.pixels, float(factor), float(shift));
        else
          for (int64_t k = 0; k < form.pixels; ++k)
            to[k] = Compute<In>::store(compute_t<In>(double(Compute<In>::load(from[k])) * factor + shift));
      }
    }
  });
}

Status prepare_group_norm(OpContext& op) {
  const Dims& x = op.dims(0);
  if (x.size() < 2) return op.bad("the input has the shape " + text_of(x) + ", want rank 2 at least");
  GroupForm form{x[0], x[1], product(x, 2, x.size()), op.attr().int_or("num_groups", 0),
                 double(op.attr().float_or("epsilon", 1e-5f)), op.version() >= 21};
  if (form.groups < 1 || x[1] % form.groups != 0)
    return op.bad("attribute num_groups is " + std::to_string(form.groups) + ", want a divisor of the " +
                  std::to_string(x[1]) + " channels");
  const Dims want{form.by_channel ? x[1] : form.groups};
  for (size_t i = 1; i < 3; ++i) {
    if (op.dtype(i) != op.dtype(0))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) +
                    ", input 0 of " + std::string(dtype_name(op.dtype(0))) + ", want one type");
    if (op.dims(i) != want)
      return op.bad((i == 1 ? "scale has the shape " : "the bias has the shape ") + text_of(op.dims(i)) + ", want " +
                    text_of(want));
  }
  BELAY_TRY(op.output(0, op.dtype(0), x));
  op.cost_ns(double(op.count(0)) * 0.6);
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    op.kernel([form](const Run& run) { group_norm<typename decltype(tag)::type>(form, run); });
  });
  return {};
}

}  // namespace

void add_group_norm(Registry& registry) {
  registry.add(OpDef{.op = "RMSNormalization",
                     .prepare = prepare_rms_norm,
                     .types = {kFloats, kFloats},
                     .min_inputs = 2,
                     .max_inputs = 2,
                     .in_place = InPlace::kFirst});
  registry.add(OpDef{.op = "GroupNormalization",
                     .prepare = prepare_group_norm,
                     .types = {kFloats, kFloats, kFloats},
                     .min_inputs = 3,
                     .max_inputs = 3,
                     .in_place = InPlace::kFirst});
}

}  // namespace belay::cpu
