// RMSNormalization, and SimplifiedLayerNormalization, as exporters called it before it was in ONNX.
#include "rms_norm.hpp"

#include "../convert.hpp"
#include "../registry.hpp"
#include "heavy.hpp"
#include "matmul.hpp"

namespace belay::cpu {
namespace {

// Elements of any float type as T, and back.
template <class T>
void read_row(uint32_t dtype, const void* from, int64_t at, int64_t n, T* to) {
  dispatch<kFloats>(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    const In* x = static_cast<const In*>(from) + at;
    if constexpr (std::is_same_v<T, float> && sizeof(In) == 2)
      widen(dtype, x, to, n);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = T(Compute<In>::load(x[i]));
  });
}
template <class T>
void write_row(uint32_t dtype, const T* from, void* to, int64_t at, int64_t n) {
  dispatch<kFloats>(dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    Out* y = static_cast<Out*>(to) + at;
    if constexpr (std::is_same_v<T, float> && sizeof(Out) == 2)
      narrow(dtype, from, y, n);
    else
      for (int64_t i = 0; i < n; ++i) y[i] = Compute<Out>::store(compute_t<Out>(from[i]));
  });
}

// Rows of n values, times a scale that broadcasts to the input. Computed as float, or as double where one type is that.
struct RmsNorm {
  uint32_t in_type = BELAY_DT_FLOAT32, out_type = BELAY_DT_FLOAT32, stash = BELAY_DT_FLOAT32;  // out_type: of the scale too
  int64_t rows = 0, n = 0, scales = 0;  // scales: elements of the scale
  double epsilon = 1e-5;
  Dims outer, outer_steps;  // of the rows, and of the scale over them
  Dims places;              // of the scale's elements along a row; empty: side by side

  template <class T>
  void run_rows(const Run& run) const {
    constexpr uint32_t kType = std::is_same_v<T, float> ? BELAY_DT_FLOAT32 : BELAY_DT_FLOAT64;
    const T* scale = run.in<T>(1);
    if (out_type != kType) {
      T* const to = run.scratch<T>(size_t(scales));
      read_row(out_type, run.in<void>(1), 0, scales, to);
      scale = to;
    }
    const bool direct = in_type == kType && out_type == kType;
    T* const memory = run.scratch<T>(size_t(2 * n * run.max_parts()));
    run.parallel(rows, grain_of(double(n) * 0.4 + 30), [&](int64_t begin, int64_t end, int64_t part) {
      T *const row = memory + 2 * n * part, *const factors = row + n;
      for (int64_t i = begin; i < end; ++i) {
        const T* by = scale + matrix_at(outer, outer_steps, i);
        if (!places.empty()) {
          for (int64_t j = 0; j < n; ++j) factors[j] = by[places[size_t(j)]];
          by = factors;
        }
        const T* x = run.in<T>(0) + i * n;
        T* const y = direct ? run.out<T>(0) + i * n : row;
        if (!direct) read_row(in_type, run.in<void>(0), i * n, n, row), x = row;
        const T inverse = normalise_by_root(x, y, n, T(epsilon), by);
        if (!direct) write_row(out_type, y, run.out<void>(0), i * n, n);
        if (void* to = run.out<void>(1)) write_row(stash, &inverse, to, i, 1);
      }
    });
  }
  void operator()(const Run& run) const {
    if (n == 0) return;
    if (in_type == BELAY_DT_FLOAT64 || out_type == BELAY_DT_FLOAT64)
      run_rows<double>(run);
    else
      run_rows<float>(run);
  }
};

Status prepare_rms_norm(OpContext& op) {
  const Dims& x = op.dims(0);
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", -1), x.size()));
  const Dims& scale = op.dims(1);
  const Dims* const both[] = {&scale, &x};
  if (scale.size() > x.size() || broadcast(both) != x)
    return op.bad("scale has the shape " + text_of(scale) + ", which does not broadcast to the input's, " + text_of(x));
  const int64_t stash = op.attr().int_or("stash_type", BELAY_DT_FLOAT32);
  if (!(kFloats & type_bit(uint32_t(stash))))
    return op.bad("attribute stash_type is " + std::to_string(stash) + ", want a float type");
  RmsNorm kernel;
  kernel.in_type = op.dtype(0), kernel.out_type = op.dtype(1), kernel.stash = uint32_t(stash);
  kernel.rows = product(x, 0, axis), kernel.n = product(x, axis, x.size()), kernel.scales = op.count(1);
  kernel.epsilon = double(op.attr().float_or("epsilon", 1e-5f));
  const Dims steps = broadcast_strides(scale, x), dense = dense_strides(x);
  const Dims inner(x.begin() + int64_t(axis), x.end()), inner_steps(steps.begin() + int64_t(axis), steps.end());
  kernel.outer.assign(x.begin(), x.begin() + int64_t(axis));
  kernel.outer_steps.assign(steps.begin(), steps.begin() + int64_t(axis));
  bool beside = true;
  for (size_t d = axis; d < x.size(); ++d) beside = beside && (x[d] == 1 || steps[d] == dense[d]);
  for (int64_t i = 0; !beside && i < kernel.n; ++i) kernel.places.push_back(matrix_at(inner, inner_steps, i));
  Dims stats = x;
  std::fill(stats.begin() + int64_t(axis), stats.end(), 1);
  BELAY_TRY(op.output(0, op.dtype(1), x));
  BELAY_TRY(op.output(1, uint32_t(stash), stats));
  op.cost_ns(double(op.count(0)) * 0.4);
  op.kernel(std::move(kernel), simd().name);
  return {};
}

}  // namespace

void add_rms_norm(Registry& registry) {
  for (const char* name : {"RMSNormalization", "SimplifiedLayerNormalization"})
    registry.add(OpDef{.op = name,
                       .prepare = prepare_rms_norm,
                       .types = {kFloats, kFloats},
                       .min_inputs = 2,
                       .max_inputs = 2,
                       .max_outputs = 2,
                       .in_place = InPlace::kFirst,
                       .ns_per_byte = 0.15});
}

}  // namespace belay::cpu
