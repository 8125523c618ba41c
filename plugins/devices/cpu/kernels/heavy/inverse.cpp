// Inverse of matrices, by elimination with the largest element of a column as pivot.
#include "../registry.hpp"
#include "heavy.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace belay::cpu {
namespace {

// a becomes its inverse; false: there is none.
bool invert(double* a, int64_t n, double* inverse) {
  for (int64_t i = 0; i < n * n; ++i) inverse[i] = i / n == i % n ? 1.0 : 0.0;
  for (int64_t c = 0; c < n; ++c) {
    int64_t pivot = c;
    for (int64_t r = c + 1; r < n; ++r)
      if (std::fabs(a[r * n + c]) > std::fabs(a[pivot * n + c])) pivot = r;
    if (!(std::fabs(a[pivot * n + c]) > 0)) return false;
    if (pivot != c) {
      std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
      std::swap_ranges(inverse + c * n, inverse + (c + 1) * n, inverse + pivot * n);
    }
    const double factor = 1 / a[c * n + c];
    for (int64_t j = 0; j < n; ++j) a[c * n + j] *= factor, inverse[c * n + j] *= factor;
    for (int64_t r = 0; r < n; ++r) {
      const double times = a[r * n + c];
      if (r == c || times == 0) continue;
      for (int64_t j = 0; j < n; ++j) {
        a[r * n + j] -= times * a[c * n + j];
        inverse[r * n + j] -= times * inverse[c * n + j];
      }
    }
  }
  return true;
}

template <class In>
struct InverseKernel {
  int64_t matrices = 0, n = 0;
  belay_status operator()(const Run& run) const {
    const int64_t each = n * n;
    if (each == 0) return BELAY_OK;
    double* const memory = run.scratch<double>(size_t(2 * each * run.max_parts()));
    std::atomic<int64_t> singular{-1};
    run.parallel(matrices, grain_of(double(each) * double(n) * 2), [&](int64_t begin, int64_t end, int64_t part) {
      double *const a = memory + 2 * each * part, *const inverse = a + each;
      for (int64_t i = begin; i < end; ++i) {
        const In* x = run.in<In>(0) + i * each;
        for (int64_t j = 0; j < each; ++j) a[j] = double(Compute<In>::load(x[j]));
        if (!invert(a, n, inverse)) {
          singular = i;
          return;
        }
        In* y = run.out<In>(0) + i * each;
        for (int64_t j = 0; j < each; ++j) y[j] = Compute<In>::store(compute_t<In>(inverse[j]));
      }
    });
    if (singular < 0) return BELAY_OK;
    return run.fail(Code::kInvalidArgument, "Inverse: matrix " + std::to_string(singular) +
                                                " has no inverse; want matrices of full rank.");
  }
};

Status prepare_inverse(OpContext& context) {
  const Dims& x = context.dims(0);
  if (x.size() < 2 || x.back() != x[x.size() - 2])
    return context.bad("the input has the shape " + text_of(x) + ", want square matrices");
  BELAY_TRY(context.output(0, context.dtype(0), x));
  context.cost_ns(double(context.count(0)) * double(x.back()) * 2);
  dispatch<kF32 | kF64 | kF16>(context.dtype(0), [&](auto tag) {
    context.kernel(InverseKernel<typename decltype(tag)::type>{product(x, 0, x.size() - 2), x.back()});
  });
  return {};
}

}  // namespace

void add_inverse(Registry& registry) {
  registry.add(OpDef{.op = "Inverse",
                     .prepare = prepare_inverse,
                     .types = {kF32 | kF64 | kF16},
                     .domain = "com.microsoft",
                     .ns_per_byte = 2});
}

}  // namespace belay::cpu
