// Operators of one tensor, element by element.
#include "blocks.hpp"
#include "registry.hpp"
#include "small_types.hpp"

#include <array>
#include <cmath>
#include <utility>

namespace belay::cpu {
namespace {

// The same functions as in simd/math.inc, in double.
template <Unary kOp>
double apply(double x, double a, double b) {
  const auto clip = [](double v, double low, double high) { return v < low ? low : v > high ? high : v; };
  switch (kOp) {
    case Unary::kIdentity:
      return x;
    case Unary::kAbs:
      return std::fabs(x);
    case Unary::kNeg:
      return -x;
    case Unary::kSqrt:
      return std::sqrt(x);
    case Unary::kReciprocal:
      return 1 / x;
    case Unary::kSquare:
      return x * x;
    case Unary::kCeil:
      return std::ceil(x);
    case Unary::kFloor:
      return std::floor(x);
    case Unary::kRound:
      return std::nearbyint(x);
    case Unary::kSign:
      return x > 0 ? 1 : x < 0 ? -1 : x == x ? 0 : x;
    case Unary::kExp:
      return std::exp(x);
    case Unary::kLog:
      return std::log(x);
    case Unary::kErf:
      return std::erf(x);
    case Unary::kTanh:
      return std::tanh(x);
    case Unary::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Unary::kSoftplus:
      return (x > 0 ? x : x == x ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
    case Unary::kSoftsign:
      return x / (1 + std::fabs(x));
    case Unary::kRelu:
      return x < 0 ? 0 : x;
    case Unary::kClip:
      return clip(x, a, b);
    case Unary::kLeakyRelu:
      return x < 0 ? a * x : x;
    case Unary::kLeakyClip: {
      const double y = x < 0 ? a * x : x;
      return y < b ? b : y;
    }
    case Unary::kThresholded:
      return x <= a ? 0 : x;
    case Unary::kElu:
      return x < 0 ? a * std::expm1(x) : x;
    case Unary::kSelu:
      return b * (x > 0 ? x : a * std::expm1(x));
    case Unary::kCelu:
      return x < 0 ? a * std::expm1(x / a) : x;
    case Unary::kHardSigmoid:
      return clip(a * x + b, 0, 1);
    case Unary::kHardSwish:
      return x * clip(x / 6 + 0.5, 0, 1);
    case Unary::kSwish:
      return x / (1 + std::exp(-a * x));
    case Unary::kMish:
      return x * std::tanh(std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))));
    case Unary::kGelu:
      return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440));
    case Unary::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case Unary::kShrink:
      return x < -a ? x + b : x > a ? x - b : x == x ? 0 : x;
    case Unary::kAffine:
      return a * x + b;
    case Unary::kSin:
      return std::sin(x);
    case Unary::kCos:
      return std::cos(x);
    case Unary::kTan:
      return std::tan(x);
    case Unary::kAsin:
      return std::asin(x);
    case Unary::kAcos:
      return std::acos(x);
    case Unary::kAtan:
      return std::atan(x);
    case Unary::kSinh:
      return std::sinh(x);
    case Unary::kCosh:
      return std::cosh(x);
    case Unary::kAsinh:
      return std::asinh(x);
    case Unary::kAcosh:
      return std::acosh(x);
    case Unary::kAtanh:
      return std::atanh(x);
    case Unary::kCount:
      break;
  }
  return x;
}

template <Unary kOp>
void double_loop(const double* x, double* y, int64_t n, double a, double b) {
  for (int64_t i = 0; i < n; ++i) y[i] = apply<kOp>(x[i], a, b);
}
using DoubleLoop = void (*)(const double*, double*, int64_t, double, double);
template <size_t... kOps>
constexpr std::array<DoubleLoop, sizeof...(kOps)> double_loops(std::index_sequence<kOps...>) {
  return {double_loop<Unary(kOps)>...};
}
constexpr auto kDoubleLoops = double_loops(std::make_index_sequence<size_t(Unary::kCount)>());

bool is_cheap(Unary op) {
  return op <= Unary::kSign || (op >= Unary::kSoftsign && op <= Unary::kThresholded) ||
         op == Unary::kHardSigmoid || op == Unary::kHardSwish || op == Unary::kShrink || op == Unary::kAffine;
}

struct FloatUnary {
  Unary op;
  uint32_t dtype;
  int64_t count;
  double a, b;
  decltype(simd().unary[0]) loop = simd().unary[size_t(op)];
  int64_t grain = grain_of((is_cheap(op)        ? 0.15
                            : op >= Unary::kSin ? 10
                                                : 0.5) *
                           (dtype == BELAY_DT_FLOAT64 ? 8 : 1));

  void operator()(const Run& run) const {
    run.parallel(count, grain, [&](int64_t begin, int64_t end) {
      if (dtype == BELAY_DT_FLOAT32) {
        loop(run.in<float>(0) + begin, run.out<float>(0) + begin, end - begin, float(a), float(b));
      } else if (dtype == BELAY_DT_FLOAT64) {
        kDoubleLoops[size_t(op)](run.in<double>(0) + begin, run.out<double>(0) + begin, end - begin, a, b);
      } else {
        for_blocks(begin, end, [&](int64_t at, int64_t n) {
          alignas(64) float block[kBlock];
          widen(dtype, run.in<Half>(0) + at, block, n);
          loop(block, block, n, float(a), float(b));
          narrow(dtype, block, run.out<Half>(0) + at, n);
        });
      }
    });
  }
};

Status prepare_float(OpContext& op, Unary which, double a = 0, double b = 0) {
  BELAY_TRY(op.output(0, op.dtype(0), op.dims(0)));
  op.kernel(FloatUnary{which, op.dtype(0), op.count(0), a, b},
            op.dtype(0) == BELAY_DT_FLOAT64 ? "loops" : simd().name);
  return {};
}
template <Unary kOp>
Status prepare_plain(OpContext& op) {
  return prepare_float(op, kOp);
}

// Operators that exist for integers too.
template <class T>
T int_apply(Unary op, T x) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case Unary::kAbs:
      return x < 0 ? T(U(0) - U(x)) : x;  // the smallest number stays: it has no counterpart
    case Unary::kNeg:
      return T(U(0) - U(x));
    case Unary::kSign:
      return T((x > 0) - (x < 0));
    case Unary::kErf:
      return T(std::erf(double(x)));  // towards zero, as a cast
    default:
      return x < 0 ? T(0) : x;  // Relu
  }
}

template <Unary kOp>
Status prepare_number(OpContext& op) {
  if (type_bit(op.dtype(0)) & kFloats) return prepare_float(op, kOp);
  BELAY_TRY(op.output(0, op.dtype(0), op.dims(0)));
  dispatch<kInts>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([count = op.count(0)](const Run& run) {
      run.parallel(count, grain_of(0.3), [&](int64_t begin, int64_t end) {
        const T* x = run.in<T>(0);
        T* y = run.out<T>(0);
        for (int64_t i = begin; i < end; ++i) y[i] = int_apply<T>(kOp, x[i]);
      });
    });
  });
  return {};
}

Status prepare_leaky_relu(OpContext& op) {
  return prepare_float(op, Unary::kLeakyRelu, op.attr().float_or("alpha", 0.01f));
}
Status prepare_elu(OpContext& op) {
  return prepare_float(op, Unary::kElu, op.attr().float_or("alpha", 1.0f));
}
Status prepare_selu(OpContext& op) {
  return prepare_float(op, Unary::kSelu, op.attr().float_or("alpha", 1.67326319217681884765625f),
                       op.attr().float_or("gamma", 1.05070102214813232421875f));
}
Status prepare_celu(OpContext& op) {
  const float alpha = op.attr().float_or("alpha", 1.0f);
  if (alpha == 0) return op.bad("alpha is 0, want any other number");
  return prepare_float(op, Unary::kCelu, alpha);
}
Status prepare_hard_sigmoid(OpContext& op) {
  return prepare_float(op, Unary::kHardSigmoid, op.attr().float_or("alpha", 0.2f),
                       op.attr().float_or("beta", 0.5f));
}
Status prepare_thresholded_relu(OpContext& op) {
  return prepare_float(op, Unary::kThresholded, op.attr().float_or("alpha", 1.0f));
}
Status prepare_gelu(OpContext& op) {
  const std::string_view form = op.attr().string_or("approximate", "none");
  if (form != "none" && form != "tanh")
    return op.bad("approximate is '" + std::string(form) + "', want 'none' or 'tanh'");
  return prepare_float(op, form == "tanh" ? Unary::kGeluTanh : Unary::kGelu);
}
Status prepare_quick_gelu(OpContext& op) {
  return prepare_float(op, Unary::kSwish, op.attr().float_or("alpha", 1.702f));
}

Status prepare_swish(OpContext& op) { return prepare_float(op, Unary::kSwish, op.attr().float_or("alpha", 1.0f)); }

Status prepare_shrink(OpContext& op) {
  const float lambd = op.attr().float_or("lambd", 0.5f), bias = op.attr().float_or("bias", 0.0f);
  if (type_bit(op.dtype(0)) & kFloats) return prepare_float(op, Unary::kShrink, lambd, bias);
  BELAY_TRY(op.output(0, op.dtype(0), op.dims(0)));
  dispatch<kInts>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([count = op.count(0), lambd, bias](const Run& run) {
      const T* x = run.in<T>(0);
      T* y = run.out<T>(0);
      for (int64_t i = 0; i < count; ++i) {
        const double v = double(x[i]);
        y[i] = convert<T>(v < -double(lambd) ? v + double(bias) : v > double(lambd) ? v - double(bias) : 0.0);
      }
    });
  });
  return {};
}

// Bounds are inputs (attributes before version 11), read at the run; an absent one is the type's own.
Status prepare_clip(OpContext& op) {
  BELAY_TRY(op.output(0, op.dtype(0), op.dims(0)));
  for (size_t i = 1; i < 3; ++i)
    if (op.has(i) && op.count(i) != 1)
      return op.bad(std::string(i == 1 ? "min" : "max") + " has the shape " + text_of(op.dims(i)) +
                    ", want a scalar");
  const bool has_low = op.has(1), has_high = op.has(2);
  const float low_attr = op.attr().float_or("min", -std::numeric_limits<float>::infinity());
  const float high_attr = op.attr().float_or("max", std::numeric_limits<float>::infinity());
  dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=, dtype = op.dtype(0), count = op.count(0)](const Run& run) {
      using C = compute_t<T>;
      const C low = has_low ? Compute<T>::load(*run.in<T>(1)) : convert<C>(low_attr);
      const C high = has_high ? Compute<T>::load(*run.in<T>(2)) : convert<C>(high_attr);
      if constexpr (std::is_floating_point_v<C>) {
        FloatUnary{Unary::kClip, dtype, count, low, high}(run);
      } else {
        run.parallel(count, grain_of(0.3), [&](int64_t begin, int64_t end) {
          const T* x = run.in<T>(0);
          T* y = run.out<T>(0);
          for (int64_t i = begin; i < end; ++i) {
            const T raised = x[i] < low ? low : x[i];
            y[i] = raised > high ? high : raised;
          }
        });
      }
    });
  });
  return {};
}

// ---- tests, which give bool
// ------------------------------------------------------------------------------------------

Status prepare_not(OpContext& op) {
  BELAY_TRY(op.output(0, BELAY_DT_BOOL, op.dims(0)));
  op.kernel([count = op.count(0)](const Run& run) {
    run.parallel(count, grain_of(0.1), [&](int64_t begin, int64_t end) {
      const uint8_t* x = run.in<uint8_t>(0);
      uint8_t* y = run.out<uint8_t>(0);
      for (int64_t i = begin; i < end; ++i) y[i] = x[i] == 0;
    });
  });
  return {};
}

Status prepare_bitwise_not(OpContext& op) {
  BELAY_TRY(op.output(0, op.dtype(0), op.dims(0)));
  op.kernel([bytes = op.count(0) * element_bytes(op.dtype(0))](const Run& run) {
    run.parallel(bytes, grain_of(0.1), [&](int64_t begin, int64_t end) {
      const uint8_t* x = run.in<uint8_t>(0);
      uint8_t* y = run.out<uint8_t>(0);
      for (int64_t i = begin; i < end; ++i) y[i] = uint8_t(~x[i]);
    });
  });
  return {};
}

template <class Test>
Status prepare_test(OpContext& op, Test test) {
  BELAY_TRY(op.output(0, BELAY_DT_BOOL, op.dims(0)));
  if (is_small(op.dtype(0))) {
    op.kernel([count = op.count(0), dtype = op.dtype(0), test](const Run& run) {
      run.parallel(count, grain_of(1), [&](int64_t begin, int64_t end) {
        for_blocks(begin, end, [&](int64_t at, int64_t n) {
          float wide[kBlock];
          load_floats(dtype, run.in<void>(0), at, n, wide);
          for (int64_t i = 0; i < n; ++i) run.out<bool>(0)[at + i] = test(wide[i]);
        });
      });
    });
    return {};
  }
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([count = op.count(0), test](const Run& run) {
      run.parallel(count, grain_of(0.5), [&](int64_t begin, int64_t end) {
        const T* x = run.in<T>(0);
        bool* y = run.out<bool>(0);
        for (int64_t i = begin; i < end; ++i) y[i] = test(Compute<T>::load(x[i]));
      });
    });
  });
  return {};
}
Status prepare_is_nan(OpContext& op) {
  return prepare_test(op, [](auto x) { return x != x; });
}
Status prepare_is_inf(OpContext& op) {
  const bool positive = op.attr().int_or("detect_positive", 1) != 0;
  const bool negative = op.attr().int_or("detect_negative", 1) != 0;
  return prepare_test(
      op, [positive, negative](auto x) { return std::isinf(x) && (x > 0 ? positive : negative); });
}

}  // namespace

void add_unary(Registry& registry) {
  const auto floats = [&](std::string_view op, PrepareFn prepare, double cost, std::string_view domain = "") {
    registry.add({.op = op,
                  .prepare = prepare,
                  .types = {kFloats},
                  .in_place = InPlace::kFirst,
                  .domain = domain,
                  .ns_per_byte = cost});
  };
  floats("Ceil", prepare_plain<Unary::kCeil>, 0.05);
  floats("Floor", prepare_plain<Unary::kFloor>, 0.05);
  floats("Round", prepare_plain<Unary::kRound>, 0.05);
  floats("Sqrt", prepare_plain<Unary::kSqrt>, 0.05);
  floats("Reciprocal", prepare_plain<Unary::kReciprocal>, 0.05);
  floats("Exp", prepare_plain<Unary::kExp>, 0.1);
  floats("Log", prepare_plain<Unary::kLog>, 0.1);
  floats("Tanh", prepare_plain<Unary::kTanh>, 0.1);
  floats("Sigmoid", prepare_plain<Unary::kSigmoid>, 0.1);
  floats("Softplus", prepare_plain<Unary::kSoftplus>, 0.1);
  floats("Softsign", prepare_plain<Unary::kSoftsign>, 0.05);
  floats("HardSwish", prepare_plain<Unary::kHardSwish>, 0.05);
  floats("Mish", prepare_plain<Unary::kMish>, 0.1);
  floats("Sin", prepare_plain<Unary::kSin>, 1);
  floats("Cos", prepare_plain<Unary::kCos>, 1);
  floats("Tan", prepare_plain<Unary::kTan>, 1);
  floats("Asin", prepare_plain<Unary::kAsin>, 1);
  floats("Acos", prepare_plain<Unary::kAcos>, 1);
  floats("Atan", prepare_plain<Unary::kAtan>, 1);
  floats("Sinh", prepare_plain<Unary::kSinh>, 1);
  floats("Cosh", prepare_plain<Unary::kCosh>, 1);
  floats("Asinh", prepare_plain<Unary::kAsinh>, 1);
  floats("Acosh", prepare_plain<Unary::kAcosh>, 1);
  floats("Atanh", prepare_plain<Unary::kAtanh>, 1);
  floats("LeakyRelu", prepare_leaky_relu, 0.05);
  floats("Elu", prepare_elu, 0.1);
  floats("Selu", prepare_selu, 0.1);
  floats("Celu", prepare_celu, 0.1);
  floats("HardSigmoid", prepare_hard_sigmoid, 0.05);
  floats("ThresholdedRelu", prepare_thresholded_relu, 0.05);
  floats("Gelu", prepare_gelu, 0.1);
  floats("Gelu", prepare_plain<Unary::kGelu>, 0.1, "com.microsoft");
  floats("Swish", prepare_swish, 0.1);
  floats("QuickGelu", prepare_quick_gelu, 0.1, "com.microsoft");

  registry.add({.op = "Abs",
                .prepare = prepare_number<Unary::kAbs>,
                .types = {kNumeric},
                .in_place = InPlace::kFirst});
  registry.add({.op = "Neg",
                .prepare = prepare_number<Unary::kNeg>,
                .types = {kFloats | kSignedInts},
                .in_place = InPlace::kFirst});
  registry.add({.op = "Sign",
                .prepare = prepare_number<Unary::kSign>,
                .types = {kNumeric},
                .in_place = InPlace::kFirst});
  registry.add({.op = "Relu",
                .prepare = prepare_number<Unary::kRelu>,
                .types = {kFloats | kSignedInts},
                .in_place = InPlace::kFirst});
  registry.add({.op = "Erf",
                .prepare = prepare_number<Unary::kErf>,
                .types = {kNumeric},
                .in_place = InPlace::kFirst,
                .ns_per_byte = 0.1});
  registry.add({.op = "Shrink", .prepare = prepare_shrink, .types = {kNumeric}, .in_place = InPlace::kFirst});
  registry.add({.op = "Clip",
                .prepare = prepare_clip,
                .types = {kNumeric},
                .max_inputs = 3,
                .in_place = InPlace::kFirst});
  registry.add({.op = "Not", .prepare = prepare_not, .types = {kBool}, .in_place = InPlace::kFirst});
  registry.add({.op = "BitwiseNot", .prepare = prepare_bitwise_not, .types = {kInts}, .in_place = InPlace::kFirst});
  registry.add({.op = "IsNaN", .prepare = prepare_is_nan, .types = {kFloats | kFloat8}});
  registry.add({.op = "IsInf", .prepare = prepare_is_inf, .types = {kFloats | kFloat8}});
}

}  // namespace belay::cpu
