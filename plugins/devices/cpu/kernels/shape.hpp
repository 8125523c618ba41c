// Arithmetic on dims: counts, strides, axes, broadcasting.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace belay::cpu {

using Dims = std::vector<int64_t>;

// Most dims an operand may have; more are refused at prepare. A kernel may see each as two.
inline constexpr size_t kMaxRank = 32;

// Product of dims in [from, to). That of all dims of an operand was checked to fit; part of them may wrap
// around where another dim is 0, and then stands for nothing.
inline int64_t product(std::span<const int64_t> dims) {
  uint64_t count = 1;
  for (const int64_t dim : dims) count *= uint64_t(dim);
  return int64_t(count);
}
inline int64_t product(const Dims& dims, size_t from, size_t to) {
  return product(std::span(dims).subspan(from, to - from));
}

// Row-major strides in elements.
Dims dense_strides(const Dims& dims);

// "[2,3]".
std::string text_of(std::span<const int64_t> dims);

// `axis` in [-rank, rank) as one in [0, rank); nothing when it is outside.
std::optional<size_t> normal_axis(int64_t axis, size_t rank);

// The shape to which all broadcast (multidirectional rule of ONNX); nothing when they do not.
std::optional<Dims> broadcast(std::span<const Dims* const> shapes);

// Strides with which an operand of shape `dims` is read at the indices of `out`: 0 along broadcast dims.
// `dims` broadcasts to `out`.
Dims broadcast_strides(const Dims& dims, const Dims& out);

// Several operands walked together over one index space. Neighbouring dims that all operands walk without a
// gap are joined and dims of 1 dropped, so the innermost run is as long as it can be. An empty `dims` is one
// element.
struct Walk {
  Dims dims;
  std::vector<Dims> strides;  // [operand][dim], in elements
  Walk() = default;
  Walk(const Dims& dims, std::vector<Dims> strides);
  size_t rank() const { return dims.size(); }
  int64_t count() const { return product(dims); }
};

// Calls f(index of a run, offsets) for runs [begin, end) of the walk's outer dims (all but the last `inner`),
// with each operand's element offset; offsets are kept up without divisions.
template <size_t kOperands, class F>
void for_runs(const Walk& walk, size_t inner, int64_t begin, int64_t end, F&& f) {
  const size_t outer = walk.rank() - inner;
  int64_t offsets[kOperands] = {};
  int64_t index[2 * kMaxRank] = {};
  int64_t rest = begin;
  for (size_t d = outer; d-- > 0;) {
    index[d] = rest % walk.dims[d];
    rest /= walk.dims[d];
    for (size_t k = 0; k < kOperands; ++k) offsets[k] += index[d] * walk.strides[k][d];
  }
  for (int64_t run = begin; run < end; ++run) {
    f(run, static_cast<const int64_t*>(offsets));
    for (size_t d = outer; d-- > 0;) {
      for (size_t k = 0; k < kOperands; ++k) offsets[k] += walk.strides[k][d];
      if (++index[d] < walk.dims[d]) break;
      for (size_t k = 0; k < kOperands; ++k) offsets[k] -= walk.dims[d] * walk.strides[k][d];
      index[d] = 0;
    }
  }
}
}  // namespace belay::cpu
