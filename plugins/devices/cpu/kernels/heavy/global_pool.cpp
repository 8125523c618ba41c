// Pools over all spatial dims, GlobalAveragePool, GlobalMaxPool, GlobalLpPool.
#include "../registry.hpp"
#include "../simd/simd.hpp"
#include "global_pool.hpp"
#include "heavy.hpp"

#include <cmath>

namespace belay::cpu {
namespace {

enum class Global : uint8_t { kAverage, kMax, kLp };

template <class In>
struct GlobalPoolKernel {
  Global what;
  int64_t planes = 0, pixels = 0, p = 2;

  // float32 through the loops of simd(), others in double.
  In pool(const In* x) const {
    if constexpr (std::is_same_v<In, float>) {
      if (what == Global::kAverage) return simd().fold[size_t(Fold::kSum)](x, pixels) / float(pixels);
      if (what == Global::kMax) return simd().fold[size_t(Fold::kMax)](x, pixels);
      if (p == 1) return simd().fold[size_t(Fold::kSumAbs)](x, pixels);
      if (p == 2) return std::sqrt(simd().fold[size_t(Fold::kSumSquare)](x, pixels));
    }
    double sum = 0, most = -INFINITY;
    for (int64_t i = 0; i < pixels; ++i) {
      const double value = double(Compute<In>::load(x[i]));
      if (what == Global::kLp)
        sum += p == 1 ? std::abs(value) : p == 2 ? value * value : std::pow(std::abs(value), double(p));
      else
        sum += value;
      if (value > most || value != value) most = value;
    }
    const double out = what == Global::kMax       ? most
                       : what == Global::kAverage ? sum / double(pixels)
                       : p == 1                   ? sum
                                                  : std::pow(sum, 1.0 / double(p));
    return Compute<In>::store(compute_t<In>(out));
  }

  void operator()(const Run& run) const {
    const In* x = run.in<In>(0);
    In* y = run.out<In>(0);
    run.parallel(planes, grain_of(10 + double(pixels) * 0.1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = pool(x + i * pixels);
    });
  }
};

template <Global kWhat>
Status prepare_global(OpContext& context) {
  const Dims& x = context.dims(0);
  if (x.size() < 2) return context.bad("the input has the shape " + text_of(x) + ", want rank 2 at least");
  Dims out = x;
  std::fill(out.begin() + 2, out.end(), 1);
  const int64_t pixels = product(x, 2, x.size());
  if (pixels == 0)
    return context.bad("the input has the shape " + text_of(x) + ", which has nothing to pool");
  const int64_t p = context.attr().int_or("p", int64_t(context.attr().float_or("p", 2)));
  if (kWhat == Global::kLp && p < 1)
    return context.bad("attribute p is " + std::to_string(p) + ", want at least 1");
  BELAY_TRY(context.output(0, context.dtype(0), out));
  context.cost_ns(double(context.count(0)) * 0.1);
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    context.kernel(GlobalPoolKernel<typename decltype(tag)::type>{kWhat, x[0] * x[1], pixels, p});
  });
  return {};
}

}  // namespace

void average_planes(OpContext& context, int64_t planes, int64_t pixels) {
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    context.kernel(GlobalPoolKernel<typename decltype(tag)::type>{Global::kAverage, planes, pixels});
  });
}

void add_global_pool(Registry& registry) {
  registry.add(
      OpDef{.op = "GlobalAveragePool", .prepare = prepare_global<Global::kAverage>, .types = {kFloats}});
  registry.add(OpDef{.op = "GlobalMaxPool", .prepare = prepare_global<Global::kMax>, .types = {kFloats}});
  registry.add(OpDef{.op = "GlobalLpPool", .prepare = prepare_global<Global::kLp>, .types = {kFloats}});
}

}  // namespace belay::cpu
