// Normalisation over a run of elements: InstanceNormalization, LayerNormalization, MeanVarianceNormalization
// and LpNormalization.
#include "../convert.hpp"
#include "../registry.hpp"
#include "../simd/simd.hpp"
#include "heavy.hpp"

#include <cmath>

namespace belay::cpu {
namespace {

struct Moments {
  double mean, inverse;  // 1 / sqrt(variance + epsilon)
};

// x and y may be the same. Two passes: what is squared is the distance from the mean, so nothing cancels.
template <class In>
Moments normalize(const In* x, In* y, int64_t n, double epsilon, double scale, double shift) {
  if constexpr (std::is_same_v<In, float>) {
    const Simd& loops = simd();
    const float mean = loops.fold[size_t(Fold::kSum)](x, n) / float(n);
    loops.unary[size_t(Unary::kAffine)](x, y, n, 1.0f, -mean);
    // What rounding left of the mean.
    const float rest = loops.fold[size_t(Fold::kSum)](y, n) / float(n);
    const float variance =
        std::max(0.0f, loops.fold[size_t(Fold::kSumSquare)](y, n) / float(n) - rest * rest);
    const float inverse = 1.0f / std::sqrt(variance + float(epsilon));
    const float factor = inverse * float(scale);
    loops.unary[size_t(Unary::kAffine)](y, y, n, factor, float(shift) - rest * factor);
    return {double(mean) + double(rest), double(inverse)};
  } else {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += double(Compute<In>::load(x[i]));
    const double mean = sum / double(n);
    for (int64_t i = 0; i < n; ++i) {
      const double value = double(Compute<In>::load(x[i])) - mean;
      squares += value * value;
    }
    const double inverse = 1 / std::sqrt(squares / double(n) + epsilon);
    for (int64_t i = 0; i < n; ++i)
      y[i] = Compute<In>::store(
          compute_t<In>((double(Compute<In>::load(x[i])) - mean) * inverse * scale + shift));
    return {mean, inverse};
  }
}

template <class In>
struct InstanceNormKernel {
  int64_t planes = 0, channels = 0, pixels = 0;
  double epsilon = 1e-5;
  void operator()(const Run& run) const {
    if (pixels == 0) return;
    run.parallel(planes, grain_of(double(pixels) * 0.4 + 30), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const size_t c = size_t(i % channels);
        normalize<In>(run.in<In>(0) + i * pixels, run.out<In>(0) + i * pixels, pixels, epsilon,
                      double(Compute<In>::load(run.in<In>(1)[c])),
                      double(Compute<In>::load(run.in<In>(2)[c])));
      }
    });
  }
};

Status same_types(OpContext& context) {
  for (size_t i = 1; i < context.inputs(); ++i)
    if (context.has(i) && context.dtype(i) != context.dtype(0))
      return context.bad("input " + std::to_string(i) + " is of type " +
                         std::string(dtype_name(context.dtype(i))) + ", input 0 of " +
                         std::string(dtype_name(context.dtype(0))) + ", want one type");
  return {};
}

Status prepare_instance_norm(OpContext& context) {
  const Dims& x = context.dims(0);
  BELAY_TRY(same_types(context));
  if (x.size() < 2) return context.bad("the input has the shape " + text_of(x) + ", want rank 2 at least");
  for (size_t i = 1; i < 3; ++i)
    if (context.dims(i) != Dims{x[1]})
      return context.bad((i == 1 ? "scale has the shape " : "the bias has the shape ") +
                         text_of(context.dims(i)) + ", want [" + std::to_string(x[1]) + "]");
  BELAY_TRY(context.output(0, context.dtype(0), x));
  context.cost_ns(double(context.count(0)) * 0.4);
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    context.kernel(InstanceNormKernel<typename decltype(tag)::type>{
        x[0] * x[1], x[1], product(x, 2, x.size()), context.attr().float_or("epsilon", 1e-5f)});
  });
  return {};
}

template <class In>
struct LayerNormKernel {
  int64_t rows = 0, n = 0;
  double epsilon = 1e-5;
  bool has_bias = false;
  uint32_t stash = BELAY_DT_FLOAT32;
  // Where scale and bias are not as long as a row: for each element of a row, its place in them.
  Dims scale_at, bias_at;

  static int64_t place(const Dims& at, int64_t i) { return at.empty() ? i : at[size_t(i)]; }
  static void stash_at(uint32_t dtype, void* to, int64_t i, double value) {
    if (!to) return;
    dispatch<kFloats>(dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      static_cast<S*>(to)[i] = Compute<S>::store(compute_t<S>(value));
    });
  }

  void operator()(const Run& run) const {
    const In *scale = run.in<In>(1), *bias = has_bias ? run.in<In>(2) : nullptr;
    if (n == 0) return;
    if constexpr (sizeof(In) == 2) {
      if (scale_at.empty() && bias_at.empty()) return run_widened(run, scale, bias);
    }
    run.parallel(rows, grain_of(double(n) * 0.6 + 30), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const In* x = run.in<In>(0) + i * n;
        In* y = run.out<In>(0) + i * n;
        Moments m{};
        if constexpr (std::is_same_v<In, float>) {
          m = normalize<float>(x, y, n, epsilon, 1, 0);
          if (scale_at.empty() && bias_at.empty()) {
            simd().binary[size_t(Binary::kMul)](y, 1, scale, 1, y, n);
            if (bias) simd().binary[size_t(Binary::kAdd)](y, 1, bias, 1, y, n);
          } else {
            for (int64_t j = 0; j < n; ++j)
              y[j] = y[j] * scale[place(scale_at, j)] + (bias ? bias[place(bias_at, j)] : 0.0f);
          }
        } else {
          m = moments(x);
          for (int64_t j = 0; j < n; ++j) {
            double value = (double(Compute<In>::load(x[j])) - m.mean) * m.inverse;
            value *= double(Compute<In>::load(scale[place(scale_at, j)]));
            if (bias) value += double(Compute<In>::load(bias[place(bias_at, j)]));
            y[j] = Compute<In>::store(compute_t<In>(value));
          }
        }
        stash_at(stash, run.out<void>(1), i, m.mean);
        stash_at(stash, run.out<void>(2), i, m.inverse);
      }
    });
  }
  // Rows of 16-bit floats are computed as floats.
  void run_widened(const Run& run, const In* scale, const In* bias) const {
    constexpr uint32_t kType = std::is_same_v<In, Half> ? BELAY_DT_FLOAT16 : BELAY_DT_BFLOAT16;
    float* const columns = run.scratch<float>(size_t(n) * 2);
    widen(kType, scale, columns, n);
    if (bias) widen(kType, bias, columns + n, n);
    float* const rows_of_parts = run.scratch<float>(size_t(n * run.max_parts()));
    run.parallel(rows, grain_of(double(n) * 0.8 + 30), [&](int64_t begin, int64_t end, int64_t part) {
      float* const row = rows_of_parts + n * part;
      for (int64_t i = begin; i < end; ++i) {
        widen(kType, run.in<In>(0) + i * n, row, n);
        const Moments m = normalize<float>(row, row, n, epsilon, 1, 0);
        simd().binary[size_t(Binary::kMul)](row, 1, columns, 1, row, n);
        if (bias) simd().binary[size_t(Binary::kAdd)](row, 1, columns + n, 1, row, n);
        narrow(kType, row, run.out<In>(0) + i * n, n);
        stash_at(stash, run.out<void>(1), i, m.mean);
        stash_at(stash, run.out<void>(2), i, m.inverse);
      }
    });
  }
  Moments moments(const In* x) const {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < n; ++j) sum += double(Compute<In>::load(x[j]));
    const double mean = sum / double(n);
    for (int64_t j = 0; j < n; ++j) {
      const double value = double(Compute<In>::load(x[j])) - mean;
      squares += value * value;
    }
    return {mean, 1 / std::sqrt(squares / double(n) + epsilon)};
  }
};

Status prepare_layer_norm(OpContext& context) {
  const Dims& x = context.dims(0);
  BELAY_TRY(same_types(context));
  BELAY_ASSIGN(const size_t axis, context.axis(context.attr().int_or("axis", -1), x.size()));
  const Dims row(x.begin() + int64_t(axis), x.end());
  Dims places[2];
  for (size_t i = 1; i < 3; ++i) {
    if (!context.has(i)) continue;
    // Leading dims of 1 say nothing; what remains broadcasts to the normalised dims.
    Dims dims = context.dims(i);
    while (dims.size() > row.size() && dims[0] == 1) dims.erase(dims.begin());
    const Dims* const both[] = {&dims, &row};
    if (dims.size() > row.size() || broadcast(both) != row)
      return context.bad((i == 1 ? "scale has the shape " : "the bias has the shape ") +
                         text_of(context.dims(i)) + ", which does not broadcast to the normalised dims " +
                         text_of(row));
    if (product(dims) == product(row)) continue;
    const Dims strides = broadcast_strides(dims, row);
    for (int64_t j = 0; j < product(row); ++j) {
      int64_t rest = j, at = 0;
      for (size_t d = row.size(); d-- > 0; rest /= row[d]) at += rest % row[d] * strides[d];
      places[i - 1].push_back(at);
    }
  }
  const int64_t stash = context.attr().int_or("stash_type", BELAY_DT_FLOAT32);
  if (!(kFloats & type_bit(uint32_t(stash))))
    return context.bad("attribute stash_type is " + std::to_string(stash) + ", want a float type");
  Dims stats = x;
  std::fill(stats.begin() + int64_t(axis), stats.end(), 1);
  BELAY_TRY(context.output(0, context.dtype(0), x));
  BELAY_TRY(context.output(1, uint32_t(stash), stats));
  BELAY_TRY(context.output(2, uint32_t(stash), stats));
  context.cost_ns(double(context.count(0)) * 0.6);
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    LayerNormKernel<typename decltype(tag)::type> kernel;
    kernel.rows = product(x, 0, axis);
    kernel.n = product(row);
    kernel.epsilon = context.attr().float_or("epsilon", 1e-5f);
    kernel.has_bias = context.has(2);
    kernel.stash = uint32_t(stash);
    kernel.scale_at = std::move(places[0]);
    kernel.bias_at = std::move(places[1]);
    context.kernel(std::move(kernel));
  });
  return {};
}

// Offsets of all elements of `dims` with `strides`.
template <class F>
void each_offset(const Dims& dims, const Dims& strides, F&& f) {
  const Walk walk(dims, {strides});
  if (walk.count() == 0) return;  // no element has an index
  const size_t inner = walk.rank() ? 1 : 0;
  const int64_t run = inner ? walk.dims.back() : 1, step = inner ? walk.strides[0].back() : 0;
  for_runs<1>(walk, inner, 0, walk.count() / std::max<int64_t>(1, run), [&](int64_t, const int64_t* at) {
    for (int64_t i = 0; i < run; ++i) f(at[0] + i * step);
  });
}

template <class In>
struct MeanVarianceKernel {
  Dims kept, kept_strides, reduced, reduced_strides;
  void operator()(const Run& run) const {
    const In* x = run.in<In>(0);
    In* y = run.out<In>(0);
    Dims starts;
    each_offset(kept, kept_strides, [&](int64_t at) { starts.push_back(at); });
    const int64_t n = product(reduced);
    if (n == 0) return;
    run.parallel(int64_t(starts.size()), grain_of(double(n) * 4), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const In* from = x + starts[size_t(i)];
        In* to = y + starts[size_t(i)];
        double sum = 0, squares = 0;
        each_offset(reduced, reduced_strides,
                    [&](int64_t at) { sum += double(Compute<In>::load(from[at])); });
        const double mean = sum / double(n);
        each_offset(reduced, reduced_strides, [&](int64_t at) {
          const double value = double(Compute<In>::load(from[at])) - mean;
          squares += value * value;
        });
        // The definition adds epsilon to the deviation, not to the variance.
        const double deviation = std::sqrt(squares / double(n)) + 1e-9;
        each_offset(reduced, reduced_strides, [&](int64_t at) {
          to[at] =
              Compute<In>::store(compute_t<In>((double(Compute<In>::load(from[at])) - mean) / deviation));
        });
      }
    });
  }
};

Status prepare_mean_variance(OpContext& context) {
  const Dims& x = context.dims(0);
  std::vector<bool> is_reduced(x.size(), false);
  const auto given = context.attr().ints("axes");
  for (const int64_t wanted : given ? *given : std::vector<int64_t>{0, 2, 3}) {
    BELAY_ASSIGN(const size_t axis, context.axis(wanted, x.size(), "axes"));
    is_reduced[axis] = true;
  }
  const Dims strides = dense_strides(x);
  BELAY_TRY(context.output(0, context.dtype(0), x));
  context.cost_ns(double(context.count(0)) * 4);
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    MeanVarianceKernel<typename decltype(tag)::type> kernel;
    for (size_t d = 0; d < x.size(); ++d) {
      (is_reduced[d] ? kernel.reduced : kernel.kept).push_back(x[d]);
      (is_reduced[d] ? kernel.reduced_strides : kernel.kept_strides).push_back(strides[d]);
    }
    context.kernel(std::move(kernel));
  });
  return {};
}

template <class In>
struct LpNormKernel {
  int64_t outer = 1, n = 1, inner = 1, p = 2;
  void operator()(const Run& run) const {
    run.parallel(outer * inner, grain_of(double(n) * 2), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const In* x = run.in<In>(0) + i / inner * n * inner + i % inner;
        In* y = run.out<In>(0) + i / inner * n * inner + i % inner;
        double sum = 0;
        for (int64_t k = 0; k < n; ++k) {
          const double value = double(Compute<In>::load(x[k * inner]));
          sum += p == 1 ? std::abs(value) : value * value;
        }
        const double norm = p == 1 ? sum : std::sqrt(sum);
        // A run of zeros stays one.
        for (int64_t k = 0; k < n; ++k)
          y[k * inner] = Compute<In>::store(
              compute_t<In>(norm == 0 ? 0.0 : double(Compute<In>::load(x[k * inner])) / norm));
      }
    });
  }
};

Status prepare_lp_norm(OpContext& context) {
  const Dims& x = context.dims(0);
  BELAY_ASSIGN(const size_t axis, context.axis(context.attr().int_or("axis", -1), x.size()));
  const int64_t p = context.attr().int_or("p", 2);
  if (p != 1 && p != 2) return context.bad("attribute p is " + std::to_string(p) + ", want 1 or 2");
  BELAY_TRY(context.output(0, context.dtype(0), x));
  context.cost_ns(double(context.count(0)) * 2);
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    context.kernel(LpNormKernel<typename decltype(tag)::type>{product(x, 0, axis), x[axis],
                                                              product(x, axis + 1, x.size()), p});
  });
  return {};
}

}  // namespace

void add_layer_norm(Registry& registry) {
  registry.add(OpDef{.op = "InstanceNormalization",
                     .prepare = prepare_instance_norm,
                     .types = {kFloats, kFloats, kFloats},
                     .min_inputs = 3,
                     .max_inputs = 3,
                     .in_place = InPlace::kFirst});
  registry.add(OpDef{.op = "LayerNormalization",
                     .prepare = prepare_layer_norm,
                     .types = {kFloats, kFloats, kFloats},
                     .min_inputs = 2,
                     .max_inputs = 3,
                     .max_outputs = 3,
                     .in_place = InPlace::kFirst});
  registry.add(OpDef{.op = "MeanVarianceNormalization",
                     .prepare = prepare_mean_variance,
                     .types = {kFloats},
                     .in_place = InPlace::kFirst});
  registry.add(OpDef{
      .op = "LpNormalization", .prepare = prepare_lp_norm, .types = {kFloats}, .in_place = InPlace::kFirst});
}

}  // namespace belay::cpu
