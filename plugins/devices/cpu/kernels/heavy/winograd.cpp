#include "winograd.hpp"

#include "planes.hpp"

#include <cstring>

namespace belay::cpu {
namespace {

// The weights of one place of a tile for one pair of channels: G g G^T, where G evaluates three coefficients at
// the points of winograd.inc.
struct WeightTransform {
  int64_t places;
  double g[6][3];
  explicit WeightTransform(int64_t side) : places(side + 2), g{} {
    const double a = 0.75, b = 4.0 / 3;
    const double points[5] = {0, side == 2 ? 1 : a, side == 2 ? -1 : -a, b, -b};
    const int64_t finite = places - 1;
    for (int64_t i = 0; i < finite; ++i) {
      double scale = 1;
      for (int64_t j = 0; j < finite; ++j)
        if (j != i) scale *= points[i] - points[j];
      for (int64_t k = 0; k < 3; ++k) g[i][k] = (k == 0 ? 1 : k == 1 ? points[i] : points[i] * points[i]) / scale;
    }
    g[finite][2] = 1;  // infinity
  }
  void operator()(const float* w, double* u) const {
    double half[6][3];
    for (int64_t i = 0; i < places; ++i)
      for (int64_t k = 0; k < 3; ++k)
        half[i][k] = g[i][0] * w[k] + g[i][1] * w[3 + k] + g[i][2] * w[6 + k];
    for (int64_t i = 0; i < places; ++i)
      for (int64_t j = 0; j < places; ++j)
        u[i * places + j] = half[i][0] * g[j][0] + half[i][1] * g[j][1] + half[i][2] * g[j][2];
  }
};

// For each group and place the weights as rows for products.
std::shared_ptr<const Packed> pack_tiles(OpContext& context, const ConvShape& shape, int64_t side) {
  const std::string form = "tiles of " + std::to_string(side) + ", groups " + std::to_string(shape.groups);
  return context.packed(1, form, [&]() -> std::shared_ptr<Packed> {
    const int64_t m = shape.group_outputs(), k = shape.group_inputs(), rows = tile_kernel<float>().rows;
    const int64_t each = packed_rows_size<float>(m, k), places = (side + 2) * (side + 2);
    auto packed = std::make_shared<PackedBytes>(uint64_t(each * places * shape.groups) * sizeof(float));
    float* const to = static_cast<float*>(packed->data);
    std::memset(to, 0, size_t(each * places * shape.groups) * sizeof(float));
    const WeightTransform transform(side);
    const float* w = static_cast<const float*>(context.constant(1));
    double u[36];
    for (int64_t g = 0; g < shape.groups; ++g)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t p = 0; p < k; ++p, w += 9) {
          transform(w, u);
          float* at = to + g * places * each + (i / rows * k + p) * rows + i % rows;
          for (int64_t place = 0; place < places; ++place) at[place * each] = float(u[place]);
        }
    return packed;
  });
}

// Tiles of a block that lie in one row of the image.
template <class F>
void each_row_of_tiles(const WinogradPlan& plan, int64_t first, int64_t count, F&& f) {
  for (int64_t at = 0; at < count;) {
    const int64_t row = (first + at) / plan.tile_columns, column = (first + at) % plan.tile_columns;
    const int64_t tiles = std::min(count - at, plan.tile_columns - column);
    f(row, column, tiles, at);
    at += tiles;
  }
}

struct WinogradKernel {
  ConvShape shape;
  WinogradPlan plan;
  std::shared_ptr<const Packed> weights;
  ConvOperands operands;
  uint32_t lanes = 1;

  // Floats of a lane: a padded band of a channel, the transformed input, the products of some output channels.
  int64_t rows_of_block() const {
    return std::min(plan.tile_rows, ceil_div(plan.block - 1, plan.tile_columns) + 1);
  }
  Planes planes() const {
    return Planes(shape.window, rows_of_block() * plan.side, plan.tile_columns * plan.side);
  }
  int64_t input_floats() const { return plan.places() * shape.group_inputs() * plan.block; }
  static constexpr int64_t kOutputs = 32;  // channels whose products are there at once
  int64_t product_floats() const { return plan.places() * kOutputs * plan.block + 16; }
  int64_t lane_floats() const { return round_up(planes().size() + input_floats() + product_floats(), 16); }

  void operator()(const Run& run) const {
    const Planes band = planes();
    const Post post = operands.post(run);
    const int64_t floats = lane_floats();
    for (int64_t lane = 0; lane < int64_t(lanes); ++lane)
      std::memset(run.workspace<float>() + lane * floats, 0, size_t(band.size()) * sizeof(float));
    const int64_t each = plan.blocks * plan.output_parts;
    run_lanes(run, shape.batch * shape.groups * each, lanes, [&](int64_t task, int64_t lane) {
      const int64_t index = task / each, part = task % plan.output_parts;
      const int64_t block = task % each / plan.output_parts;
      block_of(run, band, post, index, block, part, run.workspace<float>() + lane * floats);
    });
  }

  // Output channels of part `part` for one block of tiles of image and group `index`.
  void block_of(const Run& run, const Planes& band, const Post& post, int64_t index, int64_t block, int64_t part,
                float* scratch) const {
    const Window& w = shape.window;
    const WinogradTiles& loops = plan.side == 2 ? micro().winograd->side2 : micro().winograd->side4;
    const TileKernel<float>& tile = tile_kernel<float>();
    const int64_t k = shape.group_inputs(), places = plan.places(), step = plan.block;
    const int64_t first = block * plan.block, count = std::min(plan.block, plan.tiles() - first);
    float* const inputs = scratch + band.size();
    float* const products = inputs + input_floats();

    const int64_t top = first / plan.tile_columns;
    const float* x = run.in<float>(0) + index * k * w.pixels_in();
    for (int64_t channel = 0; channel < k; ++channel, x += w.pixels_in()) {
      fill_band(w, band, x, top * plan.side, scratch);
      each_row_of_tiles(plan, first, count, [&](int64_t row, int64_t column, int64_t tiles, int64_t at) {
        loops.input(scratch + (row - top) * plan.side * band.pitch + column * plan.side, band.pitch, tiles,
                    inputs + channel * step + at, k * step);
      });
    }

    const int64_t group = index % shape.groups, each = packed_rows_size<float>(shape.group_outputs(), k);
    const float* u = static_cast<const float*>(static_cast<const PackedBytes&>(*weights).data) +
                     group * places * each;
    const int64_t last = std::min(shape.group_outputs(), (part + 1) * plan.outputs);
    for (int64_t m0 = part * plan.outputs; m0 < last; m0 += kOutputs) {
      const int64_t mc = std::min(kOutputs, last - m0);
      for (int64_t place = 0; place < places; ++place)
        for (int64_t j = 0; j < count; j += tile.columns)
          for (int64_t i = 0; i < mc; i += tile.rows)
            tile.run(k, u + place * each + (m0 + i) * k, inputs + place * k * step + j, step,
                     products + (place * kOutputs + i) * step + j, step, std::min(tile.rows, mc - i),
                     std::min(tile.columns, count - j), {});
      for (int64_t i = 0; i < mc; ++i) store(run, loops, post, index, m0 + i, first, count, products + i * step);
    }
  }

  void store(const Run& run, const WinogradTiles& loops, const Post& post, int64_t index, int64_t channel,
             int64_t first, int64_t count, const float* products) const {
    const Window& w = shape.window;
    const int64_t output = index % shape.groups * shape.group_outputs() + channel;
    const int64_t at = (index / shape.groups * shape.outputs + output) * w.pixels_out();
    const float* const bias = operands.bias(run);
    const float* residual = operands.residual(run);
    if (residual) residual += at;
    WinogradTiles::Output o{};
    o.m_step = kOutputs * plan.block;
    o.y_step = w.out[2];
    o.start = bias ? bias[output] : 0.0f;
    post.clamp_into(o.end);
    each_row_of_tiles(plan, first, count, [&](int64_t row, int64_t column, int64_t tiles, int64_t place) {
      const int64_t pixel = row * plan.side * w.out[2] + column * plan.side;
      o.m = products + place;
      o.tiles = tiles;
      o.y = run.out<float>(0) + at + pixel;
      o.residual = residual ? residual + pixel : nullptr;
      o.rows = std::min(plan.side, w.out[1] - row * plan.side);
      o.columns = std::min(plan.side * tiles, w.out[2] - column * plan.side);
      loops.output(o);
      if (post.none() || post.clamps()) return;
      for (int64_t r = 0; r < o.rows; ++r) post.apply(o.y + r * o.y_step, o.columns, output);
    });
  }
};

}  // namespace

std::optional<WinogradPlan> plan_winograd(const ConvShape& shape, uint32_t threads) {
  const Window& w = shape.window;
  if (w.kernel[0] != 1 || w.in[0] != 1 || w.begin[0] || w.end[0]) return std::nullopt;
  for (const int d : {1, 2})
    if (w.kernel[d] != 3 || w.stride[d] != 1 || w.dilation[d] != 1) return std::nullopt;
  const int64_t m = shape.group_outputs(), k = shape.group_inputs();
  const TileKernel<float>& tile = tile_kernel<float>();
  const double terms = double(m) * double(w.pixels_out()) * double(k) / double(tile.lanes);  // of each tap, in vectors
  std::optional<WinogradPlan> best;
  double best_cost = 9 * terms * 0.8;
  for (const int64_t side : {2, 4}) {
    WinogradPlan plan;
    plan.side = side;
    plan.tile_rows = ceil_div(w.out[1], side);
    plan.tile_columns = ceil_div(w.out[2], side);
    // Transformed weights take places / 9 times the memory: no more than it is worth.
    constexpr int64_t kMore = 2 << 20;
    if ((plan.places() - 9) * m * k * int64_t(sizeof(float)) * shape.groups > kMore) continue;
    const int64_t most = std::min(kWinogradTiles, round_up(tile.columns * 2, tile.lanes));
    plan.block = plan.tiles() <= most ? round_up(plan.tiles(), tile.lanes) : tile.columns;
    plan.blocks = ceil_div(plan.tiles(), plan.block);
    // In vectors of multiply-adds: the products, and what the transforms take for each vector of tiles.
    const double vectors = double((plan.blocks - 1) * (plan.block / tile.lanes)) +
                           double(ceil_div(plan.tiles() - (plan.blocks - 1) * plan.block, tile.lanes));
    const double row_waste = double(plan.tile_rows * round_up(plan.tile_columns, 4)) / double(plan.tiles());
    const double products = double(plan.places()) * vectors * double(m) * double(k);
    const double transforms = double(plan.places()) * 6 * vectors * row_waste * double(m + k);
    const double cost = products + transforms;
    if (cost >= best_cost) continue;
    best_cost = cost;
    const int64_t tasks = shape.batch * shape.groups * plan.blocks;
    plan.output_parts = 1;
    // Parts transform the input each for itself: only where there are too few blocks for the threads.
    if (threads > 1 && tasks < int64_t(threads) * 2) plan.output_parts = std::min<int64_t>(threads, ceil_div(m, 32));
    plan.outputs = round_up(ceil_div(m, plan.output_parts), tile.rows);
    plan.output_parts = ceil_div(m, plan.outputs);
    best = plan;
  }
  return best;
}

Status prepare_winograd(OpContext& context, const ConvShape& shape, const WinogradPlan& plan,
                        const ConvFusion& fusion) {
  WinogradKernel kernel;
  kernel.shape = shape;
  kernel.plan = plan;
  kernel.operands = ConvOperands(context, fusion);
  const double ns = double(shape.batch * shape.groups) * double(plan.places() * plan.tiles()) *
                    double(shape.group_inputs() * shape.group_outputs()) * 2 / 80;
  kernel.lanes = worthwhile_threads(context.threads(), ns);
  kernel.weights = pack_tiles(context, shape, plan.side);
  context.input_unused(1);
  context.workspace(uint64_t(kernel.lane_floats()) * kernel.lanes * sizeof(float));
  context.cost_ns(ns);
  context.kernel(std::move(kernel), "winograd of " + std::to_string(plan.side) + ":" + micro().name);
  return {};
}

}  // namespace belay::cpu
