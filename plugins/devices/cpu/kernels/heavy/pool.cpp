// Pools over windows: MaxPool, AveragePool, LpPool.
#include "../registry.hpp"
#include "depthwise.hpp"
#include "global_pool.hpp"
#include "heavy.hpp"
#include "lanes.hpp"
#include "micro.hpp"
#include "window.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace belay::cpu {
namespace {

constexpr TypeMask kMaxTypes = kFloats | kI8 | kU8;

// Output places [first, last) of dim d whose window sees the input through position k of the kernel; `shift`
// is what to add to the place times the stride to get the input's place.
struct Seen {
  int64_t first, last, shift;
};
Seen seen(const Window& w, int d, int64_t k) {
  const int64_t shift = k * w.dilation[d] - w.begin[d], stride = w.stride[d];
  const int64_t first = shift >= 0 ? 0 : ceil_div(-shift, stride);
  const int64_t last = w.in[d] > shift ? ceil_div(w.in[d] - shift, stride) : 0;
  return {std::min(first, w.out[d]), std::min(std::max(first, last), w.out[d]), shift};
}

// Calls f(kernel position along the width, row of the input) for all rows that the windows of one output row
// see.
template <class F>
void each_row(const Window& w, int64_t od, int64_t oh, F&& f) {
  const int64_t depth = od * w.stride[0] - w.begin[0], height = oh * w.stride[1] - w.begin[1];
  const Window::Part planes = w.part(0, depth), rows = w.part(1, height);
  for (int64_t kd = planes.first; kd < planes.last; ++kd)
    for (int64_t kh = rows.first; kh < rows.last; ++kh)
      f(((depth + kd * w.dilation[0]) * w.in[1] + height + kh * w.dilation[1]) * w.in[2]);
}

// The positions of the kernel along the width that any window meets the input with.
Window::Part columns_of(const Window& w) {
  return w.part(2, -w.begin[2], (w.out[2] - 1) * w.stride[2] - w.begin[2]);
}

// Elements that one window meets at most.
double seen_volume(const Window& w) {
  double volume = 1;
  for (int d = 0; d < 3; ++d) volume *= double(std::min(w.kernel[d], w.in[d]));
  return volume;
}

// Splits the planes (batch, channel) over the threads.
template <class F>
void each_plane(const Run& run, const Window& w, int64_t planes, F&& f) {
  const double ns = double(w.pixels_out()) * seen_volume(w) * 0.2 + 20;
  run.parallel(planes, grain_of(ns), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) f(plane);
  });
}

template <class In>
struct MaxPoolKernel {
  using T = compute_t<In>;
  Window window;
  int64_t planes = 0;

  void operator()(const Run& run) const {
    const Window& w = window;
    const Window::Part columns = columns_of(w);
    each_plane(run, w, planes, [&](int64_t plane) {
      const In* x = run.in<In>(0) + plane * w.pixels_in();
      In* y = run.out<In>(0) + plane * w.pixels_out();
      constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                                 : std::numeric_limits<T>::lowest();
      for (int64_t od = 0; od < w.out[0]; ++od)
        for (int64_t oh = 0; oh < w.out[1]; ++oh, y += w.out[2]) {
          std::fill(y, y + w.out[2], Compute<In>::store(kLowest));
          each_row(w, od, oh, [&](int64_t row) {
            for (int64_t kw = columns.first; kw < columns.last; ++kw) {
              const Seen s = seen(w, 2, kw);
              const In* from = x + row + s.shift + s.first * w.stride[2];
              for (int64_t i = s.first; i < s.last; ++i, from += w.stride[2]) {
                const T value = Compute<In>::load(*from);
                if (value > Compute<In>::load(y[i]) || value != value) y[i] = *from;
              }
            }
          });
        }
    });
  }
};

// Of float32: first the largest of each column of the rows that a window sees, then of the columns.
struct FloatMaxPoolKernel {
  Window window;
  int64_t planes = 0;
  uint32_t lanes = 1;

  // Of each row of the output the rows of the input that its windows see: [begin[r], begin[r + 1]) of `rows`.
  std::vector<int64_t> rows = {}, begin = {};

  // A row of the input with its padding.
  static int64_t row_floats(const Window& w) {
    return round_up(std::max((w.out[2] - 1) * w.stride[2] + w.reach(2), w.begin[2] + w.in[2]) + kWindowSlack, 16);
  }
  // A row is of a size like that of the input's: a kernel may be far larger than what it meets.
  static bool fits(const Window& w) { return row_floats(w) <= 4 * w.in[2] + 4096; }

  void operator()(const Run& run) const {
    const Window& w = window;
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    const int64_t floats = row_floats(w);
    std::fill_n(run.workspace<float>(), floats * lanes, kLowest);
    run_lanes(run, planes, lanes, [&](int64_t plane, int64_t lane) {
      const Micro& loops = micro();
      float* const row = run.workspace<float>() + lane * floats;
      const float* x = run.in<float>(0) + plane * w.pixels_in();
      float* y = run.out<float>(0) + plane * w.pixels_out();
      for (size_t r = 0; r + 1 < begin.size(); ++r, y += w.out[2]) {
        const int64_t count = begin[r + 1] - begin[r];
        if (count == 0) {
          std::fill(y, y + w.out[2], kLowest);
          continue;
        }
        loops.max_rows(row + w.begin[2], w.in[2], x, &rows[size_t(begin[r])], count);
        loops.max_window(y, w.out[2], row, w.kernel[2], w.stride[2], w.dilation[2]);
      }
    });
  }
};

// The same with the place of each maximum, counted over the whole tensor.
template <class In>
struct MaxPoolIndexKernel {
  using T = compute_t<In>;
  Window window;
  int64_t planes = 0;
  bool columns_first = false;  // storage_order 1: the first spatial dim runs fastest

  void operator()(const Run& run) const {
    const Window& w = window;
    each_plane(run, w, planes, [&](int64_t plane) {
      const In* x = run.in<In>(0) + plane * w.pixels_in();
      In* y = run.out<In>(0) ? run.out<In>(0) + plane * w.pixels_out() : nullptr;
      int64_t* places = run.out<int64_t>(1) + plane * w.pixels_out();
      int64_t at = 0;
      for (int64_t od = 0; od < w.out[0]; ++od)
        for (int64_t oh = 0; oh < w.out[1]; ++oh)
          for (int64_t ow = 0; ow < w.out[2]; ++ow, ++at) {
            int64_t best = -1;
            const int64_t left = ow * w.stride[2] - w.begin[2];
            const Window::Part across = w.part(2, left);
            each_row(w, od, oh, [&](int64_t row) {
              for (int64_t kw = across.first; kw < across.last; ++kw) {
                const int64_t iw = left + kw * w.dilation[2];
                const T value = Compute<In>::load(x[row + iw]);
                if (best < 0 || value > Compute<In>::load(x[best]) || (value != value && !is_nan(x[best])))
                  best = row + iw;
              }
            });
            // A window that lies in the padding altogether has no maximum: the lowest value, at the first
            // place.
            if (y) y[at] = best >= 0 ? x[best] : Compute<In>::store(lowest());
            places[at] = plane * w.pixels_in() + (best >= 0 ? place(best) : 0);
          }
    });
  }
  static bool is_nan(In x) {
    const T value = Compute<In>::load(x);
    return value != value;
  }
  static T lowest() {
    if constexpr (std::numeric_limits<T>::has_infinity)
      return -std::numeric_limits<T>::infinity();
    else
      return std::numeric_limits<T>::lowest();
  }
  int64_t place(int64_t at) const {
    if (!columns_first) return at;
    const Window& w = window;
    const int64_t iw = at % w.in[2], ih = at / w.in[2] % w.in[1], id = at / w.in[2] / w.in[1];
    return id + w.in[0] * (ih + w.in[1] * iw);
  }
};

// T: what is summed in.
template <class In, class T = compute_t<In>>
struct AveragePoolKernel {
  Window window;
  int64_t planes = 0;
  bool count_pads = false;

  // How many positions of the kernel are counted at output place o of dim d.
  int64_t counted(int d, int64_t o) const {
    const Window& w = window;
    const int64_t from = o * w.stride[d] - w.begin[d];
    if (!count_pads) return w.part(d, from).last - w.part(d, from).first;
    return std::clamp<int64_t>(ceil_div(w.in[d] + w.end[d] - from, w.dilation[d]), 0, w.kernel[d]);
  }

  void operator()(const Run& run) const {
    const Window& w = window;
    const Window::Part across = columns_of(w);
    std::vector<int64_t> columns(size_t(w.out[2]));
    for (int64_t i = 0; i < w.out[2]; ++i) columns[size_t(i)] = counted(2, i);
    each_plane(run, w, planes, [&](int64_t plane) {
      const In* x = run.in<In>(0) + plane * w.pixels_in();
      In* y = run.out<In>(0) + plane * w.pixels_out();
      constexpr int64_t kPart = 512;  // of an output row, summed on the stack
      T sums[kPart];
      for (int64_t od = 0; od < w.out[0]; ++od)
        for (int64_t oh = 0; oh < w.out[1]; ++oh, y += w.out[2]) {
          const int64_t rows = counted(0, od) * counted(1, oh);
          for (int64_t part = 0; part < w.out[2]; part += kPart) {
            const int64_t end = std::min(w.out[2], part + kPart);
            std::fill(sums, sums + (end - part), T{});
            each_row(w, od, oh, [&](int64_t row) {
              for (int64_t kw = across.first; kw < across.last; ++kw) {
                const Seen s = seen(w, 2, kw);
                const int64_t first = std::max(s.first, part), last = std::min(s.last, end);
                if (first >= last) continue;
                const In* from = x + row + s.shift + first * w.stride[2];
                if constexpr (std::is_same_v<In, float> && std::is_same_v<T, float>) {
                  micro().add_row(sums + first - part, from, last - first, w.stride[2]);
                } else {
                  for (int64_t i = first; i < last; ++i, from += w.stride[2])
                    sums[i - part] += T(Compute<In>::load(*from));
                }
              }
            });
            for (int64_t i = part; i < end; ++i)
              y[i] = 
                  Compute<In>::store(compute_t<In>(sums[i - part] / T(std::max<int64_t>(1, rows * columns[size_t(i)]))));
          }
        }
    });
  }
};

// Of float32: a convolution of each plane with ones, divided by how many elements each window meets.
struct FloatAveragePoolKernel {
  ConvShape shape;
  std::vector<float> ones, counts;  // counts: of each output place, or one for all
  uint32_t lanes = 1;

  void operator()(const Run& run) const {
    const int64_t pixels = shape.window.pixels_out();
    DepthwiseArgs args;
    args.x = run.in<float>(0);
    args.weights = ones.data();
    args.y = run.out<float>(0);
    args.divisors = counts.data();
    args.divisor_step = int64_t(counts.size()) == pixels ? 1 : 0;
    run_depthwise(run, shape, lanes, args, run.workspace<float>());
  }
};

// Of a plane as one channel of a convolution, where that is worth it: windows that meet a few elements, rows that fill
// vectors, and a padded plane of a size like that of the input's.
std::optional<FloatAveragePoolKernel> average_by_taps(const AveragePoolKernel<float>& by_rows) {
  const Window& w = by_rows.window;
  FloatAveragePoolKernel kernel;
  kernel.shape.window = w;
  kernel.shape.batch = by_rows.planes;
  kernel.shape.inputs = kernel.shape.outputs = 1;
  if (w.volume() > 49 || w.out[2] < 4 || w.pixels_in() == 0 ||
      depthwise_scratch(kernel.shape) > 4 * w.pixels_in() + 16384)
    return std::nullopt;
  for (int64_t d = 0; d < w.out[0]; ++d)
    for (int64_t h = 0; h < w.out[1]; ++h)
      for (int64_t i = 0; i < w.out[2]; ++i)
        kernel.counts.push_back(float(std::max<int64_t>(1, by_rows.counted(0, d) * by_rows.counted(1, h) * by_rows.counted(2, i))));
  if (std::ranges::adjacent_find(kernel.counts, std::ranges::not_equal_to()) == kernel.counts.end()) kernel.counts.resize(1);
  kernel.ones.assign(size_t(w.volume()), 1.0f);
  return kernel;
}

// Summed in double.
template <class In>
struct LpPoolKernel {
  Window window;
  int64_t planes = 0, p = 2;
  void operator()(const Run& run) const {
    const Window& w = window;
    each_plane(run, w, planes, [&](int64_t plane) {
      const In* x = run.in<In>(0) + plane * w.pixels_in();
      In* y = run.out<In>(0) + plane * w.pixels_out();
      for (int64_t od = 0; od < w.out[0]; ++od)
        for (int64_t oh = 0; oh < w.out[1]; ++oh)
          for (int64_t ow = 0; ow < w.out[2]; ++ow) {
            double sum = 0;
            const int64_t left = ow * w.stride[2] - w.begin[2];
            const Window::Part across = w.part(2, left);
            each_row(w, od, oh, [&](int64_t row) {
              for (int64_t kw = across.first; kw < across.last; ++kw) {
                const int64_t iw = left + kw * w.dilation[2];
                const double value = std::abs(double(Compute<In>::load(x[row + iw])));
                sum += p == 1 ? value : p == 2 ? value * value : std::pow(value, double(p));
              }
            });
            const double norm = p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / double(p));
            *y++ = Compute<In>::store(compute_t<In>(norm));
          }
    });
  }
};

// Shape and window of a pool's node.
Status read_pool(OpContext& context, Window& window, int64_t& planes, Dims& out) {
  const Dims& x = context.dims(0);
  const auto kernel = context.attr().ints("kernel_shape");
  if (!kernel || kernel->empty()) return context.bad("attribute kernel_shape is missing");
  WindowRules rules;
  rules.ceil_mode = context.attr().int_or("ceil_mode", 0) != 0;
  BELAY_TRY(read_window(context, context.attr(), x, *kernel, rules, window));
  planes = x[0] * x[1];
  out = {x[0], x[1]};
  for (const int64_t dim : window.out_dims()) out.push_back(dim);
  context.cost_ns(double(planes) * double(window.pixels_out()) * seen_volume(window) * 0.2);
  return {};
}

Status prepare_max_pool(OpContext& context) {
  Window window;
  int64_t planes = 0;
  Dims out;
  BELAY_TRY(read_pool(context, window, planes, out));
  const int64_t order = context.attr().int_or("storage_order", 0);
  if (order != 0 && order != 1)
    return context.bad("attribute storage_order is " + std::to_string(order) + ", want 0 or 1");
  BELAY_TRY(context.output(0, context.dtype(0), out));
  BELAY_TRY(context.output(1, BELAY_DT_INT64, out));
  if (context.dtype(0) == BELAY_DT_FLOAT32 && !context.wants(1) && FloatMaxPoolKernel::fits(window)) {
    FloatMaxPoolKernel kernel{window, planes};
    kernel.begin.push_back(0);
    for (int64_t d = 0; d < window.out[0]; ++d)
      for (int64_t h = 0; h < window.out[1]; ++h) {
        each_row(window, d, h, [&](int64_t row) { kernel.rows.push_back(row); });
        kernel.begin.push_back(int64_t(kernel.rows.size()));
      }
    const double ns = double(planes) * (double(window.pixels_out()) * seen_volume(window) * 0.05 + 20);
    kernel.lanes = worthwhile_threads(context.threads(), ns);
    context.workspace(uint64_t(FloatMaxPoolKernel::row_floats(window)) * kernel.lanes * sizeof(float));
    context.cost_ns(ns);
    context.kernel(std::move(kernel), std::string("rows:") + micro().name);
    return {};
  }
  dispatch<kMaxTypes>(context.dtype(0), [&](auto tag) {
    using In = typename decltype(tag)::type;
    if (context.wants(1))
      context.kernel(MaxPoolIndexKernel<In>{window, planes, order == 1});
    else
      context.kernel(MaxPoolKernel<In>{window, planes});
  });
  return {};
}

Status prepare_average_pool(OpContext& context) {
  Window window;
  int64_t planes = 0;
  Dims out;
  BELAY_TRY(read_pool(context, window, planes, out));
  const bool count_pads = context.attr().int_or("count_include_pad", 0) != 0;
  BELAY_TRY(context.output(0, context.dtype(0), out));
  // One window that is all of the input: such sums may be long, and are then added in parts.
  bool whole = window.pixels_in() > 0;
  for (int d = 0; d < 3; ++d)
    whole = whole && window.out[d] == 1 && window.kernel[d] == window.in[d] && window.dilation[d] == 1 &&
            window.begin[d] == 0 && window.end[d] == 0;
  if (whole) {
    average_planes(context, planes, window.pixels_in());
    return {};
  }
  if (context.dtype(0) == BELAY_DT_FLOAT32) {
    if (auto kernel = average_by_taps({window, planes, count_pads})) {
      const double ns = double(planes) * double(window.pixels_out()) * double(window.volume()) / 16;
      kernel->lanes = worthwhile_threads(context.threads(), ns);
      context.workspace(uint64_t(depthwise_scratch(kernel->shape)) * kernel->lanes * sizeof(float));
      context.cost_ns(ns);
      context.kernel(std::move(*kernel), std::string("taps:") + micro().name);
      return {};
    }
  }
  constexpr int64_t kLong = 4096;  // so many terms are summed in double
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    using In = typename decltype(tag)::type;
    if (window.volume() > kLong)
      context.kernel(AveragePoolKernel<In, double>{window, planes, count_pads});
    else
      context.kernel(AveragePoolKernel<In>{window, planes, count_pads});
  });
  return {};
}

Status prepare_lp_pool(OpContext& context) {
  Window window;
  int64_t planes = 0;
  Dims out;
  BELAY_TRY(read_pool(context, window, planes, out));
  // The first definition had p as a float.
  const int64_t p = context.attr().int_or("p", int64_t(context.attr().float_or("p", 2)));
  if (p < 1) return context.bad("attribute p is " + std::to_string(p) + ", want at least 1");
  BELAY_TRY(context.output(0, context.dtype(0), out));
  dispatch<kFloats>(context.dtype(0), [&](auto tag) {
    context.kernel(LpPoolKernel<typename decltype(tag)::type>{window, planes, p});
  });
  return {};
}

}  // namespace

void add_pool(Registry& registry) {
  registry.add(OpDef{.op = "MaxPool", .prepare = prepare_max_pool, .types = {kMaxTypes}, .max_outputs = 2});
  registry.add(OpDef{.op = "AveragePool", .prepare = prepare_average_pool, .types = {kFloats}});
  registry.add(OpDef{.op = "LpPool", .prepare = prepare_lp_pool, .types = {kFloats}});
}

}  // namespace belay::cpu
