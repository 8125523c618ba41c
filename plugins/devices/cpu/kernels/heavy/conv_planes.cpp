#include "conv_planes.hpp"

#include "planes.hpp"

#include <cstring>
#include <vector>

namespace belay::cpu {
namespace {

constexpr int64_t kMostTerms = 512;         // B of a tile is read from the second-level cache for each row of A
constexpr int64_t kBandFloats = 64 * 1024;  // of all channels of a band

// The rows of the output lie one behind the other in the planes too: a band is one run of pixels.
bool contiguous(const Window& w) {
  return w.kernel[2] == 1 && w.stride[2] == 1 && w.begin[2] == 0 && w.end[2] == 0;
}

int64_t whole_vectors(int64_t n) { return round_up(n, tile_kernel<float>().lanes); }

// Pixels of a band as one run over its rows, with what lies between them in the planes.
int64_t flat_run(const Window& w, const Planes& planes, int64_t rows) { return (rows - 1) * planes.pitch + w.out[2]; }

// Whether rows are so short that one run over all of them, whose results are then taken apart, fills vectors better.
bool flat_pays(const ConvShape& shape, const Planes& planes) {
  const Window& w = shape.window;
  const int64_t rows = planes.out_rows;
  constexpr int64_t kTakingApart = 4;  // of a pixel, in multiply-adds
  return rows > 1 && shape.depth() * whole_vectors(flat_run(w, planes, rows)) + rows * w.out[2] * kTakingApart <
                         shape.depth() * rows * whole_vectors(w.out[2]);
}

Planes planes_of(const ConvShape& shape, int64_t most_rows) {
  const Window& w = shape.window;
  const int64_t row = Planes(w, 1, w.out[2]).pitch * w.stride[1] * w.stride[2] * shape.group_inputs();
  const int64_t band = std::max<int64_t>(4, kBandFloats / row - (w.kernel[1] > 1 ? 1 : 0));
  return Planes(w, std::min({band, most_rows, w.out[1]}), w.out[2]);
}

struct ConvPlanesKernel {
  ConvShape shape;
  ConvOperands operands;
  Planes planes;
  std::vector<int64_t> offsets = {};      // of the terms of one output
  std::shared_ptr<const Packed> weights = {};  // null: the weights come at the run
  bool one_run = false;
  bool flat = false;  // one run in scratch memory, from which the rows are taken
  uint32_t lanes = 1;

  int64_t plane_floats() const { return planes.size() * shape.group_inputs(); }
  int64_t flat_step() const { return whole_vectors(flat_run(shape.window, planes, planes.out_rows)); }
  int64_t lane_floats() const { return plane_floats() + (flat ? round_up(flat_step() * shape.group_outputs(), 16) : 0); }
  int64_t weight_floats() const { return packed_rows_size<float>(shape.group_outputs(), shape.depth()); }

  void operator()(const Run& run) const {
    const Window& w = shape.window;
    float* const workspace = run.workspace<float>();
    const float* rows = weights ? static_cast<const float*>(static_cast<const PackedBytes&>(*weights).data)
                                : workspace + lane_floats() * lanes;
    if (!weights)
      for (int64_t g = 0; g < shape.groups; ++g) {
        const int64_t m = shape.group_outputs(), k = shape.depth();
        const MatrixView<float> view{run.in<float>(1) + g * m * k, k, 1};
        pack_rows<float, float>(&view, 0, m, 0, k, workspace + lane_floats() * lanes + g * weight_floats());
      }
    for (uint32_t lane = 0; lane < lanes; ++lane)
      std::memset(workspace + lane_floats() * lane, 0, size_t(plane_floats()) * sizeof(float));
    const Post post = operands.post(run);
    const int64_t bands = ceil_div(w.out[1], planes.out_rows);
    run_lanes(run, shape.batch * shape.groups * bands, lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / bands;
      band(run, post, rows + index % shape.groups * weight_floats(), index, task % bands * planes.out_rows,
           workspace + lane * lane_floats());
    });
  }

  // Rows of the output from `top` on, of image and group `index`.
  void band(const Run& run, const Post& post, const float* a, int64_t index, int64_t top, float* padded) const {
    const Window& w = shape.window;
    const TileKernel<float>& tile = tile_kernel<float>();
    const int64_t m = shape.group_outputs(), k = shape.depth(), group = index % shape.groups;
    const int64_t count = std::min(planes.out_rows, w.out[1] - top), pixels = w.pixels_out();
    const int64_t first = (index / shape.groups * shape.outputs + group * m) * pixels + top * w.out[2];
    float* const y = run.out<float>(0) + first;
    const float* x = run.in<float>(0) + index * shape.group_inputs() * w.pixels_in();
    for (int64_t channel = 0; channel < shape.group_inputs(); ++channel)
      fill_band(w, planes, x + channel * w.pixels_in(), top, padded + channel * planes.size());

    TileEnd<float> end;
    const float* residual = operands.residual(run);
    if (!flat || !residual) post.clamp_into(end);
    if (const float* bias = operands.bias(run)) end.row_bias = bias + group * m;
    if (residual && !flat) {
      end.residual = residual + first;
      end.residual_step = pixels;
    }
    float* const to = flat ? padded + plane_floats() : y;
    const int64_t to_step = flat ? flat_step() : pixels;
    const int64_t runs = one_run || flat ? 1 : count;
    const int64_t length = flat ? flat_run(w, planes, count) : one_run ? count * w.out[2] : w.out[2];
    for (int64_t r = 0; r < runs; ++r)
      for (int64_t j = 0, width; j < length; j += width) {
        width = std::min(tile.columns, length - j);
        // As in run_block(): two tiles of two vectors rather than one of three and one of one.
        if (length - j > tile.columns && length - j <= tile.columns + tile.lanes && tile.columns > 2 * tile.lanes)
          width = 2 * tile.lanes;
        for (int64_t i = 0; i < m; i += tile.rows) {
          TileEnd<float> here = end;
          if (end.row_bias) here.row_bias += i;
          if (end.residual) here.residual += i * pixels + r * w.out[2] + j;
          tile.run_rows(k, a + i * k, padded + r * planes.pitch + j, offsets.data(), to + i * to_step + r * w.out[2] + j,
                        to_step, std::min(tile.rows, m - i), width, here);
        }
      }
    if (flat)
      for (int64_t i = 0; i < m; ++i)
        take_rows(to + i * to_step, residual ? residual + first + i * pixels : nullptr, count, y + i * pixels);
    if (post.none() || end.clamp) return;
    for (int64_t i = 0; i < m; ++i) post.apply(y + i * pixels, count * w.out[2], group * m + i);
  }

  // The residual may lie where y does.
  void take_rows(const float* from, const float* residual, int64_t count, float* y) const {
    const int64_t n = shape.window.out[2];
    for (int64_t r = 0; r < count; ++r, from += planes.pitch, y += n) {
      if (residual) {
        for (int64_t j = 0; j < n; ++j) y[j] = from[j] + residual[r * n + j];
      } else {
        micro().copy_row(y, from, n, 1);
      }
    }
  }
};

}  // namespace

bool planes_fit(const ConvShape& shape) {
  const Window& w = shape.window;
  if (w.pointwise() || w.kernel[0] != 1 || w.in[0] != 1 || w.begin[0] || w.end[0] || shape.depth() > kMostTerms)
    return false;
  if (shape.batch == 0 || shape.outputs == 0) return false;
  if (planes_of(shape, w.out[1]).size() * shape.group_inputs() > 4 * kBandFloats) return false;
  const int64_t lanes = tile_kernel<float>().lanes, row = w.out[2];
  const double m = double(shape.group_outputs()), k = double(shape.depth()), pixels = double(w.pixels_out());
  const auto whole = [&](int64_t n) { return double(whole_vectors(n)); };
  // In vectors of multiply-adds: what lanes behind the ends of runs waste, and what copying takes.
  const Planes band = planes_of(shape, w.out[1]);
  const double runs = contiguous(w)            ? whole(w.pixels_out())
                      : flat_pays(shape, band) ? whole(flat_run(w, band, band.out_rows)) * double(w.out[1]) / double(band.out_rows)
                                               : double(w.out[1]) * whole(row);
  const double planes = runs * m * k + pixels * double(shape.group_inputs() * w.stride[1] * w.stride[2]) * 4;
  const double gathered = whole(w.pixels_out()) * m * k + pixels * k * (row < lanes ? 12 : 6);
  return planes < gathered;
}

Status prepare_planes(OpContext& context, const ConvShape& shape, const ConvFusion& fusion) {
  const Window& w = shape.window;
  const double ns = double(shape.batch * shape.outputs) * double(w.pixels_out()) * double(shape.depth()) * 2 / 80;
  const uint32_t lanes = worthwhile_threads(context.threads(), ns);
  // Some bands for each thread.
  ConvPlanesKernel kernel{.shape = shape,
                          .operands = ConvOperands(context, fusion),
                          .planes = planes_of(shape, lanes > 1 ? ceil_div(w.out[1], int64_t{lanes} * 2) : w.out[1])};
  kernel.lanes = lanes;
  for (int64_t c = 0; c < shape.group_inputs(); ++c)
    for (int64_t h = 0; h < w.kernel[1]; ++h)
      for (int64_t i = 0; i < w.kernel[2]; ++i)
        kernel.offsets.push_back(c * kernel.planes.size() +
                                 kernel.planes.at(w, 0, h * w.dilation[1], i * w.dilation[2]));
  kernel.one_run = contiguous(w);
  kernel.flat = !kernel.one_run && flat_pays(shape, kernel.planes);
  if (context.constant(1)) {
    kernel.weights = pack_conv_rows(context, shape);
    context.input_unused(1);
  }
  const int64_t packed = kernel.weights ? 0 : kernel.weight_floats() * shape.groups;
  context.workspace(uint64_t(kernel.lane_floats() * lanes + packed) * sizeof(float));
  context.cost_ns(ns);
  context.kernel(std::move(kernel), std::string("planes:") + micro().name);
  return {};
}

}  // namespace belay::cpu
