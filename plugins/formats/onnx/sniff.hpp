// Is it an ONNX model? Decided by the fields of a ModelProto; the name breaks ties.
#pragma once

#include <cstdint>
#include <string_view>

namespace belay::onnx {

// 0: not ONNX; up to 1000: certain. `head`: the first bytes of a file of `file_bytes`. 1: only the name says
// so, so that an error about an ONNX file can follow when nobody else wants it.
uint32_t sniff(std::string_view file_name, std::string_view head, uint64_t file_bytes);

}  // namespace belay::onnx
