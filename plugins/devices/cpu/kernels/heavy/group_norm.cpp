// GroupNormalization.
#include "../registry.hpp"
#include "../simd/simd.hpp"
#include "heavy.hpp"

#include <cmath>

namespace belay::cpu {
namespace {

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
  registry.add(OpDef{.op = "GroupNormalization",
                     .prepare = prepare_group_norm,
                     .types = {kFloats, kFloats, kFloats},
                     .min_inputs = 3,
                     .max_inputs = 3,
                     .in_place = InPlace::kFirst});
}

}  // namespace belay::cpu
