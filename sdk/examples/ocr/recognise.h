// What a line of text says: PP-OCRv4's recogniser and the decoding of its answer.
#pragma once

#include "image.h"

#include <belay/runtime.hpp>

#include <string>
#include <vector>

namespace ocr {

struct Line {
  std::string text;      // UTF-8
  float confidence = 0;  // mean probability of its characters
};

// Lines of the package's dictionary, in order.
belay::Result<std::vector<std::string>> read_keys(const std::string& path);
belay::Result<Line> recognise(belay::Context& context, const std::vector<std::string>& keys,
                              const Image& image, const Box& box);

}  // namespace ocr
