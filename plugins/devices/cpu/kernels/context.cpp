#include "context.hpp"

#include <cstring>

namespace belay::cpu {

std::optional<Dims> OpContext::known_out_dims(size_t o) const {
  if (!wants(o) || !signature_.outputs[o].dims) return std::nullopt;
  for (const int64_t dim : *signature_.outputs[o].dims)
    if (dim < 0) return std::nullopt;
  return signature_.outputs[o].dims;
}

Status OpContext::bad(std::string_view what, Code code) const {
  std::string text(op());
  if (!signature_.name.empty()) text.append(" '").append(signature_.name).append("'");
  return {code, text.append(": ").append(what).append(".")};
}

Result<size_t> OpContext::axis(int64_t axis, size_t rank, std::string_view name) const {
  if (const auto normal = normal_axis(axis, rank)) return *normal;
  if (rank == 0) return bad(std::string(name) + " is " + std::to_string(axis) + ", but a scalar has no axis");
  return bad(std::string(name) + " is " + std::to_string(axis) + ", want " + std::to_string(-int64_t(rank)) +
             " to " + std::to_string(int64_t(rank) - 1));
}

Result<std::vector<size_t>> OpContext::axes(const std::vector<int64_t>& axes, size_t rank) const {
  std::vector<size_t> out;
  for (const int64_t raw : axes) {
    BELAY_ASSIGN(const size_t at, axis(raw, rank, "an axis"));
    if (std::find(out.begin(), out.end(), at) != out.end())
      return bad("axes " + text_of(axes) + " name axis " + std::to_string(at) + " twice");
    out.push_back(at);
  }
  return out;
}

Result<std::vector<int64_t>> OpContext::ints(size_t i) const {
  if (!has(i)) return bad("input " + std::to_string(i) + " is missing");
  const void* bytes = constant(i);
  const size_t n = size_t(count(i));
  if (!bytes && n != 0) return Status(kDeferred, "input " + std::to_string(i) + " is not known yet");
  std::vector<int64_t> out(n);
  if (dtype(i) == BELAY_DT_INT64) {
    if (n) std::memcpy(out.data(), bytes, n * 8);
  } else if (dtype(i) == BELAY_DT_INT32) {
    // Constants lie in files at any alignment.
    for (size_t k = 0; k < n; ++k) {
      int32_t value;
      std::memcpy(&value, static_cast<const char*>(bytes) + k * 4, 4);
      out[k] = value;
    }
  } else {
    return bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(dtype(i))) +
               ", want int64 or int32");
  }
  return out;
}

Result<std::vector<double>> OpContext::numbers(size_t i) const {
  if (!has(i)) return bad("input " + std::to_string(i) + " is missing");
  const void* bytes = constant(i);
  const size_t n = size_t(count(i));
  if (!bytes && n != 0) return Status(kDeferred, "input " + std::to_string(i) + " is not known yet");
  std::vector<double> out(n);
  const bool known = dispatch<kNumeric | kBool>(dtype(i), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (size_t k = 0; k < n; ++k) {
      T value;
      std::memcpy(&value, static_cast<const char*>(bytes) + k * sizeof(T), sizeof(T));
      out[k] = double(Compute<T>::load(value));
    }
  });
  if (!known) return bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(dtype(i))));
  return out;
}

std::shared_ptr<const Packed> OpContext::packed(size_t i, std::string_view form,
                                                const PackCache::Make& make) {
  auto packed = cache_->get(signature_.inputs[i].constant_key, form, make);
  packed_bytes_ += packed->bytes;
  return packed;
}

Status OpContext::output(size_t o, uint32_t dtype, const Dims& dims) {
  if (!wants(o)) return {};
  const Operand& image = signature_.outputs[o];
  const std::string label = "output " + std::to_string(o);
  if (image.dtype != BELAY_DT_UNDEFINED && image.dtype != dtype)
    return bad(label + " is of type " + std::string(dtype_name(dtype)) + ", but the graph says " +
               std::string(dtype_name(image.dtype)));
  if (dims.size() > kMaxRank)
    return bad(label + " has rank " + std::to_string(dims.size()) + ", want 32 at most");
  const auto elements = element_count(dims);
  if (!elements || *elements > uint64_t(INT64_MAX) / 16)
    return bad(label + " would have the shape " + text_of(dims) + ", too large to address");
  bool known = image.dims.has_value();
  if (image.dims) {
    bool equal = image.dims->size() == dims.size();
    for (size_t d = 0; equal && d < dims.size(); ++d) {
      equal = (*image.dims)[d] < 0 || (*image.dims)[d] == dims[d];
      known = known && (*image.dims)[d] >= 0;
    }
    if (!equal)
      return bad(label + " has the shape " + text_of(dims) + ", but the graph says " + text_of(*image.dims));
  }
  if (!known) resize_ = true;
  if (declared_.size() <= o) declared_.resize(outputs());
  declared_[o] = dims;
  return {};
}

Status OpContext::output_dynamic(size_t o, uint32_t dtype) {
  if (!wants(o)) return {};
  const Operand& image = signature_.outputs[o];
  if (image.dtype != BELAY_DT_UNDEFINED && image.dtype != dtype)
    return bad("output " + std::to_string(o) + " is of type " + std::string(dtype_name(dtype)) +
               ", but the graph says " + std::string(dtype_name(image.dtype)));
  dynamic_ = true;
  return {};
}

}  // namespace belay::cpu
