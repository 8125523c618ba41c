// ConvInteger and QLinearConv: 8-bit operands, sums of 32 bits.
#include "../registry.hpp"
#include "conv.hpp"
#include "heavy.hpp"
#include "patches.inc"
#include "requantize.hpp"

#include <string>

namespace belay::cpu {
namespace {

constexpr TypeMask kBytes = kI8 | kU8;

// Positions of the operands; -1: the operator has none.
struct Places {
  int x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias;
};
constexpr Places kConvInteger{0, -1, 2, 1, -1, 3, -1, -1, -1};
constexpr Places kQLinearConv{0, 1, 2, 3, 4, 5, 6, 7, 8};

template <class X, class W, class Y>
struct QuantKernel {
  ConvShape shape;
  Places at{};
  Blocks blocks;
  std::shared_ptr<const Packed> weights;
  bool has_x_zero = false, has_w_zero = false, has_bias = false, has_y_zero = false;
  int64_t w_zero_step = 0, w_scale_step = 0;  // 1: one for each output channel

  MatrixView<W> view(const W* w, const W* zero, int64_t g) const {
    const int64_t m = shape.group_outputs(), k = shape.depth();
    return {w + g * m * k, k, 1, zero ? zero + g * m * w_zero_step : nullptr, w_zero_step, 0};
  }

  struct Finish {
    Y* y;
    int64_t pixels;
    const int32_t* bias;  // of the group's first channel
    const float* w_scale;
    int64_t w_scale_step;
    float scale;  // of the input over that of the output
    int32_t zero;
  };
  static void finish(const void* context, uint32_t* block, int64_t step, int64_t m0, int64_t mc, int64_t n0,
                     int64_t nc) {
    const Finish& f = *static_cast<const Finish*>(context);
    if constexpr (!std::is_same_v<Y, int32_t>)
      for (int64_t i = 0; i < mc; ++i) {
        const float factor = f.scale * f.w_scale[(m0 + i) * f.w_scale_step];
        const uint32_t bias = f.bias ? uint32_t(f.bias[m0 + i]) : 0;
        Y* y = f.y + (m0 + i) * f.pixels + n0;
        for (int64_t j = 0; j < nc; ++j)
          y[j] = requantize<Y>(int32_t(block[i * step + j] + bias), factor, f.zero);
      }
  }

  void operator()(const Run& run) const {
    const int64_t m = shape.group_outputs(), k = shape.depth(), pixels = shape.window.pixels_out();
    const X x_zero = has_x_zero ? *run.in<X>(size_t(at.x_zero)) : X{};
    const W* w_zero = has_w_zero ? run.in<W>(size_t(at.w_zero)) : nullptr;
    const int64_t each = blocks.tasks();
    run_lanes(run, shape.batch * shape.groups * each, blocks.lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / each, n = index / shape.groups, g = index % shape.groups;
      const Patches<X> patches{
          run.in<X>(size_t(at.x)) + (n * shape.inputs + g * shape.group_inputs()) * shape.window.pixels_in(),
          &shape.window, x_zero};
      MatrixView<W> a;
      Product<uint32_t> p;
      p.m = m, p.n = pixels, p.k = k;
      if (weights) {
        p.a_packed = static_cast<const uint32_t*>(static_cast<const PackedBytes&>(*weights).data) +
                     g * packed_rows_size<uint32_t>(m, k);
      } else {
        a = view(run.in<W>(size_t(at.w)), w_zero, g);
        p.pack_a = pack_rows<W, uint32_t>;
        p.a = &a;
      }
      p.pack_b = pack_patches<X, uint32_t>;
      p.b = &patches;
      Y* const y = run.out<Y>(0) + (n * shape.outputs + g * m) * pixels;
      Finish last{};
      if constexpr (std::is_same_v<Y, int32_t>) {
        p.c = reinterpret_cast<uint32_t*>(y);
        p.c_step = pixels;
      } else {
        last.y = y;
        last.pixels = pixels;
        last.bias = has_bias ? run.in<int32_t>(size_t(at.bias)) + g * m : nullptr;
        last.w_scale = run.in<float>(size_t(at.w_scale)) + g * m * w_scale_step;
        last.w_scale_step = w_scale_step;
        last.scale = *run.in<float>(size_t(at.x_scale)) / *run.in<float>(size_t(at.y_scale));
        last.zero = has_y_zero ? int32_t(*run.in<Y>(size_t(at.y_zero))) : 0;
        p.finish = finish;
        p.finish_context = &last;
      }
      run_block<uint32_t>(p, blocks, task % each,
                          lane_scratch<uint32_t>(blocks, run.workspace<void>(), lane));
    });
  }
};

// One value, or (where `channels` allows) one for each output channel; gives the step.
Result<int64_t> per_channel(const OpContext& context, int i, std::string_view name, int64_t channels) {
  const int64_t count = context.count(size_t(i));
  if (context.rank(size_t(i)) <= 1 && count == 1) return int64_t{0};
  if (channels > 0 && context.dims(size_t(i)) == Dims{channels}) return int64_t{1};
  return context.bad(std::string(name) + " has the shape " + text_of(context.dims(size_t(i))) +
                     ", want one value" +
                     (channels > 0 ? " or [" + std::to_string(channels) + "]" : std::string()));
}

template <class X, class W, class Y>
Status prepare_typed(OpContext& context, const Places& at, const ConvShape& shape) {
  QuantKernel<X, W, Y> kernel;
  kernel.shape = shape;
  kernel.at = at;
  const auto has = [&](int i) { return i >= 0 && context.has(size_t(i)); };
  kernel.has_x_zero = has(at.x_zero);
  kernel.has_w_zero = has(at.w_zero);
  kernel.has_y_zero = has(at.y_zero);
  kernel.has_bias = has(at.bias);
  if (kernel.has_x_zero) BELAY_TRY(per_channel(context, at.x_zero, "the input's zero point", 0).status());
  if (kernel.has_w_zero) {
    BELAY_ASSIGN(kernel.w_zero_step,
                 per_channel(context, at.w_zero, "the weights' zero point", shape.outputs));
  }
  if (at.x_scale >= 0) {
    BELAY_TRY(per_channel(context, at.x_scale, "the input's scale", 0).status());
    BELAY_TRY(per_channel(context, at.y_scale, "the output's scale", 0).status());
    BELAY_ASSIGN(kernel.w_scale_step, per_channel(context, at.w_scale, "the weights' scale", shape.outputs));
  }
  if (kernel.has_y_zero) BELAY_TRY(per_channel(context, at.y_zero, "the output's zero point", 0).status());
  if (kernel.has_bias && context.dims(size_t(at.bias)) != Dims{shape.outputs})
    return context.bad("the bias has the shape " + text_of(context.dims(size_t(at.bias))) + ", want [" +
                       std::to_string(shape.outputs) + "]");

  ProductForm form;
  const void* w_zero = kernel.has_w_zero ? context.constant(size_t(at.w_zero)) : nullptr;
  form.a_packed = context.constant(size_t(at.w)) && (!kernel.has_w_zero || w_zero);
  form.c_scratch = !std::is_same_v<Y, int32_t>;
  form.b_pack_cost = 4;
  kernel.blocks = plan_blocks<uint32_t>(shape.group_outputs(), shape.window.pixels_out(), shape.depth(),
                                        shape.batch * shape.groups, context.threads(), form);
  if (form.a_packed) {
    std::string name = "rows of 4 bytes from bytes, groups " + std::to_string(shape.groups) + ", zero";
    if (w_zero)
      for (int64_t i = 0; i < context.count(size_t(at.w_zero)); ++i)
        name += " " + std::to_string(int(static_cast<const W*>(w_zero)[i]));
    kernel.weights = context.packed(size_t(at.w), name, [&]() -> std::shared_ptr<Packed> {
      const int64_t m = shape.group_outputs(), k = shape.depth(), each = packed_rows_size<uint32_t>(m, k);
      auto packed = std::make_shared<PackedBytes>(uint64_t(each * shape.groups) * sizeof(uint32_t));
      for (int64_t g = 0; g < shape.groups; ++g) {
        const MatrixView<W> view = kernel.view(static_cast<const W*>(context.constant(size_t(at.w))),
                                               static_cast<const W*>(w_zero), g);
        pack_rows<W, uint32_t>(&view, 0, m, 0, k, static_cast<uint32_t*>(packed->data) + g * each);
      }
      return packed;
    });
    context.input_unused(size_t(at.w));
  }
  context.workspace(product_workspace<uint32_t>(kernel.blocks));
  context.cost_ns(double(shape.batch * shape.outputs) * double(shape.window.pixels_out()) *
                  double(shape.depth()) / 30);
  context.kernel(std::move(kernel), std::string("products of 32-bit integers:") + micro().name);
  return {};
}

Status expect(const OpContext& context, int i, uint32_t dtype, std::string_view name) {
  if (i < 0 || !context.has(size_t(i)) || context.dtype(size_t(i)) == dtype) return {};
  return context.bad(std::string(name) + " is of type " + std::string(dtype_name(context.dtype(size_t(i)))) +
                     ", want " + std::string(dtype_name(dtype)));
}

template <bool kLinear>
Status prepare_quantized(OpContext& context) {
  constexpr Places at = kLinear ? kQLinearConv : kConvInteger;
  ConvShape shape;
  BELAY_TRY(read_conv(context, context.attr(), size_t(at.x), size_t(at.w), shape));
  BELAY_TRY(expect(context, at.x_zero, context.dtype(size_t(at.x)), "the input's zero point"));
  BELAY_TRY(expect(context, at.w_zero, context.dtype(size_t(at.w)), "the weights' zero point"));
  uint32_t out = BELAY_DT_INT32;
  if (kLinear) {
    out = context.dtype(size_t(at.y_zero));
    for (const int i : {at.x_scale, at.w_scale, at.y_scale})
      BELAY_TRY(expect(context, i, BELAY_DT_FLOAT32, "a scale"));
    BELAY_TRY(expect(context, at.bias, BELAY_DT_INT32, "the bias"));
  }
  BELAY_TRY(context.output(0, out, shape.out_dims()));
  Status status = context.bad("the output's zero point is of type " + std::string(dtype_name(out)) +
                              ", want int8 or uint8");
  dispatch<kBytes>(context.dtype(size_t(at.x)), [&](auto x) {
    dispatch<kBytes>(context.dtype(size_t(at.w)), [&](auto w) {
      using X = typename decltype(x)::type;
      using W = typename decltype(w)::type;
      if constexpr (kLinear) {
        dispatch<kBytes>(out, [&](auto y) {
          status = prepare_typed<X, W, typename decltype(y)::type>(context, at, shape);
        });
      } else {
        status = prepare_typed<X, W, int32_t>(context, at, shape);
      }
    });
  });
  return status;
}

}  // namespace

void add_conv_integer(Registry& registry) {
  registry.add(OpDef{.op = "ConvInteger",
                     .prepare = prepare_quantized<false>,
                     .types = {kBytes, kBytes, kBytes, kBytes},
                     .min_inputs = 2,
                     .max_inputs = 4,
                     .ns_per_byte = 4});
  OpDef linear{.op = "QLinearConv",
               .prepare = prepare_quantized<true>,
               .types = {kBytes, kF32, kBytes, kBytes, kF32, kBytes | kF32 | kI32},
               .min_inputs = 8,
               .max_inputs = 9,
               .ns_per_byte = 4};
  registry.add(linear);
}

}  // namespace belay::cpu
