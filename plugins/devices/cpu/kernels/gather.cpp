// Operators that read or write at positions that other tensors hold. A position out of bounds fails the run
// with a sentence that says where it stands.
#include "positions.hpp"
#include "registry.hpp"
#include "trouble.hpp"

#include <cstring>

namespace belay::cpu {
namespace {

belay_status out_of_bounds(const Run& run, const std::string& name, int64_t element, int64_t index,
                           size_t axis, int64_t dim) {
  return run.fail(Code::kOutOfRange, name + ": element " + std::to_string(element) + " of indices is " +
                                         std::to_string(index) + ", out of bounds for axis " +
                                         std::to_string(axis) + " with " + std::to_string(dim) +
                                         " elements.");
}

Status wrong_index_type(const OpContext& op, size_t input, TypeMask allowed) {
  if (type_bit(op.dtype(input)) & allowed) return {};
  return op.bad("input " + std::to_string(input) + " is of type " + std::string(dtype_name(op.dtype(input))) +
                ", want " + type_names(allowed));
}

// ---- Gather
// ----------------------------------------------------------------------------------------------------------

struct Gather {
  std::string name;
  Positions positions;
  size_t axis;
  int64_t outer, dim, count, run_bytes;  // count: indices; run_bytes: of what lies behind the axis

  belay_status operator()(const Run& run) const {
    const char* data = run.in<char>(0);
    const void* indices = run.in<void>(1);
    char* out = run.out<char>(0);
    Trouble trouble;
    run.parallel(outer * count, grain_of(2 + double(run_bytes) * 0.05), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = placed(positions.at(indices, i % count), dim);
        if (at < 0) return trouble.note(i % count);
        std::memcpy(out + i * run_bytes, data + (i / count * dim + at) * run_bytes, size_t(run_bytes));
      }
    });
    if (trouble)
      return out_of_bounds(run, name, trouble.first(), positions.at(indices, trouble.first()), axis, dim);
    return BELAY_OK;
  }
};

Status prepare_gather(OpContext& op) {
  BELAY_TRY(wrong_index_type(op, 1, kIndex));
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", 0), op.rank(0)));
  const Dims& in = op.dims(0);
  Dims out(in.begin(), in.begin() + ptrdiff_t(axis));
  out.insert(out.end(), op.dims(1).begin(), op.dims(1).end());
  out.insert(out.end(), in.begin() + ptrdiff_t(axis) + 1, in.end());
  BELAY_TRY(op.output(0, op.dtype(0), out));
  op.kernel(Gather{std::string(op.op()),
                   {op.dtype(1) == BELAY_DT_INT64},
                   axis,
                   product(in, 0, axis),
                   in[axis],
                   op.count(1),
                   product(in, axis + 1, in.size()) * element_bytes(op.dtype(0))});
  return {};
}

// ---- GatherElements and ScatterElements
// ------------------------------------------------------------------------------

// Walks the indices; f(flat index of indices, element offset in data) where the coordinate along the axis is
// what the index says.
struct Elements {
  std::string name;
  Positions positions;
  size_t axis;
  Dims index_dims;
  Dims data_strides;  // of data, 0 along the axis
  int64_t dim, axis_stride;

  template <class F>
  void each(const void* indices, int64_t begin, int64_t end, Trouble& trouble, F&& f) const {
    const Walk walk = as_walk();
    for_runs<1>(walk, 0, begin, end, [&](int64_t i, const int64_t* offset) {
      const int64_t at = placed(positions.at(indices, i), dim);
      if (at < 0)
        trouble.note(i);
      else
        f(i, offset[0] + at * axis_stride);
    });
  }
  Walk as_walk() const {
    Walk walk;
    walk.dims = index_dims;
    walk.strides = {data_strides};
    return walk;
  }
};

Result<Elements> elements_of(OpContext& op) {
  BELAY_TRY(wrong_index_type(op, 1, kIndex));
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", 0), op.rank(0)));
  if (op.rank(1) != op.rank(0))
    return op.bad("indices have the shape " + text_of(op.dims(1)) + ", want the rank of data, " +
                  text_of(op.dims(0)));
  for (size_t d = 0; d < op.rank(0); ++d)
    if (d != axis && op.dims(1)[d] > op.dims(0)[d])
      return op.bad("indices of shape " + text_of(op.dims(1)) + " reach beyond data of shape " +
                    text_of(op.dims(0)));
  Dims strides = dense_strides(op.dims(0));
  const int64_t axis_stride = strides[axis];
  strides[axis] = 0;
  return Elements{std::string(op.op()),
                  {op.dtype(1) == BELAY_DT_INT64},
                  axis,
                  op.dims(1),
                  std::move(strides),
                  op.dims(0)[axis],
                  axis_stride};
}

Status prepare_gather_elements(OpContext& op) {
  BELAY_ASSIGN(Elements elements, elements_of(op));
  BELAY_TRY(op.output(0, op.dtype(0), op.dims(1)));
  dispatch_bytes(element_bytes(op.dtype(0)), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([elements = std::move(elements), count = op.count(1)](const Run& run) {
      const T* data = run.in<T>(0);
      T* out = run.out<T>(0);
      Trouble trouble;
      run.parallel(count, grain_of(3), [&](int64_t begin, int64_t end) {
        elements.each(run.in<void>(1), begin, end, trouble,
                      [&](int64_t i, int64_t at) { out[i] = data[at]; });
      });
      if (trouble)
        return out_of_bounds(run, elements.name, trouble.first(),
                             elements.positions.at(run.in<void>(1), trouble.first()), elements.axis,
                             elements.dim);
      return belay_status(BELAY_OK);
    });
  });
  return {};
}

// How a scattered value meets the one that is there.
enum class Reduction : uint8_t { kNone, kAdd, kMul, kMax, kMin };

Result<Reduction> reduction_of(OpContext& op) {
  const std::string_view name = op.attr().string_or("reduction", "none");
  if (name == "none") return Reduction::kNone;
  if (!(type_bit(op.dtype(0)) & (kNumeric | kBool)))
    return op.bad("reduction '" + std::string(name) + "' of " + std::string(dtype_name(op.dtype(0))) +
                  " is not defined");
  if (name == "add") return Reduction::kAdd;
  if (name == "mul") return Reduction::kMul;
  if (name == "max") return Reduction::kMax;
  if (name == "min") return Reduction::kMin;
  return op.bad("reduction is '" + std::string(name) + "', want none, add, mul, max or min");
}

template <class T>
T reduced(Reduction how, T old, T value) {
  using C = compute_t<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return how == Reduction::kAdd || how == Reduction::kMax ? old || value : old && value;
  } else {
    const C x = Compute<T>::load(old), y = Compute<T>::load(value);
    if (how == Reduction::kMax) return x >= y || x != x ? old : value;
    if (how == Reduction::kMin) return x <= y || x != x ? old : value;
    if constexpr (std::is_integral_v<C>)
      return T(how == Reduction::kAdd ? uint64_t(x) + uint64_t(y) : uint64_t(x) * uint64_t(y));
    else
      return Compute<T>::store(how == Reduction::kAdd ? x + y : x * y);
  }
}

// Calls make(Tag<T>, store) where store(T& to, const T& value) does the reduction.
template <class F>
void with_store(uint32_t dtype, Reduction how, F&& f) {
  if (how == Reduction::kNone)
    dispatch_bytes(element_bytes(dtype), [&](auto tag) {
      using T = typename decltype(tag)::type;
      f(tag, [](T& to, const T& value) { to = value; });
    });
  else
    dispatch<kNumeric | kBool>(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      f(tag, [how](T& to, const T& value) { to = reduced<T>(how, to, value); });
    });
}

void copy_data(const Run& run, int64_t bytes) {
  const char* from = run.in<char>(0);
  char* to = run.out<char>(0);
  if (from == to) return;
  run.parallel(bytes, grain_of(0.08), [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, size_t(end - begin));
  });
}

// Updates are applied in order, on one thread: where indices repeat, the last one wins.
Status prepare_scatter_elements(OpContext& op) {
  BELAY_ASSIGN(Elements elements, elements_of(op));
  BELAY_ASSIGN(const Reduction how, reduction_of(op));
  if (op.dims(2) != op.dims(1))
    return op.bad("updates have the shape " + text_of(op.dims(2)) + ", want that of indices, " +
                  text_of(op.dims(1)));
  if (op.dtype(2) != op.dtype(0)) return op.bad("updates and data are of different types");
  BELAY_TRY(op.output(0, op.dtype(0), op.dims(0)));
  const int64_t bytes = op.count(0) * element_bytes(op.dtype(0));
  with_store(op.dtype(0), how, [&](auto tag, auto store) {
    using T = typename decltype(tag)::type;
    op.kernel([=, elements = elements, count = op.count(1)](const Run& run) {
      copy_data(run, bytes);
      const T* updates = run.in<T>(2);
      T* out = run.out<T>(0);
      Trouble trouble;
      if (count > 0)
        elements.each(run.in<void>(1), 0, count, trouble,
                      [&](int64_t i, int64_t at) { store(out[at], updates[i]); });
      if (trouble)
        return out_of_bounds(run, elements.name, trouble.first(),
                             elements.positions.at(run.in<void>(1), trouble.first()), elements.axis,
                             elements.dim);
      return belay_status(BELAY_OK);
    });
  });
  return {};
}

// ---- GatherND and ScatterND
// ------------------------------------------------------------------------------------------

// Tuples of positions that pick a run of elements of data.
struct Tuples {
  std::string name;
  Positions positions;
  int64_t depth;  // positions in a tuple
  int64_t count;  // tuples
  int64_t per_batch, batch_elements;
  size_t batch_dims;
  Dims dims, strides;  // of data, for the positions of a tuple
  int64_t run;         // elements of a run

  // Element offset of tuple i's run, or -1; then `bad` is the flat position of the culprit.
  int64_t at(const void* indices, int64_t i, int64_t* bad) const {
    int64_t offset = i / per_batch * batch_elements;
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t at = placed(positions.at(indices, i * depth + k), dims[size_t(k)]);
      if (at < 0) return *bad = i * depth + k, -1;
      offset += at * strides[size_t(k)];
    }
    return offset;
  }
  belay_status fail(const Run& run, const void* indices, int64_t bad) const {
    const int64_t k = bad % depth;
    return out_of_bounds(run, name, bad, positions.at(indices, bad), batch_dims + size_t(k), dims[size_t(k)]);
  }
};

Result<Tuples> tuples_of(OpContext& op, int64_t batch_dims) {
  if (!(type_bit(op.dtype(1)) & kIndex)) return wrong_index_type(op, 1, kIndex);
  const Dims &data = op.dims(0), &indices = op.dims(1);
  if (data.empty() || indices.empty()) return op.bad("data or indices have rank 0, want at least 1");
  const int64_t depth = indices.back();
  if (batch_dims < 0 || batch_dims >= int64_t(std::min(data.size(), indices.size())))
    return op.bad("batch_dims is " + std::to_string(batch_dims) + ", want 0 or more, below both ranks");
  if (depth < 0 || depth > int64_t(data.size()) - batch_dims)
    return op.bad("indices of shape " + text_of(indices) + " hold tuples of " + std::to_string(depth) +
                  " positions, want at most " + std::to_string(int64_t(data.size()) - batch_dims));
  const size_t b = size_t(batch_dims), end = b + size_t(depth);
  for (size_t d = 0; d < b; ++d)
    if (data[d] != indices[d])
      return op.bad("data of shape " + text_of(data) + " and indices of shape " + text_of(indices) +
                    " differ in batch dim " + std::to_string(d));
  Tuples t{std::string(op.op()),
           {op.dtype(1) == BELAY_DT_INT64},
           depth,
           product(indices, 0, indices.size() - 1),
           1,
           product(data, b, data.size()),
           b,
           {},
           {},
           product(data, end, data.size())};
  t.per_batch = std::max<int64_t>(1, product(indices, b, indices.size() - 1));
  const Dims strides = dense_strides(data);
  t.dims.assign(data.begin() + ptrdiff_t(b), data.begin() + ptrdiff_t(end));
  t.strides.assign(strides.begin() + ptrdiff_t(b), strides.begin() + ptrdiff_t(end));
  return t;
}

Status prepare_gather_nd(OpContext& op) {
  BELAY_ASSIGN(Tuples tuples, tuples_of(op, op.attr().int_or("batch_dims", 0)));
  const Dims &data = op.dims(0), &indices = op.dims(1);
  Dims out(indices.begin(), indices.end() - 1);
  out.insert(out.end(), data.begin() + ptrdiff_t(tuples.batch_dims) + ptrdiff_t(tuples.depth), data.end());
  BELAY_TRY(op.output(0, op.dtype(0), out));
  op.kernel([tuples, bytes = int64_t(element_bytes(op.dtype(0)))](const Run& run) {
    const void* positions = run.in<void>(1);
    Trouble trouble;
    run.parallel(tuples.count, grain_of(5 + double(tuples.run * bytes) * 0.05),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     int64_t bad = 0;
                     const int64_t at = tuples.at(positions, i, &bad);
                     if (at < 0) return trouble.note(bad);
                     std::memcpy(run.out<char>(0) + i * tuples.run * bytes, run.in<char>(0) + at * bytes,
                                 size_t(tuples.run * bytes));
                   }
                 });
    return trouble ? tuples.fail(run, positions, trouble.first()) : belay_status(BELAY_OK);
  });
  return {};
}

Status prepare_scatter_nd(OpContext& op) {
  BELAY_ASSIGN(Tuples tuples, tuples_of(op, 0));
  BELAY_ASSIGN(const Reduction how, reduction_of(op));
  const Dims &data = op.dims(0), &indices = op.dims(1);
  Dims want(indices.begin(), indices.end() - 1);
  want.insert(want.end(), data.begin() + ptrdiff_t(tuples.depth), data.end());
  if (op.dims(2) != want)
    return op.bad("updates have the shape " + text_of(op.dims(2)) + ", want " + text_of(want));
  if (op.dtype(2) != op.dtype(0)) return op.bad("updates and data are of different types");
  BELAY_TRY(op.output(0, op.dtype(0), data));
  const int64_t bytes = op.count(0) * element_bytes(op.dtype(0));
  with_store(op.dtype(0), how, [&](auto tag, auto store) {
    using T = typename decltype(tag)::type;
    op.kernel([=, tuples = tuples](const Run& run) {
      copy_data(run, bytes);
      const void* positions = run.in<void>(1);
      const T* updates = run.in<T>(2);
      T* out = run.out<T>(0);
      for (int64_t i = 0; i < tuples.count; ++i) {
        int64_t bad = 0;
        const int64_t at = tuples.at(positions, i, &bad);
        if (at < 0) return tuples.fail(run, positions, bad);
        for (int64_t k = 0; k < tuples.run; ++k) store(out[at + k], updates[i * tuples.run + k]);
      }
      return belay_status(BELAY_OK);
    });
  });
  return {};
}

// ---- OneHot
// ----------------------------------------------------------------------------------------------------------

// Positions may be of any numeric type; one out of bounds marks nothing.
Status prepare_one_hot(OpContext& op) {
  BELAY_ASSIGN(const std::vector<double> depths, op.numbers(1));
  if (depths.size() != 1 || !(depths[0] >= 1) || depths[0] > 1e15)
    return op.bad(depths.size() == 1 ? "depth is " + std::to_string(depths[0]) + ", want 1 or more"
                                     : "depth has the shape " + text_of(op.dims(1)) + ", want one number");
  const int64_t depth = int64_t(depths[0]);
  if (op.count(2) != 2) return op.bad("values have the shape " + text_of(op.dims(2)) + ", want [2]");
  const size_t rank = op.rank(0) + 1;
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", -1), rank));
  Dims out = op.dims(0);
  out.insert(out.begin() + ptrdiff_t(axis), depth);
  BELAY_TRY(op.output(0, op.dtype(2), out));
  const int64_t inner = product(op.dims(0), axis, op.rank(0)), total = product(out), count = op.count(0);
  dispatch<kNumeric>(op.dtype(0), [&](auto index) {
    using I = typename decltype(index)::type;
    dispatch_bytes(element_bytes(op.dtype(2)), [&](auto tag) {
      using T = typename decltype(tag)::type;
      op.kernel([=](const Run& run) {
        const I* indices = run.in<I>(0);
        const T* values = run.in<T>(2);
        T* to = run.out<T>(0);
        std::fill_n(to, total, values[0]);
        for (int64_t i = 0; i < count; ++i) {
          const double raw = double(Compute<I>::load(indices[i]));
          if (!(raw >= -double(depth) && raw < double(depth))) continue;
          const int64_t at = int64_t(raw) < 0 ? int64_t(raw) + depth : int64_t(raw);
          to[(i / inner * depth + at) * inner + i % inner] = values[1];
        }
      });
    });
  });
  return {};
}

// ---- TensorScatter
// ---------------------------------------------------------------------------------------------------

// Writes rows of an update behind one another into a cache, in each batch from a row of its own on; they may go round.
Status prepare_tensor_scatter(OpContext& op) {
  const Dims &cache = op.dims(0), &update = op.dims(1);
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", -2), cache.size()));
  const std::string_view mode = op.attr().string_or("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return op.bad("attribute mode is '" + std::string(mode) + "', want linear or circular");
  Dims want = cache;
  if (update.size() == cache.size()) want[axis] = update[axis];
  if (axis == 0 || update != want || update[axis] > cache[axis])
    return op.bad("the update has the shape " + text_of(update) + " for a cache of shape " + text_of(cache) +
                  " along axis " + std::to_string(axis) + ", which may not be the first");
  if (op.dtype(1) != op.dtype(0)) return op.bad("update and cache are of different types");
  if (op.has(2) && op.dims(2) != Dims{cache[0]})
    return op.bad("write_indices have the shape " + text_of(op.dims(2)) + ", want [" + std::to_string(cache[0]) + "]");
  BELAY_TRY(op.output(0, op.dtype(0), cache));
  const int64_t row = product(cache, axis + 1, cache.size()) * int64_t(element_bytes(op.dtype(0)));
  const int64_t lines = product(cache, 1, axis), room = cache[axis], fresh = update[axis];
  const bool circular = mode == "circular";
  op.kernel([=, batch = cache[0], has_starts = op.has(2), bytes = op.count(0) * element_bytes(op.dtype(0))](
                const Run& run) {
    copy_data(run, bytes);
    const auto start_of = [&](int64_t b) { return has_starts ? run.in<int64_t>(2)[b] : int64_t{0}; };
    for (int64_t b = 0; b < batch; ++b)
      if (const int64_t start = start_of(b); start < 0 || start >= room + (fresh == 0) || (!circular && start > room - fresh))
        return run.fail(Code::kOutOfRange, "TensorScatter: element " + std::to_string(b) + " of write_indices is " +
                                               std::to_string(start) + ", too far for " + std::to_string(fresh) +
                                               " rows in a cache of " + std::to_string(room) + ".");
    run.parallel(batch * lines, grain_of(double(fresh * row) * 0.1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && row > 0; ++i)
        for (int64_t r = 0; r < fresh; ++r)
          std::memcpy(run.out<char>(0) + (i * room + (start_of(i / lines) + r) % room) * row,
                      run.in<char>(1) + (i * fresh + r) * row, size_t(row));
    });
    return belay_status(BELAY_OK);
  });
  return {};
}

}  // namespace

void add_gather(Registry& registry) {
  registry.add({.op = "TensorScatter",
                .prepare = prepare_tensor_scatter,
                .types = {kMovable, kMovable, kI64},
                .min_inputs = 2,
                .max_inputs = 3,
                .in_place = InPlace::kFirst});
  registry.add({.op = "Gather",
                .prepare = prepare_gather,
                .types = {kMovable, kIndex},
                .min_inputs = 2,
                .max_inputs = 2,
                .ns_per_byte = 0.05});
  registry.add({.op = "GatherElements",
                .prepare = prepare_gather_elements,
                .types = {kMovable, kIndex},
                .min_inputs = 2,
                .max_inputs = 2,
                .ns_per_byte = 0.5});
  registry.add({.op = "GatherND",
                .prepare = prepare_gather_nd,
                .types = {kMovable, kIndex},
                .min_inputs = 2,
                .max_inputs = 2});
  for (const std::string_view op : {"ScatterElements", "Scatter"})
    registry.add({.op = op,
                  .prepare = prepare_scatter_elements,
                  .types = {kMovable, kIndex, kMovable},
                  .min_inputs = 3,
                  .max_inputs = 3,
                  .in_place = InPlace::kFirst});
  registry.add({.op = "ScatterND",
                .prepare = prepare_scatter_nd,
                .types = {kMovable, kIndex, kMovable},
                .min_inputs = 3,
                .max_inputs = 3,
                .in_place = InPlace::kFirst});
  registry.add({.op = "OneHot",
                .prepare = prepare_one_hot,
                .types = {kNumeric, kNumeric, kMovable},
                .min_inputs = 3,
                .max_inputs = 3,
                .host_inputs = 2});
}

}  // namespace belay::cpu
