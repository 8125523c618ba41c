// belay/tensor_io.hpp: tensors in host memory that own their bytes, and the files they come from: NumPy .npy,
// the .pb files of ONNX test cases, raw bytes. In library belay::tensor_io. Files are untrusted: sizes are
// checked against the file before anything is allocated. Functions may be called from any thread; objects are
// for one thread at a time.
#pragma once

#include <belay/abi/tensor.h>
#include <belay/status.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay {

// Memory aligned to 64 bytes, so that every kernel can use it in place.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(size_t n) {
    if (n > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64)));
  }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const AlignedAllocator&) const = default;
};

// A dense row-major tensor. Strings are in `strings`, everything else in `bytes`, packed as abi/graph.h says.
struct HostTensor {
  uint32_t dtype = BELAY_DT_UNDEFINED;  // BELAY_DT_...
  std::vector<int64_t> dims;            // all >= 0
  std::vector<std::byte, AlignedAllocator<std::byte>> bytes;
  std::vector<std::string> strings;

  uint64_t count() const;  // elements
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // Of zeros, or of empty strings. Errors: INVALID_ARGUMENT (unknown type, negative dim, rank over 32, size
  // overflow), RESOURCE_EXHAUSTED (no memory).
  static Result<HostTensor> make(uint32_t dtype, std::span<const int64_t> dims);
  // A copy of `values`, whose number is what dims say (else INVALID_ARGUMENT).
  template <class T>
  static Result<HostTensor> of(uint32_t dtype, std::span<const int64_t> dims, std::span<const T> values) {
    return copy_of(dtype, dims, std::as_bytes(values));
  }
  static Result<HostTensor> copy_of(uint32_t dtype, std::span<const int64_t> dims,
                                    std::span<const std::byte> bytes);
  bool operator==(const HostTensor&) const = default;
};

// What a graph's input or output holds (belay_datum, owned).
struct HostDatum {
  uint32_t kind = BELAY_TYPE_TENSOR;  // BELAY_TYPE_...
  HostTensor tensor;                  // of a tensor
  std::vector<HostDatum> items;  // of a sequence; of an optional, 0 or 1; of a map, keys and values in turn

  HostDatum() = default;
  HostDatum(HostTensor value) : tensor(std::move(value)) {}  // NOLINT: a tensor is a datum
  bool operator==(const HostDatum&) const = default;
};

// The C view of a datum, for a run; borrows the datum's memory, which must stay and not move. Movable.
class DatumView {
 public:
  explicit DatumView(const HostDatum& datum);
  DatumView(DatumView&&) = default;
  DatumView& operator=(DatumView&&) = default;  // a copy would lead to the parts of the original
  const belay_datum* get() const { return root_; }
  const belay_tensor* tensor() const { return root_->tensor; }  // null unless it is a tensor

 private:
  belay_datum* add(const HostDatum& datum);
  std::deque<belay_datum> data_;
  std::deque<belay_tensor> tensors_;
  std::deque<std::vector<belay_str>> strings_;
  std::deque<std::vector<const belay_datum*>> items_;
  const belay_datum* root_ = nullptr;
};

// Copies from host memory; strides are resolved. Errors: INVALID_ARGUMENT (a tensor in a device buffer, sizes
// that do not fit, kinds nested deeper than 32), RESOURCE_EXHAUSTED.
Result<HostTensor> copy_tensor(const belay_tensor& tensor);
Result<HostDatum> copy_datum(const belay_datum& datum);

// ---- element types and shapes in text
// ---------------------------------------------------------------------------------
std::optional<uint32_t> parse_dtype(
    std::string_view name);  // "float32", also "f32", "float", "half", "i64", "bf16" ...
Result<std::vector<int64_t>> parse_dims(
    std::string_view text);                            // "1x3x224x224" or "1,3,224,224"; "" is a scalar
std::string dims_text(std::span<const int64_t> dims);  // "[1,3,224,224]"
std::string element_text(const HostTensor& tensor, uint64_t index);
// Element as a number; complex numbers give the real part; nothing for strings.
double element_value(const HostTensor& tensor, uint64_t index);

// ---- files
// ------------------------------------------------------------------------------------------------------------
// All bytes of a regular file. Errors: NOT_FOUND, INVALID_ARGUMENT (not a regular file), RESOURCE_EXHAUSTED,
// DATA_LOSS.
Result<std::string> read_file(const std::string& path);
Status write_file(const std::string& path, std::string_view bytes);

// NumPy's .npy, versions 1 to 3: numbers of any byte order, C and Fortran order, bool, float16, complex, byte
// strings (S) and Unicode strings (U, to UTF-8). Two-byte void (V2), as ml_dtypes writes bfloat16, is read as
// bfloat16; for other void types and sub-byte types `dtype` says what the bytes are. Objects and structures
// are refused: they hold Python code. Format: numpy.lib.format. Errors: DATA_LOSS (damaged), UNIMPLEMENTED
// (names the type).
Result<HostTensor> parse_npy(std::string_view file, uint32_t dtype = BELAY_DT_UNDEFINED);
Result<HostTensor> read_npy(const std::string& path, uint32_t dtype = BELAY_DT_UNDEFINED);
// Version 1 (3 where the header needs it). bfloat16 becomes V2, eight-bit floats V1, sub-byte types V1 of
// their packed bytes, strings U (S where they are not UTF-8).
std::string to_npy(const HostTensor& tensor);
Status write_npy(const std::string& path, const HostTensor& tensor);

// Files of ONNX test cases: one TensorProto, SequenceProto, OptionalProto or MapProto, as `kind`
// (BELAY_TYPE_...) says. External data is refused. Errors: DATA_LOSS, INVALID_ARGUMENT (against the format's
// rules), UNIMPLEMENTED (sparse).
Result<HostDatum> parse_pb(std::string_view file, uint32_t kind = BELAY_TYPE_TENSOR);
Result<HostDatum> read_pb(const std::string& path, uint32_t kind = BELAY_TYPE_TENSOR);
// `name` goes into the message's name field.
std::string to_pb(const HostDatum& datum, std::string_view name = {});
Status write_pb(const std::string& path, const HostDatum& datum, std::string_view name = {});

// Raw bytes, little-endian, of this type and shape. One dim may be -1: the file's size decides it. Errors: as
// above, and INVALID_ARGUMENT (size and shape do not agree: shows both).
Result<HostTensor> read_raw(const std::string& path, uint32_t dtype, std::span<const int64_t> dims);
Status write_raw(const std::string& path, const HostTensor& tensor);

// By the name's end: .npy, .pb, else raw, which needs dtype and dims.
Result<HostDatum> read_datum(const std::string& path, uint32_t kind, uint32_t dtype,
                             const std::optional<std::vector<int64_t>>& dims);

// ---- comparison
// -------------------------------------------------------------------------------------------------------
// Equal: |found - expected| <= atol + rtol * |expected|; NaN equals NaN, an infinity itself; strings, bools
// and kinds exactly. The atol in force is the larger of `atol` and `atol_of_largest` times the largest finite
// |expected|.
struct Tolerance {
  double rtol = 1e-4;
  double atol = 0;
  double atol_of_largest = 1e-5;
};
inline constexpr Tolerance kOnnxTolerance{1e-3, 1e-7, 0};  // of the ONNX backend tests

struct Comparison {
  bool equal = true;
  std::string
      reason;  // why not: a sentence that shows the worst element, or the shapes, types or counts that differ
  uint64_t elements = 0;   // compared
  uint64_t differing = 0;  // of them outside the tolerance
  double worst_difference =
      0;  // |found - expected| of the element furthest out (infinite where only one is NaN)
  std::vector<int64_t> worst_at;  // its index
};
Comparison compare(const HostTensor& found, const HostTensor& expected, const Tolerance& tolerance = {});
Comparison compare(const HostDatum& found, const HostDatum& expected, const Tolerance& tolerance = {});

}  // namespace belay
