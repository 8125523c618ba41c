// Operators that choose: by a condition, the extreme of several tensors or along an axis, the first k, the non-zero.
#include "blocks.hpp"
#include "registry.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace belay::cpu {
namespace {

// ---- Where -----------------------------------------------------------------------------------------------------------

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
    return op.bad("shapes " + text_of(op.dims(0)) + ", " + text_of(op.dims(1)) + " and " + text_of(op.dims(2)) +
                  " do not broadcast");
  if (op.dtype(1) != op.dtype(2)) return op.bad("X and Y are of different types");
  BELAY_TRY(op.output(0, op.dtype(1), *out));
  const uint32_t raw = raw_type(op.dtype(1));
  dispatch_bytes(element_bytes(raw), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel(Where<T>{product(*out), BlockReader(BELAY_DT_BOOL, op.dims(0), *out), BlockReader(raw, op.dims(1), *out),
                       BlockReader(raw, op.dims(2), *out)});
  });
  return {};
}

// ---- Max, Min, Sum, Mean of any number of tensors --------------------------------------------------------------------

enum class Many : uint8_t { kMax, kMin, kSum, kMean };

template <Many kOp, class C>
void join(C* to, const C* from, int64_t n) {
  if constexpr (std::is_same_v<C, float>) {
    constexpr Binary kBinary = kOp == Many::kMax ? Binary::kMax : kOp == Many::kMin ? Binary::kMin : Binary::kAdd;
    simd().binary[size_t(kBinary)](to, 1, from, 1, to, n);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kOp == Many::kMax) to[i] = to[i] > from[i] || to[i] != to[i] ? to[i] : from[i];
      else if constexpr (kOp == Many::kMin) to[i] = to[i] < from[i] || to[i] != to[i] ? to[i] : from[i];
      else to[i] = to[i] + from[i];
    }
  }
}

// All operands are read before the block of the output is written, so any of them that has the output's shape may share its
// memory.
template <Many kOp, class T>
struct ManyKernel {
  int64_t count;
  uint32_t dtype;
  std::vector<BlockReader> readers;
  using C = compute_t<T>;

  void operator()(const Run& run) const {
    run.parallel(count, grain_of(0.3 * double(readers.size())), [&](int64_t begin, int64_t end) {
      for_blocks(begin, end, [&](int64_t at, int64_t n) {
        BlockBuffer buffer;
        alignas(64) C total[kBlock];
        for (size_t k = 0; k < readers.size(); ++k) {
          const C* from = static_cast<const C*>(readers[k].read(run.in<void>(k), at, n, buffer));
          if (k == 0) std::memcpy(total, from, size_t(n) * sizeof(C));
          else join<kOp, C>(total, from, n);
        }
        if constexpr (kOp == Many::kMean)
          for (int64_t i = 0; i < n; ++i) total[i] = total[i] / C(readers.size());
        if constexpr (std::is_same_v<C, T>) std::memcpy(run.out<T>(0) + at, total, size_t(n) * sizeof(T));
        else narrow(dtype, total, run.out<T>(0) + at, n);
      });
    });
  }
};

template <Many kOp>
Status prepare_many(OpContext& op) {
  std::vector<const Dims*> shapes;
  for (size_t i = 0; i < op.inputs(); ++i) {
    if (!op.has(i)) return op.bad("input " + std::to_string(i) + " is missing");
    if (op.dtype(i) != op.dtype(0))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) + ", input 0 of " +
                    std::string(dtype_name(op.dtype(0))));
    shapes.push_back(&op.dims(i));
  }
  const auto out = broadcast(shapes);
  if (!out) return op.bad("the shapes of the inputs do not broadcast");
  BELAY_TRY(op.output(0, op.dtype(0), *out));
  constexpr TypeMask kTypes = kOp == Many::kMax || kOp == Many::kMin ? kNumeric : kFloats;
  dispatch<kTypes>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ManyKernel<kOp, T> kernel{product(*out), op.dtype(0), {}};
    for (const Dims* shape : shapes) kernel.readers.emplace_back(op.dtype(0), *shape, *out);
    op.kernel(std::move(kernel), simd().name);
  });
  return {};
}

// ---- ArgMax, ArgMin --------------------------------------------------------------------------------------------------

template <bool kMost>
Status prepare_arg(OpContext& op) {
  const Dims& in = op.dims(0);
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", 0), in.size()));
  if (in[axis] == 0) return op.bad("input of shape " + text_of(in) + " has no element along axis " + std::to_string(axis));
  Dims out = in;
  if (op.attr().int_or("keepdims", 1)) out[axis] = 1;
  else out.erase(out.begin() + ptrdiff_t(axis));
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
            if (value != value || (kMost ? value > best : value < best) || (last && value == best)) best = value, at = d;
          }
          run.out<int64_t>(0)[i] = at;
        }
      });
    });
  });
  return {};
}

// ---- TopK ------------------------------------------------------------------------------------------------------------

// Of equal elements the one with the lower index comes first; NaN counts as larger than all.
Status prepare_top_k(OpContext& op) {
  const Dims& in = op.dims(0);
  int64_t k = op.attr().int_or("k", -1);
  if (op.has(1)) {
    BELAY_ASSIGN(const std::vector<int64_t> given, op.ints(1));
    if (given.size() != 1) return op.bad("K has the shape " + text_of(op.dims(1)) + ", want [1]");
    k = given[0];
  }
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", -1), in.size()));
  const int64_t dim = in[axis];
  if (k < 0 || k > dim) return op.bad("K is " + std::to_string(k) + ", want 0 to " + std::to_string(dim));
  if (dim > INT32_MAX) return op.bad("axis " + std::to_string(axis) + " has " + std::to_string(dim) + " elements, want less than 2^31", Code::kUnimplemented);
  Dims out = in;
  out[axis] = k;
  BELAY_TRY(op.output(0, op.dtype(0), out));
  BELAY_TRY(op.output(1, BELAY_DT_INT64, out));
  const bool largest = op.attr().int_or("largest", 1) != 0;
  const int64_t inner = product(in, axis + 1, in.size()), lines = product(in, 0, axis) * inner;
  dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=](const Run& run) {
      if (k == 0 || lines == 0) return;
      int32_t* all = run.scratch<int32_t>(size_t(dim * run.max_parts()));
      run.parallel(lines, grain_of(double(dim) * 5), [&](int64_t begin, int64_t end, int64_t part) {
        int32_t* order = all + part * dim;
        for (int64_t i = begin; i < end; ++i) {
          const T* x = run.in<T>(0) + i / inner * dim * inner + i % inner;
          const auto before = [&](int32_t a, int32_t b) {
            const auto p = Compute<T>::load(x[a * inner]), q = Compute<T>::load(x[b * inner]);
            const bool p_nan = p != p, q_nan = q != q;
            if (p_nan != q_nan) return largest ? p_nan : q_nan;
            if (!p_nan && p != q) return largest ? p > q : p < q;
            return a < b;
          };
          std::iota(order, order + dim, 0);
          std::partial_sort(order, order + k, order + dim, before);
          const int64_t to = i / inner * k * inner + i % inner;
          for (int64_t j = 0; j < k; ++j) {
            if (T* values = run.out<T>(0)) values[to + j * inner] = x[order[j] * inner];
            if (int64_t* indices = run.out<int64_t>(1)) indices[to + j * inner] = order[j];
          }
        }
      });
    });
  });
  return {};
}

// ---- NonZero, Compress -----------------------------------------------------------------------------------------------

Status prepare_non_zero(OpContext& op) {
  BELAY_TRY(op.output_dynamic(0, BELAY_DT_INT64));
  const Dims dims = op.dims(0).empty() ? Dims{1} : op.dims(0);  // a scalar counts as one element of a vector
  dispatch<kNumeric | kBool>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([dims, total = op.count(0)](const Run& run) {
      const T* x = run.in<T>(0);
      const auto set = [&](int64_t i) { return Compute<T>::load(x[i]) != compute_t<T>(0); };
      int64_t count = 0;
      for (int64_t i = 0; i < total; ++i) count += set(i);
      int64_t* out = static_cast<int64_t*>(run.resize(0, {int64_t(dims.size()), count}));
      if (!out) return belay_status(BELAY_RESOURCE_EXHAUSTED);
      for (int64_t i = 0, at = 0; at < count; ++i) {
        if (!set(i)) continue;
        int64_t rest = i;
        for (size_t d = dims.size(); d-- > 0; rest /= dims[d]) out[int64_t(d) * count + at] = rest % dims[d];
        ++at;
      }
      return belay_status(BELAY_OK);
    });
  });
  return {};
}

Status prepare_compress(OpContext& op) {
  if (op.rank(1) != 1) return op.bad("condition has the shape " + text_of(op.dims(1)) + ", want rank 1");
  const bool flat = !op.attr().has("axis");
  Dims in = op.dims(0);
  size_t axis = 0;
  if (flat) {
    in = {op.count(0)};
  } else {
    BELAY_ASSIGN(axis, op.axis(op.attr().int_or("axis", 0), in.size()));
  }
  if (op.dims(1)[0] > in[axis])
    return op.bad("condition has " + std::to_string(op.dims(1)[0]) + " elements, want at most " + std::to_string(in[axis]));
  BELAY_TRY(op.output_dynamic(0, op.dtype(0)));
  const int64_t run_bytes = product(in, axis + 1, in.size()) * element_bytes(op.dtype(0));
  op.kernel([in, axis, run_bytes, length = op.dims(1)[0]](const Run& run) {
    const uint8_t* condition = run.in<uint8_t>(1);
    Dims out = in;
    out[axis] = std::count_if(condition, condition + length, [](uint8_t c) { return c != 0; });
    char* to = static_cast<char*>(run.resize(0, out));
    if (!to) return belay_status(BELAY_RESOURCE_EXHAUSTED);
    for (int64_t o = 0; o < product(in, 0, axis); ++o)
      for (int64_t i = 0; i < length; ++i) {
        if (!condition[i]) continue;
        std::memcpy(to, run.in<char>(0) + (o * in[axis] + i) * run_bytes, size_t(run_bytes));
        to += run_bytes;
      }
    return belay_status(BELAY_OK);
  });
  return {};
}

// ---- Unique ----------------------------------------------------------------------------------------------------------

// Slices along an axis (or elements of the flattened tensor) that differ from each other, with where each was first, which
// one each is, and how often it came.
template <class T>
struct Unique {
  Dims in;  // with `axis` the one of interest
  size_t axis;
  bool sorted;
  std::array<bool, 4> wanted;

  int compare(const T* x, int64_t a, int64_t b) const {
    const int64_t outer = product(in, 0, axis), dim = in[axis], inner = product(in, axis + 1, in.size());
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        const auto p = Compute<T>::load(x[(o * dim + a) * inner + i]), q = Compute<T>::load(x[(o * dim + b) * inner + i]);
        if (p < q) return -1;
        if (q < p) return 1;
        if ((p != p) != (q != q)) return p != p ? 1 : -1;  // NaN comes last; two NaN are the same
      }
    return 0;
  }

  belay_status operator()(const Run& run) const {
    const T* x = run.in<T>(0);
    const int64_t dim = in[axis], outer = product(in, 0, axis), inner = product(in, axis + 1, in.size());
    std::vector<int64_t> order(static_cast<size_t>(dim));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(x, a, b) < 0; });
    std::vector<int64_t> first, counts, group(static_cast<size_t>(dim));
    for (int64_t k = 0; k < dim; ++k) {
      if (k == 0 || compare(x, order[size_t(k - 1)], order[size_t(k)]) != 0) first.push_back(order[size_t(k)]), counts.push_back(0);
      ++counts.back();
      group[size_t(order[size_t(k)])] = int64_t(first.size()) - 1;
    }
    // In the order of first appearance where the sorted one is not wanted.
    std::vector<int64_t> rank(first.size()), place(first.size());
    std::iota(rank.begin(), rank.end(), 0);
    if (!sorted) std::sort(rank.begin(), rank.end(), [&](int64_t a, int64_t b) { return first[size_t(a)] < first[size_t(b)]; });
    for (size_t k = 0; k < rank.size(); ++k) place[size_t(rank[k])] = int64_t(k);

    const int64_t count = int64_t(first.size());
    Dims out = in;
    out[axis] = count;
    const auto give = [&](size_t o, const Dims& dims) { return wanted[o] ? run.resize(o, dims) : nullptr; };
    if (T* to = static_cast<T*>(give(0, out)))
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t k = 0; k < count; ++k)
          std::memcpy(to + (o * count + k) * inner, x + (o * dim + first[size_t(rank[size_t(k)])]) * inner, size_t(inner) * sizeof(T));
    if (int64_t* to = static_cast<int64_t*>(give(1, {count})))
      for (int64_t k = 0; k < count; ++k) to[k] = first[size_t(rank[size_t(k)])];
    if (int64_t* to = static_cast<int64_t*>(give(2, {dim})))
      for (int64_t k = 0; k < dim; ++k) to[k] = place[size_t(group[size_t(k)])];
    if (int64_t* to = static_cast<int64_t*>(give(3, {count})))
      for (int64_t k = 0; k < count; ++k) to[k] = counts[size_t(rank[size_t(k)])];
    return BELAY_OK;
  }
};

Status prepare_unique(OpContext& op) {
  const bool flat = !op.attr().has("axis");
  Dims in = op.dims(0);
  size_t axis = 0;
  if (flat) {
    in = {op.count(0)};
  } else {
    BELAY_ASSIGN(axis, op.axis(op.attr().int_or("axis", 0), in.size()));
  }
  BELAY_TRY(op.output_dynamic(0, op.dtype(0)));
  for (size_t o = 1; o < 4; ++o) BELAY_TRY(op.output_dynamic(o, BELAY_DT_INT64));
  dispatch<kNumeric | kBool>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel(Unique<T>{in, axis, op.attr().int_or("sorted", 1) != 0,
                        {op.wants(0), op.wants(1), op.wants(2), op.wants(3)}});
  });
  return {};
}

// ---- CumSum ----------------------------------------------------------------------------------------------------------

Status prepare_cum_sum(OpContext& op) {
  const Dims& in = op.dims(0);
  BELAY_ASSIGN(const std::vector<int64_t> given, op.ints(1));
  if (given.size() != 1) return op.bad("axis has the shape " + text_of(op.dims(1)) + ", want a scalar");
  BELAY_ASSIGN(const size_t axis, op.axis(given[0], in.size()));
  BELAY_TRY(op.output(0, op.dtype(0), in));
  const bool exclusive = op.attr().int_or("exclusive", 0) != 0, reverse = op.attr().int_or("reverse", 0) != 0;
  const int64_t dim = in[axis], inner = product(in, axis + 1, in.size()), lines = product(in, 0, axis) * inner;
  dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    using Sum = std::conditional_t<std::is_integral_v<C>, uint64_t, C>;
    op.kernel([=](const Run& run) {
      run.parallel(lines, grain_of(double(dim)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t base = i / inner * dim * inner + i % inner;
          Sum total = 0;
          for (int64_t d = 0; d < dim; ++d) {
            const int64_t at = base + (reverse ? dim - 1 - d : d) * inner;
            const Sum next = total + Sum(Compute<T>::load(run.in<T>(0)[at]));
            run.out<T>(0)[at] = Compute<T>::store(C(exclusive ? total : next));
            total = next;
          }
        }
      });
    });
  });
  return {};
}

}  // namespace

void add_select(Registry& registry) {
  registry.add({.op = "Where", .prepare = prepare_where, .types = {kBool, kMovable}, .min_inputs = 3, .max_inputs = 3});
  registry.add({.op = "Max", .prepare = prepare_many<Many::kMax>, .types = {kNumeric}, .max_inputs = 255,
                .in_place = InPlace::kElementwise});
  registry.add({.op = "Min", .prepare = prepare_many<Many::kMin>, .types = {kNumeric}, .max_inputs = 255,
                .in_place = InPlace::kElementwise});
  registry.add({.op = "Sum", .prepare = prepare_many<Many::kSum>, .types = {kFloats}, .max_inputs = 255,
                .in_place = InPlace::kElementwise});
  registry.add({.op = "Mean", .prepare = prepare_many<Many::kMean>, .types = {kFloats}, .max_inputs = 255,
                .in_place = InPlace::kElementwise});
  registry.add({.op = "ArgMax", .prepare = prepare_arg<true>, .types = {kNumeric}});
  registry.add({.op = "ArgMin", .prepare = prepare_arg<false>, .types = {kNumeric}});
  registry.add({.op = "TopK", .prepare = prepare_top_k, .types = {kNumeric, kI64}, .max_inputs = 2, .max_outputs = 2,
                .host_inputs = 2, .ns_per_byte = 2});
  registry.add({.op = "NonZero", .prepare = prepare_non_zero, .types = {kNumeric | kBool}});
  registry.add({.op = "Compress", .prepare = prepare_compress, .types = {kMovable, kBool}, .min_inputs = 2, .max_inputs = 2});
  registry.add({.op = "Unique", .prepare = prepare_unique, .types = {kNumeric | kBool}, .max_outputs = 4, .ns_per_byte = 5});
  registry.add({.op = "CumSum", .prepare = prepare_cum_sum, .types = {kNumeric, kIndex}, .min_inputs = 2, .max_inputs = 2,
                .in_place = InPlace::kFirst, .host_inputs = 2});
}

}  // namespace belay::cpu
