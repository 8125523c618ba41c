// Softmax, LogSoftmax and Hardmax along an axis. Definitions before 13 flatten the dims from `axis` on into
// one; where such a node comes as it is, its version tells.
#include "../registry.hpp"
#include "../simd/simd.hpp"
#include "heavy.hpp"

#include <cmath>

namespace belay::cpu {
namespace {

enum class Kind : uint8_t { kSoftmax, kLogSoftmax, kHardmax };

// One run of n values.
void soft_row(Kind kind, const float* x, float* y, int64_t n) {
  const Simd& loops = simd();
  const float most = loops.fold[size_t(Fold::kMax)](x, n);
  if (kind == Kind::kHardmax) {
    bool found = false;
    for (int64_t i = 0; i < n; ++i) {
      const bool here = !found && !(x[i] < most);
      y[i] = here ? 1.0f : 0.0f;
      found = found || here;
    }
    return;
  }
  if (kind == Kind::kLogSoftmax) {
    // x - most first: it is exact where it matters, near the maximum.
    const float rest = float(std::log(loops.sum_exp(x, n, most)));
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - most) - rest;
    return;
  }
  const float sum = loops.exp_sum(x, y, n, 1.0f, most);
  loops.unary[size_t(Unary::kAffine)](y, y, n, 1.0f / sum, 0.0f);
}

// `inner` runs side by side, `step` apart from value to value; x and y may be the same.
void soft_columns(Kind kind, const float* x, float* y, int64_t n, int64_t step, int64_t inner) {
  const Simd& loops = simd();
  constexpr int64_t kPart = 256;
  float most[kPart], sum[kPart];
  for (int64_t at = 0; at < inner; at += kPart) {
    const int64_t width = std::min(kPart, inner - at);
    const float* from = x + at;
    float* to = y + at;
    std::copy(from, from + width, most);
    for (int64_t i = 1; i < n; ++i) loops.fold_into[size_t(Fold::kMax)](most, from + i * step, width);
    if (kind == Kind::kHardmax) {
      std::fill(sum, sum + width, 0.0f);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < width; ++j) {
          const bool here = sum[j] == 0 && !(from[i * step + j] < most[j]);
          to[i * step + j] = here ? 1.0f : 0.0f;
          if (here) sum[j] = 1;
        }
      continue;
    }
    std::fill(sum, sum + width, 0.0f);
    for (int64_t i = 0; i < n; ++i) {
      float* row = to + i * step;
      loops.binary[size_t(Binary::kSub)](from + i * step, 1, most, 1, row, width);
      if (kind == Kind::kSoftmax) {
        loops.unary[size_t(Unary::kExp)](row, row, width, 0, 0);
        loops.fold_into[size_t(Fold::kSum)](sum, row, width);
      } else {
        float exps[kPart];
        loops.unary[size_t(Unary::kExp)](row, exps, width, 0, 0);
        loops.fold_into[size_t(Fold::kSum)](sum, exps, width);
      }
    }
    loops.unary[size_t(kind == Kind::kSoftmax ? Unary::kReciprocal : Unary::kLog)](sum, sum, width, 0, 0);
    const Binary end = kind == Kind::kSoftmax ? Binary::kMul : Binary::kSub;
    for (int64_t i = 0; i < n; ++i) loops.binary[size_t(end)](to + i * step, 1, sum, 1, to + i * step, width);
  }
}

template <class In>
struct SoftmaxKernel {
  Kind kind;
  int64_t outer = 1, n = 1, inner = 1;

  // Other types value by value, 16-bit floats as float, double as double.
  void one(const In* x, In* y) const {
    using T = compute_t<In>;
    T most = Compute<In>::load(x[0]);
    int64_t place = 0;
    for (int64_t i = 1; i < n; ++i) {
      const T value = Compute<In>::load(x[i * inner]);
      if (value > most || (value != value && most == most)) most = value, place = i;
    }
    if (kind == Kind::kHardmax) {
      for (int64_t i = 0; i < n; ++i) y[i * inner] = Compute<In>::store(i == place ? T(1) : T(0));
      return;
    }
    T sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(Compute<In>::load(x[i * inner]) - most);
    const T log_sum = std::log(sum);
    for (int64_t i = 0; i < n; ++i) {
      const T value = Compute<In>::load(x[i * inner]) - most;
      y[i * inner] = Compute<In>::store(kind == Kind::kSoftmax ? std::exp(value) / sum : value - log_sum);
    }
  }

  void operator()(const Run& run) const {
    const In* x = run.in<In>(0);
    In* y = run.out<In>(0);
    if (n == 0) return;
    if constexpr (std::is_same_v<In, float>) {
      run.parallel(outer, grain_of(double(n * inner) * 0.6), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t at = i * n * inner;
          if (inner == 1)
            soft_row(kind, x + at, y + at, n);
          else
            soft_columns(kind, x + at, y + at, n, inner, inner);
        }
      });
    } else {
      run.parallel(outer * inner, grain_of(double(n) * 10), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t at = i / inner * n * inner + i % inner;
          one(x + at, y + at);
        }
      });
    }
  }
};

template <Kind kKind>
Status prepare_softmax(OpContext& context) {
  const Dims& x = context.dims(0);
  const bool flattened = context.version() < 13;
  const int64_t wanted = context.attr().int_or("axis", flattened ? 1 : -1);
  int64_t outer = 1, n = 1, inner = 1;
  if (flattened && wanted == int64_t(x.size())) {
    outer = product(x);  // rows of nothing: each value stands alone
  } else if (x.empty() && (wanted == 0 || wanted == -1)) {
    // A scalar is one run of one value.
  } else {
    BELAY_ASSIGN(const size_t axis, context.axis(wanted, x.size()));
    outer = product(x, 0, axis);
    n = flattened ? product(x, axis, x.size()) : x[axis];
    inner = flattened ? 1 : product(x, axis + 1, x.size());
  }
  BELAY_TRY(context.output(0, context.dtype(0), x));
  context.cost_ns(double(context.count(0)) * 0.6);
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    context.kernel(SoftmaxKernel<typename decltype(tag)::type>{kKind, outer, n, inner});
  });
  return {};
}

}  // namespace

void add_softmax(Registry& registry) {
  const auto def = [](std::string_view op, PrepareFn prepare) {
    return OpDef{
        .op = op, .prepare = prepare, .types = {kFloats}, .in_place = InPlace::kFirst, .ns_per_byte = 0.15};
  };
  registry.add(def("Softmax", prepare_softmax<Kind::kSoftmax>));
  registry.add(def("LogSoftmax", prepare_softmax<Kind::kLogSoftmax>));
  registry.add(def("Hardmax", prepare_softmax<Kind::kHardmax>));
}

}  // namespace belay::cpu
