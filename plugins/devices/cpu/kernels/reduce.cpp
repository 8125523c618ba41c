// Reductions over any set of axes.
#include "convert.hpp"
#include "registry.hpp"

#include <cmath>
#include <cstring>

namespace belay::cpu {
namespace {

enum class Reduce : uint8_t { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kLogSum, kLogSumExp, kSumSquare };

Fold fold_of(Reduce op) {
  switch (op) {
    case Reduce::kMax:
      return Fold::kMax;
    case Reduce::kMin:
      return Fold::kMin;
    case Reduce::kProd:
      return Fold::kProd;
    case Reduce::kL1:
      return Fold::kSumAbs;
    case Reduce::kL2:
    case Reduce::kSumSquare:
      return Fold::kSumSquare;
    default:
      return Fold::kSum;
  }
}

// What is made of the folded value; `count` elements went into it.
template <class C>
C finished(Reduce op, C value, int64_t count) {
  switch (op) {
    case Reduce::kMean:
      if constexpr (std::is_integral_v<C>)
        return count ? C(value / C(count)) : C(0);
      else
        return value / C(count);
    case Reduce::kL2:
      return convert<C>(std::sqrt(double(value)));
    case Reduce::kLogSum:
      return convert<C>(std::log(double(value)));
    default:
      return value;
  }
}

// The two index spaces: what is kept (the output) and what is reduced, each with the strides of the input.
struct Plan {
  Walk kept, reduced;
  int64_t kept_count, reduced_count;
  bool inner_reduced;  // the input's last run is reduced; else it is kept
  uint32_t dtype;
  Reduce op;
};

Plan plan_of(const Dims& dims, const std::vector<bool>& reduce, uint32_t dtype, Reduce op) {
  const Dims strides = dense_strides(dims);
  Dims kept, kept_strides, reduced, reduced_strides;
  bool inner_reduced = true;
  for (size_t d = 0; d < dims.size(); ++d) {
    (reduce[d] ? reduced : kept).push_back(dims[d]);
    (reduce[d] ? reduced_strides : kept_strides).push_back(strides[d]);
    if (dims[d] != 1) inner_reduced = reduce[d];
  }
  Plan plan{Walk(kept, {kept_strides}),
            Walk(reduced, {reduced_strides}),
            product(kept),
            product(reduced),
            inner_reduced,
            dtype,
            op};
  for (Walk* walk : {&plan.kept, &plan.reduced})
    if (walk->rank() == 0) walk->dims = {1}, walk->strides = {{1}};
  return plan;
}

// ---- float, half, bfloat16
// -------------------------------------------------------------------------------------------

constexpr int64_t kRun = 2048;  // floats summed in one go; the sums of runs are joined in double

struct FloatReduce {
  Plan plan;

  void operator()(const Run& run) const {
    const double ns = 0.1 + (plan.op == Reduce::kLogSumExp ? 1 : 0) + (is_16bit_float(plan.dtype) ? 0.2 : 0);
    if (plan.kept_count == 0) return;
    if (plan.reduced_count == 0) return empty(run);
    if (plan.inner_reduced) {
      if (plan.kept_count == 1 && plan.reduced.rank() == 1 && plan.reduced.dims[0] >= 64 * kRun)
        return long_run(run);
      run.parallel(
          plan.kept_count, grain_of(5 + ns * double(plan.reduced_count)), [&](int64_t begin, int64_t end) {
            for_runs<1>(plan.kept, 0, begin, end,
                        [&](int64_t i, const int64_t* offset) { store(run, i, one(run, offset[0])); });
          });
    } else {
      // Columns side by side: pieces of at most kBlock of them, so that the sums stay in the cache.
      const int64_t inner = plan.kept.dims.back(), pieces = (inner + kPiece - 1) / kPiece;
      const int64_t outer = plan.kept_count / inner;
      run.parallel(outer * pieces,
                   grain_of(ns * double(plan.reduced_count) * double(std::min(inner, kPiece))),
                   [&](int64_t begin, int64_t end) { columns(run, pieces, begin, end); });
    }
  }

 private:
  static constexpr int64_t kPiece = 512;

  const char* input(const Run& run, int64_t offset) const {
    return run.in<char>(0) + offset * (is_16bit_float(plan.dtype) ? 2 : 4);
  }
  const float* floats(const Run& run, int64_t offset, int64_t n, float* buffer) const {
    const char* at = input(run, offset);
    if (!is_16bit_float(plan.dtype)) return reinterpret_cast<const float*>(at);
    widen(plan.dtype, at, buffer, n);
    return buffer;
  }
  void store(const Run& run, int64_t i, double value) const {
    const float narrowed = float(value);
    if (is_16bit_float(plan.dtype))
      narrow(plan.dtype, &narrowed, run.out<Half>(0) + i, 1);
    else
      run.out<float>(0)[i] = narrowed;
  }
  // Joins the folds of two runs.
  static double join(Fold fold, double a, double b) {
    switch (fold) {
      case Fold::kMax:
        return a >= b || a != a ? a : b;
      case Fold::kMin:
        return a <= b || a != a ? a : b;
      case Fold::kProd:
        return a * b;
      default:
        return a + b;
    }
  }
  // Calls f(offset of a run, n) for all that is reduced into the output element at `base`.
  template <class F>
  void each_run(int64_t base, F&& f) const {
    const int64_t inner = plan.reduced.dims.back();
    for_runs<1>(plan.reduced, 1, 0, plan.reduced_count / inner, [&](int64_t, const int64_t* offset) {
      for (int64_t i = 0; i < inner; i += kRun) f(base + offset[0] + i, std::min(kRun, inner - i));
    });
  }
  double fold(const Run& run, int64_t base, Fold how) const {
    float buffer[kRun];
    double total = 0;
    bool first = true;
    each_run(base, [&](int64_t offset, int64_t n) {
      const double part = double(simd().fold[size_t(how)](floats(run, offset, n, buffer), n));
      total = first ? part : join(how, total, part);
      first = false;
    });
    return total;
  }
  double one(const Run& run, int64_t base) const {
    if (plan.op != Reduce::kLogSumExp)
      return finished(plan.op, fold(run, base, fold_of(plan.op)), plan.reduced_count);
    const double most = fold(run, base, Fold::kMax);
    const float shift = std::isfinite(most) ? float(most) : 0;
    float buffer[kRun];
    double total = 0;
    each_run(base, [&](int64_t offset, int64_t n) {
      total += simd().sum_exp(floats(run, offset, n, buffer), n, shift);
    });
    return most == INFINITY ? most : double(shift) + std::log(total);
  }

  // One result of one long run: parts of fixed length, so that the result does not depend on the number of
  // threads.
  void long_run(const Run& run) const {
    const int64_t length = plan.reduced.dims[0], part = 16 * kRun, parts = (length + part - 1) / part;
    double* partial = run.scratch<double>(size_t(parts));
    const auto over = [&](auto&& f) {
      run.parallel(parts, 1, [&](int64_t begin, int64_t end) {
        float buffer[kRun];
        for (int64_t p = begin; p < end; ++p) {
          bool first = true;
          for (int64_t i = p * part; i < std::min(length, (p + 1) * part); i += kRun, first = false) {
            const int64_t n = std::min({kRun, length - i, (p + 1) * part - i});
            f(partial[p], floats(run, i, n, buffer), n, first);
          }
        }
      });
    };
    const auto folded = [&](Fold how) {
      over([how](double& to, const float* x, int64_t n, bool first) {
        const double value = double(simd().fold[size_t(how)](x, n));
        to = first ? value : join(how, to, value);
      });
      double total = partial[0];
      for (int64_t p = 1; p < parts; ++p) total = join(how, total, partial[p]);
      return total;
    };
    if (plan.op != Reduce::kLogSumExp)
      return store(run, 0, finished(plan.op, folded(fold_of(plan.op)), length));
    const double most = folded(Fold::kMax);
    const float shift = std::isfinite(most) ? float(most) : 0;
    over([shift](double& to, const float* x, int64_t n, bool first) {
      to = (first ? 0 : to) + simd().sum_exp(x, n, shift);
    });
    double total = 0;
    for (int64_t p = 0; p < parts; ++p) total += partial[p];
    store(run, 0, most == INFINITY ? most : double(shift) + std::log(total));
  }

  void columns(const Run& run, int64_t pieces, int64_t begin, int64_t end) const {
    const int64_t inner = plan.kept.dims.back();
    int64_t skip = begin % pieces, left = end - begin;
    for_runs<1>(plan.kept, 1, begin / pieces, (end - 1) / pieces + 1, [&](int64_t o, const int64_t* offset) {
      for (int64_t p = skip; p < pieces && left > 0; ++p, --left) {
        const int64_t at = p * kPiece, n = std::min(kPiece, inner - at);
        alignas(64) float total[kPiece];
        piece(run, offset[0] + at, n, total);
        const int64_t to = o * inner + at;
        if (is_16bit_float(plan.dtype))
          narrow(plan.dtype, total, run.out<Half>(0) + to, n);
        else
          std::memcpy(run.out<float>(0) + to, total, size_t(n) * 4);
      }
      skip = 0;
    });
  }
  void fold_rows(const Run& run, int64_t base, int64_t n, Fold how, float* total) const {
    static constexpr float kStart[] = {0, 0, 0, -INFINITY, INFINITY, 1};
    std::fill_n(total, n, kStart[size_t(how)]);
    alignas(64) float buffer[kPiece];
    for_runs<1>(plan.reduced, 0, 0, plan.reduced_count, [&](int64_t, const int64_t* offset) {
      simd().fold_into[size_t(how)](total, floats(run, base + offset[0], n, buffer), n);
    });
  }
  void piece(const Run& run, int64_t base, int64_t n, float* total) const {
    if (plan.op != Reduce::kLogSumExp) {
      fold_rows(run, base, n, fold_of(plan.op), total);
      if (plan.op == Reduce::kMean)
        for (int64_t i = 0; i < n; ++i) total[i] = total[i] / float(plan.reduced_count);
      if (plan.op == Reduce::kL2) simd().unary[size_t(Unary::kSqrt)](total, total, n, 0, 0);
      if (plan.op == Reduce::kLogSum) simd().unary[size_t(Unary::kLog)](total, total, n, 0, 0);
      return;
    }
    alignas(64) float most[kPiece], shift[kPiece], buffer[kPiece], exps[kPiece];
    fold_rows(run, base, n, Fold::kMax, most);
    for (int64_t i = 0; i < n; ++i) shift[i] = std::isfinite(most[i]) ? most[i] : 0;
    std::fill_n(total, n, 0.0f);
    for_runs<1>(plan.reduced, 0, 0, plan.reduced_count, [&](int64_t, const int64_t* offset) {
      simd().binary[size_t(Binary::kSub)](floats(run, base + offset[0], n, buffer), 1, shift, 1, exps, n);
      simd().unary[size_t(Unary::kExp)](exps, exps, n, 0, 0);
      simd().fold_into[size_t(Fold::kSum)](total, exps, n);
    });
    simd().unary[size_t(Unary::kLog)](total, total, n, 0, 0);
    for (int64_t i = 0; i < n; ++i) total[i] = most[i] == INFINITY ? most[i] : total[i] + shift[i];
  }

  void empty(const Run& run) const {
    double value = 0;
    if (plan.op == Reduce::kMax || plan.op == Reduce::kLogSum || plan.op == Reduce::kLogSumExp)
      value = -INFINITY;
    if (plan.op == Reduce::kMin) value = INFINITY;
    if (plan.op == Reduce::kProd) value = 1;
    if (plan.op == Reduce::kMean) value = NAN;
    for (int64_t i = 0; i < plan.kept_count; ++i) store(run, i, value);
  }
};

// ---- double and integers
// ---------------------------------------------------------------------------------------------

template <class T>
struct PlainReduce {
  Plan plan;
  using L = std::numeric_limits<T>;
  T top = L::max();  // of integers: what the smallest of none is
  static constexpr bool kInt = std::is_integral_v<T>;
  // Sums of integers wrap around as 64-bit numbers do, so the low bits are those of the exact sum.
  using Sum = std::conditional_t<kInt, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>, double>;

  static Sum plus(Sum a, Sum b) {
    if constexpr (kInt)
      return Sum(uint64_t(a) + uint64_t(b));
    else
      return a + b;
  }
  static Sum times(Sum a, Sum b) {
    if constexpr (kInt)
      return Sum(uint64_t(a) * uint64_t(b));
    else
      return a * b;
  }

  template <class F>
  void each(const T* base, F&& f) const {
    const int64_t inner = plan.reduced.dims.back(), stride = plan.reduced.strides[0].back();
    if (plan.reduced_count == 0) return;
    for_runs<1>(plan.reduced, 1, 0, plan.reduced_count / inner, [&](int64_t, const int64_t* offset) {
      for (int64_t i = 0; i < inner; ++i) f(base[offset[0] + i * stride]);
    });
  }
  T extreme(const T* base, bool most) const {
    T best = most ? (kInt ? L::lowest() : T(-L::infinity())) : (kInt ? top : L::infinity());
    each(base, [&](T x) {
      if (best != best) return;
      if (x != x || (most ? x > best : x < best)) best = x;
    });
    return best;
  }
  T one(const T* base) const {
    Sum total = plan.op == Reduce::kProd ? 1 : 0;
    switch (plan.op) {
      case Reduce::kMax:
        return extreme(base, true);
      case Reduce::kMin:
        return extreme(base, false);
      case Reduce::kProd:
        each(base, [&](T x) { total = times(total, Sum(x)); });
        break;
      case Reduce::kL1:
        each(base, [&](T x) { total = plus(total, x < T(0) ? times(Sum(x), Sum(-1)) : Sum(x)); });
        break;
      case Reduce::kL2:
      case Reduce::kSumSquare:
        each(base, [&](T x) { total = plus(total, times(Sum(x), Sum(x))); });
        break;
      case Reduce::kLogSumExp: {
        const T most = extreme(base, true);
        const double shift = std::isfinite(double(most)) ? double(most) : 0;
        double sum = 0;
        each(base, [&](T x) { sum += std::exp(double(x) - shift); });
        return double(most) == INFINITY ? most : convert<T>(shift + std::log(sum));
      }
      default:
        each(base, [&](T x) { total = plus(total, Sum(x)); });
        break;
    }
    return T(finished<Sum>(plan.op, total, plan.reduced_count));
  }
  void operator()(const Run& run) const {
    run.parallel(plan.kept_count, grain_of(5 + double(plan.reduced_count)), [&](int64_t begin, int64_t end) {
      for_runs<1>(plan.kept, 0, begin, end, [&](int64_t i, const int64_t* offset) {
        run.out<T>(0)[i] = one(run.in<T>(0) + offset[0]);
      });
    });
  }
};

template <Reduce kOp>
Status prepare_reduce(OpContext& op) {
  const size_t rank = op.rank(0);
  std::vector<int64_t> axes;
  if (const auto old = op.attr().ints("axes"))
    axes = *old;
  else if (op.has(1)) {
    BELAY_ASSIGN(axes, op.ints(1));
  }
  std::vector<bool> reduce(rank, false);
  BELAY_ASSIGN(const std::vector<size_t> reduced, op.axes(axes, rank));
  for (const size_t axis : reduced) reduce[axis] = true;
  // Without axes each element may stand alone: what is done to a sum is then done to it.
  if (axes.empty() && op.attr().int_or("noop_with_empty_axes", 0) == 0) reduce.assign(rank, true);
  const bool keep = op.attr().int_or("keepdims", 1) != 0;
  Dims out;
  for (size_t d = 0; d < rank; ++d) {
    if (!reduce[d])
      out.push_back(op.dims(0)[d]);
    else if (keep)
      out.push_back(1);
  }
  BELAY_TRY(op.output(0, op.dtype(0), out));
  // The bytes of bool are 0 and 1, and are ordered as such.
  const uint32_t dtype = op.dtype(0) == BELAY_DT_BOOL ? uint32_t(BELAY_DT_UINT8) : op.dtype(0);
  const Plan plan = plan_of(op.dims(0), reduce, dtype, kOp);
  dispatch<kNumeric>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<compute_t<T>, float>)
      op.kernel(FloatReduce{plan}, simd().name);
    else
      op.kernel(op.dtype(0) == BELAY_DT_BOOL ? PlainReduce<T>{plan, T(1)} : PlainReduce<T>{plan});
  });
  return {};
}

}  // namespace

void add_reduce(Registry& registry) {
  const auto add = [&](std::string_view op, PrepareFn prepare, TypeMask types = kNumeric) {
    registry.add({.op = op,
                  .prepare = prepare,
                  .types = {types, kIndex},
                  .max_inputs = 2,
                  .host_inputs = 2,
                  .ns_per_byte = 0.05});
  };
  add("ReduceSum", prepare_reduce<Reduce::kSum>);
  add("ReduceMean", prepare_reduce<Reduce::kMean>);
  add("ReduceMax", prepare_reduce<Reduce::kMax>, kNumeric | kBool);
  add("ReduceMin", prepare_reduce<Reduce::kMin>, kNumeric | kBool);
  add("ReduceProd", prepare_reduce<Reduce::kProd>);
  add("ReduceL1", prepare_reduce<Reduce::kL1>);
  add("ReduceL2", prepare_reduce<Reduce::kL2>);
  add("ReduceLogSum", prepare_reduce<Reduce::kLogSum>);
  add("ReduceLogSumExp", prepare_reduce<Reduce::kLogSumExp>);
  add("ReduceSumSquare", prepare_reduce<Reduce::kSumSquare>);
}

}  // namespace belay::cpu
