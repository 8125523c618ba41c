// windows.cpp: convolutions, poolings and Resize.
#include "windows.h"

namespace reference {
namespace {

// y[n, m, o] = sum over c, k of (x - zero)[n, c, o * stride + k * dilation - pad] * (w - zero)[m, c, k]
void convolve(Call& call, const std::vector<double>& x, const std::vector<double>& w,
              std::vector<double>& y) {
  const Dims &in = call.in[0].dims, &weights = call.in[1].dims, &out = call.out[0].dims;
  const Windows windows(call.node, in, out, call.node.ints_or("kernel_shape", tail(weights, 2)));
  const int64_t groups = call.node.int_or("group", 1), per_group = weights[1],
                out_per_group = out[1] / groups;
  const Dims in_tail = tail(in, 2), out_tail = tail(out, 2), taps = tail(weights, 2);
  const int64_t in_size = count_of(in_tail), out_size = count_of(out_tail), tap_count = count_of(taps);
  // Which input position each tap of each window reads; -1: padding.
  std::vector<int64_t> reads;
  reads.reserve(size_t(out_size * tap_count));
  Dims at(windows.spatial);
  for (Walk o(out_tail); !o.done(); o.next())
    for (Walk k(taps); !k.done(); k.next())
      reads.push_back(windows.position(o.at(), k.at(), in, at) ? flat(at, in_tail) : -1);
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t m = 0; m < out[1]; ++m) {
      const double* filter = &w[size_t(m * per_group * tap_count)];
      const int64_t first = m / out_per_group * per_group;
      double* to = &y[size_t((n * out[1] + m) * out_size)];
      for (int64_t o = 0; o < out_size; ++o) {
        double sum = 0;
        for (int64_t c = 0; c < per_group; ++c) {
          const double* from = &x[size_t((n * in[1] + first + c) * in_size)];
          for (int64_t k = 0; k < tap_count; ++k)
            if (const int64_t read = reads[size_t(o * tap_count + k)]; read >= 0)
              sum += from[read] * filter[c * tap_count + k];
        }
        to[o] = sum;
      }
    }
}

void conv(Call& call) {
  std::vector<double> y(static_cast<size_t>(call.out[0].count()));
  if (y.empty()) return;
  convolve(call, call.in[0].reals(), call.in[1].reals(), y);
  const int64_t channels = call.out[0].dims[1], inner = count_of(tail(call.out[0].dims, 2));
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    call.out[0].put_real(i, y[size_t(i)] + (call.has(2) ? call.in[2].real(i / inner % channels) : 0));
}

void conv_transpose(Call& call) {
  const Dims &in = call.in[0].dims, &weights = call.in[1].dims, &out = call.out[0].dims;
  const size_t spatial = in.size() - 2;
  const int64_t groups = call.node.int_or("group", 1), in_per_group = in[1] / groups,
                out_per_group = weights[1];
  const Dims strides = call.node.ints_or("strides", Dims(spatial, 1)),
             dilations = call.node.ints_or("dilations", Dims(spatial, 1));
  const Dims extra = call.node.ints_or("output_padding", Dims(spatial, 0)), taps = tail(weights, 2);
  Dims before = call.node.ints_or("pads", Dims(2 * spatial, 0));
  before.resize(spatial);
  const std::string pad = call.node.string_or("auto_pad", "NOTSET");
  if (pad == "SAME_UPPER" || pad == "SAME_LOWER" || call.node.find("output_shape"))
    for (size_t d = 0; d < spatial; ++d) {
      const int64_t whole = strides[d] * (in[d + 2] - 1) + extra[d] + (taps[d] - 1) * dilations[d] + 1;
      const int64_t total = std::max<int64_t>(0, whole - out[d + 2]);  // a larger output ends in zeros
      before[d] = pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
  if (pad == "VALID") before.assign(spatial, 0);
  std::vector<double> x = call.in[0].reals(), w = call.in[1].reals(),
                      y(static_cast<size_t>(call.out[0].count()));
  for (int64_t n = 0; n < in[0]; ++n)
    for (int64_t c = 0; c < in[1]; ++c)
      for (int64_t m = 0; m < out_per_group; ++m)
        for (Walk i(tail(in, 2)); !i.done(); i.next()) {
          Dims from{n, c}, to{n, c / in_per_group * out_per_group + m}, filter{c, m};
          from.insert(from.end(), i.at().begin(), i.at().end());
          to.resize(spatial + 2);
          filter.resize(spatial + 2);
          const double value = x[size_t(flat(from, in))];
          for (Walk k(taps); !k.done(); k.next()) {
            bool inside = true;
            for (size_t d = 0; d < spatial; ++d) {
              to[d + 2] = i.at()[d] * strides[d] + k.at()[d] * dilations[d] - before[d];
              filter[d + 2] = k.at()[d];
              inside = inside && to[d + 2] >= 0 && to[d + 2] < out[d + 2];
            }
            if (inside) y[size_t(flat(to, out))] += value * w[size_t(flat(filter, weights))];
          }
        }
  const int64_t inner = count_of(tail(out, 2));
  for (int64_t i = 0; i < call.out[0].count(); ++i)
    call.out[0].put_real(i, y[size_t(i)] + (call.has(2) ? call.in[2].real(i / inner % out[1]) : 0));
}

void quantised_conv(Call& call, const std::vector<double>& x, const std::vector<double>& w,
                    std::vector<double>& y) {
  if (!y.empty()) convolve(call, x, w, y);
}
void conv_integer(Call& call) {
  std::vector<double> x = call.in[0].reals(), w = call.in[1].reals(),
                      y(static_cast<size_t>(call.out[0].count()));
  for (double& value : x) value -= call.has(2) ? call.in[2].real(0) : 0;
  const int64_t per_filter = call.in[1].count() / std::max<int64_t>(1, call.in[1].dims[0]);
  for (size_t i = 0; call.has(3) && i < w.size(); ++i)
    w[i] -= call.in[3].real(call.in[3].count() == 1 ? 0 : int64_t(i) / per_filter);
  quantised_conv(call, x, w, y);
  for (int64_t i = 0; i < call.out[0].count(); ++i) call.out[0].put_integer(i, int64_t(y[size_t(i)]));
}

void max_pool(Call& call) {
  const Dims &in = call.in[0].dims, &out = call.out[0].dims;
  const Windows windows(call.node, in, out, call.node.ints_or("kernel_shape", {}));
  const Dims in_tail = tail(in, 2);
  const bool columns = call.node.int_or("storage_order", 0);
  Dims at(windows.spatial);
  int64_t i = 0;
  for (int64_t plane = 0; plane < in[0] * in[1]; ++plane)
    for (Walk o(tail(out, 2)); !o.done(); o.next(), ++i) {
      int64_t best = -1;
      Dims best_at;
      for (Walk k(windows.kernel); !k.done(); k.next()) {
        if (!windows.position(o.at(), k.at(), in, at)) continue;
        const int64_t here = plane * count_of(in_tail) + flat(at, in_tail);
        if (best < 0 || call.in[0].real(here) > call.in[0].real(best)) {
          best = here;
          best_at = at;
        }
      }
      if (best < 0) throw std::runtime_error("a window lies in the padding alone");
      call.out[0].copy(i, call.in[0], best);
      if (!call.wants(1)) continue;
      int64_t index = best;
      if (columns) {  // the spatial axes are counted from the first, not from the last
        index = 0;
        for (size_t d = windows.spatial; d-- > 0;) index = index * in_tail[d] + best_at[d];
        index += plane * count_of(in_tail);
      }
      call.out[1].put_integer(i, index);
    }
}

void average_pool(Call& call) {
  const Dims &in = call.in[0].dims, &out = call.out[0].dims;
  const Windows windows(call.node, in, out, call.node.ints_or("kernel_shape", {}));
  const Dims in_tail = tail(in, 2);
  const Dims pads = call.node.ints_or("pads", Dims(2 * windows.spatial, 0));
  const bool with_padding = call.node.int_or("count_include_pad", 0);
  Dims at(windows.spatial);
  int64_t i = 0;
  for (int64_t plane = 0; plane < in[0] * in[1]; ++plane)
    for (Walk o(tail(out, 2)); !o.done(); o.next(), ++i) {
      double sum = 0;
      int64_t inside = 0, padded = 0;
      for (Walk k(windows.kernel); !k.done(); k.next()) {
        bool in_padding = true;  // within the declared padding, not beyond it (ceil_mode)
        for (size_t d = 0; d < windows.spatial; ++d) {
          const int64_t where =
              o.at()[d] * windows.strides[d] - windows.before[d] + k.at()[d] * windows.dilations[d];
          const bool automatic = call.node.string_or("auto_pad", "NOTSET") != "NOTSET";
          in_padding = in_padding && (automatic || where < in_tail[d] + pads[windows.spatial + d]);
        }
        padded += in_padding;
        if (!windows.position(o.at(), k.at(), in, at)) continue;
        sum += call.in[0].real(plane * count_of(in_tail) + flat(at, in_tail));
        ++inside;
      }
      call.out[0].put_real(i, sum / double(with_padding ? padded : inside));
    }
}

template <bool kMax>
void global_pool(Call& call) {
  const int64_t inner = count_of(tail(call.in[0].dims, 2));
  for (int64_t plane = 0; plane < call.out[0].count(); ++plane) {
    double sum = kMax ? -INFINITY : 0;
    for (int64_t i = 0; i < inner; ++i) {
      const double value = call.in[0].real(plane * inner + i);
      sum = kMax ? std::max(sum, value) : sum + value;
    }
    call.out[0].put_real(plane, kMax ? sum : sum / double(inner));
  }
}

// ---- Resize
// --------------------------------------------------------------------------------------------------------------
double source_position(const std::string& mode, double at, double scale, double in, double out, double begin,
                       double end) {
  if (mode == "align_corners") return out == 1 ? 0 : at * (in - 1) / (out - 1);
  if (mode == "asymmetric") return at / scale;
  if (mode == "pytorch_half_pixel") return out > 1 ? (at + 0.5) / scale - 0.5 : 0;
  if (mode == "tf_half_pixel_for_nn") return (at + 0.5) / scale;
  if (mode == "tf_crop_and_resize")
    return out > 1 ? begin * (in - 1) + at * (end - begin) * (in - 1) / (out - 1)
                   : 0.5 * (begin + end) * (in - 1);
  if (mode == "half_pixel") return (at + 0.5) / scale - 0.5;
  throw std::runtime_error("coordinate_transformation_mode '" + mode + "'");
}

// The taps of one axis: input positions with their weights.
std::vector<std::pair<int64_t, double>> taps_of(const Node& node, double x, int64_t size) {
  const std::string mode = node.string_or("mode", "nearest");
  auto inside = [size](double at) { return std::clamp<int64_t>(int64_t(at), 0, size - 1); };
  if (mode == "nearest") {
    const std::string round = node.string_or("nearest_mode", "round_prefer_floor");
    const double at = round == "floor"               ? std::floor(x)
                      : round == "ceil"              ? std::ceil(x)
                      : round == "round_prefer_ceil" ? std::floor(x + 0.5)
                                                     : std::ceil(x - 0.5);
    return {{inside(at), 1.0}};
  }
  const double low = std::floor(x), t = x - low;
  std::vector<std::pair<int64_t, double>> taps;
  if (mode == "linear") {
    taps = {{int64_t(low), 1 - t}, {int64_t(low) + 1, t}};
  } else if (mode == "cubic") {
    const double a = node.float_or("cubic_coeff_a", -0.75);
    auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    taps = {{int64_t(low) - 1, far(t + 1)},
            {int64_t(low), near(t)},
            {int64_t(low) + 1, near(1 - t)},
            {int64_t(low) + 2, far(2 - t)}};
  } else {
    throw std::runtime_error("mode '" + mode + "'");
  }
  if (mode == "cubic" && node.int_or("exclude_outside", 0)) {
    double sum = 0;
    for (auto& [at, weight] : taps) sum += weight = at < 0 || at >= size ? 0 : weight;
    for (auto& [at, weight] : taps) weight /= sum;
  }
  for (auto& [at, weight] : taps) at = inside(double(at));
  return taps;
}

void resize(Call& call) {
  const Tensor& in = call.in[0];
  const size_t rank = in.dims.size();
  const std::string mode = call.node.string_or("coordinate_transformation_mode", "half_pixel");
  std::vector<double> scales(rank), roi(2 * rank, 0);
  for (size_t d = 0; d < rank; ++d) {
    scales[d] = call.has(2) && call.in[2].count() ? call.in[2].real(int64_t(d))
                                                  : double(call.out[0].dims[d]) / double(in.dims[d]);
    roi[rank + d] = 1;
  }
  if (mode == "tf_crop_and_resize") roi = call.in[1].reals();
  using Taps = std::vector<std::pair<int64_t, double>>;
  std::vector<std::vector<Taps>> taps(rank);
  std::vector<std::vector<bool>> outside(rank);
  for (size_t d = 0; d < rank; ++d)
    for (int64_t o = 0; o < call.out[0].dims[d]; ++o) {
      const double size = double(in.dims[d]);
      const double x =
          scales[d] == 1 && mode != "tf_crop_and_resize"
              ? double(o)
              : source_position(mode, double(o), scales[d], size, size * scales[d], roi[d], roi[rank + d]);
      outside[d].push_back(mode == "tf_crop_and_resize" && (x < 0 || x > size - 1));
      taps[d].push_back(taps_of(call.node, x, in.dims[d]));
    }
  int64_t i = 0;
  for (Walk walk(call.out[0].dims); !walk.done(); walk.next(), ++i) {
    std::vector<std::pair<int64_t, double>> terms{{0, 1.0}};
    bool beyond = false;
    for (size_t d = 0; d < rank; ++d) {
      const auto& here = taps[d][size_t(walk.at()[d])];
      beyond = beyond || outside[d][size_t(walk.at()[d])];
      std::vector<std::pair<int64_t, double>> next;
      for (const auto& [index, weight] : terms)
        for (const auto& [at, factor] : here) next.push_back({index * in.dims[d] + at, weight * factor});
      terms = std::move(next);
    }
    double sum = 0;
    for (const auto& [index, weight] : terms) sum += weight * in.real(index);
    if (beyond)
      call.out[0].put_real(i, call.node.float_or("extrapolation_value", 0));
    else if (terms.size() == 1)
      call.out[0].copy(i, in, terms[0].first);
    else
      call.out[0].put_real(i, sum);
  }
}

}  // namespace

void add_windows(Table& table) {
  table.insert({{"Conv", {conv}},
                {"ConvTranspose", {conv_transpose}},
                {"ConvInteger", {conv_integer}},
                {"MaxPool", {max_pool}},
                {"AveragePool", {average_pool}},
                {"GlobalAveragePool", {global_pool<false>}},
                {"GlobalMaxPool", {global_pool<true>}},
                {"Resize", {resize, 14}}});
}

}  // namespace reference
