#include "image.h"

#include <langinfo.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace ocr {
namespace {

// A number of the header; '#' begins a comment.
bool number(const std::string& file, size_t& at, int& out) {
  for (; at < file.size(); ++at) {
    if (file[at] == '#')
      while (at < file.size() && file[at] != '\n') ++at;
    else if (file[at] >= '0' && file[at] <= '9')
      break;
    else if (std::strchr(" \t\r\n", file[at]) == nullptr)
      return false;
  }
  out = 0;
  const size_t begin = at;
  for (; at < file.size() && file[at] >= '0' && file[at] <= '9' && out < 1'000'000; ++at)
    out = out * 10 + (file[at] - '0');
  return at > begin;
}

}  // namespace

belay::Result<Image> read_image(const std::string& path) {
  const auto bad = [&](const char* what) {
    return belay::Status(belay::Code::kInvalidArgument,
                         "'" + path + "' " + what + ", want a binary PPM (P6) or PGM (P5) of 8 bits.");
  };
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    return belay::Status(belay::Code::kNotFound,
                         "'" + path + "' cannot be opened: " + std::strerror(errno) + ".");
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  if (file.size() < 3 || file[0] != 'P' || (file[1] != '5' && file[1] != '6'))
    return bad("is no such picture");
  const size_t channels = file[1] == '6' ? 3 : 1;
  size_t at = 2;
  Image image;
  int largest = 0;
  if (!number(file, at, image.width) || !number(file, at, image.height) || !number(file, at, largest) ||
      largest != 255)
    return bad("has a header that is not understood");
  constexpr int kMost = 10'000;
  if (image.width < 1 || image.height < 1 || image.width > kMost || image.height > kMost)
    return bad("has an odd size");
  ++at;  // one white space ends the header
  const size_t count = size_t(image.width) * size_t(image.height);
  if (file.size() < at || file.size() - at < count * channels) return bad("is cut short");
  image.pixels.resize(count * 3);
  for (size_t i = 0; i < count; ++i)
    for (size_t c = 0; c < 3; ++c)
      image.pixels[i * 3 + c] = float(uint8_t(file[at + i * channels + (channels == 3 ? 2 - c : 0)]));
  return image;
}

Image resized(const Image& image, const Box& part, int width, int height) {
  Image out{width, height, std::vector<float>(size_t(width) * size_t(height) * 3)};
  const float scale_x = float(part.right - part.left) / float(width),
              scale_y = float(part.bottom - part.top) / float(height);
  for (int y = 0; y < height; ++y) {
    const float from_y = std::clamp((float(y) + 0.5f) * scale_y - 0.5f + float(part.top), float(part.top),
                                    float(part.bottom - 1));
    const int y0 = int(from_y), y1 = std::min(y0 + 1, part.bottom - 1);
    for (int x = 0; x < width; ++x) {
      const float from_x = std::clamp((float(x) + 0.5f) * scale_x - 0.5f + float(part.left), float(part.left),
                                      float(part.right - 1));
      const int x0 = int(from_x), x1 = std::min(x0 + 1, part.right - 1);
      const float fx = from_x - float(x0), fy = from_y - float(y0);
      for (int c = 0; c < 3; ++c)
        out.at(x, y)[c] = (image.at(x0, y0)[c] * (1 - fx) + image.at(x1, y0)[c] * fx) * (1 - fy) +
                          (image.at(x0, y1)[c] * (1 - fx) + image.at(x1, y1)[c] * fx) * fy;
    }
  }
  return out;
}

void to_planes(const Image& image, const float (&mean)[3], const float (&deviation)[3],
               std::vector<float>& out) {
  const size_t count = size_t(image.width) * size_t(image.height);
  out.resize(count * 3);
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < count; ++i)
      out[c * count + i] = (image.pixels[i * 3 + c] / 255 - mean[c]) / deviation[c];
}

void preview(const Image& image, int columns) {
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) return;  // nothing but half blocks would be legible
  const int rows = std::max(2, int(float(columns) * float(image.height) / float(image.width)) / 2 * 2);
  const Image small = resized(image, {0, 0, image.width, image.height}, columns * 2, rows * 2);
  // The darkest of four: thin strokes do not vanish.
  const auto dark = [&](int x, int y) {
    float least = 255;
    for (int k = 0; k < 4; ++k) least = std::min(least, small.at(x * 2 + k % 2, y * 2 + k / 2)[1]);
    return least < 128;
  };
  for (int y = 0; y < rows; y += 2) {
    std::string line = "  ";
    for (int x = 0; x < columns; ++x) {
      const bool upper = dark(x, y), lower = dark(x, y + 1);
      line += upper && lower ? "\u2588" : upper ? "\u2580" : lower ? "\u2584" : " ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::puts(line.c_str());
  }
}

}  // namespace ocr
