// Where text is: PP-OCRv4's detector gives a map of probabilities; its regions become boxes.
#pragma once

#include "image.h"

#include <belay/runtime.hpp>

#include <vector>

namespace ocr {

// In reading order: from top to bottom, in a line from left to right.
belay::Result<std::vector<Box>> detect(belay::Context& context, const Image& image);

}  // namespace ocr
