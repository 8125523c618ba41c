// ConvInteger and QLinearConv.
#include "conv_bytes.hpp"

#include "int8.hpp"
#include "operands.hpp"

#include <cstring>
#include <string>

namespace belay::cpu {

void BytesConv::finish(const Sums& sums, SumEnd more, int64_t channel, int64_t place, int64_t y_step) const {
  more.row_add = row_add + channel;
  if (out == BELAY_DT_INT32) return byte_micro().to_ints(sums, more, static_cast<int32_t*>(y) + place, y_step);
  ByteEnd last = end;
  last.scale.row = scale + channel;
  byte_micro().to_bytes(sums, more, last, static_cast<uint8_t*>(y) + place, y_step);
}

namespace {

// Positions of the operands; -1: there is none.
struct Places {
  int x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias;
};
constexpr Places kConvInteger{0, -1, 2, 1, -1, 3, -1, -1, -1};
constexpr Places kQLinearConv{0, 1, 2, 3, 4, 5, 6, 7, 8};

// The pixels that a group's kernel sees, as columns of a product: term (channel, kernel position).
struct BytePatches {
  const uint8_t* x;  // first channel of the group
  const Window* window;
  int64_t depth;
  uint8_t zero;  // of a pixel outside
  ByteForm form;
};

// Output pixels of a tile that lie in one row.
struct Piece {
  int64_t depth, row, column, count, at;
};

void pack_byte_patches(const void* context, int64_t n0, int64_t nc, uint32_t* to) {
  const BytePatches& patches = *static_cast<const BytePatches*>(context);
  const Window& w = *patches.window;
  const ByteMicro& micro = byte_micro();
  const int64_t pixels = w.pixels_in();
  if (w.pointwise())
    return pack_byte_panel(patches.x + n0, pixels, 1, patches.depth, nc, patches.form, to);
  Piece pieces[64];
  int64_t count = 0;
  int64_t column = n0 % w.out[2], row = n0 / w.out[2] % w.out[1], depth = n0 / w.out[2] / w.out[1];
  for (int64_t at = 0; at < nc;) {
    const int64_t here = std::min(nc - at, w.out[2] - column);
    pieces[count++] = {depth, row, column, here, at};
    at += here;
    column = 0;
    if (++row == w.out[1]) row = 0, ++depth;
  }
  uint8_t lines[4][64];
  const uint8_t* rows[4];
  const uint8_t* channel = patches.x;
  int64_t kw = 0, kh = 0, kd = 0;
  for (int64_t p = 0; p < patches.depth; p += micro.group, to += micro.columns) {
    for (int64_t t = 0; t < micro.group; ++t) {
      uint8_t* const line = lines[t];
      rows[t] = line;
      if (p + t >= patches.depth) {
        std::memset(line, patches.form.flip ? 0x80 : 0, size_t(nc));  // zero after it is moved
        continue;
      }
      const int64_t d0 = kd * w.dilation[0] - w.begin[0], h0 = kh * w.dilation[1] - w.begin[1],
                    w0 = kw * w.dilation[2] - w.begin[2], stride = w.stride[2];
      // Output columns [first, last) see a pixel of the input through this position of the kernel.
      const int64_t first = w0 >= 0 ? 0 : ceil_div(-w0, stride);
      const int64_t last = w.in[2] > w0 ? ceil_div(w.in[2] - w0, stride) : 0;
      for (int64_t i = 0; i < count; ++i) {
        const Piece& piece = pieces[i];
        uint8_t* const y = line + piece.at;
        const int64_t id = piece.depth * w.stride[0] + d0, ih = piece.row * w.stride[1] + h0;
        int64_t lead = piece.count, end = piece.count;
        if (id >= 0 && id < w.in[0] && ih >= 0 && ih < w.in[1]) {
          lead = std::clamp<int64_t>(first - piece.column, 0, piece.count);
          end = std::clamp<int64_t>(last - piece.column, lead, piece.count);
          if (end > lead)
            micro.copy_steps(channel + (id * w.in[1] + ih) * w.in[2] + (piece.column + lead) * stride + w0, stride,
                       end - lead, y + lead);
        }
        if (lead > 0) std::memset(y, patches.zero, size_t(lead));
        if (end < piece.count) std::memset(y + end, patches.zero, size_t(piece.count - end));
      }
      if (++kw == w.kernel[2]) {
        kw = 0;
        if (++kh == w.kernel[1]) {
          kh = 0;
          if (++kd == w.kernel[0]) kd = 0, channel += pixels;
        }
      }
    }
    micro.interleave(rows, nc, patches.form.flip, patches.form.is_signed, to);
  }
}

struct BytesConvKernel {
  ConvShape shape;
  Places at{};
  ByteBlocks blocks;
  ByteForm x_form, w_form;
  uint32_t out = BELAY_DT_INT32;
  std::shared_ptr<const Packed> weights;  // of each group: its rows; then the sums of all rows
  std::shared_ptr<const Packed> table;    // null: none
  bool taps = false;
  bool w_symmetric = false;  // its zero points are known to be zero
  int64_t w_zero_step = 0, w_scale_step = 0;  // 1: one for each output channel

  int64_t group_words() const { return packed_byte_rows(shape.group_outputs(), shape.depth()); }
  // What goes with the channels stands before the lanes' memory.
  int64_t channel_words() const { return round_up(5 * shape.outputs, 16); }

  void operator()(const Run& run) const {
    const int64_t k = shape.depth(), m = shape.group_outputs();
    int32_t* const row_add = run.workspace<int32_t>();
    float* const scale = reinterpret_cast<float*>(row_add + shape.outputs);
    int32_t* const w_zero = reinterpret_cast<int32_t*>(scale + shape.outputs);
    int32_t* const w_negative = w_zero + shape.outputs;
    int32_t* const own_sums = w_negative + shape.outputs;
    BytesConv conv{};
    conv.x = run.in<uint8_t>(size_t(at.x));
    conv.w = run.in<uint8_t>(size_t(at.w));
    conv.x_zero = at.x_zero >= 0 ? *run.in<uint8_t>(size_t(at.x_zero)) : 0;
    conv.x_form = x_form, conv.w_form = w_form;
    conv.row_add = row_add;
    conv.out = out;
    conv.y = run.out<void>(0);
    const uint32_t* const packed = weights ? static_cast<const uint32_t*>(static_cast<const PackedBytes&>(*weights).data)
                                           : nullptr;
    const int32_t* sums = packed ? reinterpret_cast<const int32_t*>(packed + shape.groups * group_words()) : own_sums;
    if (!packed)
      for (int64_t c = 0; c < shape.outputs; ++c) own_sums[c] = sum_bytes(conv.w + c * k, k, 1, w_form);
    // (w - zw)(x - zx), summed: the sums of w x, less zx times the sum of w, less zw times (the sum of x, less k zx).
    const uint32_t zx = uint32_t(x_form.value(conv.x_zero));
    for (int64_t c = 0; c < shape.outputs; ++c) row_add[c] = int32_t(0u - zx * uint32_t(sums[c]));
    if (!w_symmetric) {
      const uint8_t* zeros = at.w_zero >= 0 ? run.in<uint8_t>(size_t(at.w_zero)) : nullptr;
      for (int64_t c = 0; c < shape.outputs; ++c) {
        w_zero[c] = w_form.value(zeros ? zeros[c * w_zero_step] : 0);
        w_negative[c] = -w_zero[c];
        row_add[c] = int32_t(uint32_t(row_add[c]) + uint32_t(w_zero[c]) * uint32_t(k) * zx);
      }
      conv.w_zero = w_zero;
    }
    if (at.bias >= 0) {
      const int32_t* bias = run.in<int32_t>(size_t(at.bias));
      for (int64_t c = 0; c < shape.outputs; ++c) row_add[c] = int32_t(uint32_t(row_add[c]) + uint32_t(bias[c]));
    }
    if (out != BELAY_DT_INT32) {
      const float by = *run.in<float>(size_t(at.x_scale)) / *run.in<float>(size_t(at.y_scale));
      const float* w_scale = run.in<float>(size_t(at.w_scale));
      for (int64_t c = 0; c < shape.outputs; ++c) scale[c] = by * w_scale[c * w_scale_step];
      conv.scale = scale;
      conv.end.is_signed = out == BELAY_DT_INT8;
      if (at.y_zero >= 0)
        conv.end.zero = ByteForm{false, conv.end.is_signed}.value(*run.in<uint8_t>(size_t(at.y_zero)));
      if (table) conv.end.table = static_cast<const uint8_t*>(static_cast<const PackedBytes&>(*table).data);
    }
    uint32_t* const memory = run.workspace<uint32_t>() + channel_words();
    if (taps) return run_depthwise_bytes(run, shape, conv, blocks.lanes, memory);

    const int64_t pixels = shape.window.pixels_out(), each = blocks.tasks();
    run_lanes(run, shape.batch * shape.groups * each, blocks.lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / each, n = index / shape.groups, g = index % shape.groups;
      const BytePatches patches{
          conv.x + (n * shape.inputs + g * shape.group_inputs()) * shape.window.pixels_in(), &shape.window, k,
          conv.x_zero, x_form};
      ByteProduct p;
      p.m = m, p.n = pixels, p.k = k;
      p.signs = w_form.is_signed ? Signs::kRowsSigned : Signs::kColumnsSigned;
      if (packed) {
        p.a_packed = packed + g * group_words();
      } else {
        p.a = conv.w + g * m * k;
        p.a_row = k;
        p.a_form = w_form;
      }
      p.pack_b = pack_byte_patches;
      p.b = &patches;
      p.want_b_sums = !w_symmetric;
      run_byte_task(p, blocks, task % each, memory + lane * blocks.lane_words(),
                    [&](const Sums& tile, int64_t i, int64_t j, const int32_t*, const int32_t* of_columns) {
                      const int64_t channel = g * m + i;
                      SumEnd more;
                      if (!w_symmetric) {
                        more.row_factor[0] = w_negative + channel;
                        more.column_factor[0] = of_columns;
                      }
                      conv.finish(tile, more, channel, (n * shape.outputs + channel) * pixels + j, pixels);
                    });
    });
  }
};

// One value, or (where `channels` allows) one for each output channel; gives the step.
Result<int64_t> per_channel(const OpContext& context, int i, std::string_view name, int64_t channels) {
  const int64_t count = context.count(size_t(i));
  if (context.rank(size_t(i)) <= 1 && count == 1) return int64_t{0};
  if (channels > 0 && context.dims(size_t(i)) == Dims{channels}) return int64_t{1};
  return context.bad(std::string(name) + " has the shape " + text_of(context.dims(size_t(i))) + ", want one value" +
                     (channels > 0 ? " or [" + std::to_string(channels) + "]" : std::string()));
}

Status check_operands(const OpContext& context, BytesConvKernel& kernel) {
  Places& at = kernel.at;
  const ConvShape& shape = kernel.shape;
  for (int* i : {&at.x_zero, &at.w_zero, &at.y_zero, &at.bias})
    if (*i >= 0 && !context.has(size_t(*i))) *i = -1;
  BELAY_TRY(expect_type(context, at.x_zero, context.dtype(size_t(at.x)), "the input's zero point"));
  BELAY_TRY(expect_type(context, at.w_zero, context.dtype(size_t(at.w)), "the weights' zero point"));
  for (const int i : {at.x_scale, at.w_scale, at.y_scale})
    BELAY_TRY(expect_type(context, i, BELAY_DT_FLOAT32, "a scale"));
  BELAY_TRY(expect_type(context, at.bias, BELAY_DT_INT32, "the bias"));
  if (at.x_zero >= 0) BELAY_TRY(per_channel(context, at.x_zero, "the input's zero point", 0).status());
  if (at.w_zero >= 0) {
    BELAY_ASSIGN(kernel.w_zero_step, per_channel(context, at.w_zero, "the weights' zero point", shape.outputs));
  }
  if (at.x_scale >= 0) {
    BELAY_TRY(per_channel(context, at.x_scale, "the input's scale", 0).status());
    BELAY_TRY(per_channel(context, at.y_scale, "the output's scale", 0).status());
    BELAY_ASSIGN(kernel.w_scale_step, per_channel(context, at.w_scale, "the weights' scale", shape.outputs));
  }
  if (at.y_zero >= 0) BELAY_TRY(per_channel(context, at.y_zero, "the output's zero point", 0).status());
  if (at.bias >= 0 && context.dims(size_t(at.bias)) != Dims{shape.outputs})
    return context.bad("the bias has the shape " + text_of(context.dims(size_t(at.bias))) + ", want [" +
                       std::to_string(shape.outputs) + "]");
  return {};
}

// `table`: the position of 256 bytes that the output is looked up in; -1: none.
Status prepare_conv_bytes(OpContext& context, const Attributes& attributes, const Places& places, uint32_t out,
                          int table) {
  BytesConvKernel kernel;
  Places& at = kernel.at = places;
  kernel.out = out;
  ConvShape& shape = kernel.shape;
  BELAY_TRY(read_conv(context, attributes, size_t(at.x), size_t(at.w), shape));
  BELAY_TRY(check_operands(context, kernel));
  BELAY_TRY(context.output(0, table < 0 ? out : context.dtype(size_t(table)), shape.out_dims()));
  const bool x_signed = context.dtype(size_t(at.x)) == BELAY_DT_INT8,
             w_signed = context.dtype(size_t(at.w)) == BELAY_DT_INT8;
  kernel.w_form = {false, w_signed};
  kernel.x_form = opposite_form(x_signed, w_signed);
  kernel.taps = taps_of_bytes(shape);

  kernel.w_symmetric = known_zeros(context, at.w_zero);
  const auto* w = static_cast<const uint8_t*>(context.constant(size_t(at.w)));
  const int64_t m = shape.group_outputs(), k = shape.depth();
  const double terms = double(shape.batch * shape.outputs) * double(shape.window.pixels_out()) * double(k);
  int64_t lane_words = 0;
  if (kernel.taps) {
    kernel.blocks.lanes = worthwhile_threads(context.threads(), terms / 8);
    lane_words = depthwise_bytes_words(shape);
  } else {
    kernel.blocks = plan_bytes(m, shape.window.pixels_out(), k, shape.batch * shape.groups, context.threads(),
                               w != nullptr, false);
    lane_words = kernel.blocks.lane_words();
    if (w) {
      const std::string form =
          "rows of bytes, groups " + std::to_string(shape.groups) + (w_signed ? ", signed" : "");
      kernel.weights = context.packed(size_t(at.w), form, [&]() -> std::shared_ptr<Packed> {
        const int64_t each = kernel.group_words();
        auto packed = std::make_shared<PackedBytes>(uint64_t(each * shape.groups + shape.outputs) * 4);
        auto* words = static_cast<uint32_t*>(packed->data);
        for (int64_t g = 0; g < shape.groups; ++g)
          pack_byte_rows(w + g * m * k, k, 1, m, k, kernel.w_form, words + g * each);
        auto* sums = reinterpret_cast<int32_t*>(words + each * shape.groups);
        for (int64_t c = 0; c < shape.outputs; ++c) sums[c] = sum_bytes(w + c * k, k, 1, kernel.w_form);
        return packed;
      });
      context.input_unused(size_t(at.w));
    }
  }
  if (table >= 0) {
    const void* bytes = context.constant(size_t(table));
    auto copy = std::make_shared<PackedBytes>(256);
    std::memcpy(copy->data, bytes, 256);
    kernel.table = std::move(copy);
    context.input_unused(size_t(table));
  }
  context.workspace(uint64_t(kernel.channel_words() + lane_words * kernel.blocks.lanes) * 4);
  context.cost_ns(terms / (kernel.taps ? 16 : 200));
  context.kernel(std::move(kernel), std::string(kernel.taps ? "taps of bytes:" : "products of bytes:") +
                                        byte_micro().name);
  return {};
}

Status prepare_conv_integer(OpContext& context) {
  return prepare_conv_bytes(context, context.attr(), kConvInteger, BELAY_DT_INT32, -1);
}

Status prepare_qlinear_conv(OpContext& context) {
  BELAY_ASSIGN(const uint32_t out, byte_output(context, size_t(kQLinearConv.y_zero)));
  return prepare_conv_bytes(context, context.attr(), kQLinearConv, out, -1);
}

// QLinearConv whose bytes are looked up in a constant table.
bool match_table(const ClaimContext& context, uint32_t index, Match& out) {
  const graph::NodeView node = context.view.node(index);
  if (!node.domain().empty() || node.outputs().size() != 1) return false;
  const uint32_t made = node.output(0), next = context.only_consumer(made);
  if (next == BELAY_NONE) return false;
  const graph::NodeView table = context.view.node(next);
  if (table.domain() != "belay" || table.op() != "ByteTable" || table.input(0) != made) return false;
  const auto entries = context.view.shape(table.input(1));
  if (!context.constant(table.input(1)) || !entries || *entries != Dims{256}) return false;
  out.nodes = {index, next};
  out.inputs.assign(node.inputs().begin(), node.inputs().end());
  out.inputs.resize(size_t(kQLinearConv.bias) + 1, BELAY_NONE);
  out.inputs.push_back(table.input(1));
  out.outputs = {table.output(0)};
  out.score = 620;
  const auto y = context.view.shape(made), w = context.view.shape(node.input(size_t(kQLinearConv.w)));
  if (y && w && w->size() > 1 && std::ranges::min(*y) >= 0 && std::ranges::min(*w) > 0)
    out.cost_ns = 300 + uint64_t(double(product(*y)) * double(product(*w) / (*w)[0]) / 200);
  return true;
}
Status prepare_table(PatternContext& pattern) {
  constexpr int kTable = kQLinearConv.bias + 1;
  BELAY_ASSIGN(const uint32_t before, byte_output(pattern.op, size_t(kQLinearConv.y_zero)));
  return prepare_conv_bytes(pattern.op, pattern.attributes(0), kQLinearConv, before, kTable);
}

}  // namespace

void add_conv_bytes(Registry& registry) {
  registry.add(OpDef{.op = "ConvInteger",
                     .prepare = prepare_conv_integer,
                     .types = {kBytes, kBytes, kBytes, kBytes},
                     .min_inputs = 2,
                     .max_inputs = 4,
                     .ns_per_byte = 0.5});
  registry.add(OpDef{.op = "QLinearConv",
                     .prepare = prepare_qlinear_conv,
                     .types = {kBytes, kF32, kBytes, kBytes, kF32, kBytes | kF32 | kI32},
                     .min_inputs = 8,
                     .max_inputs = 9,
                     .ns_per_byte = 0.5});
  registry.add(PatternDef{"QLinearConv with a table", "QLinearConv", match_table, prepare_table});
}

}  // namespace belay::cpu
