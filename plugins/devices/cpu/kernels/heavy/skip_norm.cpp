// Normalisation of the rows of a sum, as transformers have it behind every layer: SkipLayerNormalization, and
// SkipSimplifiedLayerNormalization, which divides by the root of the mean square and takes no mean away.
#include "../convert.hpp"
#include "../registry.hpp"
#include "heavy.hpp"
#include "rms_norm.hpp"

#include <algorithm>
#include <cmath>

namespace belay::cpu {
namespace {

// Positions of the operands; -1: the operator has none.
struct Places {
  int skip, scale, shift, bias;
  int mean, inverse, sum;  // outputs
};
constexpr Places kSkip{1, 2, 3, 4, 1, 2, 3}, kSkipSimplified{1, 2, -1, 3, 1, 2, 3};

struct SkipNorm {
  Places at{};
  bool simplified = false;
  uint32_t dtype = BELAY_DT_FLOAT32;
  int64_t rows = 0, n = 0, skip_rows = 0;  // the skip's rows are taken over and over
  float epsilon = 0;

  // Row i of an operand as floats: in place, or in `buffer`.
  const float* row(const Run& run, int operand, int64_t i, float* buffer) const {
    if (operand < 0) return nullptr;
    if (dtype == BELAY_DT_FLOAT32) return run.in<float>(size_t(operand)) + i * n;
    widen(dtype, run.in<Half>(size_t(operand)) + i * n, buffer, n);
    return buffer;
  }
  void store(const Run& run, int output, int64_t i, const float* values) const {
    if (output < 0) return;
    if (dtype == BELAY_DT_FLOAT32) {
      float* to = run.out<float>(size_t(output));
      if (to && to + i * n != values) std::copy_n(values, n, to + i * n);
    } else if (Half* to = run.out<Half>(size_t(output))) {
      narrow(dtype, values, to + i * n, n);
    }
  }
  static void statistic(const Run& run, int output, int64_t i, float value) {
    if (output < 0) return;
    if (float* to = run.out<float>(size_t(output))) to[i] = value;
  }

  void operator()(const Run& run) const {
    if (n == 0) return;
    const bool narrow_type = dtype != BELAY_DT_FLOAT32;
    // What goes with the columns, as floats for all rows.
    float* const columns = narrow_type ? run.scratch<float>(size_t(n) * 3) : nullptr;
    const auto column = [&](int operand, int64_t which) {
      return row(run, operand, 0, narrow_type ? columns + which * n : nullptr);
    };
    const float *scale = column(at.scale, 0), *shift = column(at.shift, 1), *bias = column(at.bias, 2);
    float* const memory = narrow_type ? run.scratch<float>(size_t(2 * n * run.max_parts())) : nullptr;
    run.parallel(rows, grain_of(double(n) * 0.6 + 30), [&](int64_t begin, int64_t end, int64_t part) {
      float* const buffer = narrow_type ? memory + 2 * n * part : nullptr;
      for (int64_t i = begin; i < end; ++i) {
        // In float the result is the memory in which the sum is made.
        float* const sum = narrow_type ? buffer : run.out<float>(0) + i * n;
        const float* x = row(run, 0, i, sum);
        const auto add = [&](const float* other) {
          simd().binary[size_t(Binary::kAdd)](x, 1, other, 1, sum, n);
          x = sum;
        };
        add(row(run, at.skip, i % skip_rows, narrow_type ? buffer + n : nullptr));
        if (bias) add(bias);
        store(run, at.sum, i, x);
        normalise(run, i, x, sum, scale, shift);
        store(run, 0, i, sum);
      }
    });
  }

  void normalise(const Run& run, int64_t i, const float* x, float* y, const float* scale, const float* shift) const {
    if (simplified) return statistic(run, at.inverse, i, normalise_by_root(x, y, n, epsilon, scale));
    const Simd& loops = simd();
    const float mean = loops.fold[size_t(Fold::kSum)](x, n) / float(n);
    loops.unary[size_t(Unary::kAffine)](x, y, n, 1.0f, -mean);
    const float rest = loops.fold[size_t(Fold::kSum)](y, n) / float(n);  // what rounding left of the mean
    const float variance = std::max(0.0f, loops.fold[size_t(Fold::kSumSquare)](y, n) / float(n) - rest * rest);
    statistic(run, at.mean, i, mean + rest);
    const float inverse = 1.0f / std::sqrt(variance + epsilon);
    loops.unary[size_t(Unary::kAffine)](y, y, n, inverse, -rest * inverse);
    loops.binary[size_t(Binary::kMul)](y, 1, scale, 1, y, n);
    if (shift) loops.binary[size_t(Binary::kAdd)](y, 1, shift, 1, y, n);
    statistic(run, at.inverse, i, inverse);
  }
};

Status prepare(OpContext& context, const Places& at, bool simplified) {
  const Dims& x = context.dims(0);
  if (x.empty()) return context.bad("the input is a scalar, want rank 1 at least");
  SkipNorm kernel;
  kernel.at = at;
  for (int* i : {&kernel.at.shift, &kernel.at.bias})
    if (*i >= 0 && !context.has(size_t(*i))) *i = -1;
  kernel.simplified = simplified;
  kernel.dtype = context.dtype(0);
  for (size_t i = 1; i < context.inputs(); ++i)
    if (context.has(i) && context.dtype(i) != kernel.dtype)
      return context.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(context.dtype(i))) +
                         ", input 0 of " + std::string(dtype_name(kernel.dtype)) + ", want one type");
  const Dims columns{x.back()};
  kernel.n = x.back();
  kernel.rows = product(x, 0, x.size() - 1);
  for (const int i : {at.scale, at.shift, at.bias})
    if (i >= 0 && context.has(size_t(i)) && context.dims(size_t(i)) != columns)
      return context.bad("input " + std::to_string(i) + " has the shape " + text_of(context.dims(size_t(i))) + ", want " +
                         text_of(columns));
  // Leading dims that are missing, or 1, are taken over and over.
  Dims skip = context.dims(size_t(at.skip));
  while (skip.size() > 1 && skip[0] == 1) skip.erase(skip.begin());
  if (skip.size() > x.size() || skip.empty() || !std::equal(skip.begin(), skip.end(), x.end() - int64_t(skip.size())))
    return context.bad("the skip has the shape " + text_of(context.dims(size_t(at.skip))) + ", want the input's, " +
                       text_of(x) + ", or the last of its dims");
  kernel.skip_rows = kernel.n == 0 ? 0 : product(skip) / kernel.n;
  kernel.epsilon = context.attr().float_or("epsilon", 1e-12f);
  Dims stats = x;
  stats.back() = 1;
  BELAY_TRY(context.output(0, kernel.dtype, x));
  for (const int o : {at.mean, at.inverse}) BELAY_TRY(context.output(size_t(o), BELAY_DT_FLOAT32, stats));
  BELAY_TRY(context.output(size_t(at.sum), kernel.dtype, x));
  context.cost_ns(double(context.count(0)) * 0.6);
  context.kernel(std::move(kernel), simd().name);
  return {};
}

Status prepare_skip(OpContext& context) { return prepare(context, kSkip, false); }
Status prepare_skip_simplified(OpContext& context) { return prepare(context, kSkipSimplified, true); }

}  // namespace

void add_skip_norm(Registry& registry) {
  constexpr TypeMask kTypes = kF32 | kF16 | kBf16;
  const auto add = [&](std::string_view op, PrepareFn prepare_fn, uint8_t most) {
    registry.add(OpDef{.op = op,
                       .prepare = prepare_fn,
                       .types = {kTypes},
                       .min_inputs = 3,
                       .max_inputs = most,
                       .max_outputs = 4,
                       .in_place = InPlace::kFirst,
                       .domain = "com.microsoft",
                       .ns_per_byte = 0.15});
  };
  add("SkipLayerNormalization", prepare_skip, 5);
  add("SkipSimplifiedLayerNormalization", prepare_skip_simplified, 4);
}

}  // namespace belay::cpu
