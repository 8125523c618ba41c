// Means of 8-bit tensors: QLinearAveragePool, QLinearGlobalAveragePool.
#include "../heavy/window.hpp"
#include "int8.hpp"
#include "operands.hpp"

namespace belay::cpu {
namespace {

struct Lines {
  bool is_signed = false, has_x_zero = false, has_y_zero = false;
  Line x(const Run& run) const { return line_of(run, 1, has_x_zero, is_signed); }
  Line y(const Run& run) const { return line_of(run, 3, has_y_zero, is_signed); }
};
Status read_lines(const OpContext& op, Lines& lines) {
  for (const int i : {1, 2, 3, 4}) BELAY_TRY(expect_one_value(op, i));
  for (const int i : {2, 4}) BELAY_TRY(expect_type_of(op, i, 0));
  lines = {op.dtype(0) == BELAY_DT_INT8, op.has(2), op.has(4)};
  return {};
}

int64_t sum_plane(const uint8_t* x, int64_t n, int64_t step, bool is_signed) {
  int64_t sum = 0;
  if (step == 1) {
    // In parts that 32 bits hold.
    for (int64_t at = 0; at < n; at += 1 << 22)
      sum += byte_micro().sum(x + at, std::min<int64_t>(n - at, 1 << 22), is_signed);
    return sum;
  }
  for (int64_t i = 0; i < n; ++i) sum += ByteForm{false, is_signed}.value(x[i * step]);
  return sum;
}

Status prepare_global_average_bytes(OpContext& op) {
  Lines lines;
  BELAY_TRY(read_lines(op, lines));
  const Dims& x = op.dims(0);
  if (x.size() < 3) return op.bad("the input has the shape " + text_of(x) + ", want rank 3 at least");
  const bool last = op.attr().int_or("channels_last", 0) != 0;
  const size_t channel_axis = last ? x.size() - 1 : 1;
  Dims out(x.size(), 1);
  out[0] = x[0];
  out[channel_axis] = x[channel_axis];
  const int64_t channels = x[channel_axis];
  int64_t pixels = 1;
  for (size_t d = 1; d < x.size(); ++d)
    if (d != channel_axis) pixels *= x[d];
  if (pixels == 0) return op.bad("the input has the shape " + text_of(x) + ", which has nothing to pool");
  BELAY_TRY(op.output(0, op.dtype(0), out));
  const int64_t planes = x[0] * channels;
  op.kernel(
      [=](const Run& run) {
        const Line from = lines.x(run), to = lines.y(run);
        run.parallel(planes, grain_of(10 + double(pixels) * 0.1), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const uint8_t* at =
                run.in<uint8_t>(0) + (last ? i / channels * pixels * channels + i % channels : i * pixels);
            const int64_t sum = sum_plane(at, pixels, last ? channels : 1, lines.is_signed) - pixels * from.zero;
            const float mean = float(sum) * from.scale / float(pixels);
            byte_micro().quantize(&mean, 1, to.scale, to.zero, lines.is_signed, run.out<uint8_t>(0) + i);
          }
        });
      },
      byte_micro().name);
  op.cost_ns(double(op.count(0)) * 0.1);
  return {};
}

struct AverageBytes {
  Lines lines;
  Window window;
  int64_t planes = 0;
  bool count_pads = false;

  // How many positions of the kernel are counted at output place o of dim d.
  int64_t counted(int d, int64_t o) const {
    const int64_t from = o * window.stride[d] - window.begin[d];
    if (!count_pads) return window.part(d, from).last - window.part(d, from).first;
    return std::clamp<int64_t>(ceil_div(window.in[d] + window.end[d] - from, window.dilation[d]), 0, window.kernel[d]);
  }

  void operator()(const Run& run) const {
    const Window& w = window;
    const Line from = lines.x(run), to = lines.y(run);
    const ByteForm form{false, lines.is_signed};
    run.parallel(planes, grain_of(double(w.pixels_out() * w.volume())), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const uint8_t* x = run.in<uint8_t>(0) + plane * w.pixels_in();
        uint8_t* y = run.out<uint8_t>(0) + plane * w.pixels_out();
        constexpr int64_t kPart = 256;  // means that are quantised at once
        float means[kPart];
        for (int64_t at = 0; at < w.pixels_out(); ++at) {
          const int64_t o[3] = {at / (w.out[1] * w.out[2]), at / w.out[2] % w.out[1], at % w.out[2]};
          Window::Part part[3];
          int64_t first[3], count = 1;
          for (int d = 0; d < 3; ++d) {
            first[d] = o[d] * w.stride[d] - w.begin[d];
            part[d] = w.part(d, first[d]);
            count *= counted(d, o[d]);
          }
          int64_t sum = 0;
          for (int64_t a = part[0].first; a < part[0].last; ++a)
            for (int64_t b = part[1].first; b < part[1].last; ++b) {
              const uint8_t* row = x + ((first[0] + a * w.dilation[0]) * w.in[1] + first[1] + b * w.dilation[1]) * w.in[2];
              for (int64_t c = part[2].first; c < part[2].last; ++c)
                sum += form.value(row[first[2] + c * w.dilation[2]]) - from.zero;
            }
          means[at % kPart] = float(sum) * from.scale / float(std::max<int64_t>(1, count));
          if (at % kPart == kPart - 1 || at + 1 == w.pixels_out())
            byte_micro().quantize(means, at % kPart + 1, to.scale, to.zero, lines.is_signed, y + at / kPart * kPart);
        }
      }
    });
  }
};

Status prepare_average_bytes(OpContext& op) {
  AverageBytes kernel;
  BELAY_TRY(read_lines(op, kernel.lines));
  if (op.attr().int_or("channels_last", 0) != 0)
    return op.bad("attribute channels_last is 1, only 0 is supported", Code::kUnimplemented);
  const Dims& x = op.dims(0);
  const auto shape = op.attr().ints("kernel_shape");
  if (!shape || shape->empty()) return op.bad("attribute kernel_shape is missing");
  WindowRules rules;
  rules.ceil_mode = op.attr().int_or("ceil_mode", 0) != 0;
  BELAY_TRY(read_window(op, op.attr(), x, *shape, rules, kernel.window));
  kernel.planes = x[0] * x[1];
  kernel.count_pads = op.attr().int_or("count_include_pad", 0) != 0;
  Dims out{x[0], x[1]};
  for (const int64_t dim : kernel.window.out_dims()) out.push_back(dim);
  BELAY_TRY(op.output(0, op.dtype(0), out));
  op.cost_ns(double(kernel.planes) * double(kernel.window.pixels_out() * kernel.window.volume()));
  op.kernel(std::move(kernel), byte_micro().name);
  return {};
}

}  // namespace

void add_pool_bytes(Registry& registry) {
  const auto add = [&](std::string_view op, PrepareFn prepare) {
    registry.add(OpDef{.op = op,
                       .prepare = prepare,
                       .types = {kBytes, kF32, kBytes, kF32, kBytes},
                       .min_inputs = 4,
                       .max_inputs = 5,
                       .optional = 1 << 2,
                       .domain = "com.microsoft",
                       .ns_per_byte = 0.1});
  };
  add("QLinearAveragePool", prepare_average_bytes);
  add("QLinearGlobalAveragePool", prepare_global_average_bytes);
}

}  // namespace belay::cpu
