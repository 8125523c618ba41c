#include "resize_axis.hpp"

#include <algorithm>
#include <cmath>

namespace belay::cpu {
namespace {

// The place in the input that output place x stands for.
double original(const ResizeRules& rules, double x, int64_t in, int64_t out, double scale, double begin,
                double end) {
  const double length = double(in);
  // With scales the resized length is what they say, rounded or not.
  const double resized = scale * length;
  switch (rules.coordinates) {
    case Coordinates::kHalfPixel:
      return (x + 0.5) / scale - 0.5;
    case Coordinates::kHalfPixelSymmetric: {
      const double adjustment = double(out) / resized, center = length / 2;
      return center * (1 - adjustment) + (x + 0.5) / scale - 0.5;
    }
    case Coordinates::kPytorchHalfPixel:
      return out > 1 ? (x + 0.5) / scale - 0.5 : 0;
    case Coordinates::kAlignCorners:
      return out == 1 || resized == 1 ? 0 : x * (length - 1) / (resized - 1);
    case Coordinates::kAsymmetric:
      return x / scale;
    case Coordinates::kTfHalfPixelForNn:
      return (x + 0.5) / scale;
    case Coordinates::kTfCropAndResize:
      return out > 1 ? begin * (length - 1) + x * (end - begin) * (length - 1) / double(out - 1)
                     : 0.5 * (begin + end) * (length - 1);
  }
  return x;
}

double rounded(Rounding rounding, double x, double scale) {
  switch (rounding) {
    case Rounding::kPreferFloor:
      return std::ceil(x - 0.5);
    case Rounding::kPreferCeil:
      return std::floor(x + 0.5);
    case Rounding::kFloor:
      return std::floor(x);
    case Rounding::kCeil:
      return std::ceil(x);
    case Rounding::kByScale:
      return scale < 1 ? std::ceil(x) : std::floor(x);
  }
  return x;
}

// Weight of a neighbour at distance d (in pixels of the input, or of the output where antialiasing widens the
// filter).
double weight_of(const ResizeRules& rules, double d) {
  d = std::fabs(d);
  if (rules.sampling == Sampling::kLinear) return d < 1 ? 1 - d : 0;
  const double a = rules.cubic_a;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

}  // namespace

ResizeAxis make_axis(const ResizeRules& rules, int64_t in, int64_t out, double scale, double begin,
                     double end) {
  ResizeAxis axis;
  axis.in = in;
  axis.out = out;
  const bool crop = rules.coordinates == Coordinates::kTfCropAndResize;
  if (crop) axis.outside.assign(size_t(out), 0);
  const bool nearest = rules.sampling == Sampling::kNearest;
  const double reach = rules.sampling == Sampling::kCubic ? 2 : 1;
  const double stretch = rules.antialias && scale < 1 ? 1 / scale : 1;
  axis.taps = nearest ? 1 : int64_t(std::ceil(2 * reach * stretch)) + (stretch > 1 ? 1 : 0);

  if (!crop && in == out && scale == 1) {
    // Nothing is resized along this axis, so nothing is transformed either: some transforms would shift it.
    for (int64_t o = 0; o < out; ++o) axis.places.push_back(o);
    axis.taps = 1;
    axis.weights.assign(nearest ? 0 : size_t(out), 1.0f);
    return axis;
  }
  for (int64_t o = 0; o < out; ++o) {
    const double at = original(rules, double(o), in, out, scale, begin, end);
    if (crop && (at < 0 || at > double(in - 1))) axis.outside[size_t(o)] = 1;
    const auto inside = [&](double place) { return int64_t(std::clamp(place, 0.0, double(in - 1))); };
    if (nearest) {
      axis.places.push_back(inside(rounded(rules.rounding, at, scale)));
      continue;
    }
    // The first neighbour whose distance is within reach.
    const double first = std::floor(at - reach * stretch) + 1;
    double sum = 0;
    std::vector<double> weights;
    for (int64_t t = 0; t < axis.taps; ++t) {
      const double place = first + double(t);
      const bool excluded = rules.exclude_outside && (place < 0 || place > double(in - 1));
      weights.push_back(excluded ? 0 : weight_of(rules, (place - at) / stretch));
      sum += weights.back();
      axis.places.push_back(inside(place));
    }
    const bool renormalise = rules.exclude_outside || stretch > 1;
    for (const double weight : weights)
      axis.weights.push_back(float(renormalise && sum != 0 ? weight / sum : weight));
  }

  axis.changes = in != out || std::ranges::count(axis.outside, 1) != 0;
  for (int64_t o = 0; o < out && !axis.changes; ++o)
    for (int64_t t = 0; t < axis.taps; ++t) {
      const size_t at = size_t(o * axis.taps + t);
      if (axis.places[at] != o && (axis.weights.empty() || axis.weights[at] != 0)) axis.changes = true;
    }
  return axis;
}

}  // namespace belay::cpu
