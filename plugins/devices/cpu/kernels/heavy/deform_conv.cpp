// DeformConv: a convolution whose kernel reads its elements at places moved by offsets, between pixels. The pixels that
// it reads are gathered into columns, which the weights are multiplied with.
#include "../registry.hpp"
#include "heavy.hpp"
#include "product.hpp"
#include "window.hpp"

#include <cmath>

namespace belay::cpu {
namespace {

template <class In>
struct DeformConvKernel {
  using T = compute_t<In>;
  Window window;  // its last two dims
  int64_t batch = 0, channels = 0, outputs = 0, group = 1, offset_group = 1;
  bool has_bias = false, has_mask = false;
  Blocks blocks;
  int64_t columns_at = 0, bias_at = 0, y_at = 0;  // bytes in the workspace, behind the lanes' scratch

  int64_t depth() const { return channels / group * window.volume(); }

  // One row of columns: a channel's pixels under one element of the kernel.
  void gather(const Run& run, int64_t image, int64_t row, T* to) const {
    const int64_t height = window.in[1], width = window.in[2], pixels = window.pixels_out(), taps = window.volume();
    const int64_t channel = row / taps, tap = row % taps, set = channel / (channels / offset_group);
    const In* plane = run.in<In>(0) + (image * channels + channel) * height * width;
    const In* offset = run.in<In>(2) + ((image * offset_group + set) * taps + tap) * 2 * pixels;
    const In* mask = has_mask ? run.in<In>(4) + ((image * offset_group + set) * taps + tap) * pixels : nullptr;
    const auto at = [&](int64_t y, int64_t x) {
      return y >= 0 && y < height && x >= 0 && x < width ? Compute<In>::load(plane[y * width + x]) : T(0);
    };
    for (int64_t p = 0; p < pixels; ++p) {
      const T y = T(p / window.out[2] * window.stride[1] - window.begin[1] +
                    tap / window.kernel[2] * window.dilation[1]) + Compute<In>::load(offset[p]);
      const T x = T(p % window.out[2] * window.stride[2] - window.begin[2] +
                    tap % window.kernel[2] * window.dilation[2]) + Compute<In>::load(offset[pixels + p]);
      T value = 0;
      if (y > -1 && y < T(height) && x > -1 && x < T(width)) {  // not NaN either
        const T fy = std::floor(y), fx = std::floor(x), dy = y - fy, dx = x - fx;
        const int64_t y0 = int64_t(fy), x0 = int64_t(fx);
        value = (1 - dy) * ((1 - dx) * at(y0, x0) + dx * at(y0, x0 + 1)) +
                dy * ((1 - dx) * at(y0 + 1, x0) + dx * at(y0 + 1, x0 + 1));
      }
      to[p] = mask ? value * Compute<In>::load(mask[p]) : value;
    }
  }

  void operator()(const Run& run) const {
    const int64_t pixels = window.pixels_out(), rows = channels * window.volume();
    char* const workspace = run.workspace<char>();
    T* const columns = reinterpret_cast<T*>(workspace + columns_at);
    T* const bias = has_bias ? reinterpret_cast<T*>(workspace + bias_at) : nullptr;
    for (int64_t i = 0; bias && i < outputs; ++i) bias[i] = Compute<In>::load(run.in<In>(3)[i]);
    for (int64_t image = 0; image < batch; ++image) {
      run.parallel(rows, grain_of(double(pixels) * 8), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) gather(run, image, row, columns + row * pixels);
      });
      T* const y = std::is_same_v<In, T> ? run.out<T>(0) + image * outputs * pixels
                                         : reinterpret_cast<T*>(workspace + y_at);
      const int64_t each = outputs / group;
      std::vector<std::pair<MatrixView<In>, MatrixView<T>>> views;
      for (int64_t g = 0; g < group; ++g)
        views.push_back({{run.in<In>(1) + g * each * depth(), depth(), 1}, {columns + g * depth() * pixels, pixels, 1}});
      run_products<T>(run, blocks, group, workspace, [&](int64_t g) {
        Product<T> p;
        p.m = each, p.n = pixels, p.k = depth();
        p.pack_a = pack_rows<In, T>;
        p.a = &views[size_t(g)].first;
        p.pack_b = pack_block<T, T>;
        p.b = &views[size_t(g)].second;
        p.c = y + g * each * pixels;
        p.c_step = pixels;
        if (bias) p.end.row_bias = bias + g * each;
        return p;
      });
      if constexpr (!std::is_same_v<In, T>) {
        In* to = run.out<In>(0) + image * outputs * pixels;
        for (int64_t i = 0; i < outputs * pixels; ++i) to[i] = Compute<In>::store(y[i]);
      }
    }
  }
};

template <class In>
void make_deform_conv(OpContext& op, DeformConvKernel<In> kernel) {
  using T = compute_t<In>;
  const int64_t pixels = kernel.window.pixels_out();
  kernel.blocks =
      plan_blocks<T>(kernel.outputs / kernel.group, pixels, kernel.depth(), kernel.group, op.threads(), {});
  int64_t end = int64_t(product_workspace<T>(kernel.blocks));
  const auto place = [&](int64_t elements) {
    const int64_t at = end;
    end += round_up(elements * int64_t(sizeof(T)), 64);
    return at;
  };
  kernel.columns_at = place(kernel.channels * kernel.window.volume() * pixels);
  kernel.bias_at = place(kernel.outputs);
  if (!std::is_same_v<In, T>) kernel.y_at = place(kernel.outputs * pixels);
  op.workspace(uint64_t(end));
  op.cost_ns(double(kernel.batch) * double(kernel.outputs) * double(pixels) * double(kernel.depth()) * 2 / 80);
  op.kernel(std::move(kernel), std::string("products:") + micro().name);
}

Status prepare_deform_conv(OpContext& op) {
  const Dims &x = op.dims(0), &w = op.dims(1), &offset = op.dims(2);
  if (x.size() != 4 || w.size() != 4 || offset.size() != 4)
    return op.bad("X, W and offset have the shapes " + text_of(x) + ", " + text_of(w) + " and " + text_of(offset) +
                      ", want rank 4",
                  x.size() == 3 || x.size() == 5 ? Code::kUnimplemented : Code::kInvalidArgument);
  const int64_t group = op.attr().int_or("group", 1), offset_group = op.attr().int_or("offset_group", 1);
  if (group < 1 || x[1] != w[1] * group || w[0] % group != 0)
    return op.bad("W has the shape " + text_of(w) + " and group is " + std::to_string(group) + " for an input of shape " +
                  text_of(x));
  if (offset_group < 1 || x[1] % offset_group != 0)
    return op.bad("attribute offset_group is " + std::to_string(offset_group) + ", want a divisor of the " +
                  std::to_string(x[1]) + " channels");
  if (const auto given = op.attr().ints("kernel_shape"); given && *given != Dims{w[2], w[3]})
    return op.bad("attribute kernel_shape is " + text_of(*given) + ", but W has the shape " + text_of(w));
  Window window;
  BELAY_TRY(read_window(op, op.attr(), x, std::span(w).subspan(2), {}, window));
  const Dims out{x[0], w[0], window.out[1], window.out[2]};
  const int64_t taps = window.volume();
  const Dims want{x[0], offset_group * taps * 2, out[2], out[3]}, masks{x[0], offset_group * taps, out[2], out[3]};
  if (offset != want) return op.bad("offset has the shape " + text_of(offset) + ", want " + text_of(want));
  if (op.has(3) && op.dims(3) != Dims{w[0]})
    return op.bad("the bias has the shape " + text_of(op.dims(3)) + ", want [" + std::to_string(w[0]) + "]");
  if (op.has(4) && op.dims(4) != masks)
    return op.bad("mask has the shape " + text_of(op.dims(4)) + ", want " + text_of(masks));
  for (size_t i = 1; i < op.inputs(); ++i)
    if (op.has(i) && op.dtype(i) != op.dtype(0))
      return op.bad("input " + std::to_string(i) + " is of type " + std::string(dtype_name(op.dtype(i))) +
                    ", input 0 of " + std::string(dtype_name(op.dtype(0))) + ", want one type");
  BELAY_TRY(op.output(0, op.dtype(0), out));
  dispatch<kFloats>(op.dtype(0), [&](auto tag) {
    DeformConvKernel<typename decltype(tag)::type> kernel;
    kernel.window = window;
    kernel.batch = x[0], kernel.channels = x[1], kernel.outputs = w[0];
    kernel.group = group, kernel.offset_group = offset_group;
    kernel.has_bias = op.has(3), kernel.has_mask = op.has(4);
    make_deform_conv(op, std::move(kernel));
  });
  return {};
}

}  // namespace

void add_deform_conv(Registry& registry) {
  registry.add(OpDef{.op = "DeformConv",
                     .prepare = prepare_deform_conv,
                     .types = {kFloats},
                     .min_inputs = 3,
                     .max_inputs = 5,
                     .ns_per_byte = 2});
}

}  // namespace belay::cpu
