// LRN: each value divided by a power of the squares of its neighbours over the channels.
#include "../registry.hpp"
#include "../simd/simd.hpp"
#include "heavy.hpp"

#include <cmath>

namespace belay::cpu {
namespace {

template <class In>
struct LrnKernel {
  int64_t batch = 0, channels = 0, pixels = 0, size = 1;
  double alpha = 1e-4, beta = 0.75, bias = 1;

  void operator()(const Run& run) const {
    constexpr int64_t kPart = 256;
    const int64_t parts = (pixels + kPart - 1) / kPart;
    const double ns = double(channels * kPart) * double(std::min(size, channels) + 4) * 0.15;
    run.parallel(batch * parts, grain_of(ns), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % parts * kPart, width = std::min(kPart, pixels - first);
        const int64_t at = i / parts * channels * pixels + first;
        part(run.in<In>(0) + at, run.out<In>(0) + at, width);
      }
    });
  }

  void part(const In* x, In* y, int64_t width) const {
    const int64_t before = (size - 1) / 2, after = std::min(size - 1 - before, channels);
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t low = std::max<int64_t>(0, c - before), high = std::min(channels - 1, c + after);
      const In* from = x + c * pixels;
      In* to = y + c * pixels;
      if constexpr (std::is_same_v<In, float>) {
        const Simd& loops = simd();
        float sums[256] = {};
        for (int64_t k = low; k <= high; ++k)
          loops.fold_into[size_t(Fold::kSumSquare)](sums, x + k * pixels, width);
        loops.unary[size_t(Unary::kAffine)](sums, sums, width, float(alpha / double(size)), float(bias));
        loops.unary[size_t(Unary::kLog)](sums, sums, width, 0, 0);
        loops.unary[size_t(Unary::kAffine)](sums, sums, width, float(-beta), 0);
        loops.unary[size_t(Unary::kExp)](sums, sums, width, 0, 0);
        loops.binary[size_t(Binary::kMul)](from, 1, sums, 1, to, width);
      } else {
        for (int64_t i = 0; i < width; ++i) {
          double sum = 0;
          for (int64_t k = low; k <= high; ++k) {
            const double value = double(Compute<In>::load(x[k * pixels + i]));
            sum += value * value;
          }
          const double value = double(Compute<In>::load(from[i]));
          to[i] =
              Compute<In>::store(compute_t<In>(value / std::pow(bias + alpha / double(size) * sum, beta)));
        }
      }
    }
  }
};

Status prepare_lrn(OpContext& context) {
  const Dims& x = context.dims(0);
  if (x.size() < 2) return context.bad("the input has the shape " + text_of(x) + ", want rank 2 at least");
  const int64_t size = context.attr().int_or("size", 0);
  if (size < 1) return context.bad("attribute size is " + std::to_string(size) + ", want at least 1");
  BELAY_TRY(context.output(0, context.dtype(0), x));
  context.cost_ns(double(context.count(0)) * double(std::min(size, x[1]) + 4) * 0.15);
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    context.kernel(LrnKernel<typename decltype(tag)::type>{
        x[0], x[1], product(x, 2, x.size()), size, context.attr().float_or("alpha", 1e-4f),
        context.attr().float_or("beta", 0.75f), context.attr().float_or("bias", 1.0f)});
  });
  return {};
}

}  // namespace

void add_lrn(Registry& registry) {
  registry.add(OpDef{.op = "LRN", .prepare = prepare_lrn, .types = {kFloats}});
}

}  // namespace belay::cpu
