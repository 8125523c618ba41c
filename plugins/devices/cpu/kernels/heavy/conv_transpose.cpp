// ConvTranspose: a product gives what each input pixel adds to the outputs it reaches; that is then summed in
// place.
#include "../registry.hpp"
#include "conv.hpp"
#include "heavy.hpp"

namespace belay::cpu {
namespace {

// Output places [first, last) of input places along dim d at position k of the kernel.
struct Reached {
  int64_t first, last, shift;  // output place = input place * stride + shift
};
Reached reached(const Window& w, int d, int64_t k) {
  const int64_t shift = k * w.dilation[d] - w.begin[d], stride = w.stride[d];
  const int64_t first = shift >= 0 ? 0 : ceil_div(-shift, stride);
  const int64_t last = w.out[d] > shift ? ceil_div(w.out[d] - shift, stride) : 0;
  return {std::min(first, w.in[d]), std::min(std::max(first, last), w.in[d]), shift};
}

template <class In>
struct ConvTransposeKernel {
  using T = compute_t<In>;
  ConvShape
      shape;  // `inputs` and `outputs` are those of the node: weights are (inputs, outputs / groups, ...)
  int64_t chunk = 1, chunks = 1;  // output channels of one task
  Blocks blocks;
  std::shared_ptr<const Packed> weights;
  bool has_bias = false;
  uint32_t lanes = 1;
  int64_t columns_size = 0, lane_size = 0;  // elements of T

  int64_t chunk_rows(int64_t c) const {
    return std::min(chunk, shape.group_outputs() - c * chunk) * shape.window.volume();
  }
  MatrixView<In> view(const In* w, int64_t g, int64_t c) const {
    const int64_t rows = shape.group_outputs() * shape.window.volume();
    return {w + g * shape.group_inputs() * rows + c * chunk * shape.window.volume(), 1, rows};
  }
  int64_t packed_chunk() const {
    return packed_rows_size<T>(chunk * shape.window.volume(), shape.group_inputs());
  }

  std::shared_ptr<Packed> pack(const In* w) const {
    auto packed = std::make_shared<PackedBytes>(uint64_t(packed_chunk() * chunks * shape.groups) * sizeof(T));
    for (int64_t g = 0; g < shape.groups; ++g)
      for (int64_t c = 0; c < chunks; ++c) {
        const MatrixView<In> from = view(w, g, c);
        pack_rows<In, T>(&from, 0, chunk_rows(c), 0, shape.group_inputs(),
                         static_cast<T*>(packed->data) + (g * chunks + c) * packed_chunk());
      }
    return packed;
  }

  void operator()(const Run& run) const {
    const Window& w = shape.window;
    run_lanes(run, shape.batch * shape.groups * chunks, lanes, [&](int64_t task, int64_t lane) {
      const int64_t c = task % chunks, g = task / chunks % shape.groups, n = task / chunks / shape.groups;
      T* const columns = run.workspace<T>() + lane * lane_size;
      T* const scratch = columns + columns_size;
      const MatrixView<In> a = weights ? MatrixView<In>{} : view(run.in<In>(1), g, c);
      const MatrixView<In> b{run.in<In>(0) + (n * shape.inputs + g * shape.group_inputs()) * w.pixels_in(),
                             w.pixels_in(), 1};
      Product<T> p;
      p.m = chunk_rows(c), p.n = w.pixels_in(), p.k = shape.group_inputs();
      if (weights)
        p.a_packed = static_cast<const T*>(static_cast<const PackedBytes&>(*weights).data) +
                     (g * chunks + c) * packed_chunk();
      p.pack_a = pack_rows<In, T>;
      p.a = &a;
      p.pack_b = pack_block<In, T>;
      p.b = &b;
      p.c = columns;
      p.c_step = w.pixels_in();
      for (int64_t block = 0; block < blocks.tasks(); ++block) run_block<T>(p, blocks, block, scratch);

      const int64_t count = p.m / w.volume();
      T* const sums = scratch + blocks.scratch();  // where In is not T
      for (int64_t o = 0; o < count; ++o) {
        const int64_t channel = g * shape.group_outputs() + c * chunk + o;
        In* const y = run.out<In>(0) + (n * shape.outputs + channel) * w.pixels_out();
        T* to;
        if constexpr (std::is_same_v<In, T>)
          to = y;
        else
          to = sums;
        const T bias = has_bias ? T(Compute<In>::load(run.in<In>(2)[channel])) : T{};
        std::fill(to, to + w.pixels_out(), bias);
        scatter(columns + o * w.volume() * w.pixels_in(), to);
        if constexpr (!std::is_same_v<In, T>)
          for (int64_t i = 0; i < w.pixels_out(); ++i) y[i] = Compute<In>::store(to[i]);
      }
    });
  }

  // Adds the columns of one output channel.
  void scatter(const T* columns, T* y) const {
    const Window& w = shape.window;
    for (int64_t kd = 0; kd < w.kernel[0]; ++kd)
      for (int64_t kh = 0; kh < w.kernel[1]; ++kh)
        for (int64_t kw = 0; kw < w.kernel[2]; ++kw, columns += w.pixels_in()) {
          const Reached d = reached(w, 0, kd), h = reached(w, 1, kh), k = reached(w, 2, kw);
          for (int64_t id = d.first; id < d.last; ++id)
            for (int64_t ih = h.first; ih < h.last; ++ih) {
              const T* from = columns + (id * w.in[1] + ih) * w.in[2];
              T* to = y + ((id * w.stride[0] + d.shift) * w.out[1] + ih * w.stride[1] + h.shift) * w.out[2] +
                      k.shift;
              if (w.stride[2] == 1)
                for (int64_t i = k.first; i < k.last; ++i) to[i] += from[i];
              else
                for (int64_t i = k.first; i < k.last; ++i) to[i * w.stride[2]] += from[i];
            }
        }
  }
};

// Output size and pads, from output_shape or from output_padding and pads.
Status read_output(const OpContext& context, Window& w) {
  const Attributes& attributes = context.attr();
  const size_t rank = w.rank;
  BELAY_ASSIGN(const std::vector<int64_t> extra,
               spatial_list(context, attributes, "output_padding", rank, 0, 0));
  std::vector<int64_t> wanted;
  if (const auto given = attributes.ints("output_shape"); given && !given->empty()) {
    wanted = *given;
    // Some exporters write the whole shape.
    if (wanted.size() == rank + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
    if (wanted.size() != rank)
      return context.bad("attribute output_shape is " + text_of(*given) + ", want " + std::to_string(rank) +
                         " values");
    for (const int64_t size : wanted)
      if (size < 0)
        return context.bad("attribute output_shape is " + text_of(*given) + ", want values of at least 0");
  }
  const std::string_view auto_pad = attributes.string_or("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  for (size_t i = 0; i < rank; ++i) {
    const int d = int(3 - rank + i);
    const int64_t whole = (w.in[d] - 1) * w.stride[d] + extra[i] + w.reach(d);
    if (extra[i] >= std::max(w.stride[d], w.dilation[d]))
      return context.bad("attribute output_padding is " + text_of(extra) +
                         ", want values below the strides or dilations");
    if (wanted.empty() && !same) {
      if (auto_pad == "VALID") w.begin[d] = w.end[d] = 0;
      w.out[d] = w.in[d] == 0 ? 0 : whole - w.begin[d] - w.end[d];
      if (w.out[d] < 0)
        return context.bad("the pads " + std::to_string(w.begin[d]) + " and " + std::to_string(w.end[d]) +
                           " of spatial dim " + std::to_string(i) + " are larger than the " +
                           std::to_string(whole) + " elements before padding");
      continue;
    }
    w.out[d] = wanted.empty() ? w.in[d] * w.stride[d] : wanted[i];
    const int64_t total = std::max<int64_t>(0, whole - w.out[d]);
    w.begin[d] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.end[d] = total - w.begin[d];
  }
  return {};
}

template <class In>
void make_kernel(OpContext& context, const ConvShape& shape) {
  using T = compute_t<In>;
  ConvTransposeKernel<In> kernel;
  kernel.shape = shape;
  kernel.has_bias = context.has(2);
  const Window& w = shape.window;
  // The columns of one task stay in the second-level cache, where they can; a task is at least one output
  // channel.
  const int64_t column = w.volume() * w.pixels_in() * int64_t(sizeof(T));
  const double ns = double(shape.batch * shape.groups * shape.group_outputs()) * double(column) / sizeof(T) *
                    (double(shape.group_inputs()) / 40 + 0.5);
  kernel.lanes = worthwhile_threads(context.threads(), ns);
  const int64_t most = std::max<int64_t>(1, (int64_t{512} << 10) / std::max<int64_t>(1, column));
  kernel.chunk = std::clamp<int64_t>(ceil_div(shape.group_outputs(), int64_t(kernel.lanes)), 1, most);
  kernel.chunks = ceil_div(shape.group_outputs(), kernel.chunk);
  ProductForm form;
  form.a_packed = context.constant(1) != nullptr;
  kernel.blocks = plan_blocks<T>(kernel.chunk * w.volume(), w.pixels_in(), shape.group_inputs(), 1, 1, form);
  if (form.a_packed) {
    const std::string name = "transposed rows of " + std::to_string(sizeof(T)) + " bytes, groups " +
                             std::to_string(shape.groups) + ", chunks of " + std::to_string(kernel.chunk);
    kernel.weights =
        context.packed(1, name, [&] { return kernel.pack(static_cast<const In*>(context.constant(1))); });
    context.input_unused(1);
  }
  const int64_t line = 64 / int64_t(sizeof(T));
  kernel.columns_size = round_up(kernel.chunk * w.volume() * w.pixels_in(), line);
  kernel.lane_size = kernel.columns_size + round_up(kernel.blocks.scratch(), line) +
                     (std::is_same_v<In, T> ? 0 : round_up(w.pixels_out(), line));
  context.workspace(uint64_t(kernel.lane_size) * sizeof(T) * kernel.lanes);
  context.cost_ns(ns);
  context.kernel(std::move(kernel), std::string("products:") + micro().name);
}

Status prepare_conv_transpose(OpContext& context) {
  ConvShape shape;
  const Dims &x = context.dims(0), &w = context.dims(1);
  if (w.size() < 3 || x.size() != w.size())
    return context.bad("the input has the shape " + text_of(x) + ", the weights " + text_of(w) +
                       ", want equal ranks of at least 3");
  const std::span<const int64_t> kernel = std::span(w).subspan(2);
  if (const auto given = context.attr().ints("kernel_shape"))
    if (!given->empty() && !std::ranges::equal(*given, kernel))
      return context.bad("attribute kernel_shape is " + text_of(*given) +
                         ", but the weights have the shape " + text_of(w));
  shape.groups = context.attr().int_or("group", 1);
  shape.batch = x[0];
  shape.inputs = x[1];
  if (shape.groups < 1 || shape.inputs % shape.groups || w[0] != shape.inputs)
    return context.bad("the input has " + std::to_string(shape.inputs) + " channels, the weights the shape " +
                       text_of(w) +
                       ", which does not fit with attribute group = " + std::to_string(shape.groups));
  shape.outputs = w[1] * shape.groups;
  WindowRules rules;
  rules.transposed = true;
  BELAY_TRY(read_window(context, context.attr(), x, kernel, rules, shape.window));
  BELAY_TRY(read_output(context, shape.window));
  for (size_t i = 1; i < context.inputs(); ++i)
    if (context.has(i) && context.dtype(i) != context.dtype(0))
      return context.bad("input " + std::to_string(i) + " is of type " +
                         std::string(dtype_name(context.dtype(i))) + ", input 0 of " +
                         std::string(dtype_name(context.dtype(0))) + ", want one type");
  if (context.has(2) && context.dims(2) != Dims{shape.outputs})
    return context.bad("the bias has the shape " + text_of(context.dims(2)) + ", want [" +
                       std::to_string(shape.outputs) + "]");
  BELAY_TRY(context.output(0, context.dtype(0), shape.out_dims()));
  dispatch<kFloats>(context.dtype(0),
                    [&](auto tag) { make_kernel<typename decltype(tag)::type>(context, shape); });
  return {};
}

}  // namespace

void add_conv_transpose(Registry& registry) {
  registry.add(OpDef{.op = "ConvTranspose",
                     .prepare = prepare_conv_transpose,
                     .types = {kFloats, kFloats, kFloats},
                     .min_inputs = 2,
                     .max_inputs = 3,
                     .ns_per_byte = 2});
}

}  // namespace belay::cpu
