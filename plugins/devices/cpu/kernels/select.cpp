// Operators that choose: by a condition, the extreme of several tensors, the extreme along an axis.
#include "blocks.hpp"
#include "registry.hpp"

#include <cstring>

namespace belay::cpu {
namespace {

// ---- Where
// -----------------------------------------------------------------------------------------------------------

template <class T>
struct Where {
  int64_t count;
  BlockReader condition, yes, no;
  void operator()(const Run& run) const {
    run.parallel(count, grain_of(0.5), [&](int64_t begin, int64_t end) {
      for_blocks(begin, end, [&](int64_t at, int64_t n) {
        BlockBuffer cb, yb, nb;
        const uint8_t* c = static_cast<const uint8_t*>(condition.read(run.in<void>(0), at, n, cb));
        const T* y = static_cast<const T*>(yes.read(run.in<void>(1), at, n, yb));
        const T* x = static_cast<const T*>(no.read(run.in<void>(2), at, n, nb));
        T* to = run.out<T>(0) + at;
        for (int64_t i = 0; i < n; ++i) to[i] = c[i] ? y[i] : x[i];
      });
    });
  }
};

// A type of the same size that readers do not widen.
uint32_t raw_type(uint32_t dtype) { return is_16bit_float(dtype) ? BELAY_DT_UINT16 : dtype; }

Status prepare_where(OpContext& op) {
  const Dims* shapes[] = {&op.dims(0), &op.dims(1), &op.dims(2)};
  const auto out = broadcast(shapes);
  if (!out)
    return op.bad("shapes " + text_of(op.dims(0)) + ", " + text_of(op.dims(1)) + " and " +
                  text_of(op.dims(2)) + " do not broadcast");
  if (op.dtype(1) != op.dtype(2)) return op.bad("X and Y are of different types");
  BELAY_TRY(op.output(0, op.dtype(1), *out));
  const uint32_t raw = raw_type(op.dtype(1));
  dispatch_bytes(element_bytes(raw), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel(Where<T>{product(*out), BlockReader(BELAY_DT_BOOL, op.dims(0), *out),
                       BlockReader(raw, op.dims(1), *out), BlockReader(raw, op.dims(2), *out)});
  });
  return {};
}

// ---- Max, Min, Sum, Mean of any number of tensors
// --------------------------------------------------------------------

enum class Many : uint8_t { kMax, kMin, kSum, kMean };

// to[i] = to[i] op from[i], in the type of computation.
using Join = void (*)(void* to, const void* from, int64_t n);

template <Many kOp, class C>
void join(void* to_bytes, const void* from_bytes, int64_t n) {
  C* to = static_cast<C*>(to_bytes);
  const C* from = static_cast<const C*>(from_bytes);
  if constexpr (std::is_same_v<C, float>) {
    constexpr Binary kBinary = kOp == Many::kMax   ? Binary::kMax
                               : kOp == Many::kMin ? Binary::kMin
                                                   : Binary::kAdd;
    simd().binary[size_t(kBinary)](to, 1, from, 1, to, n);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kOp == Many::kMax)
        to[i] = to[i] > from[i] || to[i] != to[i] ? to[i] : from[i];
      else if constexpr (kOp == Many::kMin)
        to[i] = to[i] < from[i] || to[i] != to[i] ? to[i] : from[i];
      else
        to[i] = to[i] + from[i];
    }
  }
}

// All operands are read before the block of the output is written, so any of them that has the output's shape
// may share its memory.
struct ManyKernel {
  int64_t count;
  uint32_t dtype;
  Join join;
  bool mean;
  std::vector<BlockReader> readers;

  void operator()(const Run& run) const {
    const bool narrows = is_16bit_float(dtype);
    const int64_t bytes = narrows ? 4 : element_bytes(dtype);
    run.parallel(count, grain_of(0.3 * double(readers.size())), [&](int64_t begin, int64_t end) {
      for_blocks(begin, end, [&](int64_t at, int64_t n) {
        BlockBuffer buffer, total;
        for (size_t k = 0; k < readers.size(); ++k) {
          const void* from = readers[k].read(run.in<void>(k), at, n, buffer);
          if (k == 0)
            std::memcpy(total.bytes, from, size_t(n * bytes));
          else
            join(total.bytes, from, n);
        }
        if (mean) divide(total, n);
        char* to = run.out<char>(0) + at * element_bytes(dtype);
        if (narrows)
          narrow(dtype, reinterpret_cast<const float*>(total.bytes), to, n);
        else
          std::memcpy(to, total.bytes, size_t(n * bytes));
      });
    });
  }
  void divide(BlockBuffer& total, int64_t n) const {
    if (dtype == BELAY_DT_FLOAT64)
      for (int64_t i = 0; i < n; ++i) reinterpret_cast<double*>(total.bytes)[i] /= double(readers.size());
    else
      for (int64_t i = 0; i < n; ++i) reinterpret_cast<float*>(total.bytes)[i] /= float(readers.size());
  }
};

template <Many kOp>
Status prepare_many(OpContext& op) {
  std::vector<const Dims*> shapes;
  for (size_t i = 0; i < op.inputs(); ++i) {
    if (!op.has(i)) return op.bad("input " + std::to_string(i) + " is missing");
    if (op.dtype(i) != op.dtype(0))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) +
                    ", input 0 of " + std::string(dtype_name(op.dtype(0))));
    shapes.push_back(&op.dims(i));
  }
  const auto out = broadcast(shapes);
  if (!out) return op.bad("the shapes of the inputs do not broadcast");
  BELAY_TRY(op.output(0, op.dtype(0), *out));
  constexpr TypeMask kTypes = kOp == Many::kMax || kOp == Many::kMin ? kNumeric : kFloats;
  ManyKernel kernel{product(*out), op.dtype(0), nullptr, kOp == Many::kMean, {}};
  dispatch<kTypes>(op.dtype(0),
                   [&](auto tag) { kernel.join = join<kOp, compute_t<typename decltype(tag)::type>>; });
  for (const Dims* shape : shapes) kernel.readers.emplace_back(op.dtype(0), *shape, *out);
  op.kernel(std::move(kernel), simd().name);
  return {};
}

// ---- ArgMax, ArgMin
// --------------------------------------------------------------------------------------------------

template <bool kMost>
Status prepare_arg(OpContext& op) {
  const Dims& in = op.dims(0);
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", 0), in.size()));
  if (in[axis] == 0)
    return op.bad("input of shape " + text_of(in) + " has no element along axis " + std::to_string(axis));
  Dims out = in;
  if (op.attr().int_or("keepdims", 1))
    out[axis] = 1;
  else
    out.erase(out.begin() + ptrdiff_t(axis));
  BELAY_TRY(op.output(0, BELAY_DT_INT64, out));
  const bool last = op.attr().int_or("select_last_index", 0) != 0;
  const int64_t dim = in[axis], inner = product(in, axis + 1, in.size()), lines = product(out);
  dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=](const Run& run) {
      run.parallel(lines, grain_of(double(dim)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T* x = run.in<T>(0) + i / inner * dim * inner + i % inner;
          compute_t<T> best = Compute<T>::load(x[0]);
          int64_t at = 0;
          // The first NaN wins, as in numpy.
          for (int64_t d = 1; d < dim && best == best; ++d) {
            const compute_t<T> value = Compute<T>::load(x[d * inner]);
            if (value != value || (kMost ? value > best : value < best) || (last && value == best))
              best = value, at = d;
          }
          run.out<int64_t>(0)[i] = at;
        }
      });
    });
  });
  return {};
}

}  // namespace

void add_select(Registry& registry) {
  registry.add({.op = "Where",
                .prepare = prepare_where,
                .types = {kBool, kMovable},
                .min_inputs = 3,
                .max_inputs = 3});
  registry.add({.op = "Max",
                .prepare = prepare_many<Many::kMax>,
                .types = {kNumeric},
                .max_inputs = 255,
                .in_place = InPlace::kElementwise});
  registry.add({.op = "Min",
                .prepare = prepare_many<Many::kMin>,
                .types = {kNumeric},
                .max_inputs = 255,
                .in_place = InPlace::kElementwise});
  registry.add({.op = "Sum",
                .prepare = prepare_many<Many::kSum>,
                .types = {kFloats},
                .max_inputs = 255,
                .in_place = InPlace::kElementwise});
  registry.add({.op = "Mean",
                .prepare = prepare_many<Many::kMean>,
                .types = {kFloats},
                .max_inputs = 255,
                .in_place = InPlace::kElementwise});
  registry.add({.op = "ArgMax", .prepare = prepare_arg<true>, .types = {kNumeric}});
  registry.add({.op = "ArgMin", .prepare = prepare_arg<false>, .types = {kNumeric}});
}

}  // namespace belay::cpu
