// Pictures: PPM and PGM files, parts, sizes, and a preview in the terminal.
#pragma once

#include <belay/status.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace ocr {

struct Image {  // rows of pixels, three channels each, 0 to 255, in the order blue, green, red
  int width = 0, height = 0;
  std::vector<float> pixels;
  const float* at(int x, int y) const { return pixels.data() + (size_t(y) * size_t(width) + size_t(x)) * 3; }
  float* at(int x, int y) { return pixels.data() + (size_t(y) * size_t(width) + size_t(x)) * 3; }
};

struct Box {
  int left = 0, top = 0, right = 0, bottom = 0;  // right and bottom are outside
};

// Binary PPM (P6) or PGM (P5), 8 bits.
belay::Result<Image> read_image(const std::string& path);
// A part in another size, bilinear.
Image resized(const Image& image, const Box& part, int width, int height);
// As planes [3, height, width] of (pixel / 255 - mean[c]) / deviation[c].
void to_planes(const Image& image, const float (&mean)[3], const float (&deviation)[3],
               std::vector<float>& out);
// Two rows of the picture in a line of half blocks.
void preview(const Image& image, int columns);

}  // namespace ocr
