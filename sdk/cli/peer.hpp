// ONNX Runtime as the other side of a comparison, loaded at run time.
#pragma once

#include "side.hpp"

namespace belay::cli {

// The library: `path`, else what BELAY_ORT_LIB names, else what the dynamic linker finds.
// Throws Failure: no library (says where it was looked for), one that is no ONNX Runtime 1.x, or a model that
// it refuses.
std::unique_ptr<Side> onnxruntime_side(const std::string& path, const std::string& model,
                                       const std::vector<IoInfo>& inputs, const std::vector<IoInfo>& outputs);

}  // namespace belay::cli
