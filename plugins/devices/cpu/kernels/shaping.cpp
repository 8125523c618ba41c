// Operators whose output is made from shapes, positions or sequences more than from elements: padding,
// triangles, reversals, shapes, ranges, fills.
#include "convert.hpp"
#include "registry.hpp"
#include "strided_copy.hpp"

#include <cmath>
#include <cstring>
#include <numeric>

namespace belay::cpu {
namespace {

// ---- Pad
// -------------------------------------------------------------------------------------------------------------

template <class T>
void fill_all(const Run& run, T* to, int64_t count, const T& value) {
  run.parallel(count, grain_of(0.1 * sizeof(T)),
               [&](int64_t begin, int64_t end) { std::fill(to + begin, to + end, value); });
}

// The constant is an input (absent: 0), or an attribute in old definitions.
struct PadConstant {
  StridedCopy copy;
  int64_t from, to;  // first element copied
  int64_t total, bytes;
  bool has_value, covers;  // covers: nothing is filled
  uint64_t old_value;      // bits of the attribute's value

  void operator()(const Run& run) const {
    dispatch_bytes(uint32_t(bytes), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T value{};
      if (has_value)
        value = *run.in<T>(2);
      else if constexpr (sizeof(T) <= 8)
        std::memcpy(&value, &old_value, sizeof(T));
      if (!covers) fill_all(run, run.out<T>(0), total, value);
    });
    copy.run(run, run.in<char>(0) + from * bytes, run.out<char>(0) + to * bytes);
  }
};

// Every output coordinate has one of the input, by dim.
struct PadMapped {
  Dims out;
  std::vector<std::vector<int64_t>> offsets;  // [dim][coordinate of the output]: element offset in the input
  uint32_t bytes;

  void operator()(const Run& run) const {
    Walk walk;
    walk.dims = out;
    walk.strides = {dense_strides(out)};
    const int64_t inner = out.back(), runs = product(out, 0, out.size() - 1);
    const std::vector<int64_t>& last = offsets.back();
    dispatch_bytes(bytes, [&](auto tag) {
      using T = typename decltype(tag)::type;
      run.parallel(runs, grain_of(double(inner)), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          int64_t rest = r, base = 0;
          for (size_t d = out.size() - 1; d-- > 0;) {
            base += offsets[d][size_t(rest % out[d])];
            rest /= out[d];
          }
          T* to = run.out<T>(0) + r * inner;
          const T* from = run.in<T>(0) + base;
          for (int64_t i = 0; i < inner; ++i) to[i] = from[last[size_t(i)]];
        }
      });
    });
  }
};

// The input's coordinate for coordinate `at` (which may be outside) of a dim of `dim` elements.
int64_t reflected(int64_t at, int64_t dim) {
  if (dim == 1) return 0;
  const int64_t period = 2 * (dim - 1);
  at %= period;
  if (at < 0) at += period;
  return at < dim ? at : period - at;
}

// Copies what of the input is inside the output, whose element 0 is the input's element -before.
PadConstant constant_pad(const Dims& in, const Dims& out, const Dims& before, uint32_t bytes) {
  PadConstant kernel{{}, 0, 0, product(out), int64_t{bytes}, false, true, 0};
  const Dims src = dense_strides(in), dst = dense_strides(out);
  Dims inside(in.size());
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t first = std::max<int64_t>(0, -before[d]);
    inside[d] = std::max<int64_t>(0, std::min(in[d], out[d] - before[d]) - first);
    kernel.covers = kernel.covers && inside[d] == out[d];
    kernel.from += first * src[d];
    kernel.to += (first + before[d]) * dst[d];
  }
  if (product(inside) == 0) kernel.from = kernel.to = 0;
  kernel.copy = StridedCopy(inside, src, dst, bytes);
  return kernel;
}

Status prepare_pad(OpContext& op) {
  const Dims& in = op.dims(0);
  const size_t rank = in.size();
  std::vector<int64_t> given, axes;
  if (const auto old = op.attr().ints("pads"))
    given = *old;
  else {
    BELAY_ASSIGN(given, op.ints(1));
  }
  std::vector<size_t> at(rank);
  for (size_t d = 0; d < rank; ++d) at[d] = d;
  if (op.has(3)) {
    BELAY_ASSIGN(axes, op.ints(3));
    BELAY_ASSIGN(at, op.axes(axes, rank));
  }
  if (given.size() != 2 * at.size())
    return op.bad("pads are " + text_of(given) + ", want " + std::to_string(2 * at.size()) +
                  " numbers for an input of shape " + text_of(in));
  std::vector<int64_t> before(rank, 0), after(rank, 0);
  for (size_t k = 0; k < at.size(); ++k) before[at[k]] = given[k], after[at[k]] = given[at.size() + k];
  Dims out(rank);
  for (size_t d = 0; d < rank; ++d) {
    int64_t sum = 0;
    if (__builtin_add_overflow(before[d], after[d], &sum) || __builtin_add_overflow(sum, in[d], &out[d]) ||
        out[d] < 0)
      return op.bad("pads " + text_of(given) + " leave no dim " + std::to_string(d) + " of " + text_of(in));
  }
  BELAY_TRY(op.output(0, op.dtype(0), out));
  const uint32_t bytes = element_bytes(op.dtype(0));
  const std::string_view mode = op.attr().string_or("mode", "constant");

  if (mode == "constant") {
    if (op.has(2) && op.count(2) != 1)
      return op.bad("constant_value has the shape " + text_of(op.dims(2)) + ", want a scalar");
    PadConstant kernel = constant_pad(in, out, before, bytes);
    kernel.has_value = op.has(2);
    dispatch<kNumeric>(op.dtype(0), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T value = Compute<T>::store(convert<compute_t<T>>(op.attr().float_or("value", 0.0f)));
      std::memcpy(&kernel.old_value, &value, sizeof(T));
    });
    op.kernel(std::move(kernel), "strided copy");
    return {};
  }
  if (mode != "reflect" && mode != "edge" && mode != "wrap")
    return op.bad("mode is '" + std::string(mode) + "', want constant, reflect, edge or wrap");
  PadMapped kernel{out, {}, bytes};
  const Dims src = dense_strides(in);
  if (product(out) > 0)
    for (size_t d = 0; d < rank; ++d) {
      if (in[d] == 0)
        return op.bad("mode " + std::string(mode) + " has nothing to take from: the input has the shape " +
                      text_of(in));
      std::vector<int64_t>& offsets = kernel.offsets.emplace_back(size_t(out[d]));
      for (int64_t i = 0; i < out[d]; ++i) {
        const int64_t where = i - before[d];
        const int64_t from = mode == "reflect" ? reflected(where, in[d])
                             : mode == "edge"  ? std::clamp<int64_t>(where, 0, in[d] - 1)
                                               : (where % in[d] + in[d]) % in[d];
        offsets[size_t(i)] = from * src[d];
      }
    }
  if (rank == 0) kernel = {{1}, {{0}}, bytes};
  op.kernel([kernel = std::move(kernel)](const Run& run) {
    if (product(kernel.out) > 0) kernel(run);
  });
  return {};
}

// The middle of the input in the middle of the output; where one element is left over it stands at the end.
Status prepare_center_crop_pad(OpContext& op) {
  const Dims& in = op.dims(0);
  BELAY_ASSIGN(const std::vector<int64_t> shape, op.ints(1));
  std::vector<int64_t> axes(in.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (const auto given = op.attr().ints("axes")) axes = *given;
  if (axes.size() != shape.size())
    return op.bad("shape is " + text_of(shape) + ", want " + std::to_string(axes.size()) + " sizes for the axes " +
                  text_of(axes));
  Dims out = in, before(in.size(), 0);
  BELAY_ASSIGN(const std::vector<size_t> at, op.axes(axes, in.size()));
  for (size_t k = 0; k < at.size(); ++k) {
    const size_t axis = at[k];
    if (shape[k] < 0) return op.bad("shape " + text_of(shape) + " has a negative size");
    out[axis] = shape[k];
    before[axis] = shape[k] >= in[axis] ? (shape[k] - in[axis]) / 2 : -((in[axis] - shape[k]) / 2);
  }
  BELAY_TRY(op.output(0, op.dtype(0), out));
  op.kernel(constant_pad(in, out, before, element_bytes(op.dtype(0))), "strided copy");
  return {};
}

// ---- Trilu, EyeLike
// --------------------------------------------------------------------------------------------------

Status prepare_trilu(OpContext& op) {
  const Dims& in = op.dims(0);
  if (in.size() < 2) return op.bad("input has the shape " + text_of(in) + ", want rank 2 at least");
  if (op.has(1) && op.count(1) != 1)
    return op.bad("k has the shape " + text_of(op.dims(1)) + ", want a scalar");
  if (op.has(1) && op.dtype(1) != BELAY_DT_INT64)
    return op.bad("k is of type " + std::string(dtype_name(op.dtype(1))) + ", want int64");
  BELAY_TRY(op.output(0, op.dtype(0), in));
  const bool upper = op.attr().int_or("upper", 1) != 0, has_k = op.has(1);
  const int64_t rows = in[in.size() - 2], cols = in.back(), count = product(in, 0, in.size() - 1);
  dispatch_bytes(element_bytes(op.dtype(0)), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([=](const Run& run) {
      const int64_t k = has_k ? std::clamp<int64_t>(*run.in<int64_t>(1), -rows - 1, cols + 1) : 0;
      run.parallel(count, grain_of(double(cols) * 0.2), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* from = run.in<T>(0) + r * cols;
          T* to = run.out<T>(0) + r * cols;
          // The diagonal passes this row at `edge`; upper keeps what is at or right of it.
          const int64_t edge = std::clamp<int64_t>(r % rows + k + (upper ? 0 : 1), 0, cols);
          const auto keep = [&](int64_t a, int64_t b) {
            if (from != to) std::copy(from + a, from + b, to + a);
          };
          if (upper) {
            std::fill(to, to + edge, T{});
            keep(edge, cols);
          } else {
            keep(0, edge);
            std::fill(to + edge, to + cols, T{});
          }
        }
      });
    });
  });
  return {};
}

Status prepare_eye_like(OpContext& op) {
  const Dims& in = op.dims(0);
  if (in.size() != 2) return op.bad("input has the shape " + text_of(in) + ", want rank 2");
  const uint32_t dtype = uint32_t(op.attr().int_or("dtype", op.dtype(0)));
  if (!(type_bit(dtype) & (kNumeric | kBool)))
    return op.bad("dtype " + std::string(dtype_name(dtype)) + " is not supported", Code::kUnimplemented);
  BELAY_TRY(op.output(0, dtype, in));
  const int64_t k = op.attr().int_or("k", 0);
  dispatch<kNumeric | kBool>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([rows = in[0], cols = in[1], k](const Run& run) {
      T* to = run.out<T>(0);
      std::fill_n(to, rows * cols, T{});
      for (int64_t r = 0; r < rows; ++r)
        if (k > -rows && k < cols && r + k >= 0 && r + k < cols)
          to[r * cols + r + k] = Compute<T>::store(compute_t<T>(1));
    });
  });
  return {};
}

// ---- ReverseSequence
// -------------------------------------------------------------------------------------------------

Status prepare_reverse_sequence(OpContext& op) {
  const Dims& in = op.dims(0);
  const int64_t batch = op.attr().int_or("batch_axis", 1), time = op.attr().int_or("time_axis", 0);
  if (in.size() < 2 || !((batch == 0 && time == 1) || (batch == 1 && time == 0)))
    return op.bad("batch_axis is " + std::to_string(batch) + " and time_axis " + std::to_string(time) +
                  " for an input of shape " + text_of(in) +
                  ", want 0 and 1 in some order, and rank 2 at least");
  if (op.dims(1) != Dims{in[size_t(batch)]})
    return op.bad("sequence_lens have the shape " + text_of(op.dims(1)) + ", want [" +
                  std::to_string(in[size_t(batch)]) + "]");
  if (op.dtype(1) != BELAY_DT_INT64)
    return op.bad("sequence_lens are of type " + std::string(dtype_name(op.dtype(1))) + ", want int64");
  BELAY_TRY(op.output(0, op.dtype(0), in));
  const int64_t inner = product(in, 2, in.size()) * element_bytes(op.dtype(0)), batches = in[size_t(batch)],
                times = in[size_t(time)];
  const int64_t batch_step = batch == 0 ? times : 1, time_step = time == 0 ? batches : 1;
  op.kernel([=](const Run& run) {
    const int64_t* lengths = run.in<int64_t>(1);
    for (int64_t b = 0; b < batches; ++b)
      if (lengths[b] < 0 || lengths[b] > times)
        return run.fail(Code::kOutOfRange, "ReverseSequence: element " + std::to_string(b) +
                                               " of sequence_lens is " + std::to_string(lengths[b]) +
                                               ", want 0 to " + std::to_string(times) + ".");
    run.parallel(batches * times, grain_of(5 + double(inner) * 0.05), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / times, t = i % times, from = t < lengths[b] ? lengths[b] - 1 - t : t;
        std::memcpy(run.out<char>(0) + (b * batch_step + t * time_step) * inner,
                    run.in<char>(0) + (b * batch_step + from * time_step) * inner, size_t(inner));
      }
    });
    return belay_status(BELAY_OK);
  });
  return {};
}

// ---- shapes, ranges, fills
// -------------------------------------------------------------------------------------------

Status prepare_shape(OpContext& op) {
  const int64_t rank = int64_t(op.rank(0));
  const auto place = [rank](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = place(op.attr().int_or("start", 0)), end = place(op.attr().int_or("end", rank));
  Dims dims;
  for (int64_t d = start; d < end; ++d) dims.push_back(op.dims(0)[size_t(d)]);
  BELAY_TRY(op.output(0, BELAY_DT_INT64, {int64_t(dims.size())}));
  op.input_unused(0);
  op.kernel([dims](const Run& run) { std::copy(dims.begin(), dims.end(), run.out<int64_t>(0)); }, "shape");
  return {};
}

Status prepare_size(OpContext& op) {
  BELAY_TRY(op.output(0, BELAY_DT_INT64, {}));
  op.input_unused(0);
  op.kernel([count = op.count(0)](const Run& run) { *run.out<int64_t>(0) = count; }, "shape");
  return {};
}

Status prepare_constant_of_shape(OpContext& op) {
  Dims shape;
  if (const auto known = op.known_out_dims(0); known && !op.constant(0)) {
    shape = *known;
  } else {
    BELAY_ASSIGN(shape, op.ints(0));
  }
  for (const int64_t dim : shape)
    if (dim < 0) return op.bad("shape " + text_of(shape) + " has a negative dim");
  uint32_t dtype = BELAY_DT_FLOAT32;
  std::string value(4, '\0');
  if (const Attribute* given = op.attr().find("value")) {
    if (given->kind != BELAY_ATTR_TENSOR || product(given->dims) != 1 ||
        given->bytes.size() != dtype_bytes(given->dtype, 1))
      return op.bad("value has the shape " + text_of(given->dims) + " and type " +
                    std::string(dtype_name(given->dtype)) + ", want one element of a type of fixed size");
    dtype = given->dtype;
    value = given->bytes;
  }
  BELAY_TRY(op.output(0, dtype, shape));
  if (const uint32_t bits = find_dtype(dtype)->bits; bits < 8) {
    // A byte full of the element; behind the last one the bits are 0.
    uint8_t full = 0;
    for (uint32_t at = 0; at < 8; at += bits) full = uint8_t(full | (uint8_t(value[0]) & ((1 << bits) - 1)) << at);
    op.kernel(
        [full, bytes = int64_t(*dtype_bytes(dtype, uint64_t(product(shape)))), rest = product(shape) * bits % 8](
            const Run& run) {
          fill_all(run, run.out<uint8_t>(0), bytes, full);
          if (rest) run.out<uint8_t>(0)[bytes - 1] = uint8_t(full & ((1 << rest) - 1));
        },
        "fill");
    return {};
  }
  dispatch_bytes(element_bytes(dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T element;
    std::memcpy(&element, value.data(), sizeof(T));
    op.kernel(
        [element, total = product(shape)](const Run& run) { fill_all(run, run.out<T>(0), total, element); },
        "fill");
  });
  return {};
}

Status prepare_range(OpContext& op) {
  const uint32_t dtype = op.dtype(0);
  for (size_t i = 0; i < 3; ++i)
    if (op.dtype(i) != dtype || op.count(i) != 1)
      return op.bad("start, limit and delta are not three scalars of one type");
  std::vector<int64_t> whole;  // integers, without a detour over double
  std::vector<double> real;
  const bool is_float = (type_bit(dtype) & kFloats) != 0;
  for (size_t i = 0; i < 3; ++i) {
    if (dtype == BELAY_DT_INT64 || dtype == BELAY_DT_INT32) {
      BELAY_ASSIGN(const std::vector<int64_t> value, op.ints(i));
      whole.push_back(value[0]);
    } else {
      BELAY_ASSIGN(const std::vector<double> value, op.numbers(i));
      if (!is_float && !(std::fabs(value[0]) < 0x1p63))
        return op.bad("input " + std::to_string(i) + " is " + std::to_string(value[0]) + ", want a number of 63 bits");
      real.push_back(value[0]);
      if (!is_float) whole.push_back(int64_t(value[0]));
    }
  }
  int64_t count = 0;
  if (!is_float) {
    if (whole[2] == 0) return op.bad("delta is 0");
    const bool up = whole[2] > 0;
    const uint64_t span =
        up ? uint64_t(whole[1]) - uint64_t(whole[0]) : uint64_t(whole[0]) - uint64_t(whole[1]);
    const uint64_t step = up ? uint64_t(whole[2]) : 0 - uint64_t(whole[2]);
    if (up ? whole[1] > whole[0] : whole[1] < whole[0]) {
      if ((span - 1) / step >= uint64_t(INT64_MAX))
        return op.bad("the range from " + std::to_string(whole[0]) + " to " + std::to_string(whole[1]) + " overflows");
      count = int64_t((span - 1) / step) + 1;
    }
  } else {
    if (!(real[2] != 0) || !std::isfinite(real[0]) || !std::isfinite(real[1]) || !std::isfinite(real[2]))
      return op.bad("start " + std::to_string(real[0]) + ", limit " + std::to_string(real[1]) +
                    " and delta " + std::to_string(real[2]) + " make no finite range");
    const double steps = std::ceil((real[1] - real[0]) / real[2]);
    if (steps > 1e15) return op.bad("the range would have " + std::to_string(steps) + " elements");
    count = steps > 0 ? int64_t(steps) : 0;
  }
  BELAY_TRY(op.output(0, dtype, {count}));
  dispatch<kNumeric>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    if constexpr (std::is_integral_v<C>)
      op.kernel([=, start = whole[0], delta = whole[2]](const Run& run) {
        for (int64_t i = 0; i < count; ++i)
          run.out<T>(0)[i] = T(uint64_t(start) + uint64_t(i) * uint64_t(delta));
      });
    else
      op.kernel([=, start = C(real[0]), delta = C(real[2])](const Run& run) {
        for (int64_t i = 0; i < count; ++i) run.out<T>(0)[i] = Compute<T>::store(start + C(i) * delta);
      });
  });
  return {};
}

}  // namespace

void add_shaping(Registry& registry) {
  registry.add({.op = "Pad",
                .prepare = prepare_pad,
                .types = {kMovable, kIndex, kMovable, kIndex},
                .max_inputs = 4,
                .host_inputs = 0b1010});
  registry.add({.op = "CenterCropPad",
                .prepare = prepare_center_crop_pad,
                .types = {kMovable, kIndex},
                .min_inputs = 2,
                .max_inputs = 2,
                .host_inputs = 2});
  registry.add({.op = "Trilu",
                .prepare = prepare_trilu,
                .types = {kMovable, kI64},
                .max_inputs = 2,
                .in_place = InPlace::kFirst});
  registry.add({.op = "EyeLike", .prepare = prepare_eye_like, .types = {kNumeric | kBool}});
  registry.add({.op = "ReverseSequence",
                .prepare = prepare_reverse_sequence,
                .types = {kMovable, kI64},
                .min_inputs = 2,
                .max_inputs = 2});
  registry.add({.op = "Shape", .prepare = prepare_shape, .types = {kAny}, .ns_per_byte = 0});
  registry.add({.op = "Size", .prepare = prepare_size, .types = {kAny}, .ns_per_byte = 0});
  registry.add({.op = "ConstantOfShape",
                .prepare = prepare_constant_of_shape,
                .types = {kI64},
                .host_inputs = 1,
                .host_for_shape = true});
  registry.add({.op = "Range",
                .prepare = prepare_range,
                .types = {kNumeric},
                .min_inputs = 3,
                .max_inputs = 3,
                .host_inputs = 7});
}

}  // namespace belay::cpu
