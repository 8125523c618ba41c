// Resize (from version 10 on) and Upsample: axis by axis. Axes that do not change cost nothing; each plane
// behind the first axis that does is worked on by itself, so a large batch needs no large scratch.
#include "../registry.hpp"
#include "heavy.hpp"
#include "resize_axis.hpp"

#include <cmath>
#include <cstring>

namespace belay::cpu {
namespace {

constexpr TypeMask kWeighted = kNumeric | kBool;  // of which there are weighted sums

struct Plan {
  int64_t planes = 1;            // product of the dims before the first that changes
  std::vector<ResizeAxis> axes;  // from there on
  std::vector<int64_t> inner;    // [axis]: product of the input's dims behind it
  Dims in, out;                  // dims of a plane
  float extrapolation = 0;
  bool nearest = false;
};

// Gathers elements of `Element`'s size, for sampling nearest.
template <class Element>
struct NearestKernel {
  Plan plan;
  bool extrapolates = false;
  Element extrapolation{};

  void operator()(const Run& run) const {
    const int64_t in = product(plan.in), out = product(plan.out);
    const int64_t last = plan.out.back(), rows = last ? out / last : 0;
    run.parallel(plan.planes * rows, grain_of(double(last) * 0.7 + 5), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) row(run, i / rows * in, i % rows, i / rows * out);
    });
  }
  // One row of the output of a plane.
  void row(const Run& run, int64_t in_at, int64_t row, int64_t out_at) const {
    const size_t rank = plan.out.size();
    const int64_t last = plan.out.back();
    Element* y = run.out<Element>(0) + out_at + row * last;
    int64_t rest = row, from = in_at;
    bool outside = false;
    for (size_t d = rank - 1; d-- > 0; rest /= plan.out[d]) {
      const size_t o = size_t(rest % plan.out[d]);
      from += plan.axes[d].places[o] * plan.inner[d];
      outside = outside || (!plan.axes[d].outside.empty() && plan.axes[d].outside[o]);
    }
    const ResizeAxis& axis = plan.axes.back();
    const Element* x = run.in<Element>(0) + from;
    if (outside) return void(std::fill(y, y + last, extrapolation));
    if (!axis.changes) return void(std::memcpy(y, x, size_t(last) * sizeof(Element)));
    const int64_t* places = axis.places.data();
    for (int64_t o = 0; o < last; ++o) y[o] = x[places[o]];
    if (!axis.outside.empty())
      for (int64_t o = 0; o < last; ++o)
        if (axis.outside[size_t(o)]) y[o] = extrapolation;
  }
};

// Weighted sums, in float (double for double).
template <class In>
struct WeightedKernel {
  using T = std::conditional_t<std::is_same_v<In, double> || (std::is_integral_v<In> && sizeof(In) > 2),
                               double, float>;
  Plan plan;

  static In narrow(T x) {
    if constexpr (std::is_same_v<In, bool>)
      return x != 0;
    else if constexpr (std::is_integral_v<In>) {
      // Towards zero, as a cast; cubic weights may leave the type's range, so the ends are kept.
      constexpr double kLow = double(std::numeric_limits<In>::min()),
                       kHigh = double(std::numeric_limits<In>::max());
      const double wide = double(x);
      return wide <= kLow    ? std::numeric_limits<In>::min()
             : wide >= kHigh ? std::numeric_limits<In>::max()
                             : In(wide);
    } else {
      return Compute<In>::store(compute_t<In>(x));
    }
  }

  void operator()(const Run& run) const {
    const int64_t in = product(plan.in), out = product(plan.out);
    if (in == 0 || out == 0) return;
    // The largest of what lies between the passes.
    int64_t most = in, now = in;
    for (size_t d = plan.axes.size(); d-- > 0;) {
      now = now / plan.axes[d].in * plan.axes[d].out;
      most = std::max(most, now);
    }
    run.parallel(plan.planes, grain_of(double(in + out) * 2), [&](int64_t begin, int64_t end) {
      T* const first = run.scratch<T>(size_t(2 * most));
      for (int64_t i = begin; i < end; ++i) {
        T *from = first, *to = first + most;
        const In* x = run.in<In>(0) + i * in;
        for (int64_t k = 0; k < in; ++k) from[k] = T(Compute<In>::load(x[k]));
        // The last axis first: behind an axis everything has its final size.
        int64_t inner = 1, outer = in;
        for (size_t d = plan.axes.size(); d-- > 0;) {
          const ResizeAxis& axis = plan.axes[d];
          outer /= axis.in;
          if (axis.changes) {
            pass(axis, from, to, outer, inner);
            std::swap(from, to);
          }
          inner *= axis.out;
        }
        In* y = run.out<In>(0) + i * out;
        for (int64_t k = 0; k < out; ++k) y[k] = narrow(from[k]);
        extrapolate(y);
      }
    });
  }

  static void pass(const ResizeAxis& axis, const T* x, T* y, int64_t outer, int64_t inner) {
    const int64_t taps = axis.taps;
    for (int64_t p = 0; p < outer; ++p, x += axis.in * inner)
      for (int64_t o = 0; o < axis.out; ++o, y += inner) {
        const int64_t* places = axis.places.data() + o * taps;
        const float* weights = axis.weights.data() + o * taps;
        if (inner == 1) {
          T sum = 0;
          for (int64_t t = 0; t < taps; ++t) sum += T(weights[t]) * x[places[t]];
          *y = sum;
          continue;
        }
        if (taps == 2) {
          const T *a = x + places[0] * inner, *b = x + places[1] * inner;
          const T u = T(weights[0]), v = T(weights[1]);
          for (int64_t i = 0; i < inner; ++i) y[i] = u * a[i] + v * b[i];
          continue;
        }
        std::fill(y, y + inner, T(0));
        for (int64_t t = 0; t < taps; ++t) {
          const T weight = T(weights[t]);
          const T* from = x + places[t] * inner;
          for (int64_t i = 0; i < inner; ++i) y[i] += weight * from[i];
        }
      }
  }

  // Output places outside the region along any axis take the extrapolation value.
  void extrapolate(In* y) const {
    bool any = false;
    for (const ResizeAxis& axis : plan.axes) any = any || std::ranges::count(axis.outside, 1) != 0;
    if (!any) return;
    const In value = narrow(T(plan.extrapolation));
    for (int64_t i = 0; i < product(plan.out); ++i) {
      int64_t rest = i;
      for (size_t d = plan.axes.size(); d-- > 0; rest /= plan.out[d])
        if (!plan.axes[d].outside.empty() && plan.axes[d].outside[size_t(rest % plan.out[d])]) {
          y[i] = value;
          break;
        }
    }
  }
};

template <class E, size_t N>
Status read_choice(const OpContext& context, std::string_view name, std::string_view otherwise,
                   const std::pair<std::string_view, E> (&choices)[N], E& out) {
  const std::string_view value = context.attr().string_or(name, otherwise);
  std::string all;
  for (const auto& [text, choice] : choices) {
    if (text == value) {
      out = choice;
      return {};
    }
    all.append(all.empty() ? "" : ", ").append(text);
  }
  return context.bad("attribute " + std::string(name) + " is '" + std::string(value) + "', want " + all);
}

constexpr std::pair<std::string_view, Sampling> kSamplings[] = {{"nearest", Sampling::kNearest},
                                                                {"linear", Sampling::kLinear},
                                                                {"bilinear", Sampling::kLinear},
                                                                {"cubic", Sampling::kCubic}};
constexpr std::pair<std::string_view, Coordinates> kCoordinates[] = {
    {"half_pixel", Coordinates::kHalfPixel},
    {"half_pixel_symmetric", Coordinates::kHalfPixelSymmetric},
    {"pytorch_half_pixel", Coordinates::kPytorchHalfPixel},
    {"align_corners", Coordinates::kAlignCorners},
    {"asymmetric", Coordinates::kAsymmetric},
    {"tf_half_pixel_for_nn", Coordinates::kTfHalfPixelForNn},
    {"tf_crop_and_resize", Coordinates::kTfCropAndResize}};
constexpr std::pair<std::string_view, Rounding> kRoundings[] = {
    {"round_prefer_floor", Rounding::kPreferFloor},
    {"round_prefer_ceil", Rounding::kPreferCeil},
    {"floor", Rounding::kFloor},
    {"ceil", Rounding::kCeil}};

// What the inputs and attributes say of each dim.
struct Request {
  ResizeRules rules;
  Dims out;
  std::vector<double> scales, roi_begin, roi_end;
  float extrapolation = 0;
};

Status read_rules(const OpContext& context, bool first_form, Request& request) {
  ResizeRules& rules = request.rules;
  BELAY_TRY(read_choice(context, "mode", "nearest", kSamplings, rules.sampling));
  if (first_form) {  // Upsample and Resize 10
    rules.coordinates = Coordinates::kAsymmetric;
    rules.rounding = Rounding::kByScale;
    if (rules.sampling == Sampling::kCubic)
      return context.bad("attribute mode is 'cubic', want nearest or linear");
    return {};
  }
  BELAY_TRY(
      read_choice(context, "coordinate_transformation_mode", "half_pixel", kCoordinates, rules.coordinates));
  BELAY_TRY(read_choice(context, "nearest_mode", "round_prefer_floor", kRoundings, rules.rounding));
  rules.cubic_a = context.attr().float_or("cubic_coeff_a", -0.75f);
  rules.exclude_outside = context.attr().int_or("exclude_outside", 0) != 0;
  rules.antialias = context.attr().int_or("antialias", 0) != 0;
  request.extrapolation = context.attr().float_or("extrapolation_value", 0);
  return {};
}

// Output dims and scales from the inputs, for the axes that they are about.
Status read_sizes(const OpContext& context, size_t roi, size_t scales, size_t sizes, Request& request) {
  const Dims& x = context.dims(0);
  const size_t rank = x.size();
  std::vector<size_t> axes;
  if (const auto given = context.attr().ints("axes"); given && context.version() >= 18) {
    BELAY_ASSIGN(axes, context.axes(*given, rank));
  } else {
    for (size_t d = 0; d < rank; ++d) axes.push_back(d);
  }
  request.out = x;
  request.scales.assign(rank, 1);
  request.roi_begin.assign(rank, 0);
  request.roi_end.assign(rank, 1);

  std::vector<double> spans(axes.size(), 1);  // of the region, in parts of the input
  if (request.rules.coordinates == Coordinates::kTfCropAndResize) {
    if (roi == 0 || !context.has(roi) || context.count(roi) != 2 * int64_t(axes.size()))
      return context.bad("roi has " + std::to_string(roi && context.has(roi) ? context.count(roi) : 0) +
                         " values, want " + std::to_string(2 * axes.size()) + " for tf_crop_and_resize");
    BELAY_ASSIGN(const std::vector<double> region, context.numbers(roi));
    for (size_t i = 0; i < axes.size(); ++i) {
      request.roi_begin[axes[i]] = region[i];
      request.roi_end[axes[i]] = region[axes.size() + i];
      spans[i] = region[axes.size() + i] - region[i];
    }
  }

  const bool by_sizes = sizes != 0 && context.has(sizes) && context.count(sizes) > 0;
  const bool by_scales = context.has(scales) && context.count(scales) > 0;
  if (by_sizes == by_scales)
    return context.bad(by_sizes ? "it has both scales and sizes, want one of them"
                                : "it has neither scales nor sizes");
  const size_t source = by_sizes ? sizes : scales;
  if (context.count(source) != int64_t(axes.size()))
    return context.bad("input " + std::to_string(source) + " has " + std::to_string(context.count(source)) +
                       " values, want " + std::to_string(axes.size()));
  if (by_sizes) {
    BELAY_ASSIGN(std::vector<int64_t> wanted, context.ints(sizes));
    for (const int64_t size : wanted)
      if (size < 0 || size > INT32_MAX)
        return context.bad("sizes is " + text_of(wanted) + ", want values from 0 to 2^31 - 1");
    const std::string_view policy =
        context.version() >= 18 ? context.attr().string_or("keep_aspect_ratio_policy", "stretch") : "stretch";
    double one = 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      const double scale = double(wanted[i]) / double(std::max<int64_t>(1, x[axes[i]]));
      one = i == 0 ? scale : policy == "not_larger" ? std::min(one, scale) : std::max(one, scale);
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      const double length = double(x[axes[i]]);
      if (policy == "not_larger" || policy == "not_smaller") {
        request.scales[axes[i]] = one;
        request.out[axes[i]] = int64_t(std::floor(one * length + 0.5));
      } else if (policy == "stretch") {
        request.scales[axes[i]] = length > 0 ? double(wanted[i]) / length : 1;
        request.out[axes[i]] = wanted[i];
      } else {
        return context.bad("attribute keep_aspect_ratio_policy is '" + std::string(policy) +
                           "', want stretch, not_larger or not_smaller");
      }
    }
  } else {
    BELAY_ASSIGN(const std::vector<double> factors, context.numbers(scales));
    for (size_t i = 0; i < axes.size(); ++i) {
      // In float, as shape inference multiplies: 10 * 0.7 rounds differently in double.
      const double size = std::floor(double(float(x[axes[i]]) * float(spans[i]) * float(factors[i])));
      if (!(factors[i] > 0) || !(size >= 0 && size <= INT32_MAX))
        return context.bad("scales[" + std::to_string(i) + "] is " + std::to_string(factors[i]) +
                           ", want more than 0 and a result below 2^31");
      request.scales[axes[i]] = factors[i];
      request.out[axes[i]] = int64_t(size);
    }
  }
  for (size_t d = 0; d < rank; ++d)
    if (x[d] == 0 && request.out[d] != 0)
      return context.bad("dim " + std::to_string(d) + " of the input is 0, it cannot become " +
                         std::to_string(request.out[d]));

  return {};
}

Status make_kernel(OpContext& context, const Request& request) {
  const Dims& x = context.dims(0);
  BELAY_TRY(context.output(0, context.dtype(0), request.out));
  Plan plan;
  plan.extrapolation = request.extrapolation;
  std::vector<ResizeAxis> axes;
  for (size_t d = 0; d < x.size(); ++d)
    axes.push_back(make_axis(request.rules, x[d], request.out[d], request.scales[d], request.roi_begin[d],
                             request.roi_end[d]));
  size_t first = 0;
  while (first + 1 < x.size() && !axes[first].changes) plan.planes *= x[first++];
  plan.axes.assign(axes.begin() + int64_t(first), axes.end());
  plan.in.assign(x.begin() + int64_t(first), x.end());
  plan.out.assign(request.out.begin() + int64_t(first), request.out.end());
  plan.inner = dense_strides(plan.in);
  context.cost_ns(double(product(request.out)) * 2);

  if (request.rules.sampling == Sampling::kNearest) {
    dispatch_bytes(element_bytes(context.dtype(0)), [&](auto bytes) {
      using Element = typename decltype(bytes)::type;
      NearestKernel<Element> kernel;
      const float value = plan.extrapolation;
      dispatch<kWeighted>(context.dtype(0), [&](auto tag) {
        using In = typename decltype(tag)::type;
        const In outside = WeightedKernel<In>::narrow(typename WeightedKernel<In>::T(value));
        static_assert(sizeof(In) <= sizeof(Bytes16));
        std::memcpy(&kernel.extrapolation, &outside, std::min(sizeof(Element), sizeof(In)));
      });
      kernel.plan = std::move(plan);
      context.kernel(std::move(kernel));
    });
    return {};
  }
  const bool numbers = dispatch<kWeighted>(context.dtype(0), [&](auto tag) {
    context.kernel(WeightedKernel<typename decltype(tag)::type>{std::move(plan)});
  });
  if (!numbers)
    return context.bad("mode is '" + std::string(context.attr().string_or("mode", "")) + "' for an input of " +
                           std::string(dtype_name(context.dtype(0))) + ", which has no weighted sums; want nearest",
                       Code::kUnimplemented);
  return {};
}

Status prepare_resize(OpContext& context) {
  if (context.rank(0) == 0) return context.bad("the input is a scalar, want rank 1 at least");
  Request request;
  const bool first_form = context.version() < 11;
  BELAY_TRY(read_rules(context, first_form, request));
  BELAY_TRY(first_form ? read_sizes(context, 0, 1, 0, request) : read_sizes(context, 1, 2, 3, request));
  return make_kernel(context, request);
}

Status prepare_upsample(OpContext& context) {
  if (context.rank(0) == 0) return context.bad("the input is a scalar, want rank 1 at least");
  Request request;
  BELAY_TRY(read_rules(context, true, request));
  if (context.has(1)) {
    BELAY_TRY(read_sizes(context, 0, 1, 0, request));
  } else {
    // Up to version 8 scales were an attribute.
    const auto scales = context.attr().floats("scales");
    if (!scales || scales->size() != context.rank(0))
      return context.bad("attribute scales has " + std::to_string(scales ? scales->size() : 0) +
                         " values, want " + std::to_string(context.rank(0)));
    request.out = context.dims(0);
    request.roi_begin.assign(scales->size(), 0);
    request.roi_end.assign(scales->size(), 1);
    for (size_t d = 0; d < scales->size(); ++d) {
      const double size = std::floor(double(request.out[d]) * double((*scales)[d]));
      if (!((*scales)[d] > 0) || !(size <= INT32_MAX))
        return context.bad("scales[" + std::to_string(d) + "] is " + std::to_string((*scales)[d]) +
                           ", want more than 0 and a result below 2^31");
      request.scales.push_back((*scales)[d]);
      request.out[d] = int64_t(size);
    }
  }
  return make_kernel(context, request);
}

}  // namespace

void add_resize(Registry& registry) {
  registry.add(OpDef{.op = "Resize",
                     .prepare = prepare_resize,
                     .types = {kMovable, kFloats, kFloats, kI64},
                     .min_inputs = 1,
                     .max_inputs = 4,
                     .host_inputs = 0b1110,
                     .ns_per_byte = 0.3});
  registry.add(OpDef{.op = "Upsample",
                     .prepare = prepare_upsample,
                     .types = {kMovable, kFloats},
                     .min_inputs = 1,
                     .max_inputs = 2,
                     .host_inputs = 0b10,
                     .ns_per_byte = 0.3});
}

}  // namespace belay::cpu
