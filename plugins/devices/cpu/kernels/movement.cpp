// Operators that move elements as they are: reshaping, transposing, slicing, joining, tiling, padding.
#include "registry.hpp"
#include "small_types.hpp"
#include "strided_copy.hpp"

#include <cstring>
#include <numeric>

namespace belay::cpu {
namespace {

// ---- the same bytes under other dims
// ---------------------------------------------------------------------------------

struct CopyAll {
  int64_t bytes;
  void operator()(const Run& run) const {
    const char* from = run.in<char>(0);
    char* to = run.out<char>(0);
    if (from == to) return;  // in place
    run.parallel(bytes, grain_of(0.08), [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, size_t(end - begin));
    });
  }
};

Status prepare_same_bytes(OpContext& op, const Dims& dims) {
  if (product(dims) != op.count(0))
    return op.bad("input of shape " + text_of(op.dims(0)) + " has " + std::to_string(op.count(0)) +
                  " elements, the output's shape " + text_of(dims) + " has " + std::to_string(product(dims)));
  BELAY_TRY(op.output(0, op.dtype(0), dims));
  op.kernel(CopyAll{op.count(0) * element_bytes(op.dtype(0))}, "copy");
  return {};
}

// The same bits as another type of that width.
Status prepare_bit_cast(OpContext& op) {
  const uint32_t to = uint32_t(op.attr().int_or("to", 0));
  const DtypeInfo *from_info = find_dtype(op.dtype(0)), *to_info = find_dtype(to);
  if (!to_info || to_info->bits != from_info->bits)
    return op.bad("to is " + std::string(dtype_name(to)) + " for an input of " + std::string(from_info->name) +
                  ", want a type of " + std::to_string(from_info->bits) + " bits");
  BELAY_TRY(op.output(0, to, op.dims(0)));
  op.kernel(CopyAll{int64_t(*dtype_bytes(to, uint64_t(op.count(0))))}, "copy");
  return {};
}

Status prepare_identity(OpContext& op) { return prepare_same_bytes(op, op.dims(0)); }

Status prepare_reshape(OpContext& op) {
  std::vector<int64_t> shape;
  if (const auto old = op.attr().ints("shape"); old && op.inputs() == 1) {
    shape = *old;
  } else if (const auto known = op.known_out_dims(0); known && !op.constant(1)) {
    return prepare_same_bytes(op, *known);  // the shape was inferred; the input need not be looked at
  } else {
    BELAY_ASSIGN(shape, op.ints(1));
  }
  const bool allow_zero = op.attr().int_or("allowzero", 0) != 0;
  int64_t known = 1;
  int unknown = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && !allow_zero) {
      if (d >= op.rank(0))
        return op.bad("shape " + text_of(shape) + " copies dim " + std::to_string(d) +
                      " of an input of rank " + std::to_string(op.rank(0)));
      shape[d] = op.dims(0)[d];
    } else if (shape[d] == -1) {
      if (unknown >= 0) return op.bad("shape " + text_of(shape) + " has -1 twice, want it once at most");
      unknown = int(d);
      continue;
    } else if (shape[d] < 0) {
      return op.bad("shape " + text_of(shape) + " has a dim below -1");
    }
    if (__builtin_mul_overflow(known, shape[d], &known))
      return op.bad("shape " + text_of(shape) + " is too large");
  }
  if (unknown >= 0) {
    if (known == 0 ? op.count(0) != 0 : op.count(0) % known != 0)
      return op.bad("shape " + text_of(shape) + " does not divide the " + std::to_string(op.count(0)) +
                    " elements of the input");
    shape[size_t(unknown)] = known == 0 ? 0 : op.count(0) / known;
  }
  return prepare_same_bytes(op, shape);
}

Status prepare_flatten(OpContext& op) {
  const int64_t rank = int64_t(op.rank(0));
  int64_t axis = op.attr().int_or("axis", 1);
  if (axis < -rank || axis > rank)
    return op.bad("axis is " + std::to_string(axis) + ", want " + std::to_string(-rank) + " to " +
                  std::to_string(rank));
  if (axis < 0) axis += rank;
  return prepare_same_bytes(
      op, {product(op.dims(0), 0, size_t(axis)), product(op.dims(0), size_t(axis), size_t(rank))});
}

// Axes from input 1, or from the attribute of older definitions; nothing when neither is there.
Result<std::optional<std::vector<int64_t>>> axes_of(OpContext& op) {
  if (const auto old = op.attr().ints("axes")) return old;
  if (!op.has(1)) return std::optional<std::vector<int64_t>>();
  BELAY_ASSIGN(std::vector<int64_t> axes, op.ints(1));
  return std::optional(std::move(axes));
}

Status prepare_squeeze(OpContext& op) {
  if (const auto known = op.known_out_dims(0); known && op.has(1) && !op.constant(1))
    return prepare_same_bytes(op, *known);
  BELAY_ASSIGN(const auto axes, axes_of(op));
  std::vector<bool> drop(op.rank(0), false);
  if (!axes)
    for (size_t d = 0; d < op.rank(0); ++d) drop[d] = op.dims(0)[d] == 1;
  else {
    BELAY_ASSIGN(const std::vector<size_t> dropped, op.axes(*axes, op.rank(0)));
    for (const size_t axis : dropped) {
      if (op.dims(0)[axis] != 1)
        return op.bad("dim " + std::to_string(axis) + " of the input's shape " + text_of(op.dims(0)) +
                      " is not 1");
      drop[axis] = true;
    }
  }
  Dims out;
  for (size_t d = 0; d < op.rank(0); ++d)
    if (!drop[d]) out.push_back(op.dims(0)[d]);
  return prepare_same_bytes(op, out);
}

Status prepare_unsqueeze(OpContext& op) {
  if (const auto known = op.known_out_dims(0); known && op.has(1) && !op.constant(1))
    return prepare_same_bytes(op, *known);
  BELAY_ASSIGN(const auto axes, axes_of(op));
  if (!axes) return op.bad("axes are missing");
  const size_t rank = op.rank(0) + axes->size();
  std::vector<bool> added(rank, false);
  BELAY_ASSIGN(const std::vector<size_t> fresh, op.axes(*axes, rank));
  for (const size_t axis : fresh) added[axis] = true;
  Dims out;
  size_t from = 0;
  for (size_t d = 0; d < rank; ++d) out.push_back(added[d] ? 1 : op.dims(0)[from++]);
  return prepare_same_bytes(op, out);
}

// ---- transposing
// -----------------------------------------------------------------------------------------------------

struct CopyStrided {
  StridedCopy copy;
  int64_t src_offset, bytes;
  void operator()(const Run& run) const {
    copy.run(run, run.in<char>(0) + src_offset * bytes, run.out<char>(0));
  }
};

// The output has the dims `out`; its element [i, j, ...] is the input's at `offset` + i * strides[0] + j *
// strides[1] ...
Status prepare_strided(OpContext& op, const Dims& out, const Dims& strides, int64_t offset = 0,
                       std::optional<Dims> walked = {}) {
  BELAY_TRY(op.output(0, op.dtype(0), out));
  const Dims& dims = walked ? *walked : out;
  const uint32_t bytes = element_bytes(op.dtype(0));
  op.kernel(CopyStrided{StridedCopy(dims, strides, dense_strides(dims), bytes), offset, bytes},
            "strided copy");
  return {};
}

Dims permuted(const Dims& dims, const std::vector<size_t>& perm) {
  Dims out;
  for (const size_t p : perm) out.push_back(dims[p]);
  return out;
}

Status prepare_transpose(OpContext& op) {
  const size_t rank = op.rank(0);
  std::vector<size_t> perm(rank);
  for (size_t d = 0; d < rank; ++d) perm[d] = rank - 1 - d;
  if (const auto given = op.attr().ints("perm")) {
    std::vector<bool> seen(rank, false);
    bool good = given->size() == rank;
    for (size_t d = 0; good && d < rank; ++d) {
      const auto axis = normal_axis((*given)[d], rank);
      good = axis && !seen[*axis];
      if (good) seen[perm[d] = *axis] = true;
    }
    if (!good)
      return op.bad("perm is " + text_of(*given) + ", want each axis of " + text_of(op.dims(0)) + " once");
  }
  return prepare_strided(op, permuted(op.dims(0), perm), permuted(dense_strides(op.dims(0)), perm));
}

// Both are transposes of the input seen with the blocks as dims of their own.
Status prepare_depth_to_space(OpContext& op) {
  const int64_t block = op.attr().int_or("blocksize", 0);
  if (op.rank(0) != 4) return op.bad("input has the shape " + text_of(op.dims(0)) + ", want rank 4");
  const Dims& in = op.dims(0);
  if (block <= 0 || block > 65536 || in[1] % (block * block) != 0)
    return op.bad("blocksize is " + std::to_string(block) + ", want its square to divide the " +
                  std::to_string(in[1]) + " channels");
  const std::string_view mode = op.attr().string_or("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return op.bad("mode is '" + std::string(mode) + "', want 'DCR' or 'CRD'");
  const int64_t depth = in[1] / (block * block);
  const Dims seen = mode == "DCR" ? Dims{in[0], block, block, depth, in[2], in[3]}
                                  : Dims{in[0], depth, block, block, in[2], in[3]};
  const std::vector<size_t> perm =
      mode == "DCR" ? std::vector<size_t>{0, 3, 4, 1, 5, 2} : std::vector<size_t>{0, 1, 4, 2, 5, 3};
  return prepare_strided(op, {in[0], depth, in[2] * block, in[3] * block},
                         permuted(dense_strides(seen), perm), 0, permuted(seen, perm));
}
Status prepare_space_to_depth(OpContext& op) {
  const int64_t block = op.attr().int_or("blocksize", 0);
  if (op.rank(0) != 4) return op.bad("input has the shape " + text_of(op.dims(0)) + ", want rank 4");
  const Dims& in = op.dims(0);
  if (block <= 0 || block > 65536 || in[2] % block != 0 || in[3] % block != 0)
    return op.bad("blocksize is " + std::to_string(block) + ", want it to divide the input's last dims of " +
                  text_of(in));
  const Dims seen{in[0], in[1], in[2] / block, block, in[3] / block, block};
  const std::vector<size_t> perm{0, 3, 5, 1, 2, 4};
  return prepare_strided(op, {in[0], in[1] * block * block, in[2] / block, in[3] / block},
                         permuted(dense_strides(seen), perm), 0, permuted(seen, perm));
}

// ---- repeating
// -------------------------------------------------------------------------------------------------------

Status prepare_expand(OpContext& op) {
  Dims shape;
  if (const auto known = op.known_out_dims(0); known && !op.constant(1)) {
    shape = *known;
  } else {
    BELAY_ASSIGN(shape, op.ints(1));
    for (const int64_t dim : shape)
      if (dim < 0) return op.bad("shape " + text_of(shape) + " has a negative dim");
  }
  const Dims* shapes[] = {&op.dims(0), &shape};
  const auto out = broadcast(shapes);
  if (!out)
    return op.bad("input of shape " + text_of(op.dims(0)) + " does not broadcast with " + text_of(shape));
  return prepare_strided(op, *out, broadcast_strides(op.dims(0), *out));
}

Status prepare_tile(OpContext& op) {
  BELAY_ASSIGN(const std::vector<int64_t> repeats, op.ints(1));
  if (repeats.size() != op.rank(0))
    return op.bad("repeats " + text_of(repeats) + " do not fit an input of shape " + text_of(op.dims(0)));
  const Dims dense = dense_strides(op.dims(0));
  Dims out, walked, strides;
  for (size_t d = 0; d < repeats.size(); ++d) {
    int64_t dim = 0;
    if (repeats[d] < 0 || __builtin_mul_overflow(op.dims(0)[d], repeats[d], &dim))
      return op.bad("repeats are " + text_of(repeats) + ", want each 0 or more, and a result that fits");
    out.push_back(dim);
    walked.insert(walked.end(), {repeats[d], op.dims(0)[d]});
    strides.insert(strides.end(), {0, dense[d]});
  }
  return prepare_strided(op, out, strides, 0, walked);
}

// ---- cutting and joining
// ---------------------------------------------------------------------------------------------

Status prepare_slice(OpContext& op) {
  std::vector<int64_t> starts, ends, axes, steps;
  const bool old = op.attr().has("starts");
  if (old) {
    starts = op.attr().ints("starts").value_or(std::vector<int64_t>{});
    ends = op.attr().ints("ends").value_or(std::vector<int64_t>{});
    axes = op.attr().ints("axes").value_or(std::vector<int64_t>{});
  } else {
    BELAY_ASSIGN(starts, op.ints(1));
    BELAY_ASSIGN(ends, op.ints(2));
    if (op.has(3)) {
      BELAY_ASSIGN(axes, op.ints(3));
    }
    if (op.has(4)) {
      BELAY_ASSIGN(steps, op.ints(4));
    }
  }
  if (axes.empty() && !op.has(3)) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (!op.has(4)) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return op.bad("starts " + text_of(starts) + ", ends " + text_of(ends) + ", axes " + text_of(axes) +
                  " and steps " + text_of(steps) + " differ in length");
  Dims out = op.dims(0), strides = dense_strides(out);
  int64_t offset = 0;
  std::vector<bool> seen(out.size(), false);
  for (size_t k = 0; k < starts.size(); ++k) {
    BELAY_ASSIGN(const size_t axis, op.axis(axes[k], out.size(), "an axis"));
    if (seen[axis]) return op.bad("axes " + text_of(axes) + " name axis " + std::to_string(axis) + " twice");
    seen[axis] = true;
    const int64_t dim = op.dims(0)[axis], step = steps[k];
    if (step == 0) return op.bad("the step of axis " + std::to_string(axis) + " is 0");
    // Negative positions count from the end; then positions are cut to where an element, or the end, can be.
    const auto place = [dim](int64_t at, int64_t low, int64_t high) {
      if (at < 0) at = at < -dim ? -1 : at + dim;
      return std::clamp(at, low, high);
    };
    const int64_t start = step > 0 ? place(starts[k], 0, dim) : place(starts[k], -1, dim - 1);
    const int64_t end = step > 0 ? place(ends[k], 0, dim) : place(ends[k], -1, dim - 1);
    int64_t count = 0;
    if (step > 0 && end > start) count = (end - start - 1) / step + 1;
    if (step < 0 && start > end) count = int64_t((uint64_t(start - end) - 1) / (0 - uint64_t(step))) + 1;
    out[axis] = count;
    if (count > 0) offset += start * strides[axis];
    // A step past the end is taken only when there is a second element, so the product fits then.
    strides[axis] = count > 1 ? strides[axis] * step : 0;
  }
  return prepare_strided(op, out, strides, offset);
}

struct JoinOrCut {
  struct Part {
    StridedCopy copy;
    int64_t offset;  // in bytes, of the whole
  };
  std::vector<Part> parts;  // by input or output
  bool join;
  void operator()(const Run& run) const {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (join)
        parts[i].copy.run(run, run.in<char>(i), run.out<char>(0) + parts[i].offset);
      else if (run.out<char>(i))
        parts[i].copy.run(run, run.in<char>(0) + parts[i].offset, run.out<char>(i));
    }
  }
};

// Part of a whole that has `whole` elements along an axis with `inner` elements behind it.
JoinOrCut::Part part_of(const Dims& dims, size_t axis, int64_t whole, int64_t first, uint32_t bytes,
                        bool join) {
  const int64_t inner = product(dims, axis + 1, dims.size());
  const Dims seen{product(dims, 0, axis), dims[axis] * inner};
  const Dims in_part = dense_strides(seen), in_whole{whole * inner, 1};
  return {StridedCopy(seen, join ? in_part : in_whole, join ? in_whole : in_part, bytes),
          first * inner * bytes};
}

Status prepare_concat(OpContext& op) {
  const size_t rank = op.rank(0);
  if (!op.attr().has("axis")) return op.bad("attribute axis is missing");
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", 0), rank));
  Dims out = op.dims(0);
  out[axis] = 0;
  for (size_t i = 0; i < op.inputs(); ++i) {
    if (!op.has(i)) return op.bad("input " + std::to_string(i) + " is missing");
    if (op.dtype(i) != op.dtype(0))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) +
                    ", input 0 of " + std::string(dtype_name(op.dtype(0))));
    bool fits = op.rank(i) == rank;
    for (size_t d = 0; fits && d < rank; ++d) fits = d == axis || op.dims(i)[d] == out[d];
    if (!fits)
      return op.bad("input " + std::to_string(i) + " has the shape " + text_of(op.dims(i)) +
                    ", input 0 has " + text_of(op.dims(0)) + "; they may differ along axis " +
                    std::to_string(axis) + " only");
    out[axis] += op.dims(i)[axis];
  }
  BELAY_TRY(op.output(0, op.dtype(0), out));
  JoinOrCut kernel{{}, true};
  int64_t first = 0;
  for (size_t i = 0; i < op.inputs(); ++i) {
    kernel.parts.push_back(part_of(op.dims(i), axis, out[axis], first, element_bytes(op.dtype(0)), true));
    first += op.dims(i)[axis];
  }
  op.kernel(std::move(kernel), "strided copy");
  return {};
}

Status prepare_split(OpContext& op) {
  BELAY_ASSIGN(const size_t axis, op.axis(op.attr().int_or("axis", 0), op.rank(0)));
  const int64_t dim = op.dims(0)[axis];
  std::vector<int64_t> sizes;
  if (const auto old = op.attr().ints("split")) {
    sizes = *old;
  } else if (op.has(1)) {
    BELAY_ASSIGN(sizes, op.ints(1));
  } else {
    const int64_t count = int64_t(op.outputs());
    // Without num_outputs (version 18) the parts are equal; with it the last may be smaller.
    const int64_t each = (dim + count - 1) / count;
    if (!op.attr().has("num_outputs") && dim % count != 0)
      return op.bad("dim " + std::to_string(axis) + " of " + text_of(op.dims(0)) + " is not divisible into " +
                    std::to_string(count) + " equal parts");
    for (int64_t i = 0, left = dim; i < count; ++i, left -= sizes.back())
      sizes.push_back(std::min(each, left));
  }
  int64_t sum = 0;
  bool good = sizes.size() == op.outputs();
  for (const int64_t size : sizes) good = good && size >= 0 && size <= dim && (sum += size) <= dim;
  if (!good || sum != dim)
    return op.bad("split is " + text_of(sizes) + ", want " + std::to_string(op.outputs()) +
                  " sizes that sum to " + std::to_string(dim));
  JoinOrCut kernel{{}, false};
  int64_t first = 0;
  for (size_t o = 0; o < sizes.size(); ++o) {
    Dims out = op.dims(0);
    out[axis] = sizes[o];
    BELAY_TRY(op.output(o, op.dtype(0), out));
    kernel.parts.push_back(part_of(out, axis, dim, first, element_bytes(op.dtype(0)), false));
    first += sizes[o];
  }
  op.kernel(std::move(kernel), "strided copy");
  return {};
}

}  // namespace

void add_movement(Registry& registry) {
  const auto add = [&](std::string_view op, PrepareFn prepare, uint8_t min_inputs = 1, uint8_t max_inputs = 1,
                       uint64_t host = 0, InPlace in_place = InPlace::kNone, bool host_for_shape = false) {
    registry.add({.op = op,
                  .prepare = prepare,
                  .types = {kMovable, kIndex},
                  .min_inputs = min_inputs,
                  .max_inputs = max_inputs,
                  .in_place = in_place,
                  .host_inputs = host,
                  .host_for_shape = host_for_shape,
                  .ns_per_byte = 0.05});
  };
  add("Identity", prepare_identity, 1, 1, 0, InPlace::kFirst);
  registry.add({.op = "BitCast",
                .prepare = prepare_bit_cast,
                .types = {kMovable | kSmall},
                .in_place = InPlace::kFirst,
                .ns_per_byte = 0.05});
  add("Reshape", prepare_reshape, 1, 2, 2, InPlace::kFirst, true);
  add("Flatten", prepare_flatten, 1, 1, 0, InPlace::kFirst);
  add("Squeeze", prepare_squeeze, 1, 2, 2, InPlace::kFirst, true);
  add("Unsqueeze", prepare_unsqueeze, 1, 2, 2, InPlace::kFirst, true);
  add("Transpose", prepare_transpose);
  add("DepthToSpace", prepare_depth_to_space);
  add("SpaceToDepth", prepare_space_to_depth);
  add("Expand", prepare_expand, 2, 2, 2, InPlace::kNone, true);
  add("Tile", prepare_tile, 2, 2, 2);
  add("Slice", prepare_slice, 1, 5, 0b11110);
  registry.add({.op = "Concat",
                .prepare = prepare_concat,
                .types = {kMovable},
                .max_inputs = 255,
                .ns_per_byte = 0.05});
  registry.add({.op = "Split",
                .prepare = prepare_split,
                .types = {kMovable, kIndex},
                .max_inputs = 2,
                .max_outputs = 255,
                .host_inputs = 2,
                .ns_per_byte = 0.05});
}

}  // namespace belay::cpu
