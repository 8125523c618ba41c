// Operators that order, count or pick elements: TopK, Unique, NonZero, Compress, CumSum, CumProd.
#include "convert.hpp"
#include "registry.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace belay::cpu {
namespace {

// An unsigned number that is ordered as the value is, so that sorting is compiled once for all types. Both
// zeros are one number; NaN is above everything.
template <class T>
uint64_t order_key(T element) {
  const auto x = Compute<T>::load(element);
  using C = compute_t<T>;
  if constexpr (std::is_floating_point_v<C>) {
    if (x != x) return UINT64_MAX;
    const uint64_t bits = std::bit_cast<uint64_t>(double(x) + 0.0);
    return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
  } else if constexpr (std::is_signed_v<C>) {
    return uint64_t(int64_t(x)) ^ uint64_t { 1 } << 63;
  } else {
    return uint64_t(x);
  }
}

// Keys of n elements that are `step` apart.
using ReadKeys = void (*)(const void* from, int64_t step, uint64_t* keys, int64_t n);
ReadKeys key_reader(uint32_t dtype) {
  ReadKeys reader = nullptr;
  dispatch<kNumeric | kBool>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    reader = [](const void* from, int64_t step, uint64_t* keys, int64_t n) {
      for (int64_t i = 0; i < n; ++i) keys[i] = order_key(static_cast<const T*>(from)[i * step]);
    };
  });
  return reader;
}

// ---- TopK
// ------------------------------------------------------------------------------------------------------------

// Of equal elements the one with the lower index comes first; NaN counts as larger than all.
struct TopK {
  ReadKeys read;
  int64_t k, dim, inner, lines, bytes;
  bool largest;
  struct Entry {
    uint64_t key;
    int64_t index;
  };

  void operator()(const Run& run) const {
    if (k == 0 || lines == 0) return;
    Entry* entries = run.scratch<Entry>(size_t(dim * run.max_parts()));
    uint64_t* keys = run.scratch<uint64_t>(size_t(dim * run.max_parts()));
    run.parallel(lines, grain_of(double(dim) * 5), [&](int64_t begin, int64_t end, int64_t part) {
      for (int64_t i = begin; i < end; ++i) line(run, i, entries + part * dim, keys + part * dim);
    });
  }
  void line(const Run& run, int64_t i, Entry* entries, uint64_t* keys) const {
    const char* x = run.in<char>(0) + (i / inner * dim * inner + i % inner) * bytes;
    read(x, inner, keys, dim);
    for (int64_t d = 0; d < dim; ++d) entries[d] = {largest ? ~keys[d] : keys[d], d};
    const auto before = [](const Entry& a, const Entry& b) {
      return a.key != b.key ? a.key < b.key : a.index < b.index;
    };
    if (k < dim) std::nth_element(entries, entries + k, entries + dim, before);
    std::sort(entries, entries + k, before);
    const int64_t to = i / inner * k * inner + i % inner;
    for (int64_t j = 0; j < k; ++j) {
      if (char* values = run.out<char>(0))
        std::memcpy(values + (to + j * inner) * bytes, x + entries[j].index * inner * bytes, size_t(bytes));
      if (int64_t* indices = run.out<int64_t>(1)) indices[to + j * inner] = entries[j].index;
    }
  }
};

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
  Dims out = in;
  out[axis] = k;
  BELAY_TRY(op.output(0, op.dtype(0), out));
  BELAY_TRY(op.output(1, BELAY_DT_INT64, out));
  const int64_t inner = product(in, axis + 1, in.size());
  op.kernel(TopK{key_reader(op.dtype(0)), k, dim, inner, product(in, 0, axis) * inner,
                 element_bytes(op.dtype(0)), op.attr().int_or("largest", 1) != 0});
  return {};
}

// ---- NonZero, Compress
// -----------------------------------------------------------------------------------------------

Status prepare_non_zero(OpContext& op) {
  BELAY_TRY(op.output_dynamic(0, BELAY_DT_INT64));
  const Dims dims = op.dims(0);  // of a scalar no index is given, only how many times it is set: [0, 0] or [0, 1]
  dispatch<kNumeric | kBool | kComplex>(op.dtype(0), [&](auto tag) {
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
    return op.bad("condition has " + std::to_string(op.dims(1)[0]) + " elements, want at most " +
                  std::to_string(in[axis]));
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

// ---- Unique
// ----------------------------------------------------------------------------------------------------------

// Slices along an axis (or elements of the flattened tensor) that differ from each other, with where each was
// first, which one each is, and how often it came. All NaN are the same.
struct Unique {
  ReadKeys read;
  Dims in;  // with `axis` the one of interest
  size_t axis;
  int64_t parts;  // keys of an element
  int64_t bytes;  // of an element
  bool sorted;
  std::array<bool, 4> wanted;

  belay_status operator()(const Run& run) const {
    const int64_t dim = in[axis], outer = product(in, 0, axis), items = product(in, axis + 1, in.size()),
                  inner = items * parts;
    std::vector<uint64_t> keys(size_t(outer * dim * inner));
    read(run.in<void>(0), 1, keys.data(), int64_t(keys.size()));
    const auto compare = [&](int64_t a, int64_t b) {
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const uint64_t p = keys[size_t((o * dim + a) * inner + i)],
                         q = keys[size_t((o * dim + b) * inner + i)];
          if (p != q) return p < q ? -1 : 1;
        }
      return 0;
    };
    std::vector<int64_t> order(static_cast<size_t>(dim)), group(static_cast<size_t>(dim)), first, counts;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
    for (size_t k = 0; k < order.size(); ++k) {
      if (k == 0 || compare(order[k - 1], order[k]) != 0) first.push_back(order[k]), counts.push_back(0);
      ++counts.back();
      group[size_t(order[k])] = int64_t(first.size()) - 1;
    }
    // In the order of first appearance where the sorted one is not wanted.
    std::vector<int64_t> rank(first.size()), place(first.size());
    std::iota(rank.begin(), rank.end(), 0);
    if (!sorted)
      std::sort(rank.begin(), rank.end(),
                [&](int64_t a, int64_t b) { return first[size_t(a)] < first[size_t(b)]; });
    for (size_t k = 0; k < rank.size(); ++k) place[size_t(rank[k])] = int64_t(k);

    const int64_t count = int64_t(first.size()), slice = items * bytes;
    Dims out = in;
    out[axis] = count;
    const Dims shapes[] = {out, {count}, {dim}, {count}};
    std::array<void*, 4> to{};
    for (size_t o = 0; o < 4; ++o) {
      if (!wanted[o]) continue;
      to[o] = run.resize(o, shapes[o]);
      if (!to[o]) return BELAY_RESOURCE_EXHAUSTED;
    }
    for (size_t k = 0; k < rank.size(); ++k) {
      const int64_t from = first[size_t(rank[k])];
      for (int64_t o = 0; to[0] && slice > 0 && o < outer; ++o)
        std::memcpy(static_cast<char*>(to[0]) + (o * count + int64_t(k)) * slice,
                    run.in<char>(0) + (o * dim + from) * slice, size_t(slice));
      if (to[1]) static_cast<int64_t*>(to[1])[k] = from;
      if (to[3]) static_cast<int64_t*>(to[3])[k] = counts[size_t(rank[k])];
    }
    for (size_t k = 0; to[2] && k < group.size(); ++k)
      static_cast<int64_t*>(to[2])[k] = place[size_t(group[k])];
    return BELAY_OK;
  }
};

Status prepare_unique(OpContext& op) {
  Dims in = op.dims(0);
  size_t axis = 0;
  if (!op.attr().has("axis")) {
    in = {op.count(0)};
  } else {
    BELAY_ASSIGN(axis, op.axis(op.attr().int_or("axis", 0), in.size()));
  }
  BELAY_TRY(op.output_dynamic(0, op.dtype(0)));
  for (size_t o = 1; o < 4; ++o) BELAY_TRY(op.output_dynamic(o, BELAY_DT_INT64));
  // A complex number is ordered by its real part, then by the other.
  const uint32_t part = op.dtype(0) == BELAY_DT_COMPLEX64    ? uint32_t(BELAY_DT_FLOAT32)
                        : op.dtype(0) == BELAY_DT_COMPLEX128 ? uint32_t(BELAY_DT_FLOAT64)
                                                             : op.dtype(0);
  op.kernel(Unique{key_reader(part),
                   in,
                   axis,
                   int64_t(element_bytes(op.dtype(0)) / element_bytes(part)),
                   element_bytes(op.dtype(0)),
                   op.attr().int_or("sorted", 1) != 0,
                   {op.wants(0), op.wants(1), op.wants(2), op.wants(3)}});
  return {};
}

// ---- CumSum, CumProd
// ----------------------------------------------------------------------------------------------------------

template <bool kProduct>
Status prepare_cumulative(OpContext& op) {
  const Dims& in = op.dims(0);
  BELAY_ASSIGN(const std::vector<int64_t> given, op.ints(1));
  if (given.size() != 1) return op.bad("axis has the shape " + text_of(op.dims(1)) + ", want a scalar");
  BELAY_ASSIGN(const size_t axis, op.axis(given[0], in.size()));
  BELAY_TRY(op.output(0, op.dtype(0), in));
  const bool exclusive = op.attr().int_or("exclusive", 0) != 0, reverse = op.attr().int_or("reverse", 0) != 0;
  const int64_t dim = in[axis], inner = product(in, axis + 1, in.size()),
                lines = product(in, 0, axis) * inner;
  dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    // Of floats in double: a sum of 2^24 ones would grow no more.
    using Sum = std::conditional_t<std::is_integral_v<C>, uint64_t, double>;
    op.kernel([=](const Run& run) {
      run.parallel(lines, grain_of(double(dim)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t base = i / inner * dim * inner + i % inner;
          Sum total = kProduct ? 1 : 0;
          for (int64_t d = 0; d < dim; ++d) {
            const int64_t at = base + (reverse ? dim - 1 - d : d) * inner;
            const Sum value = Sum(Compute<T>::load(run.in<T>(0)[at]));
            const Sum next = kProduct ? total * value : total + value;
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

void add_sort(Registry& registry) {
  registry.add({.op = "TopK",
                .prepare = prepare_top_k,
                .types = {kNumeric, kI64},
                .max_inputs = 2,
                .max_outputs = 2,
                .host_inputs = 2,
                .ns_per_byte = 2});
  registry.add({.op = "NonZero", .prepare = prepare_non_zero, .types = {kNumeric | kBool | kComplex}});
  registry.add({.op = "Compress",
                .prepare = prepare_compress,
                .types = {kMovable, kBool},
                .min_inputs = 2,
                .max_inputs = 2});
  registry.add({.op = "Unique",
                .prepare = prepare_unique,
                .types = {kNumeric | kBool | kComplex},
                .max_outputs = 4,
                .ns_per_byte = 5});
  registry.add({.op = "CumSum",
                .prepare = prepare_cumulative<false>,
                .types = {kNumeric, kIndex},
                .min_inputs = 2,
                .max_inputs = 2,
                .in_place = InPlace::kFirst,
                .host_inputs = 2});
  registry.add({.op = "CumProd",
                .prepare = prepare_cumulative<true>,
                .types = {kNumeric, kIndex},
                .min_inputs = 2,
                .max_inputs = 2,
                .in_place = InPlace::kFirst,
                .host_inputs = 2});
}

}  // namespace belay::cpu
