// belay/tensor_io/onnx_tensor.hpp: one TensorProto of ONNX, read in place and checked: type, dims, and that
// exactly one kind of data has exactly the size they need. Facts: onnx.proto. In library belay::tensor_io.
#pragma once

#include <belay/status.hpp>
#include <belay/tensor_io/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belay::onnx {

struct TensorProto {
  enum class Data { kRaw, kTyped, kExternal };

  std::string_view name;
  uint32_t dtype = 0;         // a known BELAY_DT_..., whose numbers are ONNX's own
  std::vector<int64_t> dims;  // at most 32, all >= 0
  uint64_t count = 0;         // elements
  uint64_t bytes = 0;         // of the dense data; 0 for strings
  Data data = Data::kRaw;
  std::string_view raw;      // kRaw: `bytes` bytes, little-endian
  std::string_view message;  // kTyped: read_values and read_strings read from here; holds `count` elements
  const char* base = nullptr;

  // kExternal: as the file gives them. length: `bytes`, but what is written in the file is checked against
  // it.
  std::string_view location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

// `message` lies in the file that begins at `base`. Nothing is allocated but dims. Errors: DATA_LOSS,
// INVALID_ARGUMENT (names the tensor, shows what was found and expected), UNIMPLEMENTED (segments, types that
// are not known).
Result<TensorProto> read_tensor(std::string_view message, const char* base);

// The values of a kTyped tensor that is not of strings, dense, into `out` of exactly tensor.bytes bytes.
// Errors: DATA_LOSS, INVALID_ARGUMENT (a value does not fit the element type).
Status read_values(const TensorProto& tensor, std::span<std::byte> out);

// The elements of a tensor of strings; they point into the message.
Result<std::vector<std::string_view>> read_strings(const TensorProto& tensor);

}  // namespace belay::onnx
