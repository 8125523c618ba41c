// movement.cpp: operators that move elements and compute none.
#include "op.h"

#include <algorithm>
#include <numeric>

namespace reference {
namespace {

void same_order(Call& call) {  // Reshape, Flatten, Squeeze, Unsqueeze
  if (call.in[0].count() != call.out[0].count())
    throw std::runtime_error("cannot view " + to_text(call.in[0].dims) + " as " + to_text(call.out[0].dims));
  for (int64_t i = 0; i < call.out[0].count(); ++i) call.out[0].copy(i, call.in[0], i);
}

void transpose(Call& call) {
  const size_t rank = call.in[0].dims.size();
  std::vector<int64_t> reversed(rank);
  for (size_t d = 0; d < rank; ++d) reversed[d] = int64_t(rank - 1 - d);
  const std::vector<int64_t> perm = call.node.ints_or("perm", reversed);
  int64_t i = 0;
  Dims from(rank);
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    for (size_t d = 0; d < rank; ++d) from[axis_of(perm[d], rank)] = walk.at()[d];
    call.out[0].copy(i, call.in[0], flat(from, call.in[0].dims));
  }
}

void concat(Call& call) {
  const size_t axis = axis_of(call.node.int_or("axis", 0), call.out[0].dims.size());
  int64_t begin = 0;
  for (const Tensor& part : call.in) {
    int64_t i = 0;
    for (Walk walk(part.dims); !walk.done(); walk.next(), ++i) {
      Dims to = walk.at();
      to[axis] += begin;
      call.out[0].copy(flat(to, call.out[0].dims), part, i);
    }
    begin += part.dims[axis];
  }
}

void split(Call& call) {
  const size_t axis = axis_of(call.node.int_or("axis", 0), call.in[0].dims.size());
  int64_t begin = 0;
  for (Tensor& part : call.out) {
    int64_t i = 0;
    for (Walk walk(part.dims); !walk.done(); walk.next(), ++i) {
      Dims from = walk.at();
      from[axis] += begin;
      part.copy(i, call.in[0], flat(from, call.in[0].dims));
    }
    begin += part.dims[axis];
  }
}

void slice(Call& call) {
  const Tensor& data = call.in[0];
  const size_t rank = data.dims.size();
  const std::vector<int64_t> starts = call.in[1].integers();
  std::vector<int64_t> axes(starts.size()), steps(starts.size(), 1), start(rank, 0), step(rank, 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (call.has(3)) axes = call.in[3].integers();
  if (call.has(4)) steps = call.in[4].integers();
  for (size_t k = 0; k < starts.size(); ++k) {
    const size_t axis = axis_of(axes[k], rank);
    const int64_t size = data.dims[axis], at = starts[k] < 0 ? starts[k] + size : starts[k];
    step[axis] = steps[k];
    start[axis] = steps[k] > 0 ? std::clamp<int64_t>(at, 0, size)
                               : std::clamp<int64_t>(at, 0, std::max<int64_t>(size - 1, 0));
  }
  int64_t i = 0;
  Dims from(rank);
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    for (size_t d = 0; d < rank; ++d) from[d] = start[d] + walk.at()[d] * step[d];
    call.out[0].copy(i, data, flat(from, data.dims));
  }
}

int64_t checked_index(int64_t index, int64_t size) {
  if (index < -size || index >= size)
    throw std::runtime_error("index " + std::to_string(index) + " is outside [-" + std::to_string(size) +
                             ", " + std::to_string(size) + ")");
  return index < 0 ? index + size : index;
}

void gather(Call& call) {
  const Tensor &data = call.in[0], &indices = call.in[1];
  const size_t axis = axis_of(call.node.int_or("axis", 0), data.dims.size()), rank = indices.dims.size();
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const Dims& at = walk.at();
    Dims from(at.begin(), at.begin() + long(axis));
    const Dims which(at.begin() + long(axis), at.begin() + long(axis + rank));
    from.push_back(checked_index(indices.integer(flat(which, indices.dims)), data.dims[axis]));
    from.insert(from.end(), at.begin() + long(axis + rank), at.end());
    call.out[0].copy(i, data, flat(from, data.dims));
  }
}

void gather_elements(Call& call) {
  const size_t axis = axis_of(call.node.int_or("axis", 0), call.in[0].dims.size());
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    Dims from = walk.at();
    from[axis] = checked_index(call.in[1].integer(i), call.in[0].dims[axis]);
    call.out[0].copy(i, call.in[0], flat(from, call.in[0].dims));
  }
}

void gather_nd(Call& call) {
  const Tensor &data = call.in[0], &indices = call.in[1];
  const size_t batch = size_t(call.node.int_or("batch_dims", 0)), last = indices.dims.size() - 1;
  const size_t depth = size_t(indices.dims[last]);
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const Dims& at = walk.at();
    Dims which(at.begin(), at.begin() + long(last)), from(at.begin(), at.begin() + long(batch));
    which.push_back(0);
    for (size_t k = 0; k < depth; ++k) {
      which[last] = int64_t(k);
      from.push_back(checked_index(indices.integer(flat(which, indices.dims)), data.dims[batch + k]));
    }
    from.insert(from.end(), at.begin() + long(last), at.end());
    call.out[0].copy(i, data, flat(from, data.dims));
  }
}

void expand(Call& call) {
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i)
    call.out[0].copy(i, call.in[0], broadcast(walk.at(), call.in[0].dims));
}

void tile(Call& call) {
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    Dims from = walk.at();
    for (size_t d = 0; d < from.size(); ++d) from[d] %= call.in[0].dims[d];
    call.out[0].copy(i, call.in[0], flat(from, call.in[0].dims));
  }
}

void pad(Call& call) {
  const Tensor& data = call.in[0];
  const std::string mode = call.node.string_or("mode", "constant");
  const std::vector<int64_t> pads = call.in[1].integers();
  const size_t rank = data.dims.size();
  std::vector<int64_t> before(rank, 0), axes(pads.size() / 2);
  std::iota(axes.begin(), axes.end(), 0);
  if (call.has(3)) axes = call.in[3].integers();
  for (size_t k = 0; k < axes.size(); ++k) before[axis_of(axes[k], rank)] = pads[k];
  std::vector<char> zero(16, 0);
  Tensor value{data.dtype, {}, zero.data()};
  if (call.has(2)) value = call.in[2];
  int64_t i = 0;
  Dims from(rank);
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    bool inside = true;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t size = data.dims[d];
      from[d] = walk.at()[d] - before[d];
      if (from[d] >= 0 && from[d] < size) continue;
      if (mode == "edge")
        from[d] = std::clamp<int64_t>(from[d], 0, size - 1);
      else if (mode == "reflect") {
        const int64_t period = std::max<int64_t>(1, 2 * (size - 1));
        const int64_t at = ((from[d] % period) + period) % period;
        from[d] = at < size ? at : period - at;
      } else if (mode == "wrap")
        from[d] = ((from[d] % size) + size) % size;
      else
        inside = false;
    }
    if (inside)
      call.out[0].copy(i, data, flat(from, data.dims));
    else
      call.out[0].copy(i, value, 0);
  }
}

void shape(Call& call) {
  const int64_t rank = int64_t(call.in[0].dims.size());
  auto bound = [rank](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = bound(call.node.int_or("start", 0)), end = bound(call.node.int_or("end", rank));
  for (int64_t i = start; i < end; ++i) call.out[0].put_integer(i - start, call.in[0].dims[size_t(i)]);
}
void size(Call& call) { call.out[0].put_integer(0, call.in[0].count()); }

void constant_of_shape(Call& call) {
  const Attribute* value = call.node.find("value");
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    if (value)
      call.out[0].copy(i, value->tensor, 0);
    else
      call.out[0].put_real(i, 0);
}

void range(Call& call) {
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    if (call.in[0].is_float())
      call.out[0].put_real(i, call.in[0].real(0) + double(i) * call.in[2].real(0));
    else
      call.out[0].put_integer(i, call.in[0].integer(0) + i * call.in[2].integer(0));
}

void non_zero(Call& call) {
  std::vector<Dims> found;
  int64_t i = 0;
  for (Walk walk(call.in[0].dims); !walk.done(); walk.next(), ++i)
    if (call.in[0].is_float() ? call.in[0].real(i) != 0 : call.in[0].integer(i) != 0)
      found.push_back(walk.at());
  const int64_t rank = std::max<int64_t>(1, int64_t(call.in[0].dims.size())), count = int64_t(found.size());
  call.resize(0, {rank, count});
  for (int64_t r = 0; r < rank; ++r)
    for (int64_t k = 0; k < count; ++k)
      call.out[0].put_integer(r * count + k, call.in[0].dims.empty() ? 0 : found[size_t(k)][size_t(r)]);
}

void compress(Call& call) {
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < call.in[1].count(); ++i)
    if (call.in[1].integer(i)) kept.push_back(i);
  Tensor data = call.in[0];
  if (!call.node.find("axis")) data.dims = {data.count()};
  const size_t axis = axis_of(call.node.int_or("axis", 0), data.dims.size());
  Dims dims = data.dims;
  dims[axis] = int64_t(kept.size());
  call.resize(0, dims);
  int64_t i = 0;
  for (Walk walk(dims); !walk.done(); walk.next(), ++i) {
    Dims from = walk.at();
    from[axis] = checked_index(kept[size_t(from[axis])], data.dims[axis]);
    call.out[0].copy(i, data, flat(from, data.dims));
  }
}

void depth_to_space(Call& call) {
  const int64_t block = call.node.int_or("blocksize", 1), n_channels = call.out[0].dims[1];
  const bool column_row = call.node.string_or("mode", "DCR") == "CRD";
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const Dims& at = walk.at();
    const int64_t y = at[2] % block, x = at[3] % block;
    const int64_t channel =
        column_row ? (at[1] * block + y) * block + x : (y * block + x) * n_channels + at[1];
    call.out[0].copy(i, call.in[0], flat({at[0], channel, at[2] / block, at[3] / block}, call.in[0].dims));
  }
}

void space_to_depth(Call& call) {
  const int64_t block = call.node.int_or("blocksize", 1), n_channels = call.in[0].dims[1];
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const Dims& at = walk.at();
    const int64_t cell = at[1] / n_channels;
    call.out[0].copy(
        i, call.in[0],
        flat({at[0], at[1] % n_channels, at[2] * block + cell / block, at[3] * block + cell % block},
             call.in[0].dims));
  }
}

void trilu(Call& call) {
  const int64_t k = call.has(1) ? call.in[1].integer(0) : 0;
  const bool upper = call.node.int_or("upper", 1);
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    const size_t rank = walk.at().size();
    const int64_t row = walk.at()[rank - 2], column = walk.at()[rank - 1];
    if (upper ? column - row >= k : column - row <= k)
      call.out[0].copy(i, call.in[0], i);
    else
      call.out[0].put_real(i, 0);
  }
}

void one_hot(Call& call) {
  const size_t axis = axis_of(call.node.int_or("axis", -1), call.out[0].dims.size());
  const int64_t depth = call.out[0].dims[axis];
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    Dims which = walk.at();
    which.erase(which.begin() + long(axis));
    int64_t hot = int64_t(call.in[0].real(flat(which, call.in[0].dims)));
    if (hot < 0) hot += depth;
    call.out[0].copy(i, call.in[2], hot == walk.at()[axis] ? 1 : 0);
  }
}

void scatter_nd(Call& call) {
  const Tensor &indices = call.in[1], &updates = call.in[2];
  for (int64_t i = 0; i < call.out[0].count(); ++i) call.out[0].copy(i, call.in[0], i);
  const size_t last = indices.dims.size() - 1;
  int64_t i = 0;
  for (Walk walk(updates.dims); !walk.done(); walk.next(), ++i) {
    Dims which(walk.at().begin(), walk.at().begin() + long(last)), to;
    which.push_back(0);
    for (int64_t k = 0; k < indices.dims[last]; ++k) {
      which[last] = k;
      to.push_back(checked_index(indices.integer(flat(which, indices.dims)), call.out[0].dims[size_t(k)]));
    }
    to.insert(to.end(), walk.at().begin() + long(last), walk.at().end());
    call.out[0].copy(flat(to, call.out[0].dims), updates, i);
  }
}

void scatter_elements(Call& call) {
  const size_t axis = axis_of(call.node.int_or("axis", 0), call.in[0].dims.size());
  for (int64_t i = 0; i < call.out[0].count(); ++i) call.out[0].copy(i, call.in[0], i);
  int64_t i = 0;
  for (Walk walk(call.in[1].dims); !walk.done(); walk.next(), ++i) {
    Dims to = walk.at();
    to[axis] = checked_index(call.in[1].integer(i), call.out[0].dims[axis]);
    call.out[0].copy(flat(to, call.out[0].dims), call.in[2], i);
  }
}

}  // namespace

void add_movement(Table& table) {
  table.insert({{"Reshape", {same_order, 2}},
                {"Flatten", {same_order}},
                {"Squeeze", {same_order, 2}},
                {"Unsqueeze", {same_order, 2}},
                {"Transpose", {transpose}},
                {"Concat", {concat}},
                {"Split", {split, 2}},
                {"Slice", {slice, 30}},
                {"Gather", {gather}},
                {"GatherElements", {gather_elements}},
                {"GatherND", {gather_nd}},
                {"Expand", {expand, 2}},
                {"Tile", {tile, 2}},
                {"Pad", {pad, 10}},
                {"Shape", {shape}},
                {"Size", {size}},
                {"ConstantOfShape", {constant_of_shape, 1}},
                {"Range", {range, 7}},
                {"NonZero", {non_zero, 0, true}},
                {"Compress", {compress, 0, true}},
                {"DepthToSpace", {depth_to_space}},
                {"SpaceToDepth", {space_to_depth}},
                {"Trilu", {trilu}},
                {"OneHot", {one_hot, 2}},
                {"ScatterND", {scatter_nd}},
                {"ScatterElements", {scatter_elements}}});
}

}  // namespace reference
