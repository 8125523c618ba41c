#include "recognise.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

namespace ocr {
namespace {

constexpr int kHeight = 48, kWidthMultiple = 8, kWidest = 3200;
constexpr float kHalf[3] = {0.5f, 0.5f, 0.5f};

}  // namespace

belay::Result<std::vector<std::string>> read_keys(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return belay::Status(belay::Code::kNotFound,
                         "The dictionary '" + path + "' cannot be opened: " + std::strerror(errno) + ".");
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) keys.push_back(line);
  if (keys.empty()) return belay::Status(belay::Code::kNotFound, "The dictionary '" + path + "' is empty.");
  return keys;
}

belay::Result<Line> recognise(belay::Context& context, const std::vector<std::string>& keys,
                              const Image& image, const Box& box) {
  const float ratio = float(box.right - box.left) / float(box.bottom - box.top);
  const int width =
      std::clamp(int(std::ceil(float(kHeight) * ratio / kWidthMultiple)) * kWidthMultiple, kWidthMultiple, kWidest);
  std::vector<float> planes;
  to_planes(resized(image, box, width, kHeight), kHalf, kHalf, planes);
  BELAY_TRY(context.set_input(0, belay::Tensor::of(planes, {1, 3, kHeight, width})));
  BELAY_TRY(context.run());
  BELAY_ASSIGN(const belay::Tensor steps, context.output(0));
  // [1, steps, classes]: class 0 is "no character", class i the i-th line of the dictionary, the one after
  // them a space.
  const auto classes = int64_t(keys.size()) + 2;
  if (steps.dims().size() != 3 || steps.dims()[2] != classes || !steps.data())
    return belay::Status(
        belay::Code::kInvalidArgument,
        "The recogniser and its dictionary of " + std::to_string(keys.size()) + " characters do not fit.");

  Line line;
  int64_t before = 0, characters = 0;
  for (int64_t step = 0; step < steps.dims()[1]; ++step) {
    const float* p = steps.as<const float>() + step * classes;
    const int64_t best = std::max_element(p, p + classes) - p;
    // A character lasts several steps; a doubled one has a "no character" in between.
    if (best != 0 && best != before) {
      line.text += best == classes - 1 ? " " : keys[size_t(best - 1)];
      line.confidence += p[best];
      ++characters;
    }
    before = best;
  }
  if (characters > 0) line.confidence /= float(characters);
  return line;
}

}  // namespace ocr
