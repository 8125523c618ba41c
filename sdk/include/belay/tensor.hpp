// belay/tensor.hpp: views of tensors in C++: header-only over belay/abi/tensor.h.
//
//   const belay::Tensor image = belay::Tensor::of(pixels, {480, 640, 3});
//   BELAY_ASSIGN(const belay::Tensor rows, image.slice(0, 100, 324));
//   BELAY_ASSIGN(const belay::Tensor crop, rows.slice(1, 200, 424));
//   BELAY_ASSIGN(const belay::Tensor planes, crop.permute({2, 0, 1}));
//
// in a function that gives a belay::Status.
#pragma once

#include <belay/abi/tensor.h>
#include <belay/graph/dtype.hpp>
#include <belay/status.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace belay {

// The BELAY_DT_... of a C++ type.
template <class T>
constexpr uint32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return BELAY_DT_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return BELAY_DT_FLOAT64;
  else if constexpr (std::is_same_v<T, bool>)
    return BELAY_DT_BOOL;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 1)
    return std::is_signed_v<T> ? BELAY_DT_INT8 : BELAY_DT_UINT8;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 2)
    return std::is_signed_v<T> ? BELAY_DT_INT16 : BELAY_DT_UINT16;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 4)
    return std::is_signed_v<T> ? BELAY_DT_INT32 : BELAY_DT_UINT32;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return std::is_signed_v<T> ? BELAY_DT_INT64 : BELAY_DT_UINT64;
  else
    static_assert(!sizeof(T), "no element type for this; give its BELAY_DT_... number");
}

// A view of a tensor's elements; keeps its dims, owns no elements. Its address is not part of what is lent:
// it may move. A view of a view looks at the same elements.
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, uint64_t bytes, uint32_t dtype, std::vector<int64_t> dims)
      : data_(data), bytes_(bytes), dtype_(dtype), dims_(std::move(dims)) {}
  explicit Tensor(const belay_tensor& raw)
      : data_(raw.data),
        buffer_(raw.buffer),
        offset_(raw.offset),
        bytes_(raw.bytes),
        dtype_(raw.dtype),
        dims_(raw.dims, raw.dims + raw.rank) {
    if (raw.strides) strides_.assign(raw.strides, raw.strides + raw.rank);
    if (BELAY_HAS(&raw, belay_tensor, quant))
      quant_ = make_quant(*raw.quant, Tensor(*raw.quant->scale),
                          raw.quant->zero_point ? Tensor(*raw.quant->zero_point) : Tensor());
  }
  // Of a vector, array or span of elements; the elements are borrowed.
  template <class Range>
  static Tensor of(Range& elements, std::vector<int64_t> dims) {
    using T = std::remove_cv_t<std::remove_reference_t<decltype(*std::data(elements))>>;
    return Tensor(const_cast<T*>(std::data(elements)), std::size(elements) * sizeof(T), dtype_of<T>(),
                  std::move(dims));
  }
  // In a device's buffer of `bytes` bytes, from byte `offset` on.
  static Tensor in(belay_obj* buffer, uint64_t bytes, uint64_t offset, uint32_t dtype,
                   std::vector<int64_t> dims) {
    Tensor tensor(nullptr, offset < bytes ? bytes - offset : 0, dtype, std::move(dims));
    tensor.buffer_ = buffer;
    tensor.offset_ = offset;
    return tensor;
  }

  uint32_t dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  const std::vector<int64_t>& strides() const { return strides_; }  // in elements; empty: dense
  uint64_t count() const {
    uint64_t product = 1;
    for (int64_t dim : dims_) product *= uint64_t(dim);
    return product;
  }
  uint64_t bytes() const { return bytes_; }
  void* data() const { return data_; }  // NULL: in a device's buffer
  belay_obj* buffer() const { return buffer_; }
  uint64_t offset() const { return offset_; }  // bytes into the buffer
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  // ---- other views of the same elements

  // Elements begin, begin + step, ... before `end` of an axis. OUT_OF_RANGE: not inside the axis, or a step
  // below 1.
  Result<Tensor> slice(size_t axis, int64_t begin, int64_t end, int64_t step = 1) const {
    BELAY_TRY(check_axis(axis));
    if (begin < 0 || end < begin || end > dims_[axis] || step < 1)
      return Status(Code::kOutOfRange, "Slice " + std::to_string(begin) + ":" + std::to_string(end) + ":" +
                                           std::to_string(step) + " of axis " + std::to_string(axis) +
                                           ", which has " + std::to_string(dims_[axis]) + " elements.");
    BELAY_ASSIGN(Tensor view, strided());
    if (begin < end) view.advance(begin * view.strides_[axis]);
    view.dims_[axis] = (end - begin + step - 1) / step;
    view.strides_[axis] *= step;
    return view;
  }
  // One element of an axis, without that axis.
  Result<Tensor> select(size_t axis, int64_t index) const {
    BELAY_ASSIGN(Tensor view, slice(axis, index, index + 1));
    view.dims_.erase(view.dims_.begin() + ptrdiff_t(axis));
    view.strides_.erase(view.strides_.begin() + ptrdiff_t(axis));
    return view;
  }
  // Axis i of the result is axis `axes[i]`.
  Result<Tensor> permute(const std::vector<size_t>& axes) const {
    std::vector<size_t> sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i)
      if (sorted.size() != dims_.size() || sorted[i] != i)
        return Status(Code::kInvalidArgument,
                      "Permutation: want each axis from 0 to " + std::to_string(dims_.size()) + " - 1 once.");
    if (axes.size() != dims_.size())
      return Status(Code::kInvalidArgument,
                    "Permutation of no axes; the tensor has " + std::to_string(dims_.size()) + ".");
    BELAY_ASSIGN(const Tensor from, strided());
    Tensor view = from;
    for (size_t i = 0; i < axes.size(); ++i)
      view.dims_[i] = from.dims_[axes[i]], view.strides_[i] = from.strides_[axes[i]];
    return view;
  }
  // An axis the other way round.
  Result<Tensor> reverse(size_t axis) const {
    BELAY_TRY(check_axis(axis));
    BELAY_ASSIGN(Tensor view, strided());
    if (dims_[axis] > 0) view.advance((dims_[axis] - 1) * view.strides_[axis]);
    view.strides_[axis] = -view.strides_[axis];
    view.bytes_ = 0;  // elements lie before the first one, too
    return view;
  }
  // The same elements in the same order under other dims. INVALID_ARGUMENT: other elements in number, or not
  // dense.
  Result<Tensor> reshape(std::vector<int64_t> dims) const {
    if (!strides_.empty())
      return Status(Code::kInvalidArgument,
                    "A tensor with strides cannot be reshaped in place; copy it first.");
    Tensor view = *this;
    view.dims_ = std::move(dims);
    if (element_count(view.dims_) != element_count(dims_))
      return Status(Code::kInvalidArgument, "Reshape to " + std::to_string(view.count()) +
                                                " elements of a tensor that has " + std::to_string(count()) +
                                                ".");
    return view;
  }
  // What the stored numbers stand for: one scale for all, one for each index of an axis, or for each block
  // along it. A Tensor() for the zero point is 0.
  Tensor quantised(const Tensor& scale, const Tensor& zero_point) const {
    return with_quant(BELAY_QUANT_TENSOR, 0, 0, scale, zero_point);
  }
  Tensor quantised_along(int64_t axis, const Tensor& scale, const Tensor& zero_point) const {
    return with_quant(BELAY_QUANT_AXIS, axis, 0, scale, zero_point);
  }
  Tensor quantised_in_blocks(int64_t axis, int64_t block, const Tensor& scale,
                             const Tensor& zero_point) const {
    return with_quant(BELAY_QUANT_BLOCK, axis, block, scale, zero_point);
  }

  belay_tensor raw() const {  // refers to this object's dims
    belay_tensor tensor{};
    tensor.hdr.struct_size = sizeof tensor;
    tensor.dtype = dtype_;
    tensor.rank = uint32_t(dims_.size());
    tensor.dims = dims_.data();
    tensor.strides = strides_.empty() ? nullptr : strides_.data();
    tensor.data = data_;
    tensor.buffer = buffer_;
    tensor.offset = offset_;
    tensor.bytes = bytes_;
    tensor.quant = quant_.get();
    return tensor;
  }

 private:
  static std::shared_ptr<const belay_quant> make_quant(const belay_quant& what, const Tensor& scale,
                                                       const Tensor& zero_point);
  Tensor with_quant(uint64_t kind, int64_t axis, int64_t block, const Tensor& scale,
                    const Tensor& zero_point) const {
    Tensor view = *this;
    view.quant_ = make_quant({{}, kind, axis, block, nullptr, nullptr}, scale, zero_point);
    return view;
  }
  Status check_axis(size_t axis) const {
    if (axis < dims_.size()) return {};
    return {Code::kOutOfRange,
            "Axis " + std::to_string(axis) + " of a tensor of rank " + std::to_string(dims_.size()) + "."};
  }
  // With strides spelt out. Axes move under a quantisation along one, so that is for tensors without.
  Result<Tensor> strided() const {
    const DtypeInfo* info = find_dtype(dtype_);
    const uint64_t width = dtype_ == BELAY_DT_STRING     ? sizeof(belay_str)
                           : info && info->bits % 8 == 0 ? info->bits / 8
                                                         : 0;
    if (!width) return Status(Code::kUnimplemented, "Elements of less than a byte must be dense.");
    if (quant_ && quant_->kind != BELAY_QUANT_TENSOR)
      return Status(Code::kUnimplemented, "A tensor quantised along an axis must be seen as a whole.");
    Tensor view = *this;
    view.width_ = width;
    if (!view.strides_.empty()) return view;
    view.strides_.resize(dims_.size());
    int64_t step = 1;
    for (size_t i = dims_.size(); i-- > 0; step *= std::max<int64_t>(dims_[i], 1)) view.strides_[i] = step;
    return view;
  }
  void advance(int64_t elements) {
    const int64_t far = elements * int64_t(width_);
    if (data_) data_ = static_cast<char*>(data_) + far;
    if (buffer_) offset_ += uint64_t(far);
    if (bytes_) bytes_ -= uint64_t(far);
  }

  void* data_ = nullptr;
  belay_obj* buffer_ = nullptr;
  uint64_t offset_ = 0, bytes_ = 0, width_ = 0;
  uint32_t dtype_ = BELAY_DT_UNDEFINED;
  std::vector<int64_t> dims_, strides_;
  std::shared_ptr<const belay_quant> quant_;  // with what it refers to
};

inline std::shared_ptr<const belay_quant> Tensor::make_quant(const belay_quant& what, const Tensor& scale,
                                                             const Tensor& zero_point) {
  struct Kept {
    Tensor scale, zero_point;
    belay_tensor raw_scale, raw_zero_point;
    belay_quant raw;
  };
  auto kept = std::make_shared<Kept>(Kept{scale, zero_point, {}, {}, what});
  kept->raw_scale = kept->scale.raw(), kept->raw_zero_point = kept->zero_point.raw();
  kept->raw.hdr = {sizeof kept->raw, 0, nullptr};
  kept->raw.scale = &kept->raw_scale;
  kept->raw.zero_point = kept->zero_point.dtype() == BELAY_DT_UNDEFINED ? nullptr : &kept->raw_zero_point;
  return {kept, &kept->raw};
}

}  // namespace belay
