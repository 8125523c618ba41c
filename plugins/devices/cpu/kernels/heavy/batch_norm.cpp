// BatchNormalization: inference, and the training mode of version 14 on.
#include "../registry.hpp"
#include "../simd/simd.hpp"
#include "heavy.hpp"

#include <cmath>

namespace belay::cpu {
namespace {

double element(uint32_t dtype, const void* data, int64_t i) {
  double out = 0;
  dispatch<kFloats>(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    out = double(Compute<In>::load(static_cast<const In*>(data)[i]));
  });
  return out;
}
void set_element(uint32_t dtype, void* data, int64_t i, double value) {
  dispatch<kFloats>(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    static_cast<In*>(data)[i] = Compute<In>::store(compute_t<In>(value));
  });
}

template <class In>
struct BatchNormKernel {
  int64_t batch = 0, channels = 0, pixels = 0;
  double epsilon = 1e-5, momentum = 0.9;
  bool training = false;
  uint32_t scale_dtype = 0, stats_dtype = 0;

  void operator()(const Run& run) const {
    const In* x = run.in<In>(0);
    In* y = run.out<In>(0);
    const double ns = double(batch * pixels) * (training ? 3 : 0.3) + 30;
    run.parallel(channels, grain_of(ns), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double mean = element(stats_dtype, run.in<void>(3), c),
               variance = element(stats_dtype, run.in<void>(4), c);
        if (training) {
          double sum = 0, squares = 0;
          for_plane(c, [&](int64_t at) { sum += double(Compute<In>::load(x[at])); });
          const double now = sum / double(batch * pixels);
          for_plane(c, [&](int64_t at) {
            const double value = double(Compute<In>::load(x[at])) - now;
            squares += value * value;
          });
          const double spread = squares / double(batch * pixels);
          if (run.out<void>(1))
            set_element(stats_dtype, run.out<void>(1), c, mean * momentum + now * (1 - momentum));
          if (run.out<void>(2))
            set_element(stats_dtype, run.out<void>(2), c, variance * momentum + spread * (1 - momentum));
          mean = now;
          variance = spread;
        }
        if (!y) continue;
        const double scale = element(scale_dtype, run.in<void>(1), c) / std::sqrt(variance + epsilon);
        const double shift = element(scale_dtype, run.in<void>(2), c) - mean * scale;
        for (int64_t n = 0; n < batch; ++n) {
          const int64_t at = (n * channels + c) * pixels;
          if constexpr (std::is_same_v<In, float>) {
            simd().unary[size_t(Unary::kAffine)](x + at, y + at, pixels, float(scale), float(shift));
          } else {
            using T = compute_t<In>;
            for (int64_t i = 0; i < pixels; ++i)
              y[at + i] = Compute<In>::store(Compute<In>::load(x[at + i]) * T(scale) + T(shift));
          }
        }
      }
    });
  }
  template <class F>
  void for_plane(int64_t c, F&& f) const {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t i = 0; i < pixels; ++i) f((n * channels + c) * pixels + i);
  }
};

Status prepare_batch_norm(OpContext& context) {
  const Dims& x = context.dims(0);
  if (x.empty()) return context.bad("the input is a scalar, want rank 1 at least");
  const int64_t channels = x.size() > 1 ? x[1] : 1;
  static constexpr std::string_view kNames[] = {"", "scale", "the bias", "the mean", "the variance"};
  for (size_t i = 1; i < 5; ++i)
    if (context.dims(i) != Dims{channels})
      return context.bad(std::string(kNames[i]) + " has the shape " + text_of(context.dims(i)) + ", want [" +
                         std::to_string(channels) + "]");
  if (context.attr().int_or("spatial", 1) == 0)
    return context.bad("attribute spatial is 0, want 1", Code::kUnimplemented);
  const bool training = context.version() >= 14 && context.attr().int_or("training_mode", 0) != 0;
  for (size_t o = 1; o < context.outputs(); ++o)
    if (context.wants(o) && !training)
      return context.bad("output " + std::to_string(o) + " is wanted, but training_mode is not set",
                         context.version() < 14 ? Code::kUnimplemented : Code::kInvalidArgument);
  if (context.dtype(2) != context.dtype(1) || context.dtype(4) != context.dtype(3))
    return context.bad(
        "scale and bias, mean and variance are of types " + std::string(dtype_name(context.dtype(1))) + ", " +
        std::string(dtype_name(context.dtype(2))) + ", " + std::string(dtype_name(context.dtype(3))) + ", " +
        std::string(dtype_name(context.dtype(4))) + ", want one type for each pair");
  BELAY_TRY(context.output(0, context.dtype(0), x));
  BELAY_TRY(context.output(1, context.dtype(3), {channels}));
  BELAY_TRY(context.output(2, context.dtype(3), {channels}));
  const double epsilon = context.attr().float_or("epsilon", 1e-5f),
               momentum = context.attr().float_or("momentum", 0.9f);
  context.cost_ns(double(context.count(0)) * 0.2);
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    context.kernel(BatchNormKernel<typename decltype(tag)::type>{
        x[0], channels, x.size() > 2 ? product(x, 2, x.size()) : 1, epsilon, momentum, training,
        context.dtype(1), context.dtype(3)});
  });
  return {};
}

}  // namespace

void add_batch_norm(Registry& registry) {
  registry.add(OpDef{.op = "BatchNormalization",
                     .prepare = prepare_batch_norm,
                     .types = {kFloats, kFloats, kFloats, kFloats, kFloats},
                     .min_inputs = 5,
                     .max_inputs = 5,
                     .max_outputs = 5,
                     .in_place = InPlace::kFirst});
}

}  // namespace belay::cpu
