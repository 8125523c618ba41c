#include "conv.hpp"

#include "../registry.hpp"
#include "conv_planes.hpp"
#include "depthwise.hpp"
#include "patches.inc"
#include "winograd.hpp"

#include <algorithm>
#include <vector>

namespace belay::cpu {

Dims ConvShape::out_dims() const {
  Dims dims{batch, outputs};
  for (const int64_t dim : window.out_dims()) dims.push_back(dim);
  return dims;
}

Status read_conv(const OpContext& context, const Attributes& attributes, size_t x, size_t w,
                 ConvShape& shape) {
  const Dims &x_dims = context.dims(x), &w_dims = context.dims(w);
  if (w_dims.size() < 3)
    return context.bad("the weights have the shape " + text_of(w_dims) + ", want rank 3 at least");
  if (x_dims.size() != w_dims.size())
    return context.bad("the input has the shape " + text_of(x_dims) + ", the weights " + text_of(w_dims) +
                       ", want equal ranks");
  const std::span<const int64_t> kernel = std::span(w_dims).subspan(2);
  if (const auto given = attributes.ints("kernel_shape"))
    if (!given->empty() && !std::ranges::equal(*given, kernel))
      return context.bad("attribute kernel_shape is " + text_of(*given) +
                         ", but the weights have the shape " + text_of(w_dims));
  shape.groups = attributes.int_or("group", 1);
  shape.batch = x_dims[0];
  shape.inputs = x_dims[1];
  shape.outputs = w_dims[0];
  if (shape.groups < 1 || shape.inputs % shape.groups || shape.outputs % shape.groups ||
      shape.inputs / shape.groups != w_dims[1])
    return context.bad("the input has " + std::to_string(shape.inputs) + " channels, the weights the shape " +
                       text_of(w_dims) +
                       ", which does not fit with attribute group = " + std::to_string(shape.groups));
  BELAY_TRY(read_window(context, attributes, x_dims, kernel, {}, shape.window));
  std::ranges::copy(shape.window.kernel, shape.given_kernel);
  return {};
}

void ConvShape::drop_dead_taps() {
  for (int d = 0; d < 3; ++d) {
    Window& w = window;
    if (w.out[d] < 1) continue;
    const int64_t last_window = (w.out[d] - 1) * w.stride[d] - w.begin[d];
    const Window::Part live = w.part(d, -w.begin[d], last_window);
    const int64_t begin = w.begin[d] - live.first * w.dilation[d];
    const int64_t end = last_window + (live.last - 1) * w.dilation[d] + 1 - w.in[d];
    if (live.last - live.first >= w.kernel[d] || live.first == live.last || begin < 0 || end < 0) continue;
    first_tap[d] = live.first;
    w.kernel[d] = live.last - live.first;
    w.begin[d] = begin;
    w.end[d] = end;
  }
}

namespace {

// `loose`: it came from an Add, whose operand may have dims of 1 around the channels.
Status check_bias(const OpContext& context, size_t bias, int64_t outputs, bool loose) {
  if (!context.has(bias)) return {};
  if (loose ? context.count(bias) != outputs : context.dims(bias) != Dims{outputs})
    return context.bad("the bias has the shape " + text_of(context.dims(bias)) + ", want [" +
                       std::to_string(outputs) + "]");
  return {};
}

// Constant weights with the taps of the window alone; `room` holds them where others are left out.
template <class In>
const In* live_weights(const OpContext& context, size_t w, const ConvShape& shape, std::vector<In>& room) {
  const In* from = static_cast<const In*>(context.constant(w));
  if (shape.all_taps()) return from;
  const int64_t *given = shape.given_kernel, *first = shape.first_tap, *kernel = shape.window.kernel;
  room.reserve(size_t(shape.outputs * shape.depth()));
  for (int64_t i = 0; i < shape.outputs * shape.group_inputs(); ++i, from += given[0] * given[1] * given[2])
    for (int64_t a = first[0]; a < first[0] + kernel[0]; ++a)
      for (int64_t b = first[1]; b < first[1] + kernel[1]; ++b) {
        const In* row = from + (a * given[1] + b) * given[2] + first[2];
        room.insert(room.end(), row, row + kernel[2]);
      }
  return room.data();
}

// Tells packed weights of one node apart whose windows differ in what they leave out.
std::string taps_text(const ConvShape& shape) {
  return shape.all_taps() ? "" : ", taps " + text_of(shape.window.kernel) + " from " + text_of(shape.first_tap);
}

// Weights of all groups packed for products; group g begins at g * packed_rows_size(outputs / groups, depth).
template <class In, class T>
std::shared_ptr<const Packed> pack_weights(OpContext& context, size_t w, const ConvShape& shape) {
  const std::string form =
      "rows of " + std::to_string(sizeof(T)) + " bytes, groups " + std::to_string(shape.groups) + taps_text(shape);
  return context.packed(w, form, [&]() -> std::shared_ptr<Packed> {
    const int64_t m = shape.group_outputs(), k = shape.depth(), each = packed_rows_size<T>(m, k);
    auto packed = std::make_shared<PackedBytes>(uint64_t(each * shape.groups) * sizeof(T));
    std::vector<In> room;
    const In* const weights = live_weights(context, w, shape, room);
    for (int64_t g = 0; g < shape.groups; ++g) {
      const MatrixView<In> view{weights + g * m * k, k, 1};
      pack_rows<In, T>(&view, 0, m, 0, k, static_cast<T*>(packed->data) + g * each);
    }
    return packed;
  });
}

// The same for products whose rows are the pixels; group g begins at g * packed_columns_size(outputs / groups,
// depth).
std::shared_ptr<const Packed> pack_weight_columns(OpContext& context, size_t w, const ConvShape& shape) {
  return context.packed(w, "columns, groups " + std::to_string(shape.groups) + taps_text(shape), [&]() -> std::shared_ptr<Packed> {
    const int64_t n = shape.group_outputs(), k = shape.depth(), each = packed_columns_size<float>(n, k);
    auto packed = std::make_shared<PackedBytes>(uint64_t(each * shape.groups) * sizeof(float));
    std::vector<float> room;
    const float* const weights = live_weights(context, w, shape, room);
    for (int64_t g = 0; g < shape.groups; ++g) {
      const MatrixView<float> view{weights + g * n * k, 1, k};
      pack_columns<float, float>(view, k, n, static_cast<float*>(packed->data) + g * each);
    }
    return packed;
  });
}

// Vectors that the tiles of a product of m rows and n columns compute for each of its terms. A tile of few
// sums waits for each of them.
double tile_vectors(int64_t m, int64_t n) {
  const TileKernel<float>& tile = tile_kernel<float>();
  constexpr double kLeast = 5;
  const auto row_of_tiles = [&](int64_t rows) {
    const int64_t vectors = ceil_div(n, tile.lanes), wide = tile.columns / tile.lanes;
    const double last = vectors % wide ? std::max(double(rows * (vectors % wide)), kLeast) : 0;
    return double(vectors / wide) * std::max(double(rows * wide), kLeast) + last;
  };
  return double(m / tile.rows) * row_of_tiles(tile.rows) + (m % tile.rows ? row_of_tiles(m % tile.rows) : 0);
}

// By products: In is the type of the operands, T that of the sums.
template <class In, class T>
struct ConvKernel {
  ConvShape shape;
  Blocks blocks;
  std::shared_ptr<const Packed> weights;  // null: the weights come at the run
  ConvOperands operands;
  bool direct = false;  // pixels are read where they are

  // Takes a finished block over: activation, or conversion from T to In.
  struct Finish {
    const ConvKernel* kernel;
    In* y;  // first channel of the group
    const In* bias;
    int64_t channel;
    Post post;
  };
  static void finish(const void* context, T* block, int64_t step, int64_t m0, int64_t mc, int64_t n0,
                     int64_t nc) {
    const Finish& f = *static_cast<const Finish*>(context);
    if constexpr (std::is_same_v<In, float>) {
      for (int64_t i = 0; i < mc; ++i) f.post.apply(block + i * step, nc, f.channel + m0 + i);
    } else if constexpr (!std::is_same_v<In, T>) {
      const int64_t pixels = f.kernel->shape.window.pixels_out();
      for (int64_t i = 0; i < mc; ++i) {
        In* to = f.y + (m0 + i) * pixels + n0;
        const T bias = f.bias ? T(Compute<In>::load(f.bias[m0 + i])) : T{};
        for (int64_t j = 0; j < nc; ++j) to[j] = Compute<In>::store(block[i * step + j] + bias);
      }
    }
  }

  void operator()(const Run& run) const {
    const int64_t pixels = shape.window.pixels_out();
    const int64_t m = shape.group_outputs(), k = shape.depth();
    const In* bias = operands.bias<In>(run);
    const float* residual = operands.residual(run);
    const Post post = operands.post(run);
    struct State {
      Patches<In> patches;
      MatrixView<In> weights;
      Finish finish;
    };
    const int64_t each = blocks.tasks();
    run_lanes(run, shape.batch * shape.groups * each, blocks.lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / each, n = index / shape.groups, g = index % shape.groups;
      State state;
      state.patches = {
          run.in<In>(0) + (n * shape.inputs + g * shape.group_inputs()) * shape.window.pixels_in(),
          &shape.window, In{}};
      state.weights = {run.in<In>(1) ? run.in<In>(1) + g * m * k : nullptr, k, 1};
      Product<T> p;
      p.m = m, p.n = pixels, p.k = k;
      if (weights) {
        p.a_packed = static_cast<const T*>(static_cast<const PackedBytes&>(*weights).data) +
                     g * packed_rows_size<T>(m, k);
      } else {
        p.pack_a = pack_rows<In, T>;
        p.a = &state.weights;
      }
      if constexpr (std::is_same_v<In, float>)
        p.pack_b = micro().pack_patches;
      else
        p.pack_b = pack_patches<In, T>;
      p.b = &state.patches;
      if constexpr (std::is_same_v<In, T>)
        if (direct) p.b_direct = state.patches.x, p.b_step = pixels;
      In* const y = run.out<In>(0) + (n * shape.outputs + g * m) * pixels;
      state.finish = {this, y, bias ? bias + g * m : nullptr, g * m, post};
      p.finish_context = &state.finish;
      if constexpr (std::is_same_v<In, T>) {
        p.c = y;
        p.c_step = pixels;
        p.end.row_bias = state.finish.bias;
        if constexpr (std::is_same_v<In, float>) {
          if (residual) {
            p.end.residual = residual + (n * shape.outputs + g * m) * pixels;
            p.end.residual_step = pixels;
          }
          if (post.clamps())
            post.clamp_into(p.end);
          else if (!post.none())
            p.finish = finish;
        }
      } else {
        p.finish = finish;
      }
      run_block<T>(p, blocks, task % each, lane_scratch<T>(blocks, run.workspace<void>(), lane));
    });
  }
};

// Where an image has few pixels they would not fill the vectors of a row: the rows are pixels and the columns
// output channels.
struct ConvByPixelKernel {
  ConvShape shape;
  Blocks blocks;
  std::shared_ptr<const Packed> weights;
  ConvOperands operands;

  static void pack_pixels(const void* patches, int64_t m0, int64_t mc, int64_t k0, int64_t kc, float* to) {
    const int64_t rows = tile_kernel<float>().rows;
    for (int64_t i = 0; i < mc; i += rows, to += rows * kc)
      micro().pack_patches(patches, k0, kc, m0 + i, std::min(rows, mc - i), to, rows);
  }

  struct Finish {
    float* y;               // first channel of the group
    const float* residual;  // as y, or null
    int64_t channel, pixels;
    Post post;  // what the tiles did not do
  };
  static void finish(const void* context, float* block, int64_t step, int64_t m0, int64_t mc, int64_t n0,
                     int64_t nc) {
    const Finish& f = *static_cast<const Finish*>(context);
    float* const y = f.y + n0 * f.pixels + m0;
    if (!f.residual) {
      simd().transpose32(reinterpret_cast<const uint32_t*>(block), step, reinterpret_cast<uint32_t*>(y), f.pixels,
                         mc, nc);
    } else {
      // The residual may lie where y does.
      for (int64_t j = 0; j < nc; ++j)
        for (int64_t i = 0; i < mc; ++i)
          y[j * f.pixels + i] = f.residual[(n0 + j) * f.pixels + m0 + i] + block[i * step + j];
    }
    for (int64_t j = 0; j < nc && !f.post.none(); ++j) f.post.apply(y + j * f.pixels, mc, f.channel + n0 + j);
  }

  void operator()(const Run& run) const {
    const int64_t pixels = shape.window.pixels_out(), n = shape.group_outputs(), k = shape.depth();
    const float* bias = operands.bias(run);
    const float* residual = operands.residual(run);
    const Post post = operands.post(run);
    const bool clamp = post.clamps() && !residual;
    const int64_t each = blocks.tasks();
    run_lanes(run, shape.batch * shape.groups * each, blocks.lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / each, g = index % shape.groups, image = index / shape.groups;
      const int64_t at = (image * shape.outputs + g * n) * pixels;
      const Patches<float> patches{
          run.in<float>(0) + (image * shape.inputs + g * shape.group_inputs()) * shape.window.pixels_in(),
          &shape.window};
      const Finish end{run.out<float>(0) + at, residual ? residual + at : nullptr, g * n, pixels,
                       clamp ? Post{} : post};
      Product<float> p;
      p.m = pixels, p.n = n, p.k = k;
      p.pack_a = pack_pixels;
      p.a = &patches;
      p.b_packed = static_cast<const float*>(static_cast<const PackedBytes&>(*weights).data) +
                   g * packed_columns_size<float>(n, k);
      p.end.col_bias = bias ? bias + g * n : nullptr;
      if (clamp) post.clamp_into(p.end);
      p.finish = finish;
      p.finish_context = &end;
      run_block<float>(p, blocks, task % each, lane_scratch<float>(blocks, run.workspace<void>(), lane));
    });
  }
};

Status prepare_by_pixel(OpContext& context, const ConvShape& shape, const ConvFusion& fusion) {
  ConvByPixelKernel kernel;
  kernel.shape = shape;
  kernel.operands = ConvOperands(context, fusion);
  const int64_t products = shape.batch * shape.groups;
  const ProductForm form{.b_packed = true, .c_scratch = true};
  kernel.blocks = plan_blocks<float>(shape.window.pixels_out(), shape.group_outputs(), shape.depth(), products,
                                     context.threads(), form);
  kernel.weights = pack_weight_columns(context, 1, shape);
  context.input_unused(1);
  context.workspace(product_workspace<float>(kernel.blocks));
  context.cost_ns(double(products) * double(shape.group_outputs()) * double(shape.window.pixels_out()) *
                  double(shape.depth()) * 2 / 80);
  context.kernel(std::move(kernel), std::string("products by pixel:") + micro().name);
  return {};
}

template <class In, class T>
Status prepare_products(OpContext& context, const ConvShape& shape, const ConvFusion& fusion) {
  ConvKernel<In, T> kernel;
  kernel.shape = shape;
  kernel.operands = ConvOperands(context, fusion);
  const int64_t products = shape.batch * shape.groups;
  ProductForm form;
  form.a_packed = context.constant(1) != nullptr;
  form.c_scratch = !std::is_same_v<In, T>;
  form.b_pack_cost = shape.window.pointwise() ? 1 : 3;
  // For a few rows it does not pay to copy the pixels.
  form.b_direct = std::is_same_v<In, T> && shape.window.pointwise() &&
                  shape.group_outputs() <= 4 * tile_kernel<T>().rows;
  kernel.blocks = plan_blocks<T>(shape.group_outputs(), shape.window.pixels_out(), shape.depth(), products,
                                 context.threads(), form);
  kernel.direct = form.b_direct;
  if (form.a_packed) {
    kernel.weights = pack_weights<In, T>(context, 1, shape);
    context.input_unused(1);
  }
  context.workspace(product_workspace<T>(kernel.blocks));
  context.cost_ns(double(products) * double(shape.group_outputs()) * double(shape.window.pixels_out()) *
                  double(shape.depth()) * 2 / 80);
  context.kernel(std::move(kernel), std::string("products:") + micro().name);
  return {};
}

struct DepthwiseKernel {
  ConvShape shape;
  ConvOperands operands;
  uint32_t lanes = 1;
  void operator()(const Run& run) const {
    DepthwiseArgs args;
    args.x = run.in<float>(0);
    args.weights = run.in<float>(1);
    args.bias = operands.bias(run);
    args.residual = operands.residual(run);
    args.post = operands.post(run);
    args.y = run.out<float>(0);
    run_depthwise(run, shape, lanes, args, run.workspace<float>());
  }
};

Status prepare_depthwise(OpContext& context, const ConvShape& shape, const ConvFusion& fusion) {
  DepthwiseKernel kernel;
  kernel.shape = shape;
  kernel.operands = ConvOperands(context, fusion);
  const double ns = double(shape.batch * shape.outputs) * double(shape.window.pixels_out()) *
                    double(shape.window.volume()) / 16;
  kernel.lanes = worthwhile_threads(context.threads(), ns);
  context.workspace(uint64_t(depthwise_scratch(shape)) * kernel.lanes * sizeof(float));
  context.cost_ns(ns);
  context.kernel(std::move(kernel), std::string("taps:") + micro().name);
  return {};
}

Status prepare_node(OpContext& context) { return prepare_conv(context, context.attr(), {}); }

}  // namespace

std::shared_ptr<const Packed> pack_conv_rows(OpContext& context, const ConvShape& shape) {
  return pack_weights<float, float>(context, 1, shape);
}

Status prepare_conv(OpContext& context, const Attributes& attributes, const ConvFusion& fusion) {
  ConvShape shape;
  BELAY_TRY(read_conv(context, attributes, 0, 1, shape));
  BELAY_TRY(check_bias(context, fusion.bias >= 0 ? size_t(fusion.bias) : 2, shape.outputs, fusion.bias >= 0));
  BELAY_TRY(context.output(0, context.dtype(0), shape.out_dims()));
  if (context.dtype(1) != context.dtype(0))
    return context.bad("the input is of type " + std::string(dtype_name(context.dtype(0))) +
                       ", the weights of " + std::string(dtype_name(context.dtype(1))));
  if (context.constant(1) && !shape.depthwise()) shape.drop_dead_taps();
  switch (context.dtype(0)) {
    case BELAY_DT_FLOAT32:
      if (shape.depthwise()) return prepare_depthwise(context, shape, fusion);
      if (context.winograd() && context.constant(1))
        if (const auto plan = plan_winograd(shape, context.threads()))
          return prepare_winograd(context, shape, *plan, fusion);
      if (planes_fit(shape)) return prepare_planes(context, shape, fusion);
      if (const int64_t m = shape.group_outputs(), n = shape.window.pixels_out();
          context.constant(1) && tile_vectors(n, m) < 0.9 * tile_vectors(m, n))
        return prepare_by_pixel(context, shape, fusion);
      return prepare_products<float, float>(context, shape, fusion);
    case BELAY_DT_FLOAT64:
      return prepare_products<double, double>(context, shape, fusion);
    case BELAY_DT_FLOAT16:
      return prepare_products<Half, float>(context, shape, fusion);
    default:
      return prepare_products<BFloat16, float>(context, shape, fusion);
  }
}

void add_conv(Registry& registry) {
  registry.add(OpDef{.op = "Conv",
                     .prepare = prepare_node,
                     .types = {kFloats, kFloats, kFloats},
                     .min_inputs = 2,
                     .max_inputs = 3,
                     .ns_per_byte = 2});
}

}  // namespace belay::cpu
