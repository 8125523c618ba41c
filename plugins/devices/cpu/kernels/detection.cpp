// Operators of detection models: NonMaxSuppression, RoiAlign, MaxRoiPool, MaxUnpool.
#include "convert.hpp"
#include "positions.hpp"
#include "registry.hpp"
#include "trouble.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace belay::cpu {
namespace {

// ---- NonMaxSuppression
// -----------------------------------------------------------------------------------------------

struct Box {
  float y1, x1, y2, x2;
};

struct NonMaxSuppression {
  int64_t batches, classes, boxes;
  bool centered, has_count, has_overlap, has_score;

  Box box(const float* at) const {
    if (centered)  // x center, y center, width, height
      return {at[1] - at[3] / 2, at[0] - at[2] / 2, at[1] + at[3] / 2, at[0] + at[2] / 2};
    return {std::min(at[0], at[2]), std::min(at[1], at[3]), std::max(at[0], at[2]), std::max(at[1], at[3])};
  }
  static bool overlaps(const Box& a, const Box& b, float threshold) {
    const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1),
                width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
    if (height <= 0 || width <= 0) return false;
    const float both = height * width;
    const float either = (a.y2 - a.y1) * (a.x2 - a.x1) + (b.y2 - b.y1) * (b.x2 - b.x1) - both;
    return either > 0 && both / either > threshold;
  }

  belay_status operator()(const Run& run) const {
    const int64_t most = has_count ? std::max<int64_t>(0, *run.in<int64_t>(2)) : 0;
    const float threshold = has_overlap ? *run.in<float>(3) : 0;
    std::vector<int64_t> chosen;  // triples
    std::vector<int64_t> order;
    std::vector<Box> kept;
    for (int64_t b = 0; b < batches && most > 0; ++b)
      for (int64_t c = 0; c < classes; ++c) {
        const float* scores = run.in<float>(1) + (b * classes + c) * boxes;
        order.clear();
        kept.clear();
        for (int64_t i = 0; i < boxes; ++i)
          if (!has_score || scores[i] > *run.in<float>(4)) order.push_back(i);
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t p, int64_t q) { return scores[p] > scores[q]; });
        for (const int64_t i : order) {
          if (int64_t(kept.size()) >= most) break;
          const Box candidate = box(run.in<float>(0) + (b * boxes + i) * 4);
          const auto covers = [&](const Box& other) { return overlaps(candidate, other, threshold); };
          if (std::ranges::any_of(kept, covers)) continue;
          kept.push_back(candidate);
          chosen.insert(chosen.end(), {b, c, i});
        }
        if (run.cancelled()) return BELAY_CANCELLED;
      }
    void* to = run.resize(0, {int64_t(chosen.size() / 3), 3});
    if (!to) return BELAY_RESOURCE_EXHAUSTED;
    std::copy(chosen.begin(), chosen.end(), static_cast<int64_t*>(to));
    return BELAY_OK;
  }
};

Status prepare_non_max_suppression(OpContext& op) {
  const Dims &boxes = op.dims(0), &scores = op.dims(1);
  if (boxes.size() != 3 || scores.size() != 3 || boxes[2] != 4 || boxes[0] != scores[0] ||
      boxes[1] != scores[2])
    return op.bad("boxes have the shape " + text_of(boxes) + " and scores " + text_of(scores) +
                  ", want [batches, boxes, 4] and [batches, classes, boxes]");
  for (size_t i = 2; i < 5; ++i)
    if (op.has(i) && op.count(i) != 1)
      return op.bad("input " + std::to_string(i) + " has the shape " + text_of(op.dims(i)) +
                    ", want a scalar");
  const int64_t center = op.attr().int_or("center_point_box", 0);
  if (center != 0 && center != 1)
    return op.bad("center_point_box is " + std::to_string(center) + ", want 0 or 1");
  BELAY_TRY(op.output_dynamic(0, BELAY_DT_INT64));
  op.kernel(NonMaxSuppression{boxes[0], scores[1], boxes[1], center == 1, op.has(2), op.has(3), op.has(4)});
  return {};
}

// ---- RoiAlign
// --------------------------------------------------------------------------------------------------------

struct RoiAlign {
  int64_t batches, channels, height, width, rois, out_height, out_width, ratio;
  double scale;
  bool most, half_pixel;
  Positions batch_of;

  template <class T>
  belay_status run(const Run& run) const {
    for (int64_t r = 0; r < rois; ++r)
      if (const int64_t b = batch_of.at(run.in<void>(2), r); b < 0 || b >= batches)
        return run.fail(Code::kOutOfRange, "RoiAlign: element " + std::to_string(r) +
                                               " of batch_indices is " + std::to_string(b) + ", want 0 to " +
                                               std::to_string(batches - 1) + ".");
    run.parallel(rois * channels, grain_of(double(out_height * out_width) * 20),
                 [&](int64_t begin, int64_t end) {
                   Samples samples;  // of one region, the same in each channel
                   for (int64_t i = begin; i < end; ++i) {
                     if (i == begin || i % channels == 0) samples = samples_of<T>(run, i / channels);
                     one<T>(run, i / channels, i % channels, samples);
                   }
                 });
    return BELAY_OK;
  }

  static constexpr int64_t kMostSamples = 1 << 22;  // along a dim of one region
  // A sample lies between two neighbours along a dim, or nowhere: then there is none.
  struct Between {
    int64_t low, high;
    double low_weight, high_weight;
  };
  struct Axis {
    std::vector<Between> samples;
    std::vector<size_t> begin;  // of the samples of each bin
    int64_t each = 0;           // samples that a bin would have if none lay outside
    size_t count(int64_t bin) const { return begin[size_t(bin) + 1] - begin[size_t(bin)]; }
  };
  struct Samples {
    Axis rows, columns;
  };

  Axis axis_of(double start, double size, int64_t bins, int64_t dim) const {
    Axis out;
    const double bin = size / double(bins);
    out.each = ratio > 0 ? ratio
               : bin > 0 ? int64_t(std::min({std::ceil(bin), 65536.0, double(kMostSamples / bins)}))
                         : 0;  // none for NaN
    out.begin.push_back(0);
    for (int64_t p = 0; p < bins; ++p) {
      for (int64_t i = 0; i < out.each; ++i) {
        double x = start + (double(p) + (double(i) + 0.5) / double(out.each)) * bin;
        if (!(x >= -1 && x <= double(dim)) || dim == 0) continue;
        x = std::max(x, 0.0);
        int64_t low = int64_t(x), high = low + 1;
        if (low >= dim - 1) x = double(low = high = dim - 1);
        const double part = x - double(low);
        out.samples.push_back({low, high, 1 - part, part});
      }
      out.begin.push_back(out.samples.size());
    }
    return out;
  }
  template <class T>
  Samples samples_of(const Run& run, int64_t r) const {
    const T* roi = run.in<T>(1) + r * 4;
    const auto value = [&](int k) {
      return double(Compute<T>::load(roi[k])) * scale - (half_pixel ? 0.5 : 0);
    };
    const double x1 = value(0), y1 = value(1);
    double w = value(2) - x1, h = value(3) - y1;
    if (!half_pixel) w = std::max(w, 1.0), h = std::max(h, 1.0);
    return {axis_of(y1, h, out_height, height), axis_of(x1, w, out_width, width)};
  }

  // The sum over the four neighbours of each sample, each times its weight, or the largest of these.
  template <class T>
  void one(const Run& run, int64_t r, int64_t channel, const Samples& samples) const {
    const T* plane = run.in<T>(0) + (batch_of.at(run.in<void>(2), r) * channels + channel) * height * width;
    T* to = run.out<T>(0) + (r * channels + channel) * out_height * out_width;
    const Axis &rows = samples.rows, &columns = samples.columns;
    const int64_t all = rows.each * columns.each;
    for (int64_t py = 0; py < out_height; ++py)
      for (int64_t px = 0; px < out_width; ++px) {
        // What lies outside is zero.
        const bool outside = rows.count(py) * columns.count(px) < size_t(all);
        double sum = 0, best = outside ? 0 : -INFINITY;
        for (size_t iy = rows.begin[size_t(py)]; iy < rows.begin[size_t(py) + 1]; ++iy) {
          const Between& y = rows.samples[iy];
          const T *top = plane + y.low * width, *bottom = plane + y.high * width;
          for (size_t ix = columns.begin[size_t(px)]; ix < columns.begin[size_t(px) + 1]; ++ix) {
            const Between& x = columns.samples[ix];
            const auto at = [](const T* row, int64_t column) { return double(Compute<T>::load(row[column])); };
            const double parts[] = {
                y.low_weight * x.low_weight * at(top, x.low), y.low_weight * x.high_weight * at(top, x.high),
                y.high_weight * x.low_weight * at(bottom, x.low), y.high_weight * x.high_weight * at(bottom, x.high)};
            sum += parts[0] + parts[1] + parts[2] + parts[3];
            if (most)
              for (const double part : parts) best = std::max(best, part);
          }
        }
        to[py * out_width + px] =
            Compute<T>::store(compute_t<T>(most ? (all > 0 ? best : 0) : sum / double(std::max<int64_t>(all, 1))));
      }
  }
};

Status prepare_roi_align(OpContext& op) {
  const Dims &in = op.dims(0), &rois = op.dims(1);
  if (in.size() != 4 || rois.size() != 2 || rois[1] != 4 || op.dims(2) != Dims{rois[0]})
    return op.bad("X, rois and batch_indices have the shapes " + text_of(in) + ", " + text_of(rois) +
                  " and " + text_of(op.dims(2)) + ", want [N,C,H,W], [R,4] and [R]");
  if (op.dtype(1) != op.dtype(0)) return op.bad("rois and X are of different types");
  const int64_t height = op.attr().int_or("output_height", 1), width = op.attr().int_or("output_width", 1);
  const int64_t ratio = op.attr().int_or("sampling_ratio", 0);
  if (height < 1 || width < 1 || ratio < 0 || ratio > 4096 || height > 1 << 20 || width > 1 << 20 ||
      ratio * std::max(height, width) > RoiAlign::kMostSamples)
    return op.bad("output_height " + std::to_string(height) + ", output_width " + std::to_string(width) +
                  " or sampling_ratio " + std::to_string(ratio) + " is out of range");
  const std::string_view mode = op.attr().string_or("mode", "avg");
  if (mode != "avg" && mode != "max") return op.bad("mode is '" + std::string(mode) + "', want avg or max");
  const std::string_view transform = op.attr().string_or(
      "coordinate_transformation_mode", op.version() < 16 ? "output_half_pixel" : "half_pixel");
  if (transform != "half_pixel" && transform != "output_half_pixel")
    return op.bad("coordinate_transformation_mode is '" + std::string(transform) +
                  "', want half_pixel or output_half_pixel");
  BELAY_TRY(op.output(0, op.dtype(0), {rois[0], in[1], height, width}));
  const RoiAlign kernel{in[0],
                        in[1],
                        in[2],
                        in[3],
                        rois[0],
                        height,
                        width,
                        ratio,
                        op.attr().float_or("spatial_scale", 1.0f),
                        mode == "max",
                        transform == "half_pixel",
                        {op.dtype(2) == BELAY_DT_INT64}};
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([kernel](const Run& run) { return kernel.run<T>(run); });
  });
  return {};
}

// ---- MaxRoiPool
// ------------------------------------------------------------------------------------------------------

// The largest value in each cell of a grid over a region, whose corners are rounded to pixels and belong to it.
Status prepare_max_roi_pool(OpContext& op) {
  const Dims &in = op.dims(0), &rois = op.dims(1);
  if (in.size() != 4 || rois.size() != 2 || rois[1] != 5 || op.dtype(1) != op.dtype(0))
    return op.bad("X and rois have the shapes " + text_of(in) + " and " + text_of(rois) +
                  ", want [N,C,H,W] and [R,5] of one type");
  const auto pooled = op.attr().ints("pooled_shape").value_or(std::vector<int64_t>{});
  if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1 || pooled[0] > 1 << 20 || pooled[1] > 1 << 20)
    return op.bad("pooled_shape is " + text_of(pooled) + ", want two sizes");
  BELAY_TRY(op.output(0, op.dtype(0), {rois[0], in[1], pooled[0], pooled[1]}));
  const double scale = double(op.attr().float_or("spatial_scale", 1.0f));
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    using T = typename decltype(tag)::type;
    op.kernel([in, count = rois[0], pooled, scale](const Run& run) {
      const auto value = [&](int64_t r, int64_t k) { return double(Compute<T>::load(run.in<T>(1)[r * 5 + k])); };
      for (int64_t r = 0; r < count; ++r)
        if (const double b = value(r, 0); !(b >= 0 && b < double(in[0])))
          return run.fail(Code::kOutOfRange, "MaxRoiPool: the batch index of region " + std::to_string(r) + " is " +
                                                 std::to_string(b) + ", want 0 to " + std::to_string(in[0] - 1) + ".");
      const int64_t height = in[2], width = in[3], cells = pooled[0] * pooled[1];
      run.parallel(count * in[1], grain_of(double(cells) * 50), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t r = i / in[1], c = i % in[1];
          // Corners as whole pixels; what is far outside, or no number, is cut where it changes nothing.
          const auto corner = [&](int64_t k) {
            const double at = std::round(value(r, k) * scale);
            return at == at ? int64_t(std::clamp(at, -1e9, 1e9)) : int64_t{0};
          };
          const int64_t x1 = corner(1), y1 = corner(2);
          const int64_t w = std::max<int64_t>(corner(3) - x1 + 1, 1), h = std::max<int64_t>(corner(4) - y1 + 1, 1);
          const T* plane = run.in<T>(0) + (int64_t(value(r, 0)) * in[1] + c) * height * width;
          for (int64_t cell = 0; cell < cells; ++cell) {
            const int64_t py = cell / pooled[1], px = cell % pooled[1];
            const auto edge = [](int64_t p, int64_t size, int64_t parts, int64_t from, int64_t most) {
              return std::clamp<int64_t>(p * size / parts + from, 0, most);
            };
            const auto far = [](int64_t p, int64_t size, int64_t parts, int64_t from, int64_t most) {
              return std::clamp<int64_t>((p * size + size + parts - 1) / parts + from, 0, most);
            };
            const int64_t top = edge(py, h, pooled[0], y1, height), bottom = far(py, h, pooled[0], y1, height);
            const int64_t left = edge(px, w, pooled[1], x1, width), right = far(px, w, pooled[1], x1, width);
            bool any = false;
            compute_t<T> best = 0;
            for (int64_t y = top; y < bottom; ++y)
              for (int64_t x = left; x < right; ++x) {
                const auto at = Compute<T>::load(plane[y * width + x]);
                if (!any || at > best) best = at;
                any = true;
              }
            run.out<T>(0)[i * cells + cell] = Compute<T>::store(best);
          }
        }
      });
      return belay_status(BELAY_OK);
    });
  });
  return {};
}

// ---- MaxUnpool
// -------------------------------------------------------------------------------------------------------

// Each value goes to the flat position in the output that its index says; all else is 0.
Status prepare_max_unpool(OpContext& op) {
  const Dims& in = op.dims(0);
  if (in.size() < 3) return op.bad("X has the shape " + text_of(in) + ", want rank 3 at least");
  if (op.dims(1) != in || op.dtype(1) != BELAY_DT_INT64)
    return op.bad("indices have the shape " + text_of(op.dims(1)) + ", want X's, " + text_of(in) +
                  ", of int64");
  const size_t spatial = in.size() - 2;
  const auto kernel = op.attr().ints("kernel_shape").value_or(std::vector<int64_t>{});
  const auto strides = op.attr().ints("strides").value_or(std::vector<int64_t>(spatial, 1));
  const auto pads = op.attr().ints("pads").value_or(std::vector<int64_t>(2 * spatial, 0));
  if (kernel.size() != spatial || strides.size() != spatial || pads.size() != 2 * spatial)
    return op.bad("kernel_shape " + text_of(kernel) + ", strides " + text_of(strides) + " and pads " +
                  text_of(pads) + " do not fit an input of shape " + text_of(in));
  Dims natural = in, out;
  for (size_t d = 0; d < spatial; ++d) {
    if (strides[d] < 1 || strides[d] > 1 << 20 || kernel[d] < 1 || kernel[d] > 1 << 20)
      return op.bad("kernel_shape or strides are below 1 or too large");
    natural[d + 2] = (in[d + 2] - 1) * strides[d] + kernel[d] - pads[d] - pads[d + spatial];
    if (natural[d + 2] < 0) return op.bad("pads " + text_of(pads) + " leave nothing of the output");
  }
  out = natural;
  if (op.has(2)) {
    BELAY_ASSIGN(out, op.ints(2));
    if (out.size() != in.size())
      return op.bad("output_shape is " + text_of(out) + ", want rank " + std::to_string(in.size()));
    for (const int64_t dim : out)
      if (dim < 0) return op.bad("output_shape " + text_of(out) + " has a negative dim");
  }
  BELAY_TRY(op.output(0, op.dtype(0), out));
  dispatch_bytes(element_bytes(op.dtype(0)), [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Indices are flat positions in the natural output; in a larger one they keep their coordinates.
    op.kernel([natural, out, total = product(out), count = op.count(0)](const Run& run) {
      T* to = run.out<T>(0);
      std::fill_n(to, total, T{});
      const int64_t natural_total = product(natural);
      for (int64_t i = 0; i < count; ++i) {
        int64_t rest = run.in<int64_t>(1)[i], at = 0, step = 1;
        bool good = rest >= 0 && rest < natural_total;
        for (size_t d = natural.size(); good && d-- > 0;) {
          const int64_t coordinate = rest % natural[d];
          rest /= natural[d];
          good = coordinate < out[d];
          at += coordinate * step;
          step *= out[d];
        }
        if (!good)
          return run.fail(Code::kOutOfRange, "MaxUnpool: element " + std::to_string(i) + " of indices is " +
                                                 std::to_string(run.in<int64_t>(1)[i]) +
                                                 ", out of bounds for an output of shape " + text_of(out) +
                                                 ".");
        to[at] = run.in<T>(0)[i];
      }
      return belay_status(BELAY_OK);
    });
  });
  return {};
}

}  // namespace

void add_detection(Registry& registry) {
  registry.add({.op = "NonMaxSuppression",
                .prepare = prepare_non_max_suppression,
                .types = {kF32, kF32, kI64, kF32, kF32},
                .min_inputs = 2,
                .max_inputs = 5,
                .ns_per_byte = 2});
  registry.add({.op = "RoiAlign",
                .prepare = prepare_roi_align,
                .types = {kFloats, kFloats, kIndex},
                .min_inputs = 3,
                .max_inputs = 3,
                .ns_per_byte = 2});
  registry.add({.op = "MaxRoiPool",
                .prepare = prepare_max_roi_pool,
                .types = {kFloats, kFloats},
                .min_inputs = 2,
                .max_inputs = 2,
                .ns_per_byte = 2});
  registry.add({.op = "MaxUnpool",
                .prepare = prepare_max_unpool,
                .types = {kMovable, kI64, kI64},
                .min_inputs = 2,
                .max_inputs = 3,
                .host_inputs = 4});
}

}  // namespace belay::cpu
