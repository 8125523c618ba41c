#include "shape.hpp"

#include <algorithm>

namespace belay::cpu {

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size());
  uint64_t step = 1;  // wraps around only where there is no element
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = int64_t(step);
    step *= uint64_t(dims[d]);
  }
  return strides;
}

std::string text_of(std::span<const int64_t> dims) {
  std::string out = "[";
  for (const int64_t dim : dims) out.append(out.size() > 1 ? "," : "").append(std::to_string(dim));
  return out + "]";
}

std::optional<size_t> normal_axis(int64_t axis, size_t rank) {
  if (axis < -int64_t(rank) || axis >= int64_t(rank)) return std::nullopt;
  return size_t(axis < 0 ? axis + int64_t(rank) : axis);
}

std::optional<Dims> broadcast(std::span<const Dims* const> shapes) {
  size_t rank = 0;
  for (const Dims* shape : shapes) rank = std::max(rank, shape->size());
  Dims out(rank, 1);
  for (const Dims* shape : shapes)
    for (size_t d = 0; d < shape->size(); ++d) {
      int64_t& to = out[rank - shape->size() + d];
      const int64_t from = (*shape)[d];
      if (from == to || from == 1) continue;
      if (to != 1) return std::nullopt;
      to = from;
    }
  return out;
}

Dims broadcast_strides(const Dims& dims, const Dims& out) {
  Dims strides(out.size(), 0);
  const Dims dense = dense_strides(dims);
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] != 1) strides[out.size() - dims.size() + d] = dense[d];
  return strides;
}

Walk::Walk(const Dims& from, std::vector<Dims> from_strides) : strides(from_strides.size()) {
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == 1) continue;
    bool joins = !dims.empty();
    for (size_t k = 0; joins && k < strides.size(); ++k)
      joins = uint64_t(strides[k].back()) == uint64_t(from_strides[k][d]) * uint64_t(from[d]);
    if (joins) {
      dims.back() = int64_t(uint64_t(dims.back()) * uint64_t(from[d]));
      for (size_t k = 0; k < strides.size(); ++k) strides[k].back() = from_strides[k][d];
    } else {
      dims.push_back(from[d]);
      for (size_t k = 0; k < strides.size(); ++k) strides[k].push_back(from_strides[k][d]);
    }
  }
}

}  // namespace belay::cpu
