// hal/tensor_view.h: a caller's tensor, checked, and copies between such tensors.
#pragma once

#include <belay/abi/driver.h>
#include <belay/abi/tensor.h>
#include <belay/status.hpp>
#include "hal/buffer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace belay::hal {

class Hal;
class Stream;

struct TensorView {
  uint32_t dtype = BELAY_DT_UNDEFINED;
  std::vector<int64_t> dims, strides;  // strides always; those of a dense tensor where the caller gave none
  uint64_t count = 0;                  // elements
  uint64_t bytes = 0;                  // dense
  uint64_t width = 0;                  // bytes of an element; 0: less than one
  bool dense = true;
  int64_t low = 0, high = 0;  // what is touched, in bytes from the first element: [low, high)

  // Whether all of `tensor`, whose view this is, lies in host memory one element behind the other.
  bool in_host_memory(const belay_tensor& tensor) const {
    return dense && !tensor.buffer && (tensor.data || !count);
  }
  std::string text() const;   // "float32[2,3]"
  TensorView packed() const;  // the same, dense
};

// The tensor's numbers, without looking at its memory. `label` begins the sentence: "Input 1 of operator
// 'Add'". INVALID_ARGUMENT, OUT_OF_RANGE (strides or storage), UNIMPLEMENTED (strides of elements below a
// byte). What a quantisation refers to is read; with a Hal it is known whether there is memory.
Result<TensorView> view_of(const belay_tensor* tensor, const std::string& label, const Hal* hal = nullptr);
inline constexpr int kDeepestDatum = 16;  // items in items: what is deeper no engine takes
// Calls fn(tensor) for each tensor of a datum, of its items too.
template <class Fn>
void each_tensor(const belay_datum& datum, Fn&& fn, int depth = 0) {
  if (datum.tensor) fn(*datum.tensor);
  for (uint64_t i = 0; datum.items && depth < kDeepestDatum && i < datum.item_count; ++i)
    if (datum.items[i]) each_tensor(*datum.items[i], fn, depth + 1);
}
// INVALID_ARGUMENT: a datum, or a tensor or item of it, that says to have fewer fields than are read.
Status check_sizes(const belay_datum& datum, const std::string& label, int depth = 0);
Status check_size(const belay_tensor& tensor, const std::string& label);
// What of a tensor that an engine has taken lies in a reserved buffer; nothing: it lies elsewhere.
std::optional<ReservedPart> reserved_part(const Hal& hal, const belay_tensor& tensor);
// Where the host sees the first element of a checked view; nullptr: it has no elements. INVALID_ARGUMENT (no
// memory, two, a dead buffer), OUT_OF_RANGE (past the buffer), UNIMPLEMENTED (memory that the host does not
// see).
Result<char*> address_of(const Hal& hal, const belay_tensor& tensor, const TensorView& view,
                         const std::string& label);
// INVALID_ARGUMENT: kernels cannot read elements of this type from there.
Status check_aligned(const TensorView& view, const char* address, const std::string& label);
// INVALID_ARGUMENT: two elements lie, or may lie, at one place, so that it cannot be written.
Status check_apart(const TensorView& view, const std::string& label);
// Scale, zero point, axis and block fit the view.
Status check_quant(const belay_quant& quant, const TensorView& view, const std::string& label, const Hal* hal);
inline const belay_quant* quant_of(const belay_tensor& tensor) {
  return BELAY_HAS(&tensor, belay_tensor, quant) ? tensor.quant : nullptr;
}

// Queues a copy of all elements; both views have the same type and dims. A plain copy where both are dense.
belay_status copy_view(Stream& stream, const TensorView& to, char* to_address, const TensorView& from,
                       const char* from_address, belay_event* out);
// The checks and the copy of belay_tensor_copy.
belay_status copy_tensor(Stream& stream, const belay_tensor* to, const belay_tensor* from, belay_event* out);

}  // namespace belay::hal
