#include "detect.h"

#include <algorithm>
#include <cmath>

namespace ocr {
namespace {

// The numbers of PP-OCRv4: the map is cut at 0.3, a region counts from a mean of 0.6 on, and grows by 1.5
// times its area over its circumference, because the network was trained on shrunken regions.
constexpr float kCut = 0.3f, kScore = 0.6f, kGrow = 1.5f;
constexpr int kMultiple = 32, kLongest = 960, kSmallest = 3;
constexpr float kMean[3] = {0.485f, 0.456f, 0.406f}, kDeviation[3] = {0.229f, 0.224f, 0.225f};

int to_multiple(float side) { return std::max(kMultiple, int(std::lround(side / kMultiple)) * kMultiple); }

struct Region {
  Box box;
  float sum = 0;
  int count = 0;
};

// Connected parts of the map above the cut (four neighbours), by flooding with a stack of our own.
std::vector<Region> regions(const float* map, int width, int height) {
  std::vector<bool> seen(size_t(width) * size_t(height));
  std::vector<Region> out;
  std::vector<int> stack;
  for (int start = 0; start < width * height; ++start) {
    if (seen[size_t(start)] || map[start] <= kCut) continue;
    Region region{{start % width, start / width, start % width + 1, start / width + 1}};
    seen[size_t(start)] = true;
    stack.push_back(start);
    while (!stack.empty()) {
      const int at = stack.back(), x = at % width, y = at / width;
      stack.pop_back();
      region.sum += map[at], ++region.count;
      region.box = {std::min(region.box.left, x), std::min(region.box.top, y),
                    std::max(region.box.right, x + 1), std::max(region.box.bottom, y + 1)};
      const auto visit = [&](int next, bool inside) {
        if (!inside || seen[size_t(next)] || map[next] <= kCut) return;
        seen[size_t(next)] = true;
        stack.push_back(next);
      };
      visit(at - 1, x > 0), visit(at + 1, x + 1 < width), visit(at - width, y > 0),
          visit(at + width, y + 1 < height);
    }
    out.push_back(region);
  }
  return out;
}

}  // namespace

belay::Result<std::vector<Box>> detect(belay::Context& context, const Image& image) {
  const float scale = std::min(1.0f, float(kLongest) / float(std::max(image.width, image.height)));
  const int width = to_multiple(float(image.width) * scale),
            height = to_multiple(float(image.height) * scale);
  std::vector<float> planes;
  to_planes(resized(image, {0, 0, image.width, image.height}, width, height), kMean, kDeviation, planes);
  BELAY_TRY(context.set_input(0, belay::Tensor::of(planes, {1, 3, height, width})));
  BELAY_TRY(context.run());
  BELAY_ASSIGN(const belay::Tensor map, context.output(0));
  if (map.dims() != std::vector<int64_t>{1, 1, height, width} || !map.data())
    return belay::Status(belay::Code::kInternal, "The detector gave no map of the picture's size.");

  std::vector<Box> boxes;
  for (const Region& region : regions(map.as<const float>(), width, height)) {
    const Box& box = region.box;
    const int w = box.right - box.left, h = box.bottom - box.top;
    if (std::min(w, h) < kSmallest || region.sum / float(region.count) < kScore) continue;
    const float grow = float(w) * float(h) * kGrow / float(2 * (w + h));
    const auto back = [](float value, int from, int to) {
      return int(std::lround(value * float(to) / float(from)));
    };
    boxes.push_back({std::clamp(back(float(box.left) - grow, width, image.width), 0, image.width - 1),
                     std::clamp(back(float(box.top) - grow, height, image.height), 0, image.height - 1),
                     std::clamp(back(float(box.right) + grow, width, image.width), 1, image.width),
                     std::clamp(back(float(box.bottom) + grow, height, image.height), 1, image.height)});
  }
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.top < b.top; });
  // Boxes of one line differ a little in height: within a line they go from left to right.
  for (size_t begin = 0; begin < boxes.size();) {
    size_t end = begin + 1;
    while (end < boxes.size() && boxes[end].top < (boxes[begin].top + boxes[begin].bottom) / 2) ++end;
    std::sort(boxes.begin() + std::ptrdiff_t(begin), boxes.begin() + std::ptrdiff_t(end),
              [](const Box& a, const Box& b) { return a.left < b.left; });
    begin = end;
  }
  return boxes;
}

}  // namespace ocr
